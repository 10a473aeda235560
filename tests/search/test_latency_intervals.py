"""Latencies with limits: what chance does to them, what errors of step times do, and both."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.test_trust import physics
from tests.search.test_comparison import replay
from tests.twin.runs import BUSY, one_server
from windtunnel.core.statistics.intervals import next_positive_interval
from windtunnel.search.repeats.intervals import FIGURES, add_intervals
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

PACED = one_server(count=200, rate="20/s").replace("process: constant", "process: poisson")


def repeated(
    text: str, *sets: str, seeds: int = 4, step_error: float | None = None
) -> dict[str, Any]:
    plan = load_text(text, sets=sets)
    result = simulate(plan)
    add_intervals(result, plan, seeds, step_error, lambda *_: None, workers=1)
    json.dumps(result, allow_nan=False)
    return result


def test_without_an_error_they_are_what_the_next_seed_may_show() -> None:
    result = repeated(PACED)
    seeds = [simulate(load_text(PACED, seed=seed))["latency"] for seed in range(4)]
    for kind in seeds[0]:
        for figure in FIGURES:
            values = [one[kind][figure] for one in seeds]
            found = result["trust"]["latency_intervals"][kind][figure]
            if None in values:
                assert found is None
                continue
            assert found == list(next_positive_interval(values)[1:])
            assert found[0] <= result["latency"][kind][figure] <= found[1]
    repeats = result["trust"]["repeats"]
    assert repeats["seeds"] == [0, 1, 2, 3]
    assert repeats["step_error"] == {"main": None}
    assert repeats["by_model"] is None
    assert repeats["by_chance"] == result["trust"]["latency_intervals"]


def test_an_error_widens_them_both_ways() -> None:
    plain, wide = repeated(PACED), repeated(PACED, step_error=0.1)
    for kind in ("ttft", "tpot", "e2e"):
        for figure in FIGURES:
            low, high = plain["trust"]["latency_intervals"][kind][figure]
            lower, higher = wide["trust"]["latency_intervals"][kind][figure]
            fast, slow = wide["trust"]["repeats"]["by_model"][kind][figure]
            assert lower < low < high < higher
            assert lower < fast < slow < higher
            assert wide["trust"]["repeats"]["by_chance"][kind][figure] == [low, high]
    assert plain["latency"] == wide["latency"]


def test_steps_of_one_request_at_a_time_are_off_by_just_that() -> None:
    fast, slow = repeated(one_server(), step_error=0.2)["trust"]["repeats"]["by_model"]["e2e"][
        "p50"
    ]
    assert slow / fast == pytest.approx(1.2 / 0.8)


def test_hardware_that_nobody_measured_has_wide_intervals() -> None:
    result = repeated(physics(count=10, accelerator="mi300x"), seeds=2)
    assert result["trust"]["pools"]["main"]["error"]["mape"] is None
    assert result["trust"]["repeats"]["step_error"] == {"main": 0.5}
    fast, slow = result["trust"]["repeats"]["by_model"]["tpot"]["p50"]
    assert slow > 2.5 * fast


def test_the_error_is_that_of_the_profile() -> None:
    steps = "serving.pools.0.step_time={model: physics, profile: h200-pytorch}"
    result = repeated(physics(count=40), steps, seeds=2)
    assert result["trust"]["repeats"]["step_error"] == {"main": 0.0197}
    (found,) = [one for one in result["trust"]["findings"] if one["code"] == "latency-interval"]
    assert found["says"].startswith(
        "Over 2 seeds and with step times up to 2.0% off either way and "
    )
    assert found["figures"]["step_error"] == 0.0197


def test_near_saturation_a_small_error_becomes_a_large_one() -> None:
    ratios = []
    for rate in ("20/s", "70/s"):
        text = PACED.replace("20/s", rate).replace("count: 200", "count: 600")
        found = repeated(text, step_error=0.05)["trust"]["repeats"]["by_model"]["ttft"]["mean"]
        ratios.append(found[1] / found[0])
    assert 1.1 < ratios[0] < 1.2
    assert ratios[1] > 1.5


def test_runs_without_latencies_have_no_intervals() -> None:
    result = repeated(BUSY, "duration=1ms", seeds=2)
    assert result["trust"]["latency_intervals"]["ttft"]["p99"] is None
    assert result["trust"]["findings"][0]["code"] == "latency-interval"
    assert result["trust"]["verdict"] == "doubt"


def test_the_gravest_finding_stays_first() -> None:
    result = repeated(one_server(count=3), seeds=2)
    assert result["trust"]["findings"][0]["severity"] == result["trust"]["verdict"] == "doubt"
    ratios = [one["figures"].get("ratio", 1.0) for one in result["trust"]["findings"]]
    assert all(ratio is None or math.isfinite(ratio) for ratio in ratios)


def test_a_run_that_no_seed_changes_is_repeated_with_other_steps_alone(tmp_path: Path) -> None:
    plan = load_text(replay(tmp_path))
    result = simulate(plan)
    counts: list[tuple[int, int]] = []
    add_intervals(result, plan, 10, 0.1, lambda *count: counts.append(count), workers=1)
    assert counts[-1] == (2, 2), "fast steps, and slow ones"
    repeats = result["trust"]["repeats"]
    assert repeats["seeds"] == [plan.seed]
    assert repeats["by_chance"] is None
    assert repeats["by_model"]["e2e"]["p50"] == result["trust"]["latency_intervals"]["e2e"]["p50"]
    low, high = repeats["by_model"]["e2e"]["p50"]
    assert low < result["latency"]["e2e"]["p50"] < high
    (found,) = [one for one in result["trust"]["findings"] if one["code"] == "latency-interval"]
    assert found["says"].startswith(
        "Other seeds change nothing in this scenario; with step times up to 10.0% off either way, "
    )
    assert "chance:" not in found["says"]


def test_without_chance_and_errors_there_is_nothing_to_repeat(tmp_path: Path) -> None:
    plan = load_text(replay(tmp_path))
    result = simulate(plan)
    counts: list[int] = []
    add_intervals(result, plan, 10, None, lambda count, _: counts.append(count))
    assert counts == []
    assert result["trust"]["latency_intervals"] is None
    assert result["trust"]["repeats"]["by_chance"] is None
    assert result["trust"]["repeats"]["by_model"] is None
    (found,) = [one for one in result["trust"]["findings"] if one["code"] == "latency-interval"]
    assert found["severity"] == "caution"
    assert "--step-error" in found["says"]


def test_seeds_that_differ_too_much_have_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    alike = repeated(PACED, seeds=2)["trust"]
    assert alike["latency_intervals"]["tpot"]["p99"] is not None
    own = {
        kind: dict.fromkeys(FIGURES, 0.2 if kind == "ttft" else 1.0)
        for kind in alike["latency_intervals"]
    }
    monkeypatch.setattr("windtunnel.search.repeats.intervals.run_all", lambda *_: [own])
    result = simulate(load_text(PACED))
    result["latency"] = {**own, "ttft": dict.fromkeys(FIGURES, 2.0)}
    add_intervals(result, load_text(PACED), 2, None, lambda *_: None)
    assert result["trust"]["latency_intervals"]["ttft"]["p99"] is None
    assert result["trust"]["latency_intervals"]["tpot"]["p99"] == [1.0, 1.0]
    (found,) = [one for one in result["trust"]["findings"] if one["code"] == "latency-interval"]
    assert found["severity"] == "doubt"
    assert found["says"] == (
        "Over 2 seeds, the p99 of TTFT differs too much for an interval: more seeds (--seeds 5) "
        "or longer runs would help."
    )
