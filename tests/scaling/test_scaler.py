"""The frame of an autoscaler: parts in a row, and decisions that explain themselves."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaling.worlds import Wants, fleet, variant
from windtunnel.core.errors import InputError
from windtunnel.scaling.decision import Decision
from windtunnel.scaling.limiters import LimitContext, Limiter
from windtunnel.scaling.optimizers import CostOrdered
from windtunnel.scaling.policy import ModelPolicy, Policy, PolicyParts
from windtunnel.scaling.scaler import Scaler
from windtunnel.scaling.snapshot import Flow, Model, Snapshot


class AtMost(Limiter):
    """No more than so many; it remembers what it decided."""

    def __init__(self, most: int, name: str = "at most") -> None:
        super().__init__(name)
        self.most = most
        self.decided: dict[str, object] = {}

    def limit_group(self, total: int, number: int, context: LimitContext) -> int:
        return min(total, self.most)

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        return f"At most {after}, not {before}."

    def record_group(
        self, recommended: int, decided: int, number: int, context: LimitContext
    ) -> None:
        self.decided[context.groups[number].key] = decided

    def state(self) -> dict[str, object]:
        return dict(self.decided)

    def restore(self, state: dict[str, object]) -> None:
        self.decided.update(state)


def scaler(wanted: int | None, *limiters: Limiter, engine: str = "greedy") -> Scaler:
    policy = Policy(
        "test", PolicyParts([Wants(wanted)], CostOrdered(engine=engine), list(limiters))
    )
    return Scaler({"m": policy}, 45.0)


def tick(snapshot: Snapshot, wanted: int | None, *limiters: Limiter) -> list[Decision]:
    return scaler(wanted, *limiters).tick(snapshot, snapshot.taken_s)


def test_a_recommendation_goes_through() -> None:
    (decision,) = tick(fleet(variant(ready=2)), 5)
    assert (decision.current, decision.recommended, decision.target) == (2, 5, 5)
    assert decision.limits == []
    assert decision.metrics == {"wanted": 5}
    assert decision.reason == "So it was told."


def test_every_limit_says_what_would_have_been_without_it() -> None:
    chain = [AtMost(6, "six"), AtMost(4, "four")]
    (decision,) = tick(fleet(variant(ready=2, maximum=5)), 9, *chain)
    told = [(limit.name, limit.before, limit.after, limit.without) for limit in decision.limits]
    assert told == [("six", 9, 6, 4), ("four", 6, 4, 5)]
    assert decision.target == 4


def test_bounds_hold_also_without_data() -> None:
    (decision,) = tick(fleet(variant(ready=1, minimum=3)), None)
    assert decision.target == 3
    assert [limit.name for limit in decision.limits] == ["bounds"]


def test_missing_data_holds_and_teaches_nothing() -> None:
    limiter = AtMost(1)
    (decision,) = tick(fleet(variant(ready=4)), None, limiter)
    assert (decision.target, decision.reason) == (4, "Nobody answered.")
    assert limiter.state() == {}


def test_the_model_that_misses_most_comes_first_to_what_is_free() -> None:
    names = ["calm", "urgent"]
    wanted = {"calm": 3, "urgent": 6}
    policies: dict[str, ModelPolicy] = {
        name: Policy("test", PolicyParts([Wants(wanted[name])], CostOrdered(), []))
        for name in names
    }
    models = [Model(name, [variant(ready=1)], queued=0, flow=Flow(15.0)) for name in names]
    decisions = Scaler(policies, 45.0).tick(Snapshot(0.0, models, {"h100": 5}), 0.0)
    assert [(one.model, one.target) for one in decisions] == [("calm", 1), ("urgent", 6)]


def test_old_snapshots_hold() -> None:
    (decision,) = scaler(9).tick(fleet(variant(ready=2)), 46.0)
    assert decision.target == 2
    assert decision.reason == "The metrics are 46 s old: no change."


@pytest.mark.parametrize("taken_s", [math.nan, math.inf, -math.inf])
def test_snapshots_of_no_time_hold_and_later_ones_are_believed(taken_s: float) -> None:
    one = scaler(9)
    (decision,) = one.tick(fleet(variant(ready=2), taken_s=taken_s), 5.0)
    assert decision.target == 2
    assert decision.reason == f"The time of the snapshot, {taken_s:g} s, is invalid: no change."
    (decision,) = one.tick(fleet(variant(ready=2)), 5.0)
    assert decision.target == 9


def test_a_model_without_a_policy_holds() -> None:
    other = Scaler({"x": Policy("p", PolicyParts([Wants(3)], CostOrdered(), []))}, 45.0)
    (decision,) = other.tick(fleet(variant(ready=2)), 0.0)
    assert (decision.target, decision.reason) == (2, "The model has no policy.")


def test_queued_demand_wakes_a_model_without_replicas() -> None:
    (decision,) = tick(fleet(variant(ready=0), queued=3), 0)
    assert decision.target == 1
    assert decision.limits[0].name == "work"
    assert decision.limits[0].without == 0


def test_the_last_replica_with_work_stays() -> None:
    (decision,) = tick(fleet(variant(ready=3, running=1)), 0)
    assert decision.target == 1
    (idle,) = tick(fleet(variant(ready=3)), 0)
    assert idle.target == 0


def test_the_last_ready_replica_stays_while_the_cheaper_one_starts() -> None:
    dear = variant("dear", ready=1, running=2, price=9.0)
    cheap = variant("cheap", ready=0, starting=1, price=1.0)
    kept, other = tick(fleet(dear, cheap), 1)
    assert (kept.target, other.target) == (1, 1)
    assert kept.limits[0].name == "last ready"


def test_without_wake_the_last_replica_goes_whatever_its_work() -> None:
    asleep = Policy("p", PolicyParts([Wants(0)], CostOrdered(), []), wake=False)
    (decision,) = Scaler({"m": asleep}, 45.0).tick(fleet(variant(ready=1, running=2)), 0.0)
    assert (decision.target, decision.limits) == (0, [])


def test_memory_survives_a_restart_and_an_edit() -> None:
    first = scaler(9, AtMost(4))
    first.tick(fleet(variant(ready=2)), 0.0)
    saved = first.state()
    kept = AtMost(7)
    scaler(9, AtMost(5, "another"), kept).restore(saved)
    assert kept.decided == {"m/both": 4}


def test_parts_have_names_of_their_own() -> None:
    with pytest.raises(InputError, match="two parts"):
        Policy("p", PolicyParts([Wants(1), Wants(2)], CostOrdered(), []))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4),  # ready
            st.integers(0, 3),  # minimum
            st.integers(0, 5),  # room above it
            st.sampled_from([1.0, 2.0, 3.0]),  # price
            st.integers(0, 1),  # running
        ),
        min_size=1,
        max_size=3,
    ),
    st.one_of(st.none(), st.integers(0, 20)),
    st.integers(0, 12),
    st.integers(0, 2),
    st.one_of(st.none(), st.integers(0, 6)),
)
@settings(max_examples=60)
def test_decisions_keep_bounds_and_work_and_explain_themselves(
    drawn: list[tuple[int, int, int, float, int]],
    wanted: int | None,
    most: int,
    queued: int,
    free: int | None,
) -> None:
    variants = [
        variant(
            f"v{number}",
            ready=ready,
            minimum=minimum,
            maximum=minimum + room,
            price=price,
            running=running,
        )
        for number, (ready, minimum, room, price, running) in enumerate(drawn)
    ]
    snapshot = fleet(*variants, queued=queued, free=None if free is None else {"h100": free})
    decisions = tick(snapshot, wanted, AtMost(most))
    work = queued + sum(one.ready * given[4] for one, given in zip(variants, drawn, strict=True))
    assert [decision.variant for decision in decisions] == [one.name for one in variants]
    for decision, one in zip(decisions, variants, strict=True):
        assert one.minimum <= decision.target <= one.maximum
        value = decision.recommended
        for limit in decision.limits:
            assert limit.before == value != limit.after
            value = limit.after
        assert value == decision.target
    if work and any(one.maximum for one in variants):
        assert sum(decision.target for decision in decisions) > 0
    if work and any(one.ready and one.maximum for one in variants):
        assert any(
            decision.target and one.ready for decision, one in zip(decisions, variants, strict=True)
        )
