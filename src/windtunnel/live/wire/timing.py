"""Deadlines: items of one kind share one time limit, so that the oldest always expires first."""

import heapq
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

Thing = TypeVar("Thing")


class Deadlines(Generic[Thing]):
    """Items that expire `limit_s` after they were added."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._since: Final[dict[Thing, float]] = {}  # in order of time

    def __len__(self) -> int:
        return len(self._since)

    def add(self, thing: Thing, now_s: float) -> None:
        self._since.pop(thing, None)
        self._since[thing] = now_s

    def remove(self, thing: Thing) -> None:
        self._since.pop(thing, None)

    def expired(self, now_s: float) -> Iterator[Thing]:
        """The expired items; each is removed before it is yielded."""
        while self._since:
            thing, since_s = next(iter(self._since.items()))
            if now_s - since_s < self.limit_s:
                return
            del self._since[thing]
            yield thing


class Progress:
    """Something that makes progress piece by piece."""

    __slots__ = ("last_s",)

    def __init__(self) -> None:
        self.last_s = 0.0  # time of its last piece, on a clock that may be a sweep late


Going = TypeVar("Going", bound=Progress)


class ProgressDeadlines(Generic[Going]):
    """Items that expire `limit_s` after their last piece.

    A piece costs its owner an assignment to `last_s` and nothing here: an item is checked when the
    time since an earlier piece is over, and again when the time since its last piece would be.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._first: Final[dict[Going, float]] = {}  # not checked yet, in order of time
        self._later: Final[dict[Going, int]] = {}  # checked, with the number of the next check
        self._looks: Final[list[tuple[float, int, Going]]] = []  # a heap of (time, number, item)
        self._number = 0

    def __len__(self) -> int:
        return len(self._first) + len(self._later)

    def add(self, thing: Going, now_s: float) -> None:
        self.remove(thing)
        thing.last_s = now_s
        self._first[thing] = now_s

    def remove(self, thing: Going) -> None:
        if self._first.pop(thing, None) is None:
            self._later.pop(thing, None)

    def expired(self, now_s: float) -> list[Going]:
        """The expired items, which are removed."""
        late: list[Going] = []
        while self._first:
            thing, since_s = next(iter(self._first.items()))
            if now_s - since_s < self.limit_s:
                break
            del self._first[thing]
            self._look(thing, now_s, late)
        while self._looks and self._looks[0][0] <= now_s:
            _, number, thing = heapq.heappop(self._looks)
            if self._later.get(thing) == number:
                del self._later[thing]
                self._look(thing, now_s, late)
        return late

    def _look(self, thing: Going, now_s: float, late: list[Going]) -> None:
        if now_s - thing.last_s >= self.limit_s:
            late.append(thing)
            return
        self._number += 1
        self._later[thing] = self._number
        heapq.heappush(self._looks, (thing.last_s + self.limit_s, self._number, thing))
