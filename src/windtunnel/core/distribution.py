"""What a result says of many values: mean, percentiles, maximum, in bounded memory.

Up to a million values are kept and percentiles are exact (linear between ranks). Beyond that they
are folded into a histogram, and percentiles are right to half a percent.
"""

import math
from typing import Final

from windtunnel.core.histogram import Histogram

EXACT_VALUES: Final = 1_000_000
PERCENTILES: Final = (("p50", 0.50), ("p90", 0.90), ("p95", 0.95), ("p99", 0.99))


class Distribution:
    """Values that come one at a time and are asked about at the end."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._total = 0.0
        self._folded: Histogram | None = None
        self._sorted = True

    def add(self, value: float) -> None:
        if self._folded is not None:
            self._folded.add(value, 1)
            return
        self._values.append(value)
        self._total += value
        self._sorted = False
        if len(self._values) > EXACT_VALUES:
            self._folded = Histogram()
            for kept in self._values:
                self._folded.add(kept, 1)
            self._values.clear()

    @property
    def count(self) -> int:
        return self._folded.count if self._folded is not None else len(self._values)

    def mean(self) -> float:
        if self._folded is not None:
            return self._folded.mean()
        return self._total / len(self._values) if self._values else math.nan

    def quantile(self, share: float) -> float:
        if self._folded is not None:
            return self._folded.quantile(share)
        if not self._values:
            return math.nan
        if not self._sorted:
            self._values.sort()
            self._sorted = True
        rank = share * (len(self._values) - 1)
        below = math.floor(rank)
        low = self._values[below]
        if below + 1 == len(self._values):
            return low
        return low + (rank - below) * (self._values[below + 1] - low)


def summary(values: Distribution | Histogram, shift: float = 0.0) -> dict[str, float | None]:
    """The figures of a result, each moved by `shift`; all None when there are no values."""
    if not values.count:
        return {"mean": None, **{name: None for name, _ in PERCENTILES}, "max": None}
    return {
        "mean": values.mean() + shift,
        **{name: values.quantile(share) + shift for name, share in PERCENTILES},
        "max": values.quantile(1.0) + shift,
    }
