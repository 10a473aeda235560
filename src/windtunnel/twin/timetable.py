"""What the control plane of a run has planned: ticks, decisions under way, ends of start-ups.

It is kept apart from what requests have planned: a run whose requests have all ended is over,
whatever stands here. `next_s` costs nothing to look at, as every event of a run does.
"""

from typing import Final

from windtunnel.core.events import INFINITY, Entry, EventQueue


class Timetable:
    """Events in order of time; `next_s` is when the first of them is due."""

    def __init__(self) -> None:
        self._queue: Final = EventQueue()
        self.next_s = INFINITY

    def __len__(self) -> int:
        return len(self._queue)

    def push(self, time_s: float, kind: int, payload: object) -> Entry:
        """Plans something; of the same instant, the lower kind goes first."""
        entry = self._queue.push(time_s, kind, payload)
        self.next_s = self._queue.peek_time()
        return entry

    def cancel(self, entry: Entry) -> None:
        self._queue.cancel(entry)
        self.next_s = self._queue.peek_time()

    def pop(self) -> Entry:
        entry = self._queue.pop()
        assert entry is not None
        self.next_s = self._queue.peek_time()
        return entry


MOST_IDLE: Final = 10_000
"""Events of a control plane in a row, with nothing else between them, that a run waits for."""

MOST_UNSETTLED: Final = 1_000_000
"""The same while something may come of what was begun: a start-up, an order, a look at it all."""


MOST_ENDED: Final = 300
"""Gangs that are terminated meanwhile: those that are ended before they are ready never will be."""


class Patience:
    """How long a run waits for somebody to start a server, when nothing else can happen."""

    def __init__(self) -> None:
        self._latest = -1  # the event of the run that was the control plane's latest
        self._quiet_s = 0.0  # since when all events are the control plane's
        self._idle = 0  # so many of them
        self._settled = 0  # and so many with nothing under way
        self._ended = 0  # gangs that had been terminated when it began

    def ends(
        self,
        events: int,
        now_s: float,
        seen_s: float,
        under_way: int,
        ended: int = 0,
    ) -> bool:
        """Whether the next event, again the control plane's, is one too many.

        `seen_s`: of when the latest decision knew. One that did not know how things stand now says
        nothing about what the next will do. `ended`: gangs that were terminated so far.
        """
        if self._latest != events:
            self._quiet_s = now_s
            self._idle = self._settled = 0
            self._ended = ended
        self._latest = events + 1
        self._idle += 1
        self._settled = 0 if under_way or seen_s < self._quiet_s else self._settled + 1
        if ended - self._ended > MOST_ENDED:
            return True
        return self._settled > MOST_IDLE or self._idle > MOST_UNSETTLED
