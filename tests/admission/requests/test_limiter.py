"""Limits: AIMD with its ramps, ceilings and probes, the gradient limiter, and waits of all."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest

from windtunnel.admission.reasons import Outcome
from windtunnel.admission.requests.gradient import GradientLimiter
from windtunnel.admission.requests.limiter import (
    NEVER,
    Admission,
    AimdLimiter,
    AimdSettings,
    RequestLimiter,
)
from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream


def aimd(maximum: int = 32, **settings: float) -> AimdLimiter:
    chosen = {"startup_ramp_s": 0.0, "jitter_fraction": 0.0} | settings
    return AimdLimiter(maximum, AimdSettings(**chosen), Stream(1, "test"), 0.0)  # type: ignore[arg-type]


def end(
    limiter: RequestLimiter,
    admission: Admission,
    outcome: Outcome,
    now: float,
    retry_after_s: float = 0.0,
) -> None:
    limiter.end(admission, outcome, -1, retry_after_s, now)


def succeed(limiter: RequestLimiter, times: int, now: float, took_s: float = 0.0) -> None:
    for _ in range(times):
        end(limiter, limiter.admit(limiter.limit, now - took_s), Outcome.SUCCESS, now)


def alarm(limiter: RequestLimiter, now: float, retry_after_s: float = 0.0) -> None:
    """Three that start one after another are refused: that is no chance."""
    started = [limiter.admit(limiter.limit, now) for _ in range(3)]
    for admission in started:
        end(limiter, admission, Outcome.RATE_LIMITED, now, retry_after_s)


def test_a_few_refusals_among_many_answers_change_nothing() -> None:
    """3 in 100 cut the limit, and stopped everything for each Retry-After."""
    limiter = aimd(32)
    for number in range(3000):
        outcome = Outcome.RATE_LIMITED if number % 33 == 0 else Outcome.SUCCESS
        end(limiter, limiter.admit(32, number * 0.01), outcome, number * 0.01 + 0.1, 5.0)
    assert limiter.blocked_until_s == 0.0
    assert limiter.limit >= 31


@pytest.mark.parametrize("retry_after_s", [0.0, 5.0])
def test_one_in_five_refused_is_an_alarm(retry_after_s: float) -> None:
    limiter = aimd(32)
    for number in range(100):
        outcome = Outcome.RATE_LIMITED if number % 5 == 0 else Outcome.SUCCESS
        now = number * 0.01
        end(limiter, limiter.admit(limiter.limit, now), outcome, now, retry_after_s)
    assert limiter.blocked_until_s > 0.1
    assert limiter.limit < 32


def test_a_burst_of_refusals_is_one_cut() -> None:
    limiter = aimd(8)
    burst = [limiter.admit(8, 0.0) for _ in range(8)]
    for admission in burst:
        end(limiter, admission, Outcome.RATE_LIMITED, 1.0)
    assert limiter.limit == 6
    end(limiter, limiter.admit(6, 10.0), Outcome.RATE_LIMITED, 10.0)
    assert limiter.limit == 3, "soon after an alarm one is enough, and halves"


def test_an_alarm_keeps_to_the_longest_wait_that_was_asked_for() -> None:
    limiter = aimd()
    started = [limiter.admit(9, 0.0) for _ in range(5)]
    for admission, wait_s in zip(started, (1.0, 30.0, 2.0, 4.0, 40.0), strict=True):
        end(limiter, admission, Outcome.RATE_LIMITED, 0.5, wait_s)
    assert limiter.blocked_until_s == 40.5
    assert limiter.room(0, 40.4) == 0
    assert limiter.next_change_s(0, 40.4) == 40.5
    assert limiter.room(0, 40.5) > 0


def test_jitter_only_prolongs_a_wait() -> None:
    waits = set()
    for seed in range(20):
        settings = AimdSettings(startup_ramp_s=0.0, jitter_fraction=0.1)
        limiter = AimdLimiter(8, settings, Stream(seed, "jitter"), 0.0)
        alarm(limiter, 0.0, 10.0)
        assert 10.0 <= limiter.blocked_until_s <= 11.0
        waits.add(limiter.blocked_until_s)
    assert len(waits) == 20


def test_the_cooldown_doubles_while_nothing_succeeds() -> None:
    limiter, now, waits = aimd(cooldown_s=0.5), 0.0, []
    for _ in range(4):
        alarm(limiter, now)
        waits.append(limiter.blocked_until_s - now)
        now = limiter.blocked_until_s
    assert waits == [0.5, 1.0, 2.0, 4.0]
    succeed(limiter, 1, now)
    alarm(limiter, now)
    assert limiter.blocked_until_s - now == 0.5


def test_the_end_of_a_wait_spreads_starts_over_the_time_of_an_answer() -> None:
    """Cooldown end released the whole limit at once."""
    limiter = aimd(32)
    succeed(limiter, 32, 1.0, took_s=1.0)
    alarm(limiter, 1.0, 2.0)
    assert limiter.limit == 24
    now, starts = 3.0, []
    for in_flight in range(24):
        now = max(now, limiter.next_change_s(in_flight, now))
        assert limiter.room(in_flight, now) > 0
        limiter.admit(in_flight + 1, now)
        starts.append(now)
    assert starts[-1] == pytest.approx(3.0 + 23 / 24)
    assert all(later - before == pytest.approx(1 / 24) for before, later in pairwise(starts))


def test_the_soft_ceiling_caps_recovery_until_a_probe() -> None:
    limiter = aimd(16, successes_until_increase=2, probe_after_s=50.0)
    alarm(limiter, 0.0)
    assert (limiter.limit, limiter.ceiling) == (12, 15)
    succeed(limiter, 40, 5.0, took_s=1.0)
    assert limiter.limit == 15
    succeed(limiter, 40, 60.0, took_s=1.0)
    assert limiter.room(15, 60.0) == 1


def test_a_probe_that_fails_is_undone_without_a_cut() -> None:
    limiter = aimd(16, successes_until_increase=2, probe_after_s=1.0)
    alarm(limiter, 0.0)
    succeed(limiter, 90, 10.0, took_s=0.1)
    assert limiter.limit == 15
    assert limiter.room(15, 10.0) == 1
    end(limiter, limiter.admit(16, 10.0), Outcome.RATE_LIMITED, 10.05, 9.0)
    assert (limiter.limit, limiter.ceiling) == (15, 15)
    assert limiter.blocked_until_s < 10.0


def test_25_consecutive_successes_are_consecutive() -> None:
    limiter = aimd(16)
    alarm(limiter, 0.0)
    succeed(limiter, 24, 5.0)
    end(limiter, limiter.admit(1, 5.0), Outcome.PROVIDER_FAILURE, 5.0)
    succeed(limiter, 24, 5.0)
    assert limiter.limit == 12
    succeed(limiter, 1, 5.0)
    assert limiter.limit == 13


def test_what_we_cancelled_ourselves_says_nothing_of_the_provider() -> None:
    limiter = aimd(16)
    alarm(limiter, 0.0)
    succeed(limiter, 24, 5.0)
    end(limiter, limiter.admit(1, 5.0), Outcome.LOCAL_CANCELLED, 5.0)
    succeed(limiter, 1, 5.0)
    assert limiter.limit == 13


@pytest.mark.parametrize(
    ("now", "limit"), [(0.0, 1), (0.99, 1), (1.0, 2), (3.5, 4), (6.99, 7), (7.0, 8), (99.0, 8)]
)
def test_the_startup_ramp(now: float, limit: int) -> None:
    limiter = aimd(8, startup_ramp_s=7.0)
    assert limiter.room(0, now) == limit
    assert limiter.next_change_s(limit, now) == (math.floor(now) + 1.0 if now < 7.0 else NEVER)


def test_two_refusals_end_the_ramp_where_the_provider_stopped() -> None:
    limiter = aimd(32, startup_ramp_s=31.0)
    assert limiter.room(0, 10.0) == 11
    end(limiter, limiter.admit(9, 10.0), Outcome.RATE_LIMITED, 10.05)
    assert limiter.limit == 9, "one may be chance: the same again"
    end(limiter, limiter.admit(9, 10.05), Outcome.RATE_LIMITED, 10.1)
    assert (limiter.limit, limiter.ceiling, limiter.blocked_until_s) == (8, 8, 0.0)


def test_a_ramp_goes_on_after_a_refusal_by_chance() -> None:
    limiter = aimd(32, startup_ramp_s=31.0)
    assert limiter.room(0, 10.0) == 11
    end(limiter, limiter.admit(9, 10.0), Outcome.RATE_LIMITED, 10.01)
    now = 10.01
    while limiter.limit < 32:
        now = limiter.next_change_s(limiter.limit, now)
        assert limiter.room(limiter.limit, now) > 0
    assert now < 12.0


def test_raising_a_cap_raises_the_limit_unless_refusals_say_less() -> None:
    limiter = aimd(8)
    limiter.set_maximum(20)
    assert limiter.limit == 20
    alarm(limiter, 0.0)
    limiter.set_maximum(40)
    assert limiter.limit == 15
    limiter.set_maximum(6)
    assert (limiter.limit, limiter.ceiling) == (6, 6)


def test_aimd_reacts_to_more_than_429() -> None:
    """Overload and a row of timeouts lower the limit; one timeout does not."""
    limiter = aimd(16)
    for _ in range(2):
        end(limiter, limiter.admit(16, 0.0), Outcome.PROVIDER_TIMEOUT, 0.0)
    assert limiter.limit == 16
    end(limiter, limiter.admit(16, 0.0), Outcome.PROVIDER_TIMEOUT, 0.0)
    assert limiter.limit == 12
    for admission in [limiter.admit(12, 1.0) for _ in range(3)]:
        end(limiter, admission, Outcome.PROVIDER_OVERLOADED, 1.0)
    assert limiter.limit == 9
    assert limiter.blocked_until_s > 1.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("decrease_factor", 1.0),
        ("decrease_factor", 0.0),
        ("increase_step", 0),
        ("successes_until_increase", 0),
        ("cooldown_s", -1.0),
        ("startup_ramp_s", math.nan),
        ("jitter_fraction", 2.0),
    ],
)
def test_bad_settings_get_a_sentence(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name}: .* is not possible; allowed: "):
        AimdSettings(**{name: value})  # type: ignore[arg-type]


def serve(limiter: GradientLimiter, knee: int, rounds: int, length: int = 1) -> None:
    """A server that answers in a second up to its knee, and ever more slowly beyond."""
    now = 0.0
    for _ in range(rounds):
        in_flight = limiter.limit
        took_s = length * max(1.0, in_flight / knee)
        for admission in [limiter.admit(number + 1, now) for number in range(in_flight)]:
            limiter.end(admission, Outcome.SUCCESS, length, 0.0, now + took_s)
        now += took_s


@pytest.mark.parametrize("knee", [4, 16, 64])
def test_the_gradient_limiter_finds_the_knee_without_a_refusal(knee: int) -> None:
    limiter = GradientLimiter(1000)
    serve(limiter, knee, 400)
    assert knee <= limiter.limit <= 2.2 * knee + 4


def test_the_gradient_limiter_follows_a_server_that_changes() -> None:
    limiter = GradientLimiter(1000)
    serve(limiter, 64, 300)
    serve(limiter, 8, 300)
    assert limiter.limit <= 40
    serve(limiter, 64, 600)
    assert limiter.limit >= 64


def test_long_answers_are_no_slow_server() -> None:
    limiter = GradientLimiter(200, per_token=True)
    serve(limiter, 1000, 60, length=10)
    before = limiter.limit
    serve(limiter, 1000, 60, length=500)
    assert limiter.limit > before


def test_constant_timeouts_do_not_make_the_gradient_limiter_grow() -> None:
    limiter = GradientLimiter(100, initial=20)
    for number in range(50):
        limiter.end(limiter.admit(20, number), Outcome.PROVIDER_TIMEOUT, -1, 0.0, number + 30.0)
    assert limiter.limit == 1


def fixed(stream: Stream | None = None) -> RequestLimiter:
    return RequestLimiter(8, stream)


def gradient(stream: Stream | None = None) -> RequestLimiter:
    return GradientLimiter(100, initial=12, stream=stream)


LIMITERS = pytest.mark.parametrize("make", [fixed, gradient])


@LIMITERS
def test_every_limiter_honours_a_wait(make: Callable[..., RequestLimiter]) -> None:
    """A fixed limit that ignored Retry-After would ask again at once, for ever."""
    limiter = make()
    alarm(limiter, 0.0, 9.0)
    assert limiter.blocked_until_s == 9.0
    assert (limiter.room(0, 8.9), limiter.next_change_s(0, 8.9)) == (0, 9.0)
    assert limiter.room(0, 9.0) > 0


@LIMITERS
def test_no_limiter_stops_for_one_refusal(make: Callable[..., RequestLimiter]) -> None:
    limiter = make()
    end(limiter, limiter.admit(4, 0.0), Outcome.RATE_LIMITED, 0.0, 9.0)
    assert limiter.room(0, 0.1) == limiter.limit


@LIMITERS
def test_every_limiter_waits_longer_while_refusals_go_on(
    make: Callable[..., RequestLimiter],
) -> None:
    limiter, now, waits = make(), 0.0, []
    for _ in range(4):
        alarm(limiter, now)
        waits.append(limiter.blocked_until_s - now)
        now = limiter.blocked_until_s
    assert [wait / waits[0] for wait in waits] == [1.0, 2.0, 4.0, 8.0]
    succeed(limiter, 1, now)
    alarm(limiter, now)
    assert limiter.blocked_until_s - now == waits[0]


@LIMITERS
def test_every_limiter_prolongs_a_wait_by_chance(make: Callable[..., RequestLimiter]) -> None:
    """Without jitter, processes that were refused together come back together."""
    ends = set()
    for seed in range(20):
        limiter = make(Stream(seed, "jitter"))
        alarm(limiter, 0.0, 10.0)
        assert 10.0 <= limiter.blocked_until_s <= 10.1
        ends.add(limiter.blocked_until_s)
    assert len(ends) == 20


@LIMITERS
def test_every_limiter_starts_gently_after_a_wait(make: Callable[..., RequestLimiter]) -> None:
    """Cooldown end released the whole limit at once."""
    limiter = make()
    succeed(limiter, 1, 1.0, took_s=1.0)
    alarm(limiter, 1.0, 5.0)
    now, limit = 6.0, limiter.limit
    for in_flight in range(limit):
        now = max(now, limiter.next_change_s(in_flight, now))
        limiter.admit(in_flight + 1, now)
    assert now == pytest.approx(6.0 + (limit - 1) / limit)
    assert limiter.next_change_s(limit, now) == NEVER


def measuring() -> GradientLimiter:
    """One that has just begun to measure, at a quarter of its limit."""
    limiter, before = GradientLimiter(100, initial=100), 0
    for _ in range(10_000):
        before = limiter.limit
        limiter.end(limiter.admit(before, 0.0), Outcome.SUCCESS, -1, 0.0, 1.0)
        if limiter.limit < before:
            assert (before, limiter.limit) == (100, 25)
            return limiter
    raise AssertionError("it never measured")


def test_a_cut_while_measuring_does_not_restore_the_full_limit() -> None:
    limiter = measuring()
    limiter.end(limiter.admit(25, 0.0), Outcome.PROVIDER_TIMEOUT, -1, 0.0, 9.0)
    assert limiter.limit == 75 // 4


def test_a_new_cap_while_measuring_does_not_restore_the_full_limit() -> None:
    limiter = measuring()
    limiter.set_maximum(60)
    assert limiter.limit == 60 // 4


def test_a_measurement_ends_with_the_full_limit_although_little_was_used() -> None:
    limiter = measuring()
    for _ in range(25):
        limiter.end(limiter.admit(1, 0.0), Outcome.SUCCESS, -1, 0.0, 1.0)
    assert limiter.limit == 100
