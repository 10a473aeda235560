"""How many servers of a pool were ready, and how many it should have had, over time."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import groupby, pairwise

import msgspec

INFINITE = float("inf")


class SizeChange(msgspec.Struct, frozen=True):
    """A change at one time: a server, a fault that hides servers, or a decision."""

    time_s: float
    ready: int = 0
    """How many more servers serve."""
    present: int = 0
    """How many more servers are requested and not draining or gone."""
    wanted: int | None = None
    """What an autoscaler wants from now on, before limits."""
    kept: int = 0
    """With `wanted`: that, or what it keeps for a while although it wants less."""
    taken: bool = False
    """Whether servers were lost or hidden: what the pool had before, it still should have."""


class Shortage(msgspec.Struct, frozen=True):
    """A period in which fewer servers were ready than the pool should have had."""

    start_s: float
    end_s: float
    whole: int
    """How many servers it should have had, at most."""
    least: int
    """The fewest ready ones."""


class PoolSizes:
    """Ready and wanted servers of one pool, as step functions of time.

    A pool should have the servers that exist or are starting, those that existed or were starting
    before a loss, and those that the autoscaler wants. `late`: it has those, but the next decision
    of the autoscaler wants more, for a load that may have been there before.
    """

    def __init__(self, changes: Iterable[SizeChange]) -> None:
        self._times: list[float] = []
        self.ready: list[int] = []
        wanted: list[int] = []
        self._had: list[int] = []
        decided: dict[int, int] = {}  # by place
        ready = present = had = wants = 0
        for time_s, some in groupby(sorted(changes, key=_time), key=_time):
            before = present
            for one in some:
                ready += one.ready
                present += one.present
                if one.taken:
                    had = max(had, before)
                if one.wanted is not None:
                    wants = one.wanted
                    had = min(had, one.kept)  # the autoscaler does not keep more any longer
                    decided[len(self._times)] = wants
            had = 0 if ready >= had else had
            self._times.append(time_s)
            self.ready.append(ready)
            self._had.append(had)
            wanted.append(max(present, had, wants))
        self._wanted = wanted
        next_wanted, following = [0] * len(wanted), 0
        for place in range(len(wanted) - 1, -1, -1):
            if self.ready[place] >= wanted[place]:
                next_wanted[place] = following
            following = decided.get(place, following)
        self.shortages = self._shortages(wanted)
        self.late = self._shortages(next_wanted)

    def _shortages(self, wanted: list[int]) -> list[Shortage]:
        found: list[Shortage] = []
        for place, (start_s, end_s) in enumerate(pairwise([*self._times, INFINITE])):
            if self.ready[place] >= wanted[place]:
                continue
            one = Shortage(start_s, end_s, wanted[place], self.ready[place])
            if found and found[-1].end_s == start_s:
                last = found.pop()
                whole, least = max(last.whole, one.whole), min(last.least, one.least)
                one = Shortage(last.start_s, end_s, whole, least)
            found.append(one)
        return found

    def ready_at(self, time_s: float) -> float:
        place = bisect_right(self._times, time_s) - 1
        return float(self.ready[place]) if place >= 0 else 0.0

    def changes(self, start_s: float, end_s: float) -> list[float]:
        """The times of changes in a time span."""
        first, last = bisect_right(self._times, start_s), bisect_right(self._times, end_s)
        return self._times[first:last]

    def back_s(self, lost_s: float) -> float:
        """When as many servers were ready as existed or were starting before a loss, or when the
        others were no longer wanted."""
        place = max(0, bisect_right(self._times, lost_s) - 1)
        later = (at for at in range(place, len(self._times)) if not self._had[at])
        return next((self._times[at] for at in later), INFINITE)

    def missing_s(self, start_s: float, end_s: float) -> float:
        """The server-seconds by which it had fewer servers than wanted in a time span."""
        cuts = [start_s, *self.changes(start_s, end_s), end_s]
        total_s = 0.0
        for from_s, until_s in pairwise(cuts):
            place = bisect_right(self._times, from_s) - 1
            if place >= 0:
                total_s += max(0, self._wanted[place] - self.ready[place]) * (until_s - from_s)
        return total_s

    def share_ready(self, start_s: float, end_s: float) -> float:
        """The share of the wanted servers that was ready, on average over a time span."""
        ready_s = wanted_s = 0.0
        first = max(0, bisect_right(self._times, start_s) - 1)
        for place in range(first, len(self._times)):
            until_s = self._times[place + 1] if place + 1 < len(self._times) else INFINITE
            seconds = min(until_s, end_s) - max(self._times[place], start_s)
            if seconds > 0.0:
                ready_s += seconds * self.ready[place]
                wanted_s += seconds * self._wanted[place]
            if until_s >= end_s:
                break
        return min(1.0, ready_s / wanted_s) if wanted_s else 1.0

    def short_at(self, time_s: float) -> Shortage | None:
        place = bisect_right(self.shortages, time_s, key=_start) - 1
        found = self.shortages[place] if place >= 0 else None
        return found if found is not None and time_s < found.end_s else None


def _time(change: SizeChange) -> float:
    return change.time_s


def _start(shortage: Shortage) -> float:
    return shortage.start_s
