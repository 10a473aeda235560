"""Routers with affinity: for the turns of a session, and for prompts with the same start."""

from bisect import bisect_left
from typing import Final

from mypy_extensions import i64

from windtunnel.core.signals import LoadListener, Signals
from windtunnel.routing.load_balancing import LoadOrder
from windtunnel.routing.router import (
    FEWEST_IN_FLIGHT,
    HASH_OWNER,
    HASH_SUCCESSOR,
    SAME_PREFIX,
    SAME_SESSION,
    Routed,
    Router,
)
from windtunnel.workload.request import Request

MOST_STICKY: Final = 1_000_000
"""Sessions and prefixes whose server is remembered; the least recently used are dropped."""

HASHED_TOKENS: Final = 1024
"""Prompts that share this many tokens have the same place on the ring."""

_MASK: Final = (1 << 64) - 1


def mixed(number: int) -> int:
    """Hashes a number to 64 bits with the finaliser of SplitMix64."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


class SessionSticky(Router):
    """Turns of a session go to one server; without a session, prompts with the same start do.

    The first request of either kind, a request with neither, and one whose server is gone go to the
    server with the fewest requests in flight. A busy server keeps its sessions.
    """

    def __init__(self, candidates: list[int], signals: Signals) -> None:
        super().__init__(candidates)
        self.follows_changes = False
        self._order: Final = LoadOrder(candidates, signals)
        self._homes: Final[dict[tuple[bool, int], int]] = {}
        self._members = set(candidates)

    def set_candidates(self, candidates: list[int]) -> None:
        super().set_candidates(candidates)
        self._order.set_candidates(candidates)
        self._members = set(candidates)

    def pick(self, request: Request, now_s: float) -> Routed:  # noqa: ARG002
        prefix = request.prefix
        if request.session >= 0:
            key = (True, int(request.session))
            reason = SAME_SESSION
        elif prefix is not None:
            key = (False, prefix.keys[0])
            reason = SAME_PREFIX
        else:
            chosen = self._order.first()
            self._order.take(chosen)
            return Routed(chosen, FEWEST_IN_FLIGHT)
        home = self._homes.pop(key, -1)
        if home not in self._members:
            home = self._order.first()
            reason = FEWEST_IN_FLIGHT
            if len(self._homes) >= MOST_STICKY:
                del self._homes[next(iter(self._homes))]
        self._homes[key] = home
        self._order.take(home)
        return Routed(home, reason)


class LoadTotal(LoadListener):
    """The sum of requests in flight over some servers, kept up to date."""

    def __init__(self, candidates: list[int], signals: Signals) -> None:
        self._in_flight: Final = signals.in_flight
        self._counted: list[int] = []
        self.total: i64 = 0
        self.set_candidates(candidates)
        signals.listen(self)

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
    """A hash ring: a prompt goes to the next server on the ring after its hash that has room.

    Each server has many virtual nodes, so that adding or removing one moves only its share of
    prompts. No server gets more than `load_factor` times the mean of requests in flight (the
    bounded loads of Mirrokni, Thorup and Zadimoghaddam): beyond that, the next server on the ring
    takes the request.
    """

    def __init__(
        self, candidates: list[int], signals: Signals, virtual_nodes: int, load_factor: float
    ) -> None:
        super().__init__(candidates)
        self.follows_changes = False
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

    def pick(self, request: Request, now_s: float) -> Routed:  # noqa: ARG002
        room = self._factor * float(self._load.total + 1) / len(self.candidates)
        owners = self._owners
        place = bisect_left(self._spots, mixed(self._key(request)))
        reason = HASH_OWNER
        while True:
            if place == len(owners):
                place = 0
            server = owners[place]
            if self._in_flight[server] < room:
                return Routed(server, reason)
            reason = HASH_SUCCESSOR
            place += 1

    def _key(self, request: Request) -> int:
        """The key of its prefix, or else of its session, or else of the request alone."""
        prefix = request.prefix
        if prefix is None:
            return mixed(request.session if request.session >= 0 else ~request.id)
        key: int = prefix.keys[0]
        for index in range(1, len(prefix.keys)):
            if prefix.ends[index - 1] >= HASHED_TOKENS:
                break
            key = prefix.keys[index]
        return key
