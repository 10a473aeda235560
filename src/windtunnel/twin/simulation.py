"""The loop of a simulation: arrivals, servers and time, until no work remains."""

import math
from collections.abc import Callable
from typing import Final

from windtunnel.core.agenda import Actor, Agenda
from windtunnel.core.events import EventQueue
from windtunnel.engine.server import Server
from windtunnel.routing.round_robin import RoundRobin
from windtunnel.twin.recorder import COMPLETED, DROPPED, UNFINISHED, Overheads, Recorder
from windtunnel.twin.timeline import Timeline
from windtunnel.workload.request import Request
from windtunnel.workload.traffic import Traffic

ENQUEUE: Final = 0

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
        timeline: Timeline,
        horizon_s: float,
    ) -> None:
        self.traffic: Final = traffic
        self.router: Final = router
        self.servers: Final = servers
        self.recorder: Final = recorder
        self.timeline: Final = timeline
        self.horizon_s: Final = horizon_s
        self.now_s = 0.0
        self.events = 0
        self.on_the_way = 0
        self._overheads: Final = overheads
        self._queue: Final = EventQueue()
        actors: list[Actor] = [*servers]
        self._agenda: Final = Agenda(actors)

    def run(
        self,
        look: Callable[["Simulation"], None],
        check: Callable[["Simulation"], None] | None = None,
    ) -> None:
        """Runs to the end. `look` is called now and then, `check` after every event."""
        traffic = self.traffic
        queue = self._queue
        agenda = self._agenda
        timeline = self.timeline
        while True:
            # What arrives as a step ends is seen by the next step: arrivals go first.
            arrival_s = traffic.next_s
            event_s = queue.peek_time()
            actor = agenda.first()
            next_s = actor.wake_s
            if event_s <= next_s:
                next_s = event_s
            if arrival_s <= next_s:
                next_s = arrival_s
            if next_s > self.horizon_s or next_s == math.inf:
                break
            if next_s > timeline.next_s:
                timeline.take(next_s, self.recorder, self.servers)
            self.now_s = next_s
            self.events += 1
            if arrival_s == next_s:
                self._arrive(traffic.take())
            elif event_s == next_s:
                self._happen()
            else:
                self._step(self.servers[actor.turn])
            if check is not None:
                check(self)
            if self.events % EVENTS_PER_LOOK == 0:
                look(self)
        if self.horizon_s != math.inf:
            self.now_s = self.horizon_s
        timeline.finish(self.now_s, self.recorder, self.servers)
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

    def _happen(self) -> None:
        """The next event of the queue; so far only requests on their way to a server are there."""
        entry = self._queue.pop()
        assert entry is not None
        request = entry[3]
        assert isinstance(request, Request)
        self.on_the_way -= 1
        self._enqueue(request, self.servers[request.server])

    def _enqueue(self, request: Request, server: Server) -> None:
        wake_s = server.wake_s
        server.submit(request, self.now_s)
        if server.wake_s != wake_s:
            self._agenda.moved(server)
        if server.finished:
            self._collect(server)

    def _step(self, server: Server) -> None:
        server.advance(self.now_s)
        self._agenda.moved(server)
        if server.finished:
            self._collect(server)

    def _collect(self, server: Server) -> None:
        for request in server.finished:
            self.recorder.end(request, DROPPED if request.dropped else COMPLETED)
        server.finished.clear()

    def _account_for_the_rest(self) -> None:
        """At the horizon, whatever is still somewhere is unfinished, and counted."""
        rest: list[Request] = []
        while (entry := self._queue.pop()) is not None:
            request = entry[3]
            assert isinstance(request, Request)
            rest.append(request)
        self.on_the_way = 0
        for server in self.servers:
            server.stop(self.now_s)
            rest.extend(server.unfinished())
        rest.sort(key=request_id)
        for request in rest:
            self.recorder.end(request, UNFINISHED)


def request_id(request: Request) -> int:
    return request.id
