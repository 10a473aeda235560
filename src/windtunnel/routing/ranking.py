"""Ranks servers by the prompt-independent part of their score, in O(log n) per change.

Scores from the last probe add up to a fixed sum per server. Counts of requests in flight change all
the time, and the score of a count may depend on the lowest and highest of all counts: one request
more or less may change the score of every server. Servers with equal counts therefore form a level,
within which the fixed sum alone decides; there are few levels, and only the first server of each is
compared. Among equals, the one chosen longest ago is first.
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.heap import NOWHERE, HeapNode, NodeHeap
from windtunnel.core.signals import LoadListener, Signals
from windtunnel.routing.scorers import LiveScorer


class CountLevel:
    """Servers with equal counts, in a heap with the highest fixed sum first."""

    def __init__(self, key: int, counts: list[int], slot: int) -> None:
        self.key: Final = key
        self.counts: Final = counts  # one for each live scorer
        self.heap: Final = NodeHeap()
        self.points: i64 = 0  # what the counts are worth at this decision
        self.slot: i64 = slot


class RankedServer(HeapNode):
    """A server, ordered by (-fixed sum, number of the choice that took it last, number)."""

    __slots__ = ("level",)

    def __init__(self, number: int, level: CountLevel) -> None:
        super().__init__()
        self.tag = -1.0
        self.sequence = number
        self.level = level


class Ranking(LoadListener):
    """The candidates, grouped into levels."""

    def __init__(self, signals: Signals, live: list[LiveScorer]) -> None:
        self._live: Final = live
        self._levels: Final[list[CountLevel]] = []
        self._by_counts: Final[dict[int, CountLevel]] = {}
        self._nowhere: Final = CountLevel(-1, [], -1)
        self._valued = False  # whether all levels have their points
        self._servers: Final[list[RankedServer]] = []  # those in no heap are not candidates
        self._choices: i64 = 0
        self.lead_points: i64 = 0
        self.reach(len(signals.in_flight))
        signals.listen(self)

    def reach(self, servers: int) -> None:
        """Grows to this number of servers."""
        for number in range(len(self._servers), servers):
            self._servers.append(RankedServer(number, self._nowhere))

    def rebuild(self, candidates: list[int], fixed: list[int]) -> None:
        """Ranks the candidates by new fixed sums, after a probe or a change of candidates."""
        self._levels.clear()
        self._by_counts.clear()
        self._valued = False
        for one in self._servers:
            one.place = NOWHERE
        for index, number in enumerate(candidates):
            server = self._servers[number]
            server.rank = -fixed[index]
            self._enter(server, self._key(number))

    def moved(self, server: i64) -> None:
        if server < len(self._servers):
            one = self._servers[server]
            if one.place != NOWHERE:
                key = self._key(server)
                if key != one.level.key:
                    self._leave(one)
                    self._enter(one, key)

    def lead(self) -> i64:
        """Returns the server with the highest sum, and sets `lead_points` to that sum."""
        if not self._valued:
            self._value_levels()
        levels = self._levels
        best = levels[0].heap.nodes[0]
        most: i64 = levels[0].points - best.rank
        for level in levels:
            head = level.heap.nodes[0]
            points: i64 = level.points - head.rank
            if points > most or (points == most and _earlier(head, best)):
                best = head
                most = points
        self.lead_points = most
        return best.sequence

    def points(self, server: i64) -> i64:
        """The sum of a candidate, as of the last call of `lead`."""
        one = self._servers[server]
        return one.level.points - one.rank

    def earlier(self, one: i64, other: i64) -> bool:
        """Whether `one` was chosen longer ago, or is the lower number if neither ever was."""
        return _earlier(self._servers[one], self._servers[other])

    def take(self, server: i64) -> None:
        """Records that a server was chosen, which makes it last among equals."""
        one = self._servers[server]
        one.tag = float(self._choices)
        self._choices += 1
        one.level.heap.fix(one)

    def _value_levels(self) -> None:
        """Scores all levels again; one level more or less can change the score of every other."""
        self._valued = True
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

    def _key(self, number: i64) -> int:
        """The counts of a server as one number, which may exceed 64 bits."""
        key: int = 0
        for scorer in self._live:
            key = (key << 32) + int(scorer.measure(number))
        return key

    def _enter(self, server: RankedServer, key: int) -> None:
        level = self._by_counts.get(key)
        if level is None:
            counts = [int(scorer.measure(server.sequence)) for scorer in self._live]
            level = CountLevel(key, counts, len(self._levels))
            self._by_counts[key] = level
            self._levels.append(level)
            self._valued = False
        server.level = level
        level.heap.push(server)

    def _leave(self, server: RankedServer) -> None:
        level = server.level
        level.heap.remove(server)
        if not level.heap.nodes:
            self._drop(level)

    def _drop(self, level: CountLevel) -> None:
        del self._by_counts[level.key]
        self._valued = False
        last = self._levels.pop()
        if last is not level:
            self._levels[level.slot] = last
            last.slot = level.slot


def _earlier(one: HeapNode, other: HeapNode) -> bool:
    return one.tag < other.tag or (one.tag == other.tag and one.sequence < other.sequence)
