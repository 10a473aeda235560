"""A learned rate of starts, for providers that limit requests per second.

How many are in flight says little about a rate: where answers take 20 ms, one caller makes fifty
requests a second. So when refusals go on although fewer are in flight, starts are spaced by the
rate that got through meanwhile, which is what the provider serves, and a little more: at a hard
limit that is where two or three of a hundred are refused. While few are, the rate grows, first by
little and then by more.
"""

from typing import Final

NEVER: Final = float("inf")
_STRETCH: Final = 32
_FIRST_STRETCH: Final = 8
_QUICK_RAISES: Final = 4
_UNUSED: Final = 0.8
_RAISES: Final = ((4, 1.04), (12, 1.02), (20, 1.1), (1 << 30, 1.5))
"""What a good stretch raises the rate by, up to so many of them in a row."""


class Pace:
    """At most so many starts a second; infinity is no limit."""

    def __init__(self) -> None:
        self.per_s = NEVER
        self.next_s = 0.0
        self.stretch = _STRETCH
        """So many starts are looked at together."""
        self._raises = 0

    def start(self, now: float) -> None:
        """A request starts; one that starts late does not delay those after it."""
        if self.per_s < NEVER:
            gap_s = 1.0 / self.per_s
            self.next_s = max(self.next_s, now - gap_s) + gap_s

    def space(self, next_s: float) -> None:
        """Lets nothing start before then."""
        self.next_s = max(self.next_s, next_s)

    def hold(self, through_per_s: float, now: float) -> None:
        """Too many are refused; so many got through."""
        self.per_s = min(self.per_s, through_per_s)
        self.space(now + 1.0 / self.per_s)
        self._raises = _QUICK_RAISES

    def begin(self, through_per_s: float, now: float) -> None:
        """Refusals went on; the rate is known from few starts, and looked at after few."""
        self.hold(through_per_s, now)
        self._raises = 0
        self.stretch = _FIRST_STRETCH

    def grow(self, started_per_s: float) -> None:
        """Few are refused; a pace that starts do not come near is given up."""
        if self.per_s == NEVER:
            return
        if started_per_s < _UNUSED * self.per_s:
            self.drop()
            return
        self._raises += 1
        if self._raises >= _QUICK_RAISES:
            self.stretch = _STRETCH
        self.per_s *= next(factor for upto, factor in _RAISES if self._raises <= upto)

    def drop(self) -> None:
        self.per_s = NEVER
        self.next_s = 0.0
