"""When faults happen: a component of the control plane, after everything else of one instant.

A fault never keeps a run alive. What may help queued requests, such as the end of a fault, is
waited for while there are requests; what can only harm them is not, nor is a look at a condition.
"""

from collections.abc import Callable
from typing import Final

from windtunnel.core.loop import Component, EventQueue

Happening = Callable[[float], None]


class DueFault:
    """Something that is going to happen; whether queued requests may gain by it."""

    def __init__(self, do: Happening, *, helps: bool) -> None:
        self.do: Final = do
        self.helps: Final = helps


class FaultSchedule(Component):
    """Everything that faults have planned."""

    def __init__(self) -> None:
        self._queue: Final = EventQueue()
        self._helping = 0

    def plan(self, time_s: float, do: Happening, *, helps: bool) -> None:
        """Plans something; of the same instant what was planned first goes first."""
        self._helping += helps
        self._queue.push(time_s, 0, DueFault(do, helps=helps))

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
        """Whether anything is planned that may serve requests that wait."""
        return self._helping > 0
