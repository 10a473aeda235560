"""The gateway of a simulation: carries out its decisions, and schedules its next look."""

import math
from collections.abc import Callable
from typing import Final

from windtunnel.admission.gateway.driver import GatewayDriver
from windtunnel.admission.gateway.gateway import Gateway
from windtunnel.admission.gateway.tickets import ADMIT, EVICT, REJECT, GatewayDecision, Ticket
from windtunnel.core import vocabulary
from windtunnel.core.loop import Entry, EventQueue, SkewedClock
from windtunnel.twin.ports import RequestPort
from windtunnel.twin.results.event_log import EventLog
from windtunnel.twin.servers.cluster import Roster
from windtunnel.workload.request import Request

DISPATCH: Final = 3


class SimGateway:
    """Drives the gateway of one model, and maps ids to requests.

    Carrying out a decision may end requests, which makes the gateway decide again; later decisions
    are carried out after the earlier ones.
    """

    def __init__(
        self,
        start: Callable[[], Gateway],
        roster: Roster,
        targets_s: list[float],
        queue: EventQueue,
        event_log: EventLog | None,
    ) -> None:
        self._start: Final = start
        self.driver: Final = GatewayDriver(start(), roster.signals)
        self.inside: RequestPort | None = None  # set by the loop
        self._roster: Final = roster
        self._targets_s: Final = targets_s  # TTFT target by class of service
        self._queue: Final = queue
        self._event_log: Final = event_log
        self._requests: Final[dict[int, Request]] = {}
        self.clock: Final = SkewedClock()
        self._held = False
        self._planned: Entry | None = None  # the gateway's next look

    def arrive(self, request: Request, now_s: float) -> None:
        self._look(now_s)
        self._requests[request.id] = request
        clock_s = self.clock.read(now_s)
        ticket = Ticket(
            request.id,
            request.tenant,
            request.priority,
            request.prompt_tokens,
            clock_s + self._targets_s[request.slo],
        )
        self.driver.arrive(ticket, clock_s)
        self._obey(now_s)

    def restart(self, now_s: float) -> None:
        """Restarts the gateway without its state; every request that it knew has ended."""
        self.driver.restart(self._start())
        self._plan(now_s)

    def replace(self, request: Request) -> None:
        """Replaces the record of an admitted request."""
        self._requests[request.id] = request

    def ended(self, request: Request, now_s: float) -> None:
        self._look(now_s)
        self._requests.pop(request.id, None)
        self.driver.ended(request.id, self.clock.read(now_s))
        self._obey(now_s)

    def leave(self, request: Request, now_s: float) -> None:
        """Removes a queued request whose client gave up."""
        self.driver.leave(request.id, self.clock.read(now_s))
        self._plan(now_s)

    def due(self, now_s: float) -> None:
        """Lets the gateway look again at the time it asked for."""
        self._planned = None
        self.tick(now_s)

    def tick(self, now_s: float) -> None:
        """Lets the gateway decide again after time has passed or servers have become ready."""
        self._look(now_s)
        self.driver.tick(self.clock.read(now_s))
        self._obey(now_s)

    def hold(self) -> bool:
        """Suspends carrying out decisions until `release` is called with the returned value."""
        held = self._held
        self._held = True
        return held

    def release(self, held: bool, now_s: float) -> None:  # noqa: FBT001 - what `hold` gave
        self._held = held
        self._obey(now_s)

    def _look(self, now_s: float) -> None:
        """Probes servers, but only for a gateway that reads their signals."""
        if self.driver.reads_signals:
            self._roster.probe(now_s)

    def _obey(self, now_s: float) -> None:
        if self._held:
            return
        self._held = True
        decision = self.driver.take()
        while decision is not None:
            self._carry_out(decision, now_s)
            decision = self.driver.take()
        self._held = False
        self._plan(now_s)

    def _carry_out(self, decision: GatewayDecision, now_s: float) -> None:
        request_id = decision.ticket.id
        assert isinstance(request_id, int)
        request = self._requests[request_id]
        reason = str(decision.reason)
        if self._event_log is not None:
            kind = vocabulary.GATEWAY_DECISIONS[decision.kind]
            self._event_log.add(
                now_s, kind, request, reason, seen=decision.seen, limit=decision.limit
            )
        inside = self.inside
        assert inside is not None
        if decision.kind == ADMIT:
            inside.let_in(request)
        elif decision.kind == REJECT:
            inside.turn_away(request, reason)
        elif decision.kind == EVICT:
            inside.stop(request, reason)

    def _plan(self, now_s: float) -> None:
        """Keeps one event in the queue for the gateway's next look."""
        next_s = self.clock.when(self.driver.next_s)
        planned = self._planned
        if planned is not None:
            if planned.time_s == next_s:
                return
            self._queue.cancel(planned)
            self._planned = None
        if next_s != math.inf:
            self._planned = self._queue.push(max(next_s, now_s), DISPATCH, self)
