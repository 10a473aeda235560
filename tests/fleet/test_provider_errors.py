"""Errors of a provider pass: no capacity, no answer, a list that lacks machines."""

from itertools import pairwise

import pytest

from tests.fleet.test_faults import Fleet, configured
from tests.fleet.worlds import ask, quota, shape_of
from windtunnel.core.errors import InputError
from windtunnel.core.random import Streams
from windtunnel.fleet.instruments import LISTS_TOTAL
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.orders import CREATE, ExecutionLimits
from windtunnel.fleet.provider import PERMANENT, Completion, Page
from windtunnel.fleet.shape import MachineShape
from windtunnel.fleet.shard import Shard
from windtunnel.fleet.states import CONFIGURED, FAILED, IDLE, SPECULATIVE
from windtunnel.twin.fleet.provider import CapacityShortage, Delays, SimulatedProvider
from windtunnel.twin.fleet.unreliable import ListCut, ProviderFaults, ShortagePeriod


def places(count: int) -> list[Machine]:
    return [quota(f"m{number:03}") for number in range(count)]


def test_five_minutes_without_capacity_and_two_good_hours_end_fully_served() -> None:
    faults = ProviderFaults(shortages=(ShortagePeriod(0.0, 300.0),))
    fleet = Fleet(places(200), faults, want=200)
    fleet.loop.run(299.0)
    assert set(fleet.states()) == {SPECULATIVE}, "none has failed"
    plan, _ = fleet.shard.cycle(299.0)
    (short,) = plan.shortfalls
    assert "no machine that matches is free; 200 places are tried again later" in short.reason
    assert "their provider created no machine" in short.reason
    fleet.loop.run(7200.0)
    assert fleet.states() == [CONFIGURED] * 200
    assert fleet.counted("provision", "no_capacity") == 200 * 4  # at 0, 40, 110 and 240 s


def test_a_back_off_is_twice_as_long_every_time_up_to_its_longest() -> None:
    fleet = Fleet(places(1), ProviderFaults(shortages=(ShortagePeriod(0.0, 7200.0),)), want=1)
    asked: list[float] = []
    while fleet.loop.step(3000.0):
        if fleet.provider.begun[CREATE] > len(asked):
            asked.append(fleet.loop.now_s)
    gaps = [later - sooner for sooner, later in pairwise(asked)]
    assert gaps == [40.0, 70.0, 130.0, 250.0, 490.0, 610.0, 610.0, 610.0], "the cycle after each"


def test_another_offering_is_used_meanwhile() -> None:
    there = shape_of(zone="b")
    machines = [*places(3), *[Machine(f"b{number}", there) for number in range(3)]]
    short = ShortagePeriod(0.0, 7200.0, CapacityShortage(zone="a"))
    fleet = Fleet(machines, ProviderFaults(shortages=(short,)), want=3)
    fleet.loop.run(600.0)
    held = [one.shape for one in fleet.provider.records() if one.state == CONFIGURED]
    assert held == [there] * 3


def test_a_machine_that_was_created_ends_the_back_off() -> None:
    fleet = Fleet(places(4), ProviderFaults(shortages=(ShortagePeriod(0.0, 5.0),)), want=2)
    fleet.loop.run(1000.0)
    fleet.provider.shortages.append(CapacityShortage())
    fleet.shard.want("east", [ask(machines=4)])
    fleet.loop.run(1012.0)
    fleet.provider.shortages.clear()
    fleet.loop.run(1200.0)
    assert fleet.states() == [CONFIGURED] * 4, "the second back-off is as short as the first"


def shard_on(provider: SimulatedProvider, limits: ExecutionLimits | None = None) -> Shard:
    shard = Shard("s", limits)
    shard.fold(provider.list_since("s", 1, 0), 0.0)
    return shard


def provider_of(machines: list[Machine]) -> SimulatedProvider:
    provider = SimulatedProvider(Delays(cv=0.0), Streams(1))
    for machine in machines:
        provider.add(machine)
    return provider


def state_of(shard: Shard, machine: str) -> int:
    return int(shard.planner.inventory.entries[machine].state)


def relisted(shard: Shard, provider: SimulatedProvider, now_s: float) -> None:
    shard.relist()
    shard.fold(provider.list_since("s", 1, 0), now_s)


def test_a_permanent_error_fails_a_machine_until_its_provider_lists_it_anew() -> None:
    provider = provider_of([quota("m1")])
    shard = shard_on(provider)
    shard.want("east", [ask()])
    _, (order,) = shard.cycle(0.0)
    shard.answer(Completion("m1", order.token, "no such image", PERMANENT), 1.0)
    assert state_of(shard, "m1") == FAILED
    relisted(shard, provider, 300.0)
    assert state_of(shard, "m1") == FAILED, "nothing has changed at the provider"
    mended = Machine("m1", shape_of(), IDLE, "h1", since_s=400.0)
    shard.fold(Page([mended], [], 9), 401.0)
    assert state_of(shard, "m1") == IDLE
    assert shard.planner.inventory.errors == {}


@pytest.mark.parametrize("meanwhile", [quota("m1"), Machine("m1", shape_of(), FAILED, error="no")])
def test_a_permanent_error_ends_when_a_provider_without_times_lists_a_change(
    meanwhile: Machine,
) -> None:
    shard = shard_on(provider_of([quota("m1")]))
    shard.want("east", [ask()])
    _, (order,) = shard.cycle(0.0)
    shard.answer(Completion("m1", order.token, "no such image", PERMANENT), 1.0)
    for now_s in (2.0, 3.0):
        shard.fold(Page([meanwhile], [], int(now_s)), now_s)
        assert state_of(shard, "m1") == FAILED
    shard.fold(Page([Machine("m1", shape_of(), IDLE, "h1")], [], 9), 10.0)
    assert state_of(shard, "m1") == IDLE


def test_a_machine_that_was_given_up_is_tried_again_when_it_is_listed() -> None:
    provider = provider_of([quota("m1")])
    shard = shard_on(provider)
    shard.want("east", [ask()])
    shard.cycle(0.0)
    for number in range(1, 4):
        shard.expire(600.0 * number)
    assert state_of(shard, "m1") == FAILED
    relisted(shard, provider, 2000.0)
    _, (order,) = shard.cycle(2000.0)
    assert (order.operation, order.machine) == (CREATE, "m1")


def test_an_error_that_passes_is_asked_again_at_its_deadline() -> None:
    shard = shard_on(provider_of([quota("m1")]))
    shard.want("east", [ask()])
    _, (order,) = shard.cycle(0.0)
    assert shard.answer(Completion("m1", order.token, "throttled"), 1.0) == []
    (again,) = shard.expire(600.0)
    assert (again.operation, again.machine) == (CREATE, "m1")


def test_a_list_that_lacks_a_small_share_is_believed() -> None:
    fleet = Fleet(configured(20), ProviderFaults(cuts=(ListCut(250.0, 295.0, 0.2),)), want=20)
    fleet.loop.run(292.0)  # everything was listed at 290 s
    assert len(fleet.states()) == 16


def test_a_list_that_lacks_a_large_share_is_quarantined() -> None:
    fleet = Fleet(configured(20), ProviderFaults(cuts=(ListCut(250.0, 295.0, 0.5),)), want=20)
    fleet.loop.run(400.0)
    assert fleet.states() == [CONFIGURED] * 20
    assert fleet.provider.begun[CREATE] == 0
    assert fleet.shard.instruments.counted(LISTS_TOTAL, "quarantined") == 1


def test_a_list_that_lacks_machines_three_times_is_believed() -> None:
    fleet = Fleet(configured(20), ProviderFaults(cuts=(ListCut(250.0, 900.0, 0.5),)), want=20)
    fleet.loop.run(302.0)
    assert len(fleet.states()) == 20
    fleet.loop.run(312.0)
    assert len(fleet.states()) == 10
    assert fleet.shard.instruments.counted(LISTS_TOTAL, "quarantined") == 2


def test_the_share_that_a_list_may_lack_can_be_set() -> None:
    provider = provider_of(configured(20))
    for share, kept in ((0.5, 12), (0.3, 20)):
        shard = shard_on(provider, ExecutionLimits(missing_share=share))
        shard.relist()
        shard.fold(Page(provider.records()[:12], [], 99), 10.0)
        assert len(shard.planner.inventory.entries) == kept
    with pytest.raises(InputError, match="missing_share is 2"):
        Shard("s", ExecutionLimits(missing_share=2.0))


def test_places_in_a_quota_may_go_at_once() -> None:
    provider = provider_of([*configured(12), *places(50)])
    shard = shard_on(provider)
    shard.relist()
    shard.fold(Page([one for one in provider.records() if one.state == CONFIGURED], [], 99), 10.0)
    assert len(shard.planner.inventory.entries) == 12


def test_offerings_are_told_apart_by_type_and_zone() -> None:
    shape: MachineShape = shape_of()
    assert CapacityShortage().hits(shape)
    assert CapacityShortage(shape.instance_type, shape.zone).hits(shape)
    assert not CapacityShortage("other").hits(shape)
    assert not CapacityShortage("", "elsewhere").hits(shape)
