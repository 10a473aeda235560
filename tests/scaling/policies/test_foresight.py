"""Foresight: a schedule that is known in advance, and replicas that are ready in time."""

from typing import Any

import pytest
from pydantic import ValidationError

from tests.scaling.sections import ServingPool, section, setup, told
from windtunnel.scaling.actuation import ScalingLoop
from windtunnel.scaling.build import build_scaler
from windtunnel.scaling.decision import Decision
from windtunnel.scaling.snapshot import Model, ReplicaCounts, ReplicaView, Snapshot, Variant
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

POOLS = [ServingPool("main", 2), ServingPool("spare", 1)]
STEPS = {"main": [["0s", 2], ["5m", 6], ["10m", 1]]}


def decisions(now_s: float, size: int = 2, **written: Any) -> dict[str, Decision]:
    made = setup(POOLS, policy="foresight", **{"schedule": STEPS, **written})
    loop = ScalingLoop(lambda: build_scaler(made, ["m"]), made.timing)
    variants = [
        Variant(
            name,
            counts=ReplicaCounts(target=count),
            minimum=made.bounds[name].min,
            maximum=made.bounds[name].max,
            replicas=[ReplicaView(f"{name}-{number}") for number in range(count)],
        )
        for name, count in (("main", size), ("spare", 1))
    ]
    issued = loop.decide(Snapshot(now_s, [Model("m", variants)]), now_s)
    assert issued is not None
    return {one.decision.variant: one.decision for one in issued.decisions}


@pytest.mark.parametrize(
    ("now_s", "size", "reason"),
    [
        (15.0, 2, "The schedule has 2 from 0 s on."),
        (299.9, 2, "The schedule has 2 from 0 s on."),
        (300.0, 6, "The schedule has 6 from 5 min on."),
        (600.0, 1, "The schedule has 1 from 10 min on."),
        (9000.0, 1, "The schedule has 1 from 10 min on."),
    ],
)
def test_a_size_holds_from_its_time_on(now_s: float, size: int, reason: str) -> None:
    decision = decisions(now_s)["main"]
    assert (decision.target, decision.reason) == (size, reason)
    assert decision.metrics["scheduled"] == size


def test_growth_is_ordered_ahead_and_nothing_shrinks_before_its_time() -> None:
    grown = decisions(250.0, lead="1m")["main"]
    assert grown.target == 6
    assert grown.reason == "The schedule has 6 from 5 min on, in 50 s; the lead is 1 min."
    assert grown.metrics == {"scheduled": 2.0, "wanted": 6.0}
    assert decisions(239.0, lead="1m")["main"].target == 2
    assert decisions(599.0, size=6, lead="1m")["main"].target == 6
    assert decisions(600.0, size=6, lead="1m")["main"].target == 1


def test_the_most_within_the_lead_counts() -> None:
    steps = {"main": [["0s", 1], ["10s", 3], ["20s", 5], ["30s", 2]]}
    assert decisions(5.0, schedule=steps, lead="4s")["main"].target == 1
    assert decisions(5.0, schedule=steps, lead="5s")["main"].target == 3
    assert decisions(5.0, schedule=steps, lead="60s")["main"].target == 5
    assert decisions(25.0, size=5, schedule=steps, lead="60s")["main"].target == 5


def test_what_is_not_scheduled_stays() -> None:
    assert decisions(400.0)["spare"].reason == "The schedule does not include this pool."
    late = {"main": [["10m", 4]]}
    before = decisions(60.0, schedule=late)["main"]
    assert (before.target, before.reason) == (2, "Its schedule begins at 10 min.")
    ahead = decisions(590.0, schedule=late, lead="30s")["main"]
    assert ahead.target == 4
    fewer = decisions(590.0, size=5, schedule=late, lead="30s")["main"]
    assert fewer.target == 5
    assert fewer.reason == "Its schedule begins at 10 min, without more replicas."


@pytest.mark.parametrize(
    ("written", "where", "what"),
    [
        (
            {"schedule": {"main": [["5m", 2], ["1m", 3]]}},
            "scaling.schedule.main[1][0]",
            "1 min is not after 5 min, the time of the entry before it",
        ),
        (
            {"schedule": {"main": [["1m", 2], ["1m", 3]]}},
            "scaling.schedule.main[1][0]",
            "1 min is not after 1 min, the time of the entry before it",
        ),
        ({"schedule": {"mian": [["0s", 2]]}}, "scaling.schedule.mian", "there is no such pool"),
        (
            {"schedule": {"main": [["0s", 0]]}},
            "scaling.schedule.main[0][1]",
            "0 is outside the bounds of the pool",
        ),
        (
            {"schedule": {"main": [["0s", 2], ["1m", 9]]}, "pools": {"main": {"max": 8}}},
            "scaling.schedule.main[1][1]",
            "9 is outside the bounds of the pool",
        ),
        ({"schedule": {}}, "scaling.schedule", "it has no pool"),
    ],
)
def test_faults_are_told_with_their_place(written: dict[str, Any], where: str, what: str) -> None:
    assert told(POOLS, policy="foresight", **written) == [(where, what)]


@pytest.mark.parametrize(
    "entries", [[], [5], [["0s"]], [["0s", 1, 2]], [["x", 1]], [["0s", 1.5]], [["0s", -1]]]
)
def test_what_is_no_entry_is_refused(entries: list[Any]) -> None:
    with pytest.raises(ValidationError):
        section(policy="foresight", schedule={"main": entries})


SCENARIO = """
name: foreseen
duration: 3m
workload:
  - name: chat
    arrivals: {process: constant, rate: 1/s}
    prompt_tokens: 100
    output_tokens: 10
serving:
  pools:
    - name: main
      replicas: 2
      engine: {max_num_seqs: 8, kv_blocks: 500}
      step_time: {model: linear, fixed: 10ms}
  startup: {load: {mean: 20s}}
scaling:
  policy: foresight
  interval: 5s
  lead: 25s
  schedule: {main: [[0s, 2], [1m, 4], [2m, 1]]}
"""


def test_in_a_run_servers_are_ready_when_the_schedule_wants_them() -> None:
    result = simulate(load_text(SCENARIO))
    sizes = result["scaling"]["pools"]["main"]["sizes"]
    ready = {at_s: row for at_s, *row in sizes}
    assert [at_s for at_s in ready if at_s > 0.0] == [35.0, 55.0, 120.0]
    assert result["scaling"]["changes"] == 2
    assert result["scaling"]["direction_changes"] == 1
    assert result["requests"]["completed"] == result["requests"]["arrived"]
