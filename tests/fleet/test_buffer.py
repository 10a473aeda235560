"""Idle machines are kept so that the loss of any one domain can be made good at once."""

import pytest

from tests.fleet.worlds import ask, idle, quota, shape_of
from windtunnel.core.errors import InputError
from windtunnel.core.loop import Loop
from windtunnel.core.random import Streams
from windtunnel.fleet.driver import FleetDriver
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.orders import CREATE, DELETE
from windtunnel.fleet.planner.actions import PROVISION, Action, CyclePlan
from windtunnel.fleet.planner.buffer import REASON, Buffer, BufferLimits
from windtunnel.fleet.shape import RACK
from windtunnel.fleet.shard import Shard
from windtunnel.fleet.states import CONFIGURED, IDLE
from windtunnel.twin.fleet.provider import Delays, SimulatedProvider
from windtunnel.twin.fleet.unreliable import DomainOutage, ProviderFaults, UnreliableProvider

RACKS = BufferLimits(share=0.0)


class Fleet:
    """Four machines are in use on rack 1 and two on rack 2."""

    def __init__(
        self, more: list[Machine], limits: BufferLimits | None, faults: ProviderFaults | None = None
    ) -> None:
        wish = ask(machines=6)
        held = [
            Machine(f"c{n}", shape_of(rack=rack), CONFIGURED, f"h{n}", "east", wish.key())
            for n, rack in enumerate(["r1"] * 4 + ["r2"] * 2)
        ]
        self.provider = SimulatedProvider(Delays(), Streams(3))
        for machine in held + more:
            self.provider.add(machine)
        faulty = UnreliableProvider(self.provider, faults or ProviderFaults(), Streams(3))
        self.shard = Shard("s", buffer=limits)
        self.driver = FleetDriver(faulty, [self.shard], Streams(3)["fetch"])
        self.loop = Loop(self.driver)
        self.driver.before_cycle = faulty.tick
        self.driver.after_cycle = self.note
        self.shard.want("east", [wish])
        self.short: list[int] = []
        self.actions: list[Action] = []

    def note(self, _: Shard, plan: CyclePlan, __: float) -> None:
        self.short.append(len(plan.shortfalls))
        self.actions += plan.actions

    def idle(self) -> int:
        return sum(one.state == IDLE for one in self.provider.records())


def places(count: int, rack: str = "r2") -> list[Machine]:
    return [quota(f"q{rack}{n}", shape_of(rack=rack)) for n in range(count)]


def test_as_many_are_created_as_the_largest_domain_has_in_use() -> None:
    fleet = Fleet(places(9), RACKS)
    fleet.loop.run(1.0)
    assert fleet.provider.begun[CREATE] == 4
    fleet.loop.run(900.0)
    assert (fleet.provider.begun[CREATE], fleet.idle()) == (4, 4)


def test_idle_machines_of_the_domain_itself_do_not_count() -> None:
    here = [idle(f"m{n}", shape_of(rack="r1")) for n in range(4)]
    fleet = Fleet(here, RACKS)
    fleet.loop.run(1.0)
    buffer = fleet.shard.buffer
    assert buffer is not None
    seen = buffer.exposures()
    assert [(one.domain, one.in_use, one.idle_elsewhere, one.short) for one in seen] == [
        ("a-r1", 4, 0, 4),
        ("a-r2", 2, 4, -2),
    ]


def test_without_a_buffer_idle_machines_are_given_back_and_with_one_they_stay() -> None:
    spare = [idle(f"m{n}", shape_of(rack="r2")) for n in range(6)]
    without, with_one = Fleet(spare, None), Fleet(spare, RACKS)
    for fleet in (without, with_one):
        fleet.loop.run(3000.0)
    assert without.idle() == 0
    assert (with_one.idle(), with_one.provider.begun[DELETE]) == (4, 2)
    assert with_one.provider.begun[CREATE] == 0


def test_the_loss_of_a_rack_is_made_good_at_once() -> None:
    loss = ProviderFaults(domains=(DomainOutage(500.0, RACK, "a-r1"),))
    fleet = Fleet(places(4), RACKS, loss)
    fleet.loop.run(560.0)
    assert set(fleet.short) == {0}
    holding = [one for one in fleet.provider.records() if one.state == CONFIGURED]
    assert len(holding) == 6
    assert fleet.provider.begun[CREATE] == 4  # all of them before the loss


def test_single_losses_are_covered_on_top() -> None:
    fleet = Fleet(places(20), BufferLimits(domain_key="", share=0.2))
    fleet.loop.run(200.0)
    assert fleet.idle() == 2  # a fifth of six, rounded up


def test_no_more_are_created_at_once_than_allowed_and_none_beyond_the_quota() -> None:
    fleet = Fleet(places(3), BufferLimits(share=0.0, most_created=2))
    fleet.loop.run(1.0)
    assert fleet.provider.begun[CREATE] == 2
    fleet.loop.run(900.0)
    assert fleet.provider.begun[CREATE] == 3


def test_what_is_taken_from_the_buffer_is_filled_again() -> None:
    fleet = Fleet(places(9), RACKS)
    fleet.loop.run(300.0)
    fleet.shard.want("east", [ask(machines=8)])
    fleet.loop.run(900.0)
    assert fleet.idle() == 4
    created = [one for one in fleet.actions if one.kind == PROVISION]
    assert {one.reason for one in created} == {REASON}


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (BufferLimits(share=2.0), "the share of the buffer is 2.0; allowed: 0 to 1"),
        (BufferLimits(most_created=-1), "most_created is -1; allowed: 0 or more"),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits: BufferLimits, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Buffer(Shard("s").planner.inventory, limits)
