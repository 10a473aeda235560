"""How many requests one endpoint takes at once, learned from its answers.

A limiter sees each admission and each outcome; it says how many may be in flight now, until when
none may start, and when that may change by itself. A refusal delays the call that got it. All
calls wait only after a run of refusals too long for chance: then for the longest Retry-After among
them, which is never shortened, plus a little jitter. `Pace` finds which refusals are random and
which are due to a limit on the rate of starts, `Minute` finds a limit per minute. `RequestLimiter`
adds a fixed limit to that; `AimdLimiter` learns it:

- it starts by growing from 1 to its maximum over a short ramp, so that a low limit is hit by a
  few requests, not by all of them;
- a level is *proven* when a call that filled it was not refused. Refusals above it, repeated after
  pauses, show how many the provider serves at once, a soft ceiling: the limit goes back below
  them, and nothing stops. Where the ceiling was hit before, one refusal is enough. A level that is
  accepted after a pause was refused at random or for the rate: that is reported to the pace;
- refusals at a proven level have another cause, and are left to the pace;
- consecutive timeouts cut the limit by a factor, once for all calls in flight;
- the limit grows again by 1 after 8 to 40 starts, and doubles that growth whenever it is proven.
"""

from dataclasses import dataclass
from typing import Final

from mypy_extensions import mypyc_attr

from windtunnel.admission.reasons import Outcome
from windtunnel.admission.requests.minute import LONG_S, Minute
from windtunnel.admission.requests.pace import TOLERATED, Pace
from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream

NEVER: Final = float("inf")
COOLDOWN_S: Final = 0.25
JITTER_FRACTION: Final = 0.01

_COOLDOWN_DOUBLINGS_MAX: Final = 6
_REST_SERVICES: Final = 0.25
"""The first rest after a run of refusals without Retry-After, in multiples of the service time."""
_IDLE_S: Final = 1.0
"""With no call in flight for this long, although one could start, there is no demand."""
_PROBE_STARTS: Final = (8, 16, 32, 40)
"""Starts at a limit before one more is tried, by how often it was refused there: a single refusal
may be random, and at a limit that was hit again and again 2.5 of 100 starts are refused."""
_KNOWN_REFUSALS: Final = 1.5
"""A start that was not refused within this many times the duration of a refusal was accepted."""
_PAUSES_S: Final[tuple[float, ...]] = (0.2, 1.0)
"""A refused level above the proven one is tried again after these times, each longer than strict
spacing of starts requires at 5 and at 1 per second; refused each time, it is a ceiling."""
_LONGEST_RUN: Final = 256
"""Refusals that are remembered: more than any run that stops a limiter."""
_TIMEOUTS_UNTIL_CUT: Final = 3
"""This many consecutive timeouts mean overload; occasional ones are noise."""

_SUCCESS: Final = Outcome.SUCCESS
_RATE_LIMITED: Final = Outcome.RATE_LIMITED
_OVERLOADED: Final = Outcome.PROVIDER_OVERLOADED
_TIMEOUT: Final = Outcome.PROVIDER_TIMEOUT
_LOCAL: Final = (Outcome.LOCAL_CANCELLED, Outcome.LOCAL_TIMEOUT)


@dataclass(frozen=True, kw_only=True)
class AimdSettings:
    """How fast a limit grows and shrinks.

    decrease_factor: the part of the limit that remains after consecutive timeouts.
    cooldown_s: the longest time without starts after a run of refusals without Retry-After; less
      if answers take less than four times that; doubled while nothing succeeds.
    startup_ramp_s: how long the first growth to the maximum takes; 0 starts at the maximum.
    jitter_fraction: the largest fraction by which a wait is prolonged, so that processes that were
      refused together do not come back together.
    """

    decrease_factor: float = 0.75
    cooldown_s: float = COOLDOWN_S
    startup_ramp_s: float = 0.6
    jitter_fraction: float = JITTER_FRACTION

    def __post_init__(self) -> None:
        for name, is_right, allowed in (
            ("decrease_factor", 0.0 < self.decrease_factor < 1.0, "above 0, below 1"),
            ("cooldown_s", 0.0 <= self.cooldown_s < NEVER, "0 or more"),
            ("startup_ramp_s", 0.0 <= self.startup_ramp_s < NEVER, "0 or more"),
            ("jitter_fraction", 0.0 <= self.jitter_fraction <= 1.0, "0 to 1"),
        ):
            if not is_right:
                what = f"{getattr(self, name)} is not possible"
                raise InputError(what, where=name, allowed=allowed)


class Admission:
    """What a limiter needs to know when an admitted request ends."""

    def __init__(self, at_s: float, epoch: int, in_flight: int, number: int) -> None:
        self.at_s: Final = at_s
        self.epoch: Final = epoch
        self.in_flight: Final = in_flight
        self.number: Final = number
        self.is_full = False
        """Whether it took the last slot of the limit."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestLimiter:
    """A fixed limit, and a pace if the provider limits the rate; the base of all limiters.

    After a run of refusals nothing starts for the longest Retry-After among them, or for
    `cooldown_s`, doubled while nothing succeeds; a random stream prolongs that by up to
    `jitter_fraction`. After that, one request may start, and more if that one was not refused.
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
        self.minute: Final = Minute()
        self._stream: Final = stream
        self._cooldown_s: Final = cooldown_s
        self._jitter_fraction: Final = jitter_fraction
        self._refusal_s = 0.0
        self._service_s = 0.0
        self._ended_s = NEVER
        self._is_resuming = False
        self._first_number = 0
        """The number of the start that shows whether a wait was long enough."""
        self._number = 0
        self._newest_refused = 0
        self._refused_lately: Final[set[int]] = set()
        self._run = 0
        self._run_needed = 0
        self._run_asked_s = 0.0
        self._run_long = 0
        """Until when refusals of a run ask to wait, and how many of them ask for a long wait."""
        self._spell_s = 0.0
        """Since when nothing has been accepted."""
        self._accepted = self._accepted_before = 0
        self._is_limit = False
        """Whether the last refusal was for a rate limit, not overload."""

    def room(self, in_flight: int, now: float) -> int:
        """Returns how many more may start now; 0 or less for none."""
        if now < self.blocked_until_s or now < self.pace.next_s or not self._has_minute(now):
            return 0
        return self.limit - in_flight

    def next_change_s(self, in_flight: int, now: float) -> float:
        """Returns when `room` may grow by itself; infinity if only an outcome can change it."""
        if now < self.blocked_until_s:
            return self.blocked_until_s
        if in_flight >= self.limit:
            return NEVER
        return max(now, self.pace.next_s, self.minute.room_s(now))

    def _has_minute(self, now: float) -> bool:
        """Whether the limit per minute, if there is one, lets one more start."""
        minute = self.minute
        if minute.most == NEVER:
            return True
        if minute.grow(now):
            self.pace.keep(minute.per_s)
        return minute.count(now) < minute.most

    def admit(self, in_flight: int, now: float) -> Admission:
        """Records the start of a request, the `in_flight`-th in flight."""
        pace = self.pace
        if in_flight == 1:
            idle_s = now - max(self._ended_s, self.blocked_until_s, pace.next_s)
            if idle_s > _IDLE_S:
                pace.idle(idle_s)
        pace.start(now, self._refusal_s)
        self.minute.start(now)
        self._accepted += 1
        if self._is_resuming:
            self._is_resuming = False
            self._first_number = self._number + 1
            pace.space(now + _KNOWN_REFUSALS * self._refusal_s)
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
        """Records the end of a request; `tokens` is what it used, negative if unknown."""
        self._ended_s = now
        if outcome is _RATE_LIMITED or outcome is _OVERLOADED:
            self._is_limit = outcome is _RATE_LIMITED
            self._refused(admission, retry_after_s, now)
        elif outcome is _SUCCESS:
            self._served(admission, now)

    def set_maximum(self, maximum: int) -> None:
        self.maximum = maximum
        self.limit = maximum

    def _refused(self, admission: Admission, retry_after_s: float, now: float) -> None:
        """Counts a refusal, and stops after a run of them.

        Refusals of one burst count as one: of those in flight at a stop, the longest wait applies,
        and a later, shorter one never shortens it.
        """
        took_s = now - admission.at_s
        known_s = self._refusal_s
        self._refusal_s = took_s if known_s == 0.0 else known_s + 0.3 * (took_s - known_s)
        asked_until_s = now + retry_after_s if retry_after_s > 0.0 else 0.0
        self._accepted -= 1
        was_most = self.minute.most
        is_minute = self.minute.refuse(admission.at_s, self._number - admission.number, now)
        if self.minute.most < was_most:
            self.pace.keep(self.minute.per_s)
        if admission.epoch != self.epoch:
            if now < self.blocked_until_s:
                self._block(asked_until_s, now)
            return
        self.pace.forgive()
        if admission.in_flight > self.limit:
            return  # it started before the limit was lowered
        if not is_minute and self._explains(admission, now):
            return
        self._note_run(admission.number)
        if self._run == 1:
            self._run_asked_s = 0.0
            self._run_long = 0
            self._run_needed = self.pace.run
        self._run_asked_s = max(self._run_asked_s, asked_until_s)
        if retry_after_s >= LONG_S:
            self._run_long += 1
        first = 1 if self.pace.chance <= TOLERATED else 2
        is_again = admission.number == self._first_number + first - 1 and self._run >= first
        if is_again or self._run >= self._run_needed:
            self._stop(admission, now)
        else:
            self.pace.refuse(admission.at_s, now)

    def _note_run(self, number: int) -> None:
        """Counts the consecutively started calls that were refused, including this one.

        Replies may arrive in another order than their calls were started.
        """
        refused = self._refused_lately
        if number > self._newest_refused + _LONGEST_RUN or len(refused) > _LONGEST_RUN:
            refused.clear()
        refused.add(number)
        self._newest_refused = max(self._newest_refused, number)
        first = last = number
        while first - 1 in refused:
            first -= 1
        while last + 1 in refused:
            last += 1
        self._run = last - first + 1

    def _explains(self, admission: Admission, now: float) -> bool:  # noqa: ARG002
        """Whether a refusal only shows that the limit grew too far; the growth is then undone."""
        return False

    def _stop(self, admission: Admission, now: float) -> None:
        """Handles a provider that takes nothing now: one reaction for all calls in flight."""
        self.epoch += 1
        self.consecutive_rate_limits += 1
        self._block(self._run_asked_s, now)
        is_first = self.consecutive_rate_limits == 1
        if is_first or self._accepted > self._accepted_before:
            self._spell_s = now
        self._accepted_before = self._accepted
        if self._is_limit:
            newer, late_s = self._number - admission.number, admission.at_s - self._spell_s
            resumes_s, long = self.blocked_until_s, self._run_long
            if self.minute.stop(now, resumes_s, newer, late_s, long, is_first=is_first):
                self.pace.keep(self.minute.per_s)
        self.pace.stop(now, self.blocked_until_s)
        self._refused_lately.clear()
        self._run = 0
        self._run_asked_s = 0.0

    def _block(self, asked_until_s: float, now: float) -> None:
        """Blocks starts until then; for a rest, if no reply says how long or its wait was too
        short."""
        wait_s = asked_until_s - now
        if wait_s <= 0.0 or self.consecutive_rate_limits > 1:
            wait_s = max(wait_s, self._rest_s())
        if now + wait_s <= self.blocked_until_s:
            return
        self.blocked_until_s = now + wait_s
        if self._stream is not None and self._jitter_fraction > 0.0:
            self.blocked_until_s += wait_s * self._jitter_fraction * self._stream.uniform()
        self._is_resuming = True

    def _served(self, admission: Admission, now: float) -> bool:
        """Records an answer; returns whether its request started after the last reaction."""
        took_s = now - admission.at_s
        known_s = self._service_s
        self._service_s = took_s if known_s == 0.0 else known_s + 0.1 * (took_s - known_s)
        if admission.epoch != self.epoch or now < self.blocked_until_s:
            return False
        self.consecutive_rate_limits = 0
        return True

    def _rest_s(self) -> float:
        """Returns how long to rest if no reply says: part of a service time, doubled each time."""
        first_s = self._cooldown_s
        if 0.0 < self._service_s * _REST_SERVICES < first_s:
            first_s = self._service_s * _REST_SERVICES
        most_s = self._cooldown_s * 2.0**_COOLDOWN_DOUBLINGS_MAX
        return min(most_s, first_s * 2.0 ** min(30, self.consecutive_rate_limits - 1))


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
        self._timeouts = 0
        self._proven = 0
        self._beyond: Final[dict[int, Admission]] = {}
        """Calls above the proven level that may still be refused, by number."""
        self._against = 0
        """Refusals at the doubted level and above, minus calls accepted there."""
        self._doubted = 0
        self._doubts: Final[list[float]] = []
        self._hold_until_s = 0.0
        self._met = 0
        self._is_growing = False
        self._grown_from = 0
        self._grow_at_s = 0.0
        self._starts = 0
        self._ramp_target = 0
        self._ramp_start_s = now
        if settings.startup_ramp_s > 0.0 and maximum > 1:
            self._ramp_target = maximum
            self.limit = 1

    def room(self, in_flight: int, now: float) -> int:
        if now < self.blocked_until_s:
            return 0
        if self._ramp_target > 0:
            self._climb_ramp(now)
        elif in_flight >= self.limit:
            self._grow(now)
        if now < self.pace.next_s or not self._has_minute(now):
            return 0
        held = 1 if now < self._hold_until_s and self.limit == self._doubted else 0
        return self.limit - held - in_flight

    def next_change_s(self, in_flight: int, now: float) -> float:
        soonest = super().next_change_s(in_flight, now)
        if in_flight == self.limit - 1 and self.limit == self._doubted:
            soonest = max(soonest, self._hold_until_s)
        if now < self.blocked_until_s or in_flight < self.limit:
            return soonest
        if self._ramp_target > 0:
            soonest = min(soonest, self._ramp_step_due_s())
        elif self._is_growing and self.limit < self.maximum:
            if self._against <= 0 and self.limit < self._proven + self._step():
                soonest = min(soonest, self._grow_at_s)
            elif (
                self._beyond and self._refusal_s > 0.0
            ):  # otherwise only an answer proves the level
                oldest = next(iter(self._beyond.values()))
                soonest = min(soonest, oldest.at_s + self._known_s())
        return max(now, self.pace.next_s, self.minute.room_s(now), soonest)

    def admit(self, in_flight: int, now: float) -> Admission:
        admission = super().admit(in_flight, now)
        if in_flight >= self.limit:
            self._starts += 1
            admission.is_full = True
        if in_flight > self._proven:
            self._settle(now)
            self._beyond[admission.number] = admission
            if self._against > 0 and in_flight >= self._doubted:
                # One at a time: next to a call that will be refused, another would prove too much.
                self._hold_until_s = now + self._known_s()
        return admission

    def end(
        self,
        admission: Admission,
        outcome: Outcome,
        tokens: int,
        retry_after_s: float,
        now: float,
    ) -> None:
        if self._beyond:
            self._beyond.pop(admission.number, None)
        if outcome is _TIMEOUT:
            self._ended_s = now
            self._timeouts += 1
            if self._timeouts >= _TIMEOUTS_UNTIL_CUT and admission.epoch == self.epoch:
                self._timeouts = 0
                self.epoch += 1
                self.limit = max(1, int(self.limit * self._settings.decrease_factor))
                self.ceiling = max(self.limit, admission.in_flight - 1)
                self._ramp_target = self._proven = 0
                self._rest_at_limit()
            return
        if outcome not in _LOCAL:
            self._timeouts = 0
        super().end(admission, outcome, tokens, retry_after_s, now)

    def set_maximum(self, maximum: int) -> None:
        """Applies a lower cap at once, and a higher one too, unless refusals indicate less."""
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
        """When the ramp allows one more; the same formula decides and predicts."""
        slots = self._ramp_target - 1
        return self._ramp_start_s + self._settings.startup_ramp_s * self.limit / slots

    def _climb_ramp(self, now: float) -> None:
        while self.limit < self._ramp_target and now >= self._ramp_step_due_s():
            self.limit += 1
        if self.limit >= self._ramp_target:
            self._ramp_target = 0

    def _known_s(self) -> float:
        return _KNOWN_REFUSALS * self._refusal_s

    def _grow(self, now: float) -> None:
        """Raises the limit slightly if all of it is used and this level is proven."""
        if self.limit >= self.maximum:
            return
        self._settle(now)
        if self._is_growing:
            step = self._step()
            is_doubted = self._against > 0
            if not is_doubted and self.limit < self._proven + step and now >= self._grow_at_s:
                self.limit += 1
                # One by one: a provider may allow more, but not two at the same moment.
                self._grow_at_s = now + self._known_s() / step
        elif self._starts >= _PROBE_STARTS[min(self._met, 3)]:
            self._is_growing = True
            self._grown_from = self._proven
            # At a random time: calls that began together end together, leaving no room for more.
            phase = self._stream.uniform() if self._stream is not None else 0.0
            self._grow_at_s = now + phase * self._service_s

    def _step(self) -> int:
        """Returns how far the limit may exceed the proven level: as far as this growth has come."""
        return 1 + max(0, self._proven - self._grown_from)

    def _settle(self, now: float) -> None:
        """Counts calls as accepted that would have been refused by now."""
        beyond, known_s = self._beyond, self._known_s()
        while beyond and known_s > 0.0:
            oldest = next(iter(beyond.values()))
            if now < oldest.at_s + known_s:
                break
            del beyond[oldest.number]
            self._prove(oldest.in_flight, now)

    def _prove(self, level: int, now: float) -> None:
        """Records that the `level`-th call in flight was accepted."""
        if self._against > 0 and level >= self._doubted:
            self._against -= 1
            for at_s in self._doubts:
                self.pace.refuse(at_s, now)
            self._doubts.clear()
        elif level > self._proven:
            self._proven = min(level, self.limit)
            if self._proven >= self.limit:
                self._beyond.clear()
            if self._proven >= self.maximum:
                self.ceiling = 0

    def _explains(self, admission: Admission, now: float) -> bool:
        """Takes refusals above the proven level as the end of growth, without stopping anything."""
        self._settle(now)
        if not 0 < self._proven < admission.in_flight or not admission.is_full:
            return False
        if self._against == 0 or admission.in_flight < self._doubted:
            self._doubted = admission.in_flight
        self._against += 1
        self._doubts.append(admission.at_s)
        self.limit = self._doubted
        if self._ramp_target > 0:
            self._ramp_target = 0
            self._is_growing = True
            self._grown_from = self._proven
        is_known = 0 < self.ceiling == admission.in_flight - 1
        if not is_known and self._against <= len(_PAUSES_S):
            self._hold_until_s = now + _PAUSES_S[self._against - 1]
        else:
            self.limit = max(1, self._proven, self._doubted - 1)
            self._met = self._met + 1 if self.limit == self.ceiling else max(0, self._met - 1)
            self.ceiling = self.limit
            self._rest_at_limit()
        return True

    def _rest_at_limit(self) -> None:
        self._is_growing = False
        self._starts = 0
        self._against = 0
        self._doubts.clear()
        self._hold_until_s = 0.0
        self._beyond.clear()

    def _stop(self, admission: Admission, now: float) -> None:
        super()._stop(admission, now)
        self._ramp_target = 0
        self._proven //= 2
        self._rest_at_limit()
        self._is_growing = True
        self._grown_from = self._proven

    def _served(self, admission: Admission, now: float) -> bool:
        is_fresh = super()._served(admission, now)
        if is_fresh and admission.in_flight > self._proven:
            self._prove(admission.in_flight, now)
        return is_fresh
