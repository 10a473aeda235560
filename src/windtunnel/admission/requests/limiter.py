"""How many requests one endpoint takes at once, learned from what it answers.

A limiter is shown each admission and each outcome; it says how many may be in flight now, until
when none may start, and when that may change by itself. Every one keeps to the waits that a
provider asks for: they are never shortened, a little chance prolongs them, and their end lets work
start gently. `Limiter` has a fixed limit beside that; `AimdLimiter` learns from rate limits:

- it starts by growing from 1 to its maximum over a short ramp, so that a low limit is met by a
  few requests, not by all of them;
- a rate limit met while growing undoes the growth: the request that was one too many says where
  the provider stops. One met at a proven level cuts by a factor. Requests already in flight at a
  cut never cut again, so a burst of refusals is one cut;
- a refusal that stands alone among answers, at a level that was proven before, is the weather: a
  short rest and no cut. So is a second in the same burst; more of them, or another before enough
  answers came, mean what they say;
- the level that was refused becomes a soft ceiling. A run of successes raises the limit towards it
  by a step; beyond it the limiter probes now and then, one more at a time, and rarely where a
  failed probe costs a long Retry-After.
"""

from dataclasses import dataclass
from typing import Final

from mypy_extensions import mypyc_attr

from windtunnel.admission.reasons import Outcome
from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream

NEVER: Final = float("inf")
COOLDOWN_S: Final = 0.25
JITTER_FRACTION: Final = 0.01

_STEP_S_MIN: Final = 0.02
_STEP_S_MAX: Final = 1.0
_STEP_REJECTIONS: Final = 1.2
"""A step of careful growth lasts this many times what a refusal takes to come back."""
_PROBE_COST_RATIO: Final = 40.0
"""A probe that may cost a wait of t seconds is made at most every this many times t."""
_AFTER_A_CUT: Final = 2
_AFTER_A_PROBE: Final = 4
"""How much faster each step after a wait is: a level that was proven before is resumed sooner."""
_COOLDOWN_DOUBLINGS_MAX: Final = 6
_REST_DOUBLINGS_MAX: Final = 30
_REST_SERVICES: Final = 0.25
"""The first rest after a refusal without Retry-After, in times that an answer takes."""
_ALONE_AFTER: Final = 8
"""So many answers since the last refusal, and one more is alone."""
_ALONE_PART: Final = 8
"""Of what is in flight, so much of it refused in one burst is not alone any more."""
_TIMEOUTS_UNTIL_CUT: Final = 3
"""So many timeouts in a row mean overload; one now and then is the weather."""

_SUCCESS: Final = Outcome.SUCCESS
_RATE_LIMITED: Final = Outcome.RATE_LIMITED
_OVERLOADED: Final = Outcome.PROVIDER_OVERLOADED
_TIMEOUT: Final = Outcome.PROVIDER_TIMEOUT
_LOCAL: Final = (Outcome.LOCAL_CANCELLED, Outcome.LOCAL_TIMEOUT)


@dataclass(frozen=True, kw_only=True)
class AimdSettings:
    """How fast a limit grows and shrinks.

    decrease_factor: what a rate limit at a proven level leaves of the limit.
    increase_step: what a run of successes adds.
    successes_until_increase: the length of that run; any failure starts it anew.
    cooldown_s: how long nothing starts at most after a rate limit without Retry-After, and less
      where answers take less than four times that; doubled while the refusals go on without a
      success in between.
    startup_ramp_s: how long the first growth to the maximum takes; 0 starts at the maximum.
    probe_after_s: how long the limit rests at its soft ceiling before it tries one more, where an
      answer takes a second or longer; in proportion less where it takes less.
    jitter_fraction: by how much of itself a wait may be prolonged, so that processes which were
      refused together do not come back together.
    """

    decrease_factor: float = 0.75
    increase_step: int = 1
    successes_until_increase: int = 25
    cooldown_s: float = COOLDOWN_S
    startup_ramp_s: float = 0.6
    probe_after_s: float = 6.0
    jitter_fraction: float = JITTER_FRACTION

    def __post_init__(self) -> None:
        for name, is_right, allowed in (
            ("decrease_factor", 0.0 < self.decrease_factor < 1.0, "above 0, below 1"),
            ("increase_step", self.increase_step >= 1, "1 or more"),
            ("successes_until_increase", self.successes_until_increase >= 1, "1 or more"),
            ("cooldown_s", 0.0 <= self.cooldown_s < NEVER, "0 or more"),
            ("startup_ramp_s", 0.0 <= self.startup_ramp_s < NEVER, "0 or more"),
            ("probe_after_s", self.probe_after_s >= 0.0, "0 or more"),
            ("jitter_fraction", 0.0 <= self.jitter_fraction <= 1.0, "0 to 1"),
        ):
            if not is_right:
                what = f"{getattr(self, name)} is not possible"
                raise InputError(what, where=name, allowed=allowed)


class Admission:
    """What a limiter is reminded of when an admitted request ends."""

    def __init__(self, at_s: float, epoch: int, in_flight: int, limit: int) -> None:
        self.at_s: Final = at_s
        self.epoch: Final = epoch
        self.in_flight: Final = in_flight
        self.limit: Final = limit


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestLimiter:
    """A fixed limit that keeps to the waits it is given; what every limiter can do.

    A refusal (a rate limit, an overloaded server) stops everything for Retry-After, or for
    `cooldown_s`, doubled while the refusals go on. A stream prolongs that by up to
    `jitter_fraction`. Its end lets one request start, then more in each step, then all.
    """

    def __init__(
        self,
        maximum: int,
        stream: Stream | None = None,
        *,
        cooldown_s: float = COOLDOWN_S,
        jitter_fraction: float = JITTER_FRACTION,
    ) -> None:
        self.maximum = maximum
        self.limit = maximum
        self.ceiling = 0
        self.blocked_until_s = 0.0
        self.consecutive_rate_limits = 0
        self.epoch = 0
        self._stream: Final = stream
        self._cooldown_s: Final = cooldown_s
        self._jitter_fraction: Final = jitter_fraction
        self._rejection_s = 0.0
        self._service_s = 0.0
        self._is_resuming = False
        self._resume_at_s = NEVER
        self._resume_step = 1
        self._resume_factor = _AFTER_A_CUT
        self._allowance = 0

    def room(self, in_flight: int, now: float) -> int:
        """How many more may start now; 0 or less for none."""
        if now < self.blocked_until_s:
            return 0
        return self._gently(self.limit - in_flight, now)

    def next_change_s(self, in_flight: int, now: float) -> float:
        """When `room` may grow by itself, after now; infinity when only an outcome can."""
        if now < self.blocked_until_s:
            return self.blocked_until_s
        if self._is_resuming and in_flight < self.limit:
            return self._resume_at_s if self._resume_at_s > now else now
        return NEVER

    def admit(self, in_flight: int, now: float) -> Admission:
        """A request starts and is the `in_flight`-th."""
        if self._is_resuming:
            self._allowance -= 1
            if self._allowance == 0:
                self._resume_at_s = now + self._step_s()
        return Admission(now, self.epoch, in_flight, self.limit)

    def end(
        self,
        admission: Admission,
        outcome: Outcome,
        tokens: int,  # noqa: ARG002 - refusals do not depend on size
        retry_after_s: float,
        now: float,
    ) -> None:
        """A request ended; tokens are what it took, negative when that is not known."""
        is_fresh = admission.epoch == self.epoch
        if outcome is _RATE_LIMITED or outcome is _OVERLOADED:
            if is_fresh:
                self.epoch += 1
            self._wait(admission, retry_after_s, now, is_fresh)
        elif outcome is _SUCCESS:
            self._served(admission, now)
            if is_fresh:
                self.consecutive_rate_limits = 0

    def set_maximum(self, maximum: int) -> None:
        self.maximum = maximum
        self.limit = maximum

    def _wait(
        self,
        admission: Admission,
        retry_after_s: float,
        now: float,
        is_fresh: bool,  # noqa: FBT001 - compiled calls are cheaper by place
    ) -> float:
        """Keeps everything back after a refusal; returns for how long this one asked.

        A later, shorter wait never shortens a longer one. Refusals of one burst count as one.
        """
        took_s = now - admission.at_s
        known_s = self._rejection_s
        self._rejection_s = took_s if known_s == 0.0 else known_s + 0.3 * (took_s - known_s)
        if is_fresh:
            self.consecutive_rate_limits += 1
        wait_s = retry_after_s
        if not wait_s > 0.0:
            wait_s = self._rest_s()
        until_s = now + wait_s
        if until_s > self.blocked_until_s:
            self.blocked_until_s = until_s + self._jitter_s(wait_s)
        self._is_resuming = True
        self._resume_step = 1
        self._resume_at_s = self.blocked_until_s
        return wait_s

    def _jitter_s(self, wait_s: float) -> float:
        stream = self._stream
        if stream is None or self._jitter_fraction <= 0.0:
            return 0.0
        return wait_s * self._jitter_fraction * stream.uniform()

    def _served(self, admission: Admission, now: float) -> None:
        took_s = now - admission.at_s
        known_s = self._service_s
        self._service_s = took_s if known_s == 0.0 else known_s + 0.1 * (took_s - known_s)

    def _rest_s(self) -> float:
        """How long to rest where no reply says: a part of an answer's time, doubled each time."""
        first_s = self._cooldown_s
        if 0.0 < self._service_s * _REST_SERVICES < first_s:
            first_s = self._service_s * _REST_SERVICES
        doublings = max(0, min(self.consecutive_rate_limits - 1, _REST_DOUBLINGS_MAX))
        most_s = self._cooldown_s * 2.0**_COOLDOWN_DOUBLINGS_MAX
        return min(most_s, first_s * 2.0**doublings)

    def _gently(self, room: int, now: float) -> int:
        """What of the room may be used: after a wait one request, then ever more, then all."""
        if not self._is_resuming:
            return room
        if now >= self._resume_at_s:
            self._allowance = self._resume_step
            self._resume_step *= self._resume_factor
            self._resume_at_s = NEVER
            if self._allowance >= self.limit:
                self._is_resuming = False
                return room
        return self._allowance if self._allowance < room else room

    def _step_s(self) -> float:
        step_s = _STEP_REJECTIONS * self._rejection_s
        if step_s < _STEP_S_MIN:
            return _STEP_S_MIN
        return step_s if step_s < _STEP_S_MAX else _STEP_S_MAX


class AimdLimiter(RequestLimiter):
    """Additive increase, multiplicative decrease, with a ramp, a soft ceiling and probes."""

    def __init__(
        self, maximum: int, initial: int, settings: AimdSettings, stream: Stream, now: float
    ) -> None:
        super().__init__(
            maximum,
            stream,
            cooldown_s=settings.cooldown_s,
            jitter_fraction=settings.jitter_fraction,
        )
        self._settings: Final = settings
        self._streak = 0
        self._timeouts = 0
        self._answers = 0
        self._alone = 0
        self._is_growing = False
        self._grow_at_s = NEVER
        self._longest_wait_s = 0.0
        self._probe_at_s = 0.0
        self._ramp_from = 1
        self._ramp_target = 0
        self._ramp_start_s = now
        self.limit = min(max(1, initial), maximum)
        if settings.startup_ramp_s > 0.0 and self.limit > 1:
            self._ramp_target = self.limit
            self.limit = 1

    def room(self, in_flight: int, now: float) -> int:
        if now < self.blocked_until_s:
            return 0
        if self._ramp_target > 0:
            self._climb_ramp(now)
        if self._is_growing:
            self._grow(in_flight, now)
        return self._gently(self.limit - in_flight, now)

    def next_change_s(self, in_flight: int, now: float) -> float:
        if now < self.blocked_until_s:
            return self.blocked_until_s
        soonest = NEVER
        if self._ramp_target > 0:
            soonest = self._ramp_step_due_s()
        if self._is_growing and in_flight >= self.limit:
            soonest = min(soonest, self._grow_at_s)
        if self._is_resuming and in_flight < self.limit:
            soonest = min(soonest, self._resume_at_s)
        return soonest if soonest > now else now

    def end(
        self,
        admission: Admission,
        outcome: Outcome,
        tokens: int,  # noqa: ARG002 - refusals do not depend on size
        retry_after_s: float,
        now: float,
    ) -> None:
        if outcome is _RATE_LIMITED or outcome is _OVERLOADED:
            self._rate_limited(admission, retry_after_s, now)
        elif outcome is _SUCCESS:
            self._succeeded(admission, now)
        elif outcome not in _LOCAL:
            self._streak = 0
            self._timeouts = self._timeouts + 1 if outcome is _TIMEOUT else 0
            if self._timeouts >= _TIMEOUTS_UNTIL_CUT and admission.epoch == self.epoch:
                self._timeouts = 0
                self._lower(admission)

    def set_maximum(self, maximum: int) -> None:
        """A lower cap holds at once. A higher one is used at once unless rate limits say less."""
        was_free = self.ceiling == 0 and self.limit >= self.maximum
        self.maximum = maximum
        if self._ramp_target > 0:
            self._ramp_target = maximum
            self.limit = min(self.limit, maximum)
            if self.limit >= maximum:
                self._ramp_target = 0
        elif self.limit > maximum or was_free:
            self.limit = maximum
        if self.ceiling > maximum:
            self.ceiling = maximum

    def _ramp_step_due_s(self) -> float:
        """When the ramp allows one more than now; the same sum decides and predicts."""
        done = self.limit - self._ramp_from + 1
        slots = self._ramp_target - self._ramp_from
        return self._ramp_start_s + self._settings.startup_ramp_s * done / slots

    def _climb_ramp(self, now: float) -> None:
        while self.limit < self._ramp_target and now >= self._ramp_step_due_s():
            self.limit += 1
        if self.limit >= self._ramp_target:
            self._ramp_target = 0

    def _grow(self, in_flight: int, now: float) -> None:
        """One more each step while all that is allowed is used."""
        if in_flight >= self.limit and now >= self._grow_at_s:
            self.limit += 1
            self._grow_at_s = now + self._step_s()
            if self.limit >= self.maximum:
                self.limit = self.maximum
                self.ceiling = 0
                self._is_growing = False

    def _rate_limited(self, admission: Admission, retry_after_s: float, now: float) -> None:
        self._streak = 0
        is_fresh = admission.epoch == self.epoch
        if self._is_alone(is_fresh, retry_after_s):
            if is_fresh:
                self.epoch += 1
                rest_s = self._rest_s()
                rest_s += self._jitter_s(rest_s)
                self.blocked_until_s = max(self.blocked_until_s, now + rest_s)
            return
        if is_fresh or self._alone > 0:
            is_fresh = True
            self._lower(admission)
        wait_s = self._wait(admission, retry_after_s, now, is_fresh)
        if retry_after_s > 0.0 and wait_s > self._longest_wait_s:
            self._longest_wait_s = wait_s
        rest_s = self._settings.probe_after_s
        if 0.0 < self._service_s < 1.0:
            rest_s *= self._service_s  # a failed probe costs less where answers are fast
        rest_s = max(rest_s, _PROBE_COST_RATIO * self._longest_wait_s)
        self._probe_at_s = self.blocked_until_s + rest_s

    def _is_alone(self, is_fresh: bool, retry_after_s: float) -> bool:  # noqa: FBT001
        """Whether a refusal is one of few among many answers, at a level that was proven."""
        if retry_after_s > 0.0:
            return False
        if is_fresh:
            is_proven = self._ramp_target == 0 and not self._is_growing and not self._is_resuming
            is_first = is_proven and self._answers >= _ALONE_AFTER
            self._answers = 0
            self._alone = 1 if is_first else 0
            return is_first
        if self._alone == 0:
            return False
        self._alone += 1
        return self._alone <= max(2, self.limit // _ALONE_PART)

    def _lower(self, admission: Admission) -> None:
        """One cut for a burst; afterwards every request already in flight belongs to it."""
        self.epoch += 1
        self._alone = 0
        proven = max(1, admission.in_flight - 1)
        cut = max(1, int(self.limit * self._settings.decrease_factor))
        self._resume_factor = _AFTER_A_CUT
        if self._ramp_target > 0 or self._is_growing:
            self.limit = proven
            self._resume_factor = _AFTER_A_PROBE
        elif self._is_resuming:
            self.limit = min(cut, proven)
        else:
            self.limit = cut
        self._ramp_target = 0
        self._is_growing = False
        self.ceiling = max(proven, self.limit)

    def _succeeded(self, admission: Admission, now: float) -> None:
        self._served(admission, now)
        if admission.epoch != self.epoch or now < self.blocked_until_s:
            return
        self.consecutive_rate_limits = 0
        self._answers += 1
        self._timeouts = 0
        if self._ramp_target > 0:
            return
        self._streak += 1
        if self._streak < self._settings.successes_until_increase or self.limit >= self.maximum:
            return
        if self.ceiling == 0 or self.limit < self.ceiling:
            self._streak = 0
            top = self.ceiling if self.ceiling > 0 else self.maximum
            self.limit = min(top, self.limit + self._settings.increase_step)
        elif now >= self._probe_at_s and not self._is_growing:
            self._streak = 0
            self._is_growing = True
            self._grow_at_s = now
