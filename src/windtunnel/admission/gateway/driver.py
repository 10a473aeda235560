"""The contract between a gateway and its driver: report facts, take decisions, tick on time.

The driver reports what happens to requests (`arrive`, `ended`, `leave`, `tick`) and then carries
out the decisions that `take` returns, one after another, until there is none. There are no
callbacks: facts may be reported while a decision is carried out; the resulting decisions are made
at once, and taken after the earlier ones. `next_s` says when `tick` is due. If `reads_signals` is
true, servers with stale signals have to be polled before a fact is reported.

A simulation and an asyncio server drive a gateway in the same way:

    driver.arrive(Ticket(request_id, tenant, priority, prompt_tokens, target_s), now_s)
    while (decision := driver.take()) is not None:
        carry_out(decision.kind, decision.ticket.id, decision.reason)
    schedule_tick(driver.next_s)
"""

from typing import Final

from windtunnel.admission.gateway.gateway import Gateway
from windtunnel.admission.gateway.tickets import (
    KIND_NAMES,
    REJECT,
    GatewayDecision,
    RequestId,
    Ticket,
)
from windtunnel.admission.reasons import Reason
from windtunnel.core.signals import Signals


class GatewayDriver:
    """Maps request ids to tickets, keeps decisions in order, and counts them."""

    def __init__(self, gateway: Gateway, signals: Signals) -> None:
        self.gateway = gateway
        self.reads_signals: Final = gateway.reads_signals
        self.queued_peak = 0
        self.counts: Final[list[dict[Reason, int]]] = [{} for _ in KIND_NAMES]
        """The decisions taken, by kind and reason."""
        self._signals: Final = signals
        self._tickets: Final[dict[RequestId, Ticket]] = {}
        self._decided: Final[list[GatewayDecision]] = []
        self._taken = 0

    def restart(self, gateway: Gateway) -> None:
        """Replaces the gateway after every request known to the old one has ended."""
        assert not self._tickets, f"{len(self._tickets)} requests have not ended"
        self.gateway = gateway
        self._decided.clear()
        self._taken = 0

    @property
    def known(self) -> int:
        """The number of requests that are queued here, or were admitted and have not ended."""
        return len(self._tickets)

    @property
    def next_s(self) -> float:
        """When `tick` is due; infinity: not before something else happens."""
        return self.gateway.next_s

    def arrive(self, ticket: Ticket, now_s: float) -> None:
        """Reports an arrival; the id must be unique among the requests known here."""
        known = len(self._tickets)
        self._tickets[ticket.id] = ticket
        assert len(self._tickets) > known, f"request {ticket.id} has arrived before"
        self._decided.extend(self.gateway.arrive(ticket, self._signals, now_s))
        queued = self.gateway.queued
        if queued > self.queued_peak:
            self.queued_peak = queued

    def ended(self, request_id: RequestId, now_s: float) -> None:
        """Reports the end of an admitted request, however it ended; an unknown id is ignored."""
        ticket = self._tickets.pop(request_id, None)
        if ticket is not None:
            self._decided.extend(self.gateway.ended(ticket, self._signals, now_s))

    def leave(self, request_id: RequestId, now_s: float) -> None:
        """Reports that the client of a queued request gave up."""
        self.gateway.leave(self._tickets.pop(request_id), now_s)

    def tick(self, now_s: float) -> None:
        """Reports that time has passed, or that servers were added or removed."""
        self._decided.extend(self.gateway.tick(self._signals, now_s))

    def take(self) -> GatewayDecision | None:
        """Returns the next decision to carry out; None if there is none for now.

        Decisions about requests that have ended meanwhile are skipped. A rejected request is
        forgotten: its end must not be reported.
        """
        while self._taken < len(self._decided):
            decision = self._decided[self._taken]
            self._taken += 1
            ticket = decision.ticket
            if self._tickets.get(ticket.id) is not ticket:
                continue
            counts = self.counts[decision.kind]
            counts[decision.reason] = counts.get(decision.reason, 0) + 1
            if decision.kind == REJECT:
                del self._tickets[ticket.id]
            return decision
        if self._taken:
            self._decided.clear()
            self._taken = 0
        return None

    def check(self) -> str | None:
        """Returns what is inconsistent once every decision was taken, or None."""
        fault = self.gateway.check()
        if fault is not None:
            return fault
        gateway = self.gateway
        if self.known != gateway.queued + gateway.in_flight:
            counted = f"{gateway.queued} queued and {gateway.in_flight} in flight"
            return f"the gateway has {counted} of {self.known} known"
        return None
