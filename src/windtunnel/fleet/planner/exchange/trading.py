"""Trades between two needs, some with units of several sizes: both give back what they took in a
cycle and take again in the other order. They keep the result if the two pay less, or if one that
was short no longer is.

An auction needs a price per unit, and with several sizes a machine has none until it is filled.
"""

import math
from typing import Final

from windtunnel.fleet.planner.entries import Sizing
from windtunnel.fleet.planner.packing import fill_kind, pattern_of_kind

MOST_TRADERS: Final = 40
"""With more needs than this, those with several sizes keep their machines, since pairs are many."""
MOST_PASSES: Final = 4
"""Maximum passes over all pairs while trades still save something."""
LEAST_SAVING: Final = 1e-6
"""The share of what two needs pay that a trade must save."""


class Ware:
    """Machines that suit a need: their pool, the amounts of one, and its cost."""

    __slots__ = ("amounts", "cost", "kind", "pool")

    def __init__(self, pool: int, kind: int, amounts: list[int], cost: float) -> None:
        self.pool: Final = pool
        self.kind: Final = kind  # the same for equal amounts
        self.amounts: Final = amounts
        self.cost: Final = cost


class Trader:
    """A need: its units, its suitable machines in filling order, and how many of each it has."""

    __slots__ = ("cost", "counts", "has", "sizing", "wares")

    def __init__(
        self, sizing: Sizing, counts: tuple[int, ...], wares: list[Ware], has: list[int]
    ) -> None:
        self.sizing: Final = sizing
        self.counts: Final = counts
        self.wares: Final = wares
        self.has = has
        self.cost = self.cost_of(has) if self._covers(has) else math.inf

    def cost_of(self, bag: list[int]) -> float:
        cost = 0.0
        for at, ware in enumerate(self.wares):
            cost += bag[at] * ware.cost
        return cost

    def choose(self, free: list[int]) -> list[int] | None:
        """The machines that it would take out of the free ones: repeatedly the cheapest that takes
        the largest remaining unit, then without superfluous ones. None if they are too few, also
        when filled in the order of the supply."""
        left = self.counts
        bag = [0] * len(self.wares)
        while any(left):
            best, size, least = -1, len(left), math.inf
            for at, ware in enumerate(self.wares):
                if bag[at] < free[ware.pool]:
                    found = pattern_of_kind(self.sizing, left, ware.kind, ware.amounts)
                    if found.largest < size or (
                        found.largest == size < len(left) and ware.cost / found.worth < least
                    ):
                        best, size, least = at, found.largest, ware.cost / found.worth
            if best < 0:
                return None
            ware = self.wares[best]
            taken = pattern_of_kind(self.sizing, left, ware.kind, ware.amounts).taken
            times = free[ware.pool] - bag[best]
            for at in range(len(taken)):
                if taken[at]:
                    times = min(times, left[at] // taken[at])
            bag[best] += times
            left = tuple([left[at] - times * taken[at] for at in range(len(taken))])
        if not self._covers(bag):
            return None
        self._tidy(bag)
        return bag

    def _tidy(self, bag: list[int]) -> None:
        """Drops superfluous machines, the most expensive first."""
        dearest = [(-self.wares[at].cost, at) for at in range(len(bag)) if bag[at]]
        dearest.sort()
        for _, at in dearest:
            while bag[at]:
                bag[at] -= 1
                if not self._covers(bag):
                    bag[at] += 1
                    break

    def _covers(self, bag: list[int]) -> bool:
        left = self.counts
        for at, ware in enumerate(self.wares):
            if bag[at]:
                left = fill_kind(self.sizing, left, ware.kind, ware.amounts, bag[at])
        return not any(left)


def trade(free: list[int], traders: list[Trader]) -> bool:
    """Lets every pair of needs trade until nothing is saved. Returns whether any did.

    `free` counts the machines of each pool that no need has.
    """
    traded = False
    for _ in range(MOST_PASSES):
        changed = False
        for first in traders:
            for second in traders:
                if first is not second and _swap(free, first, second):
                    changed = True
        if not changed:
            break
        traded = True
    return traded


def _swap(free: list[int], first: Trader, second: Trader) -> bool:
    """Lets one need choose before another, out of what both have and what is free."""
    pools = list(free)
    for one in (first, second):
        for at, ware in enumerate(one.wares):
            pools[ware.pool] += one.has[at]
    mine = first.choose(pools)
    if mine is None or first.cost_of(mine) >= first.cost:
        return False
    for at, ware in enumerate(first.wares):
        pools[ware.pool] -= mine[at]
    theirs = second.choose(pools)
    if theirs is None:
        return False
    after = first.cost_of(mine) + second.cost_of(theirs)
    if after >= (first.cost + second.cost) * (1.0 - LEAST_SAVING):
        return False
    for at, ware in enumerate(second.wares):
        pools[ware.pool] -= theirs[at]
    free[:] = pools
    first.has, first.cost = mine, first.cost_of(mine)
    second.has, second.cost = theirs, second.cost_of(theirs)
    return True
