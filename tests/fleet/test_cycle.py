"""What a cycle decides, by example; the obvious and the fast one are both asked each time."""

import pytest

from tests.fleet.test_equivalence import Both
from tests.fleet.worlds import SAME_RACK, ask, idle, quota, shape_of
from windtunnel.core.clock import cpu_s
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need, need, profile
from windtunnel.fleet.planner.actions import (
    ADOPT,
    BOOTSTRAP,
    DELETE,
    NO_MATCHING_SUPPLY,
    PREEMPT,
    PREEMPTING,
    PREEMPTION_EXHAUSTED,
    PRIORITY_STARVED,
    PROVISION,
    QUOTA_EXHAUSTED,
    RECLAIM,
    TOPOLOGY_UNSATISFIABLE,
    CyclePlan,
)
from windtunnel.fleet.requirements import requirement
from windtunnel.fleet.shape import BARE_METAL, SPOT, ZONE, shape
from windtunnel.fleet.states import CONFIGURED, CONFIGURING, CREATING, DRAINING, FAILED, IDLE
from windtunnel.twin.fleet.bench import preemption_ms
from windtunnel.twin.fleet.workloads import URGENT


def moves(plan: CyclePlan) -> list[tuple[int, str]]:
    return [(one.kind, one.machine) for one in plan.actions]


def verdicts(plan: CyclePlan) -> list[int]:
    return [one.verdict for one in plan.shortfalls]


def configured(name: str, holder: Need, *, zone: str = "a", rack: str = "r1") -> Machine:
    return Machine(
        name,
        shape_of("small", zone, rack),
        CONFIGURED,
        host=f"host-{name}",
        cluster=holder.cluster,
        holder=holder.key(),
    )


def step(world: Both, name: str, *states: int) -> None:
    """Lets a machine go through some states."""
    inventory = world.planner.inventory
    entry = inventory.entries[name]
    for state in states:
        row, error = entry.row, "lost" if state == FAILED else ""
        inventory.transition(entry, state, world.now_s, host="h", row=row, error=error)


def test_idle_machines_before_quota_and_the_cheapest_first() -> None:
    machines = [quota("m0"), idle("m1", shape_of("large")), idle("m3"), idle("m2")]
    plan = Both(machines, [ask(machines=3)]).cycle()
    assert moves(plan) == [(BOOTSTRAP, "m2"), (BOOTSTRAP, "m3"), (PROVISION, "m0")]
    assert plan.actions[0].cost == pytest.approx(0.1)
    assert plan.shortfalls == []


def test_risk_counts_as_cost() -> None:
    machines = [idle("m1", shape_of(capacity_type=SPOT)), idle("m2")]
    careless, careful = ask(penalty=1), ask(penalty=9)
    assert moves(Both(machines, [careless]).cycle()) == [(BOOTSTRAP, "m1")]
    assert moves(Both(machines, [careful]).cycle()) == [(BOOTSTRAP, "m2")]


def test_a_pinned_need_takes_nothing_that_could_be_taken_from_it() -> None:
    world = Both([idle("m1", shape_of(capacity_type=SPOT))], [ask(penalty=27)])
    assert verdicts(world.cycle()) == [NO_MATCHING_SUPPLY]


def test_the_higher_priority_and_then_the_earlier_is_served_first() -> None:
    low, late, early = (
        ask("a", priority=1),
        ask("b", priority=9, arrival_s=2.0),
        ask("c", priority=9, arrival_s=1.0),
    )
    plan = Both([idle("m1"), idle("m2")], [low, late, early]).cycle()
    assert [(one.cluster, one.machine) for one in plan.actions] == [("c", "m1"), ("b", "m2")]
    assert verdicts(plan) == [PRIORITY_STARVED]


def test_what_is_on_its_way_counts_and_nothing_is_emitted_twice() -> None:
    world = Both([idle("m1"), idle("m2"), quota("m3"), quota("m4")], [ask(machines=3)])
    assert len(world.cycle().actions) == 3
    assert world.cycle().actions == []
    step(world, "m1", CONFIGURING)
    step(world, "m3", CREATING)
    assert world.cycle().actions == []
    step(world, "m3", IDLE)
    assert moves(world.cycle()) == [(BOOTSTRAP, "m3")]  # its way ended early: it is asked again


def test_a_lost_machine_is_replaced_once() -> None:
    wish = ask(machines=2)
    world = Both([configured("m1", wish), configured("m2", wish), idle("m3"), idle("m4")], [wish])
    assert world.cycle().actions == []
    step(world, "m1", FAILED)
    assert moves(world.cycle()) == [(BOOTSTRAP, "m3")]
    world.planner.inventory.remove("m2")
    assert moves(world.cycle()) == [(BOOTSTRAP, "m4")]
    assert world.cycle().actions == []


def test_a_need_that_shrinks_keeps_the_cheapest() -> None:
    wish = ask(machines=3)
    dear = shape("small", "a", {"cpu": 2, "memory": 8}, price_per_hour=0.2)
    dearest = Machine("m0", dear, CONFIGURED, "h", "east", wish.key())
    world = Both([dearest, configured("m1", wish), configured("m2", wish)], [ask(machines=2)])
    plan = world.cycle()
    assert moves(plan) == [(RECLAIM, "m0")]
    assert plan.actions[0].grace_s == 600.0
    world.want("east", [wish])
    plan = world.cycle()
    assert (plan.actions, plan.withdrawn) == ([], ["m0"])  # the drain had not begun


def gpu_world(units: int, *, is_idle: bool) -> Both:
    """Seven small machines at $1 for a GPU, and large ones that can be created at $9 for eight."""
    small = shape("small", "a", {"gpu": 1}, price_per_hour=1.0)
    large = shape("large", "a", {"gpu": 8}, price_per_hour=9.0)
    create = idle if is_idle else quota
    machines = [create(f"s{n}", small) for n in range(7)]
    machines += [quota(f"l{n}", large) for n in range(2)]
    return Both(machines, [need("east", profile(), {"gpu": units}, {"gpu": 1})])


def test_a_machine_that_holds_all_units_makes_those_taken_before_it_needless() -> None:
    world = gpu_world(8, is_idle=False)
    assert moves(world.cycle()) == [(PROVISION, "l0")]
    assert world.cycle().actions == []
    world = gpu_world(11, is_idle=False)  # three small ones beside it are still needed
    assert moves(world.cycle()) == [*((PROVISION, f"s{n}") for n in range(3)), (PROVISION, "l0")]


def test_what_is_there_is_needless_once_the_larger_machine_is_there() -> None:
    world = gpu_world(8, is_idle=True)
    small = [f"s{n}" for n in range(7)]
    assert moves(world.cycle()) == [*((BOOTSTRAP, name) for name in small), (PROVISION, "l0")]
    for name in small:
        step(world, name, CONFIGURING, CONFIGURED)
    step(world, "l0", CREATING)
    assert world.cycle().actions == []
    step(world, "l0", IDLE)
    assert moves(world.cycle()) == [(BOOTSTRAP, "l0")]
    step(world, "l0", CONFIGURING)
    assert world.cycle().actions == []
    step(world, "l0", CONFIGURED)
    assert moves(world.cycle()) == [(RECLAIM, name) for name in small]
    assert world.cycle().actions == []


def test_what_one_need_has_to_spare_another_of_the_cluster_adopts() -> None:
    before, after = ask(machines=2, priority=1), ask(machines=2, priority=2)
    world = Both([configured("m1", before), configured("m2", before), idle("m3")], [after])
    assert moves(world.cycle()) == [(ADOPT, "m1"), (ADOPT, "m2")]
    assert world.cycle().actions == []


def test_nothing_is_reclaimed_before_a_cluster_has_said_what_it_needs() -> None:
    wish = ask("north")
    world = Both([configured("m1", wish)], [])
    assert world.cycle().actions == []
    world.want("north", [])
    assert moves(world.cycle()) == [(RECLAIM, "m1")]


def test_an_empty_rollup_is_not_believed_at_once() -> None:
    wishes = [ask(group=f"g{number}") for number in range(10)]
    world = Both([configured(f"m{n}", wishes[n]) for n in range(10)], wishes)
    assert world.cycle().actions == []
    world.want("east", [])
    world.want("east", [])
    assert world.cycle().actions == []
    world.want("east", [])
    assert len(world.cycle().actions) == 10


def test_idle_machines_are_held_for_as_long_as_their_kind_says() -> None:
    machines = [
        idle("m1"),
        idle("m2", shape_of(capacity_type=SPOT)),
        idle("m3", shape_of(capacity_type=BARE_METAL)),
    ]
    world = Both(machines, [])
    world.now_s = 59.0
    assert world.cycle().actions == []
    world.now_s = 60.0
    assert moves(world.cycle()) == [(DELETE, "m2")]
    world.now_s = 1e6
    assert moves(world.cycle()) == [(DELETE, "m1")]


def test_a_machine_that_would_be_given_back_is_used_instead() -> None:
    world = Both([idle("m1")], [])
    world.now_s = 700.0
    assert moves(world.cycle()) == [(DELETE, "m1")]
    world.want("east", [ask()])
    plan = world.cycle()
    assert (moves(plan), plan.withdrawn) == ([(BOOTSTRAP, "m1")], ["m1"])


# Preemption.


def test_a_higher_priority_takes_from_the_lowest_and_waits_for_the_drain() -> None:
    low, middle, high = (
        ask("east", priority=1),
        ask("east", priority=2),
        ask("west", priority=600_002),
    )
    world = Both([configured("m1", middle), configured("m2", low)], [low, middle, high])
    plan = world.cycle()
    assert moves(plan) == [(PREEMPT, "m2")]
    assert (plan.actions[0].grace_s, plan.actions[0].need) == (30.0, high.key())
    assert verdicts(plan) == [PREEMPTING]
    plan = world.cycle()
    assert plan.actions == []  # the promise counts: nobody else is drained for it
    assert verdicts(plan) == [PREEMPTING, PRIORITY_STARVED]
    step(world, "m2", DRAINING)
    assert world.cycle().actions == []
    step(world, "m2", IDLE)
    assert moves(world.cycle()) == [(BOOTSTRAP, "m2")]


def test_in_the_own_cluster_a_higher_priority_takes_over_without_a_drain() -> None:
    low, high = ask(priority=1), ask(priority=2)
    world = Both([configured("m1", low)], [low, high])
    assert moves(world.cycle()) == [(ADOPT, "m1")]
    assert verdicts(world.cycle()) == [PRIORITY_STARVED]


def test_a_preemption_that_is_needless_now_is_taken_back() -> None:
    low, high = ask("east", priority=1), ask("west", priority=2)
    world = Both([configured("m1", low)], [low, high])
    assert moves(world.cycle()) == [(PREEMPT, "m1")]
    world.want("west", [])
    assert world.cycle().withdrawn == ["m1"]
    plan = world.cycle()
    assert (plan.actions, plan.shortfalls) == ([], [])


def test_when_all_victims_do_not_suffice_it_says_so() -> None:
    low, high = ask("east", priority=1), ask("west", 2, priority=2)
    plan = Both([configured("m1", low)], [low, high]).cycle()
    assert verdicts(plan) == [PREEMPTION_EXHAUSTED]
    assert plan.shortfalls[0].reason == (
        "short of 2 cpu, 8 memory: needs of lower priority do not hold enough machines"
    )


def test_who_pinned_its_machines_is_no_victim() -> None:
    low, high = ask("east", priority=1, penalty=27), ask("west", priority=2)
    plan = Both([configured("m1", low)], [low, high]).cycle()
    assert (plan.actions, verdicts(plan)) == ([], [QUOTA_EXHAUSTED])


def test_a_unit_that_no_machine_can_host_is_a_verdict() -> None:
    plan = Both([idle("m1")], [ask(kind="large")]).cycle()
    assert verdicts(plan) == [NO_MATCHING_SUPPLY]
    assert "no machine that exists or can be created now matches" in plan.shortfalls[0].reason


def test_a_need_of_more_than_there_is_starves_for_nobody() -> None:
    alone = ask(machines=5)
    world = Both([configured("m1", alone), idle("m2"), quota("m3")], [alone])
    plan = world.cycle()
    assert verdicts(plan) == [NO_MATCHING_SUPPLY]
    assert plan.shortfalls[0].reason == (
        "short of 4 cpu, 16 memory: the quota is too small: all machines that match, free or in "
        "use, are too few"
    )


def test_requirements_that_exclude_each_other_are_a_verdict() -> None:
    both = ask("east", 1, "small", requirement(ZONE, "In", ["a"]), requirement(ZONE, "In", ["b"]))
    assert verdicts(Both([idle("m1")], [both]).cycle()) == [NO_MATCHING_SUPPLY]


# Gangs and spreads.


def racks(**counts: int) -> list[Machine]:
    """So many idle machines in each rack."""
    return [
        idle(f"{rack}{number}", shape_of(rack=rack))
        for rack, count in counts.items()
        for number in range(count)
    ]


def test_a_gang_goes_to_one_rack_with_the_tightest_fit() -> None:
    plan = Both(racks(r1=2, r2=5, r3=3), [ask("east", 3, "small", SAME_RACK)]).cycle()
    assert {one.machine[:2] for one in plan.actions} == {"r3"}


def test_a_gang_that_fits_nowhere_takes_nothing() -> None:
    plan = Both(racks(r1=2, r2=2), [ask("east", 3, "small", SAME_RACK)]).cycle()
    assert (plan.actions, verdicts(plan)) == ([], [TOPOLOGY_UNSATISFIABLE])


def test_a_gang_grows_where_it_is() -> None:
    small, large = ask("east", 1, "small", SAME_RACK), ask("east", 3, "small", SAME_RACK)
    there = configured("m1", small, rack="r1")
    world = Both([there, *racks(r1=5, r2=2)], [large])
    assert {one.machine[:2] for one in world.cycle().actions} == {"r1"}


def test_a_gang_moves_as_a_whole_when_its_rack_is_too_small() -> None:
    small, large = ask("east", 1, "small", SAME_RACK), ask("east", 3, "small", SAME_RACK)
    world = Both([configured("m1", small, rack="r1"), *racks(r1=1, r2=3)], [large])
    plan = world.cycle()
    assert moves(plan) == [
        (BOOTSTRAP, "r20"),
        (BOOTSTRAP, "r21"),
        (BOOTSTRAP, "r22"),
        (RECLAIM, "m1"),
    ]


def test_a_gang_of_high_priority_has_its_rack_emptied() -> None:
    low = ask("west", 2, priority=1)
    gang = ask("east", 3, "small", SAME_RACK, priority=9)
    victims = [configured(f"v{n}", low, rack="r2") for n in range(2)]
    world = Both([*victims, *racks(r1=2, r2=1)], [low, gang])
    plan = world.cycle()
    assert moves(plan) == [(BOOTSTRAP, "r20"), (PREEMPT, "v0"), (PREEMPT, "v1")]


def test_gangs_of_high_priority_empty_a_rack_each_in_one_cycle_and_stay_there() -> None:
    low = ask("west", 6)
    machines = [configured(f"m{n}", low, rack=f"r{1 + n // 3}") for n in range(6)]
    urgent = [ask("east", 3, "small", SAME_RACK, priority=900, group=name) for name in ("g1", "g2")]
    world = Both(machines, [low, *urgent])
    plan = world.cycle()
    assert [one.kind for one in plan.actions] == [PREEMPT] * 6
    assert verdicts(plan) == [PREEMPTING, PREEMPTING]
    plan = world.cycle()
    assert (plan.actions, plan.withdrawn) == ([], [])


@pytest.mark.parametrize("kind", URGENT)
def test_preemption_costs_what_it_takes_and_not_what_others_hold(kind: str) -> None:
    """Looking at every machine for each urgent need took some seconds of the processor."""
    assert preemption_ms(10_000, 100, kind, cpu_s) < 1000.0


def test_a_spread_of_high_priority_takes_evenly() -> None:
    low = ask("west", 6)
    machines = [configured(f"m{n}", low, zone="ab"[n // 4]) for n in range(6)]
    world = Both(machines, [low, ask("east", 4, priority=900, skew=1)])
    assert moves(world.cycle()) == [(PREEMPT, f"m{n}") for n in (0, 4, 1, 5)]


def test_a_spread_keeps_within_its_skew() -> None:
    machines = [idle(f"{zone}{n}", shape_of(zone=zone)) for zone in "ab" for n in range(4)]
    machines.append(quota("c0", shape_of(zone="c")))
    plan = Both(machines, [ask(machines=6, skew=1)]).cycle()
    zones = [one.machine[0] for one in plan.actions]
    assert sorted(zones) == ["a", "a", "b", "b", "c"]
    assert verdicts(plan) == [TOPOLOGY_UNSATISFIABLE]


def test_a_spread_that_shrinks_stays_even() -> None:
    wish = ask(machines=4, skew=1)
    machines = [configured(f"{zone}{n}", wish, zone=zone) for zone in "ab" for n in range(2)]
    plan = Both(machines, [ask(machines=2, skew=1)]).cycle()
    assert sorted(one.machine[0] for one in plan.actions) == ["a", "b"]
