"""Forecasts follow what they see, choose the method that was right, and know how wrong they are."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.random import Stream
from windtunnel.scaling.policies.predictive.forecast import Forecaster


def forecaster(rates: list[float], *, ahead: int = 4, season_s: float = 0.0) -> Forecaster:
    made = Forecaster(15.0, ahead, season_s)
    for rate in rates:
        made.see(rate * 15.0, 15.0)
    return made


def test_nothing_seen_is_nothing_expected() -> None:
    expected = Forecaster(15.0, 4).forecast()
    assert (expected.rate, expected.upper(0.95)) == (0.0, 0.0)


def test_a_steady_rate_stays() -> None:
    expected = forecaster([8.0] * 40).forecast()
    assert expected.rate == pytest.approx(8.0)
    assert expected.error == pytest.approx(0.0, abs=1e-9)


def test_a_ramp_goes_on() -> None:
    expected = forecaster([float(tick) for tick in range(60)]).forecast()
    assert expected.method == "trend"
    assert 60.0 < expected.rate < 64.0


def test_what_went_up_is_not_expected_below_zero() -> None:
    expected = forecaster([40.0 - tick for tick in range(40)], ahead=8).forecast()
    assert expected.rate >= 0.0


def test_a_season_is_known_after_one_and_a_bit() -> None:
    def rate(tick: int) -> float:
        return 10.0 + 8.0 * math.sin(2.0 * math.pi * tick / 40)

    expected = forecaster([rate(tick) for tick in range(100)], ahead=8, season_s=600.0).forecast()
    assert expected.method == "season"
    assert expected.rate == pytest.approx(rate(107), rel=0.1)


def test_a_season_that_is_twice_the_last_is_foretold_as_such() -> None:
    day = [10.0 + (tick % 40) for tick in range(80)]
    expected = forecaster([*day, *[2 * rate for rate in day[:30]]], ahead=4, season_s=600.0)
    assert expected.forecast().rate == pytest.approx(2 * day[33], rel=0.05)


def test_the_upper_rate_is_exceeded_as_often_as_said() -> None:
    draw = Stream(1, "arrivals")
    made = Forecaster(15.0, 4)
    bounds: list[float] = []
    exceeded = 0
    for tick in range(4000):
        count = sum(draw.uniform() < 0.26 for _ in range(200))
        if tick >= 400:
            exceeded += count / 15.0 > bounds[tick - 4]
        made.see(count, 15.0)
        bounds.append(made.forecast().upper(0.9))
    assert exceeded / 3600 == pytest.approx(0.1, abs=0.03)


def test_bursts_are_not_expected_on_top_of_each_other() -> None:
    bursts = ([10.0] * 12 + [40.0] * 6) * 4
    quiet = forecaster([*bursts, *[10.0] * 6]).forecast()
    assert quiet.upper(0.98) == pytest.approx(40.0, rel=0.05)
    amid = forecaster([*bursts, *[10.0] * 12, *[40.0] * 5]).forecast()
    assert amid.rate > 35.0
    assert amid.upper(0.98) < 45.0  # and not 70: the errors were made from 10/s upwards


def test_a_surge_is_a_line_from_where_it_began() -> None:
    calm = [10.0] * 30
    assert forecaster(calm).forecast().surge == 0.0
    assert forecaster([*calm, 12.0]).forecast().surge == 0.0  # 2.4 deviations of a count of 150
    assert forecaster([*calm, 16.0]).forecast().surge == pytest.approx(16.0 + 4 * 6.0)
    assert forecaster([*calm, 16.0, 28.0]).forecast().surge == pytest.approx(28.0 + 4 * 9.0)
    assert forecaster([*calm, 16.0, 28.0, 28.0]).forecast().surge == 0.0


def test_a_surge_is_expected_to_end_where_the_last_one_did() -> None:
    known = [*[10.0] * 30, *[34.0] * 3, *[10.0] * 20, 20.0]
    assert forecaster(known).forecast().surge == pytest.approx(34.0)
    beyond = [*[10.0] * 30, *[34.0] * 3, *[10.0] * 20, 40.0]
    assert forecaster(beyond).forecast().surge > 100.0


def test_noise_that_is_usual_is_no_surge() -> None:
    noisy = [10.0 + 8.0 * (tick * 7 % 5 - 2) / 2.0 for tick in range(60)]
    assert forecaster([*noisy, 20.0]).forecast().surge == 0.0


@given(st.lists(st.floats(0, 1e6), max_size=60), st.integers(1, 20), st.floats(0, 1))
def test_upper_rates_grow_with_the_probability(
    rates: list[float], ahead: int, share: float
) -> None:
    expected = forecaster(rates, ahead=ahead, season_s=150.0).forecast()
    assert 0.0 <= expected.upper(share) <= expected.upper(1.0)
    assert math.isfinite(expected.upper(1.0))
