"""The waiting and the running requests of a server, in order.

A request is in one of the two at a time, so both lists are linked through the requests themselves:
removing one from the middle takes constant time, and nothing is allocated.
"""

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from windtunnel.engine.limits import FCFS, PRIORITY
from windtunnel.workload.request import Request

Rank = tuple[int, float, int]


def rank(request: Request, scheduling: int) -> Rank:
    """Lower goes first: by priority or prompt length, then arrival, then id."""
    if scheduling == PRIORITY:
        return (-request.priority, request.arrived_s, request.id)
    return (request.prompt_tokens, request.arrived_s, request.id)


class RequestLine:
    """A doubly linked list of requests."""

    def __init__(self) -> None:
        self.head: Request | None = None
        self.tail: Request | None = None
        self.count: i64 = 0

    def append(self, request: Request) -> None:
        self.count += 1
        request.ahead = self.tail
        request.behind = None
        if self.tail is None:
            self.head = request
        else:
            self.tail.behind = request
        self.tail = request

    def put_first(self, request: Request) -> None:
        self.count += 1
        request.ahead = None
        request.behind = self.head
        if self.head is None:
            self.tail = request
        else:
            self.head.ahead = request
        self.head = request

    def remove(self, request: Request) -> None:
        self.count -= 1
        ahead, behind = request.ahead, request.behind
        if ahead is None:
            self.head = behind
        else:
            ahead.behind = behind
        if behind is None:
            self.tail = ahead
        else:
            behind.ahead = ahead
        request.ahead = None
        request.behind = None

    def requests(self) -> list[Request]:
        found: list[Request] = []
        request = self.head
        while request is not None:
            found.append(request)
            request = request.behind
        return found


class WaitingQueue:
    """First come, first served with preempted requests in front; or all by rank."""

    def __init__(self, scheduling: int) -> None:
        self._scheduling: Final = scheduling
        self._line: Final = RequestLine()
        self._heap: Final[list[tuple[Rank, int, Request]]] = []
        self._pushes = 0  # a redirected request may return while its old record is still here
        self.count: i64 = 0
        self.preempted: i64 = 0  # waiting requests that were preempted

    def push(self, request: Request) -> None:
        self._enters(request)
        if self._scheduling == FCFS:
            self._line.append(request)
        else:
            self._pushes += 1
            heappush(self._heap, (rank(request, self._scheduling), self._pushes, request))

    def remove(self, request: Request) -> None:
        """Removes a cancelled request from any position."""
        assert request.cancelled
        self._leaves(request)
        if self._scheduling == FCFS:
            self._line.remove(request)  # a heap drops it when it reaches the top

    def push_preempted(self, request: Request) -> None:
        if self._scheduling == FCFS:
            self._enters(request)
            self._line.put_first(request)
        else:
            self.push(request)

    def head(self) -> Request | None:
        """The next request; None when the queue is empty."""
        if self._scheduling == FCFS:
            return self._line.head
        while self._heap:
            head = self._heap[0][2]
            if not head.cancelled:
                return head
            heappop(self._heap)
        return None

    def pop(self, head: Request) -> None:
        """Removes the head."""
        self._leaves(head)
        if self._scheduling == FCFS:
            self._line.remove(head)
        else:
            heappop(self._heap)

    def _enters(self, request: Request) -> None:
        self.count += 1
        if request.preemptions:
            self.preempted += 1

    def _leaves(self, request: Request) -> None:
        self.count -= 1
        if request.preemptions:
            self.preempted -= 1

    def adapters(self) -> list[int]:
        """LoRA adapters that queued requests need, where there is a queue per adapter."""
        return []

    def requests(self) -> list[Request]:
        found = self._line.requests()
        for entry in self._heap:
            if not entry[2].cancelled:
                found.append(entry[2])
        return found
