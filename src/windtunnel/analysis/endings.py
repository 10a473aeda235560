"""How requests ended that were not completed: how many, why, and one of each to look up."""

from __future__ import annotations

from typing import Any

import msgspec

from windtunnel.analysis.latencies import of_outcomes
from windtunnel.core.vocabulary import general

MOST_ENDINGS = 12
MOST_EXAMPLES = 1_000


class EndingCount(msgspec.Struct, frozen=True):
    """An outcome with its reason, how often that was, and one request of which it is true."""

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

    def add(self, batch: Any) -> None:
        import pyarrow as pa

        if len(self._examples) > MOST_EXAMPLES:
            return
        rows = of_outcomes(batch, tuple(self._reasons))
        table = pa.table(
            {
                "outcome": rows["outcome"].cast(pa.string()),
                "reason": rows["reason"].cast(pa.string()),
                "id": rows["id"],
            }
        )
        kinds = table.group_by(["outcome", "reason"]).aggregate([("id", "min")])
        for row in kinds.to_pylist():
            reason = row["reason"] or ""
            key = (row["outcome"], general(reason))
            found = (row["id_min"], reason)
            self._examples[key] = min(self._examples.get(key, found), found)

    def most(self) -> list[EndingCount]:
        """The most frequent first; a reason has the numbers of its example."""
        found = []
        for outcome, counts in self._reasons.items():
            for reason, count in counts.items():
                number, said = self._examples.get((outcome, reason), (None, reason))
                found.append(EndingCount(outcome, said, count, number))
        found.sort(key=lambda ending: (-ending.count, ending.outcome, ending.reason))
        return found[:MOST_ENDINGS]
