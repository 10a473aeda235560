"""The cheapest schedule of replicas when all arrivals are known: dynamic programming over bins.

A replica is paid for from its order on, and serves when it has started; after growth no replica
goes for the minimum run time. A miss has a price, and a higher one buys a schedule with fewer. The
queue that a bin leaves to the next is not part of the model: what a schedule attains is simulated.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

MissShare = Callable[[float], float]
"""The share of requests that miss, by load per replica."""


class ReplicaPrice(NamedTuple):
    """What a replica costs, and how slowly it comes and goes."""

    per_s: float
    startup_s: float
    minimum_run_s: float


class SizeBounds(NamedTuple):
    """The sizes that a pool may have."""

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
    """The size in each bin: least dollars for replicas, starts and misses together."""
    sizes = range(bounds.fewest, bounds.most + 1)
    holds = max(0, math.ceil(price.minimum_run_s / bin_s) - 1)
    start = price.per_s * price.startup_s
    states = [(size, hold) for size in sizes for hold in range(holds + 1)]
    # Cost until now by state: its size, and the bins for which it must not shrink.
    cost = {state: 0.0 if state[1] == 0 else math.inf for state in states}
    came_from: list[dict[tuple[int, int], tuple[int, int]]] = []
    for arrived in arrivals:
        rate = arrived / bin_s
        here = {
            size: price.per_s * bin_s * size
            + miss_price * arrived * (missed(rate / size) if size else 1.0)
            for size in sizes
        }
        following = dict.fromkeys(states, math.inf)
        origin: dict[tuple[int, int], tuple[int, int]] = {}
        # The cheapest way to some size or less, and to some size or more, with leave to shrink.
        grown: tuple[float, tuple[int, int] | None] = (math.inf, None)
        for size in sizes:
            if grown[1] is not None:
                _offer(following, origin, (size, holds), grown[0] + start * size, grown[1])
            for hold in range(holds + 1):
                before = cost[size, hold]
                _offer(following, origin, (size, max(0, hold - 1)), before, (size, hold))
                if before - start * size < grown[0]:
                    grown = (before - start * size, (size, hold))
        shrunk: tuple[float, tuple[int, int] | None] = (math.inf, None)
        for size in reversed(sizes):
            if shrunk[1] is not None:
                _offer(following, origin, (size, 0), shrunk[0], shrunk[1])
            if cost[size, 0] < shrunk[0]:
                shrunk = (cost[size, 0], (size, 0))
        cost = {state: value + here[state[0]] for state, value in following.items()}
        came_from.append(origin)
    state = min(states, key=lambda one: (cost[one], one))
    schedule = []
    for origin in reversed(came_from):
        schedule.append(state[0])
        state = origin[state]
    return schedule[::-1]


def _offer(
    costs: dict[tuple[int, int], float],
    origin: dict[tuple[int, int], tuple[int, int]],
    state: tuple[int, int],
    cost: float,
    source: tuple[int, int],
) -> None:
    if cost < costs[state]:
        costs[state] = cost
        origin[state] = source


def entries_of(schedule: Sequence[int], bin_s: float) -> list[list[float]]:
    """The times at which a schedule changes, and its size from then on."""
    return [
        [number * bin_s, size]
        for number, size in enumerate(schedule)
        if number == 0 or schedule[number - 1] != size
    ]


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of points (attained, cost) those on the lower hull, from the cheapest on."""
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
    """Whether mixing the first and the last attains the middle's share for no more."""
    part = (middle[0] - first[0]) / (last[0] - first[0])
    return middle[1] >= first[1] + part * (last[1] - first[1])


def cost_at(hull: Sequence[tuple[float, float]], attained: float) -> float:
    """The cost of an attainment on a hull; beyond its ends, that of the end."""
    for (low, cheap), (high, dear) in pairwise(hull):
        if attained <= high:
            if attained <= low:
                return cheap
            return cheap + (dear - cheap) * (attained - low) / (high - low)
    return hull[-1][1]
