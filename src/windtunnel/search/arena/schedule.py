"""The cheapest schedule of replicas when all arrivals are known: dynamic programming over bins.

A replica is paid for from the time of its order and serves once it has started; after a scale-up no
replica is removed for the minimum run time. Each miss has a price: the higher it is, the fewer
misses the schedule has. The model ignores queues carried from bin to bin, so the attainment of a
schedule is simulated.
"""

import math
from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from windtunnel.core.errors import InputError

MOST_CELLS: Final = 20_000_000
"""Limit on bins times sizes, at eight bytes each."""
MissShare = Callable[[float], float]
"""The share of requests that miss their targets, by load per replica."""


class ReplicaPrice(NamedTuple):
    """A replica's cost per second, startup time, and minimum run time after a scale-up."""

    per_s: float
    startup_s: float
    minimum_run_s: float


class SizeBounds(NamedTuple):
    """The smallest and largest allowed pool size."""

    fewest: int
    most: int


def cheapest_schedule(
    arrivals: Sequence[int],
    bin_s: float,
    missed: MissShare,
    price: ReplicaPrice,
    bounds: SizeBounds,
    miss_price: float,
) -> list[int]:
    """The size in each bin that minimizes the total cost of replicas, startups and misses."""
    fewest = bounds.fewest
    sizes = range(bounds.most - fewest + 1)
    if len(sizes) * len(arrivals) > MOST_CELLS:
        what = f"foresight over {len(arrivals):,} bins of {bin_s:g} s with {len(sizes)} sizes"
        allowed = f"{MOST_CELLS:,} bins times sizes"
        raise InputError(what, allowed=allowed, hint="shorten the traffic, or lower `max`")
    holds = max(0, math.ceil(price.minimum_run_s / bin_s) - 1)
    span = holds + 1
    start = price.per_s * price.startup_s
    # Cost so far by state: a size, and the bins for which it must not shrink (size * span + hold).
    cost = [math.inf if state % span else 0.0 for state in range(len(sizes) * span)]
    # By bin and size, the states before no hold and before a full hold; others just count down.
    came_from = array("I")
    for arrived in arrivals:
        rate = arrived / bin_s
        following = [math.inf] * len(cost)
        origin = [0] * len(cost)
        # The cheapest state up to a size; below, the cheapest from a size on that may shrink.
        grown, grown_from = math.inf, -1
        for size in sizes:
            starts = start * (fewest + size)
            if grown_from >= 0:
                _offer(following, origin, size * span + holds, grown + starts, grown_from)
            for state in range(size * span, (size + 1) * span):
                before = cost[state]
                _offer(following, origin, max(size * span, state - 1), before, state)
                if before - starts < grown:
                    grown, grown_from = before - starts, state
        shrunk, shrunk_from = math.inf, -1
        for size in reversed(sizes):
            state = size * span
            if shrunk_from >= 0:
                _offer(following, origin, state, shrunk, shrunk_from)
            if cost[state] < shrunk:
                shrunk, shrunk_from = cost[state], state
            replicas = fewest + size
            share = missed(rate / replicas) if replicas else 1.0
            here = price.per_s * bin_s * replicas + miss_price * arrived * share
            following[state : state + span] = [
                one + here for one in following[state : state + span]
            ]
        cost = following
        came_from.extend(origin[::span])
        came_from.extend(origin[holds::span])
    state = min(range(len(cost)), key=cost.__getitem__)
    schedule = []
    for number in reversed(range(len(arrivals))):
        size, hold = divmod(state, span)
        schedule.append(fewest + size)
        if 0 < hold < holds:
            state += 1
        else:
            state = came_from[(2 * number + (hold > 0)) * len(sizes) + size]
    return schedule[::-1]


def _offer(costs: list[float], origin: list[int], state: int, cost: float, source: int) -> None:
    if cost < costs[state]:
        costs[state] = cost
        origin[state] = source


def entries_of(schedule: Sequence[int], bin_s: float) -> list[list[float]]:
    """The times at which a schedule changes, each with the new size."""
    return [
        [number * bin_s, size]
        for number, size in enumerate(schedule)
        if number == 0 or schedule[number - 1] != size
    ]


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points (attained, cost) on the lower convex hull, from the cheapest up."""
    hull: list[tuple[float, float]] = []
    for attained, cost in sorted(points, key=lambda one: (one[1], -one[0])):
        if hull and attained <= hull[-1][0]:
            continue
        while len(hull) > 1 and _above(hull[-2], hull[-1], (attained, cost)):
            hull.pop()
        hull.append((attained, cost))
    return hull


def _above(
    first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]
) -> bool:
    """Whether mixing the first and the last attains the middle's share at no higher cost."""
    part = (middle[0] - first[0]) / (last[0] - first[0])
    return middle[1] >= first[1] + part * (last[1] - first[1])


def cost_at(hull: Sequence[tuple[float, float]], attained: float) -> float:
    """The cost of an attainment on a hull; outside its range, that of the nearer end."""
    for (low, cheap), (high, dear) in pairwise(hull):
        if attained <= high:
            if attained <= low:
                return cheap
            return cheap + (dear - cheap) * (attained - low) / (high - low)
    return hull[-1][1]
