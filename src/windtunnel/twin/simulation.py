"""The loop of a simulation: arrivals, servers and time, until no work remains."""

import math
from collections.abc import Callable
from typing import Final

from windtunnel.core.agenda import Actor
from windtunnel.core.events import EventQueue
from windtunnel.engine.encoder import Encoders
from windtunnel.twin.autoscaling import Autoscaling
from windtunnel.twin.cluster import LAST_TURN, Cluster
from windtunnel.twin.event_log import EventLog
from windtunnel.twin.faults.driver import Faults
from windtunnel.twin.faults.schedule import FAULT
from windtunnel.twin.gateway import DISPATCH, SimGateway
from windtunnel.twin.handoff import RETRY
from windtunnel.twin.journey import AGAIN, ENCODED, TIMEOUT, Journey
from windtunnel.twin.lifecycle import GROUND, STARTED, Lifecycle
from windtunnel.twin.recorder import UNFINISHED, Recorder
from windtunnel.twin.replicas import Replica
from windtunnel.twin.service import Service
from windtunnel.twin.splitting import Splitting
from windtunnel.twin.timeline import Timeline
from windtunnel.twin.timetable import Patience
from windtunnel.twin.whereabouts import all_inside
from windtunnel.workload.request import Request
from windtunnel.workload.traffic import Traffic

EVENTS_PER_LOOK: Final = 16_384


class Simulation(Journey):
    """Servers under traffic. One run each: `run` takes it from the first arrival to the end."""

    def __init__(
        self,
        traffic: Traffic,
        services: list[Service],
        cluster: Cluster,
        queue: EventQueue,
        splitting: Splitting | None,
        encoders: Encoders | None,
        lifecycle: Lifecycle,
        autoscaling: Autoscaling | None,
        faults: Faults | None,
        recorder: Recorder,
        timeline: Timeline,
        event_log: EventLog | None,
        horizon_s: float,
        attempts: int,
        backoff_s: float,
    ) -> None:
        super().__init__(
            traffic=traffic,
            services=services,
            cluster=cluster,
            queue=queue,
            splitting=splitting,
            encoders=encoders,
            recorder=recorder,
            event_log=event_log,
            attempts=attempts,
            backoff_s=backoff_s,
        )
        self.timeline: Final = timeline
        self.horizon_s: Final = horizon_s
        self.events = 0
        self.lifecycle: Final = lifecycle
        self.autoscaling: Final = autoscaling
        self._patience: Final = Patience()
        self.faults: Final = faults
        lifecycle.inside = self
        if faults is not None:
            self.rate_limits = faults.world.rate_limits

    def run(
        self,
        look: Callable[["Simulation"], None],
        check: Callable[["Simulation"], None] | None = None,
    ) -> None:
        """Runs to the end. `look` is called now and then, `check` after every event."""
        traffic = self.traffic
        queue = self._queue
        agenda = self.cluster.agenda
        timeline = self.timeline
        timetable = self.lifecycle.timetable
        vacated = self.cluster.vacated
        while True:
            # What arrives as a step ends is seen by the next step: arrivals go first.
            arrival_s = traffic.next_s
            event_s = queue.peek_time()
            actor = agenda.first()
            next_s = min(event_s, actor.wake_s)
            next_s = min(arrival_s, next_s)
            if timetable.next_s < next_s:
                next_s = self._controlled_s(next_s)
            if next_s > self.horizon_s or next_s == math.inf:
                break
            if next_s > timeline.next_s:
                timeline.take(next_s, self.recorder, self.cluster, self.services)
            self.now_s = next_s
            self.events += 1
            if arrival_s == next_s:
                self._arrive(traffic.take())
            elif event_s == next_s:
                self._happen()
            elif actor.wake_s == next_s:
                self._act(actor)
            else:
                self._control()
            if vacated:
                self.lifecycle.retire(self.now_s)
            if check is not None:
                check(self)
            if self.events % EVENTS_PER_LOOK == 0:
                look(self)
        self._finish()

    def _control(self) -> None:
        """What the control plane has planned for now."""
        entry = self.lifecycle.timetable.pop()
        if entry[1] == STARTED:
            replica = entry[3]
            assert isinstance(replica, Replica)
            self.lifecycle.ready(replica, self.now_s)
        elif entry[1] == GROUND:
            assert self.lifecycle.ground is not None
            self.lifecycle.ground.happen(self.now_s)
        elif entry[1] == FAULT:
            assert self.faults is not None
            self.faults.schedule.happen(self.now_s)
        else:
            assert self.autoscaling is not None
            self.autoscaling.happen(entry, self.elsewhere, self.now_s)

    @property
    def work_remains(self) -> bool:
        """Whether a request is inside or on its way: the one place that knows."""
        return self.traffic.next_s != math.inf or self.recorder.arrived > self.recorder.ended

    def _controlled_s(self, next_s: float) -> float:
        """When something happens next, if the control plane has plans before `next_s`.

        It goes last of one instant. Without a duration a run ends with its last request, whatever
        is planned, or when nobody starts a server for those who wait.
        """
        ends = self.horizon_s == math.inf and not self.work_remains
        if next_s == math.inf and self.horizon_s == math.inf:
            ends = ends or self._gives_up()
        if ends:
            return next_s
        return self.lifecycle.timetable.next_s

    def _gives_up(self) -> bool:
        """Whether those who wait have waited for the control plane alone, and for too long."""
        if self.faults is not None and self.faults.schedule.is_alone:
            return True
        under_way, seen_s = self.cluster.starting, self.now_s
        if self.autoscaling is not None:
            under_way += self.autoscaling.under_way
            seen_s = self.autoscaling.seen_s
        ended = 0
        if self.lifecycle.ground is not None:
            under_way += self.lifecycle.ground.under_way
            ended = self.lifecycle.ground.gangs_ended
        return self._patience.ends(self.events, self.now_s, seen_s, under_way, ended)

    # What happens

    def _happen(self) -> None:
        """The next event of the queue."""
        entry = self._queue.pop()
        assert entry is not None
        kind = entry[1]
        if kind == DISPATCH:
            gateway = entry[3]
            assert isinstance(gateway, SimGateway)
            gateway.due(self.now_s)
            return
        request = entry[3]
        assert isinstance(request, Request)
        if kind == TIMEOUT:
            request.alarm = None
            self._time_out(request)
            return
        request.planned = None
        if kind == RETRY:
            assert self.splitting is not None
            self.splitting.handoff.move(request, self.now_s)
            self._settle(request)
            return
        if request.parent is None:
            del self.elsewhere[request.id]
        if kind == AGAIN:
            self._route(request)
        elif kind == ENCODED:
            request.encoded_s = self.now_s
            self._route(request)
        else:
            self._enqueue(request, self.servers[request.server])

    def _act(self, actor: Actor) -> None:
        """A server's step ends, or something on the link between them."""
        if actor.turn < LAST_TURN:
            self._step(self.servers[actor.turn])
        else:
            self._land()

    def _finish(self) -> None:
        if self.horizon_s != math.inf:
            self.now_s = self.horizon_s
        self.timeline.finish(self.now_s, self.recorder, self.cluster, self.services)
        self._account_for_the_rest()
        self.recorder.flush()

    def _account_for_the_rest(self) -> None:
        """At the horizon, whatever is still somewhere is unfinished, and counted."""
        for server in self.servers:
            server.stop(self.now_s)
        rest = all_inside(self.servers, self.elsewhere, self._handoff)
        self.elsewhere.clear()
        for service in self.services:
            service.line.clear()
        self.legs = 0
        for request in rest:
            self._take_back(request)
            self.recorder.end(request, UNFINISHED)
        self.traffic.stop(self.now_s)
