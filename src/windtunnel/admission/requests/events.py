"""How request admission words its events; called only when somebody wants some."""

from windtunnel.admission import events as kinds
from windtunnel.admission.events import Announcer
from windtunnel.admission.leases import Lease
from windtunnel.admission.reasons import Outcome, ReleaseResult, RequestDenial
from windtunnel.admission.requests.endpoint import (
    DomainState,
    QueueTicket,
    RequestAsk,
    RequestDenied,
    RequestLease,
)
from windtunnel.core.telemetry import Plain

_ENDS_OF_WAITS = {
    RequestDenial.QUEUE_TIMEOUT: kinds.REQUEST_WAIT_TIMEOUT,
    RequestDenial.CANCELLED: kinds.REQUEST_WAIT_CANCELLED,
}


def pressure(state: DomainState) -> dict[str, Plain]:
    """The numbers of a domain that go with its events."""
    limiter = state.limiter
    return {
        "limit": limiter.limit,
        "in_flight": state.in_flight,
        "waiters": state.lane.queued,
        "ceiling": limiter.ceiling,
    }


def tell_request(
    announcer: Announcer, kind: str, state: DomainState, ask: RequestAsk, lease: int, now: float
) -> None:
    if announcer.wants(kind):
        announcer.tell(now, kind, state.key, "", ask.correlation, lease, pressure(state))


def tell_denied(announcer: Announcer, denied: RequestDenied, now: float) -> None:
    if announcer.wants(kinds.REQUEST_DENIED):
        ask = denied.ask
        subject = f"{ask.provider}/{ask.model}/{ask.domain.value}"
        announcer.tell(
            now, kinds.REQUEST_DENIED, subject, denied.reason.value, ask.correlation, 0, {}
        )


def tell_granted(announcer: Announcer, ticket: QueueTicket, now: float) -> None:
    state, lease = ticket.domain, ticket.lease
    assert lease is not None
    if announcer.wants(kinds.REQUEST_WAIT_COMPLETED):
        numbers = pressure(state) | {"waited_s": now - ticket.since_s}
        announcer.tell(
            now,
            kinds.REQUEST_WAIT_COMPLETED,
            state.key,
            "",
            ticket.ask.correlation,
            lease.id,
            numbers,
        )
    _tell_drained(announcer, ticket, now)


def tell_ended_wait(
    announcer: Announcer, ticket: QueueTicket, denied: RequestDenied, now: float
) -> None:
    kind = _ENDS_OF_WAITS.get(denied.reason, kinds.REQUEST_DENIED)
    if announcer.wants(kind):
        numbers = pressure(ticket.domain) | {"waited_s": now - ticket.since_s}
        announcer.tell(
            now,
            kind,
            ticket.domain.key,
            denied.reason.value,
            ticket.ask.correlation,
            0,
            numbers,
        )
    _tell_drained(announcer, ticket, now)


def _tell_drained(announcer: Announcer, ticket: QueueTicket, now: float) -> None:
    if len(ticket.endpoint.queue) == 0:
        tell_request(announcer, kinds.REQUEST_QUEUE_DRAINED, ticket.domain, ticket.ask, 0, now)


def tell_refused_release(
    announcer: Announcer, lease: Lease, result: ReleaseResult, now: float
) -> None:
    announcer.tell(
        now, kinds.REQUEST_RELEASE_REFUSED, lease.work_id, result.value, None, lease.id, {}
    )


def tell_release(announcer: Announcer, lease: RequestLease, outcome: Outcome, now: float) -> None:
    """The release itself, the refusal if it was one, and what it did to the limit."""
    state, correlation = lease.domain, lease.ask.correlation
    numbers = pressure(state) | {"held_s": now - lease.acquired_s}
    told = [kinds.REQUEST_LEASE_RELEASED]
    if outcome is Outcome.RATE_LIMITED:
        told.append(kinds.REQUEST_RATE_LIMITED)
        numbers["blocked_until_s"] = state.limiter.blocked_until_s
    for kind in told:
        announcer.tell(now, kind, state.key, outcome.value, correlation, lease.id, numbers)
    tell_limit(announcer, lease, outcome.value, now)


def tell_limit(announcer: Announcer, lease: RequestLease, reason: str, now: float) -> None:
    """How the limit has moved since that was last told: by an outcome, a ramp or a probe."""
    state, limiter = lease.domain, lease.domain.limiter
    before, was_ceiling = state.told_limit, state.told_ceiling
    state.told_limit, state.told_ceiling = limiter.limit, limiter.ceiling
    told = []
    if limiter.limit < before:
        told.append(kinds.REQUEST_LIMIT_DECREASED)
    elif limiter.limit > before:
        told.append(kinds.REQUEST_LIMIT_INCREASED)
        if limiter.limit == limiter.ceiling == was_ceiling:
            told.append(kinds.REQUEST_SOFT_CEILING_RECOVERED)
        if was_ceiling and not limiter.ceiling:
            told.append(kinds.REQUEST_FULLY_RECOVERED)
    numbers = pressure(state) | {"limit_before": before}
    for kind in told:
        announcer.tell(now, kind, state.key, reason, lease.ask.correlation, lease.id, numbers)
