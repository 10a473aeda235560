"""Gangs that wait behind another of their kind: they are skipped until that one fits."""

from heapq import heappop, heappush
from typing import Final

from windtunnel.gangs.placement.placer import GangKind
from windtunnel.gangs.placement.requests import Tie

Rank = tuple[int, float, Tie, str]
"""Sort key of gangs: see `GangRequest.rank`."""


class ParkedGangs:
    """Parked gangs by kind, in order of rank within each kind."""

    def __init__(self) -> None:
        self._ranks: Final[
            dict[GangKind, list[Rank]]
        ] = {}  # as heaps, which may have stale entries
        self._kind_of: Final[dict[str, GangKind]] = {}

    def add(self, rank: Rank, kind: GangKind) -> None:
        heappush(self._ranks.setdefault(kind, []), rank)
        self._kind_of[rank[3]] = kind

    def remove(self, name: str) -> bool:
        """Removes a gang; returns whether it was parked."""
        return self._kind_of.pop(name, None) is not None

    def clear(self) -> list[str]:
        """Removes all gangs and returns them."""
        names = list(self._kind_of)
        self._kind_of.clear()
        self._ranks.clear()
        return names

    def kinds(self) -> list[GangKind]:
        return list(self._ranks)

    def pop(self, kind: GangKind) -> Rank | None:
        """Removes and returns the first gang of a kind."""
        ranks = self._ranks.get(kind)
        while ranks:
            rank = heappop(ranks)
            if self._kind_of.get(rank[3]) == kind:
                del self._kind_of[rank[3]]
                return rank
        self._ranks.pop(kind, None)
        return None
