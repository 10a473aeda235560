"""Intervals hold what they promise, and pairing runs by seed is worth it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.random import Stream
from windtunnel.core.statistics.intervals import (
    Interval,
    central_share,
    mean_interval,
    next_interval,
    next_positive_interval,
    paired_interval,
    t_quantile,
)

TABLE = {1: 12.7062, 2: 4.3027, 4: 2.7764, 9: 2.2622, 30: 2.0423, 120: 1.9799}
"""The 95 % column of any table of Student's t."""

TRIALS = 2_000
values = st.floats(-1e6, 1e6)


@pytest.mark.parametrize(("degrees", "expected"), TABLE.items())
def test_quantiles_are_those_of_the_tables(degrees: int, expected: float) -> None:
    assert t_quantile(degrees) == pytest.approx(expected, abs=5e-5)


@pytest.mark.once
def test_quantiles_are_those_of_a_library() -> None:
    from scipy.stats import t

    for degrees in (*range(1, 40), 99, 500):
        for confidence in (0.5, 0.8, 0.95, 0.999):
            expected = float(t.ppf(0.5 + confidence / 2, degrees))
            assert t_quantile(degrees, confidence) == pytest.approx(expected, rel=1e-9)


@given(st.integers(1, 200), st.floats(0.0, math.pi / 2), st.floats(0.0, math.pi / 2))
def test_shares_rise_from_none_to_all(degrees: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert central_share(low, degrees) <= central_share(high, degrees) + 1e-12
    assert central_share(0.0, degrees) == 0.0
    assert central_share(math.pi / 2, degrees) == pytest.approx(1.0)


def test_an_interval_is_limited_to_possible_values() -> None:
    assert Interval(0.93, 0.78, 1.08).within(0.0, 1.0) == (0.93, 0.78, 1.0)
    assert Interval(0.01, -0.1, 0.12).within(0.0) == (0.01, 0.0, 0.12)


def test_by_hand() -> None:
    # Of 1, 2 and 3: mean 2, standard deviation 1, t of 2 degrees 4.3027.
    found = mean_interval([1.0, 2.0, 3.0])
    assert found == pytest.approx((2.0, 2.0 - 4.3027 / 3**0.5, 2.0 + 4.3027 / 3**0.5), abs=1e-4)
    found = next_interval([1.0, 2.0, 3.0])
    reach = 4.3027 * (4 / 3) ** 0.5
    assert found == pytest.approx((2.0, 2.0 - reach, 2.0 + reach), abs=1e-4)
    assert paired_interval([1.0, 5.0, 9.0], [0.0, 3.0, 6.0]) == mean_interval([1.0, 2.0, 3.0])


@given(st.lists(values, min_size=2, max_size=9), values)
def test_equal_values_leave_no_doubt_and_a_shift_shifts(found: list[float], by: float) -> None:
    assert mean_interval([by] * len(found)) == (by, by, by)
    plain = mean_interval(found)
    moved = mean_interval([value + by for value in found])
    scale = max(abs(value) for value in (*found, by)) + 1.0
    assert moved == pytest.approx([part + by for part in plain], abs=1e-6 * scale)
    assert next_interval(found).high >= plain.high - 1e-9 * scale


@given(st.lists(st.floats(0.0, 1e6), min_size=2, max_size=9))
def test_times_are_never_negative(found: list[float]) -> None:
    assert next_positive_interval(found).low >= 0.0


def covered(count: int, *, ahead: bool, spread_by_factors: bool = False) -> float:
    """How often an interval from `count` seeded values holds the truth, or the value after them."""
    stream = Stream(7, f"coverage of {count}")
    held = 0
    for _ in range(TRIALS):
        drawn = [stream.normal(5.0, 2.0) for _ in range(count + 1)]
        if spread_by_factors:
            drawn = [math.exp(value) for value in drawn]
            interval = next_positive_interval(drawn[:-1])
        elif ahead:
            interval = next_interval(drawn[:-1])
        else:
            interval = mean_interval(drawn[:-1])
        held += interval.holds(drawn[-1] if ahead else 5.0)
    return held / TRIALS


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_they_hold_nineteen_times_in_twenty(count: int) -> None:
    """2,000 trials are 0.95 give or take 0.02, at four standard deviations."""
    assert covered(count, ahead=False) == pytest.approx(0.95, abs=0.02)
    assert covered(count, ahead=True) == pytest.approx(0.95, abs=0.02)
    assert covered(count, ahead=True, spread_by_factors=True) == pytest.approx(0.95, abs=0.02)


def test_pairing_beats_not_pairing_where_runs_share_their_traffic() -> None:
    stream = Stream(7, "pairs")
    narrower = 0
    for _ in range(200):
        traffic = [stream.normal(0.0, 1.0) for _ in range(5)]
        ours = [stream.normal(load, 0.1) for load in traffic]
        theirs = [stream.normal(load + 0.5, 0.1) for load in traffic]
        paired = paired_interval(ours, theirs)
        apart = math.hypot(width(mean_interval(ours)), width(mean_interval(theirs)))
        narrower += width(paired) < apart / 3
    assert narrower > 180


def width(interval: Interval) -> float:
    return interval.high - interval.low
