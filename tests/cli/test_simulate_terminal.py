"""What `simulate` sends to a pipe and to a terminal, seen from another process."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import windtunnel
from tests.twin.runs import one_server

COMMAND = [sys.executable, "-m", "windtunnel", "simulate", "one.yaml"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.yaml").write_text(one_server())
    return tmp_path


def environment() -> dict[str, str]:
    source = str(Path(windtunnel.__file__).parents[1])
    plain = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR", "NO_COLOR")}
    return {**plain, "PYTHONPATH": source, "TERM": "xterm-256color"}


def read_all(terminal: int) -> str:
    """What was written to a terminal whose other end is closed."""
    found = b""
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:
            part = b""
        if not part:
            os.close(terminal)
            return found.decode()
        found += part


def on_a_terminal(folder: Path, *args: str) -> tuple[str, str]:
    """What a person sees of standard output and of standard error."""
    out, out_end = pty.openpty()
    err, err_end = pty.openpty()
    command = [*COMMAND, *args]
    done = subprocess.run(
        command, cwd=folder, env=environment(), stdout=out_end, stderr=err_end, check=False
    )
    os.close(out_end)
    os.close(err_end)
    assert done.returncode == 0
    return read_all(out), read_all(err)


def test_a_pipe_gets_plain_text(folder: Path) -> None:
    done = subprocess.run(
        COMMAND, cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert done.stdout.isascii()
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_pipe_gets_json_alone(folder: Path) -> None:
    command = [*COMMAND, "--json", "-"]
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["requests"]["completed"] == 1


def test_a_terminal_gets_colours_and_a_short_run_no_progress(folder: Path) -> None:
    out, err = on_a_terminal(folder)
    assert "\x1b[1mone\x1b[0m" in out
    assert err == ""


def test_json_is_plain_on_a_terminal_too(folder: Path) -> None:
    out, err = on_a_terminal(folder, "--json", "-")
    assert json.loads(out)["name"] == "one"
    assert err == ""


@pytest.mark.parametrize("options", [[], ["--json", "-"]])
def test_a_reader_that_leaves_early_is_no_error(folder: Path, options: list[str]) -> None:
    process = subprocess.Popen(
        [*COMMAND, *options],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    with process:
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0
