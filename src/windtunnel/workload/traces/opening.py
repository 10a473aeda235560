"""Opens the trace of a workload, and says in a scenario's words what is wrong with it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from windtunnel.workload.plan import TraceReplay
from windtunnel.workload.traces.lines import unpacked_name
from windtunnel.workload.traces.notes import SCENARIO_WORDS, Repairs, TraceNotes
from windtunnel.workload.traces.reading import open_trace
from windtunnel.workload.traces.record import TraceRequest


class LeftOut(NamedTuple):
    """Rows of a trace that were not replayed."""

    path: str
    empty: int
    """Requests without a prompt or an output."""
    bad: int
    """Rows that could not be read."""
    adapters: int
    """Requests for adapters that nobody has slots for, served by the base model."""
    prefix_tokens: int = 0
    """Of a run's own requests: tokens it found in its caches, which a replay cannot find."""
    repairs: Repairs = Repairs()


class Opened:
    """A trace that is being read."""

    def __init__(self, plan: TraceReplay, classes: Sequence[str]) -> None:
        path = Path(plan.path)
        self._notes = TraceNotes(plan.path, plan.skip_bad, SCENARIO_WORDS)
        if plan.slo is None:
            self._notes.classes = frozenset(classes)
        self.name = unpacked_name(path).stem
        self.requests: Iterator[TraceRequest] = open_trace(
            path, plan.format, sort=plan.sort, notes=self._notes
        )

    def left_out(self, adapters: int) -> LeftOut:
        """What was not read so far, and whose adapters were not asked for."""
        notes = self._notes
        told = notes.empty, notes.bad, adapters, notes.prefix_tokens, notes.repairs
        return LeftOut(notes.path, *told)
