"""Outcomes of requests that were not completed: how many, why, and an example of each."""

from __future__ import annotations

from typing import Any

import msgspec

from windtunnel.analysis.rows import RowBatch
from windtunnel.core.vocabulary import general

MOST_ENDINGS = 12
MOST_EXAMPLES = 1_000


class EndingCount(msgspec.Struct, frozen=True):
    """An outcome with its reason, its count, and the number of an example request."""

    outcome: str
    reason: str
    count: int
    example: int | None


class EndingCounts:
    """Takes counts from the result, and the first request of each kind from batches of rows."""

    def __init__(self, result: dict[str, Any]) -> None:
        self._reasons: dict[str, dict[str, int]] = {
            outcome: counts
            for outcome, counts in result["reasons"].items()
            if outcome != "completed"
        }
        self._examples: dict[tuple[str, str], tuple[int, str]] = {}

    def add(self, batch: RowBatch) -> None:
        import numpy as np

        chosen = batch.having(*self._reasons)
        if len(self._examples) > MOST_EXAMPLES or not chosen.any():
            return
        (outcomes, outcome_words), (reasons, reason_words) = map(batch.words, ("outcome", "reason"))
        ids = np.asarray(batch.batch["id"])[chosen]
        kinds = (outcomes * (1 + len(reason_words)) + reasons)[chosen]
        order = np.lexsort((ids, kinds))  # the first of each kind has the lowest id
        firsts = order[np.unique(kinds[order], return_index=True)[1]]
        for place in firsts.tolist():
            reason = [*reason_words, ""][reasons[chosen][place]]
            key = (outcome_words[outcomes[chosen][place]], general(reason))
            found = (int(ids[place]), reason)
            self._examples[key] = min(self._examples.get(key, found), found)

    def most(self) -> list[EndingCount]:
        """The most frequent outcomes first; reasons show the numbers of their example."""
        found = []
        for outcome, counts in self._reasons.items():
            for reason, count in counts.items():
                number, said = self._examples.get((outcome, general(reason)), (None, reason))
                found.append(EndingCount(outcome, said, count, number))
        found.sort(key=lambda ending: (-ending.count, ending.outcome, ending.reason))
        return found[:MOST_ENDINGS]
