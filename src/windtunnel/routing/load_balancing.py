"""Routers that spread load: in turn, at random, or by requests in flight."""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.heap import NOWHERE, HeapNode, NodeHeap
from windtunnel.core.random import Stream
from windtunnel.core.signals import LoadListener, Signals
from windtunnel.routing.router import (
    AT_RANDOM,
    FEWER_OF_TWO,
    FEWEST_IN_FLIGHT,
    IN_TURN,
    ONLY_SERVER,
    Routed,
    Router,
)
from windtunnel.workload.request import Request


class RoundRobin(Router):
    """Every server in turn, whatever its load."""

    def __init__(self, candidates: list[int]) -> None:
        super().__init__(candidates)
        self.follows_changes = False
        self._next = 0

    def pick(self, request: Request, now_s: float) -> Routed:  # noqa: ARG002
        if self._next >= len(self.candidates):
            self._next = 0
        chosen = self.candidates[self._next]
        self._next += 1
        return Routed(chosen, IN_TURN)


class RandomChoice(Router):
    """Any server, each with the same probability."""

    def __init__(self, candidates: list[int], stream: Stream) -> None:
        super().__init__(candidates)
        self.follows_changes = False
        self._stream: Final = stream

    def pick(self, request: Request, now_s: float) -> Routed:  # noqa: ARG002
        place = self._stream.integer(0, len(self.candidates) - 1)
        return Routed(self.candidates[place], AT_RANDOM)


class LoadOrder(LoadListener):
    """Servers ordered by requests in flight; of equals, the one chosen longest ago is first."""

    def __init__(self, candidates: list[int], signals: Signals) -> None:
        self._in_flight: Final = signals.in_flight
        self._servers: Final[list[HeapNode]] = []  # those in no heap are not candidates
        self._heap = NodeHeap()
        self._choices: i64 = 0
        self.set_candidates(candidates)
        signals.listen(self)

    def set_candidates(self, candidates: list[int]) -> None:
        for number in range(len(self._servers), len(self._in_flight)):
            node = HeapNode()
            node.tag = -1.0  # the number of the choice that took it last
            node.sequence = number
            self._servers.append(node)
        for node in self._servers:
            node.place = NOWHERE
        self._heap = NodeHeap()
        for number in candidates:
            node = self._servers[number]
            node.rank = self._in_flight[number]
            self._heap.push(node)

    def first(self) -> int:
        return self._heap.nodes[0].sequence

    def take(self, server: i64) -> None:
        """Records that a server was chosen, which makes it last among equals."""
        node = self._servers[server]
        node.tag = float(self._choices)
        self._choices += 1
        self._heap.fix(node)

    def moved(self, server: i64) -> None:
        if server < len(self._servers):
            node = self._servers[server]
            if node.place != NOWHERE:
                node.rank = self._in_flight[server]
                self._heap.fix(node)


class LeastLoaded(Router):
    """The server with the fewest requests in flight; of equals, the one chosen longest ago."""

    def __init__(self, candidates: list[int], signals: Signals) -> None:
        super().__init__(candidates)
        self.follows_changes = False
        self._in_flight: Final = signals.in_flight
        self._order: Final = LoadOrder(candidates, signals)

    def set_candidates(self, candidates: list[int]) -> None:
        super().set_candidates(candidates)
        self._order.set_candidates(candidates)

    def pick(self, request: Request, now_s: float) -> Routed:  # noqa: ARG002
        chosen = self._order.first()
        self._order.take(chosen)
        return Routed(chosen, FEWEST_IN_FLIGHT)

    def scores(self, request: Request, now_s: float) -> list[tuple[int, float]]:  # noqa: ARG002
        return [(server, 1.0 / (1.0 + self._in_flight[server])) for server in self.candidates]


class PowerOfTwo(Router):
    """Draws two servers at random and takes the one with fewer requests in flight, or the first."""

    def __init__(self, candidates: list[int], signals: Signals, stream: Stream) -> None:
        super().__init__(candidates)
        self.follows_changes = False
        self._in_flight: Final = signals.in_flight
        self._stream: Final = stream

    def pick(self, request: Request, now_s: float) -> Routed:  # noqa: ARG002
        last = len(self.candidates) - 1
        if last == 0:
            return Routed(self.candidates[0], ONLY_SERVER)
        first = self._stream.integer(0, last)
        second = self._stream.integer(0, last - 1)
        if second >= first:
            second += 1
        one = self.candidates[first]
        other = self.candidates[second]
        if self._in_flight[other] < self._in_flight[one]:
            one = other
        return Routed(one, FEWER_OF_TWO)

    def scores(self, request: Request, now_s: float) -> list[tuple[int, float]]:  # noqa: ARG002
        return [(server, 1.0 / (1.0 + self._in_flight[server])) for server in self.candidates]
