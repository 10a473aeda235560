"""The event loop of a run: components that act in time, and two queues for planned events.

Everything that acts in time is a `Component`. The loop asks each component for its next time and
lets the earliest act; at the same instant, the one that comes first in the loop's list. There is
one clock.

An `EventQueue` orders events by (time, priority, sequence). `push` assigns the sequence number, so
events with the same time and priority leave in the order in which they were added, and a run
depends neither on hash order nor on how objects were built. An `Agenda` holds actors that each have
exactly one next time, such as servers: when that changes, the actor moves in an indexed heap, where
a queue would hold an entry for every change.
"""

import math
from typing import Final

from mypy_extensions import i64, mypyc_attr

from windtunnel.core.errors import InvariantBroken

INFINITY: Final = float("inf")
NO_TURN: Final = 1 << 62
"""The turn of an empty place, after all others."""


class Clock:
    """The time of a run, in seconds since its start. Only the loop sets it."""

    def __init__(self) -> None:
        self.now_s = 0.0


class SkewedClock:
    """The clock of one controller: right, or off by `ahead_s`. It never runs backwards."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self._shown_s = -INFINITY

    def read(self, now_s: float) -> float:
        """The time that it shows at `now_s`."""
        self._shown_s = max(self._shown_s, now_s + self.ahead_s)
        return self._shown_s

    def when(self, shown_s: float) -> float:
        """The time at which it will show `shown_s`; in the past if it already has."""
        at_s = shown_s - self.ahead_s
        while at_s + self.ahead_s < shown_s:  # rounded down, it would show a moment too early
            at_s = math.nextafter(at_s, INFINITY)
        return at_s


@mypyc_attr(allow_interpreted_subclasses=True)
class Component:
    """Something that acts in time."""

    def next_s(self) -> float:
        """When it acts next; infinity: not until something else changes it."""
        raise NotImplementedError

    def advance(self, now_s: float) -> None:
        """Does what is due at `now_s`, the time that `next_s` returned."""
        raise NotImplementedError


class Loop:
    """Runs a single component, for soaks and for tests of a part of a simulation."""

    def __init__(self, component: Component) -> None:
        self._component: Final = component
        self.now_s = 0.0

    def next_s(self) -> float:
        return max(self.now_s, self._component.next_s())

    def wake(self) -> None:
        """Lets the component act now, after a change from outside."""
        self._component.advance(self.now_s)

    def step(self, until_s: float = INFINITY) -> bool:
        """Lets the component act once; False when it does not act until `until_s`."""
        due_s = self.next_s()
        if due_s > until_s or due_s == INFINITY:
            return False
        self.now_s = due_s
        self._component.advance(due_s)
        return True

    def run(self, until_s: float = INFINITY) -> None:
        """Does everything that is due until `until_s`."""
        while self.step(until_s):
            pass
        if until_s < INFINITY:
            self.now_s = max(self.now_s, until_s)


class Entry:
    """A planned event and its own handle. Events happen by (time, priority, sequence)."""

    __slots__ = ("payload", "place", "priority", "sequence", "time_s")

    def __init__(self, time_s: float, priority: i64, sequence: i64, payload: object) -> None:
        self.time_s: float = time_s
        self.priority: i64 = priority
        self.sequence: i64 = sequence
        self.payload = payload
        self.place: i64 = -1  # in the heap of its queue; -1: it has happened, or was cancelled


class EventQueue:
    """A binary heap of events with cancellation, O(log n) per operation.

    Entries know their position, so a cancelled one is removed at once.
    """

    def __init__(self) -> None:
        self._heap: Final[list[Entry]] = []
        self._sequence: i64 = 0
        self._now = -INFINITY
        self.next_s = INFINITY  # when the next event happens; infinity: there is none

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, time: float, priority: i64, payload: object) -> Entry:
        """Plans an event; the returned entry can be passed to `cancel`."""
        if not time >= self._now:
            raise InvariantBroken(f"an event was planned for {time}, but it is already {self._now}")
        entry = Entry(time, priority, self._sequence, payload)
        self._sequence += 1
        self._heap.append(entry)
        self._rise(entry, len(self._heap) - 1)
        if time < self.next_s:
            self.next_s = time
        return entry

    def cancel(self, entry: Entry) -> None:
        """Cancels an event that has not happened yet."""
        place = entry.place
        if not 0 <= place < len(self._heap) or self._heap[place] is not entry:
            raise InvariantBroken(f"event {entry.sequence} has happened or was cancelled before")
        self._remove(entry)

    def pop(self) -> Entry | None:
        """Removes and returns the next event; None when there is none."""
        if not self._heap:
            return None
        entry = self._heap[0]
        self._remove(entry)
        self._now = entry.time_s
        return entry

    def _remove(self, entry: Entry) -> None:
        heap = self._heap
        last = heap.pop()
        if last is not entry:
            self._rise(last, self._sink(entry.place))
        entry.place = -1
        self.next_s = heap[0].time_s if heap else INFINITY

    def _rise(self, entry: Entry, place: i64) -> None:
        """Puts an entry at a free position, or moves it up from there."""
        heap = self._heap
        time_s = entry.time_s
        while place > 0:
            above = (place - 1) >> 1
            parent = heap[above]
            if parent.time_s < time_s or (parent.time_s == time_s and _precedes(parent, entry)):
                break
            heap[place] = parent
            parent.place = place
            place = above
        heap[place] = entry
        entry.place = place

    def _sink(self, place: i64) -> i64:
        """Fills a free position from below, level by level; returns the leaf position freed by
        this."""
        heap = self._heap
        size: i64 = len(heap)
        child = 2 * place + 1
        while child < size:
            least = heap[child]
            if child + 1 < size:
                other = heap[child + 1]
                if other.time_s < least.time_s or (
                    other.time_s == least.time_s and _precedes(other, least)
                ):
                    least = other
                    child += 1
            heap[place] = least
            least.place = place
            place = child
            child = 2 * place + 1
        return place


def _precedes(one: Entry, other: Entry) -> bool:
    """Whether `one` happens before `other`, two events of the same instant."""
    if one.priority != other.priority:
        return one.priority < other.priority
    return one.sequence < other.sequence


class Actor:
    """Acts at `wake_s`; among equal times, the lowest `turn` goes first."""

    def __init__(self, turn: int) -> None:
        self.turn: Final[i64] = turn
        self.wake_s = INFINITY
        self.appointment: Final = Appointment(self, turn)


class Appointment:
    """An actor's entry in the agenda, with a copy of its time: compact, since actors are large."""

    def __init__(self, actor: Actor, turn: i64) -> None:
        self.actor: Final = actor
        self.turn: Final[i64] = turn
        self.wake_s = INFINITY
        self.place: i64 = -1  # in the tree of the agenda


class Agenda:
    """The first of some actors by (wake_s, turn). Call `moved` when an actor's `wake_s` changes.

    A knockout tournament: node 1 of the tree is the first of all, node n the first of the two below
    it, 2n and 2n + 1, and the lower half of the list has every actor's own place. A change of one
    time is played again on the way up, with one comparison a round.
    """

    def __init__(self, actors: list[Actor]) -> None:
        self._empty: Final = Appointment(Actor(NO_TURN), NO_TURN)
        self._tree: list[Appointment] = [self._empty, self._empty]
        self._entered: Final[list[Appointment]] = []
        self.next_s = INFINITY  # when the first acts
        for actor in actors:
            self.add(actor)

    def add(self, actor: Actor) -> None:
        one = actor.appointment
        size = len(self._tree) // 2
        if len(self._entered) == size:
            self._tree = [self._empty] * (4 * size)
            for other in self._entered:
                other.place += size
                self.moved(other.actor)
            size *= 2
        one.place = size + len(self._entered)
        self._entered.append(one)
        self.moved(actor)

    def first(self) -> Actor:
        return self._tree[1].actor

    def moved(self, actor: Actor) -> None:
        """Restores the order after an actor's time has changed."""
        tree = self._tree
        one = actor.appointment
        wake_s = one.wake_s = actor.wake_s
        place = one.place
        tree[place] = one
        while place > 1:
            other = tree[place ^ 1]
            if other.wake_s < wake_s or (other.wake_s == wake_s and other.turn < one.turn):
                one = other
                wake_s = other.wake_s
            place >>= 1
            tree[place] = one
        self.next_s = wake_s

    def fault(self) -> str | None:
        """Describes an actor that is out of order; None when all are in order."""
        tree = self._tree
        if self.next_s != tree[1].wake_s:
            return f"the first acts at {tree[1].wake_s} s, noted is {self.next_s} s"
        for one in self._entered:
            if one.wake_s != one.actor.wake_s:
                return f"number {one.turn} acts at {one.actor.wake_s} s, noted is {one.wake_s} s"
            if tree[one.place] is not one:
                return f"number {one.turn} is not at its place"
        for place in range(1, len(tree) // 2):
            first = min(tree[2 * place], tree[2 * place + 1], key=_when)
            if tree[place] is not first:
                late = f"acts at {tree[place].wake_s} s, after one that acts at {first.wake_s} s"
                return f"number {tree[place].turn} {late}"
        return None


def _when(one: Appointment) -> tuple[float, int]:
    return one.wake_s, one.turn
