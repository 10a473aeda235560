"""Runs that Ctrl-C, a memory ceiling or the system ends: what is written, what is said."""

import json
import resource
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.twin.runs import one_server
from windtunnel.cli import watch
from windtunnel.cli.main import main
from windtunnel.cli.places import Output
from windtunnel.report.terminal import progress
from windtunnel.search.repeats import intervals
from windtunnel.twin import ceiling
from windtunnel.twin.simulation import Simulation

ENDLESS = one_server(count=10**9, rate="100/s")


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "one.yaml"
    path.write_text(ENDLESS)
    return path


def status_of(*args: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(one) for one in args])
    assert isinstance(left.value.code, int)
    return left.value.code


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def ctrl_c(monkeypatch: pytest.MonkeyPatch, presses: int) -> None:
    """Interrupts the run so often, at each look."""
    left = [signal.SIGINT] * presses

    @contextmanager
    def interrupting(*_: object) -> Iterator[object]:
        def look(_: Simulation) -> None:
            while left:
                signal.raise_signal(left.pop())

        yield look

    monkeypatch.setattr(progress, "progress", interrupting)


def test_ctrl_c_keeps_what_a_run_has_done(
    scenario: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(signal.SIGINT)
    ctrl_c(monkeypatch, 1)
    assert status_of("simulate", scenario, "-o", tmp_path / "run") == 130
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["ended_by"] == "interrupt"
    assert "interrupted at" in result["partial"]
    assert result["requests"]["arrived"] > 1_000
    assert "report.html" not in files(tmp_path / "run")
    said = capsys.readouterr()
    assert "simulated, partial" in said.out
    assert f"`windtunnel report {tmp_path / 'run'}` writes the page" in said.err
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert status_of("report", tmp_path / "run") == 0
    assert ", partial" in (tmp_path / "run" / "report.html").read_text()


def test_ctrl_c_in_the_runs_for_intervals_keeps_the_whole_run(
    scenario: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("Ctrl-C raises there")

    monkeypatch.setattr(intervals, "add_intervals", interrupted)
    short = (scenario, "--set", "duration=2s", "-o", tmp_path / "run")
    assert status_of("simulate", *short, "--trust") == 130
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["partial"], result["simulated_seconds"]) == (None, 2.0)
    assert "report.html" not in files(tmp_path / "run")
    said = capsys.readouterr()
    assert "there are no intervals: their runs were interrupted" in said.err
    assert "report.html" not in said.out
    assert f"`windtunnel report {tmp_path / 'run'}` writes the page" in said.err


def test_ctrl_c_counts_many_requests_together(
    scenario: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ctrl_c(monkeypatch, 1)
    monkeypatch.setattr(watch, "MOST_FINISHED", 5)
    scenario.write_text(one_server(count=10**9, rate="1000/s") + "measure: {from: 100ms}\n")
    assert status_of("simulate", scenario, "-o", tmp_path / "run") == 130
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    inside = result["requests"]["unfinished"]
    assert inside > 5
    assert result["partial"].endswith(f"; the {inside:,} requests inside are counted, without rows")
    assert result["requests"]["arrived"] == inside + result["requests"]["completed"]
    assert result["reasons"]["unfinished"] == {
        "the run was interrupted while it was inside": inside
    }
    for part in (*result["slo"].values(), *result["sources"].values(), *result["tenants"].values()):
        assert part["requests"] == sum(part[one] for one in ("completed", "unfinished"))
    assert (
        pq.read_metadata(tmp_path / "run" / "requests.parquet").num_rows
        == (result["requests"]["completed"])
    )
    assert status_of("report", tmp_path / "run") == 0
    assert status_of("explain", tmp_path / "run") == 0
    assert "counted, without rows" in capsys.readouterr().err


def test_a_second_ctrl_c_ends_it_at_once_and_says_how_to_get_so_far(
    scenario: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ctrl_c(monkeypatch, 2)
    assert status_of("simulate", scenario, "-o", tmp_path / "run") == 130
    assert files(tmp_path) == ["one.yaml"]
    said = capsys.readouterr().err
    assert "nothing is written" in said
    assert "--set duration=" in said


def test_a_run_ends_at_its_memory_ceiling(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("simulate", scenario, "-o", tmp_path / "run", "--memory", "1MiB") == 3
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["ended_by"] == "memory"
    said = capsys.readouterr().err
    assert "the results are partial: the memory ceiling of 1 MiB" in said
    assert said.rstrip().endswith("were in use before it began")  # no word on the load
    assert "report.html" in files(tmp_path / "run")


def test_a_search_counts_such_a_run_as_failed(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = ("--vary", "serving.pools.0.replicas=1,2", "--seeds", 1, "--jobs", 1)
    status_of("sweep", scenario, *points, "--memory", "1MiB", "--json", tmp_path / "found.json")
    assert "the memory ceiling of 1 MiB was reached" in (tmp_path / "found.json").read_text()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("simulate",), "windtunnel: about 1 G requests: some "),
        (("sweep", "--seeds", 1, "--jobs", 1), "windtunnel: 2 runs of about 500 M requests each: "),
    ],
)
def test_what_a_large_run_takes_is_told_before_it(
    scenario: Path,
    tmp_path: Path,
    command: tuple[object, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, *options = command
    if name == "sweep":
        options += ["--vary", "workload.0.count=10,1000000000"]
    status_of(name, scenario, *options, "--memory", "1MiB", "-o", tmp_path / "found")
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize("given", ["0", "-1GiB", "much", "4 parsecs"])
def test_a_ceiling_that_is_none(
    scenario: Path, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("simulate", scenario, "--memory", given) == 2
    assert "--memory: " in capsys.readouterr().err


@pytest.mark.parametrize("mebibytes", [60, 180, 390, 560])
def test_a_limit_of_the_address_space_is_a_sentence_and_leaves_no_draft(
    scenario: Path, tmp_path: Path, mebibytes: int
) -> None:
    scenario.write_text(one_server(count=10**9, rate="1000000/s"))
    limit = mebibytes << 20
    done = subprocess.run(
        [sys.executable, "-m", "windtunnel", "simulate", str(scenario), "-o", tmp_path / "run"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert "memory" in done.stderr
    assert [name for name in files(tmp_path) if "draft" in name] == []


def test_what_a_command_had_in_memory_is_gone_before_its_drafts_are_removed() -> None:
    """With nothing left, not even a folder can be listed."""
    kept: list[weakref.ref[object]] = []
    gone: list[bool] = []

    def fail() -> None:
        large = {"a simulation"}
        kept.append(weakref.ref(large))
        raise MemoryError

    def command() -> None:
        with Output() as out:
            out.callback(lambda: gone.append(kept[0]() is None))
            fail()

    with pytest.raises(MemoryError):
        command()
    assert gone == [True]


LIVELOCK = (
    one_server(output=1000)
    + """\
  retries: {attempts: 1000}
faults:
  - {kind: engine-crash, every: {mean: 2s}}
progress: {losses: 5}
"""
)


def test_runs_that_ended_early_are_not_compared_as_if_they_had_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop.yaml").write_text(LIVELOCK)
    vary = ("--vary", "serving.pools.0.replicas=1,2", "--jobs", 1, "--seeds", 2)
    assert status_of("compare", "loop.yaml", *vary) == 3
    said = capsys.readouterr().err
    assert "windtunnel: replicas=1: the run ended early: the one request inside did not" in said
    assert files(tmp_path) == ["loop.yaml"]
    assert status_of("simulate", "loop.yaml", "-o", "a") == 3
    assert status_of("simulate", "loop.yaml", "-o", "b", "--seed", 1) == 3
    assert status_of("compare", "a", "b", "--json", "found.json") == 0
    notes = json.loads(Path("found.json").read_text())["notes"]
    assert [note["says"].split(":")[0] for note in notes[1:]] == ["a ended early", "b ended early"]


def test_designs_keep_to_the_memory_that_is_there(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ceiling, "available_bytes", lambda: 0)
    vary = ("--vary", "serving.pools.0.replicas=1,2", "--jobs", 1, "--json", "-")
    assert status_of("compare", scenario, *vary) == 3
    assert "replicas=1: the run ended early: the memory ceiling of " in capsys.readouterr().err


def test_a_run_in_which_no_server_ever_was_has_a_report(scenario: Path, tmp_path: Path) -> None:
    """Nobody starts one for the requests: they are unfinished, which is no failure."""
    scaling = "scaling: {policy: blis, wake: false, pools: {main: {min: 0}}}\n"
    scenario.write_text(one_server(count=2) + scaling)
    sets = ("--set", "serving.pools.0.replicas=0", "--set", "progress.idle=100")
    assert status_of("simulate", scenario, "-o", tmp_path / "run", *sets) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["ended_by"], result["requests"]["unfinished"]) == ("nothing to wait for", 2)
    assert "report.html" in files(tmp_path / "run")
