"""The cheapest schedule: equal to trying all of them, and worked by hand."""

import itertools
import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.search.arena.capacity import CapacityCurve, FixedRun, LoadBin, isotonic
from windtunnel.search.arena.schedule import (
    ReplicaPrice,
    SizeBounds,
    cheapest_schedule,
    cost_at,
    entries_of,
    frontier,
)

BIN_S = 10.0


def overloaded(load: float) -> float:
    return 1.0 if load > 1.0 else 0.0


def cost_of(
    schedule: tuple[int, ...], arrivals: list[int], price: ReplicaPrice, miss_price: float
) -> float:
    """What a schedule costs; infinite where it shrinks too soon after it grew."""
    total = 0.0
    grew = -math.inf
    for number, (size, arrived) in enumerate(zip(schedule, arrivals, strict=True)):
        before = schedule[number - 1] if number else size
        if size > before:
            grew = number
        elif size < before and (number - grew) * BIN_S < price.minimum_run_s:
            return math.inf
        total += price.per_s * (BIN_S * size + price.startup_s * max(0, size - before))
        missed = overloaded(arrived / BIN_S / size) if size else 1.0
        total += miss_price * arrived * missed
    return total


@given(
    arrivals=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    startup_s=st.sampled_from([0.0, 5.0, 25.0]),
    minimum_run_s=st.sampled_from([0.0, 10.0, 20.0, 30.0]),
    miss_price=st.sampled_from([0.0, 0.3, 1.0, 7.0]),
    fewest=st.integers(0, 1),
)
def test_no_other_schedule_is_cheaper(
    arrivals: list[int], startup_s: float, minimum_run_s: float, miss_price: float, fewest: int
) -> None:
    price = ReplicaPrice(0.1, startup_s, minimum_run_s)
    found = cheapest_schedule(arrivals, BIN_S, overloaded, price, SizeBounds(fewest, 4), miss_price)
    every = itertools.product(range(fewest, 5), repeat=len(arrivals))
    least = min(cost_of(schedule, arrivals, price, miss_price) for schedule in every)
    assert cost_of(tuple(found), arrivals, price, miss_price) == pytest.approx(least)


def test_a_short_lull_is_slept_through_and_a_long_one_is_not() -> None:
    """A replica costs 1 a bin and 2.5 to start: three bins without it are worth a new start."""
    price = ReplicaPrice(0.1, 25.0, 0.0)
    arrivals = [20, 10, 10, 20, 10, 10, 10, 20]
    found = cheapest_schedule(arrivals, BIN_S, overloaded, price, SizeBounds(1, 3), 1.0)
    assert found == [2, 2, 2, 2, 1, 1, 1, 2]
    assert entries_of(found, BIN_S) == [[0.0, 2], [40.0, 1], [70.0, 2]]


def test_memory_stays_small_and_what_would_not_fit_is_refused() -> None:
    price = ReplicaPrice(0.1, 60.0, 300.0)
    arrivals = [10 * (number % 20) for number in range(200)]
    tracemalloc.start()
    cheapest_schedule(arrivals, BIN_S, overloaded, price, SizeBounds(1, 24), 1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000
    with pytest.raises(InputError, match="foresight over 100,000 bins"):
        cheapest_schedule([0] * 100_000, BIN_S, overloaded, price, SizeBounds(1, 256), 1.0)


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 5)), min_size=1, max_size=12))
def test_shares_of_misses_never_fall_and_none_is_lost(points: list[tuple[float, int]]) -> None:
    steps = isotonic([(load, missed, 5) for load, missed in points])
    shares = [share for _, share in steps]
    assert shares == sorted(shares)
    assert [load for load, _ in steps] == sorted(load for load, _ in steps)
    blocks = [0] * len(steps)
    for load, _ in points:
        blocks[next(n for n, (top, _) in enumerate(steps) if load <= top)] += 5
    total = sum(count * share for count, share in zip(blocks, shares, strict=True))
    assert total == pytest.approx(sum(missed for _, missed in points))


def test_a_queue_that_is_worked_off_says_nothing_about_its_time() -> None:
    """8 requests a second are carried, 12 are not; the misses at 4 are those of the queue."""
    loads = [(80, 0), (120, 90), (40, 40), (40, 0), (80, 0)]
    bins = [LoadBin(arrived, missed, 10.0, 0.1) for arrived, missed in loads]
    curve = CapacityCurve([FixedRun(1, BIN_S, bins)])
    assert curve.point.rate == 8.0
    assert curve.missed(4.0) == 0.0
    assert curve.missed(10.0) == pytest.approx(0.375)
    assert curve.missed(13.0) == 1.0


def test_a_mixture_of_two_schedules_is_the_cost_between_them() -> None:
    hull = frontier([(0.90, 10.0), (0.94, 19.0), (0.98, 20.0), (0.97, 30.0), (0.99, 40.0)])
    assert hull == [(0.90, 10.0), (0.98, 20.0), (0.99, 40.0)]
    assert cost_at(hull, 0.94) == pytest.approx(15.0)
    assert (cost_at(hull, 0.5), cost_at(hull, 0.999)) == (10.0, 40.0)
