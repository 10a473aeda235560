"""The schedule of faults: a control-plane component that acts after all others at an instant.

A fault never keeps a run alive. While there are requests, the run waits for scheduled effects that
may help queued requests, such as the end of a fault; it does not wait for harmful ones, nor for the
evaluation of a condition.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from windtunnel.core.loop import Component, EventQueue

Happening = Callable[[float], None]


class DueFault(NamedTuple):
    """A scheduled effect of a fault, and whether it may help queued requests."""

    do: Happening
    helps: bool


class FaultSchedule(Component):
    """All scheduled effects of faults."""

    def __init__(self) -> None:
        self._queue: Final = EventQueue()
        self._helping = 0

    def plan(self, time_s: float, do: Happening, *, helps: bool) -> None:
        """Schedules an effect; at the same instant, the one scheduled first goes first."""
        self._helping += helps
        self._queue.push(time_s, 0, DueFault(do, helps))

    def next_s(self) -> float:
        return self._queue.next_s

    def advance(self, now_s: float) -> None:
        entry = self._queue.pop()
        assert entry is not None
        due = entry.payload
        assert isinstance(due, DueFault)
        self._helping -= due.helps
        due.do(now_s)

    @property
    def helps(self) -> bool:
        """Whether any scheduled effect may help queued requests."""
        return self._helping > 0
