"""The lifecycle of requests in a run: arrival, gateway, routing, servers, end.

`simulation.py` determines when something happens; this module does it. There is one way in
(`arrive`) and one way out (`_end`).
"""

import math
from typing import Final

from windtunnel.core import vocabulary
from windtunnel.core.loop import Clock, Component, EventQueue, SkewedClock
from windtunnel.core.system.interrupts import breathe
from windtunnel.core.vocabulary import (
    DRAINED,
    GATEWAY_AWAY,
    GATEWAY_LOST,
    RATE_LIMITED,
    SERVER_LOST,
)
from windtunnel.engine.server import Server
from windtunnel.routing.router import NoServer
from windtunnel.twin.faults.world import RateLimits
from windtunnel.twin.ports import RequestPort
from windtunnel.twin.progress import PREEMPTIONS, RESTARTS, RunProgress
from windtunnel.twin.requests.encoders import Encoders
from windtunnel.twin.requests.gateway import DISPATCH, SimGateway
from windtunnel.twin.requests.in_flight import InFlight
from windtunnel.twin.requests.service import Service
from windtunnel.twin.requests.splitting import Splitting
from windtunnel.twin.results.event_log import EventLog
from windtunnel.twin.results.reasons import stage_of
from windtunnel.twin.results.recorder import (
    COMPLETED,
    DROPPED,
    REJECTED,
    TIMED_OUT,
    UNFINISHED,
    Recorder,
)
from windtunnel.twin.servers.cluster import LAST_TURN, Cluster
from windtunnel.twin.settings import RetrySettings
from windtunnel.workload.request import (
    AT_GATEWAY,
    AT_SERVER,
    BACKING_OFF,
    CLOSING,
    ENCODING,
    ENDED,
    ENDING,
    NEVER,
    ON_THE_WAY,
    SPLIT,
    UNPLACED,
    UNSET,
    Request,
)
from windtunnel.workload.traffic import Traffic

# Kinds of timers besides the handoff's and the gateway's, in order within one instant.
ENQUEUE: Final = 0
ENCODED: Final = 1
AGAIN: Final = 4
TIMEOUT: Final = 9

NO_SCORES: Final[list[tuple[int, float]]] = []

ENDED_PER_BREATH: Final = 1_024
LONGEST_WAIT_S: Final = 3600.0
"""The longest wait before a retry, however many there were."""


class ServingParts:
    """The parts that requests pass through: services, servers, encoders, and the prefill/decode
    split."""

    def __init__(
        self,
        services: list[Service],
        cluster: Cluster,
        splitting: Splitting | None,
        encoders: Encoders | None,
    ) -> None:
        self.services: Final = services  # by the model that a request is for
        self.cluster: Final = cluster
        self.splitting: Final = splitting
        self.encoders: Final = encoders


class RequestLifecycle(RequestPort):
    """The requests in a run, and every step that a request can take."""

    def __init__(
        self,
        clock: Clock,
        traffic: Traffic,
        serving: ServingParts,
        recorder: Recorder,
        progress: RunProgress,
        retries: RetrySettings,
        timers: EventQueue,
        event_log: EventLog | None,
    ) -> None:
        self.clock: Final = clock
        self.traffic: Final = traffic
        self.services: Final = serving.services
        self.cluster: Final = serving.cluster
        self.servers: Final = serving.cluster.servers
        self.splitting: Final = serving.splitting
        self._handoff: Final = self.splitting.handoff if self.splitting is not None else None
        self.encoders: Final = serving.encoders
        self.recorder: Final = recorder
        self.progress: Final = progress
        self.in_flight: Final = InFlight(len(self.services), self._handoff)
        self.last_arrival_s = 0.0
        self.legs = 0  # prefill halves at servers, which are not requests of their own
        self._overheads: Final = self.cluster.overheads
        self._attempts: Final[int] = retries.attempts
        self._backoff_s: Final[float] = retries.backoff_s
        self.rate_limits: RateLimits | None = None  # while servers answer 429
        self._gateway_stops = 0  # faults that stop the gateway
        self.timers: Final = timers
        self._event_log: Final = event_log
        for service in self.services:
            if service.gateway is not None:
                service.gateway.inside = self
                recorder.has_gateway = True

    @property
    def now_s(self) -> float:
        return self.clock.now_s

    @property
    def work_remains(self) -> bool:
        """Whether a request is in the system or still to come: the one place that knows."""
        return self.traffic.next_s != math.inf or self.recorder.arrived > self.recorder.ended

    # Arrival

    def arrive(self, request: Request) -> None:
        """The one way into a run: first requests, follow-ups of users, replays."""
        now_s = self.clock.now_s
        self.recorder.arrive(request)
        self.last_arrival_s = now_s
        if request.deadline_s != NEVER:
            gone_s = max(now_s, request.deadline_s)
            request.alarm = self.timers.push(gone_s, TIMEOUT, request)
        gateway = self.services[request.model].gateway
        if self._gateway_stops:
            self._reject(request, GATEWAY_AWAY)
        elif gateway is None:
            self._admit(request)
        else:
            self.in_flight.keep(request, AT_GATEWAY)
            gateway.arrive(request, now_s)

    def let_in(self, request: Request) -> None:
        self.in_flight.remove(request)
        self._admit(request)

    def turn_away(self, request: Request, reason: str) -> None:
        self.in_flight.remove(request)
        self._reject(request, reason)

    def stop(self, request: Request, reason: str) -> None:
        self._withdraw(request)
        self._reject(request, reason)

    def _reject(self, request: Request, reason: str) -> None:
        request.reason = reason
        request.finished_s = self.now_s
        self._end(request, REJECTED)

    def _admit(self, request: Request) -> None:
        now_s = self.clock.now_s
        request.admitted_s = now_s
        if self.encoders is not None and request.media_tokens:
            self.in_flight.keep(request, ENCODING)
            self.encoders.take(request, now_s)
            self._encode()
        else:
            self._route(request)

    def _encode(self) -> None:
        """Lets free encoders begin with queued requests."""
        assert self.encoders is not None
        begun = self.encoders.next(self.now_s)
        while begun is not None:
            request, done_s = begun
            request.planned = self.timers.push(done_s, ENCODED, request)
            begun = self.encoders.next(self.now_s)

    def _leave_encoder(self, request: Request) -> None:
        """Frees the encoder of a request that is encoded or gave up; the next one begins."""
        assert self.encoders is not None
        self.encoders.leave(request, self.now_s)
        self._encode()

    def _route(self, request: Request) -> None:
        now_s = self.clock.now_s
        service = self.services[request.model]
        signals = service.signals
        router = service.router
        if service.is_outdated:
            service.update(self.cluster, int(request.model))
        service.probe(router, now_s)
        scores = NO_SCORES
        if self._event_log is not None:
            scores = router.explain(request, now_s)
        decision = router.choose(request, now_s)
        if isinstance(decision, NoServer):
            self.in_flight.keep(request, UNPLACED)
            service.unplaced[request.id] = request
            signals.unplaced += 1
            return
        server = self.servers[decision.server]
        if self.rate_limits is not None and self.rate_limits.refuse(server.index):
            self._turn_back(request, server)
            return
        judgement = service.judge(request, server.index, now_s)
        request.server = server.index
        request.routed_s = request.sent_s = now_s
        signals.sent(server.index, request.prompt_tokens)
        if self._event_log is not None:
            self._event_log.routed(now_s, request, decision.reason, scores, judgement)
        if self.splitting is not None:
            leg = self.splitting.leg_of(
                request, service, server, self.cluster, self._event_log, now_s
            )
            if leg is not None:
                self.in_flight.keep(request, SPLIT)
                signals.sent(leg.server, leg.prompt_tokens)
                self._send(leg, self.servers[leg.server])
                return
        self._send(request, server)

    def _send(self, request: Request, server: Server) -> None:
        now_s = self.clock.now_s
        queued_s = self._overheads[server.index].queued_s(now_s, request.prompt_tokens)
        if queued_s > now_s:
            if request.parent is None:
                self.in_flight.keep(request, ON_THE_WAY)
            else:
                request.place = ON_THE_WAY
            request.planned = self.timers.push(queued_s, ENQUEUE, request)
        else:
            self._enqueue(request, server)

    def _enqueue(self, request: Request, server: Server) -> None:
        request.place = AT_SERVER
        if request.parent is not None:
            self.legs += 1
        self.cluster.submit(request, server, self.clock.now_s)
        if server.finished:
            self._collect(server)

    def stop_gateway(self, on: bool) -> None:  # noqa: FBT001
        """Stops or restarts the one gateway of all models. Client connections end with it."""
        self._gateway_stops += 1 if on else -1
        if on:
            gateways = [one.gateway for one in self.services if one.gateway is not None]
            held = [gateway.hold() for gateway in gateways]
            inside = self.in_flight.everywhere(self.servers)
            # Queued ones first: the gateway would admit them as others end.
            inside.sort(key=_is_past_gateway)
            for request in inside:
                self._withdraw(request)
                request.reason = GATEWAY_LOST
                request.finished_s = self.now_s
                self._end(request, DROPPED)
            for gateway, before in zip(gateways, held, strict=True):
                gateway.release(before, self.now_s)
        elif not self._gateway_stops:
            for model, service in enumerate(self.services):
                service.restart(self.cluster, model, self.now_s)

    def gateway_clocks(self) -> list[SkewedClock]:
        return [one.gateway.clock for one in self.services if one.gateway is not None]

    def wake_gateway(self) -> None:
        for service in self.services:
            if service.gateway is not None:
                service.gateway.tick(self.now_s)

    # Changes of servers

    def opened(self, model: int) -> None:
        """Routes the requests that were admitted without a server, then lets the gateway admit
        more."""
        service = self.services[model]
        if service.unplaced:
            service.update(self.cluster, model)
        if service.unplaced and service.signals.answering:
            waiting = list(service.unplaced.values())
            service.unplaced.clear()
            service.signals.unplaced = 0
            for request in waiting:
                self.in_flight.remove(request)
                self._route(request)
        if service.gateway is not None:
            service.gateway.tick(self.now_s)

    def send_back(self, server: Server, begun: bool) -> None:  # noqa: FBT001
        for request in self.in_flight.redirected(server, begun):
            self._redirect(request, server)

    def _redirect(self, request: Request, server: Server) -> None:
        """Withdraws a request from its server, to start over on another."""
        self._withdraw(request)
        request.lose_try(int(server.index), self.now_s, DRAINED)
        again = self._renew(request)
        again.redirects += 1
        pool = self.cluster.replicas[request.server].pool
        pool.redirected += 1
        self.progress.note(RESTARTS, f"{request.id}", f"pool {pool.name} drains", self.now_s)
        if self._event_log is not None:
            self._event_log.add(
                self.now_s, vocabulary.REDIRECTED, again, "drain", server=int(request.server)
            )
        self._route(again)

    def lose(self, server: Server, reason: str) -> None:
        """Withdraws all requests before any is sent elsewhere: the gateway may decide in
        between."""
        concerned = self.in_flight.lost(server)
        pool = self.cluster.replicas[server.index].pool
        for request in concerned:
            held = request
            if request.place == SPLIT:
                assert self._handoff is not None
                held = self._handoff.splits[request.id].leg
            self._withdraw(request)
            pool.lost_tokens += self.servers[held.server].computed_tokens(held)
        self.cluster.crash(server, self.now_s)
        gateway = self.services[pool.model].gateway
        before = gateway.hold() if gateway is not None else False
        for request in concerned:
            if request.retries < self._attempts:
                pool.retried += 1
                request.lose_try(int(server.index), self.now_s, reason)
                again = self._renew(request)
                again.retries += 1
                self.progress.note(RESTARTS, f"{request.id}", reason, self.now_s)
                if self._event_log is not None:
                    had = int(server.index)
                    self._event_log.add(self.now_s, vocabulary.RETRIED, again, reason, server=had)
                self._route(again)
            else:
                pool.failed += 1
                request.reason = SERVER_LOST
                request.finished_s = self.now_s
                self._end(request, DROPPED)
        if gateway is not None:
            gateway.release(before, self.now_s)

    def shed(self, server: Server) -> None:
        doomed: list[tuple[Request, str]] = []
        for request in self.in_flight.lost(server):
            if request.stage in {ENDING, CLOSING}:
                continue  # it needs nothing more
            reason = server.refusal(request) if request.server == server.index else ""
            if not reason and request.place == SPLIT:
                assert self._handoff is not None
                leg = self._handoff.splits[request.id].leg
                reason = server.refusal(leg) if leg.server == server.index else ""
            if reason:
                doomed.append((request, reason))
        if not doomed:
            return
        gateway = self.services[doomed[0][0].model].gateway
        before = gateway.hold() if gateway is not None else False
        for request, reason in doomed:
            self._withdraw(request)
            request.reason = reason
            request.finished_s = self.now_s
            self._end(request, DROPPED)
        if gateway is not None:
            gateway.release(before, self.now_s)

    def _turn_back(self, request: Request, server: Server) -> None:
        """Retries a request after a backoff when a server answered 429, or ends it."""
        pool = self.cluster.replicas[server.index].pool
        pool.rate_limited += 1
        if request.retries >= self._attempts:
            self._reject(request, RATE_LIMITED)
            return
        wait_s = self._backoff_s * 2.0 ** min(int(request.retries), 60)
        request.lose_try(int(server.index), self.now_s, RATE_LIMITED)
        request.retries += 1
        self.progress.note(RESTARTS, f"{request.id}", RATE_LIMITED, self.now_s)
        if self._event_log is not None:
            had = int(server.index)
            self._event_log.add(self.now_s, vocabulary.RETRIED, request, RATE_LIMITED, server=had)
        self.in_flight.keep(request, BACKING_OFF)
        request.planned = self.timers.push(self.now_s + min(wait_s, LONGEST_WAIT_S), AGAIN, request)

    def _renew(self, request: Request) -> Request:
        """A new record for a withdrawn request, as if its server had never had it."""
        self._leave(request)
        again = request.again()
        if request.alarm is not None:
            self.timers.cancel(request.alarm)
            again.alarm = self.timers.push(request.alarm.time_s, TIMEOUT, again)
        gateway = self.services[request.model].gateway
        if gateway is not None:
            gateway.replace(again)
        return again

    def _leave(self, request: Request) -> None:
        """Uncounts a request, or one half of it, that is no longer at its server."""
        signals = self.services[request.model].signals
        signals.ended(request.server, request.prompt_tokens)
        if self.cluster.draining:
            self.cluster.left(request.server)

    def due(self, kind: int, request: Request) -> None:
        """Handles a timer of a request."""
        if kind == TIMEOUT:
            request.alarm = None
            self._time_out(request)
            return
        request.planned = None
        if request.parent is None:
            self.in_flight.remove(request)
        if kind == AGAIN:
            self._route(request)
        elif kind == ENCODED:
            request.encoded_s = self.now_s
            self._leave_encoder(request)
            self._route(request)
        else:
            self._enqueue(request, self.servers[request.server])

    def reached(self) -> dict[int, int]:
        """Tokens computed so far for each request at a server or between two, by its number."""
        tokens: dict[int, int] = {}
        for server in self.servers:
            steps = server.steps_until(self.now_s) - server.steps  # of a run of equal ones
            for leg in server.unfinished():
                number = leg.id if leg.parent is None else leg.parent.id
                computed = server.computed_tokens(leg) + leg.prefix_hit_tokens + steps
                tokens[number] = max(computed, tokens.get(number, 0))
        for request in self.in_flight.elsewhere.values():
            if request.place == SPLIT and request.id not in tokens:
                tokens[request.id] = request.prompt_tokens
        return tokens

    # Steps and transfers

    def step(self, server: Server) -> None:
        now_s = self.clock.now_s
        preemptions = server.preemptions
        self.cluster.advance(server, now_s)
        if server.preemptions != preemptions:
            self.progress.note(PREEMPTIONS, f"{server.index}", "", now_s)
        if self._event_log is not None:
            self._event_log.stepped(now_s, server)
        if server.finished:
            self._collect(server)

    def use_room(self) -> None:
        """Starts the KV transfers of requests that were granted blocks."""
        assert self._handoff is not None
        granting = self.cluster.granting
        while granting:
            server = granting.pop(0)
            granted = server.granted[:]
            server.granted.clear()
            for request in granted:
                if self._handoff.granted(request, self.now_s):
                    self._settle(request)

    def land(self) -> None:
        """Handles KV transfers that have arrived, or that begin."""
        network = self.cluster.network
        assert network is not None
        assert self.splitting is not None
        arrived = network.advance(self.now_s)
        self.cluster.agenda.moved(network)
        for request in arrived:
            self.splitting.handoff.arrived(request, self.now_s)
            self._settle(request)

    def _settle(self, request: Request) -> None:
        """Hands a split request to the decoding server once all its KV has arrived."""
        assert self.splitting is not None
        if request.id not in self.splitting.handoff.splits:
            self.in_flight.remove(request)
            request.place = AT_SERVER
            if self._event_log is not None:
                self._event_log.moved(self.now_s, request)
            server = self.servers[request.server]
            if server.finished:
                self._collect(server)

    def _collect(self, server: Server) -> None:
        finished = server.finished
        server.finished = []
        # All ended requests must be handled before the gateway may stop one of them.
        gateway = self.services[finished[0].model].gateway
        held = gateway.hold() if gateway is not None else False
        for request in finished:
            parent = request.parent
            if parent is None:
                self._end(request, DROPPED if request.dropped else COMPLETED)
            else:
                self._end_leg(request, parent)
        if gateway is not None:
            gateway.release(held, self.now_s)

    def _end_leg(self, leg: Request, request: Request) -> None:
        assert self.splitting is not None
        self.legs -= 1
        self._leave(leg)
        if self.services[leg.model].router.reads_signals and not leg.dropped:
            self.cluster.observe_latency(leg)
        if self.splitting.handoff.prefilled(leg, self.now_s):
            self._settle(request)
        else:
            self.in_flight.remove(request)
            request.finished_s = self.now_s
            self._end(request, DROPPED)

    # Ends

    def _end(self, request: Request, outcome: str) -> None:
        """Ends a request: the one way out of a continuing run, with all consequences."""
        now_s = self.clock.now_s
        request.place = ENDED
        if request.alarm is not None:
            self.timers.cancel(request.alarm)
            request.alarm = None
        service = self.services[request.model]
        if request.server >= 0:
            self._leave(request)
        if outcome == COMPLETED:
            # Servers report their own times, before these are converted to the client's.
            if service.router.reads_signals:
                self.cluster.observe_latency(request)
            self._overheads[request.server].reach_client(request)
        self.recorder.end(request, outcome)
        if self._event_log is not None:
            self._event_log.ended(now_s, request, outcome)
        if service.gateway is not None:
            service.gateway.ended(request, now_s)
        if request.followed:
            self.traffic.ended(request, outcome == COMPLETED, max(now_s, request.finished_s))

    def _time_out(self, request: Request) -> None:
        """Ends a request whose client leaves; a step that ends at this very instant still
        counts."""
        if request.place == AT_SERVER and self.servers[request.server].wake_s <= self.now_s:
            self.step(self.servers[request.server])
            if request.place == ENDED:
                return
        self._withdraw(request)
        request.reason = f"the client left {stage_of(request)}"
        request.finished_s = self.now_s
        self._end(request, TIMED_OUT)

    def _withdraw(self, request: Request) -> None:
        """Takes a request out of wherever it is."""
        if request.place == AT_SERVER:
            self.cluster.cancel(request, self.now_s)
            self._take_back(request)
            return
        self.in_flight.remove(request)
        service = self.services[request.model]
        if request.place == UNPLACED:
            del service.unplaced[request.id]
            service.signals.unplaced -= 1
            return
        if request.place == AT_GATEWAY:
            assert service.gateway is not None
            service.gateway.leave(request, self.now_s)
            return
        if request.planned is not None:
            self.timers.cancel(request.planned)
            request.planned = None
        if request.place == ENCODING:
            self._leave_encoder(request)
        if request.place != SPLIT:
            return
        assert self.splitting is not None
        leg = self.splitting.handoff.abandon(request, self.now_s)
        if leg is None:
            return
        self._leave(leg)
        if leg.planned is not None:
            self.timers.cancel(leg.planned)
        else:
            self.legs -= 1
            self.cluster.cancel(leg, self.now_s)

    def _take_back(self, request: Request) -> None:
        """Clears the start of a step that was planned for a request but has not begun."""
        if request.scheduled_s > self.now_s:
            request.scheduled_s = UNSET

    # The end of a run

    def finish(self, *, one_by_one: bool = True) -> None:
        """Ends all remaining requests as unfinished at the horizon, and counts them.

        Without `one_by_one` they are counted together, where there is no time to process each.
        """
        for server in self.servers:
            server.stop(self.now_s)
        if not one_by_one:
            self.recorder.give_up(UNFINISHED, "the run was interrupted while it was inside")
            self.traffic.stop(self.now_s)
            return
        self.in_flight.note_splits()
        rest = self.in_flight.everywhere(self.servers)
        self.in_flight.clear()
        for service in self.services:
            service.unplaced.clear()
        self.legs = 0
        for number, request in enumerate(rest):
            self._take_back(request)
            self.recorder.end(request, UNFINISHED)
            if number % ENDED_PER_BREATH == 0:
                breathe()
        self.traffic.stop(self.now_s)


def _is_past_gateway(request: Request) -> bool:
    return request.place != AT_GATEWAY


class TrafficArrivals(Component):
    """Delivers the arrivals of traffic."""

    def __init__(self, requests: RequestLifecycle) -> None:
        self._requests: Final = requests
        self._traffic: Final = requests.traffic

    def next_s(self) -> float:
        return self._traffic.next_s

    def advance(self, now_s: float) -> None:  # noqa: ARG002 - the clock has it
        self._requests.arrive(self._traffic.take())


class RequestTimers(Component):
    """The timers of requests: deadlines, delays, retries, and the gateway's looks."""

    def __init__(self, requests: RequestLifecycle) -> None:
        self._requests: Final = requests
        self._timers: Final = requests.timers

    def next_s(self) -> float:
        return self._timers.next_s

    def advance(self, now_s: float) -> None:
        entry = self._timers.pop()
        assert entry is not None
        payload = entry.payload
        if entry.priority == DISPATCH:
            assert isinstance(payload, SimGateway)
            payload.due(now_s)
        else:
            assert isinstance(payload, Request)
            self._requests.due(entry.priority, payload)


class ServerSteps(Component):
    """Ends the steps of servers, and the KV transfers between them."""

    def __init__(self, requests: RequestLifecycle) -> None:
        self._requests: Final = requests
        self._servers: Final = requests.servers
        self._agenda: Final = requests.cluster.agenda

    def next_s(self) -> float:
        return self._agenda.next_s

    def advance(self, now_s: float) -> None:  # noqa: ARG002 - the clock has it
        actor = self._agenda.first()
        if actor.turn < LAST_TURN:
            self._requests.step(self._servers[actor.turn])
        else:
            self._requests.land()
