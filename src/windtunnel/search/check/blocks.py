"""Confidence intervals from one run of each side: a paired bootstrap over blocks of time.

Recorded traffic exists once. It is cut by arrival time into blocks of equal length, and blocks are
drawn with replacement, the same ones for both sides: the spread of the differences shows how much
they depend on the traffic of single blocks. Blocks must be much longer than the time to drain a
queue, since they are treated as independent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from windtunnel.core.random import Stream
from windtunnel.core.statistics.distribution import PERCENTILES
from windtunnel.core.statistics.intervals import Interval, t_quantile
from windtunnel.search.check.observation import Observation
from windtunnel.twin.results.recorder import COMPLETED, OUTCOMES

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

MOST_BLOCKS: Final = 48
FEWEST_BLOCKS: Final = 8
"""With fewer blocks, their spread cannot be estimated."""
SHORTEST_BLOCK_S: Final = 60.0
DRAWS: Final = 500
"""Bootstrap resamples; enough to estimate their spread to about 3 %."""
FEWEST_DRAWS: Final = 450
"""The fewest resamples in which a figure must be defined; with fewer there is no interval."""

LATENCIES: Final = ("ttft", "tpot", "e2e")
LOWEST_S, GROWTH, BINS = 1e-5, 1.01, 2600
"""1 % wide bins from 10 microseconds to 20 days."""


def block_count(end_s: float, block_s: float | None) -> int:
    """The number of blocks for traffic of this length; 0: too few for intervals."""
    most = MOST_BLOCKS if block_s is None else 10 * MOST_BLOCKS
    count = min(most, int(end_s / (SHORTEST_BLOCK_S if block_s is None else block_s)))
    return count if count >= FEWEST_BLOCKS else 0


class BlockTotals:
    """The per-block sums that figures are computed from, and latency histograms."""

    def __init__(self, seen: Observation, end_s: float, count: int) -> None:
        import numpy as np

        rows = seen.requests
        block = np.minimum((rows["arrived"] / end_s * count).astype(np.int64), count - 1)

        def sums(weights: Any) -> Floats:
            return np.bincount(block, weights=weights, minlength=count).astype(np.float64)

        self.count: Final = count
        self.sums: Final[dict[str, Floats]] = {
            "seconds": np.full(count, end_s / count),
            "blocks": np.full(count, 1.0 / count),
            "tokens": sums(rows["tokens"]),
            "million tokens": sums(rows["tokens"]) / 1e6,
            "good": sums(rows["attained"]),
            "cost": _by_block(*seen.costs, end_s, count),
        }
        for number, name in enumerate(OUTCOMES):
            self.sums[name] = sums(rows["outcome"] == number)
        for number, name in enumerate(seen.classes):
            own = rows["slo"] == number
            self.sums[f"class {name}"] = sums(own)
            self.sums[f"good {name}"] = sums(own & rows["attained"])
        self.bins: Final[dict[str, tuple[int, Floats]]] = {}
        for name in LATENCIES:
            values = rows[name].astype(np.float64)
            known = ~np.isnan(values)
            place = _bins(values[known])
            first = int(place.min(initial=BINS))
            width = max(1, int(place.max(initial=0)) + 1 - first)
            flat = np.bincount(block[known] * width + place - first, minlength=count * width)
            self.bins[name] = first, flat.reshape(count, width).astype(np.float64)
            self.sums[f"sum {name}"] = sums(np.where(known, values, 0.0))
            self.sums[f"count {name}"] = sums(known)

    def figure(self, path: str, weights: Floats) -> Floats | None:
        """The figure for each row of block weights (NaN where undefined); None for an unknown
        figure."""
        import numpy as np

        sums = self._ratios().get(path)
        if sums is not None:
            above, below = (weights @ self.sums[name] for name in sums)
            with np.errstate(divide="ignore", invalid="ignore"):
                return above / below
        _, _, name = path.removeprefix("latency.").rpartition(".")
        share = dict(PERCENTILES).get(name)
        found = self.bins.get(path.removeprefix("latency.").removesuffix(f".{name}"))
        if share is None or found is None or not path.startswith("latency."):
            return None
        first, bins = found
        return _quantiles(np.cumsum(weights @ bins, axis=1), share, first)

    def _ratios(self) -> dict[str, tuple[str, str]]:
        """Figures that are a ratio of two sums, by path."""
        classes = [name.partition(" ")[2] for name in self.sums if name.startswith("class ")]
        return {
            "throughput.requests_per_s": (COMPLETED, "seconds"),
            "throughput.output_tokens_per_s": ("tokens", "seconds"),
            "throughput.goodput_requests_per_s": ("good", "seconds"),
            "cost.total": ("cost", "blocks"),
            "cost.per_million_output_tokens": ("cost", "million tokens"),
            **{f"requests.{name}": (name, "blocks") for name in OUTCOMES},
            **{f"slo.{name}.attained": (f"good {name}", f"class {name}") for name in classes},
            **{f"latency.{name}.mean": (f"sum {name}", f"count {name}") for name in LATENCIES},
        }


def _bins(values: Any) -> Any:
    import numpy as np

    place = np.log(np.maximum(values, LOWEST_S) / LOWEST_S) / np.log(GROWTH)
    return np.minimum(place.astype(np.int64), BINS - 1)


def _quantiles(counts: Floats, share: float, first: int) -> Floats:
    """The quantile of each row of cumulative bin counts, interpolated within a bin on a log
    scale."""
    import numpy as np

    total = counts[:, -1]
    rank = share * total
    place = np.minimum((counts < rank[:, None]).sum(axis=1), counts.shape[1] - 1)
    rows = np.arange(len(counts))
    before = np.where(place > 0, counts[rows, place - 1], 0.0)
    inside = counts[rows, place] - before
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(inside > 0.0, (rank - before) / inside, 0.5)
    values = LOWEST_S * np.exp((first + place + part) * np.log(GROWTH))
    return np.where(total > 0.0, values, np.nan)


def _by_block(times: Floats, spent: Floats, end_s: float, count: int) -> Floats:
    """Spending per block; spending after the last arrival counts in the last block."""
    import numpy as np

    edges = np.linspace(0.0, end_s, count + 1)
    at = np.interp(edges, times, spent)
    at[-1] = spent[-1]
    return np.diff(at)


class FigureIntervals(NamedTuple):
    """Intervals of a figure in both runs, of changed minus base and, if wanted, of changed over
    base."""

    base: Interval
    changed: Interval
    difference: Interval
    ratio: Interval | None


class BlockIntervals:
    """Paired differences of two runs on the same traffic."""

    def __init__(self, base: BlockTotals, changed: BlockTotals) -> None:
        import numpy as np

        assert base.count == changed.count
        self.count: Final = base.count
        stream = Stream(0, "check.blocks")
        weights = np.zeros((DRAWS, self.count))
        for row in weights:
            for _ in range(self.count):
                row[stream.integer(0, self.count - 1)] += 1.0 / self.count
        self._weights: Final = weights
        self._sides: Final = base, changed

    def of(self, path: str, base: float, changed: float, *, ratio: bool) -> FigureIntervals | None:
        """Intervals around the figures of both runs; None where the blocks give none.

        With `ratio`, the intervals of both sides are on a log scale, too.
        """
        theirs, ours = (side.figure(path, self._weights) for side in self._sides)
        if theirs is None or ours is None:
            return None
        apart = self._around(changed - base, ours - theirs, ratio=False)
        over = self._around(changed / base, ours / theirs, ratio=True) if ratio else None
        own = self._around(base, theirs, ratio=ratio), self._around(changed, ours, ratio=ratio)
        if apart is None or own[0] is None or own[1] is None or (ratio and over is None):
            return None
        return FigureIntervals(own[0], own[1], apart, over)

    def _around(self, middle: float, drawn: Floats, *, ratio: bool) -> Interval | None:
        """Student's t times the standard deviation of the resamples; on a log scale for ratios."""
        import numpy as np

        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.log(drawn) if ratio else drawn
        values = values[np.isfinite(values)]
        if len(values) < FEWEST_DRAWS:
            return None
        reach = t_quantile(self.count - 1) * float(np.std(values))
        if ratio:
            return Interval(middle, middle * float(np.exp(-reach)), middle * float(np.exp(reach)))
        return Interval(middle, middle - reach, middle + reach)
