"""Who acts next, among actors that each have exactly one next time.

An event queue for everybody would hold an entry per wish, and many that were taken back. An actor
here keeps its own next time; when that changes, the actor moves up or down in an indexed heap.
Actors of the same time act in the order of their turns.
"""

from typing import Final

from mypy_extensions import i64

NEVER: Final = float("inf")


class Actor:
    """Something that does something at `wake_s`; its turn decides between equals."""

    def __init__(self, turn: int) -> None:
        self.turn: Final[i64] = turn
        self.wake_s = NEVER
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
