"""What every gateway is: a state machine that takes facts about requests and returns decisions.

The driver calls `arrive` once for each request, and for each that was admitted `ended` exactly
once, however it ended: completed, dropped, timed out, or stopped by an EVICT. `leave` is for one
that is still queued when its client gives up. `tick` is due at `next_s`, and may come at any time.
Every call may return decisions about other requests than the one it is about.
"""

import math
from typing import Final

from windtunnel.admission.gateway.reasons import Reason
from windtunnel.admission.gateway.tickets import (
    ADMIT,
    EVICTING,
    GONE,
    IN_FLIGHT,
    NEW,
    QUEUED,
    REJECT,
    GatewayDecision,
    Ticket,
)
from windtunnel.core.signals import Signals

NEVER: Final = math.inf


class Allowance:
    """A limit that a tenant is held to, and what is left of it."""

    def __init__(self, kind: str, limit: float, remaining: float, per_s: float) -> None:
        self.kind: Final = kind  # "requests" or "tokens"
        self.limit: Final = limit
        self.remaining: Final = remaining
        self.per_s: Final = per_s  # how fast it comes back; 0: as requests end

    def wait_s(self, amount: float) -> float:
        """How long until so much is left; 0 where time alone does not bring it back."""
        if self.per_s <= 0.0:
            return 0.0
        return max(0.0, min(amount, self.limit) - self.remaining) / self.per_s


class Gateway:
    """Decides at once and queues nothing; policies that queue override what they need."""

    def __init__(self) -> None:
        self.in_flight = 0  # admitted and not ended

    @property
    def reads_signals(self) -> bool:
        """Whether servers have to be polled for it; what is in flight is known without."""
        return False

    @property
    def queued(self) -> int:
        """How many tickets are queued here."""
        return 0

    @property
    def next_s(self) -> float:
        """When `tick` is due; infinity: when nothing but a call can change anything."""
        return NEVER

    def arrive(self, ticket: Ticket, signals: Signals, now_s: float) -> list[GatewayDecision]:
        """A request has come; one of the decisions is about it."""
        raise NotImplementedError

    def ended(self, ticket: Ticket, signals: Signals, now_s: float) -> list[GatewayDecision]:
        """An admitted request is over, whatever became of it."""
        self._close(ticket)
        return []

    def leave(self, ticket: Ticket, now_s: float) -> None:
        """The client of a queued request gave up."""
        raise AssertionError(f"ticket {ticket.id} left at {now_s}, but nothing is queued here")

    def tick(self, signals: Signals, now_s: float) -> list[GatewayDecision]:
        """Time has passed, or servers have come or gone."""
        return []

    def allowances(self, tenant: int, signals: Signals, now_s: float) -> list[Allowance]:
        """What a tenant is held to; empty: no rate and no share."""
        return []

    def check(self) -> str | None:
        """What is wrong with its books; None when all is well."""
        return None if self.in_flight >= 0 else f"{self.in_flight} requests in flight"

    def _admit(self, ticket: Ticket, reason: Reason, seen: float, limit: float) -> GatewayDecision:
        assert ticket.state in (NEW, QUEUED)
        ticket.state = IN_FLIGHT
        self.in_flight += 1
        return GatewayDecision(ADMIT, ticket, reason, seen, limit)

    def _close(self, ticket: Ticket) -> None:
        assert ticket.state in (IN_FLIGHT, EVICTING), "a request ends once, and only when admitted"
        ticket.state = GONE
        self.in_flight -= 1


def reject(ticket: Ticket, reason: Reason, seen: float, limit: float) -> GatewayDecision:
    """Rejects a request for good."""
    ticket.state = GONE
    return GatewayDecision(REJECT, ticket, reason, seen, limit)
