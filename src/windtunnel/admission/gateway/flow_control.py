"""Flow control: requests are queued in bands before the fleet, and sent while it has room.

Every call considers the whole queue: as many requests are sent as fit, each counted before the next
is considered. Queueing, shedding, eviction and expiry are all reported as decisions.
"""

import math
from typing import Final

from windtunnel.admission.gateway.bands import (
    DeadlineBand,
    FairBand,
    PriorityBand,
    TurnBand,
    Turns,
    Weights,
    set_ceilings,
)
from windtunnel.admission.gateway.detectors import Detector
from windtunnel.admission.gateway.gateway import NEVER, Gateway, reject
from windtunnel.admission.gateway.settings import FlowControlSettings
from windtunnel.admission.gateway.tickets import (
    EVICT,
    EVICTING,
    GONE,
    QUEUE,
    QUEUED,
    GatewayDecision,
    Ticket,
)
from windtunnel.admission.reasons import Reason
from windtunnel.core.heap import NOWHERE, NodeHeap
from windtunnel.core.signals import Signals

FIFO: Final = "fifo"
PRIORITY: Final = "priority"
DEADLINE: Final = "slo-deadline"
ROUND_ROBIN: Final = "round-robin"
ORDERS: Final = (PRIORITY, FIFO, DEADLINE, ROUND_ROBIN)

FULL: Final = 1.0
"""The saturation at which even the first band is held back, and requests may be evicted."""


class FlowControl(Gateway):
    """Bands by priority, the highest first, each with its ceiling on the fleet's saturation.

    Bands that are known in advance are given as `priorities`; another is added when its first
    ticket arrives, and the ceilings are spread anew.
    """

    def __init__(
        self,
        detector: Detector,
        settings: FlowControlSettings,
        weights: Weights,
        priorities: list[int],
    ) -> None:
        super().__init__()
        assert settings.order in ORDERS
        self.detector: Final = detector
        self._order: Final[str] = settings.order
        self._most_queued: Final[int] = settings.most_queued
        self._most_queued_per_band: Final[int] = settings.most_queued_per_band
        self._ttl_s: Final[float] = settings.longest_queued_s
        self._aging_s: Final[float] = settings.aged_after_s
        self._aged_share: Final[float] = settings.aging.share if settings.aging is not None else 0.0
        self._aged_credit = 0.0  # requests that aged bands may send before others
        self._limit: Final[float] = settings.limit  # the ceiling of the last band
        self._shedding: Final[bool] = settings.shedding  # of queued requests, when it is full
        self._eviction: Final[bool] = settings.eviction  # of requests in flight, for protected ones
        self._weights: Final = weights
        self._turns: Final = Turns()
        self._bands: Final[list[PriorityBand]] = []
        self._by_priority: Final[dict[int, PriorityBand]] = {}
        self._queued = 0
        self._arrivals = 0
        self._sent = 0
        self._evictable: Final = NodeHeap()  # sheddable requests in flight, in order of eviction
        self._looked_s = 0.0
        for priority in priorities:
            self._band(priority)

    @property
    def reads_signals(self) -> bool:
        return self.detector.reads_signals

    @property
    def queued(self) -> int:
        return self._queued

    @property
    def next_s(self) -> float:
        """When the detector evaluates again, or the next queued request expires."""
        if self._queued == 0:
            return NEVER
        next_s = self._looked_s + self.detector.look_every_s
        ttl_s = self._ttl_s
        if ttl_s != math.inf:
            for band in self._bands:
                oldest = band.oldest
                if oldest is not None and oldest.queued_s + ttl_s < next_s:
                    next_s = oldest.queued_s + ttl_s
        return next_s

    @property
    def priorities(self) -> list[int]:
        """The priorities that have a band, the highest first."""
        return [band.priority for band in self._bands]

    def ceiling(self, priority: int) -> float:
        """Returns the saturation at which requests of a priority, which must have a band, are held
        back."""
        return self._by_priority[priority].ceiling

    def arrive(self, ticket: Ticket, signals: Signals, now_s: float) -> list[GatewayDecision]:
        decisions = self._expire(now_s)
        self._arrivals += 1
        ticket.sequence = self._arrivals
        ticket.queued_s = now_s
        ticket.state = QUEUED
        band = self._band(ticket.priority)
        band.push(ticket)
        self._queued += 1
        self._send(decisions, signals, now_s)
        if ticket.state == QUEUED:
            self._queue_or_reject(decisions, ticket, band)
        self._evict(decisions)
        return decisions

    def ended(self, ticket: Ticket, signals: Signals, now_s: float) -> list[GatewayDecision]:
        self._close(ticket)
        if ticket.place != NOWHERE:
            self._evictable.remove(ticket)
        return self.tick(signals, now_s)

    def leave(self, ticket: Ticket, now_s: float) -> None:
        assert ticket.state == QUEUED
        self._remove(ticket, self._by_priority[ticket.priority])
        ticket.state = GONE

    def tick(self, signals: Signals, now_s: float) -> list[GatewayDecision]:
        decisions = self._expire(now_s)
        self._send(decisions, signals, now_s)
        self._evict(decisions)
        return decisions

    def check(self) -> str | None:
        counted = 0
        for number, band in enumerate(self._bands):
            fault = band.check()
            if fault is not None:
                return fault
            if number and band.priority >= self._bands[number - 1].priority:
                return f"band {band.priority} is out of order"
            counted += band.queued
        if counted != self._queued:
            return f"{counted} tickets in bands, {self._queued} counted"
        if self._queued > self._most_queued:
            return f"{self._queued} queued, at most {self._most_queued} may be"
        if len(self._evictable) > self.in_flight:
            return f"{len(self._evictable)} could be evicted, {self.in_flight} are in flight"
        return super().check()

    # Changes of the queue.

    def _band(self, priority: int) -> PriorityBand:
        band = self._by_priority.get(priority)
        if band is None:
            band = self._new_band(priority)
            self._by_priority[priority] = band
            place = 0
            while place < len(self._bands) and self._bands[place].priority > priority:
                place += 1
            self._bands.insert(place, band)
            set_ceilings(self._bands, self._limit)
        return band

    def _new_band(self, priority: int) -> PriorityBand:
        order = self._order
        if order == PRIORITY:
            return FairBand(priority, self._weights)
        if order == DEADLINE:
            return DeadlineBand(priority)
        if order == ROUND_ROBIN:
            return TurnBand(priority, self._turns)
        return PriorityBand(priority)

    def _remove(self, ticket: Ticket, band: PriorityBand) -> None:
        band.remove(ticket)
        self._queued -= 1

    def _expire(self, now_s: float) -> list[GatewayDecision]:
        """Rejects requests that have been queued for their time to live."""
        decisions: list[GatewayDecision] = []
        ttl_s = self._ttl_s
        if self._queued == 0 or ttl_s == math.inf:
            return decisions
        for band in self._bands:
            oldest = band.oldest
            while oldest is not None and oldest.queued_s + ttl_s <= now_s:
                self._remove(oldest, band)
                decisions.append(reject(oldest, Reason.EXPIRED, now_s - oldest.queued_s, ttl_s))
                oldest = band.oldest
        return decisions

    def _send(self, decisions: list[GatewayDecision], signals: Signals, now_s: float) -> None:
        """Sends requests one after the other, until the fleet is too full for the rest."""
        if self._queued == 0:
            return
        self.detector.look(signals, self.in_flight)
        # Without a server there are no signals; the first server to come causes a tick.
        self._looked_s = now_s if signals.answering else NEVER
        while self._queued > 0:
            saturation = self.detector.saturation(self.in_flight)
            reason = Reason.ROOM
            band = self._next_below(saturation, now_s)
            if band is None:
                if self.in_flight > 0 or self.detector.servers == 0:
                    return
                # Whatever signals say, an idle fleet has room for one request.
                reason = Reason.IDLE_FLEET
                band = self._next_below(-math.inf, now_s)
                assert band is not None
            ticket = band.first()
            band.served(ticket)
            self._remove(ticket, band)
            decisions.append(self._admit(ticket, reason, saturation, band.ceiling))
            if self._eviction and ticket.sheddable:
                self._sent += 1
                ticket.rank = ticket.priority
                ticket.tag = 0.0
                ticket.sequence = -self._sent
                self._evictable.push(ticket)

    def _next_below(self, saturation: float, now_s: float) -> PriorityBand | None:
        """The band whose first ticket is next, of those that may send at this saturation."""
        best: PriorityBand | None = None
        for band in self._bands:
            if saturation >= band.ceiling:
                break
            if band.queued > 0 and (best is None or band.overtakes(best)):
                best = band
        if best is None or self._aging_s == math.inf:
            return best
        return self._aged_below(saturation, now_s) or best

    def _aged_below(self, saturation: float, now_s: float) -> PriorityBand | None:
        """Returns a band whose oldest ticket has been queued for too long, when its share is due.

        While there is such a band, every ticket sent earns it a share of a turn.
        """
        oldest_s = now_s - self._aging_s
        aged: PriorityBand | None = None
        for band in self._bands:
            oldest = band.oldest
            if saturation < band.ceiling and oldest is not None and oldest.queued_s <= oldest_s:
                oldest_s = oldest.queued_s
                aged = band
        if aged is None:
            return None
        self._aged_credit += self._aged_share
        if self._aged_credit < 1.0:
            return None
        self._aged_credit -= 1.0
        return aged

    def _queue_or_reject(
        self, decisions: list[GatewayDecision], ticket: Ticket, band: PriorityBand
    ) -> None:
        """Queues a new request that cannot be sent, or rejects it or another one if the queue is
        full."""
        if band.queued > self._most_queued_per_band:
            seen, most = float(band.queued), float(self._most_queued_per_band)
            self._remove(ticket, band)
            decisions.append(reject(ticket, Reason.BAND_FULL, seen, most))
            return
        if self._queued > self._most_queued:
            lowest = self._lowest()
            outranks = lowest.priority < ticket.priority and not lowest.protected
            if not self._shedding or not outranks:
                seen, most = float(self._queued), float(self._most_queued)
                self._remove(ticket, band)
                decisions.append(reject(ticket, Reason.QUEUE_FULL, seen, most))
                return
            shed = lowest.newest
            assert shed is not None
            self._remove(shed, lowest)
            decisions.append(
                reject(shed, Reason.OUTRANKED, float(shed.priority), float(ticket.priority))
            )
        if self.detector.servers == 0:
            decisions.append(GatewayDecision(QUEUE, ticket, Reason.NO_SERVERS, 0.0, 0.0))
            return
        saturation = self.detector.saturation(self.in_flight)
        decisions.append(GatewayDecision(QUEUE, ticket, Reason.SATURATED, saturation, band.ceiling))

    def _lowest(self) -> PriorityBand:
        """Returns the lowest band that is not empty."""
        for band in reversed(self._bands):
            if band.queued > 0:
                return band
        raise AssertionError("nothing is queued")

    def _evict(self, decisions: list[GatewayDecision]) -> None:
        """Evicts a sheddable request for every protected one that a full fleet holds back.

        At most one is evicted for each, however long it is queued: lagging signals must not empty
        the fleet.
        """
        if not self._eviction or self._queued == 0 or not self._evictable.nodes:
            return
        saturation = self.detector.saturation(self.in_flight)
        if saturation < FULL:
            return
        for band in self._bands:
            if not band.protected:
                return
            while band.awaiting_eviction is not None and self._evictable.nodes:
                ticket = self._evictable.nodes[0]
                assert isinstance(ticket, Ticket)
                self._evictable.remove(ticket)
                ticket.state = EVICTING
                decisions.append(GatewayDecision(EVICT, ticket, Reason.MADE_WAY, saturation, FULL))
                band.evicted_for()
