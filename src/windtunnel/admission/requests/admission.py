"""Request admission: whether one outbound call may start now, is queued, or is refused.

Every method takes the time. Freed capacity is passed on at once: `release`, `cancel`, `register`
and `advance` give leases to the waiters that may go, and `take_resolved` returns their tickets, so
that a driver wakes exactly those. `next_wake_s` says when to call `advance` even if nothing
happens: at a deadline, the end of a wait, a step of a ramp, or when a budget has room. Nothing
polls.
"""

from collections.abc import Callable
from typing import Final

from windtunnel.admission.events import EventKind, EventReporter
from windtunnel.admission.leases import Lease, LeaseLedger
from windtunnel.admission.queues.groups import QueuedWork
from windtunnel.admission.reasons import Outcome, ReleaseResult, RequestDenial
from windtunnel.admission.requests.budgets import CONFIGURED, UNLIMITED, Budget, ObservedLimits
from windtunnel.admission.requests.endpoint import (
    DomainState,
    ModelEndpoint,
    QueueTicket,
    RequestAsk,
    RequestDenied,
    RequestLease,
)
from windtunnel.admission.requests.events import (
    report_denied,
    report_end_of_wait,
    report_limit,
    report_refused_release,
    report_release,
    report_request,
)
from windtunnel.admission.requests.limiter import NEVER, AimdLimiter, AimdSettings, RequestLimiter
from windtunnel.core.errors import InputError
from windtunnel.core.loop import EventQueue
from windtunnel.core.random import Streams
from windtunnel.core.telemetry import Plain

WAITERS_MAX: Final = 1_000_000
"""Most waiters in all queues together; further requests are refused."""

MakeLimiter = Callable[[str, int, float], RequestLimiter]
"""Builds the limiter of one domain from (key, maximum, now)."""

_RELEASED: Final = ReleaseResult.RELEASED
_RATE_LIMITED: Final = Outcome.RATE_LIMITED
_SUCCESS: Final = Outcome.SUCCESS


class RequestAdmission:
    """All endpoints of a run: their limits, their leases, and their queues."""

    def __init__(
        self,
        generation: str,
        streams: Streams,
        settings: AimdSettings | None = None,
        *,
        make_limiter: MakeLimiter | None = None,
        waiters_max: int = WAITERS_MAX,
        reporter: EventReporter | None = None,
    ) -> None:
        """Creates request admission for a run; `make_limiter` replaces AIMD."""
        self.ledger: Final = LeaseLedger(generation)
        self.is_shut = False
        self.waiting = 0
        self._streams: Final = streams
        self._settings: Final = settings if settings is not None else AimdSettings()
        self._make_limiter: Final = make_limiter
        self._waiters_max: Final = waiters_max
        self._reporter: Final = reporter if reporter is not None else EventReporter()
        self._reports: Final = self._reporter.wants_any
        self._endpoints: Final[dict[tuple[str, str], ModelEndpoint]] = {}
        self._timers: Final = EventQueue()
        self._resolved: list[QueueTicket] = []
        self._tickets = 0

    def register(
        self,
        provider: str,
        model: str,
        alias: str,
        cap: int,
        now: float,
        *,
        requests_per_minute: int = UNLIMITED,
        tokens_per_minute: int = UNLIMITED,
    ) -> None:
        """Sets an endpoint's cap under an alias; the smallest cap of its aliases applies."""
        if cap < 1:
            raise InputError(
                f"{cap} is not a cap", where=f"{provider}/{model} as {alias}", allowed="1 or more"
            )
        endpoint = self._endpoints.get((provider, model))
        if endpoint is None:
            endpoint = ModelEndpoint(
                provider,
                model,
                Budget(requests_per_minute, CONFIGURED if requests_per_minute else "default"),
                Budget(tokens_per_minute, CONFIGURED if tokens_per_minute else "default"),
            )
            self._endpoints[(provider, model)] = endpoint
        else:
            _configure(endpoint.requests, requests_per_minute)
            _configure(endpoint.tokens, tokens_per_minute)
        endpoint.caps[alias] = cap
        before, endpoint.cap = endpoint.cap, min(endpoint.caps.values())
        for state in endpoint.domains.values():
            state.limiter.set_maximum(endpoint.cap)
        if self._reports:
            kind = EventKind.REQUEST_CAP_CHANGED if before else EventKind.REQUEST_REGISTERED
            numbers: dict[str, Plain] = {"cap": endpoint.cap, "was": before}
            self._reporter.report(now, kind, endpoint.key, numbers=numbers)
        self._catch_up(now)
        self._admit(endpoint, now)

    def acquire(
        self, ask: RequestAsk, now: float, deadline_s: float = NEVER
    ) -> RequestLease | QueueTicket | RequestDenied:
        """Returns a lease at once, or a ticket for the queue until a deadline.

        With a deadline that is not after now there is no wait: a call that cannot start is denied
        with the reason. A denied call consumes nothing.
        """
        state = self._find(ask, now)
        if isinstance(state, RequestDenied):
            return self._denied(state, now)
        refused = self._refusal(state, ask, now)
        if refused is None:
            return self._grant(state, ask, f"call-{self.ledger.issued + 1}", now)
        if deadline_s <= now:
            return self._denied(refused, now)
        if self.waiting >= self._waiters_max:
            return self._denied(RequestDenied(ask, RequestDenial.QUEUE_FULL, NEVER), now)
        return self._wait(state, ask, now, deadline_s)

    def could_start(self, ask: RequestAsk, now: float) -> bool:
        """Whether `acquire` would give a lease at once; nothing is reported or taken."""
        state = self._find(ask, now)
        return not isinstance(state, RequestDenied) and self._refusal(state, ask, now) is None

    def load(self, ask: RequestAsk) -> float:
        """Returns how full the endpoint of a request is: calls in flight over its limit."""
        endpoint = self._endpoints.get((ask.provider, ask.model))
        state = endpoint.domains.get(ask.domain) if endpoint is not None else None
        return state.in_flight / state.limiter.limit if state is not None else 0.0

    def cancel(self, ticket: QueueTicket, now: float) -> None:
        """Gives up the place of a caller that is gone or, if it already has one, its lease."""
        self._catch_up(now)
        if ticket.is_waiting:
            self._resolve(ticket, RequestDenied(ticket.ask, RequestDenial.CANCELLED, NEVER), now)
            self._admit(ticket.domain.endpoint, now)
        elif ticket.lease is not None and ticket.lease.id in self.ledger.active:
            self.release(ticket.lease, Outcome.LOCAL_CANCELLED, now)

    def release(
        self,
        lease: Lease,
        outcome: Outcome,
        now: float,
        *,
        retry_after_s: float = 0.0,
        tokens_used: int = -1,
        observed: ObservedLimits | None = None,
    ) -> ReleaseResult:
        """Ends a call: takes its lease back once, learns from it, and passes on freed capacity."""
        held = self.ledger.active.get(lease.id)
        result = self.ledger.release(lease)
        if result is not _RELEASED:
            if self._reports:
                report_refused_release(self._reporter, lease, result, now)
            return result
        assert isinstance(held, RequestLease)
        self._catch_up(now)
        state, endpoint, limiter = held.domain, held.domain.endpoint, held.domain.limiter
        endpoint.in_flight -= 1
        state.in_flight -= 1
        state.last_outcome = outcome.value
        if outcome is _RATE_LIMITED:
            tokens_used = 0
        if held.token_spent is not None and tokens_used >= 0:
            endpoint.tokens.settle(held.token_spent, tokens_used)
        if outcome is _SUCCESS:
            endpoint.answered(held.ask, tokens_used)
        if observed is not None:
            self._learn(endpoint, observed, now)
            if observed.retry_after_s > retry_after_s:
                retry_after_s = observed.retry_after_s
        limiter.end(held.admission, outcome, tokens_used, retry_after_s, now)
        if self._reports:
            report_release(self._reporter, held, outcome, now)
        self._admit(endpoint, now)
        return result

    def advance(self, now: float) -> None:
        """Applies what time alone brings: deadlines pass, waits end, budgets refill."""
        due: dict[tuple[str, str], ModelEndpoint] = {}
        while self._timers.next_s <= now:
            entry = self._timers.pop()
            assert entry is not None
            waited = entry.payload
            if isinstance(waited, QueueTicket):
                waited.deadline = None
                denied = RequestDenied(waited.ask, RequestDenial.QUEUE_TIMEOUT, NEVER)
                self._resolve(waited, denied, now)
                endpoint = waited.domain.endpoint
            else:
                assert isinstance(waited, ModelEndpoint)
                endpoint = waited
                endpoint.wake = None
            due[(endpoint.provider, endpoint.model)] = endpoint
        for endpoint in due.values():
            self._admit(endpoint, now)

    def next_wake_s(self) -> float:
        """When to call `advance` if nothing happens before; infinity if not needed."""
        return self._timers.next_s

    def take_resolved(self) -> list[QueueTicket]:
        """Returns the tickets that got a lease or a denial since the last call."""
        resolved = self._resolved
        self._resolved = []
        return resolved

    def shut_down(self, now: float) -> None:
        """Refuses all queued and all new requests; leases in flight can still be released."""
        self.is_shut = True
        for endpoint in self._endpoints.values():
            for item in endpoint.queue.items():
                ticket = item.payload
                assert isinstance(ticket, QueueTicket)
                self._resolve(ticket, RequestDenied(ticket.ask, RequestDenial.SHUTDOWN, NEVER), now)

    def endpoints(self) -> list[ModelEndpoint]:
        return list(self._endpoints.values())

    def endpoint(self, provider: str, model: str) -> ModelEndpoint | None:
        return self._endpoints.get((provider, model))

    # Consistency of leases, queues, limits and timers.

    def _find(self, ask: RequestAsk, now: float) -> DomainState | RequestDenied:
        if self.is_shut:
            return RequestDenied(ask, RequestDenial.SHUTDOWN, NEVER)
        endpoint = self._endpoints.get((ask.provider, ask.model))
        if endpoint is None:
            return RequestDenied(ask, RequestDenial.UNREGISTERED, NEVER)
        self._catch_up(now)
        if 0 < endpoint.tokens.limit < endpoint.tokens_of(ask):
            return RequestDenied(ask, RequestDenial.TOO_LARGE, NEVER)
        state = endpoint.domains.get(ask.domain)
        if state is None:
            key = ask.key
            limiter: RequestLimiter
            if self._make_limiter is not None:
                limiter = self._make_limiter(key, endpoint.cap, now)
            else:
                stream = self._streams[f"admission.{key}"]
                limiter = AimdLimiter(endpoint.cap, self._settings, stream, now)
            state = DomainState(key, endpoint, limiter)
            endpoint.domains[ask.domain] = state
        return state

    def _refusal(self, state: DomainState, ask: RequestAsk, now: float) -> RequestDenied | None:
        """Returns why a call cannot start now; None if it can."""
        endpoint, limiter = state.endpoint, state.limiter
        # No call overtakes a waiter of its domain, or one that only lacks budget.
        if len(endpoint.queue) > 0 and (
            state.lane.queued > 0 or endpoint.queue.next_group() is not None
        ):
            return RequestDenied(ask, RequestDenial.QUEUED_WAITERS_AHEAD, self.next_wake_s())
        if now < limiter.blocked_until_s:
            return RequestDenied(ask, RequestDenial.COOLDOWN, limiter.blocked_until_s)
        if limiter.room(state.in_flight, now) <= 0:
            retry_at_s = limiter.next_change_s(state.in_flight, now)
            return RequestDenied(ask, RequestDenial.NO_CAPACITY, retry_at_s)
        if endpoint.in_flight >= endpoint.cap:
            return RequestDenied(ask, RequestDenial.NO_CAPACITY, NEVER)
        if endpoint.requests.limit or endpoint.tokens.limit:
            requests_s = endpoint.requests.ready_s(1, now)
            if requests_s > now:
                return RequestDenied(ask, RequestDenial.REQUEST_BUDGET, requests_s)
            tokens_s = endpoint.tokens.ready_s(endpoint.tokens_of(ask), now)
            if tokens_s > now:
                return RequestDenied(ask, RequestDenial.TOKEN_BUDGET, tokens_s)
        return None

    def _grant(self, state: DomainState, ask: RequestAsk, work_id: str, now: float) -> RequestLease:
        endpoint = state.endpoint
        endpoint.in_flight += 1
        state.in_flight += 1
        if endpoint.in_flight > endpoint.peak_in_flight:
            endpoint.peak_in_flight = endpoint.in_flight
        if state.in_flight > state.peak_in_flight:
            state.peak_in_flight = state.in_flight
        endpoint.requests.spend(1, now)
        lease = RequestLease(
            self.ledger.next_id(),
            self.ledger.generation,
            work_id,
            ask,
            state,
            state.limiter.admit(state.in_flight, now),
            endpoint.tokens.spend(endpoint.tokens_of(ask), now),
            now,
        )
        self.ledger.active[lease.id] = lease
        if self._reports:
            report_request(
                self._reporter, EventKind.REQUEST_LEASE_ACQUIRED, state, ask, now, lease.id
            )
            report_limit(self._reporter, lease, "", now)
        return lease

    def _wait(
        self, state: DomainState, ask: RequestAsk, now: float, deadline_s: float
    ) -> RequestLease | QueueTicket:
        self._tickets += 1
        endpoint = state.endpoint
        ticket = QueueTicket(f"wait-{self._tickets}", ask, state, now)
        work = QueuedWork(ticket.id, endpoint.spec(ask, state), state.lane, ticket)
        endpoint.queue.enqueue(work, ask.is_again)
        self.waiting += 1
        waiters = len(endpoint.queue)
        if waiters > endpoint.peak_waiters:
            endpoint.peak_waiters = waiters
        if self._reports:
            if waiters == 1:
                report_request(self._reporter, EventKind.REQUEST_QUEUE_FORMED, state, ask, now)
            report_request(self._reporter, EventKind.REQUEST_WAIT_STARTED, state, ask, now)
        self._admit(endpoint, now)
        lease = ticket.lease
        if lease is not None:
            self._resolved.remove(ticket)
            return lease
        if deadline_s < NEVER:
            ticket.deadline = self._timers.push(deadline_s, 0, ticket)
        return ticket

    def _catch_up(self, now: float) -> None:
        """Processes what is due first, so that no lease is given after a deadline."""
        if self._timers.next_s <= now:
            self.advance(now)

    def _admit(self, endpoint: ModelEndpoint, now: float) -> None:
        """Gives leases to waiters in fair order as far as possible, and plans the next check."""
        queue = endpoint.queue
        wake_s = NEVER
        while len(queue) > 0 and endpoint.in_flight < endpoint.cap:
            wake_s = self._open_lanes(endpoint, now)
            selection = queue.select()
            if selection is None:
                break
            ticket = selection.item.payload
            assert isinstance(ticket, QueueTicket)
            ready_s = endpoint.budget_ready_s(ticket.ask, now)
            if ready_s == NEVER:
                denied = RequestDenied(ticket.ask, RequestDenial.TOO_LARGE, NEVER)
                self._resolve(ticket, denied, now)
                continue
            if ready_s > now:
                wake_s = min(wake_s, ready_s)
                break
            selection.item.cost = endpoint.cost_of(ticket.ask)
            queue.commit(selection)
            self._stop_waiting(ticket)
            ticket.lease = self._grant(ticket.domain, ticket.ask, ticket.id, now)
            self._resolved.append(ticket)
            if self._reports:
                report_end_of_wait(self._reporter, ticket, now)
            wake_s = NEVER
        self._plan_wake(endpoint, wake_s)

    def _open_lanes(self, endpoint: ModelEndpoint, now: float) -> float:
        """Opens each domain's lane that has room; returns when a closed one may have some."""
        soonest_s = NEVER
        for state in endpoint.domains.values():
            lane = state.lane
            if state.limiter.room(state.in_flight, now) > 0:
                if lane.blocks > 0:
                    endpoint.queue.unblock(lane)
            else:
                if lane.blocks == 0:
                    endpoint.queue.block(lane)
                if lane.queued > 0:
                    soonest_s = min(soonest_s, state.limiter.next_change_s(state.in_flight, now))
        return soonest_s

    def _plan_wake(self, endpoint: ModelEndpoint, wake_s: float) -> None:
        planned = endpoint.wake
        if planned is not None:
            if planned.time_s == wake_s:
                return
            self._timers.cancel(planned)
            endpoint.wake = None
        if wake_s < NEVER:
            endpoint.wake = self._timers.push(wake_s, 1, endpoint)

    def _resolve(self, ticket: QueueTicket, denied: RequestDenied, now: float) -> None:
        """Ends a wait without a lease."""
        ticket.domain.endpoint.queue.discard(ticket.id)
        self._stop_waiting(ticket)
        ticket.denied = denied
        if denied.reason is not RequestDenial.CANCELLED:
            self._resolved.append(ticket)
        if self._reports:
            report_end_of_wait(self._reporter, ticket, now)

    def _stop_waiting(self, ticket: QueueTicket) -> None:
        self.waiting -= 1
        if ticket.deadline is not None:
            self._timers.cancel(ticket.deadline)
            ticket.deadline = None

    def _denied(self, denied: RequestDenied, now: float) -> RequestDenied:
        if self._reports:
            report_denied(self._reporter, denied, now)
        return denied

    def _learn(self, endpoint: ModelEndpoint, observed: ObservedLimits, now: float) -> None:
        requests, tokens = endpoint.requests, endpoint.tokens
        changed = requests.learn(observed.requests, now)
        if tokens.learn(observed.tokens, now):
            changed = True
        if changed and self._reports:
            numbers: dict[str, Plain] = {
                "requests_per_minute": requests.per_minute,
                "tokens_per_minute": tokens.per_minute,
            }
            kind = EventKind.REQUEST_BUDGET_CHANGED
            self._reporter.report(now, kind, endpoint.key, reason="headers", numbers=numbers)


def _configure(budget: Budget, limit: int) -> None:
    if limit:
        budget.configure(limit)
