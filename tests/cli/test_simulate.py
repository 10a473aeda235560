"""`windtunnel simulate`: what it prints where, what it leaves, how it exits."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.twin.runs import BUSY, one_server
from windtunnel.cli.main import main
from windtunnel.core.invariants import Invariant
from windtunnel.twin import run as run_module
from windtunnel.twin.checks import INVARIANTS
from windtunnel.twin.simulation import Simulation

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def simulate(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs the command in an empty folder with `scenario.yaml` in it."""
    (tmp_path / "scenario.yaml").write_text(BUSY)
    (tmp_path / "one.yaml").write_text(one_server())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run_it(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["simulate", *args])
        captured = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run_it


def left_behind() -> list[str]:
    """Every file and folder beside the scenarios."""
    found = {path.as_posix() for path in Path().rglob("*")}
    return sorted(found - {"scenario.yaml", "one.yaml"})


def files_in(folder: str) -> list[str]:
    """What a run leaves in its folder."""
    return [
        f"{folder}/{name}"
        for name in (
            "control.jsonl",
            "report.html",
            "requests.parquet",
            "result.json",
            "scenario.json",
            "timeline.parquet",
            "token_gaps.parquet",
        )
    ]


def result_at(path: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(Path(path).read_text())
    return result


def test_it_prints_a_table_and_leaves_a_folder(simulate: Run) -> None:
    code, out, err = simulate("scenario.yaml")
    assert (code, err) == (0, "")
    assert out.startswith("busy  seed 0, 2 s simulated\n")
    last = "open runs/busy-0/report.html; the results are beside it"
    assert out.splitlines()[-1] == last
    assert left_behind() == ["runs", "runs/busy-0", *files_in("runs/busy-0")]
    result = result_at("runs/busy-0/result.json")
    rows = pq.read_table("runs/busy-0/requests.parquet")
    assert rows.num_rows == result["requests"]["arrived"]


def test_json_alone_is_the_result_and_nothing_else(simulate: Run) -> None:
    code, out, err = simulate("scenario.yaml", "--json", "-")
    assert (code, err) == (0, "")
    assert left_behind() == []
    simulate("scenario.yaml")
    assert out == Path("runs/busy-0/result.json").read_text()


def test_json_and_a_folder(simulate: Run) -> None:
    code, out, err = simulate("scenario.yaml", "--json", "-", "-o", "here")
    assert (code, err) == (0, "")
    assert out == Path("here/result.json").read_text()
    assert left_behind() == ["here", *files_in("here")]


def test_json_into_a_file(simulate: Run) -> None:
    code, out, _ = simulate("scenario.yaml", "--json", "mine.json", "-o", "here")
    assert code == 0
    assert out.startswith("busy  seed 0")
    assert Path("mine.json").read_bytes() == Path("here/result.json").read_bytes()
    assert left_behind() == ["here", *files_in("here"), "mine.json"]


def test_overrides_and_the_seed_change_the_run_and_its_folder(simulate: Run) -> None:
    set_count = ["--set", "workload.1.count=5", "--set", "serving.pools.0.replicas=1"]
    code, out, _ = simulate("scenario.yaml", *set_count, "--seed", "9")
    assert code == 0
    folder = "runs/busy-9-workload.1.count=5,serving.pools.0.replicas=1"
    changed = result_at(f"{folder}/result.json")
    assert changed["overrides"] == set_count[1::2]
    assert "\n  set workload.1.count=5\n  set serving.pools.0.replicas=1\n" in out
    assert "<code>workload.1.count=5</code>, " in Path(folder, "report.html").read_text()
    assert simulate("scenario.yaml")[0] == 0
    plain = result_at("runs/busy-0/result.json")
    assert plain["overrides"] == []
    assert (changed["seed"], plain["seed"]) == (9, 0)
    assert changed["slo"]["batch"]["requests"] == 5
    assert changed["pools"]["main"]["replica_seconds"] == 2.0
    assert plain["pools"]["main"]["replica_seconds"] == 4.0
    assert changed["scenario_sha256"] != plain["scenario_sha256"]
    assert changed["tokens"] != plain["tokens"]


def test_check_checks_after_every_event_and_changes_nothing_else(simulate: Run) -> None:
    plain = json.loads(simulate("scenario.yaml", "--json", "-")[1])
    checked = json.loads(simulate("scenario.yaml", "--json", "-", "--check")[1])
    assert plain["invariants"]["checked"] == len(INVARIANTS)
    assert checked["invariants"]["checked"] > 1000
    del plain["invariants"], checked["invariants"]
    assert plain == checked


@pytest.mark.parametrize("options", [[], ["--json", "-"], ["--json", "x.json"], ["-o", "deep/er"]])
def test_a_broken_invariant_exits_3_with_the_seed_and_the_event(
    simulate: Run, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    def late(simulation: Simulation) -> str | None:
        return f"it is {simulation.now_s:.3f} s" if simulation.now_s > 1.01 else None

    planted = Invariant[Simulation]("early", "it is never later than that", late)
    monkeypatch.setattr(run_module, "INVARIANTS", (*INVARIANTS, planted))
    code, out, err = simulate("one.yaml", "--check", *options)
    assert (code, out) == (3, "")
    assert re.match(r"windtunnel: one, seed 0, event \d+ at 1\.0\d+ s: ", err)
    assert "invariant 'early' is broken: it is never later than that; saw it is 1.0" in err
    assert "please report it" in err
    assert err.count("\n") == 1
    assert left_behind() == []


def test_an_interrupted_run_leaves_nothing(simulate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(simulation: Simulation) -> str | None:
        raise KeyboardInterrupt

    planted = Invariant[Simulation]("patience", "people wait", interrupted)
    monkeypatch.setattr(run_module, "INVARIANTS", (planted,))
    code, out, err = simulate("one.yaml", "--json", "x.json")
    assert (code, out) == (130, "")
    assert err.strip() == "windtunnel: interrupted"
    assert left_behind() == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_run_leaves_nothing(
    simulate: Run, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    def terminated(simulation: Simulation) -> str | None:
        signal.raise_signal(how)
        return None

    planted = Invariant[Simulation]("patience", "systems wait", terminated)
    monkeypatch.setattr(run_module, "INVARIANTS", (planted,))
    before = signal.signal(how, signal.SIG_DFL)  # tests may run where somebody said to ignore it
    try:
        assert simulate("one.yaml", "--json", "x.json") == (143, "", "")
    finally:
        signal.signal(how, before)
    assert left_behind() == []


def test_a_second_run_replaces_the_first_in_place(simulate: Run) -> None:
    simulate("one.yaml", "-o", "here")
    before = Path("here/result.json").read_bytes()
    Path("here/notes.txt").write_text("mine")
    changed = simulate("one.yaml", "-o", "here", "--set", "workload.0.output_tokens=5")
    assert changed[2] == "windtunnel: here has a run of other settings, which is replaced\n"
    assert left_behind() == ["here", *sorted([*files_in("here"), "here/notes.txt"])]
    assert Path("here/result.json").read_bytes() != before


def test_another_scenario_of_the_same_name_and_seed_is_not_replaced_silently(simulate: Run) -> None:
    simulate("one.yaml")
    assert simulate("one.yaml")[2] == ""
    text = Path("one.yaml").read_text()
    Path("one.yaml").write_text(text.replace("output_tokens: ", "output_tokens: 1"))
    says = "has a run of this name and seed with other settings, which is replaced; -o DIR keeps it"
    assert simulate("one.yaml")[2] == f"windtunnel: runs/one-0 {says}\n"
    assert simulate("one.yaml")[2] == ""
    Path("runs/one-0/result.json").write_bytes(b"\xff")
    assert simulate("one.yaml", "--set", "name=one")[2] == ""


def test_repeats_give_latencies_limits_and_change_nothing_else(simulate: Run) -> None:
    drawn = ("one.yaml", "--set", "workload.0.arrivals.process=poisson")
    simulate(*drawn, "-o", "plain")
    code, out, err = simulate(
        *drawn, "-o", "runs/one-0", "--trust", "--seeds", "2", "--step-error", "5%"
    )
    assert (code, err) == (0, "")
    assert "95% of further runs" in out
    plain, result = result_at("plain/result.json"), result_at("runs/one-0/result.json")
    assert result["trust"]["repeats"]["seeds"] == [0, 1]
    assert result["trust"]["repeats"]["step_error"] == {"main": 0.05}
    low, high = result["trust"]["latency_intervals"]["ttft"]["p99"]
    assert low < result["latency"]["ttft"]["p99"] < high
    assert {**plain, "trust": 0} == {**result, "trust": 0}
    assert "95% of further runs" in Path("runs/one-0/report.html").read_text()


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--seeds", "3"], "--seeds: one run has no use for it (add --trust)"),
        (["--workers", "1"], "--jobs: one run has no use for it (add --trust)"),
        (
            ["--trust", "--seeds", "1"],
            "Invalid value for '--seeds': 1 is not in the range 2<=x<=200",
        ),
        (["--trust", "--step-error", "5ms"], "--step-error: '5ms' is not a share: unknown unit"),
        (
            ["--trust", "--step-error", "95%"],
            "--step-error: 95% is out of range; allowed: 0% to 90%, as in 5% or 0.05",
        ),
        (["--trust", "--step-error=-1%"], "--step-error: -1% is out of range; allowed"),
    ],
)
def test_repeats_that_make_no_sense_are_refused(
    simulate: Run, args: list[str], sentence: str
) -> None:
    code, out, err = simulate("one.yaml", *args)
    assert (code, out) == (2, "")
    assert err.startswith(f"windtunnel: {sentence}")
    assert left_behind() == []


def test_settings_that_change_nothing_are_noted_on_standard_error(
    simulate: Run,
) -> None:
    code, _, err = simulate("one.yaml", "--set", "serving.drain={policy: wait}", "--json", "-")
    assert code == 0
    assert "windtunnel: note: --set serving.drain=" in err
    assert "no server is taken away" in err
