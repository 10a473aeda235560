"""The long prompts of a run: those that a server computed while other requests waited."""

from __future__ import annotations

import heapq
from typing import Any

import msgspec

from windtunnel.analysis.phases import Owner, Phase
from windtunnel.analysis.rows import RowBatch

LONG = 2.0
"""A prompt or a response this many times the mean is called long."""
MOST_KEPT = 10_000
"""The number kept: those that took longest to compute."""


class LongPrompt(msgspec.Struct, frozen=True, order=True):
    """A prompt, and when and how long its server computed it."""

    took_s: float
    request: int
    tokens: int
    start_s: float
    server: Owner

    def overlap_s(self, phase: Phase) -> float:
        return min(self.start_s + self.took_s, phase.end_s) - max(self.start_s, phase.start_s)


def mean_tokens(result: dict[str, Any], kind: str) -> float:
    """Mean tokens of completed requests: `prompt` or `output`."""
    mean: float = result["tokens"][kind] / (result["requests"]["completed"] or 1)
    return mean


class LongPrompts:
    """Collects long prompts from batches of rows."""

    def __init__(self, result: dict[str, Any]) -> None:
        self._least = LONG * mean_tokens(result, "prompt")
        self._end_s: float = result["simulated_seconds"]
        self._kept: list[LongPrompt] = []

    def add(self, batch: RowBatch) -> None:
        import numpy as np

        tokens, start = batch.floats("prompt_tokens"), batch.floats("scheduled")
        chosen = np.flatnonzero((tokens > self._least) & ~np.isnan(start))
        if self._least <= 0 or not len(chosen):
            return
        end = np.full(len(chosen), np.nan)
        for name in ("prefilled", "first_token", "finished"):
            end = np.where(np.isnan(end), batch.floats(name)[chosen], end)
        took = np.where(np.isnan(end), self._end_s, end) - start[chosen]
        most = np.argsort(-took, kind="stable")[:MOST_KEPT]
        owners = _prompt_servers(batch)
        for place, took_s in zip(chosen[most].tolist(), took[most].tolist(), strict=True):
            self._kept.append(
                LongPrompt(
                    took_s,
                    int(batch.floats("id")[place]),
                    int(tokens[place]),
                    float(start[place]),
                    owners(place),
                )
            )
        self._kept = heapq.nlargest(MOST_KEPT, self._kept)

    def beside(self, server: Owner, phase: Phase, request: int) -> list[LongPrompt]:
        """Other requests' prompts that a server computed in a phase, the longest overlap first."""
        found = [
            one
            for one in self._kept
            if one.server == server and one.request != request and one.overlap_s(phase) > 0.0
        ]
        return sorted(found, key=lambda one: (-one.overlap_s(phase), one.request))

    def ahead(self, server: Owner, phase: Phase, request: int) -> list[LongPrompt]:
        """Other requests' prompts that a server computed for most of a phase, the longest overlap
        first."""
        found = self.beside(server, phase, request)
        if 2.0 * sum(one.overlap_s(phase) for one in found) < phase.took_s:
            return []
        return found


def _prompt_servers(batch: RowBatch) -> Any:
    """The server that computes the prompt of a row."""
    named = {name: batch.words(name) for name in ("pool", "prefill_pool")}

    def owner(place: int) -> Owner:
        which = "prefill_" if named["prefill_pool"][0][place] >= 0 else ""
        numbers, words = named[f"{which}pool"]
        if numbers[place] < 0:
            return None, None
        return words[numbers[place]], int(batch.floats(f"{which}replica")[place])

    return owner
