"""The event queue against a sorted list, and the agenda against a minimum: the same, slowly."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from windtunnel.core.errors import InvariantBroken
from windtunnel.core.loop import INFINITY, Actor, Agenda, Entry, EventQueue

times = st.floats(0, 100) | st.integers(0, 5).map(float)


def key(entry: Entry) -> tuple[float, int, int]:
    return entry.time_s, entry.priority, entry.sequence


class QueueAgainstList(RuleBasedStateMachine):
    """Any sequence of pushes, pops and cancellations does to the queue what it does to a list."""

    entries = Bundle("entries")

    def __init__(self) -> None:
        super().__init__()
        self.queue = EventQueue()
        self.reference: list[tuple[float, int, int]] = []
        self.now = -INFINITY
        self.pushed = 0

    @rule(target=entries, delay=times, priority=st.integers(-2, 2))
    def push(self, delay: float, priority: int) -> Entry:
        time = max(self.now, 0.0) + delay
        payload = object()
        entry = self.queue.push(time, priority, payload)
        assert (key(entry), entry.payload) == ((time, priority, self.pushed), payload)
        self.reference.append(key(entry))
        self.pushed += 1
        return entry

    @rule(entry=entries)
    def cancel(self, entry: Entry) -> None:
        if key(entry) in self.reference:
            self.queue.cancel(entry)
            self.reference.remove(key(entry))
        else:
            with pytest.raises(InvariantBroken):
                self.queue.cancel(entry)

    @rule()
    def pop(self) -> None:
        entry = self.queue.pop()
        if not self.reference:
            assert entry is None
            return
        self.reference.sort()
        expected = self.reference.pop(0)
        assert entry is not None
        assert key(entry) == expected
        self.now = expected[0]

    @rule()
    def planning_the_past_is_refused(self) -> None:
        if math.isfinite(self.now):
            with pytest.raises(InvariantBroken, match="already"):
                self.queue.push(math.nextafter(self.now, -INFINITY), 0, None)

    @invariant()
    def agree(self) -> None:
        assert len(self.queue) == len(self.reference)
        assert self.queue.next_s == min(self.reference, default=(INFINITY,))[0]


TestQueueAgainstList = QueueAgainstList.TestCase


@given(st.lists(st.tuples(times, st.integers(-3, 3)), max_size=200))
def test_events_come_out_by_time_then_priority_then_age(plans: list[tuple[float, int]]) -> None:
    queue = EventQueue()
    for number, (time, priority) in enumerate(plans):
        queue.push(time, priority, number)
    expected = sorted(range(len(plans)), key=lambda number: (*plans[number], number))
    assert [entry.payload for entry in iter(queue.pop, None)] == expected


def test_cancelling_many_keeps_the_rest() -> None:
    queue = EventQueue()
    entries = [queue.push(float(number % 97), 0, number) for number in range(5000)]
    for entry in entries[::3] + entries[1::3]:
        queue.cancel(entry)
    assert len(queue) == len(entries[2::3])
    left = [entry.payload for entry in iter(queue.pop, None)]
    assert left == [entry.payload for entry in sorted(entries[2::3], key=key)]


def test_a_second_cancellation_is_a_bug_that_says_so() -> None:
    queue = EventQueue()
    entry = queue.push(1.0, 0, None)
    queue.push(2.0, 0, None)
    queue.cancel(entry)
    with pytest.raises(InvariantBroken, match="has happened or was cancelled before"):
        queue.cancel(entry)


def test_a_time_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvariantBroken):
        EventQueue().push(math.nan, 0, None)


def test_an_event_that_has_happened_cannot_be_cancelled() -> None:
    queue = EventQueue()
    entry = queue.push(1.0, 0, "a")
    queue.push(2.0, 0, "b")
    assert queue.pop() == entry
    with pytest.raises(InvariantBroken, match="has happened or was cancelled before"):
        queue.cancel(entry)
    assert len(queue) == 1
    assert queue.pop() is not None
    assert queue.pop() is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 5)), max_size=80))
def test_the_first_of_an_agenda_is_the_earliest_and_of_equals_the_lowest_turn(
    changes: list[tuple[bool, int, int]],
) -> None:
    late = Actor(1 << 40)
    actors = [late]
    agenda = Agenda([late])
    for adds, number, time in changes:
        wake_s = float(time) if time else INFINITY
        if adds:
            actors.append(Actor(len(actors)))
            actors[-1].wake_s = wake_s
            agenda.add(actors[-1])
        else:
            moved = actors[number % len(actors)]
            moved.wake_s = wake_s
            agenda.moved(moved)
        assert agenda.first() is min(actors, key=lambda one: (one.wake_s, one.turn))
        assert agenda.next_s == agenda.first().wake_s
        assert agenda.fault() is None
