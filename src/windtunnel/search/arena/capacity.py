"""The capacity of a pool, measured in the twin: misses by load per replica, in pools of fixed size.

Arrivals and missed targets of a run are counted in bins. A bin in which a queue is only drained
says nothing about the load of its own time, and is omitted.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from windtunnel.search.check.observation import KeptRequests
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.results.columns import RequestColumns
from windtunnel.twin.results.recorder import OUTCOMES
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.request import Request

MISSED = 0.05
"""The highest share of misses at which a load still counts as carried."""
FALLING = 0.9
"""After an overload, a load below this share of it may still suffer from its queue."""
NEAR = 0.15
"""Bins whose load is within this share of the highest carried load describe a replica under it."""


class LoadBin(msgspec.Struct, frozen=True):
    """Arrivals in one bin of time, how many of them missed their targets, and replica
    utilization."""

    arrived: int
    missed: int
    running: float
    """Mean requests per replica, running or queued."""
    kv_used: float
    """Mean share of a replica's KV cache in use."""


class MissSink:
    """Counts arrivals and misses by bin from the rows of ended requests."""

    def __init__(self, plan: ScenarioPlan, bin_s: float) -> None:
        self._bin_s = bin_s
        self._rows = KeptRequests(plan)
        self.arrived: Counter[int] = Counter()
        self.missed: Counter[int] = Counter()

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        ended = RequestColumns(OUTCOMES)
        ended.add(requests, outcomes)
        columns = self._rows.read(ended, names)
        bins = (columns["arrived"] / self._bin_s).astype(int)
        self.arrived.update(bins.tolist())
        self.missed.update(bins[~columns["attained"]].tolist())


class FixedRun(NamedTuple):
    """A run on a pool of one size."""

    replicas: int
    bin_s: float
    bins: Sequence[LoadBin]

    def loads(self) -> list[float]:
        """Arrivals per second and replica, bin by bin."""
        return [one.arrived / (self.bin_s * self.replicas) for one in self.bins]


class OperatingPoint(NamedTuple):
    """A replica at the highest load that it carries."""

    rate: float
    """Requests per second."""
    running: float
    """Mean requests on the replica, running or queued."""
    kv_used: float


class CapacityCurve:
    """The share of requests that miss their targets, as a non-decreasing function of load per
    replica."""

    def __init__(self, runs: Sequence[FixedRun]) -> None:
        telling = [pair for run in runs for pair in _telling(run)]
        self.steps = isotonic([(load, one.missed, one.arrived) for load, one in telling])
        """Loads, and the share of misses at each."""
        self._loads = [load for load, _ in self.steps]
        self.point = self._operating_point(telling)

    def missed(self, load: float) -> float:
        """Interpolates linearly between observed loads; above the highest, all requests miss."""
        at = bisect_right(self._loads, load)
        if at == len(self.steps):
            return 1.0
        above, share = self.steps[at]
        below, before = self.steps[at - 1] if at else (0.0, 0.0)
        part = (load - below) / (above - below) if above > below else 1.0
        return before + (share - before) * part

    def _operating_point(self, telling: Sequence[tuple[float, LoadBin]]) -> OperatingPoint:
        carried = [load for load, share in self.steps if share <= MISSED]
        rate = max(carried, default=min(self._loads, default=0.0))
        near = [
            one
            for load, one in telling
            if abs(load - rate) <= NEAR * rate and one.missed <= MISSED * one.arrived
        ]
        count = max(1, len(near))
        running = math.fsum(one.running for one in near) / count
        return OperatingPoint(rate, running, math.fsum(one.kv_used for one in near) / count)


def _telling(run: FixedRun) -> list[tuple[float, LoadBin]]:
    """The bins of a run whose misses are due to their own load.

    From an overload until requests are on time again, only bins with nearly the highest load since
    it began.
    """
    found = []
    peak = 0.0
    for load, one in zip(run.loads(), run.bins, strict=True):
        if one.arrived > 0 and load >= FALLING * peak:
            found.append((load, one))
        on_time = one.missed <= MISSED * one.arrived
        peak = 0.0 if on_time else max(peak, load)
    return found


def isotonic(points: Sequence[tuple[float, int, int]]) -> list[tuple[float, float]]:
    """Isotonic regression: fits non-decreasing shares to misses of arrivals by load.

    Adjacent blocks of equal load or decreasing share are pooled until none are left.
    """
    blocks: list[tuple[float, int, int]] = []  # highest load, misses, arrivals
    for load, missed, arrived in sorted(points):
        blocks.append((load, missed, arrived))
        while len(blocks) > 1 and (
            blocks[-2][0] == load or blocks[-2][1] * blocks[-1][2] >= blocks[-1][1] * blocks[-2][2]
        ):
            high, missed_here, arrived_here = blocks.pop()
            _, missed_below, arrived_below = blocks.pop()
            blocks.append((high, missed_below + missed_here, arrived_below + arrived_here))
    return [(load, missed / arrived) for load, missed, arrived in blocks]
