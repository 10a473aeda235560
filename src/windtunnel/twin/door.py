"""The gateway of a run: requests as the gateway knows them, and back."""

from typing import Final

from windtunnel.admission.gateway.gateway import Gateway
from windtunnel.admission.gateway.tickets import KIND_NAMES, Decision, Ticket
from windtunnel.core.signals import Signals
from windtunnel.workload.request import Request


class Door:
    """Asks the gateway about requests, remembers which ticket belongs to whom, and counts."""

    def __init__(self, gateway: Gateway, signals: Signals, targets_s: list[float]) -> None:
        self.gateway: Final = gateway
        self.reads_signals: Final = gateway.reads_signals
        self.waiting_peak = 0
        self.told: Final[list[dict[str, int]]] = [{} for _ in KIND_NAMES]  # by kind and reason
        self._signals: Final = signals
        self._targets_s: Final = targets_s  # longest time to a first token, by class of service
        self._requests: Final[dict[int, Request]] = {}
        self._tickets: Final[dict[int, Ticket]] = {}

    def arrive(self, request: Request, now_s: float) -> list[Decision]:
        ticket = Ticket(
            request.id,
            request.tenant,
            request.priority,
            request.prompt_tokens,
            now_s + self._targets_s[request.slo],
        )
        self._requests[request.id] = request
        self._tickets[request.id] = ticket
        decisions = self.gateway.arrive(ticket, self._signals, now_s)
        if self.gateway.waiting > self.waiting_peak:
            self.waiting_peak = self.gateway.waiting
        return decisions

    @property
    def known(self) -> int:
        """How many requests wait here or were let in and have not ended."""
        return len(self._tickets)

    def hear(self, decision: Decision) -> Request | None:
        """Whom a decision is about; None: it ended by itself before it could be stopped."""
        request = self._requests.get(decision.ticket.id)
        if request is None:
            return None
        counts = self.told[decision.kind]
        reason = str(decision.reason)
        counts[reason] = counts.get(reason, 0) + 1
        return request

    def replace(self, request: Request) -> None:
        """A request that was let in goes on in another record."""
        self._requests[request.id] = request

    def turned_away(self, request: Request) -> None:
        """The gateway has rejected it, and knows it no more."""
        del self._requests[request.id]
        del self._tickets[request.id]

    def leave(self, request: Request, now_s: float) -> None:
        """The client of a request that waits here gives up."""
        del self._requests[request.id]
        self.gateway.leave(self._tickets.pop(request.id), now_s)

    def ended(self, request: Request, now_s: float) -> list[Decision]:
        """A request that was let in is over."""
        ticket = self._tickets.pop(request.id, None)
        if ticket is None:
            return []
        del self._requests[request.id]
        return self.gateway.ended(ticket, self._signals, now_s)

    def tick(self, now_s: float) -> list[Decision]:
        return self.gateway.tick(self._signals, now_s)
