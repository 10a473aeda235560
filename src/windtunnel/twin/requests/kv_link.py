"""The network that moves KV from one server to another: transfers share the links that they use.

A transfer waits for the latency and then moves its bytes from the NIC of one server to the NIC of
another, and, where the scenario says so, over the uplinks of their racks and the fabric of their
cluster. Every link gives equal shares to the transfers on it, and a transfer is as fast as the
smallest of its shares. Shares change the moment a transfer joins or ends, for those alone that use
one of its links. Without contention each moves as if it were alone.
"""

import math
from collections import deque
from typing import Final

from mypy_extensions import i64

from windtunnel.core.heap import NOWHERE, HeapNode, NodeHeap
from windtunnel.core.loop import Actor
from windtunnel.twin.settings import TransferSettings
from windtunnel.workload.request import Request


class Link:
    """One direction of a NIC or of a rack's uplink, or a fabric; and the transfers on it."""

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s: Final = bytes_per_s
        self.transfers: Final[dict[int, Transfer]] = {}  # by request
        self._busy_s = 0.0
        self._since_s = 0.0  # while something moves: since when

    def join(self, transfer: "Transfer", now_s: float) -> None:
        if not self.transfers:
            self._since_s = now_s
        self.transfers[transfer.request.id] = transfer

    def leave(self, transfer: "Transfer", now_s: float) -> None:
        del self.transfers[transfer.request.id]
        if not self.transfers:
            self._busy_s += now_s - self._since_s

    def share(self) -> float:
        """Bytes per second of each transfer on it."""
        return self.bytes_per_s / float(len(self.transfers))

    def busy_until(self, now_s: float) -> float:
        """Seconds in which something was moving."""
        return self._busy_s + (now_s - self._since_s if self.transfers else 0.0)


class Transfer(HeapNode):
    """Bytes on their way for a request; in a heap by the time at which the last one arrives."""

    __slots__ = ("gone", "joins_s", "left", "links", "rate", "request", "settled_s", "size")

    def __init__(self, request: Request, size: float, joins_s: float, links: list[Link]) -> None:
        super().__init__()
        self.sequence = int(request.id)
        self.request = request
        self.size = size
        self.joins_s = joins_s
        self.links = links
        self.left = size  # as of `settled_s`
        self.settled_s = joins_s
        self.rate = 0.0
        self.gone = False


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
        self.waiting: i64 = 0  # in their latency
        self.moving: i64 = 0
        self.started: i64 = 0
        self.finished: i64 = 0
        self.abandoned: i64 = 0
        self.moved_bytes = 0.0  # of transfers that arrived
        self._carried_bytes = 0.0  # of all, as far as they came
        self._speed = 0.0  # of all that move
        self._settled_s = 0.0
        self._links: Final[dict[tuple[str, int], Link]] = {}
        self._joins: Final[deque[Transfer]] = deque()
        self._ends: Final = NodeHeap()

    @property
    def active(self) -> i64:
        return self.waiting + self.moving

    def carried_until(self, now_s: float) -> float:
        """Bytes that have been moved, also of transfers that were abandoned."""
        return self._carried_bytes + self._speed * (now_s - self._settled_s)

    def busy_until(self, now_s: float) -> float:
        """Seconds in which KV was moving over the link that moved some for longest."""
        return max([link.busy_until(now_s) for link in self._links.values()], default=0.0)

    def start(
        self, request: Request, size: float, source: int, site: int, now_s: float
    ) -> Transfer:
        """Begins to move bytes for a request from a server to its own, both at one site."""
        links = self._links_between(source, int(request.server), site)
        transfer = Transfer(request, size, now_s + self._latency_s, links)
        self.started += 1
        self.waiting += 1
        self._joins.append(transfer)
        self._plan()
        return transfer

    def _links_between(self, source: int, target: int, site: int) -> list[Link]:
        """The links of a transfer that others may use, too."""
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
            link = Link(bytes_per_s)
            self._links[kind, number] = link
        return link

    def shift(self, transfer: Transfer, seconds: float, least_bytes: float) -> None:
        """Part of it has been moved in the seconds before, at the speed that it would have now.

        `least_bytes` are left in any case. Its latency has not passed yet.
        """
        rate = self._bytes_per_s
        if self._contention:
            for link in transfer.links:
                rate = min(rate, link.bytes_per_s / float(len(link.transfers) + 1))
        left = min(transfer.size, max(least_bytes, transfer.size - rate * seconds))
        self._carried_bytes += transfer.left - left
        transfer.left = left

    def abandon(self, transfer: Transfer, now_s: float) -> None:
        """Takes a transfer off its links; the others share what it had."""
        self._settle(now_s)
        transfer.gone = True
        self.abandoned += 1
        if transfer.place == NOWHERE:
            self.waiting -= 1
        else:
            self._take_off(transfer, now_s)
        self._plan()

    def advance(self, now_s: float) -> list[Request]:
        """What joins at `now_s` shares from now on; returns the requests whose bytes are there."""
        self._settle(now_s)
        arrived: list[Request] = []
        ends = self._ends
        while len(ends) and ends.nodes[0].tag <= now_s:
            transfer = ends.nodes[0]
            assert isinstance(transfer, Transfer)
            self._take_off(transfer, now_s)
            self.finished += 1
            self.moved_bytes += transfer.size
            arrived.append(transfer.request)
        while self._joins and self._joins[0].joins_s <= now_s:
            transfer = self._joins.popleft()
            if not transfer.gone:
                self.waiting -= 1
                self._put_on(transfer, now_s)
        self._plan()
        return arrived

    def _put_on(self, transfer: Transfer, now_s: float) -> None:
        self.moving += 1
        transfer.settled_s = now_s
        transfer.tag = math.inf
        self._ends.push(transfer)
        for link in transfer.links:
            link.join(transfer, now_s)
        self._share_anew(transfer, now_s)

    def _take_off(self, transfer: Transfer, now_s: float) -> None:
        self.moving -= 1
        self._speed -= transfer.rate
        self._ends.remove(transfer)
        for link in transfer.links:
            link.leave(transfer, now_s)
        self._share_anew(transfer, now_s)
        if not self.moving:
            self._speed = 0.0  # without what is lost in rounding

    def _share_anew(self, changed: Transfer, now_s: float) -> None:
        """Transfers on the links of one that has come or gone get their new shares."""
        if not self._contention:
            if changed.place != NOWHERE:
                self._set_rate(changed, self._bytes_per_s, now_s)
            return
        for link in changed.links:
            for transfer in link.transfers.values():
                rate = transfer.links[0].share()
                for other in transfer.links:
                    rate = min(rate, other.share())
                if rate != transfer.rate:
                    self._set_rate(transfer, rate, now_s)

    def _set_rate(self, transfer: Transfer, rate: float, now_s: float) -> None:
        transfer.left = max(0.0, transfer.left - transfer.rate * (now_s - transfer.settled_s))
        transfer.settled_s = now_s
        self._speed += rate - transfer.rate
        transfer.rate = rate
        transfer.tag = now_s + transfer.left / rate
        self._ends.fix(transfer)

    def _settle(self, now_s: float) -> None:
        """Counts what has been moved since the last change."""
        self._carried_bytes = self.carried_until(now_s)
        self._settled_s = now_s

    def _plan(self) -> None:
        while self._joins and self._joins[0].gone:
            self._joins.popleft()
        self.wake_s = self._ends.nodes[0].tag if len(self._ends) else math.inf
        if self._joins and self._joins[0].joins_s < self.wake_s:
            self.wake_s = self._joins[0].joins_s
