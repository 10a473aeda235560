"""The policies of a gateway that decide at once, and the constructor of all policies.

They admit every request, charge a token bucket, or shed by load or saturation. Flow control, which
queues, has a module of its own.
"""

from typing import Final

from windtunnel.admission.gateway.bands import Weights
from windtunnel.admission.gateway.budgets import TenantBudgets
from windtunnel.admission.gateway.detectors import (
    NO_SERVERS,
    Concurrency,
    Detector,
    Utilization,
    mean_use,
)
from windtunnel.admission.gateway.flow_control import FlowControl
from windtunnel.admission.gateway.gateway import Allowance, Gateway, reject
from windtunnel.admission.gateway.settings import (
    AlwaysSettings,
    ConcurrencySettings,
    DetectorSettings,
    FlowControlSettings,
    GatewaySettings,
    SaturationShedSettings,
    TierShedSettings,
    TokenBucketSettings,
    UtilizationSettings,
)
from windtunnel.admission.gateway.tickets import SHEDDABLE_BELOW, GatewayDecision, Ticket
from windtunnel.admission.reasons import Reason
from windtunnel.core.signals import Signals


class Always(Gateway):
    """Admits every request."""

    def arrive(self, ticket: Ticket, signals: Signals, now_s: float) -> list[GatewayDecision]:
        return [self._admit(ticket, Reason.ALWAYS, 0.0, 0.0)]


class TokenBucket(Gateway):
    """Charges prompt tokens to a bucket that refills at a steady rate."""

    def __init__(self, capacity: float, refill_per_s: float) -> None:
        super().__init__()
        self.capacity: Final = capacity
        self.refill_per_s: Final = refill_per_s
        self.level = capacity
        self._filled_s = 0.0

    def _level(self, now_s: float) -> float:
        # A clock that is behind may show a time before the run began.
        level = self.level + max(0.0, now_s - self._filled_s) * self.refill_per_s
        return self.capacity if level > self.capacity else level

    def allowances(self, tenant: int, signals: Signals, now_s: float) -> list[Allowance]:
        return [Allowance("tokens", self.capacity, self._level(now_s), self.refill_per_s)]

    def arrive(self, ticket: Ticket, signals: Signals, now_s: float) -> list[GatewayDecision]:
        level = self._level(now_s)
        self._filled_s = now_s
        self.level = level
        tokens = float(ticket.tokens)
        if tokens <= level:
            self.level = level - tokens
            return [self._admit(ticket, Reason.BUCKET_HOLDS, tokens, level)]
        if tokens > self.capacity:
            return [reject(ticket, Reason.BUCKET_TOO_SMALL, tokens, self.capacity)]
        return [reject(ticket, Reason.BUCKET_SHORT, tokens, level)]

    def check(self) -> str | None:
        if not 0.0 <= self.level <= self.capacity:
            return f"{self.level} tokens in a bucket of {self.capacity}"
        return super().check()


class TierShed(Gateway):
    """Rejects low priorities while any server has more requests than a threshold."""

    def __init__(self, threshold: int, min_priority: int) -> None:
        super().__init__()
        self.threshold: Final = threshold
        self.min_priority: Final = min_priority

    def arrive(self, ticket: Ticket, signals: Signals, now_s: float) -> list[GatewayDecision]:
        if ticket.priority >= self.min_priority:
            seen, limit = float(ticket.priority), float(self.min_priority)
            return [self._admit(ticket, Reason.PROTECTED, seen, limit)]
        # While no server is ready, all admitted requests will go to the first that is. Otherwise
        # whatever is queued or runs there is in flight, and that count is exact.
        busiest = float(max(signals.in_flight) if signals.answering else signals.unplaced)
        if busiest > self.threshold:
            return [reject(ticket, Reason.HEAVY_LOAD, busiest, float(self.threshold))]
        return [self._admit(ticket, Reason.LIGHT_LOAD, busiest, float(self.threshold))]


class SaturationShed(Gateway):
    """Rejects sheddable requests while the fleet is saturated, by its queues and KV use."""

    def __init__(self, queue_depth: float, kv_used: float) -> None:
        super().__init__()
        self.queue_depth: Final = queue_depth
        self.kv_used: Final = kv_used
        self._use = NO_SERVERS
        self._probes = -1  # number of probes when `_use` was computed
        self._servers = 0

    @property
    def reads_signals(self) -> bool:
        return True

    def arrive(self, ticket: Ticket, signals: Signals, now_s: float) -> list[GatewayDecision]:
        if not ticket.sheddable:
            seen, limit = float(ticket.priority), float(SHEDDABLE_BELOW)
            return [self._admit(ticket, Reason.PROTECTED, seen, limit)]
        use = self._seen(signals)
        if use == NO_SERVERS:  # admitted requests queue for the first ready server
            use = signals.unplaced / self.queue_depth
        if use >= 1.0:
            return [reject(ticket, Reason.SATURATED, use, 1.0)]
        return [self._admit(ticket, Reason.ROOM, use, 1.0)]

    def _seen(self, signals: Signals) -> float:
        """The mean use, recomputed when there are new signals or another number of servers."""
        servers = len(signals.answering)
        if signals.probes != self._probes or servers != self._servers:
            self._probes = signals.probes
            self._servers = servers
            self._use = mean_use(signals, self.queue_depth, self.kv_used, count_unseen=False)
        return self._use


def build_gateway(
    settings: GatewaySettings, tenants: list[str], priorities: list[int], staleness_s: float
) -> Gateway:
    """Builds a gateway in its initial state.

    `tenants` are names by number, and may grow; `priorities` are those known in advance, and
    `staleness_s` is the age at which signals are refreshed.
    """
    gateway = _policy(settings, tenants, priorities, staleness_s)
    if not settings.budgets:
        return gateway
    return TenantBudgets(gateway, dict(settings.budgets), tenants, reject_all=settings.reject_all)


def _policy(
    settings: GatewaySettings, tenants: list[str], priorities: list[int], staleness_s: float
) -> Gateway:
    if isinstance(settings, AlwaysSettings):
        return Always()
    if isinstance(settings, TokenBucketSettings):
        return TokenBucket(settings.capacity, settings.refill_per_s)
    if isinstance(settings, TierShedSettings):
        return TierShed(settings.threshold, settings.min_priority)
    if isinstance(settings, SaturationShedSettings):
        return SaturationShed(settings.queue_depth, settings.kv_utilization)
    assert isinstance(settings, FlowControlSettings)
    detector = _detector(settings.detector, staleness_s)
    return FlowControl(
        detector, settings, Weights(dict(settings.weights or {}), tenants), priorities
    )


def _detector(settings: DetectorSettings, staleness_s: float) -> Detector:
    if isinstance(settings, ConcurrencySettings):
        return Concurrency(settings.max_per_server)
    if isinstance(settings, UtilizationSettings):
        look_every_s = settings.look_every_s(staleness_s)
        return Utilization(settings.queue_depth, settings.kv_utilization, look_every_s)
    return Detector()
