"""Gangs that wait behind one of their kind: no pass looks at them before that one fits."""

from heapq import heappop, heappush
from typing import Final

from windtunnel.gangs.placement.asks import Tie
from windtunnel.gangs.placement.placer import GangKind

Rank = tuple[int, float, Tie, str]
"""Orders gangs: see `GangAsk.rank`."""


class ParkedGangs:
    """Gangs by kind, each kind in the order of ranks."""

    def __init__(self) -> None:
        self._ranks: Final[dict[GangKind, list[Rank]]] = {}  # as heaps; some have left since
        self._kind_of: Final[dict[str, GangKind]] = {}

    def add(self, rank: Rank, kind: GangKind) -> None:
        heappush(self._ranks.setdefault(kind, []), rank)
        self._kind_of[rank[3]] = kind

    def remove(self, name: str) -> bool:
        """Says whether it was parked."""
        return self._kind_of.pop(name, None) is not None

    def clear(self) -> list[str]:
        """Those that were parked."""
        names = list(self._kind_of)
        self._kind_of.clear()
        self._ranks.clear()
        return names

    def kinds(self) -> list[GangKind]:
        return list(self._ranks)

    def pop(self, kind: GangKind) -> Rank | None:
        """The first of a kind, which is parked no longer."""
        ranks = self._ranks.get(kind)
        while ranks:
            rank = heappop(ranks)
            if self._kind_of.get(rank[3]) == kind:
                del self._kind_of[rank[3]]
                return rank
        self._ranks.pop(kind, None)
        return None
