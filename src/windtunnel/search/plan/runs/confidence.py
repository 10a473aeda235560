"""Confidence bounds on a share of requests, from a few runs with different seeds.

Requests of one run are late together, so a run is one observation, however many requests it has:
Student's t over the runs gives the bound. Where hardly any request is late, all runs are alike and
their spread is too small; Wilson's bound for that many requests then widens it.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

from windtunnel.core.statistics.intervals import mean_interval

TOGETHER = 8.0
"""Assumed number of requests in one run that are late together; used where there is only one
run."""


class ShareBounds(NamedTuple):
    """A share with a lower and an upper bound, each with the requested confidence."""

    share: float
    low: float
    high: float


def share_bounds(shares: Sequence[float], counts: Sequence[int], confidence: float) -> ShareBounds:
    """Bounds on the share over all seeds, from the shares and request counts of some runs."""
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
    """The share of runs that do not depend on chance."""
    share = math.fsum(shares) / len(shares)
    return ShareBounds(share, share, share)


def wilson(share: float, count: float, confidence: float) -> tuple[float, float]:
    """Lower and upper bound of a probability, each with that confidence, given `share` of
    `count`."""
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
    """The confidence of test number `test`, from 0, so that all tests together have `confidence`.

    About six tenths of the error probability go to the first test, a quarter of that to the second,
    a ninth to the third: the reciprocals of squares have a finite sum, so the probability that any
    test, however many there are, passes wrongly stays below the total.
    """
    return 1.0 - (1.0 - confidence) * 6.0 / (math.pi * (test + 1)) ** 2
