"""Flow control under random use: the fast one and the obvious one decide alike, always."""

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.admission.gateway.fleet import flow_settings, signals
from tests.admission.gateway.reference_flow import ReferenceFlow
from windtunnel.admission.gateway.bands import Weights
from windtunnel.admission.gateway.detectors import Concurrency, Detector, Utilization
from windtunnel.admission.gateway.flow_control import ORDERS, FlowControl
from windtunnel.admission.gateway.tickets import (
    ADMIT,
    EVICT,
    QUEUE,
    REJECT,
    GatewayDecision,
    Ticket,
)

PRIORITIES = [4, 3, 0, -1, -3]
TENANTS = ["a", "b", "c"]
KINDS = ["concurrency", "utilization", "never"]


def detector(kind: str) -> Detector:
    if kind == "concurrency":
        return Concurrency(2)
    return Utilization(2.0, 0.8, 0.3) if kind == "utilization" else Detector()


def told(decisions: list[GatewayDecision]) -> list[str]:
    return [repr(decision) for decision in decisions]


class FlowMachine(RuleBasedStateMachine):
    @initialize(
        order=st.sampled_from(ORDERS),
        kind=st.sampled_from(KINDS),
        servers=st.integers(0, 2),
        most=st.sampled_from([0, 3, 8, 1000]),
        most_per_band=st.sampled_from([1, 3, 1000]),
        ttl_s=st.sampled_from([math.inf, 0.5, 3.0]),
        limit=st.sampled_from([1.0, 0.5, 0.0]),
        shedding=st.booleans(),
        eviction=st.booleans(),
        weights=st.sampled_from([{}, {"a": 4.0, "c": 0.5}]),
        known=st.sampled_from([[], [4, -1], PRIORITIES]),
    )
    def start(
        self,
        order: str,
        kind: str,
        servers: int,
        most: int,
        most_per_band: int,
        ttl_s: float,
        limit: float,
        shedding: bool,
        eviction: bool,
        weights: dict[str, float],
        known: list[int],
    ) -> None:
        wanted = flow_settings(
            order, most, most_per_band, ttl_s, limit, shedding=shedding, eviction=eviction
        )
        numbers = {TENANTS.index(name): weight for name, weight in weights.items()}
        self.flow = FlowControl(detector(kind), wanted, Weights(weights, TENANTS), known)
        self.reference = ReferenceFlow(detector(kind), wanted, numbers, known)
        self.signals = signals(*[0] * servers, staleness_s=0.2)
        self.now_s = 0.0
        self.count = 0
        self.queued: dict[int, tuple[Ticket, Ticket]] = {}
        self.flying: dict[int, tuple[Ticket, Ticket]] = {}

    def both_said(self, fast: list[GatewayDecision], slow: list[GatewayDecision]) -> None:
        assert told(fast) == told(slow)
        for decision in fast:
            number = int(decision.ticket.id)
            if decision.kind == ADMIT:
                self.flying[number] = self.queued.pop(number)
            elif decision.kind == REJECT:
                del self.queued[number]
            elif decision.kind == EVICT:
                assert number in self.flying
                assert decision.ticket.sheddable
            else:
                assert decision.kind == QUEUE
                assert number in self.queued

    @rule(
        priority=st.sampled_from(PRIORITIES),
        tenant=st.integers(0, 2),
        tokens=st.sampled_from([1, 10, 100]),
        target_s=st.sampled_from([0.2, 1.0, math.inf]),
    )
    def arrive(self, priority: int, tenant: int, tokens: int, target_s: float) -> None:
        one, other = (
            Ticket(self.count, tenant, priority, tokens, self.now_s + target_s) for _ in range(2)
        )
        self.queued[self.count] = (one, other)
        self.count += 1
        self.both_said(
            self.flow.arrive(one, self.signals, self.now_s),
            self.reference.arrive(other, self.signals, self.now_s),
        )

    @precondition(lambda self: self.flying)
    @rule(pick=st.integers(0, 20))
    def end(self, pick: int) -> None:
        one, other = self.flying.pop(sorted(self.flying)[pick % len(self.flying)])
        self.both_said(
            self.flow.ended(one, self.signals, self.now_s),
            self.reference.ended(other, self.signals, self.now_s),
        )

    @precondition(lambda self: self.queued)
    @rule(pick=st.integers(0, 20))
    def leave(self, pick: int) -> None:
        one, other = self.queued.pop(sorted(self.queued)[pick % len(self.queued)])
        self.flow.leave(one, self.now_s)
        self.reference.leave(other, self.now_s)

    @rule(seconds=st.sampled_from([0.0, 0.1, 0.25, 1.0]))
    def sleep(self, seconds: float) -> None:
        """Time passes as a driver passes it: from one wish to look to the next."""
        until_s = self.now_s + seconds
        while self.flow.next_s <= until_s:
            assert self.flow.next_s >= self.now_s
            self.now_s = self.flow.next_s
            self.tick()
        self.now_s = until_s

    @rule()
    def tick(self) -> None:
        self.both_said(
            self.flow.tick(self.signals, self.now_s), self.reference.tick(self.signals, self.now_s)
        )

    @rule(
        servers=st.integers(0, 3),
        waiting=st.integers(0, 3),
        kv_used=st.sampled_from([0.0, 0.5, 0.9]),
    )
    def fleet_changes(self, servers: int, waiting: int, kv_used: float) -> None:
        """Servers come and go, and are seen anew."""
        self.signals = signals(*[4] * servers, waiting=waiting, kv_used=kv_used, staleness_s=0.2)
        self.signals.taken_s = self.now_s
        self.tick()

    @invariant()
    def the_two_agree(self) -> None:
        if not hasattr(self, "flow"):
            return
        assert self.flow.check() is None
        assert self.flow.queued == self.reference.waiting == len(self.queued)
        assert self.flow.in_flight == self.reference.in_flight == len(self.flying)
        assert self.flow.next_s == self.reference.next_s

    @invariant()
    def nobody_waits_for_an_idle_fleet(self) -> None:
        if hasattr(self, "flow") and self.queued and self.signals.slots:
            assert self.flying


TestFlowMachine = FlowMachine.TestCase
TestFlowMachine.settings = settings(stateful_step_count=60)
