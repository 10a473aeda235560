"""Designs against each other: the same traffic for all, and differences that are real or none."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from tests.report.page.runs import run_into
from tests.twin.runs import BUSY, one_server
from tests.twin.test_lifecycle import elastic
from windtunnel.analysis.comparison import (
    ALIKE,
    BETTER,
    ONE_SAMPLE,
    SAME,
    SMALLEST_EFFECT,
    TOO_FEW,
    UNKNOWN,
    UNSEEN,
    VERDICTS,
    WORSE,
    judged,
    verdict,
)
from windtunnel.analysis.figures import FIGURES, HIGHER, LOWER
from windtunnel.core.statistics.intervals import (
    Interval,
    mean_interval,
    paired_interval,
    paired_ratio,
)
from windtunnel.report.terminal.searches.comparison import shown_metrics
from windtunnel.search.repeats.comparison import Design, compare
from windtunnel.twin.results.chance import draws
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

SHARED = """\
name: shared
workload:
  - name: chat
    slo: critical
    count: 300
    arrivals: {process: poisson, rate: 60/s}
    prompt_tokens: {distribution: lognormal, mean: 200, cv: 1, max: 900}
    output_tokens: {distribution: uniform, min: 1, max: 60}
slo:
  critical: {ttft: 100ms, tpot: 30ms}
serving:
  pools:
    - name: main
      replicas: 3
      price_per_hour: 2
      engine: {kv_blocks: 400, max_num_seqs: 16}
      step_time: {model: linear, fixed: 5ms, per_prefill_token: 20us, per_decode: 100us}
  router: {policy: round-robin}
"""
LEAST = "serving.router.policy=least-loaded"


def designs(text: str, *variants: tuple[str, ...], seed: int = 3) -> list[Design]:
    return [
        Design(str(number), load_text(text, sets=sets, seed=seed))
        for number, sets in enumerate(variants)
    ]


def compared(text: str, *variants: tuple[str, ...], seeds: int = 4) -> dict[str, Any]:
    found = compare(designs(text, *variants), seeds, lambda *_: None, workers=1)
    json.dumps(found, allow_nan=False)
    return found


def metric(found: dict[str, Any], path: str) -> dict[str, Any]:
    (one,) = [one for one in found["metrics"] if one["path"] == path]
    picked: dict[str, Any] = one
    return picked


def test_values_are_those_of_single_runs_seed_by_seed() -> None:
    found = compared(SHARED, (), (LEAST,))
    assert found["seeds"] == [3, 4, 5, 6]
    ttft = metric(found, "latency.ttft.p99")
    for sets, design in zip(((), (LEAST,)), ttft["designs"], strict=True):
        alone = [
            simulate(load_text(SHARED, sets=sets, seed=seed))["latency"]["ttft"]["p99"]
            for seed in found["seeds"]
        ]
        assert design["values"] == alone
    ours, theirs = (design["values"] for design in ttft["designs"])
    difference = ttft["designs"][1]["difference"]
    names = ("mean", "low", "high")
    assert [difference[name] for name in names] == list(paired_interval(theirs, ours))
    assert [difference["ratio"][name] for name in names] == list(paired_ratio(theirs, ours))
    attained = metric(found, "slo.critical.attained")["designs"][1]
    assert attained["difference"]["ratio"] is None
    assert attained["mean"] == mean_interval(attained["values"]).middle


def test_every_design_gets_the_very_same_requests(tmp_path: Path) -> None:
    """Other servers, routers, step times and limits change nobody's arrival, length or place."""
    columns = ["id", "source", "tenant", "slo", "arrived", "prompt_tokens", "output_tokens"]
    variants = (
        (),
        (LEAST,),
        ("serving.pools.0.replicas=1",),
        ("serving.pools.0.step_time.fixed=9ms", "serving.pools.0.engine.max_num_seqs=4"),
        ("serving.router.policy=random",),
    )
    traffic = []
    for number, sets in enumerate(variants):
        folder = tmp_path / str(number)
        run_into(folder, SHARED, *sets)
        rows = pq.read_table(folder / "requests.parquet", columns=columns).sort_by("id")
        traffic.append(rows)
    assert all(rows == traffic[0] for rows in traffic)
    assert traffic[0].num_rows == 300


def test_pairs_tell_what_separate_runs_would_not() -> None:
    """Slower steps hardly matter beside what seeds do, but in every seed they do the same."""
    found = compared(SHARED, (), ("serving.pools.0.step_time.fixed=5.2ms",), seeds=6)
    e2e = metric(found, "latency.e2e.mean")
    slow, fast = e2e["designs"][1], e2e["designs"][0]
    assert slow["difference"]["verdict"] == WORSE
    assert fast["high"] > slow["low"], "their own intervals overlap"
    width = slow["difference"]["high"] - slow["difference"]["low"]
    assert width < (fast["high"] - fast["low"]) / 4


def test_a_design_is_the_same_as_itself() -> None:
    found = compared(SHARED, (), ())
    verdicts = {one["designs"][1]["difference"]["verdict"] for one in found["metrics"]}
    assert verdicts == {SAME}
    assert found["notes"] == []
    assert found["settings"] == []


def test_figures_that_a_run_has_not_are_not_compared() -> None:
    found = compared(BUSY, (), ("duration=1ms",), seeds=2)
    other = metric(found, "latency.ttft.mean")["designs"][1]
    assert other["difference"]["verdict"] == UNKNOWN
    assert other["mean"] is other["difference"]["mean"] is None
    assert metric(found, "requests.unfinished")["designs"][1]["difference"]["verdict"] in VERDICTS


def test_all_metrics_are_there_with_classes_of_every_design() -> None:
    found = compared(BUSY, (), ("workload.1.slo=background",), seeds=2)
    paths = [one["path"] for one in found["metrics"]]
    fixed = {one.path for one in FIGURES if one.group and not one.stats}
    assert {path for path in fixed if "CLASS" not in path} <= set(paths)
    assert [path for path in paths if path.startswith("slo.")] == [
        "slo.batch.attained",
        "slo.critical.attained",
        "slo.background.attained",
    ]
    background = metric(found, "slo.background.attained")["designs"]
    assert background[0]["values"] == [None, None]
    assert background[1]["difference"]["verdict"] == UNKNOWN


def test_a_class_without_targets_has_no_attainment() -> None:
    free = SHARED.replace("  critical: {ttft: 100ms, tpot: 30ms}", "  critical: {}")
    found = compared(free, (), ("serving.pools.0.replicas=1",), seeds=2)
    for design in metric(found, "slo.critical.attained")["designs"]:
        assert design["values"] == [None, None]
    assert "critical attained" not in [one["name"] for one in shown_metrics(found)]
    targeted = compared(free, (), ("slo.critical.ttft=100ms",), seeds=2)
    assert metric(targeted, "slo.critical.attained")["designs"][1]["mean"] > 0.0


def test_what_differs_is_listed() -> None:
    found = compared(SHARED, (), (LEAST, "serving.pools.0.replicas=2"), seeds=2)
    assert found["settings"] == [
        {"path": "serving.pools.0.replicas", "values": [3, 2]},
        {"path": "serving.router.policy", "values": ["round-robin", "least-loaded"]},
    ]


def test_other_traffic_is_told() -> None:
    found = compared(SHARED, (), ("workload.0.arrivals.rate=61/s",), (LEAST,), seeds=2)
    (note,) = found["notes"]
    assert note["code"] == "other-traffic"
    assert note["says"].startswith("The traffic of 1 is not that of 0")
    closed = SHARED.replace("process: poisson, rate: 60/s", "process: closed, users: 20, think: 1s")
    closed = closed.replace("name: shared", "name: shared\nduration: 5s").replace(
        "    count: 300\n", ""
    )
    found = compared(closed, (), ("serving.pools.0.step_time.fixed=50ms",), seeds=2)
    (note,) = found["notes"]
    assert note["code"] == "other-arrivals"


def test_each_design_says_how_far_to_believe_it() -> None:
    found = compared(SHARED, (), ("serving.pools.0.replicas=1",), seeds=2)
    calm, pushed = (design["trust"] for design in found["designs"])
    assert calm["verdict"] == "caution"
    assert pushed["verdict"] == "doubt"
    assert "saturated" in pushed["says"] or "Queues" in pushed["says"]


@given(st.floats(-10, 10), st.floats(0, 5), st.sampled_from([LOWER, HIGHER]))
def test_a_verdict_needs_an_interval_off_the_line(middle: float, reach: float, better: str) -> None:
    interval = Interval(middle, middle - reach, middle + reach)
    found = verdict(better, interval, 0.0, SMALLEST_EFFECT)
    if interval.holds(0.0):
        assert found == (SAME if interval == (0.0, 0.0, 0.0) else UNSEEN)
    elif abs(middle) < SMALLEST_EFFECT:
        assert found == ALIKE
    else:
        assert found == (BETTER if (middle < 0) == (better == LOWER) else WORSE)


def test_seeds_follow_the_first_design() -> None:
    text = one_server().replace("process: constant", "process: poisson")
    one, other = load_text(text, seed=7), load_text(text, seed=9)
    other = other.changed(name="other")
    found = compare([Design("a", one), Design("b", other)], 2, lambda *_: None)
    assert found["seeds"] == [7, 8]
    assert metric(found, "latency.e2e.mean")["designs"][1]["difference"]["verdict"] == SAME


# Where a seed changes nothing

TRACE = "arrived,prompt_tokens,output_tokens\n"
ROWS = "".join(f"{0.02 * n:.2f},{40 + 37 * n % 90},{5 + 11 * n % 40}\n" for n in range(60))


def replay(folder: Path) -> str:
    """The servers of the shared scenario under a trace."""
    (folder / "trace.csv").write_text(TRACE + ROWS)
    start, end = SHARED.index("  - name: chat"), SHARED.index("slo:\n  critical")
    return f"{SHARED[:start]}  - trace: {{path: {folder / 'trace.csv'}}}\n{SHARED[end:]}"


def runs_of(text: str, *variants: tuple[str, ...], seeds: int) -> tuple[dict[str, Any], int]:
    """A comparison, and how many runs it took."""
    counts: list[int] = []
    found = compare(
        designs(text, *variants), seeds, lambda count, _: counts.append(count), workers=1
    )
    json.dumps(found, allow_nan=False)
    return found, counts[-1]


def test_a_replay_has_one_sample_and_no_interval(tmp_path: Path) -> None:
    found, runs = runs_of(replay(tmp_path), (), (LEAST,), seeds=3)
    assert (found["seeds"], runs) == ([3], 2)
    verdicts = set()
    for one in found["metrics"]:
        ours, base = one["designs"][1], one["designs"][0]
        difference = ours["difference"]
        verdicts.add(difference["verdict"])
        assert ours["low"] is ours["high"] is base["low"] is None
        assert difference["low"] is difference["high"] is None
        if difference["ratio"] is not None:
            assert difference["ratio"]["low"] is difference["ratio"]["high"] is None
            assert difference["ratio"]["mean"] == ours["mean"] / base["mean"]
    assert ONE_SAMPLE in verdicts
    assert verdicts <= {ONE_SAMPLE, SAME, UNKNOWN}
    (note,) = found["notes"]
    assert note["code"] == "one-sample"
    assert note["says"].startswith("A replay has one sample: no interval. ")


def test_a_policy_that_draws_has_intervals_also_of_a_replay(tmp_path: Path) -> None:
    drawing = ("serving.router.policy=random",)
    found, runs = runs_of(replay(tmp_path), (), (LEAST,), drawing, seeds=3)
    assert (found["seeds"], runs) == ([3, 4, 5], 2 + 3)
    ttft = metric(found, "latency.ttft.mean")["designs"]
    assert len(set(ttft[0]["values"])) == 1
    assert len(set(ttft[2]["values"])) == 3
    assert ttft[1]["difference"]["verdict"] in (ONE_SAMPLE, SAME)
    assert ttft[1]["difference"]["low"] is None
    assert ttft[2]["difference"]["low"] < ttft[2]["difference"]["high"]


def test_what_draws_nothing_is_the_same_with_any_seed(tmp_path: Path) -> None:
    for text, sets, drawing in (
        (replay(tmp_path), (), False),
        (replay(tmp_path), ("serving.router.policy=power-of-two",), True),
        (one_server(count=5), (), False),
        (one_server(count=5), ("workload.0.prefix={tokens: 9, groups: 2}",), True),
        (one_server(count=5), ("workload.0.arrivals.process=poisson",), True),
        (elastic(count=5), (), False),
        (elastic(count=5), ("serving.startup.load.stddev=1s",), True),
        (SHARED, (), True),
    ):
        assert draws(load_text(text, sets=sets)) == drawing
        one, other = (simulate(load_text(text, sets=sets, seed=seed)) for seed in (1, 2))
        if not drawing:
            assert one["latency"] == other["latency"]


# Sure, and too small to matter; large, and not sure


def test_intervals_of_shares_reach_no_further_than_shares_do() -> None:
    wide = judged("share", HIGHER, Interval(0.9, 0.6, 1.2), None)
    assert (wide["low"], wide["high"], wide["verdict"]) == (0.6, 1.0, BETTER)
    found = compared(SHARED, (), (LEAST,), seeds=2)
    for metric in found["metrics"]:
        if metric["unit"] == "share":
            for design in metric["designs"]:
                assert design["high"] is None or 0.0 <= design["low"] <= design["high"] <= 1.0


def test_a_sure_difference_that_is_too_small_to_matter_is_none_to_act_on() -> None:
    found = compared(SHARED, (), ("serving.pools.0.step_time.fixed=5.01ms",))
    difference = metric(found, "latency.e2e.mean")["designs"][1]["difference"]
    assert 1.0 < difference["ratio"]["low"] <= difference["ratio"]["mean"] < 1.01
    assert difference["verdict"] == ALIKE


def test_an_interval_that_tells_nothing_says_that_seeds_are_too_few() -> None:
    found = compared(
        SHARED,
        (),
        ("serving.pools.0.replicas=1", "serving.pools.0.engine.max_num_seqs=12"),
        seeds=2,
    )
    wide = [
        one["designs"][1]["difference"]
        for one in found["metrics"]
        if one["designs"][1]["difference"]["verdict"] == TOO_FEW
    ]
    assert wide
    for difference in wide:
        ratio = difference["ratio"]
        assert ratio is None or ratio["low"] < 1.0 < ratio["high"] / ratio["mean"] / 10.0
    (note,) = [note for note in found["notes"] if note["code"] == "too-few-seeds"]
    assert note["says"].startswith(f"2 seeds are too few to tell {len(wide)} difference")
    assert "more seeds (--seeds 5)" in note["says"]
