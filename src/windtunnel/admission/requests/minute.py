"""A limit on how many requests are accepted per minute, learned from the count at a refusal.

When everything is refused for longer than a limit per second explains, the number accepted in the
preceding minute is the limit, whether its window is fixed or slides. That takes two starts that
were refused so late, or three consecutive refusals that ask for a long wait: a single one may be
random. The count is the limit from then on. A little more is tried when a minute at the limit
passes without a refusal, and more each time; two refusals at one count set the limit to it, as
random refusals come at any count.
"""

from typing import Final

NEVER: Final = float("inf")
MINUTE_S: Final = 60.0

_BINS: Final = 1024
_BIN_S: Final = MINUTE_S / _BINS
_LATE_S: Final = 4.0
_LATE_STARTS: Final = 2
"""A limit per second is over sooner; this many refused starts after it are not random."""
LONG_S: Final = 8.0
_LONG_REFUSALS: Final = 3
"""This many consecutive refusals that ask for so long a wait are not due to a limit per second
either."""
_FELL: Final = 0.03
"""A run of refusals at a count lower by this fraction means that the limit fell."""
_NEAR: Final = 0.003
"""A refusal within this fraction of the limit is due to the limit."""
_LEAST: Final = 30
"""A lower count is not taken as a limit: refusals then have another cause."""
_GROWTH: Final = 0.04
_FIRST_GROWTH: Final = 0.08
_GROWTH_MAX: Final = 1.0
"""Growth tried beyond a limit, beyond one that was hit once, and at most."""
_GROWTH_FACTOR: Final = 2.5
"""Factor on the growth after each success."""
_EVEN: Final = 1.02
_BURST: Final = 4.0
"""Rate of starts relative to that of the limit: once it is known, and at first."""
_HOLD_MAX: Final = 2
"""Most minutes until more is tried; the wait doubles each time that it was refused."""
_USED: Final = 0.9
"""If less than this part of the limit was used, nothing is learned about more."""


class Minute:
    """Counts what was accepted in the last minute; `most` is the limit, if one was found."""

    def __init__(self) -> None:
        self.most = NEVER
        self._bins: Final[list[int]] = [0] * _BINS
        self._count = 0
        self._last = 0
        self._known_s = 0.0
        """When the limit was found: refusals of earlier starts say no more about it."""
        self._held = 0.0
        """The limit before it was last raised."""
        self._stop_count = 0
        self._late = 0
        self._doubted = 0
        self._is_sure = False
        self._growth = _GROWTH
        self._hold = 1
        self._grow_at_s = NEVER

    @property
    def per_s(self) -> float:
        """The rate of starts: even or, at first, faster, since a new minute may have begun."""
        return (_EVEN if self._is_sure else _BURST) * self.most / MINUTE_S

    def count(self, now: float) -> int:
        """Returns the number accepted in the last minute, as far as is known."""
        at = int(now / _BIN_S)
        if at > self._last:
            bins = self._bins
            for place in range(max(self._last + 1, at - _BINS + 1), at + 1):
                self._count -= bins[place % _BINS]
                bins[place % _BINS] = 0
            self._last = at
        return self._count

    def start(self, now: float) -> None:
        """Records a start; it counts as accepted until it is refused."""
        count = self.count(now) + 1
        self._count = count
        self._bins[self._last % _BINS] += 1

    def refuse(self, at_s: float, newer: int, now: float) -> bool:
        """Records a refused start, `newer` ones since; returns whether this limit explains it."""
        self._take_back(at_s, now)
        if self.most == NEVER:
            return False
        level = self._count - newer
        slack = _NEAR * self.most + 1.0
        if level < self._held - slack:
            return False
        if at_s <= self._known_s:
            return True
        if abs(level - self._doubted) <= slack:
            self.most = self._held = float(max(1, level, self._doubted))
            self._growth = _GROWTH
            self._is_sure = True
            self._hold = min(_HOLD_MAX, 2 * self._hold)
            self._grow_at_s = now + self._hold * MINUTE_S
        self._doubted = level
        return True

    def stop(
        self, now: float, resumes_s: float, newer: int, late_s: float, long: int, *, is_first: bool
    ) -> bool:
        """Handles a run of refusals, or one more start of it; returns whether the limit is per
        minute.

        The start was made `late_s` after the run began; `long` refusals of the run ask for a long
        wait.
        """
        count = self.count(now) - newer
        if is_first:
            self._stop_count = count
            self._late = 0
        elif self.most < NEVER:
            return False
        if late_s >= _LATE_S:
            self._late += 1
        if self._stop_count < _LEAST:
            return False
        if self.most == NEVER:
            if self._late < _LATE_STARTS and long < _LONG_REFUSALS:
                return False
        elif count >= (1.0 - _FELL) * self.most - 1.0:
            return False
        self._is_sure = self.most < NEVER
        growth = _GROWTH if self._is_sure else _FIRST_GROWTH
        self._known_s = now
        self.most = self._held = float(self._stop_count)
        self._doubted = self._stop_count
        self._growth, self._hold = growth, 1
        self._grow_at_s = resumes_s + MINUTE_S
        return True

    def room_s(self, now: float) -> float:
        """Returns when one more may start."""
        if self.count(now) < self.most:
            return now
        bins = self._bins
        for place in range(self._last - _BINS + 1, self._last + 1):
            if bins[place % _BINS] > 0:
                return max(now, (place + _BINS) * _BIN_S)
        return now

    def grow(self, now: float) -> bool:
        """Raises the limit when it is time to try more; returns whether it did."""
        if now < self._grow_at_s:
            return False
        self._grow_at_s = now + MINUTE_S
        if self.count(now) < _USED * self.most:
            return False
        self._held = self.most
        self.most += max(1.0, self._growth * self.most)
        self._growth = min(_GROWTH_MAX, _GROWTH_FACTOR * self._growth)
        self._hold = 1
        return True

    def _take_back(self, at_s: float, now: float) -> None:
        self.count(now)
        place = int(at_s / _BIN_S)
        if place > self._last - _BINS and self._bins[place % _BINS] > 0:
            self._bins[place % _BINS] -= 1
            self._count -= 1
