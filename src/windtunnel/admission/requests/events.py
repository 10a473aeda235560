"""Events of request admission; built only if a sink wants them."""

from windtunnel.admission.events import EventKind, EventReporter
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
    RequestDenial.QUEUE_TIMEOUT: EventKind.REQUEST_WAIT_TIMEOUT,
    RequestDenial.CANCELLED: EventKind.REQUEST_WAIT_CANCELLED,
}


def report_request(
    reporter: EventReporter,
    kind: EventKind,
    state: DomainState,
    ask: RequestAsk,
    now: float,
    lease: int = 0,
    reason: str = "",
    **numbers: Plain,
) -> None:
    """Reports one event about a request, with the pressure on its domain."""
    if not reporter.wants(kind):
        return
    limiter = state.limiter
    pressure: dict[str, Plain] = {
        "limit": limiter.limit,
        "in_flight": state.in_flight,
        "waiters": state.lane.queued,
        "ceiling": limiter.ceiling,
    }
    reporter.report(
        now,
        kind,
        state.key,
        reason=reason,
        correlation=ask.correlation,
        lease=lease,
        numbers=pressure | numbers,
    )


def report_denied(reporter: EventReporter, denied: RequestDenied, now: float) -> None:
    ask, reason = denied.ask, denied.reason.value
    kind = EventKind.REQUEST_DENIED
    reporter.report(now, kind, ask.key, reason=reason, correlation=ask.correlation)


def report_end_of_wait(reporter: EventReporter, ticket: QueueTicket, now: float) -> None:
    """Reports that a wait ended with a lease or a denial, and if it was the last in the queue."""
    state, ask, lease, denied = ticket.domain, ticket.ask, ticket.lease, ticket.denied
    kind, reason = EventKind.REQUEST_WAIT_COMPLETED, ""
    if denied is not None:
        kind = _ENDS_OF_WAITS.get(denied.reason, EventKind.REQUEST_DENIED)
        reason = denied.reason.value
    id_ = lease.id if lease is not None else 0
    report_request(reporter, kind, state, ask, now, id_, reason, waited_s=now - ticket.since_s)
    if len(state.endpoint.queue) == 0:
        report_request(reporter, EventKind.REQUEST_QUEUE_DRAINED, state, ask, now)


def report_refused_release(
    reporter: EventReporter, lease: Lease, result: ReleaseResult, now: float
) -> None:
    kind = EventKind.REQUEST_RELEASE_REFUSED
    reporter.report(now, kind, lease.work_id, reason=result.value, lease=lease.id)


def report_release(
    reporter: EventReporter, lease: RequestLease, outcome: Outcome, now: float
) -> None:
    """Reports a release, its rate limit if there was one, and the change of the limit."""
    state, ask, reason = lease.domain, lease.ask, outcome.value
    numbers: dict[str, Plain] = {"held_s": now - lease.acquired_s}
    reported = [EventKind.REQUEST_LEASE_RELEASED]
    if outcome is Outcome.RATE_LIMITED:
        reported.append(EventKind.REQUEST_RATE_LIMITED)
        numbers["blocked_until_s"] = state.limiter.blocked_until_s
    for kind in reported:
        report_request(reporter, kind, state, ask, now, lease.id, reason, **numbers)
    report_limit(reporter, lease, reason, now)


def report_limit(reporter: EventReporter, lease: RequestLease, reason: str, now: float) -> None:
    """Reports how the limit moved since the last report: by an outcome, a ramp or a probe."""
    state, limiter = lease.domain, lease.domain.limiter
    before, was_ceiling = state.reported_limit, state.reported_ceiling
    state.reported_limit, state.reported_ceiling = limiter.limit, limiter.ceiling
    reported = []
    if limiter.limit < before:
        reported.append(EventKind.REQUEST_LIMIT_DECREASED)
    elif limiter.limit > before:
        reported.append(EventKind.REQUEST_LIMIT_INCREASED)
        if limiter.limit == limiter.ceiling == was_ceiling:
            reported.append(EventKind.REQUEST_SOFT_CEILING_RECOVERED)
    if was_ceiling and not limiter.ceiling:
        reported.append(EventKind.REQUEST_FULLY_RECOVERED)
    for kind in reported:
        report_request(reporter, kind, state, lease.ask, now, lease.id, reason, limit_before=before)
