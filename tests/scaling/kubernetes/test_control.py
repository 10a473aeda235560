"""An Autoscaler under control: orders, restarts, foreign changes, records that were edited."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scaling.kubernetes.pods import HPA, plan, pods, reading
from windtunnel.scaling.kubernetes.control import (
    AutoscalerCondition,
    RecordHolder,
    ScaleOutcome,
    ScalingController,
    TickObservation,
    TickResult,
    merged_conditions,
)
from windtunnel.scaling.kubernetes.plan import Claimant, ObjectName, taken_targets
from windtunnel.scaling.kubernetes.snapshots import PoolObservation

KTHENA: dict[str, Any] = {
    "policy": "kthena-homogeneous",
    "metrics": {"vllm:num_requests_waiting": 5},
    "behavior": {"panic": {"hold": "60s"}, "down": {"window": "60s"}},
    "pools": {"main": {"min": 1, "max": 9}},
}
KNATIVE = {"policy": "knative", "target": 10, "pools": {"main": {"min": 1, "max": 9}}}
SATURATION = {
    "policy": "saturation",
    "stabilization": {"up": "20s", "down": "45s"},
    "pools": {"main": {"min": 1, "max": 9}},
}


class Scale:
    """The scale subresource of one target."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.writes: list[int] = []


def tick(
    control: ScalingController, scale: Scale, waiting: int, at_s: float, **more: Any
) -> TickResult:
    seen = pods(scale.size)
    readings = {one.uid: reading(waiting // max(1, scale.size), 3, 0.9) for one in seen}
    pools = {"main": PoolObservation(scale.size, seen, uid="uid")}
    made = control.decide(TickObservation(pools, readings, **more), at_s)
    for order in made.orders:
        scale.size = order.replicas
        scale.writes.append(order.replicas)
        control.carried_out(order, ScaleOutcome.DONE, "", at_s)
    return made


def test_an_order_says_why_and_is_told() -> None:
    control, scale = ScalingController(plan(), 0.0), Scale(2)
    (order,) = tick(control, scale, 40, 15.0).orders
    assert (order.before, order.replicas, str(order.target.named)) == (2, 6, "Deployment ns/main")
    assert control.conditions["AbleToScale"].holds
    assert "is 20 of 5: 8 replicas" in control.conditions["ScalingActive"].message
    limited = control.conditions["ScalingLimited"]
    assert (limited.holds, limited.reason) == (True, "Behavior")
    assert control.published["main"].desired == 6
    assert control.next_s == 30.0


@pytest.mark.parametrize("scaling", [HPA, KTHENA, KNATIVE, SATURATION])
@given(loads=st.lists(st.integers(0, 90), min_size=1, max_size=25), data=st.data())
def test_a_restart_between_any_two_ticks_changes_no_decision(
    scaling: dict[str, Any], loads: list[int], data: st.DataObject
) -> None:
    steady, other = ScalingController(plan(scaling), 0.0), ScalingController(plan(scaling), 0.0)
    scales = Scale(3), Scale(3)
    for number, load in enumerate(loads, 1):
        at_s = 1000.0 + 15.0 * number
        if data.draw(st.booleans()):
            record = json.loads(json.dumps(other.record()))
            other = ScalingController(plan(scaling), at_s)
            assert other.restore(record, at_s) == ""
        for control, scale in zip((steady, other), scales, strict=True):
            tick(control, scale, load, at_s)
        assert scales[0].writes == scales[1].writes


@pytest.mark.parametrize(("size", "holds"), [(2, False), (0, True)])
def test_without_a_ready_replica_there_is_no_metric(size: int, holds: bool) -> None:
    control = ScalingController(plan(SATURATION), 0.0)
    made = control.decide(TickObservation({"main": PoolObservation(size, [], uid="uid")}, {}), 0.0)
    active = control.conditions["ScalingActive"]
    assert (made.orders == [], active.holds) == (size > 0, holds)
    assert holds or "no replica is ready" in active.message


def test_a_window_survives_a_restart() -> None:
    """Without its memory, a restarted autoscaler would shrink at once."""
    control, scale = ScalingController(plan(), 0.0), Scale(8)
    tick(control, scale, 40, 0.0)
    again = ScalingController(plan(), 15.0)
    again.restore(control.record(), 15.0)
    assert tick(again, scale, 0, 15.0).orders == []
    assert again.conditions["ScalingLimited"].holds


def test_a_foreign_change_is_noticed_and_respected() -> None:
    control, scale = ScalingController(plan(), 0.0), Scale(2)
    tick(control, scale, 40, 0.0)
    assert scale.size == 6
    scale.size = 3
    made = tick(control, scale, 40, 15.0)
    assert (made.orders, scale.size) == ([], 3)
    (event,) = made.events
    assert event.reason == "ForeignChange"
    assert "has 3 replicas instead of 6: another writer scales it" in event.note
    assert control.conditions["Contested"].holds
    assert not control.conditions["AbleToScale"].holds
    restarted = ScalingController(plan(), 30.0)
    restarted.restore(control.record(), 30.0)
    assert tick(restarted, scale, 40, 30.0).orders == []
    assert tick(restarted, scale, 40, 135.0).orders != []
    assert not restarted.conditions["Contested"].holds


@pytest.mark.parametrize("replicas", [0, 2])
def test_a_queue_that_cannot_be_read_is_told(replicas: int) -> None:
    control = ScalingController(plan(), 0.0)
    tick(control, Scale(replicas), 1, 0.0, queued=None, problems=["the gateway answers 404"])
    active = control.conditions["ScalingActive"]
    assert "the gateway answers 404" in active.message
    assert active.holds == bool(replicas)


def test_two_that_disagree_do_not_fight() -> None:
    """An hour of two autoscalers on one target, each of which wants another size."""
    few = {**HPA, "pools": {"main": {"min": 1, "max": 2}}}
    controls = [ScalingController(plan(one), 0.0) for one in (HPA, few)]
    scale = Scale(2)
    for number in range(240):
        for offset_s, control in enumerate(controls):
            tick(control, scale, 80, 15.0 * number + 7.0 * offset_s)
    assert len(scale.writes) <= 12, scale.writes
    assert all("Contested" in control.conditions for control in controls)


@pytest.mark.parametrize(("arrived", "held"), [(6, False), (2, False), (4, True)])
def test_an_order_without_an_answer_is_told_from_a_foreign_change(arrived: int, held: bool) -> None:
    control = ScalingController(plan(), 0.0)
    pools = {"main": PoolObservation(2, pods(2), uid="uid")}
    readings = {one.uid: reading(20, 3) for one in pods(2)}
    (order,) = control.decide(TickObservation(pools, readings), 0.0).orders
    control.carried_out(order, ScaleOutcome.UNKNOWN, "", 0.0)
    made = control.decide(
        TickObservation({"main": PoolObservation(arrived, pods(2), uid="uid")}, readings), 15.0
    )
    assert bool(made.events) == held


def test_a_target_that_was_created_anew_was_never_ordered_anything() -> None:
    control, scale = ScalingController(plan(), 0.0), Scale(2)
    tick(control, scale, 40, 0.0)
    made = control.decide(
        TickObservation({"main": PoolObservation(1, pods(1), uid="another")}), 15.0
    )
    assert made.events == []
    scale.size = 1
    tick(control, scale, 40, 30.0)
    scale.size = 3
    tick(control, scale, 40, 45.0)
    assert control.conditions["Contested"].holds
    control.decide(TickObservation({"main": PoolObservation(1, pods(1), uid="third")}), 60.0)
    assert not control.conditions["Contested"].holds


def test_requests_at_a_gateway_start_it_again_from_zero() -> None:
    asleep = {**HPA, "pools": {"main": {"min": 0, "max": 4}}}
    made = plan(asleep, queue={"url": "http://gateway/metrics"})
    control = ScalingController(made, 0.0)
    pools = {"main": PoolObservation(0, [], uid="uid")}
    assert control.decide(TickObservation(pools), 0.0).orders == []
    assert control.decide(TickObservation(pools, queued=None), 10.0).orders == []
    (order,) = control.decide(TickObservation(pools, queued=3), 15.0).orders
    assert order.replicas == 1


def test_a_silent_gateway_keeps_the_last_replica() -> None:
    asleep = {**HPA, "down": {"window": "0s"}, "pools": {"main": {"min": 0, "max": 4}}}
    made = plan(asleep, queue={"url": "http://gateway/metrics"})
    pools = {"main": PoolObservation(1, pods(1), uid="uid")}
    idle = {"uid-0": reading(0, 0)}
    for queued, sizes in ((None, []), (0, [0])):
        tick_ = ScalingController(made, 0.0).decide(TickObservation(pools, idle, queued), 0.0)
        assert [order.replicas for order in tick_.orders] == sizes


def test_the_oldest_object_has_a_target_and_an_hpa_before_it() -> None:
    old, new, told = (
        Claimant(ObjectName("v", "Autoscaler", "ns", name), created, plan().targets, acts)
        for name, created, acts in (
            ("a", "2026-02", True),
            ("b", "2026-01", True),
            ("c", "", False),
        )
    )
    assert taken_targets([old, new, told], {}) == {old.named: {"main": "Autoscaler ns/b"}}
    hpa = {("Deployment", "ns", "main"): "HPA x"}
    assert taken_targets([old], hpa) == {old.named: {"main": "HPA x"}}


def test_no_order_where_nothing_is_known_or_another_scales() -> None:
    control = ScalingController(plan(), 0.0)
    made = control.decide(TickObservation({"main": "the API server does not answer"}), 0.0)
    assert made == TickResult((), (), [])
    assert control.conditions["AbleToScale"].reason == "FailedGetScale"
    pools = {"main": PoolObservation(2, pods(2), uid="uid")}
    dark = control.decide(TickObservation(pools, problems=["Prometheus answers 500"]), 15.0)
    assert dark.orders == []
    active = control.conditions["ScalingActive"]
    assert (active.holds, active.reason) == (False, "FailedGetMetrics")
    assert "Prometheus answers 500" in active.message
    readings = {one.uid: reading(20, 3) for one in pods(2)}
    taken = control.decide(TickObservation(pools, readings, taken={"main": "HPA x"}), 30.0)
    assert taken.orders == []
    assert control.conditions["AbleToScale"].reason == "TargetTaken"
    assert control.published["main"].desired == 6  # it is recommended all the same


def test_a_dry_run_recommends_and_orders_nothing() -> None:
    for control in (
        ScalingController(plan(), 0.0, acts=False),
        ScalingController(plan(mode="Recommend"), 0.0),
    ):
        scale = Scale(2)
        assert tick(control, scale, 40, 0.0).orders == []
        assert control.published["main"].desired == 6
        assert control.conditions["AbleToScale"].reason == "RecommendsOnly"


def test_a_refused_order_is_told_and_tried_again() -> None:
    control = ScalingController(plan(), 0.0)
    pools = {"main": PoolObservation(2, pods(2), uid="uid")}
    readings = {one.uid: reading(20, 3) for one in pods(2)}
    (order,) = control.decide(TickObservation(pools, readings), 0.0).orders
    event = control.carried_out(order, ScaleOutcome.REFUSED, "exceeded quota", 0.0)
    assert event is not None
    assert event.reason == "FailedRescale"
    assert control.conditions["AbleToScale"].reason == "FailedUpdateScale"
    made = control.decide(TickObservation(pools, readings), 15.0)
    assert made.events == []
    assert len(made.orders) == 1


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(anything, st.sampled_from(["", "loop", "claims", "memory"]))
def test_an_edited_record_never_stops_it(garbage: Any, where: str) -> None:
    control, scale = ScalingController(plan(), 0.0), Scale(2)
    tick(control, scale, 40, 0.0)
    record: Any = control.record()
    if where == "memory":
        (policy,) = record["loop"]["scaler"]["policies"]
        policy["parts"] = {name: {"sizes": garbage, "asked": {"chat/both/main": garbage}}
                           for name in policy["parts"]}  # fmt: skip
    elif where:
        record[where] = garbage
    else:
        record = garbage
    again = ScalingController(plan(), 15.0)
    again.restore(record if isinstance(record, dict) else {}, 15.0)
    assert again.decide(
        TickObservation({"main": PoolObservation(6, pods(6), uid="uid")}), 15.0
    ).decisions


@pytest.mark.parametrize(("loop", "said"), [(None, ""), (["x"], "cannot be read")])
def test_a_record_without_its_loop_keeps_what_was_ordered(loop: Any, said: str) -> None:
    """As one that is too large to be stored: a foreign change is noticed all the same."""
    control, scale = ScalingController(plan(), 0.0), Scale(2)
    tick(control, scale, 40, 0.0)
    again = ScalingController(plan(), 15.0)
    assert said in again.restore({**control.record(), "loop": loop}, 15.0)
    scale.size = 3
    assert [one.reason for one in tick(again, scale, 40, 15.0).events] == ["ForeignChange"]


def test_the_record_changes_at_every_tick_also_without_its_loop() -> None:
    """Another installation takes over one that stays the same."""
    control, records = ScalingController(plan(), 0.0), []
    for number in range(3):
        control.decide(
            TickObservation({"main": PoolObservation(2, pods(2), uid="uid")}), 15.0 * number
        )
        records.append({**control.record(), "loop": None})
    assert records[0] != records[1] != records[2]


def test_the_record_has_one_holder() -> None:
    ours = RecordHolder("a", 15.0)
    assert ours.may_act("", "", 0.0)
    assert ours.may_act("a", "1", 0.0)
    assert not ours.may_act("b", "2", 0.0)
    assert not ours.may_act("b", "2", 59.0)
    assert not ours.may_act("b", "3", 60.0)
    assert not ours.may_act("b", "3", 119.0)
    assert ours.may_act("b", "3", 120.0)


def test_conditions_of_others_stay_and_times_move_with_the_status() -> None:
    known = [
        {"type": "Other", "status": "True"},
        {"type": "AbleToScale", "status": "True", "lastTransitionTime": "then"},
        {"type": "Contested", "status": "False", "lastTransitionTime": "then"},
    ]
    told = [AutoscalerCondition("AbleToScale", holds=True, reason="B"),
            AutoscalerCondition("Contested", holds=True, reason="C")]  # fmt: skip
    made = merged_conditions(known, told, "now", 7)
    assert [one["type"] for one in made] == ["Other", "AbleToScale", "Contested"]
    assert [one.get("lastTransitionTime") for one in made] == [None, "then", "now"]
    assert made[1]["observedGeneration"] == 7
