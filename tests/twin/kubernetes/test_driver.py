"""The driver: a controller and a cluster together, until all is quiet."""

from collections.abc import Sequence

import pytest

from tests.twin.kubernetes.by_hand import World, crash_after
from windtunnel.core.errors import InvariantBroken
from windtunnel.core.loop import Loop
from windtunnel.gangs.commands import Command, Emit, PatchGang, Scale
from windtunnel.gangs.objects import CLIQUE
from windtunnel.gangs.roster import roster_of
from windtunnel.gangs.statuses import ObjectEvent
from windtunnel.gangs.templates import PodGroup
from windtunnel.gangs.view import View
from windtunnel.twin.kubernetes.driver import Driver


class Reminder:
    """Says something once at 100 s and at 200 s, and nothing besides."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._told = [float(key) for key in view.events]

    def next_s(self) -> float:
        return 100.0 if 100.0 not in self._told else 200.0 if 200.0 not in self._told else 1e999

    def reconcile(self, now_s: float) -> Sequence[Command]:
        due = [at for at in (100.0, 200.0) if at <= now_s and at not in self._told]
        self._told += due
        return [
            Emit(ObjectEvent(str(at), "Normal", "Pod", "p", "Due", "it is time", at)) for at in due
        ]

    def refused(self, command: Command) -> None:
        pass

    def close(self) -> None:
        pass


def started(driver: Driver) -> Loop:
    loop = Loop(driver)
    loop.wake()
    return loop


def test_time_goes_from_one_thing_to_the_next() -> None:
    world = World(1)
    driver = Driver(world.cluster, Reminder, check=True)
    world.gang("a", 1)
    loop = started(driver)
    loop.run(50.0)
    assert loop.now_s == 50.0
    assert world.pods("a")[0].ready_s == 16.0
    loop.run()
    assert loop.now_s == 200.0
    assert list(world.view.events.values())[-1].at_s == 200.0
    assert driver.next_s() == float("inf")
    assert driver.settle(200.0) == 0


def test_a_controller_that_crashes_begins_with_what_is_there() -> None:
    world = World(1)
    driver = Driver(world.cluster, Reminder)
    loop = started(driver)
    loop.run(100.0)
    assert crash_after(driver, 0, 250.0) == 0
    assert crash_after(driver, 5, 250.0) == 1
    loop.run()
    assert [event.at_s for event in world.view.events.values()] == [100.0, 200.0]


class Fidget:
    """Never has enough."""

    def next_s(self) -> float:
        return float("inf")

    def __init__(self, view: View) -> None:
        self._view = view

    def reconcile(self, now_s: float) -> Sequence[Command]:
        return [Scale(CLIQUE, "a", int(now_s))]

    def refused(self, command: Command) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_controller_that_never_has_enough_is_caught() -> None:
    world = World(1)
    world.gang("a", 1)
    with pytest.raises(InvariantBroken, match=r"the controller of gangs \(patch PodClique a"):
        Driver(world.cluster, Fidget).advance(0.0)


def test_half_a_gang_and_a_miscount_are_caught() -> None:
    world = World(3)
    driver = Driver(world.cluster, Reminder, check=True)
    clique = world.gang("a", 2)
    loop = started(driver)
    loop.run(20.0)
    world.cluster.scheduler.half_admitted.append("a has 1 of 2")
    with pytest.raises(InvariantBroken, match=r"gangs.whole.*a has 1 of 2"):
        loop.run(100.0)
    world.cluster.scheduler.half_admitted.clear()
    pod = next(iter(clique.pods.values()))
    pod.node = "n2"
    with pytest.raises(InvariantBroken, match=r"gangs.room.*where pods leave"):
        loop.run(200.0)


def test_a_gang_whose_minimum_grows_later_is_not_half_admitted_by_that() -> None:
    world = World(2)
    driver = Driver(world.cluster, Reminder, check=True)
    clique = world.gang("a", 1)
    loop = started(driver)
    loop.run(20.0)
    group = PodGroup("a", 3)
    group.pods = roster_of(clique.pods)
    world.cluster.apply([PatchGang(world.cluster.view.gangs["a"], (group,))], 20.0)
    loop.wake()
    loop.run()
    assert not world.cluster.scheduler.half_admitted
