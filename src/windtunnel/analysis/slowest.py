"""The slowest requests of a run, and those it lost, collected while all rows are read once."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.analysis.phases import RequestRow
from windtunnel.analysis.rows import COMPLETED, RowBatch

if TYPE_CHECKING:
    from windtunnel.analysis.rows import Floats

HOW_MANY = 8
MOST_LOST = 100
"""The most lost requests that are kept."""
LOST = ("dropped", "rejected")
"""Outcomes of requests that were lost at once or after any time: they need not be slow."""
FIRST_TOKEN, FINISHED = "first_token", "finished"
NOT_THERE = {"timed_out": "until it timed out", "unfinished": "unfinished"}
"""Notes for requests that never got there, by outcome."""


def _largest(values: Floats, how_many: int) -> list[int]:
    """The positions of the largest values, the largest first; of equal ones, the first."""
    import numpy as np

    places = np.arange(len(values))
    if how_many < len(values):
        least = np.partition(values, -how_many)[-how_many]
        places = np.flatnonzero(values >= least)
    ordered: list[int] = places[np.argsort(-values[places], kind="stable")].tolist()
    return ordered[:how_many]


class Slowest:
    """Collects the slowest requests to the first token and to the end, from batches of rows."""

    def __init__(self, result: dict[str, Any], how_many: int = HOW_MANY) -> None:
        self._end_s: float = result["simulated_seconds"]
        self._how_many = how_many
        self._kept: dict[str, list[tuple[float, int, RequestRow]]] = {FIRST_TOKEN: [], FINISHED: []}

    def add(self, batch: RowBatch) -> None:
        import numpy as np

        chosen = np.flatnonzero(batch.having(COMPLETED, *NOT_THERE))
        times = {name: batch.floats(name)[chosen] for name in ("arrived", FIRST_TOKEN, FINISHED)}
        ended = np.where(np.isnan(times[FINISHED]), self._end_s, times[FINISHED])
        for upto, kept in self._kept.items():
            reached = np.where(np.isnan(times[upto]), ended, times[upto])
            took = reached - times["arrived"]
            for place in _largest(took, self._how_many):
                found = batch.batch.slice(int(chosen[place]), 1).to_pylist()[0]
                row = msgspec.convert(found, RequestRow)
                kept.append((-float(took[place]), row.id, row))
            self._kept[upto] = heapq.nsmallest(self._how_many, kept, key=lambda entry: entry[:2])

    def requests(self, upto: str) -> list[tuple[float, RequestRow]]:
        """The slowest requests up to `first_token` or `finished`, the slowest first, with their
        seconds."""
        return [(-minus_took_s, row) for minus_took_s, _, row in self._kept[upto]]


class LostRequests:
    """Collects lost requests from batches of rows, at equal distances if there are many."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.counts: dict[str, int] = {name: result["requests"][name] for name in LOST}
        self._seen = dict.fromkeys(LOST, 0)
        self.rows: dict[str, list[RequestRow]] = {name: [] for name in LOST}

    def add(self, batch: RowBatch) -> None:
        import numpy as np

        for outcome, kept in self.rows.items():
            chosen = np.flatnonzero(batch.having(outcome))
            each = max(1, -(-self.counts[outcome] // MOST_LOST))
            for place in chosen[-self._seen[outcome] % each :: each].tolist():
                found = batch.batch.slice(int(place), 1).to_pylist()[0]
                kept.append(msgspec.convert(found, RequestRow))
            self._seen[outcome] += len(chosen)
