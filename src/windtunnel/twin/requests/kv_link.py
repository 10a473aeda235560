"""The network that moves KV between servers: transfers share the links that they use.

A transfer waits for the latency and then moves its bytes from the NIC of one server to the NIC of
another and, where configured, over the uplinks of their racks and the fabric of their cluster.
Transfers share links max-min fair, recomputed whenever one joins or ends. Without contention each
moves as if it were alone.
"""

import math
from collections import deque
from typing import Final

from mypy_extensions import i64

from windtunnel.core.loop import Actor
from windtunnel.twin.requests.links import Link, LinkShares, Transfer
from windtunnel.twin.settings import TransferSettings
from windtunnel.workload.request import Request


class KvNetwork(Actor):
    """All transfers of a fleet. `advance` at `wake_s` returns the requests whose KV has arrived."""

    def __init__(self, turn: int, settings: TransferSettings) -> None:
        super().__init__(turn)
        self._bytes_per_s: Final[float] = settings.bandwidth_bytes_per_s
        self._latency_s: Final[float] = settings.latency_s
        self._contention: Final[bool] = settings.contention
        rack = settings.rack
        self._rack_servers: Final[int] = rack.servers if rack is not None else 0
        self._uplink: Final[float] = rack.uplink_bytes_per_s if rack is not None else 0.0
        self._fabric: Final[float] = settings.fabric_bytes_per_s or 0.0
        self.waiting: i64 = 0  # transfers in their latency
        self.moving: i64 = 0
        self.started: i64 = 0
        self.finished: i64 = 0
        self.abandoned: i64 = 0
        self.moved_bytes = 0.0  # of transfers that arrived
        self._carried_bytes = 0.0  # of all transfers, including partial ones
        self._settled_s = 0.0
        self._links: Final[dict[tuple[str, int], Link]] = {}
        self._joins: Final[deque[Transfer]] = deque()
        self._shares: Final = LinkShares()

    @property
    def active(self) -> i64:
        return self.waiting + self.moving

    def carried_until(self, now_s: float) -> float:
        """Bytes moved so far, including those of abandoned transfers."""
        return self._carried_bytes + self._shares.speed * (now_s - self._settled_s)

    def busy_until(self, now_s: float) -> float:
        """The busy time of the link that was busy for longest."""
        return max([link.busy_until(now_s) for link in self._links.values()], default=0.0)

    def start(
        self, request: Request, size: float, source: int, site: int, now_s: float
    ) -> Transfer:
        """Starts a transfer from a server to the request's own, both at one site."""
        route = self._links_between(source, int(request.server), site)
        transfer = Transfer(request, size, now_s + self._latency_s, route)
        if not self._contention:
            transfer.links = [Link(int(self.started), self._bytes_per_s)]
        self.started += 1
        self.waiting += 1
        self._joins.append(transfer)
        self._plan()
        return transfer

    def _links_between(self, source: int, target: int, site: int) -> list[Link]:
        """The links of a transfer."""
        nic = self._bytes_per_s
        found = [self._link("out", source, nic), self._link("in", target, nic)]
        if self._rack_servers:
            racks = source // self._rack_servers, target // self._rack_servers
            if racks[0] != racks[1]:
                found.append(self._link("up", racks[0], self._uplink))
                found.append(self._link("down", racks[1], self._uplink))
        if self._fabric:
            found.append(self._link("fabric", site, self._fabric))
        return found

    def _link(self, kind: str, number: int, bytes_per_s: float) -> Link:
        link = self._links.get((kind, number))
        if link is None:
            link = Link(len(self._links), bytes_per_s)
            self._links[kind, number] = link
        return link

    def shift(self, transfer: Transfer, begun_s: float, now_s: float, least_bytes: float) -> None:
        """Counts the part of a transfer that was moved since `begun_s`, while its links were idle.

        At least `least_bytes` remain. Its latency has not passed yet.
        """
        rate = min([link.bytes_per_s for link in transfer.route])
        seconds = now_s - begun_s
        if self._contention:
            seconds = min([link.idle_s(begun_s, now_s) for link in transfer.route])
        moved = max(0.0, min(transfer.size - least_bytes, rate * seconds))
        if self._contention:
            for link in transfer.route:
                link.use(begun_s, moved / link.bytes_per_s)
        self._carried_bytes += moved
        transfer.left = transfer.size - moved

    def abandon(self, transfer: Transfer, now_s: float) -> None:
        """Takes a transfer off its links; the others share its bandwidth."""
        self._settle(now_s)
        transfer.gone = True
        self.abandoned += 1
        if transfer.held_by is None:
            self.waiting -= 1
        else:
            self._take_off(transfer, now_s)
            self._shares.share(now_s)
        self._plan()

    def advance(self, now_s: float) -> list[Request]:
        """Adds transfers that join now; returns the requests whose bytes have arrived."""
        self._settle(now_s)
        arrived: list[Request] = []
        shares = self._shares
        ended = shares.next_due(now_s)
        while ended is not None:
            self._take_off(ended, now_s)
            self.finished += 1
            self.moved_bytes += ended.size
            arrived.append(ended.request)
            ended = shares.next_due(now_s)
        while self._joins and self._joins[0].joins_s <= now_s:
            transfer = self._joins.popleft()
            if not transfer.gone:
                self.waiting -= 1
                self._put_on(transfer, now_s)
        shares.share(now_s)
        self._plan()
        arrived.sort(key=_number)
        return arrived

    def _put_on(self, transfer: Transfer, now_s: float) -> None:
        self.moving += 1
        for link in transfer.route:
            link.begin(now_s)
        self._shares.add(transfer, now_s)

    def _take_off(self, transfer: Transfer, now_s: float) -> None:
        self.moving -= 1
        for link in transfer.route:
            link.end(now_s)
        self._shares.remove(transfer, now_s)

    def _settle(self, now_s: float) -> None:
        """Counts the bytes moved since the last change."""
        self._carried_bytes = self.carried_until(now_s)
        self._settled_s = now_s

    def _plan(self) -> None:
        while self._joins and self._joins[0].gone:
            self._joins.popleft()
        ends = self._shares.ends
        self.wake_s = ends.nodes[0].tag if len(ends) else math.inf
        if self._joins and self._joins[0].joins_s < self.wake_s:
            self.wake_s = self._joins[0].joins_s


def _number(request: Request) -> int:
    return int(request.id)
