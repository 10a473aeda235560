"""The event queue of a simulation: what happens next, in one total order.

Events are ordered by (time, priority, sequence). The sequence number is given out at `push`, so
events of the same time and priority come out in the order in which they went in, and a run depends
neither on hash order nor on how objects were built.
"""

from heapq import heapify, heappop, heappush
from typing import Final

from windtunnel.core.errors import InvariantBroken

INFINITY: Final = float("inf")

Entry = tuple[float, int, int, object]
"""An event is its own handle: (time, priority, sequence, payload)."""


class EventQueue:
    """A binary heap with cancellation, O(log n) per operation.

    A cancelled event stays in the heap until it surfaces, or until more than half of the heap is
    cancelled and it is rebuilt: memory stays within twice what waits.
    """

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._waiting: Final[set[int]] = set()
        self._sequence = 0
        self._now = -INFINITY
        self.popped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, time: float, priority: int, payload: object) -> Entry:
        """Plans an event; the returned entry is what `cancel` takes."""
        if not time >= self._now:
            raise InvariantBroken(f"an event was planned for {time}, but it is already {self._now}")
        entry: Entry = (time, priority, self._sequence, payload)
        self._waiting.add(self._sequence)
        self._sequence += 1
        heappush(self._heap, entry)
        return entry

    def cancel(self, entry: Entry) -> None:
        """Takes back an event that is still waiting."""
        if entry[2] not in self._waiting:
            raise InvariantBroken(f"event {entry[2]} has happened or was cancelled before")
        self._waiting.remove(entry[2])
        if len(self._heap) > 2 * len(self._waiting) + 16:
            self._heap = [kept for kept in self._heap if kept[2] in self._waiting]
            heapify(self._heap)

    def peek_time(self) -> float:
        """When the next event happens; infinity when there is none."""
        while self._heap and self._heap[0][2] not in self._waiting:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else INFINITY

    def pop(self) -> Entry | None:
        """Removes and returns the next event; None when there is none."""
        while self._heap:
            entry = heappop(self._heap)
            if entry[2] not in self._waiting:
                continue
            self._waiting.remove(entry[2])
            self._now = entry[0]
            self.popped += 1
            return entry
        return None
