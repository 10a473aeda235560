"""Limits: AIMD with its ramps, ceilings and probes, the gradient limiter, and waits of all."""

import math
from collections.abc import Callable

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


def aimd(maximum: int = 32, initial: int = 1000, **settings: float) -> AimdLimiter:
    chosen = {"startup_ramp_s": 0.0, "jitter_fraction": 0.0} | settings
    return AimdLimiter(maximum, initial, AimdSettings(**chosen), Stream(1, "test"), 0.0)  # type: ignore[arg-type]


def end(
    limiter: AimdLimiter,
    admission: Admission,
    outcome: Outcome,
    now: float,
    retry_after_s: float = 0.0,
) -> None:
    limiter.end(admission, outcome, -1, retry_after_s, now)


def succeed(limiter: AimdLimiter, times: int, now: float) -> None:
    for _ in range(times):
        end(limiter, limiter.admit(limiter.limit, now), Outcome.SUCCESS, now)


def resume(limiter: AimdLimiter, now: float) -> float:
    """Lets requests start after a wait until the whole limit may, and says when that was."""
    while limiter.room(0, now) < limiter.limit:
        for _ in range(limiter.room(0, now)):
            limiter.admit(1, now)
        now += 1.0
    return now


def test_the_ladder_of_cuts_from_32() -> None:
    limiter, seen, now = aimd(), [32], 0.0
    for _ in range(9):
        admission = limiter.admit(limiter.limit, now)
        end(limiter, admission, Outcome.RATE_LIMITED, now)
        seen.append(limiter.limit)
        now = resume(limiter, limiter.blocked_until_s)
    assert seen == [32, 24, 18, 13, 9, 6, 4, 3, 2, 1]


def test_several_cuts_per_429_burst() -> None:
    """One cut for a burst; a fresh refusal afterwards cuts again."""
    limiter = aimd(8)
    burst = [limiter.admit(number, 0.0) for number in range(1, 9)]
    for admission in burst:
        end(limiter, admission, Outcome.RATE_LIMITED, 1.0)
    assert limiter.limit == 6
    fresh = limiter.admit(6, 10.0)
    end(limiter, fresh, Outcome.RATE_LIMITED, 10.0)
    assert limiter.limit == 4


def test_a_refusal_from_an_old_burst_never_cuts_after_recovery() -> None:
    limiter = aimd(8, successes_until_increase=1)
    late = limiter.admit(8, 0.0)
    end(limiter, limiter.admit(8, 0.0), Outcome.RATE_LIMITED, 0.0)
    succeed(limiter, 1, 5.0)
    assert limiter.limit == 7
    end(limiter, late, Outcome.RATE_LIMITED, 6.0)
    assert limiter.limit == 7


def test_a_shorter_retry_after_never_shortens_a_longer_one() -> None:
    limiter = aimd()
    end(limiter, limiter.admit(2, 0.0), Outcome.RATE_LIMITED, 0.0, 30.0)
    end(limiter, limiter.admit(1, 0.0), Outcome.RATE_LIMITED, 0.5, 1.0)
    assert limiter.blocked_until_s == 30.0
    assert limiter.room(0, 29.9) == 0
    assert limiter.next_change_s(0, 29.9) == 30.0
    assert limiter.room(0, 30.0) == 1


def test_jitter_only_prolongs_a_wait() -> None:
    waits = set()
    for seed in range(20):
        settings = AimdSettings(startup_ramp_s=0.0, jitter_fraction=0.1)
        limiter = AimdLimiter(8, 8, settings, Stream(seed, "jitter"), 0.0)
        end(limiter, limiter.admit(1, 0.0), Outcome.RATE_LIMITED, 0.0, 10.0)
        assert 10.0 <= limiter.blocked_until_s <= 11.0
        waits.add(limiter.blocked_until_s)
    assert len(waits) == 20


def test_the_cooldown_doubles_while_nothing_succeeds() -> None:
    limiter, now, waits = aimd(cooldown_s=0.5), 0.0, []
    for _ in range(4):
        end(limiter, limiter.admit(1, now), Outcome.RATE_LIMITED, now)
        waits.append(limiter.blocked_until_s - now)
        now = limiter.blocked_until_s
    assert waits == [0.5, 1.0, 2.0, 4.0]
    succeed(limiter, 1, now)
    end(limiter, limiter.admit(1, now), Outcome.RATE_LIMITED, now)
    assert limiter.blocked_until_s - now == 0.5


def test_the_end_of_a_cooldown_lets_work_start_gently() -> None:
    """Cooldown end released the whole limit at once."""
    limiter = aimd(32)
    end(limiter, limiter.admit(32, 0.0), Outcome.RATE_LIMITED, 0.1)
    now, started = limiter.blocked_until_s, []
    in_flight = 0
    for _ in range(6):
        room = limiter.room(in_flight, now)
        for _ in range(room):
            in_flight += 1
            limiter.admit(in_flight, now)
        started.append(room)
        now = max(now, min(limiter.next_change_s(in_flight, now), now + 10.0))
    assert started == [1, 2, 4, 8, 9, 0]


def test_the_soft_ceiling_caps_recovery_and_is_lowered_and_cleared() -> None:
    """It was written once, fed telemetry only, and never capped anything."""
    limiter = aimd(16, successes_until_increase=2, probe_after_s=50.0)
    end(limiter, limiter.admit(16, 0.0), Outcome.RATE_LIMITED, 0.0)
    assert (limiter.limit, limiter.ceiling) == (12, 15)
    now = resume(limiter, 5.0)
    succeed(limiter, 40, now)
    assert limiter.limit == 15
    end(limiter, limiter.admit(10, now), Outcome.RATE_LIMITED, now)
    assert (limiter.limit, limiter.ceiling) == (15, 15), "one alone says nothing"
    end(limiter, limiter.admit(10, now), Outcome.RATE_LIMITED, now)
    assert (limiter.limit, limiter.ceiling) == (11, 11)
    now = resume(limiter, 100.0)
    succeed(limiter, 2, now)
    for _ in range(20):
        limiter.room(limiter.limit, now)
        now = min(limiter.next_change_s(limiter.limit, now), now + 1.0)
    assert (limiter.limit, limiter.ceiling) == (16, 0)


def test_a_refusal_alone_among_answers_costs_a_short_rest() -> None:
    """It stopped everything for a quarter of a second and more, however fast answers were."""
    limiter = aimd(32)
    for _ in range(40):
        end(limiter, limiter.admit(32, 0.0), Outcome.SUCCESS, 0.02)
    burst = [limiter.admit(32, 1.0) for _ in range(6)]
    for admission in burst[:4]:
        end(limiter, admission, Outcome.RATE_LIMITED, 1.0)
        assert (limiter.limit, limiter.ceiling) == (32, 0)
        assert limiter.blocked_until_s == pytest.approx(1.005)
    assert limiter.room(0, 1.006) == 32
    end(limiter, burst[4], Outcome.RATE_LIMITED, 1.0)
    assert limiter.limit == 24, "more than an eighth of what is in flight is a burst"


def test_a_lone_refusal_with_retry_after_is_kept_to() -> None:
    limiter = aimd(32)
    for _ in range(40):
        end(limiter, limiter.admit(32, 0.0), Outcome.SUCCESS, 0.02)
    end(limiter, limiter.admit(32, 1.0), Outcome.RATE_LIMITED, 1.0, retry_after_s=3.0)
    assert limiter.blocked_until_s >= 4.0
    assert limiter.limit == 24


def test_a_probe_that_fails_is_undone_without_a_cut() -> None:
    limiter = aimd(16, successes_until_increase=2, probe_after_s=1.0)
    end(limiter, limiter.admit(9, 0.0), Outcome.RATE_LIMITED, 0.0)
    resume(limiter, 1.0)
    succeed(limiter, 2, 10.0)
    assert limiter.limit == 12
    assert limiter.room(12, 10.0) == 1
    end(limiter, limiter.admit(13, 10.0), Outcome.RATE_LIMITED, 10.05)
    assert limiter.limit == 12


def test_probes_are_rare_where_a_failed_one_costs_a_long_wait() -> None:
    limiter = aimd(16, successes_until_increase=1, probe_after_s=1.0)
    end(limiter, limiter.admit(9, 0.0), Outcome.RATE_LIMITED, 0.0, 5.0)
    resume(limiter, 5.0)
    succeed(limiter, 50, 100.0)
    assert limiter.room(limiter.limit, 100.0) == 0
    succeed(limiter, 1, 206.0)
    assert limiter.room(limiter.limit, 206.0) == 1


def test_25_consecutive_successes_are_consecutive() -> None:
    limiter = aimd(16)
    end(limiter, limiter.admit(16, 0.0), Outcome.RATE_LIMITED, 0.0)
    succeed(limiter, 24, 5.0)
    end(limiter, limiter.admit(1, 5.0), Outcome.PROVIDER_FAILURE, 5.0)
    succeed(limiter, 24, 5.0)
    assert limiter.limit == 12
    succeed(limiter, 1, 5.0)
    assert limiter.limit == 13


def test_what_we_cancelled_ourselves_says_nothing_of_the_provider() -> None:
    limiter = aimd(16)
    end(limiter, limiter.admit(16, 0.0), Outcome.RATE_LIMITED, 0.0)
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


def test_a_refusal_ends_the_ramp_where_the_provider_stopped() -> None:
    limiter = aimd(32, startup_ramp_s=31.0)
    assert limiter.room(0, 10.0) == 11
    end(limiter, limiter.admit(9, 10.0), Outcome.RATE_LIMITED, 10.05)
    assert (limiter.limit, limiter.ceiling) == (8, 8)


def test_raising_a_cap_raises_the_limit_unless_refusals_say_less() -> None:
    limiter = aimd(8)
    limiter.set_maximum(20)
    assert limiter.limit == 20
    end(limiter, limiter.admit(20, 0.0), Outcome.RATE_LIMITED, 0.0)
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
    end(limiter, limiter.admit(12, 1.0), Outcome.PROVIDER_OVERLOADED, 1.0)
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
    first, second = limiter.admit(4, 0.0), limiter.admit(3, 0.0)
    limiter.end(first, Outcome.RATE_LIMITED, -1, 9.0, 0.0)
    limiter.end(second, Outcome.PROVIDER_OVERLOADED, -1, 1.0, 0.0)
    assert limiter.blocked_until_s == 9.0
    assert (limiter.room(0, 8.9), limiter.next_change_s(0, 8.9)) == (0, 9.0)
    assert limiter.room(0, 9.0) == 1


@LIMITERS
def test_every_limiter_waits_longer_while_refusals_go_on(
    make: Callable[..., RequestLimiter],
) -> None:
    limiter, now, waits = make(), 0.0, []
    for _ in range(4):
        burst = [limiter.admit(number, now) for number in (1, 2)]
        for admission in burst:
            limiter.end(admission, Outcome.RATE_LIMITED, -1, 0.0, now)
        waits.append(limiter.blocked_until_s - now)
        now = limiter.blocked_until_s
    assert [wait / waits[0] for wait in waits] == [1.0, 2.0, 4.0, 8.0]
    limiter.end(limiter.admit(1, now), Outcome.SUCCESS, -1, 0.0, now)
    limiter.end(limiter.admit(1, now), Outcome.RATE_LIMITED, -1, 0.0, now)
    assert limiter.blocked_until_s - now == waits[0]


@LIMITERS
def test_every_limiter_prolongs_a_wait_by_chance(make: Callable[..., RequestLimiter]) -> None:
    """Without jitter, processes that were refused together come back together."""
    ends = set()
    for seed in range(20):
        limiter = make(Stream(seed, "jitter"))
        limiter.end(limiter.admit(1, 0.0), Outcome.RATE_LIMITED, -1, 10.0, 0.0)
        assert 10.0 <= limiter.blocked_until_s <= 10.1
        ends.add(limiter.blocked_until_s)
    assert len(ends) == 20


@pytest.mark.parametrize(("make", "steps"), [(fixed, [1, 2, 4, 1]), (gradient, [1, 2, 4, 2])])
def test_every_limiter_starts_gently_after_a_wait(
    make: Callable[..., RequestLimiter], steps: list[int]
) -> None:
    """Cooldown end released the whole limit at once; the gradient limiter has been cut to 9."""
    limiter = make()
    limiter.end(limiter.admit(8, 0.0), Outcome.RATE_LIMITED, -1, 5.0, 0.1)
    now, started, in_flight = limiter.blocked_until_s, [], 0
    for _ in range(4):
        room = limiter.room(in_flight, now)
        for _ in range(room):
            in_flight += 1
            limiter.admit(in_flight, now)
        started.append(room)
        if in_flight < limiter.limit:
            assert now < limiter.next_change_s(in_flight, now) < now + 1.0
            now = limiter.next_change_s(in_flight, now)
    assert started == steps
    assert limiter.next_change_s(in_flight, now) == NEVER


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
