"""A request as the gateway knows it, and a decision about it."""

from typing import Final

from windtunnel.admission.reasons import Reason
from windtunnel.core.heap import HeapNode

NEW: Final = 0
QUEUED: Final = 1
IN_FLIGHT: Final = 2
EVICTING: Final = 3
"""Still in flight, and about to be stopped."""
GONE: Final = 4

ADMIT: Final = 0
QUEUE: Final = 1
REJECT: Final = 2
EVICT: Final = 3
KIND_NAMES: Final = ("admit", "queue", "reject", "evict")

SHEDDABLE_BELOW: Final = 0
"""Requests of a lower priority than this may be shed when the fleet is saturated."""


RequestId = int | str
"""The driver's id of a request; to a gateway it is opaque."""


class Ticket(HeapNode):
    """A request as the gateway knows it. Only the gateway changes it after arrival."""

    def __init__(
        self,
        id: RequestId,  # noqa: A002 - it is the ticket's id
        tenant: int,
        priority: int,
        tokens: int,
        target_s: float,
    ) -> None:
        super().__init__()
        self.id: Final = id
        self.tenant: Final = tenant  # by number
        self.priority: Final = priority
        self.tokens: Final = tokens  # of the prompt
        self.target_s: Final = target_s  # deadline of its first token; infinity: no target
        self.state = NEW
        self.queued_s = 0.0
        self.ahead: Ticket | None = None  # neighbours among queued tickets of its priority
        self.after: Ticket | None = None

    @property
    def sheddable(self) -> bool:
        return self.priority < SHEDDABLE_BELOW


class GatewayDecision:
    """An action on a ticket, and why: the reason, the value seen, and the limit on it.

    ADMIT: send it. QUEUE: it is queued here. REJECT: it will never be sent, whether it just arrived
    or was queued. EVICT: it was sent, and has to be stopped where it runs.
    """

    def __init__(
        self, kind: int, ticket: Ticket, reason: Reason, seen: float, limit: float
    ) -> None:
        self.kind: Final = kind
        self.ticket: Final = ticket
        self.reason: Final = reason
        self.seen: Final = seen
        self.limit: Final = limit

    def __repr__(self) -> str:
        name = KIND_NAMES[self.kind]
        return f"{name} {self.ticket.id}: {self.reason} ({self.seen:g}, {self.limit:g})"
