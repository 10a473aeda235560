"""Sweeps: what is refused before anything runs, what fails alone, and what is best."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.twin.runs import BUSY, one_server
from windtunnel.core.errors import InputError
from windtunnel.search.execution.workers import FailedRun, Outcome, Workers
from windtunnel.search.point import Origin
from windtunnel.search.sweep.axes import axes_of
from windtunnel.search.sweep.summary import front_of, summary_of
from windtunnel.search.sweep.sweep import Sweep, prepare, run_sweep, table_of

SHORT = ["duration=300ms"]
REPLICAS = "serving.pools.0.replicas"


def a_sweep(*varied: str, seeds: int = 2, text: str = BUSY) -> Sweep:
    return prepare(Origin(text, "busy.yaml", SHORT), axes_of(varied), seeds=seeds)


def swept(sweep: Sweep) -> list[Outcome]:
    with Workers(jobs=1) as workers:
        return run_sweep(sweep, workers, lambda *_: None)


def test_points_meet_the_same_requests() -> None:
    sweep = a_sweep(f"{REPLICAS}=1..3", "serving.router.policy=round-robin,least-loaded")
    table = table_of(sweep, swept(sweep))
    assert len(table) == 12
    assert table["point"] == [number for number in range(6) for _ in (0, 1)]
    arrived: dict[int, set[int]] = {}
    for row in table:
        arrived.setdefault(row["seed"], set()).add(row["requests.arrived"])
    assert all(len(counts) == 1 for counts in arrived.values())
    assert table[REPLICAS] == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]


def test_what_nothing_is_left_to_chance_in_runs_once() -> None:
    sweep = a_sweep("serving.router.policy=round-robin,random", seeds=3, text=one_server())
    assert [(run.point, run.seed) for run in sweep.runs] == [(0, 0), (1, 0), (1, 1), (1, 2)]


def test_a_value_that_is_refused_everywhere_is_told_before_anything_runs() -> None:
    with pytest.raises(InputError) as raised:
        a_sweep(f"{REPLICAS}=0,1,-3", "serving.pools.1.replicas=1..2")
    lines = str(raised.value).splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        f"--vary {REPLICAS}=0",
        f"--vary {REPLICAS}=-3",
    ]


def test_a_path_that_is_none_is_told_once_and_not_for_every_value() -> None:
    with pytest.raises(InputError) as raised:
        a_sweep("serving.pools.0.replica=2..16", "serving.router.polcy=random,round-robin")
    lines = str(raised.value).splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        "--vary serving.pools.0.replica=2",
        "--vary serving.router.polcy=random",
    ]


def test_faults_of_the_scenario_hide_none_of_what_is_varied() -> None:
    with pytest.raises(InputError) as raised:
        prepare(
            Origin(BUSY, "busy.yaml", [*SHORT, "durration=3"]),
            axes_of(["serving.pools.9.replicas=1..3", "serving.router.polcy=0.5..2"]),
        )
    lines = str(raised.value).splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        "--set durration=3",
        "--vary serving.pools.9.replicas=1",
        "--vary serving.router.polcy=0.5",
    ]


def test_a_combination_that_is_refused_is_a_failed_point() -> None:
    sweep = a_sweep(
        "serving.pools.0.engine.max_num_batched_tokens=64,4096",
        "serving.pools.0.engine.max_num_seqs=16,512",
    )
    assert sorted(sweep.refused) == [1]
    outcomes = swept(sweep)
    table, summary = table_of(sweep, outcomes), summary_of(sweep, outcomes)
    assert len(table) == 7
    assert [row["failed"] is None for row in table] == [True, True, False, *[True] * 4]
    assert summary["points"][1]["failed"] == sweep.refused[1]
    assert summary["points"][1]["metrics"] == {}


def test_too_many_runs_are_refused() -> None:
    with pytest.raises(InputError, match="900 points with 50 seeds are 45,000 runs"):
        a_sweep(f"{REPLICAS}=1..30", "serving.pools.1.replicas=1..30", seeds=50)


def test_a_summary_has_means_with_intervals_and_marks_the_front() -> None:
    sweep = a_sweep(f"{REPLICAS}=1..3", seeds=3)
    outcomes = swept(sweep)
    summary = summary_of(sweep, outcomes)
    assert summary["seeds"] == [0, 1, 2]
    figures = summary["points"][1]["metrics"]["latency.ttft.p95"]
    values = [o.metrics["latency.ttft.p95"] for o in outcomes[3:6] if not isinstance(o, FailedRun)]
    assert figures["mean"] == pytest.approx(sum(v or 0.0 for v in values) / 3)
    assert figures["low"] < figures["mean"] < figures["high"]
    assert summary["front"]["cost"] == "accelerator_seconds"  # nothing here has a price
    assert summary["front"]["quality"] == "slo.critical.attained"
    assert summary["front"]["points"]
    wanted = summary_of(sweep, outcomes, ["latency.e2e.mean"])
    assert wanted["shown"] == ["latency.e2e.mean"]
    assert wanted["front"]["quality"] == "latency.e2e.mean"


def test_a_point_with_a_failed_seed_has_no_means() -> None:
    sweep = a_sweep(f"{REPLICAS}=1..2")
    outcomes = [*swept(sweep)[:3], FailedRun("it was too dark")]
    summary = summary_of(sweep, outcomes)
    assert [point["failed"] for point in summary["points"]] == [None, "it was too dark"]
    assert summary["points"][1]["metrics"] == {}
    assert table_of(sweep, outcomes)["failed"] == [None, None, None, "it was too dark"]


def point(number: int, cost: int | None, quality: int | None) -> dict[str, Any]:
    values = {"cost.total": cost, "slo.a.attained": quality}
    return {"point": number, "metrics": {name: {"mean": v} for name, v in values.items()}}


@given(
    st.lists(
        st.tuples(st.none() | st.integers(0, 4), st.none() | st.integers(0, 4)),
        max_size=12,
    )
)
def test_the_front_is_what_nothing_beats(pairs: list[tuple[int | None, int | None]]) -> None:
    points = [point(number, *pair) for number, pair in enumerate(pairs)]
    found = front_of(points, "cost.total", "slo.a.attained")

    def beats(a: tuple[Any, Any], b: tuple[Any, Any]) -> bool:
        return a[0] <= b[0] and a[1] >= b[1] and a != b

    known = [pair for pair in pairs if None not in pair]
    expected = [
        number
        for number, pair in enumerate(pairs)
        if None not in pair and not any(beats(other, pair) for other in known)
    ]
    assert sorted(found) == expected
    assert [pairs[number][0] for number in found] == sorted(pairs[n][0] or 0 for n in found)
