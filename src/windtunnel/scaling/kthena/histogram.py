"""The latency that most requests stayed under lately: a quantile of what a histogram gained.

Servers count for as long as they live. What happened lately is the difference from an earlier
reading of the same process; one that has restarted since began again at zero.
"""

from collections.abc import Mapping, Sequence
from typing import Final

PERCENT: Final = 95
FRESH_S: Final = 60.0
"""A base must be older than this, so that the difference holds enough requests."""
EXPIRE_S: Final = 300.0
"""Older readings are forgotten."""


class Histogram:
    """Cumulative counts by upper bound, the last of which is infinity."""

    def __init__(self, count: int, bounds: Sequence[float], counts: Sequence[int]) -> None:
        self.count: Final = count
        self.bounds: Final = list(bounds)
        self.counts: Final = list(counts)


class Unreadable:
    """No value, and why not."""

    def __init__(self, reason: str) -> None:
        self.reason: Final = reason


def recent_quantile(
    now: Histogram, base: Histogram | None, percent: int = PERCENT
) -> float | Unreadable:
    """The quantile of what `now` has more than `base`; 0 when there is nothing more."""
    if base is None:
        base = Histogram(0, now.bounds, [0] * len(now.counts))
    if len(base.counts) != len(now.counts):
        sizes = f"{len(base.counts)} and {len(now.counts)}"
        return Unreadable(f"the two readings have {sizes} buckets")
    gained = now.count - base.count
    if gained < 0:
        return Unreadable(f"the count went back from {base.count} to {now.count}")
    if gained == 0:
        return 0.0
    rank = -(-gained * percent // 100)
    below, before = 0, 0.0
    buckets = zip(now.bounds, now.counts, base.counts, strict=True)
    for upper, count, earlier in buckets:
        reached = count - earlier
        if reached < below:
            return Unreadable(f"the bucket up to {upper:g} has fewer than the one before it")
        highest = upper if upper != float("inf") else 2 * before
        if reached > below and rank <= reached:
            part = (reached - rank) / (reached - below)
            return highest - part * (highest - before)
        below, before = reached, upper
    return Unreadable(f"the buckets hold {below} of {gained} requests")


class Readings:
    """Earlier readings of many processes, from which the base of a difference is taken."""

    def __init__(self, fresh_s: float = FRESH_S, expire_s: float = EXPIRE_S) -> None:
        self._fresh_s: Final = fresh_s
        self._expire_s: Final = expire_s
        self._taken: list[tuple[float, dict[tuple[str, float], Histogram]]] = []

    def append(self, now_s: float, readings: Mapping[tuple[str, float], Histogram]) -> None:
        """What was read just now, by the name of a process and when it started."""
        self._taken.append((now_s, dict(readings)))

    def base(self, now_s: float, name: str, started_s: float) -> Histogram | None:
        """The newest reading of this process that is old enough; None: take all of its life."""
        self._forget(now_s)
        if not self._taken or not self._is_old(now_s, self._taken[0][0]):
            return None
        return self._taken[0][1].get((name, started_s))

    def _forget(self, now_s: float) -> None:
        while self._taken and self._taken[0][0] + self._expire_s < now_s:
            del self._taken[0]
        while len(self._taken) > 1 and self._is_old(now_s, self._taken[1][0]):
            del self._taken[0]  # a newer one is old enough, too

    def _is_old(self, now_s: float, taken_s: float) -> bool:
        return taken_s + self._fresh_s < now_s
