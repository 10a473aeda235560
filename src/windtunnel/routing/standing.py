"""Who stands best before a prompt is looked at, kept in order at a cost of log n for every change.

What servers said when they were last asked is a fixed sum for each. Counts of requests in flight
change all the time, and what a count is worth may depend on the least and the most of all: with
one request more or less, every server's sum may change. So servers with equal counts stand on one
level, where the fixed sum alone decides; levels are few, and only their heads are compared.
Among equals, whoever was chosen longest ago is first.
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.signals import LoadListener, Signals
from windtunnel.routing.scorers import LiveScorer


class Level:
    """Servers whose counts are equal: a heap of them, best first."""

    def __init__(self, counts: list[int], slot: int) -> None:
        self.counts: Final = counts  # one for each live scorer
        self.heap: Final[list[int]] = []
        self.points: i64 = 0  # what the counts are worth at this decision
        self.slot: i64 = slot


class Standing(LoadListener):
    """The candidates on their levels. `fixed` is the sum that only a look at servers changes."""

    def __init__(self, signals: Signals, live: list[LiveScorer]) -> None:
        servers = len(signals.in_flight)
        self._live: Final = live
        self._levels: Final[list[Level]] = []
        self._by_counts: Final[dict[int, Level]] = {}
        self._nowhere: Final = Level([], -1)
        self._level_of: list[Level] = [self._nowhere] * servers
        self._places = [-1] * servers  # in the heap of its level; -1: no candidate
        self._turns = [-1] * servers  # the number of the choice that took it last
        self._choices = 0
        self.fixed = [0] * servers
        self.lead_points: i64 = 0
        signals.listen(self)

    def reach(self, servers: int) -> None:
        """There are so many servers now."""
        more = servers - len(self._places)
        self._level_of.extend([self._nowhere] * more)
        self._places.extend([-1] * more)
        self._turns.extend([-1] * more)
        self.fixed.extend([0] * more)

    def rebuild(self, candidates: list[int]) -> None:
        """Everything anew, after a look at the servers or a change of candidates."""
        self._levels.clear()
        self._by_counts.clear()
        for server in range(len(self._places)):
            self._places[server] = -1
        for server in candidates:
            self._join(server)

    def moved(self, server: i64) -> None:
        if server < len(self._places) and self._places[server] >= 0:
            self._leave(server)
            self._join(server)

    def lead(self) -> int:
        """The server that stands best; `lead_points` is its sum."""
        self._value_levels()
        best: i64 = -1
        most: i64 = -1
        for level in self._levels:
            head: i64 = level.heap[0]
            points: i64 = self.fixed[head] + level.points
            if points > most or (points == most and self.earlier(head, best)):
                best = head
                most = points
        self.lead_points = most
        return best

    def points(self, server: i64) -> i64:
        """The sum of a candidate, as of the last `lead`."""
        return self.fixed[server] + self._level_of[server].points

    def earlier(self, one: i64, other: i64) -> bool:
        """Whether one was chosen longer ago than the other, or has the lower number."""
        turn: i64 = self._turns[one]
        other_turn: i64 = self._turns[other]
        return turn < other_turn or (turn == other_turn and one < other)

    def take(self, server: i64) -> None:
        """Notes that a server was chosen: among equals it is last now."""
        self._turns[server] = self._choices
        self._choices += 1
        self._sink(self._level_of[server].heap, server, self._places[server])

    def _value_levels(self) -> None:
        levels = self._levels
        for level in levels:
            level.points = 0
        for index, scorer in enumerate(self._live):
            low: i64 = levels[0].counts[index]
            high = low
            for level in levels:
                count: i64 = level.counts[index]
                if count < low:
                    low = count
                if count > high:
                    high = count
            for level in levels:
                level.points += scorer.points(scorer.score(level.counts[index], low, high))

    def _join(self, server: i64) -> None:
        key: int = 0
        for scorer in self._live:
            count = int(scorer.measure(server))  # a key of several counts outgrows 64 bits
            key = (key << 32) + count
        level = self._by_counts.get(key)
        if level is None:
            counts = [int(scorer.measure(server)) for scorer in self._live]
            level = Level(counts, len(self._levels))
            self._by_counts[key] = level
            self._levels.append(level)
        self._level_of[server] = level
        level.heap.append(server)
        self._rise(level.heap, server, len(level.heap) - 1)

    def _leave(self, server: i64) -> None:
        level = self._level_of[server]
        heap = level.heap
        place: i64 = self._places[server]
        last: i64 = heap.pop()
        if last != server:
            self._rise(heap, last, place)
            self._sink(heap, last, self._places[last])
        elif not heap:
            self._drop(level)

    def _drop(self, level: Level) -> None:
        key: int = 0
        for count in level.counts:
            key = (key << 32) + count
        del self._by_counts[key]
        last = self._levels.pop()
        if last is not level:
            self._levels[level.slot] = last
            last.slot = level.slot

    def _ahead(self, one: i64, other: i64) -> bool:
        fixed: i64 = self.fixed[one]
        other_fixed: i64 = self.fixed[other]
        return fixed > other_fixed or (fixed == other_fixed and self.earlier(one, other))

    def _rise(self, heap: list[int], server: i64, place: i64) -> None:
        while place > 0:
            above = (place - 1) >> 1
            parent: i64 = heap[above]
            if not self._ahead(server, parent):
                break
            heap[place] = parent
            self._places[parent] = place
            place = above
        heap[place] = server
        self._places[server] = place

    def _sink(self, heap: list[int], server: i64, place: i64) -> None:
        size: i64 = len(heap)
        child = 2 * place + 1
        while child < size:
            best: i64 = heap[child]
            if child + 1 < size:
                other: i64 = heap[child + 1]
                if self._ahead(other, best):
                    best = other
                    child += 1
            if not self._ahead(best, server):
                break
            heap[place] = best
            self._places[best] = place
            place = child
            child = 2 * place + 1
        heap[place] = server
        self._places[server] = place
