"""Routers that send what belongs together to one place: sessions, and prompts that start alike."""

from bisect import bisect_left
from typing import Final

from mypy_extensions import i64

from windtunnel.core.signals import Signals, Watcher
from windtunnel.routing.least_loaded import LoadOrder
from windtunnel.routing.router import Router
from windtunnel.workload.request import Request

MOST_STICKY: Final = 1_000_000
"""Sessions and prefixes whose server is remembered; the one heard of longest ago goes first."""

HASHED_TOKENS: Final = 1024
"""Prompts that start alike for so long are one to the ring."""

_MASK: Final = (1 << 64) - 1


def mixed(number: int) -> int:
    """A number in 64 bits with no trace of order: the finaliser of SplitMix64."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


class SessionSticky(Router):
    """A session's turns go where its first one went; so do prompts without one that start alike.

    Who has neither, comes first or has lost its server goes where the fewest requests are in
    flight. A busy server keeps its sessions: only one that is gone loses them.
    """

    def __init__(self, candidates: list[int], signals: Signals) -> None:
        super().__init__(candidates)
        self._order: Final = LoadOrder(candidates, signals)
        self._homes: Final[dict[tuple[bool, int], int]] = {}
        self._members = set(candidates)

    def set_candidates(self, candidates: list[int]) -> None:
        super().set_candidates(candidates)
        self._order.set_candidates(candidates)
        self._members = set(candidates)

    def choose(self, request: Request, now_s: float) -> int:  # noqa: ARG002
        prefix = request.prefix
        if request.session >= 0:
            key = (True, int(request.session))
        elif prefix is not None:
            key = (False, prefix.keys[0])
        else:
            chosen = self._order.first()
            self._order.take(chosen)
            return chosen
        home = self._homes.pop(key, -1)
        if home not in self._members:
            home = self._order.first()
            if len(self._homes) >= MOST_STICKY:
                del self._homes[next(iter(self._homes))]
        self._homes[key] = home
        self._order.take(home)
        return home


class LoadTotal(Watcher):
    """How many requests are in flight at some servers together, without counting them again."""

    def __init__(self, candidates: list[int], signals: Signals) -> None:
        self._in_flight: Final = signals.in_flight
        self._counted: list[int] = []
        self.total: i64 = 0
        self.set_candidates(candidates)
        signals.watch(self)

    def set_candidates(self, candidates: list[int]) -> None:
        self._counted = [-1] * len(self._in_flight)
        self.total = 0
        for server in candidates:
            self._counted[server] = self._in_flight[server]
            self.total += self._in_flight[server]

    def moved(self, server: i64) -> None:
        if server < len(self._counted) and self._counted[server] >= 0:
            self.total += self._in_flight[server] - self._counted[server]
            self._counted[server] = self._in_flight[server]


class ConsistentHash(Router):
    """A ring of servers: a prompt's start is a place on it, the next server with room takes it.

    Each server has many places, so that one which comes or goes moves only its share of prompts.
    Nobody gets more than `load_factor` times the mean of requests in flight (Mirrokni, Thorup and
    Zadimoghaddam's bounded loads): what would is passed on along the ring.
    """

    def __init__(
        self, candidates: list[int], signals: Signals, virtual_nodes: int, load_factor: float
    ) -> None:
        super().__init__(candidates)
        self._in_flight: Final = signals.in_flight
        self._nodes: Final = virtual_nodes
        self._factor: Final = load_factor
        self._spots: list[int] = []
        self._owners: list[int] = []
        self._load: Final = LoadTotal(candidates, signals)
        self._build()

    def set_candidates(self, candidates: list[int]) -> None:
        super().set_candidates(candidates)
        self._load.set_candidates(candidates)
        self._build()

    def _build(self) -> None:
        spots: list[tuple[int, int]] = []
        for server in self.candidates:
            start = mixed(server)
            spots.extend((mixed(start ^ node), server) for node in range(self._nodes))
        spots.sort()
        self._spots = [spot[0] for spot in spots]
        self._owners = [spot[1] for spot in spots]

    def choose(self, request: Request, now_s: float) -> int:  # noqa: ARG002
        room = self._factor * float(self._load.total + 1) / len(self.candidates)
        owners = self._owners
        place = bisect_left(self._spots, mixed(self._key(request)))
        while True:
            if place == len(owners):
                place = 0
            server = owners[place]
            if self._in_flight[server] < room:
                return server
            place += 1

    def _key(self, request: Request) -> int:
        """Of its prefix, or of its session, or of the request alone."""
        prefix = request.prefix
        if prefix is None:
            return mixed(request.session if request.session >= 0 else ~request.id)
        key = prefix.keys[0]
        for index in range(1, len(prefix.keys)):
            if prefix.ends[index - 1] >= HASHED_TOKENS:
                break
            key = prefix.keys[index]
        return key
