"""How much of a wait the servers that a pool was missing can explain: the argument, in one place.

While requests are queued, a pool works at its full rate, which is proportional to its servers. When
a wait ends, the pool has done so much work since the queue began: its servers, integrated over that
time. With the servers that a cause took away, the same work would have been done earlier. By that
much, and no more than the wait itself, the cause can have made it longer. The rest of the wait has
the next cause, and at last the load itself: a crash that is replaced after a second costs a queue
of minutes one server-second.

Four details. The first requests of a queue already wait for a slot, and missing servers are also
missing slots: those that are missing from the beginning of a queue until a request is queued
explain, in addition, their share of the mean time of a request on a server. A request that is
queued on a server stays there: servers that are lost or become ready after that do not change its
wait. A lost server is missing until it is replaced, and the work that was lost with it is done
again: the pool is without one server more for about half the mean time of a request on a server. A
server that a fault slows is missing in part, and for the requests on it that is a part of all that
they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from windtunnel.analysis.explain.pool_sizes import PoolSizes

LEAST_SHARE = 0.15
"""Smaller shares of a time are within the error of these estimates."""


class Missing(msgspec.Struct, frozen=True):
    """Servers that a pool was without; a fraction, for one that is slower."""

    start_s: float
    end_s: float
    servers: float = 1.0
    slower: bool = False
    """Whether the servers are among the ready ones, and do less."""
    redone: bool = False
    """Whether it is work that was lost with a server, and is done again from then on."""

    def seconds(self, start_s: float, end_s: float) -> float:
        """Its server-seconds in a time span."""
        return self.servers * max(0.0, min(self.end_s, end_s) - max(self.start_s, start_s))


class CapacityWait(msgspec.Struct, frozen=True):
    """A wait for servers of a pool."""

    pool: str
    start_s: float
    end_s: float
    server: str
    """The server at which it waited, such as `main 3`; empty if none."""
    since_s: float
    """The time since which requests have been queued in that pool without a break: what caused that
    queue also caused this wait."""
    kept_s: float = 0.0
    """How long the autoscaler keeps servers that it does not need."""
    queued: bool = True
    """Whether requests were queued since then; if not, the pool was only short of servers."""

    @property
    def helps_until_s(self) -> float:
        """The time until which more servers would have helped: a request stays on the server it is
        queued on."""
        return self.start_s if self.server else self.end_s


class QueuedSpan(msgspec.Struct, frozen=True):
    """A wait, and the queue that it was part of."""

    since_s: float
    """When the queue began."""
    start_s: float
    end_s: float
    bound: bool
    """Whether the request was queued on a server from the start, and stayed there."""

    def seen_at(self, time_s: float) -> float:
        """The time whose servers matter at a time."""
        return min(time_s, self.start_s) if self.bound else time_s

    def lacks(self, one: Missing, time_s: float) -> bool:
        """Whether servers count as missing at a time; lost work takes as long for all requests."""
        seen_s = self.seen_at(time_s)
        return one.start_s <= seen_s and (time_s if one.redone else seen_s) < one.end_s


def saved_s(sizes: PoolSizes, missing: Sequence[Missing], wait: QueuedSpan) -> float:
    """By how much a wait would have been shorter with the missing servers, at most."""
    return _saved(sizes.ready_at, sizes.changes(wait.since_s, wait.end_s), missing, wait)


def share_missing(sizes: PoolSizes, missing: Sequence[Missing], wait: QueuedSpan) -> float:
    """The share of a pool's servers that was missing from the beginning of a queue until a request
    was queued."""
    here = [
        one
        for one in missing
        if one.start_s <= wait.since_s and wait.start_s < one.end_s and not one.redone
    ]
    gone = sum(one.servers for one in here)
    serving = sizes.ready_at(wait.since_s) - sum(one.servers for one in here if one.slower)
    return gone / (max(0.0, serving) + gone) if gone else 0.0


def saved_on_s(missing: Sequence[Missing], wait: QueuedSpan) -> float:
    """The same for a wait on a server that was slower."""
    alone = QueuedSpan(wait.since_s, wait.start_s, wait.end_s, bound=False)
    return _saved(lambda _: 1.0, [], [_one(each) for each in missing], alone)


def _one(missing: Missing) -> Missing:
    return msgspec.structs.replace(missing, servers=min(1.0, missing.servers))


def _saved(
    ready_at: Callable[[float], float],
    changes: Iterable[float],
    missing: Sequence[Missing],
    wait: QueuedSpan,
) -> float:
    cuts = {wait.since_s, wait.start_s, wait.end_s, *changes}
    cuts |= {time_s for one in missing for time_s in (one.start_s, one.end_s)}
    times = sorted(time_s for time_s in cuts if wait.since_s <= time_s <= wait.end_s)
    done, spans = 0.0, []
    for start_s, end_s in pairwise(times):
        here = [one for one in missing if wait.lacks(one, start_s)]
        serving = ready_at(wait.seen_at(start_s)) - sum(one.servers for one in here if one.slower)
        done += max(0.0, serving) * (end_s - start_s)
        spans.append((start_s, end_s, max(0.0, serving) + sum(one.servers for one in here)))
    if not any(rate for *_, rate in spans):
        return 0.0
    for start_s, end_s, rate in spans:
        could = rate * (end_s - start_s)
        if rate and could >= done:
            sooner_s = start_s + done / rate
            return wait.end_s - min(max(sooner_s, wait.start_s), wait.end_s)
        done -= could
    return 0.0


def shares_of(whole_s: float, most: Iterable[tuple[int, float | None]]) -> list[tuple[int, float]]:
    """Divides seconds among causes in order: each takes at most its own of what is left.

    None takes all that is left. Shares within the error are left to the others.
    """
    left_s, found = whole_s, []
    for place, most_s in most:
        part_s = left_s if most_s is None else min(left_s, most_s)
        if left_s - part_s < LEAST_SHARE * whole_s:
            part_s = left_s
        if part_s >= LEAST_SHARE * whole_s:
            found.append((place, part_s))
            left_s -= part_s
        if left_s <= 0.0:
            break
    return found
