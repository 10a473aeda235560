"""Forecasts follow what they see, choose the method that was right, and know how wrong they are."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.random import Stream
from windtunnel.scaling.policies.predictive.forecast import RateForecaster, loss, seen_twice


def forecaster(
    rates: list[float], *, ahead: int = 4, season_s: float = 0.0, miss_price: float = 20.0
) -> RateForecaster:
    made = RateForecaster(15.0, ahead, season_s, miss_price)
    for rate in rates:
        made.see(rate)
    return made


def test_nothing_seen_is_nothing_expected() -> None:
    expected = RateForecaster(15.0, 4).forecast()
    assert (expected.rate, expected.planned) == (0.0, 0.0)


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


def test_the_plan_is_the_cheapest_for_the_errors_that_were_made() -> None:
    """Held against every plan: what it covers is worth its price, and nothing cheaper was left."""
    draw = Stream(1, "arrivals")
    made = RateForecaster(15.0, 4, miss_price=20.0)
    for _ in range(400):
        made.see(sum(draw.uniform() < 0.26 for _ in range(200)) / 15.0)
    expected = made.forecast()
    least = min(expected.mean_loss(step / 100.0) for step in range(200, 800))
    assert expected.mean_loss(expected.planned) <= 1.02 * least
    missed = sum(expected.rate + error > expected.planned for error in expected.errors)
    assert missed / len(expected.errors) < 0.1


def counts(rate: float, cluster: int, bins: int = 240) -> list[float]:
    """Rates of 15-second bins in which requests come in clusters; clusters of 1 are Poisson."""
    draw, found = Stream(2, "counts"), []
    for _ in range(bins):
        passed_s, arrived = draw.exponential(cluster / rate), 0
        while passed_s < 15.0:
            arrived += cluster
            passed_s += draw.exponential(cluster / rate)
        found.append(arrived / 15.0)
    return found


def test_the_noise_of_counting_has_no_margin_of_its_own() -> None:
    steady, clustered = forecaster(counts(26.0, 1)), forecaster(counts(26.0, 9))
    noise = steady.counted(26.0)
    assert abs(steady.forecast().planned - 26.0) < 0.5 * noise
    assert clustered.forecast().planned > 26.0 + 2.5 * noise  # three times the noise of counting


def test_a_loss_is_what_is_paid_and_what_misses() -> None:
    assert loss(10.0, 8.0, 20.0) == 10.0
    assert loss(10.0, 11.0, 20.0) == 10.0 + 20.0 * 3.0  # one too many, and those behind it
    assert loss(0.0, 11.0, 20.0) == 20.0 * 11.0  # no more than all


def test_a_dearer_miss_plans_for_more() -> None:
    noisy = [30.0 + 10.0 * (tick * 7 % 5 - 2) for tick in range(120)]
    plans = [forecaster(noisy, miss_price=price).forecast().planned for price in (1.5, 20.0, 500.0)]
    assert plans == sorted(plans)
    assert plans[0] < plans[-1]


def test_an_unseen_surge_counts_while_little_was_seen_and_misses_are_expensive() -> None:
    def planned(bins: int, price: float) -> float:
        return forecaster([10.0] * bins, miss_price=price).forecast().planned

    assert planned(30, 200.0) == pytest.approx(20.0)
    assert planned(100, 200.0) < 11.0
    assert planned(30, 20.0) < 11.0
    assert planned(200, 1000.0) == pytest.approx(20.0)


def test_a_rise_is_expected_to_end_where_rates_before_it_did() -> None:
    day = [40.0] * 10 + [10.0] * 20
    rise = [10.0 + 3.0 * tick for tick in range(9)]
    assert forecaster([*day, *rise]).forecast().rate <= 40.0
    assert forecaster([*[10.0] * 30, *rise]).forecast().rate > 40.0


def test_bursts_that_come_again_are_met_by_what_stands_ready() -> None:
    bursts = ([10.0] * 9 + [40.0] * 2) * 8
    quiet = forecaster([*bursts, *[10.0] * 5]).forecast()
    assert quiet.planned == pytest.approx(40.0, rel=0.05)


def test_a_burst_that_came_once_is_not_planned_for() -> None:
    once = forecaster([*[10.0] * 60, *[40.0] * 12, *[10.0] * 30]).forecast()
    assert once.planned < 15.0
    assert seen_twice([1.0, 1.0, 9.0, 8.0, 1.0, 1.0, 1.0]) == 1.0
    assert seen_twice([1.0, 1.0, 9.0, 8.0, 1.0, 1.0, 7.0, 1.0]) == 7.0


def test_bursts_are_not_expected_on_top_of_each_other() -> None:
    bursts = ([10.0] * 12 + [40.0] * 6) * 4
    amid = forecaster([*bursts, *[10.0] * 12, *[40.0] * 5]).forecast()
    assert amid.planned < 60.0  # and not 70: the errors were made from 10/s upwards


@given(st.lists(st.floats(0, 1e6), max_size=60), st.integers(1, 20), st.floats(1.5, 1000))
def test_plans_are_finite_and_never_negative(
    rates: list[float], ahead: int, miss_price: float
) -> None:
    expected = forecaster(rates, ahead=ahead, season_s=150.0, miss_price=miss_price).forecast()
    assert 0.0 <= expected.planned < math.inf
