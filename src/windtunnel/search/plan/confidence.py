"""How sure one can be of a share of requests, from a few runs of different seeds.

Requests of one run are late together, so a run is one observation, however many requests it has:
Student's t over the runs gives the bound. Where hardly any request is late all runs are alike, and
their spread says too little; Wilson's bound for that many requests then holds it down.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

from windtunnel.core.intervals import mean_interval

TOGETHER = 8.0
"""Requests of one run that are late together, at a guess: what one run alone may be taken for."""


class ShareBounds(NamedTuple):
    """A share, and the bounds that it is above, and below, with the confidence asked for each."""

    share: float
    low: float
    high: float


def share_bounds(shares: Sequence[float], counts: Sequence[int], confidence: float) -> ShareBounds:
    """Of the share over all seeds, from those of some runs and their numbers of requests."""
    assert shares
    total = sum(counts)
    mean = math.fsum(shares) / len(shares)
    if len(shares) == 1:
        low, high = wilson(mean, total / TOGETHER, confidence)
        return ShareBounds(mean, low, high)
    around = mean_interval(shares, 2.0 * confidence - 1.0)
    low, high = wilson(mean, total, confidence)
    return ShareBounds(mean, max(0.0, min(around.low, low)), min(1.0, max(around.high, high)))


def exact_share(shares: Sequence[float]) -> ShareBounds:
    """Of a run in which nothing is left to chance."""
    share = math.fsum(shares) / len(shares)
    return ShareBounds(share, share, share)


def wilson(share: float, count: float, confidence: float) -> tuple[float, float]:
    """Bounds of a probability, each with that confidence, when `share` of `count` came true."""
    if count <= 0.0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(confidence)
    square = z * z / count
    middle = share + square / 2.0
    reach = z * math.sqrt(share * (1.0 - share) / count + square / (4.0 * count))
    below = (middle - reach) / (1.0 + square)
    above = (middle + reach) / (1.0 + square)
    return max(0.0, below), min(1.0, above)


def confidence_of_test(confidence: float, test: int) -> float:
    """The confidence of the test of that number, from 0, so that all tests together have theirs.

    Six tenths of what may go wrong are spent on the first, a quarter of that on the second, a ninth
    on the third: the squares' reciprocals add up, so that the chance that any of them, however many
    there are, calls good what is not stays below it.
    """
    return 1.0 - (1.0 - confidence) * 6.0 / (math.pi * (test + 1)) ** 2
