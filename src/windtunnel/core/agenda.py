"""Who acts next, among actors that each have exactly one next time.

An event queue for everybody would hold an entry per wish and many that were taken back. An actor here
keeps its own next time; when that changes, the actor moves up or down in an indexed heap. Actors of
the same time act in the order of their turns.
"""

from typing import Final

NEVER: Final = float("inf")


class Actor:
    """Something that does something at `wake_s`; its turn decides between equals."""

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.wake_s = NEVER
        self.place = -1  # in the heap of the agenda that it is on


class Agenda:
    """A binary heap of actors by (wake_s, turn). Tell it when an actor's `wake_s` has changed."""

    def __init__(self, actors: list[Actor]) -> None:
        self._heap: Final[list[Actor]] = []
        for actor in actors:
            actor.place = len(self._heap)
            self._heap.append(actor)
            self._rise(actor)

    def first(self) -> Actor:
        return self._heap[0]

    def moved(self, actor: Actor) -> None:
        """Puts an actor in its place after its time has changed."""
        if not self._rise(actor):
            self._sink(actor)

    def _rise(self, actor: Actor) -> bool:
        heap = self._heap
        place = actor.place
        start = place
        while place > 0:
            parent = heap[(place - 1) >> 1]
            if not before(actor, parent):
                break
            heap[place] = parent
            parent.place = place
            place = (place - 1) >> 1
        if place == start:
            return False
        heap[place] = actor
        actor.place = place
        return True

    def _sink(self, actor: Actor) -> None:
        heap = self._heap
        size = len(heap)
        place = actor.place
        start = place
        while True:
            child = 2 * place + 1
            if child >= size:
                break
            least = heap[child]
            if child + 1 < size and before(heap[child + 1], least):
                child += 1
                least = heap[child]
            if not before(least, actor):
                break
            heap[place] = least
            least.place = place
            place = child
        if place != start:
            heap[place] = actor
            actor.place = place


def before(one: Actor, other: Actor) -> bool:
    if one.wake_s != other.wake_s:
        return one.wake_s < other.wake_s
    return one.turn < other.turn
