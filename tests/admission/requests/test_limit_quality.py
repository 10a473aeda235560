"""The quality of limits in simulated time: each case of the benchmark meets its promise."""

from collections.abc import Callable

import pytest
from benchmarks.admission_grid import draw, run
from benchmarks.admission_quality import (
    CASES,
    CHANCE_LEAST,
    Chance,
    Client,
    PerSecond,
    Provider,
    Times,
    chance_cases,
    refusals_most,
    semaphore_s,
)

MISSED = {"serves 16, then 4": 9.0, "serves 4, then 16": 7.0, "steady refill": 10.5}
"""Refusals per 100 where the benchmark's target is missed today: no more than now."""


@pytest.mark.parametrize(("name", "provider", "ideal_s"), CASES, ids=[case[0] for case in CASES])
def test_limits_are_found(name: str, provider: Callable[[], Provider], ideal_s: float) -> None:
    for seed in (1, 2):
        client = Client(provider(), seed=seed).run()
        known = (most for part, most in MISSED.items() if name.endswith(part))
        assert ideal_s / client.now >= 0.88
        assert 100.0 * client.refused / client.answered <= next(known, refusals_most(name))


@pytest.mark.parametrize(("times", "retry_after_s"), chance_cases())
def test_refusals_by_chance_do_not_stop_a_fast_server(times: Times, retry_after_s: float) -> None:
    """3 % of them: it was 69 of 242 rows a second, and 8 of 195 with Retry-After."""
    for seed in (1, 2, 3):
        ours = Client(Chance(0.03, retry_after_s, seed), seed=seed, times=times).run().now
        plain = semaphore_s(Chance(0.03, retry_after_s, seed + 9), times, seed=seed)
        assert plain / ours >= CHANCE_LEAST


@pytest.mark.parametrize("retry_after_s", [0.0, 1.0])
@pytest.mark.parametrize(("service_s", "rows"), [(0.5, 200), (0.5, 500), (0.1, 2000)])
def test_whole_jobs_with_refusals_by_chance(
    service_s: float, rows: int, retry_after_s: float
) -> None:
    """To the last row: retries of 1 to 9 s at the end took half of the time of a small job."""
    times, seeds = Times(service_s, 0.005, rows), range(60, 80)
    ours = [
        Client(Chance(0.03, retry_after_s, seed), seed=seed, times=times, callers=rows).run().now
        for seed in seeds
    ]
    plain = [semaphore_s(Chance(0.03, retry_after_s, seed), times, seed=seed) for seed in seeds]
    assert sum(plain) / sum(ours) >= CHANCE_LEAST


@pytest.mark.parametrize("retry_after_s", [0.0, 1.0])
def test_a_chance_run_of_refusals_is_not_taken_for_a_limit(retry_after_s: float) -> None:
    """Runs of three, and 4.5 % in one second, come by chance: each cost up to half of the rate.

    Until 95 % are answered: what a Retry-After at the very end costs is its own.
    """
    times, slots, rows = Times(0.05, 0.05, 6000), 64, 5700
    ideal_s = rows * times.service_s / slots / 0.97
    for seed in range(130, 155):
        provider = Chance(0.03, retry_after_s, seed)
        client = Client(provider, slots, seed, times, callers=slots + 200).run()
        assert ideal_s / client.answered_s[rows - 1] >= CHANCE_LEAST, seed


@pytest.mark.parametrize(("rate", "service_s"), [(30, 0.02), (100, 0.02), (100, 0.1)])
def test_a_hard_rate_is_found_whatever_is_in_flight(rate: int, service_s: float) -> None:
    """At 20 ms an answer, one caller alone makes fifty requests a second."""
    times = Times(service_s, 0.005, 40 * rate)
    client = Client(PerSecond(rate), times=times).run()
    ideal_s = (times.requests - rate) / rate
    assert ideal_s / client.now >= 0.95
    assert 100.0 * client.refused / client.answered <= 5.0


def test_limits_of_drawn_providers_are_found() -> None:
    """Strict spacing, windows of a second and a minute, limits that change, wrong Retry-After.

    All that the first seeds draw, none chosen: 35 of 40 meet both targets, and none is far below;
    6 of 20 where up to 15 % are refused by chance as well.
    """
    found = [run(draw(seed)) for seed in range(60)]
    met = [one for one in found if one.part >= 0.95 and one.refused <= 5.0]
    assert len([one for one in met if one.case.chance == 0.0]) >= 35
    assert len([one for one in met if one.case.chance > 0.0]) >= 4
    assert min(one.part for one in found if one.case.chance == 0.0) >= 0.9


def test_a_minutes_limit_is_known_from_the_count_at_a_refusal() -> None:
    """With a Retry-After three times too long, or none: it cost up to a third of the rate."""
    for seed in (1013, 1097, 1213):
        assert run(draw(seed)).part >= 0.92, seed


def test_a_wait_for_a_limit_of_a_second_is_not_taken_for_a_limit_of_a_minute() -> None:
    """A long Retry-After, and one refusal by chance after it, were: 0.02 of the rate."""
    for seed, least in ((200_064, 0.6), (200_085, 0.4)):
        assert run(draw(seed)).part >= least, seed


def test_trying_more_than_a_minutes_limit_ends_at_once() -> None:
    """The limit was found at a count below the raised one, again and again: 12 in 100."""
    for seed in (200_035, 200_128):
        found = run(draw(seed))
        assert found.part >= 0.95, seed
        assert found.refused <= 5.0, seed


def test_strict_spacing_is_not_taken_for_a_limit_on_calls_in_flight() -> None:
    """Two calls at one moment were refused, and one at a time was all that was tried: 0.21."""
    for seed in (1096, 1135):
        assert run(draw(seed)).part >= 0.88, seed


def test_a_limit_is_found_among_refusals_by_chance() -> None:
    """It backed off as far as it could: what is refused at any rate was taken for a limit."""
    found = run(draw(15)._replace(chance=0.08, then=1.0))
    assert found.part >= 0.85
    assert found.refused <= 10.0


def test_the_same_seed_is_the_same_run() -> None:
    for _, provider, _ in CASES:
        one, other = (Client(provider(), seed=5).run() for _ in range(2))
        assert (one.now, one.refused, one.limits) == (other.now, other.refused, other.limits)


def test_a_fast_limit_without_bursts_is_kept_to() -> None:
    """A hair above it every second start is refused, and many have started before that is known."""
    case = draw(1)._replace(kind="spacing", per_s=250.0, burst=1.0, service_s=0.2, cap=75)
    found = run(case._replace(then=1.0, retry_after="absent"))
    assert found.part >= 0.95
    assert found.refused <= 3.0
