"""Levels over time, for pictures: every change is written down, and few enough are kept."""

from collections.abc import Sequence
from typing import Final

MOST_LEVELS: Final = 2_000
"""Changes that are written down; of twice as many, every second is forgotten."""


class Levels:
    """Numbers that go together, from when they were so."""

    def __init__(self) -> None:
        self._rows: list[list[float]] = []

    def note(self, now_s: float, values: Sequence[float]) -> None:
        """From now on it is so; what was noted at the same instant never was."""
        rows = self._rows
        if rows and rows[-1][0] == now_s:
            rows.pop()
        if rows and rows[-1][1:] == list(values):
            return
        rows.append([now_s, *values])
        if len(rows) >= 2 * MOST_LEVELS:
            self._rows = rows[:1] + rows[2::2]

    def rows(self, begin_s: float) -> list[list[float]]:
        """Every change, as when and what; what was before the beginning is how it began."""
        before = [row for row in self._rows if row[0] <= begin_s]
        first = [[0.0, *before[-1][1:]]] if before else []
        return first + [[row[0] - begin_s, *row[1:]] for row in self._rows if row[0] > begin_s]
