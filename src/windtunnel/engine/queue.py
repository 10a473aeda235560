"""The requests that wait for a server, in the order in which it would take them."""

from collections import deque
from heapq import heappop, heappush
from typing import Final

from windtunnel.engine.limits import FCFS, PRIORITY
from windtunnel.workload.request import Request

Rank = tuple[int, float, int]


def rank(request: Request, scheduling: int) -> Rank:
    """Lower goes first: by priority or prompt length, then arrival, then id."""
    if scheduling == PRIORITY:
        return (-request.priority, request.arrived_s, request.id)
    return (request.prompt_tokens, request.arrived_s, request.id)


class WaitingQueue:
    """First come, first served with preempted requests in front; or by rank, preempted ones too."""

    def __init__(self, scheduling: int) -> None:
        self._scheduling: Final = scheduling
        self._line: Final[deque[Request]] = deque()
        self._heap: Final[list[tuple[Rank, Request]]] = []

    def __len__(self) -> int:
        return len(self._line) + len(self._heap)

    def push(self, request: Request) -> None:
        if self._scheduling == FCFS:
            self._line.append(request)
        else:
            heappush(self._heap, (rank(request, self._scheduling), request))

    def push_preempted(self, request: Request) -> None:
        if self._scheduling == FCFS:
            self._line.appendleft(request)
        else:
            self.push(request)

    def head(self) -> Request:
        return self._line[0] if self._scheduling == FCFS else self._heap[0][1]

    def pop(self) -> Request:
        return self._line.popleft() if self._scheduling == FCFS else heappop(self._heap)[1]

    def requests(self) -> list[Request]:
        return [*self._line, *(entry[1] for entry in self._heap)]


class FinishHeap:
    """The decoding requests by the decode clock at which each ends, then by admission."""

    def __init__(self) -> None:
        self._heap: Final[list[tuple[int, int, Request]]] = []

    def first(self, otherwise: int) -> int:
        """The earliest clock at which a request ends."""
        return self._heap[0][0] if self._heap else otherwise

    def push(self, request: Request) -> None:
        heappush(self._heap, (request.finish_clock, request.admission, request))

    def pop(self) -> Request:
        return heappop(self._heap)[2]

    def clear(self) -> None:
        self._heap.clear()
