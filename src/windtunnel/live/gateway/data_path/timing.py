"""Deadlines: all things of one kind have one time limit, so that the oldest is always first."""

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

Thing = TypeVar("Thing")


class Deadlines(Generic[Thing]):
    """Things that are late `limit_s` after they were added, or made progress."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._since: Final[dict[Thing, float]] = {}  # in order of time

    def __len__(self) -> int:
        return len(self._since)

    def add(self, thing: Thing, now_s: float) -> None:
        self._since.pop(thing, None)
        self._since[thing] = now_s

    def touch(self, thing: Thing, now_s: float) -> None:
        """It has made progress, if it is here at all: its time starts again."""
        if self._since.pop(thing, None) is not None:
            self._since[thing] = now_s

    def remove(self, thing: Thing) -> None:
        self._since.pop(thing, None)

    def expired(self, now_s: float) -> Iterator[Thing]:
        """Those that are late; each is removed before it is given."""
        while self._since:
            thing, since_s = next(iter(self._since.items()))
            if now_s - since_s < self.limit_s:
                return
            del self._since[thing]
            yield thing
