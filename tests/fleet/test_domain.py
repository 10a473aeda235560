"""Machines, shapes, requirements and needs: what is legal, what is equal, what is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.fleet.machine import IllegalTransition, Machine, fault_of, transition
from windtunnel.fleet.need import NeedKey, merge, need, profile
from windtunnel.fleet.planner.costs import (
    DOLLARS,
    PINNED,
    bucket_of,
    effective_cost,
    preemption_grace_s,
    victim_score,
)
from windtunnel.fleet.requirements import accepts_all, requirement, spread
from windtunnel.fleet.shape import INSTANCE_TYPE, ZONE, shape
from windtunnel.fleet.states import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DELETING,
    DRAINING,
    EDGES,
    FAILED,
    IDLE,
    SPECULATIVE,
    STATES,
    is_legal,
)

SMALL = shape("m6i.large", "a", {"cpu": 2000, "memory": 8192}, price_per_hour=0.1)
KEY = NeedKey("east", profile(priority=7, reclamation_bucket=3).fingerprint())


def configured(name: str = "m1") -> Machine:
    return Machine(name, SMALL, CONFIGURED, host="h1", cluster="east", holder=KEY)


def test_a_machine_goes_round_its_whole_life_and_forgets_what_no_longer_holds() -> None:
    machine = Machine("m1", SMALL)
    machine = transition(machine, CREATING, 1.0, holder=KEY)
    assert (machine.holder, machine.host) == (KEY, "")
    machine = transition(machine, IDLE, 2.0, host="h1")
    assert (machine.holder, machine.host) == (None, "h1")
    machine = transition(machine, CONFIGURING, 3.0, cluster="east", holder=KEY)
    machine = transition(machine, CONFIGURED, 4.0)
    assert (machine.cluster, machine.holder, machine.since_s) == ("east", KEY, 4.0)
    machine = transition(machine, DRAINING, 5.0)
    machine = transition(machine, IDLE, 6.0)
    assert (machine.cluster, machine.holder) == ("", None)
    machine = transition(machine, DELETING, 7.0)
    machine = transition(machine, SPECULATIVE, 8.0)
    assert machine == Machine("m1", SMALL, since_s=8.0)


def test_losing_a_configured_machine_is_a_real_event() -> None:
    lost = transition(configured(), FAILED, 9.0, error="spot took it")
    assert (lost.state, lost.holder, lost.error) == (FAILED, None, "spot took it")


@given(before=st.integers(0, 7), after=st.integers(0, 7))
def test_only_the_listed_edges_are_legal(before: int, after: int) -> None:
    assert is_legal(before, after) == (before == after or (before, after) in EDGES)


def test_an_illegal_edge_is_a_sentence() -> None:
    with pytest.raises(IllegalTransition) as caught:
        transition(Machine("m1", SMALL), CONFIGURED, 0.0)
    assert str(caught.value) == (
        "machine 'm1': it cannot go from speculative to configured; allowed: creating"
    )


@pytest.mark.parametrize(
    ("machine", "fault"),
    [
        (Machine("m", SMALL, IDLE), "no host"),
        (Machine("m", SMALL, CONFIGURED, host="h"), "no cluster"),
        (Machine("m", SMALL, SPECULATIVE, host="h"), "has a host or a cluster"),
        (Machine("m", SMALL, IDLE, host="h", cluster="east"), "belongs to cluster 'east'"),
        (Machine("m", SMALL, FAILED), "does not say why"),
        (Machine("m", SMALL, 9), "state 9 does not exist"),
        (Machine("", SMALL), "no id"),
    ],
)
def test_a_record_that_cannot_be_is_told(machine: Machine, fault: str) -> None:
    assert fault in fault_of(machine)
    assert fault_of(configured()) == ""


@pytest.mark.parametrize("price", [math.nan, -1.0, math.inf])
def test_a_price_is_a_number(price: float) -> None:
    with pytest.raises(InputError, match="price per hour"):
        shape("m", "a", {"cpu": 1}, price_per_hour=price)
    with pytest.raises(InputError, match="probability"):
        shape("m", "a", {"cpu": 1}, interruption_probability=price)


def test_each_operator_asks_what_it_says() -> None:
    attributes = shape("m", "a", {"cpu": 1}, labels={"rack": "r1"}).attributes()
    assert attributes == {INSTANCE_TYPE: "m", ZONE: "a", "rack": "r1"}
    passes = [
        requirement(ZONE, "In", ["b", "a"]),
        requirement("gone", "NotIn", ["x"]),
        requirement("rack", "NotIn", ["r2"]),
        requirement("rack", "Exists"),
        requirement("gone", "DoesNotExist"),
        requirement("rack", "Same"),
        requirement("rack", "Same", ["r1"]),
    ]
    assert accepts_all(passes, attributes)
    fails = [
        requirement(ZONE, "In", ["b"]),
        requirement("gone", "In", ["x"]),
        requirement("rack", "NotIn", ["r1"]),
        requirement("gone", "Exists"),
        requirement("rack", "DoesNotExist"),
        requirement("gone", "Same"),
        requirement("rack", "Same", ["r2"]),
    ]
    assert not any(one.accepts(attributes) for one in fails)


def test_what_has_no_order_makes_no_difference_to_a_fingerprint() -> None:
    one = profile([requirement("a", "In", ["x", "y"]), requirement("b", "Exists")], priority=5)
    two = profile([requirement("b", "Exists"), requirement("a", "In", ["y", "x", "y"])], priority=5)
    assert one.fingerprint() == two.fingerprint() == "p=5|ipb=0|rpb=0|reqs=a:In:x,y;b:Exists:|spr="
    assert one.fingerprint() != profile(one.requirements, priority=6).fingerprint()


def test_a_key_still_says_what_its_need_was_worth() -> None:
    made = profile(priority=-3, interruption_bucket=4, reclamation_bucket=9)
    key = NeedKey("east", made.fingerprint())
    assert (key.priority(), key.interruption_bucket(), key.reclamation_bucket()) == (-3, 4, 9)


def test_same_beats_spread() -> None:
    over = spread("zone", 2)
    assert profile(spread=[over]).spread_over == over
    both = profile([requirement("rack", "Same")], spread=[over])
    assert (both.same_key, both.spread_over) == ("rack", None)


def test_equal_needs_merge_and_gangs_do_not() -> None:
    wish = profile(priority=1)
    merged = merge(
        [
            need("east", wish, {"cpu": 4}, {"cpu": 2}, arrival_s=5.0),
            need("east", wish, {"cpu": 6}, {"cpu": 3}, arrival_s=2.0),
            need("east", wish, {"cpu": 4}, {"cpu": 2}, group="g1"),
            need("west", wish, {"cpu": 4}, {"cpu": 2}),
        ]
    )
    rows = list(merged.values())
    assert [row.key() for row in rows] == list(merged)
    assert [(row.cluster, row.group, row.aggregate) for row in rows] == [
        ("east", "", (("cpu", 10),)),
        ("east", "g1", (("cpu", 4),)),
        ("west", "", (("cpu", 4),)),
    ]
    assert (rows[0].min_unit, rows[0].arrival_s) == ((("cpu", 3),), 2.0)


@pytest.mark.parametrize(
    ("aggregate", "unit", "fault"),
    [
        ({}, {}, "nothing is asked for"),
        ({"cpu": 1}, {"gpu": 1}, "the smallest unit names gpu, the sum names cpu"),
        ({"cpu": 1}, {"cpu": 2}, "the smallest unit is 2 and the sum is 1"),
        ({"cpu": 1}, {"cpu": 0}, "above 0"),
    ],
)
def test_an_amount_that_makes_no_sense_is_refused(
    aggregate: dict[str, int], unit: dict[str, int], fault: str
) -> None:
    with pytest.raises(InputError, match=fault):
        need("east", profile(), aggregate, unit)


def test_a_wrong_operator_is_answered_with_the_right_ones() -> None:
    with pytest.raises(InputError, match=r"there is no operator 'in'; allowed: In, NotIn"):
        requirement("zone", "in", ["a"])
    with pytest.raises(InputError, match="In has no values"):
        requirement("zone", "In")
    with pytest.raises(InputError, match="Exists has values"):
        requirement("zone", "Exists", ["a"])
    with pytest.raises(InputError, match="max_skew is 0"):
        spread("zone", 0)


@pytest.mark.parametrize("name", ["", "a|b", "a;b", "a:b", "a,b"])
def test_names_that_would_blur_a_fingerprint_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="allowed: names without"):
        requirement(name, "Exists")
    with pytest.raises(InputError, match="allowed: names without"):
        requirement("zone", "In", [name])
    with pytest.raises(InputError, match="allowed: names without"):
        spread(name)


def test_an_arrival_is_a_time() -> None:
    with pytest.raises(InputError, match="it arrived at nan; allowed: seconds"):
        need("east", profile(), {"cpu": 1}, {"cpu": 1}, arrival_s=math.nan)


@given(dollars=st.floats(0.0, 8_388_608.0))
def test_a_penalty_is_rounded_up_to_its_bucket(dollars: float) -> None:
    bucket = bucket_of(dollars)
    assert DOLLARS[bucket] >= dollars
    assert bucket == 1 or DOLLARS[bucket - 1] < dollars


def test_the_ends_of_the_buckets() -> None:
    assert len(DOLLARS) == 28
    assert [bucket_of(d) for d in (0.0, 0.5, 1.0, 8_388_608.0)] == [1, 2, 3, 26]
    assert bucket_of(8_388_609.0) == bucket_of(math.inf) == PINNED
    with pytest.raises(InputError, match="nan"):
        bucket_of(math.nan)


def test_risk_is_part_of_a_cost_and_pinned_bears_none() -> None:
    assert effective_cost(2.0, 0.25, bucket_of(64.0)) == 18.0
    assert effective_cost(2.0, 0.0, PINNED) == 2.0
    assert effective_cost(2.0, 0.01, PINNED) == math.inf


def test_the_further_below_the_better_the_victim_and_the_less_its_grace() -> None:
    assert 900 + victim_score(5, 5) > 100 + victim_score(5, 5) > 100 + victim_score(9, 5)
    graces = [preemption_grace_s(gap) for gap in (10, 200_000, 600_000, 999_900)]
    assert graces == [600.0, 120.0, 30.0, 10.0]


def test_every_state_has_a_name() -> None:
    assert STATES[IDLE] == "idle"
    assert len(STATES) == FAILED + 1
    assert len({CONFIGURING, CONFIGURED, CREATING, DRAINING, DELETING, SPECULATIVE}) == 6
