"""The gateway interface: a state machine that takes facts about requests and returns decisions.

The driver calls `arrive` once for each request and, for each that was admitted, `ended` exactly
once, however it ended: completed, dropped, timed out, or stopped by an EVICT. `leave` is for a
request that is still queued when its client gives up. `tick` is due at `next_s`, and may come at
any time. Every call may return decisions about other requests than its own.
"""

import math
from typing import Final

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
from windtunnel.admission.reasons import Reason
from windtunnel.core.signals import Signals

NEVER: Final = math.inf


class Allowance:
    """A limit on a tenant, and what is left of it."""

    def __init__(self, kind: str, limit: float, remaining: float, per_s: float) -> None:
        self.kind: Final = kind  # "requests" or "tokens"
        self.limit: Final = limit
        self.remaining: Final = remaining
        self.per_s: Final = per_s  # how fast it comes back; 0: as requests end

    def wait_s(self, amount: float) -> float:
        """Returns how long until `amount` is left; 0 if time alone does not restore it."""
        if self.per_s <= 0.0:
            return 0.0
        return max(0.0, min(amount, self.limit) - self.remaining) / self.per_s


class Gateway:
    """Decides at once and queues nothing; policies that queue override what they need."""

    def __init__(self) -> None:
        self.in_flight = 0  # admitted and not ended

    @property
    def reads_signals(self) -> bool:
        """Whether servers have to be polled for it; what is in flight is known anyway."""
        return False

    @property
    def queued(self) -> int:
        """The number of tickets queued here."""
        return 0

    @property
    def next_s(self) -> float:
        """When `tick` is due; infinity if only another call can change anything."""
        return NEVER

    def arrive(self, ticket: Ticket, signals: Signals, now_s: float) -> list[GatewayDecision]:
        """Handles a new request; one of the decisions is about it."""
        raise NotImplementedError

    def ended(self, ticket: Ticket, signals: Signals, now_s: float) -> list[GatewayDecision]:
        """Handles the end of an admitted request, whatever its outcome."""
        self._close(ticket)
        return []

    def leave(self, ticket: Ticket, now_s: float) -> None:
        """Handles a queued request whose client gave up."""
        raise AssertionError(f"ticket {ticket.id} left at {now_s}, but nothing is queued here")

    def tick(self, signals: Signals, now_s: float) -> list[GatewayDecision]:
        """Handles the passing of time, and servers that were added or removed."""
        return []

    def allowances(self, tenant: int, signals: Signals, now_s: float) -> list[Allowance]:
        """Returns the limits on a tenant; empty: neither rate nor share."""
        return []

    def check(self) -> str | None:
        """Returns what is inconsistent in its state, or None."""
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
