"""The loop of a simulation: arrivals, servers and time, until no work remains or the horizon comes."""

import math
from collections.abc import Callable
from typing import Final

from windtunnel.core.events import Entry, EventQueue
from windtunnel.engine.server import Server
from windtunnel.routing.round_robin import RoundRobin
from windtunnel.twin.recorder import COMPLETED, DROPPED, UNFINISHED, Overheads, Recorder
from windtunnel.workload.request import Request
from windtunnel.workload.traffic import Traffic

ENQUEUE: Final = 0  # before STEP: what arrives as a step ends is seen by the next one
STEP: Final = 1

EVENTS_PER_LOOK: Final = 16_384


class Simulation:
    """Servers under traffic. One run each: `run` takes it from the first arrival to the end."""

    def __init__(
        self,
        traffic: Traffic,
        router: RoundRobin,
        servers: list[Server],
        overheads: list[Overheads],
        recorder: Recorder,
        horizon_s: float,
    ) -> None:
        self.traffic: Final = traffic
        self.router: Final = router
        self.servers: Final = servers
        self.recorder: Final = recorder
        self.horizon_s: Final = horizon_s
        self.now_s = 0.0
        self.events = 0
        self.on_the_way = 0
        self._overheads: Final = overheads
        self._queue: Final = EventQueue()
        self._wakes: Final[list[Entry | None]] = [None] * len(servers)

    def run(
        self,
        look: Callable[["Simulation"], None] | None = None,
        check: Callable[["Simulation"], None] | None = None,
    ) -> None:
        """Runs to the end. `look` is called now and then, `check` after every event."""
        traffic = self.traffic
        queue = self._queue
        while True:
            wake_s = queue.peek_time()
            arrival_s = traffic.next_s
            next_s = arrival_s if arrival_s <= wake_s else wake_s
            if next_s > self.horizon_s or next_s == math.inf:
                break
            self.now_s = next_s
            self.events += 1
            if arrival_s <= wake_s:
                self._arrive(traffic.take())
            else:
                entry = queue.pop()
                assert entry is not None
                if entry[1] == STEP:
                    server = entry[3]
                    assert isinstance(server, Server)
                    self._step(server)
                else:
                    request = entry[3]
                    assert isinstance(request, Request)
                    self.on_the_way -= 1
                    self._enqueue(request, self.servers[request.server])
            if check is not None:
                check(self)
            if look is not None and self.events % EVENTS_PER_LOOK == 0:
                look(self)
        if self.horizon_s != math.inf:
            self.now_s = self.horizon_s
        self._account_for_the_rest()
        self.recorder.flush()

    def _arrive(self, request: Request) -> None:
        self.recorder.arrive(request)
        server = self.servers[self.router.choose()]
        delay_s = self._overheads[server.index].queueing_s
        if delay_s > 0.0:
            request.server = server.index
            self.on_the_way += 1
            self._queue.push(self.now_s + delay_s, ENQUEUE, request)
        else:
            self._enqueue(request, server)

    def _enqueue(self, request: Request, server: Server) -> None:
        server.submit(request, self.now_s)
        if server.finished:
            self._collect(server)
        self._plan_wake(server)

    def _step(self, server: Server) -> None:
        self._wakes[server.index] = None
        server.advance(self.now_s)
        if server.finished:
            self._collect(server)
        self._plan_wake(server)

    def _collect(self, server: Server) -> None:
        for request in server.finished:
            self.recorder.end(request, DROPPED if request.dropped else COMPLETED)
        server.finished.clear()

    def _plan_wake(self, server: Server) -> None:
        """Keeps exactly one event in the queue for when the server needs attention next."""
        entry = self._wakes[server.index]
        if entry is not None:
            if entry[0] == server.wake_s:
                return
            self._queue.cancel(entry)
            self._wakes[server.index] = None
        if server.wake_s != math.inf:
            self._wakes[server.index] = self._queue.push(server.wake_s, STEP, server)

    def _account_for_the_rest(self) -> None:
        """At the horizon, whatever is still somewhere is unfinished, and counted."""
        rest: list[Request] = []
        while (entry := self._queue.pop()) is not None:
            if entry[1] == ENQUEUE:
                request = entry[3]
                assert isinstance(request, Request)
                rest.append(request)
        self.on_the_way = 0
        for server in self.servers:
            rest.extend(server.unfinished())
        rest.sort(key=request_id)
        for request in rest:
            self.recorder.end(request, UNFINISHED)


def request_id(request: Request) -> int:
    return request.id
