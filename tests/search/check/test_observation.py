"""What a check keeps of a run adds up to the run's own figures, and intervals cover the truth."""

import math
from typing import Any

import numpy as np
import pytest

from tests.search.test_comparison import SHARED
from windtunnel.search.check.blocks import (
    DRAWS,
    FEWEST_BLOCKS,
    MOST_BLOCKS,
    SHORTEST_BLOCK_S,
    BlockIntervals,
    BlockTotals,
    block_count,
)
from windtunnel.search.check.decisions import decision_differences
from windtunnel.search.check.observation import ControlDecision, Observation, observe
from windtunnel.twin.scenario.load import load_text

TIGHT = """\
  - name: jobs
    slo: batch
    count: 60
    timeout: 2s
    arrivals: {process: poisson, rate: 12/s}
    prompt_tokens: 300
    output_tokens: {distribution: uniform, min: 1, max: 40}
slo:
  critical: {ttft: 400ms, tpot: 7ms}
"""
CROWDED = SHARED.replace("slo:\n  critical: {ttft: 100ms, tpot: 30ms}\n", TIGHT).replace(
    "serving:\n",
    """serving:
  admission:
    policy: flow-control
    detector: {kind: concurrency, max_per_server: 2}
    max_waiting: 12
""",
)


def crowded(*sets: str) -> Observation:
    sets = ("serving.pools.0.overheads.completion=4ms", *sets)
    return observe(load_text(CROWDED, sets=sets))


def test_blocks_add_up_to_the_figures_of_the_run() -> None:
    seen = crowded()
    totals = BlockTotals(seen, float(seen.requests["arrived"].max()), 12)
    even = np.full((1, 12), 1.0 / 12)
    whole = {**seen.metrics, **seen.figures["figures"]}
    assert whole["requests.rejected"]
    assert 0.1 < whole["slo.critical.attained"] < 0.99
    for path in ("requests.rejected", "requests.completed", "requests.timed_out", "cost.total"):
        found = totals.figure(path, even)
        assert found is not None
        assert found[0] == pytest.approx(whole[path])
    for name in ("critical", "batch"):
        attained = totals.figure(f"slo.{name}.attained", even)
        assert attained is not None
        assert attained[0] == pytest.approx(whole[f"slo.{name}.attained"], rel=1e-12)
    for latency in ("ttft", "tpot", "e2e"):
        for stat, within in (("mean", 1e-6), ("p50", 0.02), ("p95", 0.05)):
            path = f"latency.{latency}.{stat}"
            found = totals.figure(path, even)
            assert found is not None
            assert found[0] == pytest.approx(whole[path], rel=within), path
    assert totals.figure("latency.nothing.p50", even) is None
    assert totals.figure("nothing", even) is None


def test_the_same_run_differs_in_nothing_and_another_in_what_it_decides() -> None:
    base, same = crowded(), crowded()
    assert not any(one.differ for one in decision_differences(base, same).kinds)
    other = crowded("serving.admission.max_waiting=4", "serving.router.policy=least-loaded")
    found = {one.kind: one for one in decision_differences(base, other).kinds}
    assert found["admission"].decided == len(base.requests["id"]) == 360
    columns = base.requests["admission"], other.requests["admission"]
    assert found["admission"].differ == int((columns[0] != columns[1]).sum()) > 0
    first = found["admission"].first
    assert first is not None
    place = int(np.flatnonzero(columns[0] != columns[1])[0])
    assert first.time_s == base.requests["arrived"][place]
    assert {first.base, first.changed} <= {"admitted", "queued", "rejected"}
    assert found["routing"].differ


def test_each_of_several_decisions_on_one_subject_at_one_time_counts() -> None:
    base = synthetic(np.ones(1), 1)
    base.requests.update({name: np.zeros(1, dtype=np.int8) for name in ("admission", "server")})
    base.requests["prefill_server"] = np.full(1, -1)
    made = [ControlDecision("gang", 5.0, "gang a", what, "") for what in ("removed", "created")]
    base = base._replace(servers=["main/0"], control=made)
    other = base._replace(control=[made[0]._replace(decided="kept"), made[1]])
    found = decision_differences(base, other).kinds[-1]
    assert (found.kind, found.decided, found.differ) == ("gang", 2, 1)
    assert found.first == (5.0, "gang a", "removed", "kept")


def synthetic(values: Any, per_block: int) -> Observation:
    count = len(values)
    columns = {
        "id": np.arange(count),
        "arrived": (np.arange(count) + 0.5) / per_block,
        "slo": np.zeros(count, dtype=np.int32),
        "outcome": np.zeros(count, dtype=np.int8),
        "tokens": np.ones(count, dtype=np.int32),
        "attained": values < 2.0,
        **{name: values.astype(np.float32) for name in ("ttft", "tpot", "e2e")},
    }
    times = np.array([0.0, count / per_block])
    return Observation({}, {}, None, columns, ["standard"], [], [], (times, times))


@pytest.mark.parametrize("path", ["latency.ttft.mean", "latency.ttft.p95", "slo.standard.attained"])
def test_intervals_cover_the_true_difference_about_19_times_in_20(path: str) -> None:
    """Blocks share what happens in them, on both sides; the changed side is 10 % slower."""
    blocks, per_block, trials = 20, 60, 60
    rng = np.random.default_rng(7)
    ratio = not path.startswith("slo")

    def drawn(many: int) -> tuple[Any, Any]:
        level = np.repeat(rng.normal(0.0, 0.3, many), per_block)
        base = np.exp(level + rng.normal(0.0, 0.5, many * per_block))
        return base, 1.1 * base * np.exp(rng.normal(0.0, 0.3, many * per_block))

    def figure(values: Any) -> float:
        if path.endswith("mean"):
            return float(values.mean())
        return float(np.quantile(values, 0.95) if ratio else (values < 2.0).mean())

    base, changed = (figure(values) for values in drawn(20_000))
    truth = changed / base if ratio else changed - base
    covered = 0
    for _ in range(trials):
        sides = drawn(blocks)
        end_s = float(blocks)
        totals = [BlockTotals(synthetic(one, per_block), end_s, blocks) for one in sides]
        found = BlockIntervals(*totals).of(path, *map(figure, sides), ratio=ratio)
        assert found is not None
        interval = found.ratio if ratio else found.difference
        assert interval is not None
        covered += interval.holds(truth)
    assert 0.87 <= covered / trials <= 1.0


def test_two_sides_that_are_the_same_have_no_spread() -> None:
    values = np.exp(np.random.default_rng(1).normal(0.0, 1.0, 600))
    totals = [BlockTotals(synthetic(values, 60), 10.0, 10) for _ in range(2)]
    found = BlockIntervals(*totals).of("latency.e2e.p99", 2.0, 2.0, ratio=True)
    assert found is not None
    assert found.ratio == (1.0, 1.0, 1.0)
    assert found.base.low < 2.0 < found.base.high


def test_short_traffic_has_no_blocks() -> None:
    assert block_count(FEWEST_BLOCKS * SHORTEST_BLOCK_S - 1.0, None) == 0
    assert block_count(FEWEST_BLOCKS * SHORTEST_BLOCK_S, None) == FEWEST_BLOCKS
    assert block_count(86_400.0, None) == MOST_BLOCKS
    assert block_count(10.0, 1.0) == 10
    assert math.sqrt(1.0 / (2 * DRAWS)) < 0.04
