"""When faults happen: one entry on the control plane's timetable, for the next of them.

A fault never keeps a run alive. What may help queued requests, such as the end of a fault, is
waited for while there are requests; what can only harm them is not, nor is a look at a condition.
"""

from collections.abc import Callable
from typing import Final

from windtunnel.core.events import Entry, EventQueue
from windtunnel.twin.timetable import Timetable

FAULT: Final = 9  # on the timetable, after everything else of the same instant

Happening = Callable[[float], None]


class Due:
    """Something that is going to happen; whether queued requests may gain by it."""

    def __init__(self, do: Happening, *, helps: bool) -> None:
        self.do: Final = do
        self.helps: Final = helps


class Schedule:
    """Everything that faults have planned."""

    def __init__(self, timetable: Timetable) -> None:
        self._timetable: Final = timetable
        self._queue: Final = EventQueue()
        self._planned: Entry | None = None  # on the timetable
        self._helping = 0

    def plan(self, time_s: float, do: Happening, *, helps: bool) -> Entry:
        """Plans something; of the same instant what was planned first goes first."""
        self._helping += helps
        entry = self._queue.push(time_s, 0, Due(do, helps=helps))
        self._wake()
        return entry

    def cancel(self, entry: Entry) -> None:
        due = entry[3]
        assert isinstance(due, Due)
        self._helping -= due.helps
        self._queue.cancel(entry)
        self._wake()

    def happen(self, now_s: float) -> None:
        """The next thing that was planned here is due."""
        self._planned = None
        entry = self._queue.pop()
        assert entry is not None
        due = entry[3]
        assert isinstance(due, Due)
        self._helping -= due.helps
        due.do(now_s)
        self._wake()

    @property
    def is_alone(self) -> bool:
        """Whether nothing is planned in the control plane but faults that help nobody."""
        own = 1 if self._planned is not None else 0
        return len(self._timetable) == own and not self._helping

    def _wake(self) -> None:
        """Keeps one entry on the timetable, for the first of all."""
        next_s = self._queue.peek_time()
        if self._planned is not None:
            if self._planned[0] == next_s:
                return
            self._timetable.cancel(self._planned)
            self._planned = None
        if next_s != float("inf"):
            self._planned = self._timetable.push(next_s, FAULT, None)
