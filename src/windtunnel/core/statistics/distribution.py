"""Distributions of many values in bounded memory: mean, percentiles, maximum.

Up to a million values are kept (fewer where there are many distributions), and percentiles are
exact, interpolated linearly between ranks. Beyond that, the values are folded into a histogram, and
percentiles are right to half a percent.
"""

import math
import sys
from array import array
from struct import pack
from typing import Any, Final

from windtunnel.core.statistics.histogram import Histogram

EXACT_VALUES: Final = 1_000_000
FEW_VALUES: Final = 1_000
"""Values kept exactly where there may be a thousand distributions."""
WORTH_AN_ARRAY: Final = 10_000
PACKED_TOGETHER: Final = 4_096
PERCENTILES: Final = (("p50", 0.50), ("p90", 0.90), ("p95", 0.95), ("p99", 0.99))
SHARES: Final = (*[share for _, share in PERCENTILES], 1.0)


class Distribution:
    """Values added one at a time and summarized at the end; up to `exact` are kept exactly."""

    def __init__(self, exact: int = EXACT_VALUES) -> None:
        self._exact: Final = exact
        self._latest: list[float] = []
        self._packed: Final = array("d")  # a float of a list takes four times the memory
        self._most_latest = min(exact, PACKED_TOGETHER)
        self.folded: Histogram | None = None
        self._total = 0.0  # of the first `_summed` values
        self._summed = 0
        self._sorted: list[float] | Any = []  # in order: a list, or an array
        self._ordered = 0  # the count at the last sort

    def add(self, value: float) -> None:
        if self.folded is not None:
            self.folded.add(value, 1)
            return
        self._latest.append(value)
        if len(self._latest) > self._most_latest:
            self._pack()

    def _pack(self) -> None:
        latest = self._latest
        self._packed.frombytes(pack(f"{len(latest)}d", *latest))  # faster than `fromlist`
        self._latest = []
        if len(self._packed) > self._exact:
            self.fold()
        self._most_latest = min(self._exact - len(self._packed), PACKED_TOGETHER)

    def fold(self) -> None:
        """Folds the values into a histogram: no more exact percentiles, but bounded memory."""
        if self.folded is None:
            self.folded = Histogram()
            for values in (self._packed, self._latest):
                for value in values:
                    self.folded.add(value, 1)
            del self._packed[:]
            self._latest.clear()

    def values(self) -> "array[float]":
        """All values that are kept, in the order in which they were added."""
        if self._latest:
            self._pack()
        return self._packed

    def take(self, other: "Distribution") -> None:
        """Adds all values of another distribution."""
        if self.folded is None and self.count + other.count > self._exact:
            self.fold()
        if other.folded is not None:
            self.fold()
            assert self.folded is not None
            self.folded.merge(other.folded)
            return
        for value in other.values():
            self.add(value)

    @property
    def count(self) -> int:
        if self.folded is not None:
            return self.folded.count
        return len(self._packed) + len(self._latest)

    def mean(self) -> float:
        if self.folded is not None:
            return self.folded.mean()
        values = self.values()
        for index in range(self._summed, len(values)):
            self._total += values[index]
        self._summed = len(values)
        return self._total / len(values) if values else math.nan

    def quantile(self, share: float) -> float:
        if self.folded is not None:
            return self.folded.quantile(share)
        if self._ordered < self.count:
            self._sorted = _sorted(self.values())
            self._ordered = self.count
        if share not in SHARES and not isinstance(self._sorted, list):
            self._sorted.sort()
        return quantile_of(self._sorted, share)


def _sorted(values: "array[float]") -> list[float] | Any:
    """Sorts values. Where there are many and numpy is loaded, returns an array that is in order
    only at the ranks of `SHARES`, which takes a fifth of the time."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or len(values) < WORTH_AN_ARRAY:
        return sorted(values)
    ordered = numpy.array(values)
    ordered.partition([rank for share in SHARES for rank in _ranks(len(values), share)])
    return ordered


def quantile_of(ordered: list[float] | Any, share: float) -> float:
    """The quantile of sorted values, interpolated linearly between ranks; NaN without values."""
    if not len(ordered):
        return math.nan
    below, above = _ranks(len(ordered), share)
    low = float(ordered[below])
    if above == below:
        return low
    return low + (share * (len(ordered) - 1) - below) * (float(ordered[above]) - low)


def _ranks(count: int, share: float) -> tuple[int, int]:
    """The two ranks that a share lies between."""
    below = math.floor(share * (count - 1))
    return below, min(below + 1, count - 1)


def together(parts: list[Distribution]) -> Distribution:
    """Merges distributions into one."""
    filled = [part for part in parts if part.count]
    if len(filled) == 1:
        return filled[0]
    whole = Distribution()
    for part in filled:
        whole.take(part)
    return whole


def summary(values: Distribution | Histogram, shift: float = 0.0) -> dict[str, float | None]:
    """Mean, percentiles and maximum, each shifted by `shift`; all None when there are no values."""
    if not values.count:
        return {"mean": None, **{name: None for name, _ in PERCENTILES}, "max": None}
    return {
        "mean": values.mean() + shift,
        **{name: values.quantile(share) + shift for name, share in PERCENTILES},
        "max": values.quantile(1.0) + shift,
    }
