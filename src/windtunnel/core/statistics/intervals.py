"""Intervals from a few runs: for a mean, for the next run, and for paired differences.

All of them assume independent runs, as runs with different seeds are. They use Student's t: with
five runs an interval is 1.4 times as wide as it would be with a known spread. Its quantiles are
computed here, since an integer number of degrees of freedom needs only sines and cosines, and
importing a statistics library takes longer than many a simulation.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

CONFIDENCE = 0.95
"""Nineteen times out of twenty."""

WIDEST_FACTOR = 10.0
"""An interval on logarithms that reaches beyond ten times its middle says nothing."""

HALVINGS = 80  # of a quarter turn: beyond the last digit of a float
LARGEST_LOG = 700.0  # of a number that a float can hold


class Interval(NamedTuple):
    """An estimate and its interval."""

    middle: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def is_too_wide(self) -> bool:
        return self.high > WIDEST_FACTOR * self.middle

    def within(self, least: float, most: float = math.inf) -> "Interval":
        """The interval, limited to possible values: no share is above 1, and no time below 0."""
        return Interval(self.middle, max(self.low, least), min(self.high, most))


def central_share(angle: float, degrees: int) -> float:
    """The share of Student's distribution within +-t, for t = sqrt(degrees) * tan(angle)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2 == 1
    term = cosine if odd else 1.0
    total = 0.0
    for power in range(2 if odd else 1, degrees, 2):
        total += term
        term *= cosine * cosine * power / (power + 1)
    return (angle + sine * total) * 2.0 / math.pi if odd else sine * total


@lru_cache(maxsize=256)
def t_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """The t for which `confidence` of Student's distribution lies within +-t."""
    assert degrees >= 1
    assert 0.0 < confidence < 1.0
    low, high = 0.0, math.pi / 2.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        if central_share(middle, degrees) < confidence:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan((low + high) / 2.0)


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The interval of the mean over all seeds, from the values of at least two."""
    mean, spread = _mean_and_spread(values)
    return _around(mean, spread / math.sqrt(len(values)), len(values), confidence)


def ratio_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Like `mean_interval`, for positive values that vary by factors: around the geometric mean."""
    return _exponents(mean_interval([math.log(value) for value in values], confidence))


def next_interval(values: Sequence[float]) -> Interval:
    """The prediction interval of one more run, from the values of at least two."""
    mean, spread = _mean_and_spread(values)
    return _around(mean, spread * math.sqrt(1.0 + 1.0 / len(values)), len(values), CONFIDENCE)


def next_positive_interval(values: Sequence[float]) -> Interval:
    """Like `next_interval` for times, which vary by factors and are never negative."""
    if min(values) <= 0.0:
        plain = next_interval(values)
        return Interval(plain.middle, max(plain.low, 0.0), plain.high)
    return _exponents(next_interval([math.log(value) for value in values]))


def paired_interval(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """The interval of the mean of ours minus theirs, paired by seed.

    Pairing cancels what both have in common, such as a seed with much traffic.
    """
    return mean_interval([our - their for our, their in zip(ours, theirs, strict=True)])


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """The interval of ours over theirs, paired, of positive values; half and double count alike."""
    return ratio_interval([our / their for our, their in zip(ours, theirs, strict=True)])


def _mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the sample standard deviation."""
    count = len(values)
    assert count >= 2, "one value has no spread"
    if min(values) == max(values):
        return values[0], 0.0  # whatever the last digit of a sum says
    mean = math.fsum(values) / count
    square = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(square / (count - 1))


def _exponents(logs: Interval) -> Interval:
    return Interval(*(math.exp(min(part, LARGEST_LOG)) for part in logs))


def _around(mean: float, error: float, count: int, confidence: float) -> Interval:
    reach = t_quantile(count - 1, confidence) * error
    return Interval(mean, mean - reach, mean + reach)
