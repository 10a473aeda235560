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
    return AimdLimiter(maximum, AimdSettings(**chosen), Stream(1, "test"), 0.0)


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
    """Four that start one after another are refused: that is no chance."""
    started = [limiter.admit(1, now) for _ in range(4)]
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


def test_refusals_that_go_away_at_a_lower_rate_are_a_limit() -> None:
    """Every fifth above 40 a second, so that there is no run of them."""
    limiter, now = aimd(32), 0.0
    for number in range(4000):
        now = max(now + 0.01, limiter.next_change_s(0, now))
        is_refused = number % 5 == 0 and limiter.pace.per_s > 40.0
        outcome = Outcome.RATE_LIMITED if is_refused else Outcome.SUCCESS
        end(limiter, limiter.admit(1, now), outcome, now + 1e-5)
    assert 30.0 < limiter.pace.per_s < 45.0


@pytest.mark.parametrize("share", [0.06, 0.12])
def test_refusals_that_come_at_any_rate_are_chance(share: float) -> None:
    """More than 5 in 100 made it back off as if they were a limit."""
    limiter, stream, now = aimd(32), Stream(3, "chance"), 0.0
    for _ in range(6000):
        now = max(now + 0.01, limiter.next_change_s(0, now))
        outcome = Outcome.RATE_LIMITED if stream.uniform() < share else Outcome.SUCCESS
        end(limiter, limiter.admit(1, now), outcome, now + 1e-5)
    assert limiter.pace.per_s > 90.0
    assert limiter.pace.chance == pytest.approx(share, abs=0.5 * share)


def test_a_burst_of_refusals_is_one_stop() -> None:
    limiter = aimd(8)
    succeed(limiter, 8, 1.0, took_s=1.0)
    burst = [limiter.admit(8, 1.0) for _ in range(8)]
    for admission in burst:
        end(limiter, admission, Outcome.RATE_LIMITED, 2.0)
    assert (limiter.consecutive_rate_limits, limiter.limit) == (1, 8)
    assert limiter.blocked_until_s == pytest.approx(2.25)


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


def test_the_end_of_a_wait_is_tried_by_one() -> None:
    """Cooldown end released the whole limit at once."""
    limiter = aimd(32)
    for admission in [limiter.admit(1, 0.0) for _ in range(4)]:
        end(limiter, admission, Outcome.RATE_LIMITED, 0.1, 2.0)
    now = limiter.next_change_s(0, 2.1)
    assert limiter.room(0, now) == 32
    first = limiter.admit(1, now)
    assert limiter.next_change_s(1, now) >= now + 0.15, "until it would have been refused"
    end(limiter, first, Outcome.RATE_LIMITED, now + 0.1, 1.0)
    assert limiter.blocked_until_s == pytest.approx(now + 1.1), "one is enough to wait again"


def test_a_retry_after_that_is_too_short_is_doubled() -> None:
    """Ten milliseconds again and again, for a window of a minute, were thousands of refusals."""
    limiter, now = aimd(cooldown_s=0.5), 0.0
    for _ in range(8):
        alarm(limiter, now, 0.01)
        now = limiter.blocked_until_s
    assert now > 30.0


def test_the_soft_ceiling_holds_until_a_probe() -> None:
    limiter = aimd(16)
    now = ceiling_of_12(limiter)
    for number in range(8):
        assert limiter.room(12, now + 0.01 * number) == 0
        end(limiter, limiter.admit(12, now + 0.01 * number), Outcome.SUCCESS, now + 1.0)
    assert limiter.room(12, now + 1.0) == 0, "the probe comes at any moment of an answer's time"
    assert limiter.room(12, now + 2.5) == 1


def ceiling_of_12(limiter: AimdLimiter) -> float:
    """Three refused as the thirteenth, with answers in a second and refusals in 50 ms."""
    limiter.set_maximum(13)
    end(limiter, limiter.admit(12, -1.0), Outcome.SUCCESS, 0.0)
    for at_s in (0.0, 0.3, 1.4):
        end(limiter, limiter.admit(13, at_s), Outcome.RATE_LIMITED, at_s + 0.05)
    assert (limiter.limit, limiter.ceiling, limiter.blocked_until_s) == (12, 12, 0.0)
    limiter.set_maximum(16)
    return 3.0


def test_a_probe_that_fails_is_undone_at_once() -> None:
    limiter = aimd(16)
    now = ceiling_of_12(limiter)
    for number in range(8):
        limiter.room(12, now + 0.01 * number)
        end(limiter, limiter.admit(12, now + 0.01 * number), Outcome.SUCCESS, now + 1.0)
    limiter.room(12, now + 1.0)
    assert limiter.room(12, now + 2.5) == 1
    end(limiter, limiter.admit(13, now + 2.5), Outcome.RATE_LIMITED, now + 2.55, 9.0)
    assert (limiter.limit, limiter.ceiling, limiter.blocked_until_s) == (12, 12, 0.0)


def test_a_limit_that_rose_is_found_in_doubling_steps() -> None:
    limiter = aimd(64)
    now, limits = ceiling_of_12(limiter), []
    limiter.set_maximum(64)
    while now < 8.0:
        limiter.room(limiter.limit, now)
        end(limiter, limiter.admit(limiter.limit, now), Outcome.SUCCESS, now + 1.0)
        limits.append(limiter.limit)
        now += 0.01
    assert limits[-1] == 64
    assert all(later - before in (0, 1) for before, later in pairwise(limits)), "one at a time"


@pytest.mark.parametrize(
    ("now", "limit"), [(0.0, 1), (0.99, 1), (1.0, 2), (3.5, 4), (6.99, 7), (7.0, 8), (99.0, 8)]
)
def test_the_startup_ramp(now: float, limit: int) -> None:
    limiter = aimd(8, startup_ramp_s=7.0)
    assert limiter.room(0, now) == limit
    assert limiter.next_change_s(limit, now) == (math.floor(now) + 1.0 if now < 7.0 else NEVER)


def test_three_refusals_end_the_ramp_where_the_provider_stopped() -> None:
    """Some time apart: two calls at one moment may be too many, and no more in flight too few."""
    limiter = aimd(32, startup_ramp_s=31.0)
    assert limiter.room(0, 10.0) == 11
    end(limiter, limiter.admit(10, 9.0), Outcome.SUCCESS, 10.0)
    for at_s, again_s in ((10.0, 10.25), (10.25, 11.3)):
        end(limiter, limiter.admit(11, at_s), Outcome.RATE_LIMITED, at_s + 0.05)
        assert limiter.limit == 11, "it may be chance, or the rate: the same again"
        assert limiter.room(10, again_s - 0.01) == 0
        assert limiter.next_change_s(10, at_s + 0.05) == pytest.approx(again_s)
        assert limiter.room(10, again_s) == 1
    assert limiter.room(11, 12.0) == 0
    end(limiter, limiter.admit(11, 11.3), Outcome.RATE_LIMITED, 11.35)
    assert (limiter.limit, limiter.ceiling, limiter.blocked_until_s) == (10, 10, 0.0)


def test_a_ramp_goes_on_after_a_refusal_by_chance() -> None:
    limiter, now = aimd(32, startup_ramp_s=31.0), 10.0
    assert limiter.room(0, now) == 11
    end(limiter, limiter.admit(10, 9.0), Outcome.SUCCESS, 10.0)
    end(limiter, limiter.admit(11, now), Outcome.RATE_LIMITED, now + 0.01)
    while limiter.limit < 32 and now < 20.0:
        now += 0.01
        if limiter.room(limiter.limit - 1, now) > 0:
            limiter.admit(limiter.limit, now)
        limiter.room(limiter.limit, now)
    assert now < 12.0


def test_raising_a_cap_raises_the_limit_unless_refusals_say_less() -> None:
    limiter = aimd(8)
    limiter.set_maximum(20)
    assert limiter.limit == 20
    end(limiter, limiter.admit(19, 0.0), Outcome.SUCCESS, 0.1)
    for at_s in (1.0, 2.0, 4.0):
        end(limiter, limiter.admit(20, at_s), Outcome.RATE_LIMITED, at_s + 0.1)
    assert limiter.limit == 19
    limiter.set_maximum(40)
    assert limiter.limit == 19
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
    for admission in [limiter.admit(1, 1.0) for _ in range(4)]:
        end(limiter, admission, Outcome.PROVIDER_OVERLOADED, 1.0)
    assert limiter.blocked_until_s > 1.0


def test_what_we_cancelled_ourselves_says_nothing_of_the_provider() -> None:
    limiter = aimd(16)
    for outcome in (Outcome.PROVIDER_TIMEOUT, Outcome.LOCAL_CANCELLED) * 2:
        end(limiter, limiter.admit(16, 0.0), outcome, 0.0)
    assert limiter.limit == 16
    end(limiter, limiter.admit(16, 0.0), Outcome.PROVIDER_TIMEOUT, 0.0)
    assert limiter.limit == 12


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("decrease_factor", 1.0),
        ("decrease_factor", 0.0),
        ("cooldown_s", -1.0),
        ("startup_ramp_s", math.nan),
        ("jitter_fraction", 2.0),
    ],
)
def test_bad_settings_get_a_sentence(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name}: .* is not possible; allowed: "):
        AimdSettings(**{name: value})


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
    """Cooldown end released the whole limit at once; now at the rate that got through before."""
    limiter = make()
    succeed(limiter, 40, 2.0, took_s=1.0)
    alarm(limiter, 2.0, 5.0)
    now, starts = 7.0, []
    for in_flight in range(4):
        now = max(now, limiter.next_change_s(in_flight, now))
        limiter.admit(in_flight + 1, now)
        starts.append(now)
    assert all(later - before > 0.03 for before, later in pairwise(starts))


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
