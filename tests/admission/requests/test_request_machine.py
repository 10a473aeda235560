"""Request admission under random use: what must hold whatever callers and providers do."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.admission.invariants import REQUEST_INVARIANTS
from windtunnel.admission.reasons import Domain, Outcome, ReleaseResult, RequestDenial
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import (
    QueueTicket,
    RequestAsk,
    RequestDenied,
    RequestLease,
)
from windtunnel.admission.requests.gradient import GradientLimiter
from windtunnel.admission.requests.limiter import NEVER, AimdSettings, RequestLimiter
from windtunnel.core.invariants import InvariantChecker
from windtunnel.core.random import Streams

MODELS = ["m", "n"]
DOMAINS = [Domain.CHAT, Domain.EMBEDDING]
REQUESTS_PER_MINUTE = 20
TOKENS_PER_MINUTE = 500


def gradient(key: str, maximum: int, now: float) -> RequestLimiter:
    return GradientLimiter(maximum, initial=2)


class RequestMachine(RuleBasedStateMachine):
    @initialize(
        ramp_s=st.sampled_from([0.0, 1.0]),
        jitter=st.sampled_from([0.0, 0.1]),
        limiter=st.sampled_from([None, None, gradient]),
    )
    def start(self, ramp_s: float, jitter: float, limiter: object) -> None:
        self.admission = RequestAdmission(
            "run",
            Streams(7),
            AimdSettings(startup_ramp_s=ramp_s, jitter_fraction=jitter),
            make_limiter=gradient if limiter is not None else None,
        )
        self.admission.register("p", "m", "a", 5, 0.0)
        self.admission.register(
            "p",
            "n",
            "b",
            4,
            0.0,
            requests_per_minute=REQUESTS_PER_MINUTE,
            tokens_per_minute=TOKENS_PER_MINUTE,
        )
        self.now = 0.0
        self.leases: dict[int, RequestLease] = {}
        self.tickets: dict[str, QueueTicket] = {}
        self.deadlines: dict[str, float] = {}
        self.admitted: list[tuple[float, int]] = []
        self.blocks: dict[str, float] = {}

    def got(self, lease: RequestLease) -> None:
        assert lease.id not in self.leases
        self.leases[lease.id] = lease
        assert lease.acquired_s >= self.blocks.get(lease.domain.key, 0.0)
        if lease.ask.model == "n":
            assert isinstance(lease.ask.tokens, int)
            self.admitted.append((self.now, lease.ask.tokens))

    def collect(self) -> None:
        for ticket in self.admission.take_resolved():
            assert self.tickets.pop(ticket.id) is ticket
            if ticket.lease is not None:
                assert self.now < self.deadlines[ticket.id]
                self.got(ticket.lease)
                self.nobody_was_overtaken(ticket)
            else:
                assert ticket.denied is not None
                assert ticket.denied.reason is RequestDenial.QUEUE_TIMEOUT
                assert self.now >= self.deadlines[ticket.id]

    def nobody_was_overtaken(self, ticket: QueueTicket) -> None:
        """First in, first out within a group of one domain and priority."""
        same = [
            other
            for other in self.tickets.values()
            if other.domain is ticket.domain
            and (other.ask.group, other.ask.priority) == (ticket.ask.group, ticket.ask.priority)
        ]
        order = [int(other.id.partition("-")[2]) for other in same if other.is_waiting]
        assert all(number > int(ticket.id.partition("-")[2]) for number in order)

    @rule(
        model=st.sampled_from(MODELS),
        domain=st.sampled_from(DOMAINS),
        group=st.sampled_from(["x", "y"]),
        priority=st.integers(0, 1),
        tokens=st.sampled_from([0, 10, 300]),
        timeout_s=st.sampled_from([NEVER, NEVER, 0.0, 0.5, 20.0]),
        may_wait=st.booleans(),
    )
    def ask(
        self,
        model: str,
        domain: Domain,
        group: str,
        priority: int,
        tokens: int,
        timeout_s: float,
        may_wait: bool,
    ) -> None:
        ask = RequestAsk(
            "p",
            model,
            domain,
            group=group,
            priority=priority,
            tokens=tokens,
        )
        before = len(self.admission.ledger.active)
        deadline_s = self.now + (timeout_s if may_wait else 0.0)
        answer = self.admission.acquire(ask, self.now, deadline_s)
        self.collect()
        if isinstance(answer, RequestLease):
            self.got(answer)
        elif isinstance(answer, QueueTicket):
            assert may_wait
            assert answer.is_waiting
            self.tickets[answer.id] = answer
            self.deadlines[answer.id] = deadline_s
        else:
            assert isinstance(answer, RequestDenied)
            assert len(self.admission.ledger.active) >= before

    @precondition(lambda self: len(self.leases) > 0)
    @rule(
        pick=st.integers(0, 20),
        outcome=st.sampled_from([*Outcome, Outcome.SUCCESS, Outcome.SUCCESS]),
        retry_after_s=st.sampled_from([0.0, 0.0, 1.0, 7.0]),
        used=st.sampled_from([-1, 0, 50, 400]),
    )
    def release(self, pick: int, outcome: Outcome, retry_after_s: float, used: int) -> None:
        lease = self.leases.pop(sorted(self.leases)[pick % len(self.leases)])
        result = self.admission.release(
            lease, outcome, self.now, retry_after_s=retry_after_s, tokens_used=used
        )
        assert result is ReleaseResult.RELEASED
        if outcome is Outcome.RATE_LIMITED:
            key, blocked_s = lease.domain.key, lease.domain.limiter.blocked_until_s
            assert blocked_s >= self.blocks.get(key, 0.0)
            self.blocks[key] = blocked_s
        again = self.admission.release(lease, outcome, self.now)
        assert again is ReleaseResult.DUPLICATE
        self.collect()

    @precondition(lambda self: len(self.tickets) > 0)
    @rule(pick=st.integers(0, 20))
    def cancel(self, pick: int) -> None:
        ticket = self.tickets[sorted(self.tickets)[pick % len(self.tickets)]]
        self.admission.cancel(ticket, self.now)
        assert ticket.denied is not None
        if ticket.denied.reason is RequestDenial.CANCELLED:
            del self.tickets[ticket.id]
        self.collect()

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 5.0, 70.0]))
    def sleep(self, seconds: float) -> None:
        """Time passes as a driver passes it: from wake to wake."""
        until_s = self.now + seconds
        looks = 0
        while self.admission.next_wake_s() <= until_s:
            wake_s = self.admission.next_wake_s()
            assert wake_s >= self.now
            self.now = wake_s
            self.admission.advance(wake_s)
            self.collect()
            looks += 1
            assert looks < 300, "the controller keeps asking to be woken"
        self.now = until_s

    @rule(model=st.sampled_from(MODELS), cap=st.integers(1, 6))
    def change_cap(self, model: str, cap: int) -> None:
        self.admission.register("p", model, "a" if model == "m" else "b", cap, self.now)
        self.collect()

    @invariant()
    def its_own_invariants_hold(self) -> None:
        if hasattr(self, "admission"):
            InvariantChecker(REQUEST_INVARIANTS).run(self.admission, "a test")

    @invariant()
    def leases_are_conserved(self) -> None:
        if not hasattr(self, "admission"):
            return
        assert sorted(self.admission.ledger.active) == sorted(self.leases)
        assert self.admission.waiting == len(self.tickets)
        for endpoint in self.admission.endpoints():
            mine = [lease for lease in self.leases.values() if lease.domain.endpoint is endpoint]
            assert endpoint.in_flight == len(mine)
            for state in endpoint.domains.values():
                assert state.in_flight == len([x for x in mine if x.domain is state])

    @invariant()
    def no_waiter_is_left_behind(self) -> None:
        """Work conserving: whoever could go now has gone, or a wake is planned."""
        if not hasattr(self, "admission"):
            return
        for ticket in self.tickets.values():
            endpoint, state = ticket.domain.endpoint, ticket.domain
            if endpoint.in_flight >= endpoint.cap:
                continue
            if state.limiter.room(state.in_flight, self.now) <= 0:
                change_s = state.limiter.next_change_s(state.in_flight, self.now)
                assert self.admission.next_wake_s() <= change_s
                continue
            assert endpoint.budget_ready_s(ticket.ask, self.now) > self.now or any(
                endpoint.budget_ready_s(other.ask, self.now) > self.now
                for other in self.tickets.values()
                if other.domain.endpoint is endpoint
            )
            assert self.admission.next_wake_s() < NEVER

    @invariant()
    def no_minute_has_more_requests_than_its_budget(self) -> None:
        if hasattr(self, "admission") and self.admitted:
            last_s = self.admitted[-1][0]
            recent = [at_s for at_s, _ in self.admitted if at_s + 60.0 > last_s]
            assert len(recent) <= REQUESTS_PER_MINUTE


TestRequestMachine = RequestMachine.TestCase
TestRequestMachine.settings = settings(stateful_step_count=60)
