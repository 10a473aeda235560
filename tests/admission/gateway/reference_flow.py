"""Flow control done slowly and obviously: every question is answered by looking at everybody."""

import math
from collections.abc import Callable
from typing import Any

from windtunnel.admission.gateway.detectors import Detector
from windtunnel.admission.gateway.settings import FlowControlSettings
from windtunnel.admission.gateway.tickets import (
    ADMIT,
    EVICT,
    QUEUE,
    REJECT,
    GatewayDecision,
    Ticket,
)
from windtunnel.admission.reasons import Reason
from windtunnel.core.signals import Signals


class ReferenceFlow:
    """The same rules as `FlowControl`, in lists that are searched from end to end."""

    def __init__(
        self,
        detector: Detector,
        settings: FlowControlSettings,
        weights: dict[int, float],
        priorities: list[int],
    ) -> None:
        self.detector, self.settings, self.weights = detector, settings, weights
        self.priorities = set(priorities)
        self.queue: list[Ticket] = []  # by arrival
        self.arrived_s: dict[int, float] = {}
        self.flying: list[Ticket] = []  # by when they were sent, the stopped ones among them
        self.stopped: list[Ticket] = []
        self.answered: list[Ticket] = []  # those for whom somebody was stopped
        self.looked_s = 0.0
        # Virtual time of a band, and where each tenant's next turn starts, by band.
        self.virtual: dict[int, float] = {}
        self.finish: dict[tuple[int, int], float] = {}
        self.start: dict[tuple[int, int], float] = {}  # of those who ask
        self.turns: list[int] = []  # tenants, as they were served

    # What a driver may ask

    @property
    def in_flight(self) -> int:
        return len(self.flying)

    @property
    def waiting(self) -> int:
        return len(self.queue)

    @property
    def next_s(self) -> float:
        if not self.queue:
            return math.inf
        expiries = [
            self.arrived_s[int(one.id)] + self.settings.longest_queued_s for one in self.queue
        ]
        return min([self.looked_s + self.detector.look_every_s, *expiries])

    def ceiling(self, priority: int) -> float:
        ordered = sorted(self.priorities, reverse=True)
        if len(ordered) == 1:
            return 1.0
        number = ordered.index(priority)
        return 1.0 - number * (1.0 - self.settings.limit) / (len(ordered) - 1)

    # What a driver tells

    def arrive(self, ticket: Ticket, signals: Signals, now_s: float) -> list[GatewayDecision]:
        told = self.expire(now_s)
        self.priorities.add(ticket.priority)
        self.queue.append(ticket)
        self.arrived_s[int(ticket.id)] = now_s
        self.begin(ticket)
        told += self.send(signals, now_s)
        if ticket in self.queue:
            told += self.seat(ticket)
        return told + self.make_way()

    def ended(self, ticket: Ticket, signals: Signals, now_s: float) -> list[GatewayDecision]:
        self.flying.remove(ticket)
        return self.tick(signals, now_s)

    def leave(self, ticket: Ticket, now_s: float) -> None:
        self.remove(ticket)

    def tick(self, signals: Signals, now_s: float) -> list[GatewayDecision]:
        told = self.expire(now_s)
        told += self.send(signals, now_s)
        return told + self.make_way()

    # How it is decided

    def band(self, ticket: Ticket) -> list[Ticket]:
        return [one for one in self.queue if one.priority == ticket.priority]

    def flow(self, ticket: Ticket) -> list[Ticket]:
        return [one for one in self.band(ticket) if one.tenant == ticket.tenant]

    def begin(self, ticket: Ticket) -> None:
        """A tenant that had nothing in this band starts at the band's time, or where it owes."""
        if len(self.flow(ticket)) == 1:
            key = (ticket.priority, ticket.tenant)
            self.start[key] = max(self.finish.get(key, 0.0), self.virtual.get(ticket.priority, 0.0))

    def remove(self, ticket: Ticket) -> None:
        self.queue.remove(ticket)
        if not self.flow(ticket):
            del self.start[ticket.priority, ticket.tenant]
        if not self.band(ticket):
            ends = [end for (band, _), end in self.finish.items() if band == ticket.priority]
            self.virtual[ticket.priority] = max([0.0, *ends])

    def expire(self, now_s: float) -> list[GatewayDecision]:
        ttl_s = self.settings.longest_queued_s
        told = []
        for ticket in sorted(self.queue, key=lambda one: -one.priority):
            waited_s = now_s - self.arrived_s[int(ticket.id)]
            if self.arrived_s[int(ticket.id)] + ttl_s <= now_s:
                self.remove(ticket)
                told.append(GatewayDecision(REJECT, ticket, Reason.EXPIRED, waited_s, ttl_s))
        return told

    def key(self) -> Callable[[Ticket], Any]:
        """What the next to go has least of."""

        def place(ticket: Ticket) -> int:
            return self.queue.index(ticket)

        def fair(ticket: Ticket) -> Any:
            start = self.start[ticket.priority, ticket.tenant]
            return -ticket.priority, start, place(self.flow(ticket)[0]), place(ticket)

        def turn(ticket: Ticket) -> Any:
            served = [number for number, one in enumerate(self.turns, 1) if one == ticket.tenant]
            return max([0, *served]), -ticket.priority, place(ticket)

        def deadline(ticket: Ticket) -> Any:
            return ticket.target_s, place(ticket)

        return {"fifo": place, "priority": fair, "slo-deadline": deadline, "round-robin": turn}[
            self.settings.order
        ]

    def send(self, signals: Signals, now_s: float) -> list[GatewayDecision]:
        told: list[GatewayDecision] = []
        if self.queue:
            self.detector.look(signals, self.in_flight)
            self.looked_s = now_s if signals.answering else math.inf
        while self.queue:
            saturation = self.detector.saturation(self.in_flight)
            may = [one for one in self.queue if saturation < self.ceiling(one.priority)]
            reason = Reason.ROOM
            if not may:
                if self.in_flight or not self.detector.servers:
                    break
                may, reason = self.queue, Reason.IDLE_FLEET
            ticket = min(may, key=self.key())
            self.turns.append(ticket.tenant)
            key = (ticket.priority, ticket.tenant)
            self.virtual[ticket.priority] = self.start[key]
            self.finish[key] = self.start[key] + ticket.tokens / self.weights.get(
                ticket.tenant, 1.0
            )
            self.start[key] = self.finish[key]
            self.remove(ticket)
            self.flying.append(ticket)
            told.append(
                GatewayDecision(ADMIT, ticket, reason, saturation, self.ceiling(ticket.priority))
            )
        return told

    def seat(self, ticket: Ticket) -> list[GatewayDecision]:
        settings = self.settings
        told: list[GatewayDecision] = []
        if len(self.band(ticket)) > settings.most_queued_per_band:
            seen = len(self.band(ticket))
            self.remove(ticket)
            limit = settings.most_queued_per_band
            return [GatewayDecision(REJECT, ticket, Reason.BAND_FULL, seen, limit)]
        if self.waiting > settings.most_queued:
            lowest = min(one.priority for one in self.queue)
            if not settings.shedding or lowest >= 0 or lowest >= ticket.priority:
                seen = self.waiting
                self.remove(ticket)
                return [
                    GatewayDecision(REJECT, ticket, Reason.QUEUE_FULL, seen, settings.most_queued)
                ]
            shed = [one for one in self.queue if one.priority == lowest][-1]
            self.remove(shed)
            told = [GatewayDecision(REJECT, shed, Reason.OUTRANKED, shed.priority, ticket.priority)]
        if not self.detector.servers:
            return [*told, GatewayDecision(QUEUE, ticket, Reason.NO_SERVERS, 0.0, 0.0)]
        saturation = self.detector.saturation(self.in_flight)
        limit_ = self.ceiling(ticket.priority)
        return [*told, GatewayDecision(QUEUE, ticket, Reason.SATURATED, saturation, limit_)]

    def make_way(self) -> list[GatewayDecision]:
        saturation = self.detector.saturation(self.in_flight)
        told: list[GatewayDecision] = []
        if not self.settings.eviction or saturation < 1.0:
            return told
        for ticket in sorted(self.queue, key=lambda one: -one.priority):
            going = [one for one in self.flying if one.priority < 0 and one not in self.stopped]
            if ticket.priority < 0 or ticket in self.answered or not going:
                continue
            lowest = min(one.priority for one in going)
            victim = [one for one in going if one.priority == lowest][-1]
            self.stopped.append(victim)
            self.answered.append(ticket)
            told.append(GatewayDecision(EVICT, victim, Reason.MADE_WAY, saturation, 1.0))
        return told
