"""Rises: lines that chance does not explain are followed, steps are not extended, ends are seen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.core.random import Stream
from windtunnel.scaling.policies.predictive.rise import Count, Rise, rise_of


def counted(rates: list[float]) -> list[Count]:
    """Exactly these rates, in looks of 2 s."""
    return [Count(2.0, round(2.0 * rate)) for rate in rates]


def test_a_line_is_followed_to_where_it_leads() -> None:
    rise = rise_of(counted([10.0 + 0.5 * step for step in range(30)]))  # 0.25/s more each second
    assert rise is not None
    assert rise.slope == pytest.approx(0.25, rel=0.05)
    assert rise.rate == pytest.approx(25.0, rel=0.03)
    assert rise.ahead(40.0) == pytest.approx(35.0, rel=0.03)
    assert rise.ahead(1000.0) == pytest.approx(2.0 * rise.rate)  # a line is a guess


def test_a_rise_that_becomes_steeper_is_followed_as_steep_as_it_is_now() -> None:
    doubling = [2.0 * 2.0 ** (step / 27.0) for step in range(120)]  # every 54 s
    rise = rise_of(counted(doubling))
    assert rise is not None
    assert rise.slope > 0.8 * (doubling[-1] - doubling[-16]) / 30.0
    assert rise.rate > 0.9 * doubling[-1]


def test_a_step_is_not_extended() -> None:
    rise = rise_of(counted([10.0] * 10 + [30.0] * 8))
    assert rise == Rise(30.0, 0.0)


def test_what_has_fallen_again_is_no_rise() -> None:
    burst = [10.0] * 20 + [30.0] * 8
    assert rise_of(counted(burst)) is not None
    assert rise_of(counted([*burst, 10.0, 10.0, 10.0])) is None


def test_too_little_time_and_no_traffic_say_nothing() -> None:
    assert rise_of(counted([10.0 + step for step in range(14)])) is None  # 28 s
    assert rise_of(counted([0.0] * 60)) is None
    assert rise_of([]) is None
    assert rise_of([Count(60.0, 100), Count(60.0, 900)]) is None  # it looks once a minute


def test_noisy_arrivals_need_a_steeper_line() -> None:
    line = counted([10.0 + 0.3 * step for step in range(30)])
    assert rise_of(line) is not None
    assert rise_of(line, dispersion=9.0) is None


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_chance_alone_is_hardly_ever_a_rise(seed: int) -> None:
    stream = Stream(seed, "arrivals")
    at_s, counts = 0.0, [0] * 60
    while (at_s := at_s + stream.exponential(1.0 / 12.0)) < 120.0:
        counts[int(at_s / 2.0)] += 1
    rise = rise_of([Count(2.0, count) for count in counts])
    assert rise is None or rise.ahead(75.0) < 40.0
