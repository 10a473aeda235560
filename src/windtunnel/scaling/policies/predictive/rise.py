"""Rises too slow for a surge: lines and steps in the counts of the last 30 s to 2 min.

Forecasting methods are judged by their forecasts, which takes as long as a start. A rise that noise
does not explain is followed sooner.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

_WINDOWS_S: Final = (30.0, 60.0, 120.0)
LONGEST_S: Final = _WINDOWS_S[-1]
_BY_CHANCE: Final = 4.0
"""Standard deviations of a slope, above which it is taken as a real rise."""
_FEWEST: Final = 5
"""Fewest counts for a line: a policy with a long interval has too few in a window."""
_CLEARLY: Final = 0.75
"""A step's error must be below this share of the line's: noise turns lines into steps, too."""
_LATEST_S: Final = 6.0
_FALLEN: Final = 2.0
"""A rise has ended if the latest seconds are this many standard deviations below it."""


class Rise(NamedTuple):
    """A rate that has risen: its current value, and its growth per second."""

    rate: float
    slope: float

    def ahead(self, seconds: float) -> float:
        """The rate extrapolated along the line, at most doubled, since a line is a guess."""
        return self.rate + min(self.slope * seconds, self.rate)


class Count(NamedTuple):
    """Arrivals in a number of seconds."""

    seconds: float
    arrived: int


class _Line(NamedTuple):
    rise: Rise
    deviations: float
    error: float
    """The residual sum of squares, weighted by time."""


def rise_of(counts: Sequence[Count], dispersion: float = 1.0) -> Rise | None:
    """The rise within the shortest window in which one is significant; None: there is none.

    Longer windows see the beginning of a rise that has become steeper since. `dispersion`: the
    variance of counts over that of a Poisson process.
    """
    for window_s in _WINDOWS_S:
        within = _last(counts, window_s)
        line = _line(within, dispersion)
        if line is not None and line.deviations > _BY_CHANCE:
            break
    else:
        return None
    step = _step(within)
    rise = step.rise if step.error < _CLEARLY * line.error else line.rise
    latest = _last(counts, _LATEST_S)
    latest_s = sum(one.seconds for one in latest)
    rate = sum(one.arrived for one in latest) / latest_s
    return (
        None if rate < rise.rate - _FALLEN * math.sqrt(dispersion * rise.rate / latest_s) else rise
    )


def _last(counts: Sequence[Count], window_s: float) -> Sequence[Count]:
    """The counts of the last seconds; empty if they do not cover the window."""
    taken_s = 0.0
    for number in range(len(counts) - 1, -1, -1):
        taken_s += counts[number].seconds
        if taken_s >= window_s - 1e-9:
            return counts[number:]
    return ()


def _line(counts: Sequence[Count], dispersion: float) -> _Line | None:
    """A least-squares line, and the significance of its slope in standard deviations."""
    arrived = sum(one.arrived for one in counts)
    if arrived == 0 or len(counts) < _FEWEST:
        return None
    total_s = sum(one.seconds for one in counts)
    middle_s, rate = total_s / 2.0, arrived / total_s
    at_s = over = spread = squares = 0.0
    for seconds, count in counts:
        away_s = at_s + seconds / 2.0 - middle_s
        at_s += seconds
        over += count * away_s
        spread += seconds * away_s**2
        squares += seconds * (count / seconds - rate) ** 2
    slope = over / spread
    deviations = slope / math.sqrt(dispersion * rate / spread)
    return _Line(Rise(rate + slope * middle_s, slope), deviations, squares - slope**2 * spread)


def _step(counts: Sequence[Count]) -> _Line:
    """The step with the least squared error; after it the rate is constant."""
    total_s, arrived = sum(one.seconds for one in counts), sum(one.arrived for one in counts)
    whole = sum(one.arrived**2 / one.seconds for one in counts)
    before_s = before = 0.0
    best = _Line(Rise(arrived / total_s, 0.0), 0.0, math.inf)
    for seconds, count in counts[:-1]:
        before_s += seconds
        before += count
        after_s, after = total_s - before_s, arrived - before
        error = whole - before**2 / before_s - after**2 / after_s
        if error < best.error:
            best = _Line(Rise(after / after_s, 0.0), 0.0, error)
    return best
