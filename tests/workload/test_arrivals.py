"""Arrivals keep the shape of their gaps, and their counts follow the integral of the rate."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workload.plans import POISSON, any_arrivals, any_curve
from windtunnel.core.random import Stream
from windtunnel.workload.arrivals import ArrivalTimes, curve_of, weibull_cv, weibull_shape
from windtunnel.workload.distributions import Arrivals, Curve

DAY = Curve(period_s=100.0, peak_s=30.0, ratio=6.0)
SPIKE = Curve(points=((20.0, 1.0), (20.0, 9.0), (25.0, 9.0), (25.0, 1.0)))
FADE = Curve(points=((50.0, 1.0), (80.0, 0.0)))


def times_of(
    arrivals: Arrivals, curve: Curve | None, count: int, *, name: str = "x"
) -> list[float]:
    draws = ArrivalTimes(arrivals, curve, Stream(1, name))
    return [draws.next() for _ in range(count)]


def integral(curve: Curve, until_s: float, pieces: int = 4000) -> float:
    """Summed up in small pieces; exact where the curve is straight between its points."""
    factor = curve_of(curve).factor
    marks = {0.0, until_s, *(time_s for time_s, _ in curve.points if time_s < until_s)}
    if curve.period_s:
        marks |= {until_s * piece / pieces for piece in range(pieces)}
    total = 0.0
    for start_s, end_s in pairwise(sorted(marks)):
        middle = factor((start_s + end_s) / 2)  # of a line that is its mean, and no jump is hit
        total += (end_s - start_s) * middle
    return total


@given(curve=any_curve(), at=st.floats(0.0, 1.0))
def test_a_curve_says_when_its_integral_is_reached(curve: Curve, at: float) -> None:
    made = curve_of(curve)
    wanted = at * (curve.period_s * 3 or 50.0)
    time_s = made.time_of(wanted)
    if time_s == math.inf:
        assert wanted >= made.total() * (1 - 1e-9)
    else:
        assert wanted <= made.total()
        assert integral(curve, time_s) == pytest.approx(wanted, rel=1e-5, abs=1e-6)


@given(curve=any_curve(), rest=st.lists(st.floats(0.0, 200.0), min_size=2, max_size=9))
def test_time_never_goes_back(curve: Curve, rest: list[float]) -> None:
    made = curve_of(curve)
    found = [made.time_of(at) for at in sorted(rest)]
    assert found == sorted(found)


@given(curve=any_curve(), rate=st.floats(1.0, 40.0), until=st.floats(0.1, 1.0))
def test_even_arrivals_are_as_many_as_the_integral(curve: Curve, rate: float, until: float) -> None:
    """Whatever the curve: what has come by a time is the integral of the rate, to the last one."""
    until_s = until * (curve.period_s or 100.0)
    expected = rate * integral(curve, until_s)
    draws = ArrivalTimes(Arrivals("constant", rate, 0.0), curve, Stream(0, "x"))
    count = 0
    while draws.next() <= until_s:
        count += 1
        if count > 3000:
            return
    assert abs(count - expected) <= 1.0 + 1e-5 * expected


@pytest.mark.parametrize("curve", [DAY, SPIKE, FADE])
def test_poisson_counts_in_any_interval_are_the_integral_of_the_rate(curve: Curve) -> None:
    rate = 200.0
    times = times_of(Arrivals("poisson", rate, 1.0), curve, 30_000)
    for start_s, end_s in ((0, 10), (10, 22), (22, 24), (24, 55), (55, 79)):
        expected = rate * (integral(curve, end_s) - integral(curve, start_s))
        found = sum(start_s <= time_s < end_s for time_s in times)
        assert abs(found - expected) < 4 * math.sqrt(expected)


@given(arrivals=any_arrivals(), curve=any_curve())
def test_a_curve_bends_time_and_leaves_the_gaps_alone(arrivals: Arrivals, curve: Curve) -> None:
    """In the time that the integral counts, arrivals are those of the even process, gap by gap."""
    even = times_of(arrivals, None, 40)
    bent = times_of(arrivals, curve, 40)
    for even_s, bent_s in zip(even, bent, strict=True):
        if bent_s == math.inf:
            assert even_s >= curve_of(curve).total() * (1 - 1e-9)
        else:
            assert integral(curve, bent_s) == pytest.approx(even_s, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("process", "cv"),
    [("poisson", 1.0), ("constant", 0.0), ("gamma", 0.5), ("gamma", 3.0), ("weibull", 0.5),
     ("weibull", 2.0)],
)  # fmt: skip
def test_gaps_have_the_mean_and_the_variation_that_was_asked_for(process: str, cv: float) -> None:
    times = times_of(Arrivals(process, 8.0, cv), None, 60_000)
    gaps = [later - earlier for earlier, later in pairwise([0.0, *times])]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert mean == pytest.approx(1 / 8, rel=0.04)
    assert spread / mean == pytest.approx(cv, rel=0.05, abs=1e-9)
    assert min(gaps) >= 0.0


def test_a_gamma_gap_is_a_sum_of_exponential_ones() -> None:
    """With shape 4, a quarter of the gaps is shorter than Erlang's quartile."""
    times = times_of(Arrivals("gamma", 1.0, 0.5), None, 40_000)
    gaps = [later - earlier for earlier, later in pairwise([0.0, *times])]

    def erlang(gap: float) -> float:
        x = 4 * gap
        return 1 - math.exp(-x) * (1 + x + x * x / 2 + x**3 / 6)

    for at in (0.3, 0.6, 0.9, 1.2, 1.8):
        share = sum(gap <= at for gap in gaps) / len(gaps)
        assert share == pytest.approx(erlang(at), abs=0.012)


@given(st.floats(0.16, 90.0))
def test_a_weibull_shape_is_found_by_its_variation(shape: float) -> None:
    assert weibull_shape(weibull_cv(shape)) == pytest.approx(shape, rel=1e-6)


def test_traffic_that_fades_out_ends() -> None:
    times = times_of(POISSON, FADE, 1500)
    come = [time_s for time_s in times if time_s < math.inf]
    assert max(come) < 80.0
    assert len(come) == pytest.approx(10 * 65, abs=4 * math.sqrt(650))
    assert times == sorted(times)
