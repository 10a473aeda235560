"""How many requests one endpoint takes at once, learned from what it answers.

A limiter is shown each admission and each outcome; it says how many may be in flight now, until
when none may start, and when that may change by itself. A refusal delays the call that got it. All
calls wait only while refusals are many of recent calls: then for the longest Retry-After among
them, which is never shortened and which a little chance prolongs. Afterwards starts are spread.
`RequestLimiter` has a fixed limit beside that; `AimdLimiter` learns it from refusals:

- it starts by growing from 1 to its maximum over a short ramp, so that a low limit is met by a
  few requests, not by all of them;
- two refusals above the level that was proven, one soon after the other, end the growth: that is
  where the provider stops, a soft ceiling. One by itself may be chance;
- refusals at a proven level are counted. More than 4 in 100 over a stretch of starts take off the
  places that refused calls hold. An alarm, three in a row or five that few others outweigh, cuts
  by a factor, once for all that is in flight;
- a run of successes raises the limit towards the ceiling by a step; beyond it the limiter probes,
  soon where the ceiling was met once, and less often where it was met again.
"""

import math
from dataclasses import dataclass
from typing import Final

from mypy_extensions import mypyc_attr

from windtunnel.admission.reasons import Outcome
from windtunnel.admission.requests.pace import Pace
from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream

NEVER: Final = float("inf")
COOLDOWN_S: Final = 0.25
JITTER_FRACTION: Final = 0.01

_STEP_S_MIN: Final = 0.02
_STEP_S_MAX: Final = 1.0
_STEP_REJECTIONS: Final = 1.2
"""A step of careful growth lasts this many times what a refusal takes to come back."""
_COOLDOWN_DOUBLINGS_MAX: Final = 6
_REST_DOUBLINGS_MAX: Final = 30
_REST_SERVICES: Final = 0.25
"""The first rest after a refusal without Retry-After, in times that an answer takes."""
_ALARM: Final = 5.0
"""So many refusals that no answers outweigh are many."""
_ALARM_RUN: Final = 3
"""So are so many that started one after another."""
_CLEARED: Final = 3.125
"""What a start takes from the suspicion, in shares that are tolerated; a refusal adds 1."""
_GROWTH_PART: Final = 20
"""Within this part of a ceiling is at the ceiling."""
_QUICK_PART: Final = 10
"""A step of growth is 1, and this part of the limit."""
_PROBES_AT_ONCE: Final = 2
"""A ceiling that was met so often again is one: the limit rests there before it is tried."""
_ANSWERS_BEFORE_PROBE: Final = (8, 16, 32, 40)
"""By how often the ceiling was met again."""
_GROWTH_SERVICES: Final = 0.25
"""A step beyond a ceiling lasts at least so much of the time that an answer takes."""
_NOTCH_MAX: Final = 8
_MANY: Final = 0.2
_TRIAL_REFUSALS: Final = 2
_IN_VAIN: Final = 4
"""So many stretches at ever slower paces with too many refusals, and the pace is given up."""
_TOLERATED: Final = 0.04
"""The share of a stretch of starts that may be refused by chance."""
_DOUBT_REJECTIONS: Final = 3.0
"""How long growth waits for a second refusal, in times that a refusal takes."""
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

    def __init__(self, at_s: float, epoch: int, in_flight: int, number: int) -> None:
        self.at_s: Final = at_s
        self.epoch: Final = epoch
        self.in_flight: Final = in_flight
        self.number: Final = number


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestLimiter:
    """A fixed limit that stops while many are refused; what every limiter can do.

    A refusal (a rate limit, an overloaded server) is held against the answers around it: each adds
    to a suspicion from which eight answers take it away again. A few refusals among many answers
    change nothing, and only the call that was told to wait waits. At an alarm nothing starts for
    the longest Retry-After among them, or for `cooldown_s`, doubled while nothing succeeds; a
    stream prolongs that by up to `jitter_fraction`. Its end lets one request start, then more in
    each step, then all. An alarm soon after another sets a pace.
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
        self.pace: Final = Pace()
        self._stream: Final = stream
        self._cooldown_s: Final = cooldown_s
        self._jitter_fraction: Final = jitter_fraction
        self._rejection_s = 0.0
        self._service_s = 0.0
        self._suspicion = 0.0
        self._asked_until_s = 0.0
        self._alarms = 0
        self._alarmed_s = NEVER
        self._tolerated = _TOLERATED
        self._in_vain = 0
        self._stretch_s = 0.0
        self._starts = 0
        self._refusals = 0
        self._through_since = 0
        self._resuming = 0
        self._number = 0
        self._last_refused = 0
        self._run = 0

    def room(self, in_flight: int, now: float) -> int:
        """How many more may start now; 0 or less for none."""
        if now < self.blocked_until_s or now < self.pace.next_s:
            return 0
        return self.limit - in_flight

    def next_change_s(self, in_flight: int, now: float) -> float:
        """When `room` may grow by itself, after now; infinity when only an outcome can."""
        if now < self.blocked_until_s:
            return self.blocked_until_s
        if in_flight >= self.limit:
            return NEVER
        return max(now, self.pace.next_s)

    def admit(self, in_flight: int, now: float) -> Admission:
        """A request starts and is the `in_flight`-th."""
        self.pace.start(now)
        self._starts += 1
        self._through_since += 1
        self._suspicion -= _CLEARED * self._tolerated
        if self._suspicion <= 0.0:
            self._suspicion = 0.0
            self._alarms = 0
            self._asked_until_s = 0.0
        if self._starts >= self.pace.stretch:
            self._close_stretch(now)
        if self._resuming > 0:
            # As many as may be in flight are spread over the time that one takes.
            self._resuming -= 1
            took_s = self._service_s if self._service_s > 0.0 else self._step_s() * self.limit
            self.pace.space(now + took_s / self.limit)
        self._number += 1
        return Admission(now, self.epoch, in_flight, self._number)

    def end(
        self,
        admission: Admission,
        outcome: Outcome,
        tokens: int,  # noqa: ARG002 - refusals do not depend on size
        retry_after_s: float,
        now: float,
    ) -> None:
        """A request ended; tokens are what it took, negative when that is not known."""
        if outcome is _RATE_LIMITED or outcome is _OVERLOADED:
            self._refused(admission, retry_after_s, now)
        elif outcome is _SUCCESS:
            self._served(admission, now)

    def set_maximum(self, maximum: int) -> None:
        self.maximum = maximum
        self.limit = maximum

    def _refused(self, admission: Admission, retry_after_s: float, now: float) -> None:
        """Counts a refusal against the answers before it; many of them are an alarm.

        Refusals of one burst count as one: of those in flight at an alarm, the longest wait is
        kept to, and a later, shorter one never shortens it.
        """
        took_s = now - admission.at_s
        known_s = self._rejection_s
        self._rejection_s = took_s if known_s == 0.0 else known_s + 0.3 * (took_s - known_s)
        asked_until_s = now + retry_after_s if retry_after_s > 0.0 else 0.0
        if admission.at_s >= self._alarmed_s:
            self._through_since -= 1
        if admission.epoch != self.epoch:
            if now < self.blocked_until_s:
                self._block(asked_until_s, now)
            return
        if self._explains(admission, now):
            return
        self._refusals += 1
        self._run = self._run + 1 if admission.number == self._last_refused + 1 else 1
        self._last_refused = admission.number
        self._suspicion = min(_ALARM, self._suspicion + 1.0 + _CLEARED * self._tolerated)
        if self._run >= _ALARM_RUN:
            self._suspicion = _ALARM
        self._asked_until_s = max(self._asked_until_s, asked_until_s)
        if self._suspicion >= _ALARM:
            self._alarm(admission, now)

    def _explains(self, admission: Admission, now: float) -> bool:  # noqa: ARG002
        """Whether a refusal says only that the limit grew too far; that is taken back."""
        return False

    def _close_stretch(self, now: float) -> None:
        """Looks at what became of the last few starts, and begins to count anew."""
        elapsed_s = max(1e-6, now - self._stretch_s)
        through_per_s = (self._starts - self._refusals) / elapsed_s
        if self._refusals <= self._tolerated * self._starts:
            self._in_vain = 0
            self.pace.grow(self._starts / elapsed_s)
        elif self.pace.per_s == NEVER:
            self._shrink(through_per_s, self._refusals / elapsed_s)
        else:
            self.pace.hold(through_per_s, now)
            self._in_vain += 1
            if self._in_vain >= _IN_VAIN:
                # As many are refused however slow the pace: it is not the rate.
                self.pace.drop()
                self._tolerated = min(0.5, 2.0 * self._refusals / self._starts)
        self._begin_stretch(now)

    def _begin_stretch(self, now: float) -> None:
        self._stretch_s = now
        self._starts = self._refusals = 0

    def _shrink(self, through_per_s: float, refused_per_s: float) -> None:
        """More are refused than by chance."""

    def _alarm(self, admission: Admission, now: float) -> None:
        """Many of the recent answers are refusals: one reaction for all that is in flight."""
        through, elapsed_s = self._starts - self._refusals, now - self._stretch_s
        self._alarms += 1
        if self._alarms == 1:
            self._alarmed_s = now
            self._through_since = 0
        elif self._alarms > 2:
            # By now the waits between are part of the rate.
            through, elapsed_s = self._through_since, now - self._alarmed_s
        self.epoch += 1
        if through > 0 and elapsed_s > 0.0 and (self._alarms > 1 or self.pace.per_s < NEVER):
            self.pace.begin(through / elapsed_s, now)
        self._lower(admission)
        self.consecutive_rate_limits += 1
        self._block(self._asked_until_s, now)
        self._asked_until_s = 0.0
        self._begin_stretch(max(now, self.blocked_until_s))

    def _lower(self, admission: Admission) -> None:
        """Takes the limit down after an alarm."""

    def _block(self, asked_until_s: float, now: float) -> None:
        """Lets nothing start until then, or for a rest where no reply says how long."""
        wait_s = asked_until_s - now if asked_until_s > now else self._rest_s()
        if now + wait_s <= self.blocked_until_s:
            return
        self.blocked_until_s = now + wait_s
        if self._stream is not None and self._jitter_fraction > 0.0:
            self.blocked_until_s += wait_s * self._jitter_fraction * self._stream.uniform()
        self._resuming = self.limit

    def _served(self, admission: Admission, now: float) -> bool:
        """A request was answered; whether it started after whatever was last reacted to."""
        took_s = now - admission.at_s
        known_s = self._service_s
        self._service_s = took_s if known_s == 0.0 else known_s + 0.1 * (took_s - known_s)
        if admission.epoch != self.epoch or now < self.blocked_until_s:
            return False
        self.consecutive_rate_limits = 0
        return True

    def _rest_s(self) -> float:
        """How long to rest where no reply says: a part of an answer's time, doubled each time."""
        first_s = self._cooldown_s
        if 0.0 < self._service_s * _REST_SERVICES < first_s:
            first_s = self._service_s * _REST_SERVICES
        doublings = max(0, min(self.consecutive_rate_limits - 1, _REST_DOUBLINGS_MAX))
        most_s = self._cooldown_s * 2.0**_COOLDOWN_DOUBLINGS_MAX
        return min(most_s, first_s * 2.0**doublings)

    def _step_s(self) -> float:
        step_s = _STEP_REJECTIONS * self._rejection_s
        if step_s < _STEP_S_MIN:
            return _STEP_S_MIN
        return step_s if step_s < _STEP_S_MAX else _STEP_S_MAX


class AimdLimiter(RequestLimiter):
    """Additive increase, multiplicative decrease, with a ramp, a soft ceiling and probes."""

    def __init__(self, maximum: int, settings: AimdSettings, stream: Stream, now: float) -> None:
        super().__init__(
            maximum,
            stream,
            cooldown_s=settings.cooldown_s,
            jitter_fraction=settings.jitter_fraction,
        )
        self._settings: Final = settings
        self._streak = 0
        self._timeouts = 0
        self._is_growing = False
        self._is_doubted = False
        self._grow_at_s = NEVER
        self._proven = 0
        self._notch = 0
        self._settled_s = 0.0
        self._trial_refusals = 0
        self._failed_probes = 0
        self._probe_at_s = 0.0
        self._ramp_target = 0
        self._ramp_start_s = now
        if settings.startup_ramp_s > 0.0 and maximum > 1:
            self._ramp_target = maximum
            self.limit = 1

    def room(self, in_flight: int, now: float) -> int:
        if now < self.blocked_until_s or now < self.pace.next_s:
            return 0
        if self._ramp_target > 0:
            self._climb_ramp(now)
        if self._is_growing:
            self._grow(in_flight, now)
        return self.limit - in_flight

    def next_change_s(self, in_flight: int, now: float) -> float:
        soonest = super().next_change_s(in_flight, now)
        if now < self.blocked_until_s:
            return soonest
        if self._ramp_target > 0:
            soonest = min(soonest, self._ramp_step_due_s())
        if self._is_growing and in_flight >= self.limit:
            soonest = min(soonest, max(self._grow_at_s, self.pace.next_s))
        return max(now, soonest)

    def end(
        self,
        admission: Admission,
        outcome: Outcome,
        tokens: int,  # noqa: ARG002 - refusals do not depend on size
        retry_after_s: float,
        now: float,
    ) -> None:
        if outcome is _RATE_LIMITED or outcome is _OVERLOADED:
            self._streak = 0
            self._refused(admission, retry_after_s, now)
        elif outcome is _SUCCESS:
            if self._served(admission, now):
                self._succeeded(admission, now)
        elif outcome not in _LOCAL:
            self._streak = 0
            self._timeouts = self._timeouts + 1 if outcome is _TIMEOUT else 0
            if self._timeouts >= _TIMEOUTS_UNTIL_CUT and admission.epoch == self.epoch:
                self._timeouts = 0
                self.epoch += 1
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
        slots = self._ramp_target - 1
        return self._ramp_start_s + self._settings.startup_ramp_s * self.limit / slots

    def _climb_ramp(self, now: float) -> None:
        while self.limit < self._ramp_target and now >= self._ramp_step_due_s():
            self.limit += 1
        if self.limit >= self._ramp_target:
            self._ramp_target = 0
            self._settled_s = now + 2.0 * self._service_s

    def _grow(self, in_flight: int, now: float) -> None:
        """A little more each step while all that is allowed is used."""
        if in_flight >= self.limit and now >= self._grow_at_s:
            is_known = (
                self._failed_probes >= _PROBES_AT_ONCE
                and self.limit <= self.ceiling + self.ceiling // _GROWTH_PART
            )
            self.limit += 1 if is_known else 1 + self.limit // _QUICK_PART
            self._is_doubted = False
            step_s = self._step_s()
            if is_known:
                step_s = max(step_s, _GROWTH_SERVICES * self._service_s)
            self._grow_at_s = now + step_s
            self._settled_s = now + 2.0 * self._service_s
            if self._notch > 0:
                self.limit += self._notch - 1
                self._is_growing = False
            if self.limit >= self.maximum:
                self.limit = self.maximum
                self._is_growing = False

    def _explains(self, admission: Admission, now: float) -> bool:
        """A refusal above the level that was proven ends the growth there, and stops nothing."""
        if admission.in_flight > self.limit and not self._is_doubted:
            return True  # it started before the limit was lowered
        is_growing = self._ramp_target > 0 or self._is_growing or now < self._settled_s
        if not is_growing:
            return False
        if admission.in_flight <= self._proven:
            if self._failed_probes < _PROBES_AT_ONCE or self._ramp_target > 0:
                return False
            self._trial_refusals += 1
            if self._trial_refusals < _TRIAL_REFUSALS:
                return False
            self._proven = max(1, self.ceiling)
            self.epoch += 1
        self._ramp_target = 0
        if not self._is_doubted and admission.in_flight > self.ceiling + 1:
            # Chance perhaps: where the provider stops, the next one is refused as well, and soon.
            self._is_doubted = self._is_growing = True
            self.limit = max(self._proven, admission.in_flight)
            self._grow_at_s = now + _DOUBT_REJECTIONS * max(_STEP_S_MIN, self._rejection_s)
            return True
        self._is_growing = False
        self._settled_s = 0.0
        self._trial_refusals = 0
        self._notch = min(1, self._notch)
        self.limit = max(1, self._proven, min(self.limit, admission.in_flight) - 1)
        is_confirmed = (
            self.ceiling > 0 and self.limit <= self.ceiling + self.ceiling // _GROWTH_PART
        )
        self._failed_probes = self._failed_probes + 1 if is_confirmed else 0
        self.ceiling = self.limit
        self._rest_before_probe(now)
        return True

    def _shrink(self, through_per_s: float, refused_per_s: float) -> None:
        """Takes off the places that refused calls hold; many of them, and what answers need stays.

        Both are rates times the time that one of them takes.
        """
        lowered = self.limit - max(1, round(refused_per_s * self._rejection_s))
        if refused_per_s > _MANY * through_per_s:
            lowered = min(lowered, math.ceil(through_per_s * self._service_s))
        self.limit = self.ceiling = max(1, lowered)
        self._proven = min(self._proven, self.limit)
        self._ramp_target = 0
        self._is_growing = False

    def _rest_before_probe(self, now: float) -> None:
        rest_s = 0.0
        if self._failed_probes >= _PROBES_AT_ONCE:
            rest_s = max(1.0, self._settings.probe_after_s * min(1.0, self._service_s))
        self._probe_at_s = now + rest_s

    def _lower(self, admission: Admission) -> None:
        proven = max(1, admission.in_flight - 1)
        cut = max(1, int(self.limit * self._settings.decrease_factor))
        if self._ramp_target > 0 or self._is_growing:
            self.limit = proven
        elif self._resuming > 0:
            self.limit = max(1, min(self.limit // 2, proven))
        else:
            self.limit = cut
        self._ramp_target = 0
        self._is_growing = False
        self._proven = min(self._proven, self.limit)
        self.ceiling = max(proven, self.limit)
        self._failed_probes = _PROBES_AT_ONCE
        self._notch = 1
        self._rest_before_probe(max(self.blocked_until_s, self._asked_until_s))

    def _succeeded(self, admission: Admission, now: float) -> None:
        self._timeouts = 0
        self._proven = max(self._proven, min(self.limit, admission.in_flight))
        if self._proven >= self.maximum:
            self.ceiling = 0
            self._failed_probes = 0
        if self._ramp_target > 0:
            return
        self._streak += 1
        if self.limit >= self.maximum:
            return
        if self.ceiling == 0 or self.limit < self.ceiling:
            if self._streak >= self._settings.successes_until_increase:
                self._streak = 0
                top = self.ceiling if self.ceiling > 0 else self.maximum
                self.limit = min(top, self.limit + self._settings.increase_step)
        elif (
            self._streak >= self._answers_before_probe()
            and now >= self._probe_at_s
            and self._suspicion == 0.0
            and not self._is_growing
        ):
            self._probe(now)

    def _probe(self, now: float) -> None:
        """Begins to grow; after an alarm by one step, and by more after each that held."""
        if self._notch > 0 and self.limit > self.ceiling:
            self.ceiling = self.limit
            self._notch = 2 * self._notch if self._notch < _NOTCH_MAX else 0
        self._streak = 0
        self._is_growing = True
        self._grow_at_s = now
        self._trial_refusals = 0

    def _answers_before_probe(self) -> int:
        """Few where a ceiling was met once, by chance perhaps; more where it was met again."""
        if self._failed_probes == 0:
            return min(_ANSWERS_BEFORE_PROBE[0], 2 * self.limit)
        return _ANSWERS_BEFORE_PROBE[min(self._failed_probes, 3)]
