"""The command line: what it prints where, and how it exits."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import click
import pytest

import windtunnel
from windtunnel.cli.main import COMMANDS, MODULES, main
from windtunnel.core.errors import InputError, InvariantBroken, WindtunnelError, one_sentence_per

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line; gives its exit code, standard output and standard error."""

    def run_it(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(args)
        captured = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run_it


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Adds a command `fail` that raises what it is given."""

    def add(error: BaseException) -> None:
        @click.command()
        def fail() -> None:
            raise error

        module = ModuleType("windtunnel.cli.fail")
        monkeypatch.setattr(module, "fail", fail, raising=False)
        monkeypatch.setitem(sys.modules, "windtunnel.cli.fail", module)
        monkeypatch.setitem(COMMANDS, "fail", "Fails.")
        monkeypatch.setitem(MODULES, "fail", "windtunnel.cli.fail")

    return add


def test_help_lists_every_command_with_its_line(run: Run) -> None:
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    for name, says in COMMANDS.items():
        assert f"  {name} " in out
        assert says.split()[0] in out


def test_no_arguments_show_the_help(run: Run) -> None:
    code, out, _ = run()
    assert code == 2
    assert out == run("--help")[1]


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"windtunnel {windtunnel.__version__}\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_row_leads_to_a_command_with_the_same_line(name: str, run: Run) -> None:
    code, out, err = run(name, "--help")
    assert (code, err) == (0, "")
    assert COMMANDS[name] in " ".join(out.split())


def test_an_unknown_command_is_told_the_nearest(run: Run) -> None:
    code, out, err = run("doctr")
    assert (code, out) == (2, "")
    assert err.startswith("windtunnel: there is no command 'doctr'; allowed: ")
    assert "did you mean 'doctor'?" in err


def test_an_unknown_command_like_no_other_is_pointed_to_the_help(run: Run) -> None:
    assert "windtunnel --help" in run("xyzzy")[2]


def test_an_unknown_option_is_told_the_nearest(run: Run) -> None:
    code, out, err = run("doctor", "--jsn", "-")
    assert (code, out) == (2, "")
    assert "Did you mean '--json'?" in err
    assert "`windtunnel doctor --help`" in err


@pytest.mark.parametrize("args", [["--nonsense"], ["doctor", "extra"], ["doctor", "--json"]])
def test_misuse_is_one_line_and_exits_2(run: Run, args: list[str]) -> None:
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert err.startswith("windtunnel: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"), [(InputError("it is wrong"), 2), (InvariantBroken("it is impossible"), 3)]
)
def test_an_expected_failure_is_its_sentence(
    run: Run, failing: Callable[[BaseException], None], error: WindtunnelError, code: int
) -> None:
    failing(error)
    assert run("fail") == (code, "", f"windtunnel: {error}\n")


def test_several_faults_are_a_line_each(run: Run, failing: Callable[[BaseException], None]) -> None:
    failing(one_sentence_per([InputError("one"), InputError("two")]))
    assert run("fail") == (2, "", "windtunnel: one\nwindtunnel: two\n")


def test_an_interruption_says_a_word_and_exits_130(
    run: Run, failing: Callable[[BaseException], None]
) -> None:
    failing(KeyboardInterrupt())
    code, out, err = run("fail")
    assert (code, out) == (130, "")
    assert err.strip() == "windtunnel: interrupted"
    failing(ValueError('Error building "model" validator:\n  KeyboardInterrupt: '))
    assert run("fail") == (130, "", "windtunnel: interrupted\n")


def test_a_lack_of_memory_does_not_deny_what_was_written(
    run: Run, failing: Callable[[BaseException], None]
) -> None:
    failing(MemoryError())
    status, _, said = run("fail")
    assert status == 3
    assert "not enough memory" in said
    assert "nothing was written" not in said  # `batch`, `observe`, `sweep` write as they go


def test_a_bug_keeps_its_traceback(failing: Callable[[BaseException], None]) -> None:
    failing(ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError):
        main(["fail"])


def test_a_reader_that_leaves_early_is_no_error() -> None:
    script = (
        "import sys; sys.stdin.readline(); from windtunnel.cli.main import main; main(['doctor'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(b"go\n")
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_terminal_that_lacks_a_letter_ends_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    rows = [f"2023-11-16 18:17:{second},4,5" for second in range(10, 60)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows, ""]))
    told = subprocess.run(
        [sys.executable, "-m", "windtunnel", "trace", "describe", str(trace)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert told.stderr == b""
    assert b"?" in told.stdout


@pytest.mark.parametrize("name", ["--jobs", "--workers"])
@pytest.mark.parametrize("command", ["simulate", "compare", "plan", "sweep", "sensitivity", "fuzz"])
def test_the_number_of_processes_has_both_names_everywhere(
    run: Run, command: str, name: str
) -> None:
    scenario = () if command == "fuzz" else ("none.yaml",)
    code, _, err = run(command, *scenario, name, "0")
    assert code == 2
    assert "0 is not in the range" in err
    assert "--jobs" in err


PRESS = """\
import os, signal, sys

def press(event, args):
    if event == "import" and args[0] == "$module":
        os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.addaudithook(press)
"""
"""Presses Ctrl-C as a module is imported, also where tests run in the background of a shell that
ignores it; Python runs this before anything of ours."""


@pytest.mark.parametrize("with_m", [True, False])
@pytest.mark.parametrize("module", ["windtunnel._forms", "click", "windtunnel.cli.options"])
def test_ctrl_c_while_it_imports_ends_it_without_a_word(
    module: str, tmp_path: Path, *, with_m: bool
) -> None:
    program = tmp_path / "windtunnel"
    program.write_text("from windtunnel.cli.program import program\nprogram()\n")
    (tmp_path / "sitecustomize.py").write_text(PRESS.replace("$module", module))
    ended = subprocess.run(
        [sys.executable, *(("-m", "windtunnel") if with_m else (program,)), "simulate", "--help"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
        capture_output=True,
        check=False,
        timeout=60,
        cwd=Path(windtunnel.__file__).parents[1],
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    ("closed", "command", "status"),
    [
        (">&-", "--version", 0),
        ("2>&-", "--version", 0),
        (">&-", "simulate missing.yaml", 2),
        ("2>&-", "simulate missing.yaml", 2),
    ],
)
def test_a_closed_stream_changes_no_exit_status(closed: str, command: str, status: int) -> None:
    ended = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m windtunnel {command} {closed}"],
        capture_output=True,
        check=False,
        timeout=60,
        cwd=Path(windtunnel.__file__).parents[1],
    )
    assert ended.returncode == status
    assert b"Traceback" not in ended.stderr
