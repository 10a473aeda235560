"""The event loop of a run: components that act in time, and the two ways to keep what is planned.

Everything that acts in time is a `Component`. The loop asks each when it acts next, and lets the
earliest act; of the same instant, the one that comes first in the loop's list. There is one clock.

An `EventQueue` keeps events by (time, priority, sequence). The sequence number is given out at
`push`, so events of the same time and priority come out in the order in which they went in, and a
run depends neither on hash order nor on how objects were built. An `Agenda` keeps actors that each
have exactly one next time, such as servers: when that changes, the actor moves in an indexed heap,
where a queue would hold an entry for every change.
"""

import math
from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import i64, mypyc_attr

from windtunnel.core.errors import InvariantBroken

INFINITY: Final = float("inf")


class Clock:
    """The time of a run, in seconds since its start. Only the loop sets it."""

    def __init__(self) -> None:
        self.now_s = 0.0


class SkewedClock:
    """The clock of one controller: right, or off by a while. It never runs backwards."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self._shown_s = -INFINITY

    def read(self, now_s: float) -> float:
        """What it shows."""
        self._shown_s = max(self._shown_s, now_s + self.ahead_s)
        return self._shown_s

    def when(self, shown_s: float) -> float:
        """The time at which it will show this, or an earlier one where it already does."""
        at_s = shown_s - self.ahead_s
        while at_s + self.ahead_s < shown_s:  # rounded down, it would show a moment too early
            at_s = math.nextafter(at_s, INFINITY)
        return at_s


@mypyc_attr(allow_interpreted_subclasses=True)
class Component:
    """Something that acts in time."""

    def next_s(self) -> float:
        """When it acts next; infinity: not before something else changes it."""
        raise NotImplementedError

    def advance(self, now_s: float) -> None:
        """Does what is due at `now_s`, which is what `next_s` gave."""
        raise NotImplementedError


class Loop:
    """Runs one component by itself: for soaks and tests of a part of a simulation."""

    def __init__(self, component: Component) -> None:
        self._component: Final = component
        self.now_s = 0.0

    def next_s(self) -> float:
        return max(self.now_s, self._component.next_s())

    def wake(self) -> None:
        """Something was changed from outside: the component looks at it now."""
        self._component.advance(self.now_s)

    def step(self, until_s: float = INFINITY) -> bool:
        """Lets the component act once; False when it does not before `until_s`."""
        due_s = self.next_s()
        if due_s > until_s or due_s == INFINITY:
            return False
        self.now_s = due_s
        self._component.advance(due_s)
        return True

    def run(self, until_s: float = INFINITY) -> None:
        """Everything that is due until then."""
        while self.step(until_s):
            pass
        if until_s < INFINITY:
            self.now_s = max(self.now_s, until_s)


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
        self.next_s = INFINITY  # when the next event happens; infinity: there is none
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
        if time < self.next_s:
            self.next_s = time
        return entry

    def cancel(self, entry: Entry) -> None:
        """Takes back an event that is still waiting."""
        if entry[2] not in self._waiting:
            raise InvariantBroken(f"event {entry[2]} has happened or was cancelled before")
        self._waiting.remove(entry[2])
        if len(self._heap) > 2 * len(self._waiting) + 16:
            self._heap = [kept for kept in self._heap if kept[2] in self._waiting]
            heapify(self._heap)
        if entry[0] == self.next_s:
            self._look()

    def _look(self) -> None:
        """Drops cancelled events from the top, and sets `next_s`."""
        while self._heap and self._heap[0][2] not in self._waiting:
            heappop(self._heap)
        self.next_s = self._heap[0][0] if self._heap else INFINITY

    def pop(self) -> Entry | None:
        """Removes and returns the next event; None when there is none."""
        while self._heap:
            entry = heappop(self._heap)
            if entry[2] not in self._waiting:
                continue
            self._waiting.remove(entry[2])
            self._now = entry[0]
            self.popped += 1
            self._look()
            return entry
        return None


class Actor:
    """Something that does something at `wake_s`; its turn decides between equals."""

    def __init__(self, turn: int) -> None:
        self.turn: Final[i64] = turn
        self.wake_s = INFINITY
        self.place: i64 = -1  # in the heap of the agenda that it is on


class Agenda:
    """A binary heap of actors by (wake_s, turn). Tell it when an actor's `wake_s` has changed."""

    def __init__(self, actors: list[Actor]) -> None:
        self._heap: Final[list[Actor]] = []
        for actor in actors:
            self.add(actor)

    def add(self, actor: Actor) -> None:
        actor.place = len(self._heap)
        self._heap.append(actor)
        self._rise(actor)

    def first(self) -> Actor:
        return self._heap[0]

    def moved(self, actor: Actor) -> None:
        """Puts an actor in its place after its time has changed."""
        if actor.place == 0 or not self._rise(actor):
            self._sink(actor)

    # Both walks compare in place: they are most of what a large agenda costs.

    def _rise(self, actor: Actor) -> bool:
        heap = self._heap
        place = actor.place
        wake_s = actor.wake_s
        turn = actor.turn
        start = place
        while place > 0:
            above = (place - 1) >> 1
            parent = heap[above]
            if parent.wake_s < wake_s or (parent.wake_s == wake_s and parent.turn < turn):
                break
            heap[place] = parent
            parent.place = place
            place = above
        if place == start:
            return False
        heap[place] = actor
        actor.place = place
        return True

    def _sink(self, actor: Actor) -> None:
        heap = self._heap
        size: i64 = len(heap)
        place = actor.place
        wake_s = actor.wake_s
        turn = actor.turn
        child = 2 * place + 1
        while child < size:
            least = heap[child]
            if child + 1 < size:
                other = heap[child + 1]
                if other.wake_s < least.wake_s or (
                    other.wake_s == least.wake_s and other.turn < least.turn
                ):
                    least = other
                    child += 1
            if wake_s < least.wake_s or (wake_s == least.wake_s and turn < least.turn):
                break
            heap[place] = least
            least.place = place
            place = child
            child = 2 * place + 1
        heap[place] = actor
        actor.place = place
