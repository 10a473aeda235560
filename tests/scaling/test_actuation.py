"""The loop of an autoscaler: its ticks, its orders, and those that come too late."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scaling.worlds import Wants, fleet, variant
from windtunnel.core.errors import InputError
from windtunnel.scaling.actuation import Issued, ScalingLoop, ScalingOrder
from windtunnel.scaling.decision import Decision, hold
from windtunnel.scaling.limiters import SustainedLimiter
from windtunnel.scaling.policy import Policy, PolicyParts
from windtunnel.scaling.scaler import Scaler
from windtunnel.scaling.settings import ScalerTiming
from windtunnel.scaling.snapshot import Snapshot

TIMING = ScalerTiming(interval_s=10.0, scrape_delay_s=2.0)


class Script:
    """Wants sizes that are set from outside, and notes the times at which it was asked."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.asked_s: list[float] = []

    def tick(self, snapshot: Snapshot, now_s: float) -> list[Decision]:
        self.asked_s.append(now_s)
        return [
            Decision(
                "m",
                one.name,
                current=one.target,
                recommended=one.target,
                target=self.sizes.get(one.name, one.target),
                reason="it is written",
                metrics={},
                limits=[],
            )
            for one in snapshot.models[0].variants
        ]


def pools(**sizes: int) -> Snapshot:
    return fleet(*[variant(name, ready=size) for name, size in sizes.items()], taken_s=4.0)


def loop_of(script: Script) -> ScalingLoop:
    return ScalingLoop(lambda: script, TIMING)


def ordered(issued: Issued | None) -> ScalingOrder:
    assert issued is not None
    assert issued.order is not None
    return issued.order


def test_ticks_come_at_intervals_and_snapshots_after_the_scrape_delay() -> None:
    loop = loop_of(Script())
    assert loop.next_tick_s == 10.0
    assert loop.tick(10.0) == loop.next_tick_s == 20.0
    assert loop.arrival_s(10.0) == 12.0
    assert loop.arrival_s(10.0, lag_s=30.0) == 42.0
    assert loop.ticks == 1


def test_decisions_have_ids_and_only_changes_are_ordered() -> None:
    script = Script()
    loop = loop_of(script)
    script.sizes = {"b": 5}
    issued = loop.decide(pools(a=1, b=2), 12.0)
    assert issued is not None
    assert [(one.id, one.decision.variant) for one in issued.decisions] == [
        ("scaling-1", "a"),
        ("scaling-2", "b"),
    ]
    order = ordered(issued)
    assert [one.id for one in order.decisions] == ["scaling-2"]
    assert (loop.in_flight, loop.seen_s) == (1, 4.0)
    (outcome,) = loop.arrived(order, {"a": 1, "b": 2})
    assert (outcome.change, outcome.superseded, loop.in_flight) == (3, False, 0)
    still = loop.decide(pools(a=1, b=5), 22.0)
    assert still is not None
    assert still.order is None
    assert [one.id for one in still.decisions] == ["scaling-3", "scaling-4"]


def test_an_order_that_a_later_one_has_overtaken_is_superseded() -> None:
    script = Script()
    loop = loop_of(script)
    script.sizes = {"a": 9, "b": 9}
    slow = ordered(loop.decide(pools(a=1, b=1), 12.0))
    script.sizes = {"a": 3}
    quick = ordered(loop.decide(pools(a=1, b=1), 22.0))
    assert [one.change for one in loop.arrived(quick, {"a": 1, "b": 1})] == [2]
    late = loop.arrived(slow, {"a": 3, "b": 1})
    assert [(one.superseded, one.change) for one in late] == [(True, 0), (False, 8)]
    assert (loop.superseded, loop.in_flight) == (1, 0)


def test_the_same_size_ordered_twice_changes_nothing_the_second_time() -> None:
    script = Script()
    loop = loop_of(script)
    script.sizes = {"a": 4}
    first = ordered(loop.decide(pools(a=1), 12.0))
    second = ordered(loop.decide(pools(a=1), 22.0))
    assert [one.change for one in loop.arrived(first, {"a": 1})] == [3]
    (again,) = loop.arrived(second, {"a": 4})
    assert (again.change, again.superseded) == (0, False)


def test_a_stopped_scaler_neither_looks_nor_decides_and_its_orders_are_carried_out() -> None:
    script = Script()
    loop = loop_of(script)
    script.sizes = {"a": 4}
    order = ordered(loop.decide(pools(a=1), 12.0))
    loop.stop()
    loop.stop()
    assert loop.arrival_s(20.0) is None
    assert loop.decide(pools(a=1), 22.0) is None
    assert [one.change for one in loop.arrived(order, {"a": 1})] == [3]
    loop.start()
    assert loop.decide(pools(a=1), 32.0) is None
    loop.start()
    assert loop.decide(pools(a=1), 42.0) is not None


def test_a_clock_that_is_put_back_stands_still() -> None:
    script = Script()
    loop = loop_of(script)
    for now_s in (12.0, 7.0, 13.0):
        loop.decide(pools(a=1), now_s)
    assert script.asked_s == [12.0, 12.0, 13.0]


def build() -> Scaler:
    """Shrinks to one, when that was wanted for 15 s."""
    parts = PolicyParts([Wants(1)], limiters=[SustainedLimiter(0.0, 15.0)])
    return Scaler({"m": Policy("p", parts)}, 45.0)


def test_a_restart_with_its_state_forgets_neither_memory_nor_orders() -> None:
    def seen(at_s: float) -> Snapshot:
        return fleet(variant("a", ready=4), taken_s=at_s)

    loop = ScalingLoop(build, TIMING)
    loop.decide(seen(0.0), 0.0)
    late = ordered(loop.decide(seen(15.0), 15.0))
    loop.decide(seen(20.0), 20.0)
    quick = ordered(loop.decide(seen(35.0), 35.0))
    loop.arrived(quick, {"a": 4})
    loop.decide(seen(40.0), 40.0)  # fewer are wanted since then
    again, forgetful = ScalingLoop(build, TIMING), ScalingLoop(build, TIMING)
    again.restore(json.loads(json.dumps(loop.state())))
    assert again.arrived(late, {"a": 1})[0].superseded
    assert ordered(again.decide(seen(55.0), 55.0)).decisions[0].id == "scaling-6"
    first = forgetful.decide(seen(55.0), 55.0)
    assert first is not None
    assert first.order is None


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(InputError, match="not the memory"):
        loop_of(Script()).restore({"ordered": []})


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), min_size=1, max_size=12))
def test_whatever_the_delays_the_latest_order_that_arrived_stands(
    drawn: list[tuple[int, int]],
) -> None:
    script, size = Script(), 2
    loop = loop_of(script)
    arriving: list[tuple[float, int, ScalingOrder]] = []
    for tick, (wanted, delay_s) in enumerate(drawn):
        script.sizes = {"a": wanted}
        issued = loop.decide(pools(a=size), 10.0 * tick)
        assert issued is not None
        if issued.order is not None:
            arriving.append((10.0 * tick + delay_s, issued.order.number, issued.order))
    newest = 0
    for _, number, order in sorted(arriving, key=lambda one: one[:2]):
        (outcome,) = loop.arrived(order, {"a": size})
        assert outcome.superseded == (number < newest)
        if not outcome.superseded:
            newest = number
            size = order.decisions[0].decision.target
    assert loop.in_flight == 0
    if arriving:
        assert size == max(arriving, key=lambda one: one[1])[2].decisions[0].decision.target


def test_a_hold_says_why() -> None:
    decision = hold("m", variant("a", ready=3), "Nothing is known.")
    assert (decision.target, decision.changes, decision.reason) == (3, False, "Nothing is known.")
