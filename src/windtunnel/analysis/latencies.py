"""Histograms of latencies in buckets of one percent, and the bars that show them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.analysis.rows import RowBatch
from windtunnel.core.statistics.histogram import GROWTH

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float64] | npt.NDArray[np.int64]

AT_ONCE_S = 1e-6
"""Shorter times count as zero: rounding errors of the difference of equal times."""

MOST_BARS = 44


class HistogramBar(msgspec.Struct, frozen=True):
    """The number of values in [low, high), and the share below `high`."""

    low: float
    high: float
    count: int
    below: float


class LatencyCounts:
    """Counts of values by one-percent bucket; bucket b holds values from 1.01**b on."""

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.at_once = 0

    @property
    def total(self) -> int:
        return self.at_once + sum(self.buckets.values())

    def add(self, values: Numbers, times: Numbers | None = None) -> None:
        """Counts many values, each once or as often as `times` says."""
        import numpy as np

        times = np.ones(len(values), dtype=np.int64) if times is None else times
        later = values > AT_ONCE_S
        self.at_once += int(times[~later].sum())
        buckets = np.floor(np.log(values[later]) / math.log(GROWTH)).astype(np.int64)
        if not len(buckets):
            return
        first = int(buckets.min())
        sums = np.bincount(buckets - first, weights=times[later])
        for place in np.flatnonzero(sums).tolist():
            bucket = first + place
            self.buckets[bucket] = self.buckets.get(bucket, 0) + round(float(sums[place]))

    def bars(self) -> list[HistogramBar]:
        """At most MOST_BARS bars of equal width on a log scale, each of whole buckets."""
        if not self.buckets:
            return []
        first, last = min(self.buckets), max(self.buckets)
        width = -(-(last - first + 1) // MOST_BARS)
        counts = [0] * (-(-(last - first + 1) // width))
        for bucket, count in self.buckets.items():
            counts[(bucket - first) // width] += count
        bars, seen, total = [], self.at_once, self.total
        for index, count in enumerate(counts):
            low = first + index * width
            seen += count
            bars.append(HistogramBar(GROWTH**low, GROWTH ** (low + width), count, seen / total))
        return bars


OF_REQUESTS = ("ttft", "tpot", "e2e", "queue", "gateway")
MOST_CLASSES = 6
"""Limit on the classes with charts of their own: those with the most requests."""


class Latencies:
    """The latencies of completed requests, in total and by class, from batches of rows."""

    def __init__(self, scenario: dict[str, Any], result: dict[str, Any]) -> None:
        self.counts = {name: LatencyCounts() for name in (*OF_REQUESTS, "itl")}
        slos = result["slo"]
        largest = sorted(slos, key=lambda name: (-slos[name]["completed"], name))[:MOST_CLASSES]
        self.classes = {
            name: {latency: LatencyCounts() for latency in OF_REQUESTS}
            for name in slos
            if len(slos) > 1 and name in largest
        }
        self._completion_s = {
            pool["name"]: pool["overheads"]["completion_s"] for pool in scenario["serving"]["pools"]
        }

    def add(self, batch: RowBatch) -> None:
        import numpy as np

        rows = batch.completed
        times = {
            name: rows.floats(name)
            for name in ("arrived", "admitted", "scheduled", "first_token", "finished")
        }
        waits = {
            "ttft": times["first_token"] - times["arrived"],
            "e2e": times["finished"] - times["arrived"],
            "queue": times["scheduled"] - times["arrived"],
            "gateway": times["admitted"] - times["arrived"],
        }
        tokens = rows.floats("output_tokens")
        numbers, pools = rows.words("pool")
        after_s = np.array([*(self._completion_s[pool] for pool in pools), 0.0])[numbers]
        many = tokens > 1
        span_s = times["finished"] - times["first_token"] - after_s
        waits["tpot"] = np.where(many, span_s / np.maximum(tokens - 1, 1), np.nan)
        _count(self.counts, waits)
        slos, names = rows.words("slo")
        for name, counts in self.classes.items():
            if name in names:
                own = slos == names.index(name)
                _count(counts, {latency: values[own] for latency, values in waits.items()})


def _count(counts: dict[str, LatencyCounts], waits: dict[str, Any]) -> None:
    import numpy as np

    for name, values in waits.items():
        counts[name].add(values[~np.isnan(values)])


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

STRETCHES = 120
"""Intervals of the run, each with a mean and a slowest; more would show noise instead of load."""
IN_A_STRETCH = 4
"""Mean number of requests per interval, at least: fewer would leave needless gaps in the line."""


class FirstTokens:
    """TTFT over the time of a run, from batches of rows."""

    def __init__(self, result: dict[str, Any]) -> None:
        import numpy as np

        self._end_s: float = result["simulated_seconds"]
        completed: int = result["requests"]["completed"]
        self._stretches = max(1, min(STRETCHES, completed // IN_A_STRETCH))
        self._counts: Floats = np.zeros(self._stretches)
        self._sums: Floats = np.zeros(self._stretches)
        self._slowest: Floats = np.zeros(self._stretches)

    def add(self, batch: RowBatch) -> None:
        import numpy as np

        arrived, first = batch.floats("arrived"), batch.floats("first_token")
        there = ~np.isnan(first)
        if not there.any() or self._end_s <= 0.0:
            return
        waited = (first - arrived)[there]
        share = first[there] / self._end_s
        many = self._stretches
        stretch = np.minimum((share * many).astype(np.int64), many - 1)
        self._counts += np.bincount(stretch, minlength=many)
        self._sums += np.bincount(stretch, weights=waited, minlength=many)
        np.maximum.at(self._slowest, stretch, waited)

    def lines(self) -> tuple[Floats, dict[str, Floats]]:
        """The middles of intervals, and their means and slowest; NaN where there were none."""
        import numpy as np

        seen = self._counts > 0
        if not seen.any():
            return np.zeros(0), {}
        middles: Floats = (np.arange(self._stretches) + 0.5) * np.float64(
            self._end_s / self._stretches
        )
        mean = self._sums / np.where(seen, self._counts, np.nan)
        return middles, {"slowest": np.where(seen, self._slowest, np.nan), "mean": mean}
