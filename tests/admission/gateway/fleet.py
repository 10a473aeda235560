"""Signals and tickets for tests of the gateway, made with as few words as possible."""

import math

from windtunnel.admission.gateway.gateway import Gateway
from windtunnel.admission.gateway.settings import FlowControlSettings
from windtunnel.admission.gateway.tickets import KIND_NAMES, GatewayDecision, Ticket
from windtunnel.core.signals import Signals


def signals(
    *in_flight: int, slots: int = 10, waiting: int = 0, kv_used: float = 0.0, staleness_s: float = 0
) -> Signals:
    """A server for each number of requests in flight; all have the same queue and KV use."""
    seen = Signals([slots] * len(in_flight), staleness_s)
    for server, count in enumerate(in_flight):
        seen.in_flight[server] = count
        seen.running[server] = count - waiting
        seen.waiting[server] = waiting
        seen.kv_used[server] = kv_used
    seen.taken_s = 0.0
    return seen


def flow_settings(
    order: str = "priority",
    most: int = 1000,
    most_per_band: int = 1000,
    ttl_s: float = math.inf,
    limit: float = 1.0,
    *,
    shedding: bool = False,
    eviction: bool = False,
) -> FlowControlSettings:
    return FlowControlSettings.model_validate(
        {
            "policy": "flow-control",
            "order": order,
            "max_waiting": most,
            "max_waiting_per_band": most_per_band,
            "ttl": None if ttl_s == math.inf else ttl_s,
            "limit": limit,
            "shedding": shedding,
            "eviction": eviction,
        }
    )


class Desk:
    """A gateway, its tickets by id, and a fleet of servers that only counts what it has."""

    def __init__(self, gateway: Gateway, seen: Signals | None = None) -> None:
        self.gateway = gateway
        self.signals = seen or signals(0)
        self.tickets: dict[int, Ticket] = {}
        self.sent: list[int] = []

    def arrive(
        self,
        now_s: float = 0.0,
        *,
        priority: int = 0,
        tenant: int = 0,
        tokens: int = 1,
        target_s: float = math.inf,
    ) -> str:
        """The next ticket comes; what was decided, as words."""
        ticket = Ticket(len(self.tickets), tenant, priority, tokens, target_s)
        self.tickets[int(ticket.id)] = ticket
        return self._told(self.gateway.arrive(ticket, self.signals, now_s))

    def end(self, number: int, now_s: float = 0.0) -> str:
        return self._told(self.gateway.ended(self.tickets[number], self.signals, now_s))

    def leave(self, number: int, now_s: float = 0.0) -> None:
        self.gateway.leave(self.tickets[number], now_s)
        assert self.gateway.check() is None

    def tick(self, now_s: float) -> str:
        return self._told(self.gateway.tick(self.signals, now_s))

    def _told(self, decisions: list[GatewayDecision]) -> str:
        assert self.gateway.check() is None
        self.sent += [int(one.ticket.id) for one in decisions if one.kind == 0]
        return ", ".join(
            f"{KIND_NAMES[one.kind]} {one.ticket.id} {one.reason}" for one in decisions
        )
