"""Hints to clusters about what they could get more of: changes, at most every few seconds."""

import math
from typing import Final

from windtunnel.fleet.planner.actions import HIGH, MEDIUM, NONE, Hint
from windtunnel.fleet.planner.entries import NeedRow, Supply
from windtunnel.fleet.planner.supply import Supplies

EVERY_S: Final = 5.0


class Hints:
    """Remembers the last hints to each cluster."""

    def __init__(self, supplies: Supplies) -> None:
        self._supplies: Final = supplies
        self._told: Final[dict[str, dict[str, tuple[int, float]]]] = {}  # by cluster, fingerprint
        self._next_s = -math.inf

    def tell(self, now_s: float) -> list[Hint]:
        """The hints that changed since the last call.

        Needs with equal requirements get the same answer: if it did not change, only new needs are
        reported.
        """
        if now_s < self._next_s:
            return []
        self._next_s = now_s + EVERY_S
        changed: list[Hint] = []
        fresh = self._supplies.take_fresh()
        told: dict[int, None] = {}  # supplies whose needs were all reported
        for supply in self._supplies.all():
            answer = _look(supply)
            if supply.answer != answer:
                supply.answer = answer
                told[id(supply)] = None
                for row in supply.members:
                    self._tell_one(row, answer, changed)
        for row in fresh:
            supply = self._supplies.of(row)
            if id(supply) not in told:
                assert supply.answer is not None
                self._tell_one(row, supply.answer, changed)
        return changed

    def _tell_one(self, row: NeedRow, answer: tuple[int, float], changed: list[Hint]) -> None:
        cluster, fingerprint = row.cluster.name, row.key.fingerprint
        told = self._told.get(cluster)
        if told is None:
            told = {}
            self._told[cluster] = told
        if told.get(fingerprint) != answer:
            told[fingerprint] = answer
            changed.append(Hint(cluster, fingerprint, answer[0], answer[1]))


def _look(supply: Supply) -> tuple[int, float]:
    """The confidence of getting a machine, and the price of the next one."""
    whole = [stock for stock in supply.order if supply.rooms[supply.rank[stock]]]
    for stock in whole:
        if stock.idle_count:
            return (HIGH, stock.price)
    for stock in whole:
        if stock.quota_count:
            return (MEDIUM, stock.price)
    return (NONE, 0.0)
