"""A rate that changes over time: straight lines between points, and the time that it makes."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

FEWEST_PER_POINT = 50
"""Requests behind each point, so that a curve follows the rate and not the noise."""
MOST_POINTS = 48
UNEVEN = 3.0
"""Variance over mean of the counts between points from which the rate is said to vary."""


class RateCurve:
    """A multiplier of the rate, linear between points and constant outside them.

    `operational` time runs with the multiplier: in it, arrivals come at the same rate always.
    """

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        self.points = tuple(points)
        self._times = [time_s for time_s, _ in points]
        self._sums = [0.0]
        for (start_s, low), (end_s, high) in pairwise(points):
            self._sums.append(self._sums[-1] + (end_s - start_s) * (low + high) / 2)

    def operational(self, time_s: float) -> float:
        """The multiplier's integral from the first point to a time at or after it."""
        at = max(bisect_right(self._times, time_s) - 1, 0)
        since_s = time_s - self._times[at]
        return self._sums[at] + since_s * (self.points[at][1] + self._slope(at) * since_s / 2)

    def clock(self, operational: float) -> float:
        """The time at which `operational` reaches a value; infinity when it never does."""
        at = max(bisect_right(self._sums, operational) - 1, 0)
        left, level, slope = operational - self._sums[at], self.points[at][1], self._slope(at)
        root = math.sqrt(max(level * level + 2 * slope * left, 0.0))
        if level + root <= 0:
            return self._times[at] if left <= 0 else math.inf
        return self._times[at] + 2 * left / (level + root)

    def _slope(self, at: int) -> float:
        if at + 1 == len(self.points):
            return 0.0
        (start_s, low), (end_s, high) = self.points[at], self.points[at + 1]
        return (high - low) / (end_s - start_s)


def curve_of(counts: Sequence[int], width_s: float, span_s: float) -> RateCurve | None:
    """A curve through arrivals counted in buckets; None where the rate does not vary enough."""
    points = min(MOST_POINTS, sum(counts) // FEWEST_PER_POINT, len(counts))
    if points < 3:
        return None
    size = -(-len(counts) // points)
    groups = [sum(counts[at : at + size]) for at in range(0, len(counts), size)]
    spans_s = [size * width_s] * len(groups)
    spans_s[-1] = max(span_s - size * width_s * (len(groups) - 1), width_s)
    mean = sum(groups) / sum(spans_s)
    expected = [mean * part_s for part_s in spans_s]
    uneven = sum((g - e) ** 2 / e for g, e in zip(groups, expected, strict=True)) / len(groups)
    if uneven < UNEVEN:
        return None
    levels = [group / want for group, want in zip(groups, expected, strict=True)]
    middles = [(at + 0.5) * size * width_s for at in range(len(groups))]
    middles[-1] = span_s - spans_s[-1] / 2
    found = [(0.0, levels[0]), *zip(middles, levels, strict=True), (span_s, levels[-1])]
    total = RateCurve(found).operational(span_s) / span_s
    return RateCurve([(round(time_s, 3), round(level / total, 4)) for time_s, level in found])
