"""Routers that spread load: each server in turn, at random, or by requests in flight."""

from typing import Final

from mypy_extensions import i64

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
        self._stream: Final = stream

    def pick(self, request: Request, now_s: float) -> Routed:  # noqa: ARG002
        place = self._stream.integer(0, len(self.candidates) - 1)
        return Routed(self.candidates[place], AT_RANDOM)


class LoadOrder(LoadListener):
    """A heap of servers by requests in flight; of equals, the one chosen longest ago is first."""

    def __init__(self, candidates: list[int], signals: Signals) -> None:
        self._in_flight: Final = signals.in_flight
        self._chosen: list[int] = []  # by server: the number of the choice that took it last
        self._places: list[int] = []  # by server: where in the heap; -1: not a candidate
        self._heap: list[int] = []
        self._choices: i64 = 0
        self.set_candidates(candidates)
        signals.listen(self)

    def set_candidates(self, candidates: list[int]) -> None:
        servers = len(self._in_flight)
        self._chosen.extend([-1] * (servers - len(self._chosen)))
        self._places = [-1] * servers
        self._heap = []
        for server in candidates:
            self._places[server] = len(self._heap)
            self._heap.append(server)
            self._rise(server)

    def first(self) -> int:
        return self._heap[0]

    def take(self, server: i64) -> None:
        """Notes that a server was chosen: among equals it is last now."""
        self._chosen[server] = self._choices
        self._choices += 1
        self._sink(server)

    def moved(self, server: i64) -> None:
        places = self._places
        if server < len(places) and places[server] >= 0 and not self._rise(server):
            self._sink(server)

    def _before(self, one: i64, other: i64) -> bool:
        load: i64 = self._in_flight[one]
        other_load: i64 = self._in_flight[other]
        if load != other_load:
            return load < other_load
        turn: i64 = self._chosen[one]
        other_turn: i64 = self._chosen[other]
        return turn < other_turn or (turn == other_turn and one < other)

    def _rise(self, server: i64) -> bool:
        heap = self._heap
        place: i64 = self._places[server]
        start = place
        while place > 0:
            above = (place - 1) >> 1
            parent: i64 = heap[above]
            if not self._before(server, parent):
                break
            heap[place] = parent
            self._places[parent] = place
            place = above
        if place == start:
            return False
        heap[place] = server
        self._places[server] = place
        return True

    def _sink(self, server: i64) -> None:
        heap = self._heap
        size: i64 = len(heap)
        place: i64 = self._places[server]
        child = 2 * place + 1
        while child < size:
            least: i64 = heap[child]
            if child + 1 < size:
                other: i64 = heap[child + 1]
                if self._before(other, least):
                    least = other
                    child += 1
            if not self._before(least, server):
                break
            heap[place] = least
            self._places[least] = place
            place = child
            child = 2 * place + 1
        heap[place] = server
        self._places[server] = place


class LeastLoaded(Router):
    """The server with the fewest requests in flight; of equals, the one chosen longest ago."""

    def __init__(self, candidates: list[int], signals: Signals) -> None:
        super().__init__(candidates)
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
    """Of two servers drawn at random, the one with fewer requests in flight, or the first."""

    def __init__(self, candidates: list[int], signals: Signals, stream: Stream) -> None:
        super().__init__(candidates)
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
