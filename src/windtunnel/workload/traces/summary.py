"""Summarises a trace in one pass and bounded memory: rates, burstiness, lengths, prefix sharing."""

import math
from array import array
from collections.abc import Iterable
from typing import Any

from windtunnel.core.statistics.distribution import Distribution
from windtunnel.workload.traces.fitting.rates import step_of
from windtunnel.workload.traces.record import TraceRequest

MOST_DISTINCT = 1_000_000
"""Names that are counted exactly; beyond that, a count is marked `at least`."""
MOST_PREFIX_SEGMENTS = 5_000_000
"""Distinct segments that the ideal cache stores; beyond that, the hit rate is a lower bound."""
MOST_BUCKETS = 256
"""Buckets of the rate over time; as a trace gets longer, its buckets get wider."""
FINEST_BUCKET_S = 1.0
MOST_TIMES = 100_000
"""The first times of a trace, which show whether its times are rounded."""
SHARES = {"p1": 0.01, "p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95,
          "p99": 0.99}  # fmt: skip

DISTINCT = ("tenant", "model", "adapter", "source", "slo", "session")
"""Fields whose distinct names are counted."""


class RateProfile:
    """Arrivals over time in at most MOST_BUCKETS buckets of equal width."""

    def __init__(self) -> None:
        self.width_s = FINEST_BUCKET_S
        self.counts: list[int] = []

    def add(self, time_s: float) -> None:
        bucket = int(time_s / self.width_s)
        while bucket >= MOST_BUCKETS:
            pairs = range(0, len(self.counts), 2)
            self.counts = [sum(self.counts[at : at + 2]) for at in pairs]
            self.width_s *= 2
            bucket = int(time_s / self.width_s)
        if bucket >= len(self.counts):
            self.counts.extend([0] * (bucket + 1 - len(self.counts)))
        self.counts[bucket] += 1


class WindowCounts:
    """Arrivals per window of a fixed length: their peak and their dispersion."""

    def __init__(self, width_s: float) -> None:
        self._width_s = width_s
        self._window = 0
        self._count = 0
        self._squares = 0
        self._total = 0
        self._peak = 0

    def add(self, time_s: float) -> None:
        window = int(time_s / self._width_s)
        if window != self._window:
            self._close()
            self._window = window
        self._count += 1

    def _close(self) -> None:
        self._total += self._count
        self._squares += self._count * self._count
        self._peak = max(self._peak, self._count)
        self._count = 0

    def figures(self) -> dict[str, float | None]:
        """The peak as a rate, and variance over mean of the counts, which is 1 for Poisson.

        The last window is left out, because the trace ends within it.
        """
        windows = self._window
        if not windows:
            return {"peak_rate_per_s": None, "dispersion": None}
        mean = self._total / windows
        variance = self._squares / windows - mean * mean
        dispersion = max(variance, 0.0) / mean if windows > 1 else None
        return {"peak_rate_per_s": self._peak / self._width_s, "dispersion": dispersion}


class Moments:
    """Mean, spread and correlation of pairs, computed without storing them (Welford)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean_x = self.mean_y = 0.0
        self._xx = self._yy = self._xy = 0.0

    def add(self, x: float, y: float = 0.0) -> None:
        self.count += 1
        dx, dy = x - self.mean_x, y - self.mean_y
        self.mean_x += dx / self.count
        self.mean_y += dy / self.count
        self._xx += dx * (x - self.mean_x)
        self._yy += dy * (y - self.mean_y)
        self._xy += dx * (y - self.mean_y)

    def cv(self) -> float | None:
        if self.count < 2 or self.mean_x == 0:
            return None
        return math.sqrt(self._xx / self.count) / self.mean_x

    def correlation(self) -> float | None:
        spread = math.sqrt(self._xx * self._yy)
        return max(-1.0, min(1.0, self._xy / spread)) if spread > 0 else None


class Distinct:
    """The number of distinct names, up to a limit."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self.full = False

    def add(self, name: str | None) -> None:
        if name is None or self.full:
            return
        self._names.add(name)
        self.full = len(self._names) >= MOST_DISTINCT

    @property
    def count(self) -> int:
        return len(self._names)


class IdealCache:
    """A prefix cache of unlimited size, and the hits it would have had."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int], int] = {}
        self.segments = self.hit_segments = self.hit_tokens = 0

    @property
    def distinct(self) -> int:
        return len(self._nodes)

    @property
    def full(self) -> bool:
        return len(self._nodes) >= MOST_PREFIX_SEGMENTS

    def add(self, request: TraceRequest) -> None:
        keys, nodes = request.prefix_keys, self._nodes
        node, found = 0, 0
        for key in keys:
            below = nodes.get((node, key))
            if below is None:
                break
            node = below
            found += 1
        self.segments += len(keys)
        self.hit_segments += found
        if found:
            self.hit_tokens += request.prefix_ends[found - 1]
        if self.full:
            return
        for key in keys[found:]:
            nodes[node, key] = node = len(nodes) + 1


class TraceSummary:
    """Takes the requests of a trace in order, and summarises them."""

    def __init__(self) -> None:
        self.requests = 0
        self.start_s = self.end_s = 0.0
        self.prompt, self.output = Distribution(), Distribution()
        self.ttft, self.e2e = Distribution(), Distribution()
        self.prompt_total = self.output_total = 0
        self.gaps, self.lengths = Moments(), Moments()
        self.rate = RateProfile()
        self._times = array("d")
        self.cache = IdealCache()
        self.names = {name: Distinct() for name in DISTINCT}
        self._by_second, self._by_minute = WindowCounts(1.0), WindowCounts(60.0)

    def add(self, request: TraceRequest) -> None:
        prompt, output = request.prompt_tokens, request.output_tokens
        if not self.requests:
            self.start_s = request.arrived_s
        else:
            self.gaps.add(request.arrived_s - self.end_s)
        self.requests += 1
        self.end_s = request.arrived_s
        since_s = request.arrived_s - self.start_s
        self._by_second.add(since_s)
        self._by_minute.add(since_s)
        self.rate.add(since_s)
        if len(self._times) < MOST_TIMES:
            self._times.append(request.arrived_s)
        self.prompt.add(float(prompt))
        self.output.add(float(output))
        self.prompt_total += prompt
        self.output_total += output
        self.lengths.add(prompt, output)
        if request.prefix_keys:
            self.cache.add(request)
        if request.ttft_s is not None:
            self.ttft.add(request.ttft_s)
        if request.e2e_s is not None:
            self.e2e.add(request.e2e_s)
        for name, distinct in self.names.items():
            distinct.add(getattr(request, name))

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def rate_per_s(self) -> float | None:
        return (self.requests - 1) / self.span_s if self.span_s > 0 else None

    def figures(self) -> dict[str, Any]:
        """All figures as JSON values; the keys are the same for every trace."""
        some = self.requests > 0
        cache = self.cache
        return {
            "requests": self.requests,
            "start_s": self.start_s if some else None,
            "span_s": self.span_s if some else None,
            "rate_per_s": self.rate_per_s,
            "gap_cv": self.gaps.cv(),
            "rounded_to_s": step_of(self._times),
            "by_second": self._by_second.figures(),
            "by_minute": self._by_minute.figures(),
            "prompt_tokens": self._lengths(self.prompt, self.prompt_total),
            "output_tokens": self._lengths(self.output, self.output_total),
            "length_correlation": self.lengths.correlation(),
            **{f"{name}s": distinct.count for name, distinct in self.names.items()},
            "prefix": {
                "hit_rate": cache.hit_tokens / self.prompt_total if cache.segments else None,
                "segment_hit_rate": cache.hit_segments / cache.segments if cache.segments else None,
                "segments": cache.segments,
                "distinct_segments": cache.distinct,
            },
            "observed": {
                "ttft_s": _spread(self.ttft) if self.ttft.count else None,
                "e2e_s": _spread(self.e2e) if self.e2e.count else None,
            },
            "rate_over_time": {"bucket_s": self.rate.width_s, "requests": self.rate.counts},
            "at_least": [
                *(f"{name}s" for name, distinct in self.names.items() if distinct.full),
                *(["prefix"] if cache.full else []),
            ],
        }

    def _lengths(self, values: Distribution, total: int) -> dict[str, float | None]:
        mean = total / self.requests if self.requests else None
        return {"total": total, **_spread(values), "mean": mean}


def _spread(values: Distribution) -> dict[str, float | None]:
    some = values.count > 0
    return {
        "mean": values.mean() if some else None,
        "min": values.quantile(0.0) if some else None,
        **{name: values.quantile(share) if some else None for name, share in SHARES.items()},
        "max": values.quantile(1.0) if some else None,
    }


def summarise(requests: Iterable[TraceRequest]) -> TraceSummary:
    """The summary of a whole trace."""
    summary = TraceSummary()
    for request in requests:
        summary.add(request)
    return summary
