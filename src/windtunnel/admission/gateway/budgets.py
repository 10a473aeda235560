"""Tenant budgets around any gateway: the share of the fleet that a tenant's requests may hold."""

from typing import Final

from windtunnel.admission.gateway.gateway import Allowance, Gateway, reject
from windtunnel.admission.gateway.tickets import REJECT, GatewayDecision, Ticket
from windtunnel.admission.reasons import Reason
from windtunnel.core.signals import Signals

NO_BUDGET: Final = -1.0


class TenantBudgets(Gateway):
    """Limits each tenant to a share of the slots; queued requests count like those in flight.

    A tenant over its budget has its sheddable requests rejected or, with `reject_all`, all of them.
    A share above 0 allows at least one request, however few slots there are. A tenant without a
    share has no limit.
    """

    def __init__(
        self, inner: Gateway, shares: dict[str, float], tenants: list[str], *, reject_all: bool
    ) -> None:
        super().__init__()
        self.inner: Final = inner
        self.reject_all: Final = reject_all
        self._shares: Final = shares
        self._tenants: Final = tenants  # names by number; the driver may add to it
        self._share_of: Final[list[float]] = []  # shares by number, for the tenants seen so far
        self._held: Final[list[int]] = []

    @property
    def reads_signals(self) -> bool:
        return self.inner.reads_signals

    @property
    def queued(self) -> int:
        return self.inner.queued

    @property
    def next_s(self) -> float:
        return self.inner.next_s

    def held(self, tenant: int) -> int:
        """Returns how many requests of a tenant are queued or in flight."""
        return self._held[tenant] if tenant < len(self._held) else 0

    def allowances(self, tenant: int, signals: Signals, now_s: float) -> list[Allowance]:
        found = self.inner.allowances(tenant, signals, now_s)
        budget = self._budget(tenant, signals)
        if budget != NO_BUDGET:
            left = max(0.0, budget - self._held[tenant])
            found.append(Allowance("requests", budget, left, 0.0))
        return found

    def _budget(self, tenant: int, signals: Signals) -> float:
        """Returns how many requests a tenant may have; `NO_BUDGET`: no limit."""
        while tenant >= len(self._held):
            name = self._tenants[len(self._held)]
            self._share_of.append(self._shares.get(name, NO_BUDGET))
            self._held.append(0)
        share = self._share_of[tenant]
        if share == NO_BUDGET:
            return NO_BUDGET
        # A fleet scaled to zero counts as the one server that it starts with.
        budget = share * max(signals.answering_slots, signals.least_slots)
        return 1.0 if 0.0 < budget < 1.0 else budget

    def arrive(self, ticket: Ticket, signals: Signals, now_s: float) -> list[GatewayDecision]:
        tenant = ticket.tenant
        budget = self._budget(tenant, signals)
        if budget != NO_BUDGET and (self.reject_all or ticket.sheddable):
            wanted = float(self._held[tenant] + 1)
            if wanted > budget:
                return [reject(ticket, Reason.OVER_BUDGET, wanted, budget)]
        self._held[tenant] += 1
        return self._booked(self.inner.arrive(ticket, signals, now_s))

    def ended(self, ticket: Ticket, signals: Signals, now_s: float) -> list[GatewayDecision]:
        self._held[ticket.tenant] -= 1
        return self._booked(self.inner.ended(ticket, signals, now_s))

    def leave(self, ticket: Ticket, now_s: float) -> None:
        self._held[ticket.tenant] -= 1
        self.inner.leave(ticket, now_s)

    def tick(self, signals: Signals, now_s: float) -> list[GatewayDecision]:
        return self._booked(self.inner.tick(signals, now_s))

    def check(self) -> str | None:
        inside = self.inner.queued + self.inner.in_flight
        held = sum(self._held)
        if held != inside or min(self._held, default=0) < 0:
            return f"tenants hold {self._held}, and {inside} requests are queued or in flight"
        return self.inner.check()

    def _booked(self, decisions: list[GatewayDecision]) -> list[GatewayDecision]:
        for decision in decisions:
            if decision.kind == REJECT:
                self._held[decision.ticket.tenant] -= 1
        self.in_flight = self.inner.in_flight
        return decisions
