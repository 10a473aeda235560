"""Timings of cycles and outcomes of actions: counters, and histograms that do not saturate.

Time is measured in laps: each reading ends one part and begins the next, so that the parts always
add up to the whole. The clock is given; the controllers themselves have none.
"""

import math
from collections.abc import Callable
from typing import Final

from windtunnel.core.statistics.histogram import Histogram
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
)
"""The parts of a cycle's time."""
PHASE_1: Final = "phase1"
PHASE_2: Final = "phase2"
PHASE_3: Final = "phase3"
RECONCILE: Final = "reconcile"
ROLLUP: Final = "rollup"
BUFFER: Final = "buffer"
CONSOLIDATION: Final = "consolidation"
EXECUTE: Final = "execute"
WHOLE: Final = (RECONCILE, ROLLUP, CYCLE, BUFFER, CONSOLIDATION, EXECUTE)
"""A shard's work from one cycle to the next, without answers to orders."""
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
"""All histograms. The last four are times of providers and clusters, not our own."""

ACTIONS_TOTAL: Final = "actions"
CALLS_TOTAL: Final = "calls"
DEFERRALS_TOTAL: Final = "deferrals"
LISTS_TOTAL: Final = "lists"
REJECTED_TOTAL: Final = "records_rejected"
VERDICTS_TOTAL: Final = "verdicts"
COUNTERS: Final = (
    ACTIONS_TOTAL,  # by kind and result
    CALLS_TOTAL,  # by path
    DEFERRALS_TOTAL,  # by reason
    LISTS_TOTAL,  # by result
    REJECTED_TOTAL,  # by reason
    VERDICTS_TOTAL,  # by verdict
)
"""All counters, with their labels."""

BELIEVED: Final = "believed"
QUARANTINED: Final = "quarantined"
"""Outcomes of a provider's complete list."""


def no_clock() -> float:
    """The clock of instruments that do not measure: every lap takes no time."""
    return 0.0


class Instruments:
    """All measurements of one fleet."""

    def __init__(self, clock: Callable[[], float] = no_clock) -> None:
        self._clock: Final = clock
        self._measures: Final = clock is not no_clock
        self.times: Final[dict[str, Histogram]] = {name: Histogram() for name in TIMES}
        self.counts: Final[dict[str, dict[tuple[str, ...], int]]] = {name: {} for name in COUNTERS}
        self.last_s = 0.0

    def begin(self) -> float:
        """Begins the first part."""
        if self._measures:
            self.last_s = self._clock()
        return self.last_s

    def lap(self, part: str) -> float:
        """Ends a part and begins the next."""
        if not self._measures:
            return 0.0
        now_s = self._clock()
        self.times[part].add(now_s - self.last_s, 1)
        self.last_s = now_s
        return now_s

    def laps(self, part: str, times: int) -> None:
        """As `lap`, for several parts of the same kind in a row, with equal shares."""
        if self._measures:
            now_s = self._clock()
            self.times[part].add((now_s - self.last_s) / times, times)
            self.last_s = now_s

    def took(self, name: str, seconds: float) -> None:
        """Records a duration from a reading made for another purpose."""
        if self._measures:
            self.times[name].add(seconds, 1)

    def waited(self, name: str, seconds: float) -> None:
        """As `took`, in the fleet's own time, which is recorded even without a clock."""
        self.times[name].add(seconds, 1)

    def count(self, name: str, labels: tuple[str, ...], times: int = 1) -> None:
        counts = self.counts[name]
        counts[labels] = counts.get(labels, 0) + times

    def counted(self, name: str, *labels: str) -> int:
        """A counter's total over all values of the labels that are not given."""
        rows = self.counts[name].items()
        return sum(times for key, times in rows if key[: len(labels)] == labels)

    def attributed(self) -> float:
        """The share of all cycles' time that is attributed to parts."""
        whole = self.times[CYCLE].total
        parts = sum(self.times[name].total for name in PARTS)
        return parts / whole if whole else math.nan

    def whole_s(self) -> float:
        """The total time of all shards: planning and the work around it."""
        return sum(self.times[name].total for name in WHOLE)

    # Output.

    def as_json(self) -> dict[str, Plain]:
        """All measurements as plain data."""
        return {
            "times_s": {name: _summary(one) for name, one in self.times.items() if one.count},
            "counts": {
                name: {",".join(labels): times for labels, times in sorted(rows.items())}
                for name, rows in self.counts.items()
                if rows
            },
            "attributed": None if math.isnan(self.attributed()) else self.attributed(),
        }


def _summary(one: Histogram) -> dict[str, Plain]:
    return {
        "count": one.count,
        "total": one.total,
        "mean": one.mean(),
        "p50": one.quantile(0.5),
        "p99": one.quantile(0.99),
        "max": one.high,
    }
