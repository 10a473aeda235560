"""Gangs that fit on one machine share machines."""

from tests.fleet.worlds import SAME_RACK, ask, idle, shape_of
from windtunnel.fleet.need import Need, NeedProfile, fold, need, profile
from windtunnel.fleet.planner.cycle import Planner
from windtunnel.fleet.requirements import requirement
from windtunnel.fleet.shape import RACK, Resources


def pair(group: str, cpu: int = 2) -> Need:
    """A gang that asks for so much in one rack."""
    wish = profile([requirement(RACK, "Same")])
    return need("east", wish, {"cpu": cpu, "memory": 8}, {"cpu": 1, "memory": 4}, group=group)


def test_small_gangs_are_packed() -> None:
    planner = Planner()
    planner.inventory.load(idle(f"m{n}", shape_of("large")) for n in range(6))
    planner.needs.replace("east", [pair(f"g{n}") for n in range(8)])
    assert planner.needs.live == 1
    assert len(planner.cycle(0.0).actions) == 2  # four gangs of 2 cores on each 8


def test_a_gang_larger_than_any_machine_stays_one() -> None:
    large = pair("g1", cpu=9)
    assert fold([large], [shape_of("large")]) == [large]
    alone = ask("east", 1, "small", SAME_RACK)
    (folded,) = fold([alone], [shape_of("large"), shape_of("small")])
    assert folded.profile.same_key == ""
    assert fold([alone], [shape_of("large")]) == [alone]  # it could not run there


def test_what_same_asked_of_each_machine_is_still_asked() -> None:
    rack = requirement(RACK, "Same", ["a-r2"])
    wish = profile([rack])
    one = need("east", wish, {"cpu": 1}, {"cpu": 1})
    (folded,) = fold([one], [shape_of(rack="r2")])
    assert folded.profile.requirements == (requirement(RACK, "In", ["a-r2"]),)
    assert fold([one], [shape_of(rack="r1")]) == [one]


def test_a_gang_is_looked_at_as_a_whole() -> None:
    """Each member fits on a machine of its own; all of them together do not."""
    planner = Planner()
    planner.inventory.load(idle(f"m{n}") for n in range(4))
    planner.needs.replace("east", [pair("g1") for _ in range(3)])
    (row,) = planner.needs.needs()
    assert (row.group, row.profile.same_key) == ("g1", RACK)


def test_a_kind_of_machine_that_is_gone_hosts_no_gang() -> None:
    planner = Planner()
    planner.inventory.load([idle("big", shape_of("large")), idle("m1"), idle("m2")])
    gang = pair("g1", cpu=4)
    planner.needs.replace("east", [gang])
    (row,) = planner.needs.needs()
    assert row.profile.same_key == ""  # all of it fits on the large one
    planner.inventory.remove("big")
    planner.needs.replace("east", [gang])
    plan = planner.cycle(0.0)
    assert plan.shortfalls == []
    assert [one.machine for one in plan.actions] == ["m1", "m2"]


def test_what_is_remembered_is_what_would_be_found() -> None:
    known: dict[tuple[NeedProfile, Resources], bool] = {}
    shapes = [shape_of("large")]
    needs = [pair(f"g{cpu}", cpu) for cpu in (2, 8, 9)]
    first = fold(needs, shapes, known)
    assert len(known) == 3
    assert fold(needs, shapes, known) == first == fold(needs, shapes)
