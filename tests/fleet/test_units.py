"""A need is satisfied when its units fit, each as a whole on one machine."""

from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.worlds import idle, needs
from windtunnel.fleet.need import MOST_SIZES, Need, cut, merge, need, profile
from windtunnel.fleet.planner.actions import BOOTSTRAP
from windtunnel.fleet.planner.cycle import Planner
from windtunnel.fleet.shape import shape

EIGHT = shape("h8", "a", {"gpu": 8}, price_per_hour=8.0)


def gpus(count: int, unit: int, arrival_s: float = 0.0) -> Need:
    return need("east", profile(), {"gpu": count}, {"gpu": unit}, arrival_s=arrival_s)


def taken(*wanted: Need, machines: int = 9) -> int:
    planner = Planner()
    planner.inventory.load([idle(f"m{n}", EIGHT) for n in range(machines)])
    planner.needs.replace("east", wanted)
    plan = planner.cycle(0.0)
    assert not plan.shortfalls
    assert all(one.kind == BOOTSTRAP for one in plan.actions)
    assert not planner.cycle(10.0).actions
    return len(plan.actions)


def test_four_units_of_six_take_four_machines_of_eight() -> None:
    assert taken(gpus(24, 6)) == 4
    assert taken(*(gpus(6, 6) for _ in range(4))) == 4


def test_what_large_units_leave_is_used_by_small_ones() -> None:
    assert taken(gpus(12, 6), gpus(4, 1)) == 2
    assert taken(gpus(12, 6), gpus(5, 1)) == 3
    assert taken(gpus(20, 6)) == 3  # three of six, and two more


def test_units_without_room_are_what_is_missing() -> None:
    planner = Planner()
    planner.inventory.load([idle(f"m{n}", EIGHT) for n in range(3)])
    planner.needs.replace("east", [gpus(24, 6)])
    (short,) = planner.cycle(0.0).shortfalls
    assert short.reason.startswith("short of 6 gpu: ")


def test_small_units_may_have_machines_that_large_ones_do_not_fit_on() -> None:
    """One large machine is all there is for the unit of eight; the rest fits on small ones."""
    planner = Planner()
    small = shape("h2", "a", {"gpu": 2}, price_per_hour=2.0)
    planner.inventory.load([idle("l", EIGHT), *(idle(f"s{n}", small) for n in range(4))])
    planner.needs.replace("east", [gpus(8, 8), gpus(3, 1)])
    plan = planner.cycle(0.0)
    assert not plan.shortfalls
    assert [one.machine for one in plan.actions] == ["l", "s0", "s1"]
    planner.needs.replace("east", [gpus(8, 8), gpus(8, 8), gpus(3, 1)])
    (short,) = planner.cycle(10.0).shortfalls
    assert short.reason.startswith("short of 8 gpu: ")


def test_a_machine_that_is_half_full_keeps_what_it_has() -> None:
    """Two units of six hold on to two machines, though twelve of sixteen would be free."""
    planner = Planner()
    planner.inventory.load([idle(f"m{n}", EIGHT) for n in range(4)])
    planner.needs.replace("east", [gpus(24, 6)])
    planner.cycle(0.0)
    planner.needs.replace("east", [gpus(12, 6)])
    assert len(planner.cycle(10.0).withdrawn) == 2


def test_an_amount_is_cut_into_whole_units_and_the_rest() -> None:
    assert cut((("gpu", 20),), (("gpu", 6),)) == (((("gpu", 6),), 3), ((("gpu", 2),), 1))
    other = cut((("cpu", 5), ("memory", 3)), (("cpu", 2), ("memory", 3)))
    assert other == (
        ((("cpu", 2), ("memory", 3)), 1),
        ((("cpu", 2), ("memory", 0)), 1),
        ((("cpu", 1), ("memory", 0)), 1),
    )


def test_of_too_many_sizes_small_ones_are_rounded_up() -> None:
    (row,) = merge(gpus(size, size) for size in range(1, 41)).values()
    assert len(row.sizes()) == MOST_SIZES
    assert sum(count for _, count in row.sizes()) == 40
    assert sum(size[0][1] * count for size, count in row.sizes()) >= dict(row.aggregate)["gpu"]


@given(st.lists(needs(), min_size=1, max_size=6))
def test_units_are_the_sum_whatever_the_order(some: list[Need]) -> None:
    rows = merge(some)
    assert merge(reversed(some)) == rows
    assert merge(rows.values()) == rows
    for row in rows.values():
        for name, amount in row.aggregate:
            assert sum(dict(size)[name] * count for size, count in row.sizes()) == amount
            assert dict(row.sizes()[0][0])[name] <= dict(row.min_unit)[name]
