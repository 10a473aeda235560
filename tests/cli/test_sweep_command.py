"""`windtunnel sweep`: what it prints and leaves, how it goes on, and how it refuses."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import windtunnel
from tests.twin.runs import BUSY
from windtunnel.cli.main import main
from windtunnel.search.measure import measured

Run = Callable[..., tuple[int, str, str]]
REPLICAS = "serving.pools.0.replicas"
POLICIES = "serving.router.policy=round-robin,least-loaded"
COUNTED = """
import os
import pathlib

HERE = pathlib.Path(__file__).parent


class Counts:
    def __init__(self):
        with (HERE / "runs.log").open("a") as log:
            log.write("a run\\n")
        if (HERE / "runs.log").read_text().count("a run") == 4:
            os.kill(os.getpid(), 9)

    def choose(self, request, servers):
        return servers[0]
"""
"""A router by which runs can be counted; the fourth of them ends its process."""


@pytest.fixture
def sweep(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs the command in a folder with one scenario in it."""
    (tmp_path / "busy.yaml").write_text(BUSY.replace("duration: 2s", "duration: 300ms"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run_it(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["sweep", "busy.yaml", *args])
        captured = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run_it


def rows(folder: str) -> list[dict[str, Any]]:
    table = pq.read_table(io.BytesIO(Path(folder, "results.parquet").read_bytes()))
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def test_a_sweep_shows_a_table_and_leaves_its_results(sweep: Run) -> None:
    code, out, err = sweep("--vary", f"{REPLICAS}=1..3", "--vary", POLICIES, "--seeds", "2")
    assert (code, err) == (0, "")
    assert out.startswith("busy at 6 points  seeds 0 to 1\n")
    assert "critical attained" in out
    assert "* on the Pareto front of critical attained and " in out
    found = rows("runs/sweep-busy")
    assert len(found) == 12
    assert [row["point"] for row in found] == sorted(row["point"] for row in found)
    assert found[-1][REPLICAS] == 3
    assert found[-1]["serving.router.policy"] == "least-loaded"
    assert list(found[0])[:5] == ["point", REPLICAS, "serving.router.policy", "seed", "failed"]


def test_json_alone_leaves_nothing(sweep: Run) -> None:
    code, out, err = sweep(
        "--vary", f"{REPLICAS}=1..2", "--seeds", "1", "--metric", "cost.total", "--json", "-"
    )
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [point["settings"] for point in found["points"]] == [{REPLICAS: 1}, {REPLICAS: 2}]
    assert found["shown"] == ["cost.total"]
    assert sorted(Path().iterdir()) == [Path("busy.yaml")]


@pytest.mark.xdist_group("workers")
def test_one_job_or_two_leave_the_same_bytes(sweep: Run) -> None:
    asked = ["--vary", f"{REPLICAS}=1..3", "--seeds", "2"]
    for jobs in ("1", "2"):
        assert sweep(*asked, "--jobs", jobs, "-o", f"with-{jobs}", "--json", f"{jobs}.json")[0] == 0
    for name in ("results.parquet", "report.html"):
        assert Path("with-1", name).read_bytes() == Path("with-2", name).read_bytes()
    assert Path("1.json").read_bytes() == Path("2.json").read_bytes()


def started(folder: Path, *args: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "windtunnel", "sweep", "busy.yaml", *args]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(windtunnel.__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_killed_in_the_middle_it_loses_the_run_in_flight_and_no_other(
    sweep: Run, tmp_path: Path
) -> None:
    (tmp_path / "counted.py").write_text(COUNTED)
    asked = ["--vary", f"{REPLICAS}=1..3", "--seeds", "2", "--jobs", "1", "-o", "out"]
    asked += ["--set", "serving.router.policy=counted:Counts"]
    killed = started(tmp_path, *asked)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert not Path("out", "results.parquet").exists()
    for _ in ("the rest", "nothing more"):
        code, _, err = sweep(*asked)
        assert (code, err) == (0, "")
        assert len(rows("out")) == 6
        assert (tmp_path / "runs.log").read_text().count("a run") == 6 + 1


def test_two_sweeps_may_share_a_cache_at_once(sweep: Run, tmp_path: Path) -> None:
    asked = ["--vary", f"{REPLICAS}=1..4", "--seeds", "2", "--jobs", "1", "--cache", "kept"]
    other = started(tmp_path, *asked, "-o", "b")
    assert sweep(*asked, "-o", "a")[0] == 0
    _, err = other.communicate()
    assert (other.returncode, err) == (0, "")
    assert Path("a", "results.parquet").read_bytes() == Path("b", "results.parquet").read_bytes()
    assert len(list(Path("kept").rglob("*.json"))) == 8
    assert not Path("a", "points").exists()


def test_an_interrupt_says_how_to_go_on(sweep: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real, count = measured, iter(range(10))

    def interrupted(plan: Any, **limits: Any) -> Any:
        if next(count) == 2:
            raise KeyboardInterrupt  # what Python makes of a signal, at a moment of our own
        return real(plan, **limits)

    monkeypatch.setattr("windtunnel.search.execution.workers.measured", interrupted)
    asked = ["--vary", f"{REPLICAS}=1..4", "--seeds", "1", "--jobs", "1", "-o", "out"]
    code, out, err = sweep(*asked)
    assert (code, out) == (130, "")
    kept = Path("out", "points")
    assert f"2 of 4 runs are kept in {kept}; the same command continues" in err
    assert sweep(*asked)[0] == 0
    assert len(rows("out")) == 4


def test_a_failed_point_is_told_and_the_rest_are_there(sweep: Run) -> None:
    engine = "serving.pools.0.engine"
    asked = [
        *("--vary", f"{engine}.max_num_batched_tokens=64,4096"),
        *("--vary", f"{engine}.max_num_seqs=16,512", "--seeds", "1", "-o", "out"),
    ]
    code, out, err = sweep(*asked)
    assert code == 1
    assert "failed (point 1): " in out
    assert err.splitlines()[-1] == "windtunnel: 1 of 4 points failed: 1"
    code, out, err = sweep(*asked, "--json", "-")
    assert (code, json.loads(out)["points"][1]["failed"] is None) == (1, False)
    assert err.splitlines()[-1] == "windtunnel: 1 of 4 points failed: 1"
    assert [row["failed"] is None for row in rows("out")] == [True, False, True, True]


def test_the_folder_of_another_sweep_is_refused(sweep: Run) -> None:
    asked = ["--vary", f"{REPLICAS}=1..2", "--seeds", "1", "-o", "out"]
    assert sweep(*asked)[0] == 0
    before = Path("out", "results.parquet").read_bytes()
    code, out, err = sweep("--vary", f"{REPLICAS}=1..3", "--seeds", "1", "-o", "out")
    assert (code, out) == (2, "")
    assert err.startswith("windtunnel: out: holds another sweep: vary was different (choose")
    Path("busy.yaml").write_text(Path("busy.yaml").read_text().replace("300ms", "299ms"))
    assert "holds another sweep: the content of the scenario was different" in sweep(*asked)[2]
    assert Path("out", "results.parquet").read_bytes() == before
    Path("else").mkdir()
    Path("else", "results.parquet").write_text("mine")
    err = sweep("--vary", f"{REPLICAS}=1..2", "-o", "else")[2]
    assert err.startswith("windtunnel: else: has a results.parquet that is not from a sweep")
    assert Path("else", "results.parquet").read_text() == "mine"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([], "--vary: nothing is varied"),
        (["--vary", "serving.pools.0.replica=1..2"], "did you mean 'replicas'?"),
        (["--vary", "serving.pool.0.replicas=1..2"], "there is no list serving.pool"),
        (["--vary", f"{REPLICAS}=4..2"], "the range is empty"),
        (["--vary", f"{REPLICAS}=1..2", "--points", "4"], "--points: a grid has all combinations"),
        (
            ["--vary", f"{REPLICAS}=1..2", "--metric", "latency.ttft.p96"],
            "--metric latency.ttft.p96: there is no figure 'latency.ttft.p96' (did you mean",
        ),
        (["--vary", f"{REPLICAS}=1..2", "-o", " "], "-o: there is no name after it"),
        (["--vary", f"{REPLICAS}=1..2", "-o", "busy.yaml"], "busy.yaml: is a file, not a folder"),
        (
            ["--vary", f"{REPLICAS}=1..2", "--json", "busy.yaml"],
            "--json would overwrite the scenario",
        ),
    ],
)
def test_bad_input_is_a_sentence_and_nothing_runs(
    sweep: Run, args: list[str], sentence: str
) -> None:
    code, out, err = sweep(*args)
    assert (code, out) == (2, "")
    assert sentence in err
    assert not Path("runs").exists()
