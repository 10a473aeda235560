"""The link that moves KV from one server to another: transfers share its bandwidth.

Every transfer waits for the link's latency and then moves its bytes. With contention all moving
transfers get equal shares, and shares grow the moment one of them ends; without, each moves as if
it were alone.

Shares are counted, not simulated: `_mark` is how many bytes a transfer would have moved that had
been there since the link was last idle. A transfer that joins at mark m with b bytes ends at mark
m + b, whatever starts and ends meanwhile, so one heap says which ends next.
"""

import math
from collections import deque
from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from windtunnel.core.loop import Actor
from windtunnel.workload.request import Request


class Transfer:
    """Bytes on their way for a request."""

    def __init__(self, request: Request, size: float, joins_s: float) -> None:
        self.request: Final = request
        self.size: Final = size
        self.joins_s: Final = joins_s
        self.joined = False
        self.gone = False


class Link(Actor):
    """All transfers of a fleet. `advance` at `wake_s` returns the requests whose KV has arrived."""

    def __init__(
        self,
        turn: int,
        bytes_per_s: float,
        latency_s: float,
        contention: bool,  # noqa: FBT001 - a setting of the scenario
    ) -> None:
        super().__init__(turn)
        self.bytes_per_s: Final = bytes_per_s
        self.latency_s: Final = latency_s
        self.contention: Final = contention
        self.waiting: i64 = 0  # in their latency
        self.moving: i64 = 0
        self.started: i64 = 0
        self.finished: i64 = 0
        self.abandoned: i64 = 0
        self.moved_bytes = 0.0  # of transfers that arrived
        self._carried_bytes = 0.0  # of all, as far as they came
        self._busy_s = 0.0
        self._joins: Final[deque[Transfer]] = deque()
        self._ends: Final[list[tuple[float, int, Transfer]]] = []
        self._mark = 0.0
        self._settled_s = 0.0

    @property
    def active(self) -> i64:
        return self.waiting + self.moving

    def carried_until(self, now_s: float) -> float:
        """Bytes that have gone over the link, also of transfers that were abandoned."""
        if not self.moving:
            return self._carried_bytes
        since_s = now_s - self._settled_s
        return self._carried_bytes + since_s * self._speed() * float(self.moving)

    def busy_until(self, now_s: float) -> float:
        """Seconds in which something was moving."""
        return self._busy_s + (now_s - self._settled_s if self.moving else 0.0)

    def start(self, request: Request, size: float, now_s: float) -> Transfer:
        transfer = Transfer(request, size, now_s + self.latency_s)
        self.started += 1
        self.waiting += 1
        self._joins.append(transfer)
        self._plan(now_s)
        return transfer

    def abandon(self, transfer: Transfer, now_s: float) -> None:
        """Takes a transfer off the link; the others share what it had."""
        self._settle(now_s)
        transfer.gone = True
        self.abandoned += 1
        if transfer.joined:
            self.moving -= 1
        else:
            self.waiting -= 1
        self._plan(now_s)

    def advance(self, now_s: float) -> list[Request]:
        """What joins at `now_s` shares from now on; returns the requests whose bytes are there."""
        arrived: list[Request] = []
        ends = self._ends
        if ends and self._end_s() <= now_s:
            mark = ends[0][0]
            self._settle(now_s)
            self._mark = mark
            while ends and ends[0][0] <= mark:
                transfer = heappop(ends)[2]
                if not transfer.gone:
                    self.moving -= 1
                    self.finished += 1
                    self.moved_bytes += transfer.size
                    arrived.append(transfer.request)
        self._settle(now_s)
        while self._joins and self._joins[0].joins_s <= now_s:
            transfer = self._joins.popleft()
            if not transfer.gone:
                transfer.joined = True
                self.waiting -= 1
                self.moving += 1
                heappush(ends, (self._mark + transfer.size, transfer.request.id, transfer))
        self._plan(now_s)
        return arrived

    def _settle(self, now_s: float) -> None:
        """Counts what has been moved since the last change."""
        if self.moving:
            since_s = now_s - self._settled_s
            each = since_s * self._speed()
            self._busy_s += since_s
            self._mark += each
            self._carried_bytes += each * float(self.moving)
        self._settled_s = now_s

    def _speed(self) -> float:
        """Bytes per second of one transfer."""
        return self.bytes_per_s / float(self.moving) if self.contention else self.bytes_per_s

    def _end_s(self) -> float:
        """When the next transfer ends, if nobody comes or goes before."""
        while self._ends and self._ends[0][2].gone:
            heappop(self._ends)
        if not self._ends:
            return math.inf
        return self._settled_s + max(0.0, self._ends[0][0] - self._mark) / self._speed()

    def _plan(self, now_s: float) -> None:
        self._settle(now_s)
        while self._joins and self._joins[0].gone:
            self._joins.popleft()
        self.wake_s = self._end_s()
        if self._joins and self._joins[0].joins_s < self.wake_s:
            self.wake_s = self._joins[0].joins_s
        if not self._ends:
            self._mark = 0.0
