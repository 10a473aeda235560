"""Where a cycle's time goes and what became of its actions: counters and histograms, no saturation.

Time is read by laps: each reading ends one part and begins the next, so that parts add up to the
whole by construction. The clock is given; the controllers themselves have none.
"""

import math
from collections.abc import Callable
from typing import Final

from windtunnel.core.histogram import GROWTH, Histogram
from windtunnel.core.telemetry import Plain

CYCLE: Final = "cycle"
SNAPSHOT: Final = "snapshot"
SEED: Final = "seed"
POOL_BUILD: Final = "pool_build"
TAKE: Final = "take"
TAKE_CO_LOCATED: Final = "take_co_located"
TAKE_SPREAD: Final = "take_spread"
EXCHANGE: Final = "exchange"
PREEMPTION: Final = "preempt"
RECLAIMING: Final = "reclaim"
RELEASING: Final = "release"
HINTS: Final = "hints"
PARTS: Final = (
    SNAPSHOT,
    SEED,
    POOL_BUILD,
    TAKE,
    TAKE_CO_LOCATED,
    TAKE_SPREAD,
    EXCHANGE,
    PREEMPTION,
    RECLAIMING,
    RELEASING,
    HINTS,
)
"""What the time of a cycle is divided into."""
PHASE_1: Final = "phase1"
PHASE_2: Final = "phase2"
PHASE_3: Final = "phase3"
RECONCILE: Final = "reconcile"
ROLLUP: Final = "rollup"
BUFFER: Final = "buffer"
CONSOLIDATION: Final = "consolidation"
EXECUTE: Final = "execute"
WHOLE: Final = (RECONCILE, ROLLUP, CYCLE, BUFFER, CONSOLIDATION, EXECUTE)
"""What it takes a shard to get from one cycle to the next, answers to orders left out."""
BOOTSTRAP_FETCH: Final = "bootstrap_fetch"
PROVISIONING: Final = "provisioning"
CONFIGURE: Final = "configure"
DRAIN: Final = "drain"

TIMES: Final = (
    CYCLE,
    *PARTS,
    PHASE_1,
    PHASE_2,
    PHASE_3,
    RECONCILE,
    ROLLUP,
    BUFFER,
    CONSOLIDATION,
    EXECUTE,
    BOOTSTRAP_FETCH,
    PROVISIONING,
    CONFIGURE,
    DRAIN,
)
"""Every histogram. The last four are of what providers and clusters take, not of our own time."""

BOUNDS_S: Final = [1e-6 * 4.0**power for power in range(18)]
"""Upper ends of the buckets that Prometheus is shown: a microsecond to 4.8 hours."""

ACTIONS_TOTAL: Final = "actions"
CALLS_TOTAL: Final = "calls"
DEFERRALS_TOTAL: Final = "deferrals"
LISTS_TOTAL: Final = "lists"
REJECTED_TOTAL: Final = "records_rejected"
VERDICTS_TOTAL: Final = "verdicts"
COUNTERS: Final = {
    ACTIONS_TOTAL: ("kind", "result"),
    CALLS_TOTAL: ("path",),
    DEFERRALS_TOTAL: ("reason",),
    LISTS_TOTAL: ("result",),
    REJECTED_TOTAL: ("reason",),
    VERDICTS_TOTAL: ("verdict",),
}
"""Every counter, with its labels."""

BELIEVED: Final = "believed"
QUARANTINED: Final = "quarantined"
"""What becomes of a whole list of a provider."""

PREFIX: Final = "windtunnel_fleet"


def no_clock() -> float:
    """The clock of instruments that do not measure: every lap takes no time."""
    return 0.0


class Instruments:
    """All that is measured of one fleet."""

    def __init__(self, clock: Callable[[], float] = no_clock) -> None:
        self._clock: Final = clock
        self._measures: Final = clock is not no_clock
        self.times: Final[dict[str, Histogram]] = {name: Histogram() for name in TIMES}
        self.counts: Final[dict[str, dict[tuple[str, ...], int]]] = {name: {} for name in COUNTERS}
        self.last_s = 0.0

    def begin(self) -> float:
        """The first part begins."""
        if self._measures:
            self.last_s = self._clock()
        return self.last_s

    def lap(self, part: str) -> float:
        """A part has ended, and the next begins."""
        if not self._measures:
            return 0.0
        now_s = self._clock()
        self.times[part].add(now_s - self.last_s, 1)
        self.last_s = now_s
        return now_s

    def laps(self, part: str, times: int) -> None:
        """As `lap`, for several of the same kind in a row, each of which took its share."""
        if self._measures:
            now_s = self._clock()
            self.times[part].add((now_s - self.last_s) / times, times)
            self.last_s = now_s

    def took(self, name: str, seconds: float) -> None:
        """Something took so long, by a reading that was made anyway."""
        if self._measures:
            self.times[name].add(seconds, 1)

    def waited(self, name: str, seconds: float) -> None:
        """As `took`, in the time of the fleet: it counts whether or not we have a clock."""
        self.times[name].add(seconds, 1)

    def count(self, name: str, labels: tuple[str, ...], times: int = 1) -> None:
        counts = self.counts[name]
        counts[labels] = counts.get(labels, 0) + times

    def counted(self, name: str, *labels: str) -> int:
        """How often something was counted, over all values of the labels that are not given."""
        rows = self.counts[name].items()
        return sum(times for key, times in rows if key[: len(labels)] == labels)

    def attributed(self) -> float:
        """The share of the time of all cycles that is in the parts."""
        whole = self.times[CYCLE].total
        parts = sum(self.times[name].total for name in PARTS)
        return parts / whole if whole else math.nan

    def whole_s(self) -> float:
        """All that shards took so far, planning and what is around it."""
        return sum(self.times[name].total for name in WHOLE)

    # For others to read.

    def as_json(self) -> dict[str, Plain]:
        """Everything as plain data."""
        return {
            "times_s": {name: _summary(one) for name, one in self.times.items() if one.count},
            "counts": {
                name: {",".join(labels): times for labels, times in sorted(rows.items())}
                for name, rows in self.counts.items()
                if rows
            },
            "attributed": None if math.isnan(self.attributed()) else self.attributed(),
        }

    def prometheus(self) -> str:
        """Everything in the text format that Prometheus reads."""
        lines: list[str] = []
        lines += [f"# TYPE {PREFIX}_seconds histogram"]
        for name, one in self.times.items():
            lines += _buckets(name, one)
        lines += [f"# TYPE {PREFIX}_over_top_bucket_total counter"]
        lines += [
            f'{PREFIX}_over_top_bucket_total{{part="{name}"}} {above(one, BOUNDS_S[-1])}'
            for name, one in self.times.items()
        ]
        for name, rows in self.counts.items():
            lines += [f"# TYPE {PREFIX}_{name}_total counter"]
            lines += [
                f"{PREFIX}_{name}_total{{{_labels(COUNTERS[name], labels)}}} {times}"
                for labels, times in sorted(rows.items())
            ]
        return "\n".join(lines) + "\n"


def _summary(one: Histogram) -> dict[str, Plain]:
    return {
        "count": one.count,
        "total": one.total,
        "mean": one.mean(),
        "p50": one.quantile(0.5),
        "p99": one.quantile(0.99),
        "max": one.high,
        "over_top_bucket": above(one, BOUNDS_S[-1]),
    }


def above(one: Histogram, bound: float) -> int:
    """How many values lie above a bound: what a histogram with that top would not tell apart."""
    edge = math.floor(math.log(bound) / math.log(GROWTH))
    return sum(times for bucket, times in one.buckets.items() if bucket > edge)


def _buckets(name: str, one: Histogram) -> list[str]:
    series = f"{PREFIX}_seconds"
    lines = [
        f'{series}_bucket{{part="{name}",le="{bound:g}"}} {one.count - above(one, bound)}'
        for bound in BOUNDS_S
    ]
    lines.append(f'{series}_bucket{{part="{name}",le="+Inf"}} {one.count}')
    lines.append(f'{series}_sum{{part="{name}"}} {one.total!r}')
    lines.append(f'{series}_count{{part="{name}"}} {one.count}')
    return lines


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in zip(names, values, strict=True))
