"""Surges: seen at once, followed while they last as long as a start, and never chased otherwise."""

import pytest

from windtunnel.scaling.policies.predictive.surges import Surges

STARTUP_S = 60.0


def burst(surges: Surges, start_s: float, lasts_s: float, high: float = 40.0) -> None:
    """A burst on 10/s, looked at every 2 s, with a minute and a half of calm after it."""
    for step in range(int((lasts_s + 90.0) / 2.0)):
        rate = high if 2.0 * step < lasts_s else 10.0
        surges.see(start_s + 2.0 * step, rate, 10.0, 1.0)


def test_four_deviations_are_a_surge_and_fewer_are_not() -> None:
    surges = Surges(STARTUP_S)
    active = []
    for number, rate in enumerate((13.9, 14.5)):
        surges.see(2.0 * number, rate, 10.0, 1.0)
        active.append(surges.active)
    assert active == [False, True]
    assert surges.are_worth_a_start


def test_while_it_rises_its_line_is_planned_for() -> None:
    surges = Surges(STARTUP_S)
    surges.see(0.0, 10.0, 10.0, 1.0)
    surges.see(2.0, 16.0, 10.0, 1.0)
    # 6/s more within a window of 6 s: a line of 1/s a second would end at 76, twice is enough.
    assert surges.rate(2.0, 6.0, highest=10.0) == pytest.approx(32.0)
    assert surges.rate(2.0, 6.0, highest=25.0) == 25.0  # where one before it ended
    surges.see(4.0, 16.5, 10.0, 1.0)
    assert surges.rate(4.0, 6.0, highest=10.0) == 16.5  # it rises no more
    surges.see(6.0, 11.0, 10.0, 1.0)
    assert not surges.active


def test_a_rise_that_goes_on_is_followed_beyond_its_start() -> None:
    surges = Surges(STARTUP_S)
    for step in range(40):
        surges.see(2.0 * step, 10.0 + step, 10.0, 0.5)
    assert surges.rate(78.0, 6.0, highest=49.0) > 70.0  # it has lasted, and is still the first
    surges.see(80.0, 10.0, 10.0, 0.5)
    surges.see(82.0, 50.0, 10.0, 0.5)
    assert surges.rate(82.0, 6.0, highest=49.0) == 50.0


def test_bursts_shorter_than_a_start_are_soon_not_followed_and_long_ones_are_again() -> None:
    surges = Surges(STARTUP_S)
    followed = []
    for number in range(6):
        burst(surges, 200.0 * number, lasts_s=20.0)
        surges.see(200.0 * number + 190.0, 40.0, 10.0, 1.0)
        followed.append(surges.active and surges.are_worth_a_start)
        surges.see(200.0 * number + 192.0, 10.0, 10.0, 1.0)
    assert followed[0]
    assert not followed[-1]
    for number in range(6, 10):
        burst(surges, 300.0 * number, lasts_s=150.0)
    assert surges.share_lasting > 0.4


def test_memory_survives_a_restart() -> None:
    surges, again = Surges(STARTUP_S), Surges(STARTUP_S)
    burst(surges, 0.0, lasts_s=20.0)
    surges.see(120.0, 30.0, 10.0, 1.0)
    again.restore(surges.state())
    assert again.state() == surges.state()
    assert again.rate(121.0, 6.0, 10.0) == surges.rate(121.0, 6.0, 10.0)
