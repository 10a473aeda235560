"""The bound is one: nothing beats it, and in whole machines it is what trying everything finds."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet.worlds import TYPES, ask, idle, needs, shape_of, shapes
from windtunnel.core.random import Stream
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need, need, profile
from windtunnel.fleet.planner.cycle import Planner
from windtunnel.fleet.states import IDLE
from windtunnel.twin.fleet.bound import fleet_gap, sampled_gap
from windtunnel.twin.fleet.workloads import world


def planned(machines: list[Machine], wanted: list[Need]) -> Planner:
    planner = Planner()
    planner.inventory.load(machines)
    for cluster in sorted({one.cluster for one in wanted}):
        planner.needs.replace(cluster, [one for one in wanted if one.cluster == cluster])
    planner.cycle(0.0)
    return planner


def any_machine(cpu: int) -> Need:
    return need("east", profile(), {"cpu": cpu}, {"cpu": 1})


def test_four_small_machines_cost_more_than_a_large_one() -> None:
    planner = planned([idle(f"m{n}") for n in range(4)], [any_machine(8)])
    planner.inventory.add(idle("l1", shape_of("large")))
    planner.cycle(10.0)
    whole = sampled_gap(planner, Stream(1, "gap"))
    assert whole.cost == pytest.approx(0.4)
    assert whole.bound == pytest.approx(0.35)
    assert whole.gap == pytest.approx(0.4 / 0.35 - 1)
    assert (whole.rows, whole.machines, whole.proved) == (1, 4, True)
    assert fleet_gap(planner).bound == pytest.approx(0.35)


def test_a_cut_machine_costs_less_than_a_whole_one() -> None:
    planner = planned([idle("m1")], [any_machine(1)])
    assert fleet_gap(planner).bound == pytest.approx(0.05)
    assert sampled_gap(planner, Stream(1, "gap")).gap == pytest.approx(0.0)


def test_a_fleet_without_needs_has_no_gap() -> None:
    planner = planned([idle("m1")], [])
    assert (fleet_gap(planner).gap, fleet_gap(planner).rows) == (0.0, 0)
    assert sampled_gap(planner, Stream(1, "gap")).cost == 0.0


def test_needs_that_are_short_are_left_out() -> None:
    planner = planned([idle("m1")], [ask(machines=1), ask(machines=9, kind="large")])
    assert fleet_gap(planner).rows == 1


@given(
    kinds=st.lists(st.sampled_from(["small", "large", "gpu"]), min_size=1, max_size=6),
    wants=st.lists(st.integers(1, 12), min_size=1, max_size=2),
)
@settings(max_examples=40, deadline=None)
def test_whole_machines_are_as_cheap_as_trying_everything_finds(
    kinds: list[str], wants: list[int]
) -> None:
    machines = [idle(f"m{n}", shape_of(kind)) for n, kind in enumerate(kinds)]
    wanted = [need(f"c{n}", profile(), {"cpu": cpu}, {"cpu": 1}) for n, cpu in enumerate(wants)]
    planner = planned(machines, wanted)
    rows = [row for row in planner.inventory.rows.values() if row.live]
    if not all(row.whole for row in rows):
        return
    best = math.inf
    for owners in itertools.product(range(len(wants) + 1), repeat=len(kinds)):
        have, cost = [0] * (len(wants) + 1), 0.0
        for kind, owner in zip(kinds, owners, strict=True):
            have[owner] += TYPES[kind][0]
            cost += TYPES[kind][2] if owner < len(wants) else 0.0
        if all(have[at] >= want for at, want in enumerate(wants)):
            best = min(best, cost)
    whole = sampled_gap(planner, Stream(1, "gap"))
    assert whole.bound == pytest.approx(best, rel=1e-5)
    assert fleet_gap(planner).bound <= best * (1 + 1e-9)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_nothing_beats_the_bound(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(shapes, min_size=1, max_size=5))
    machines = [
        Machine(f"m{n:02}", data.draw(st.sampled_from(kinds)), IDLE, host="h") for n in range(14)
    ]
    planner = planned(machines, data.draw(st.lists(needs(), min_size=1, max_size=6)))
    cut, whole = fleet_gap(planner), sampled_gap(planner, Stream(1, "gap"))
    assert cut.bound <= cut.cost * (1 + 1e-9) + 1e-9
    assert whole.bound <= whole.cost * (1 + 1e-5) + 1e-9
    assert cut.bound <= whole.bound * (1 + 1e-5) + 1e-9  # all rows fit in the sample
    assert cut.cost == pytest.approx(whole.cost)


def test_a_real_fleet_is_bounded_in_one_program() -> None:
    made = world(1500, 1500, Stream(4, "world"))
    planner = planned(made.machines, [one for some in made.needs.values() for one in some])
    gap = fleet_gap(planner)
    assert 0.0 <= gap.gap < 0.6
    assert gap.machines > 1000
