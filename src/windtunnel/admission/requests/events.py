"""Events of request admission; built only where a sink wants them."""

from windtunnel.admission import events as kinds
from windtunnel.admission.events import EventReporter
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


def report_request(
    reporter: EventReporter, kind: str, state: DomainState, ask: RequestAsk, lease: int, now: float
) -> None:
    if reporter.wants(kind):
        reporter.report(now, kind, state.key, "", ask.correlation, lease, pressure(state))


def report_denied(reporter: EventReporter, denied: RequestDenied, now: float) -> None:
    if reporter.wants(kinds.REQUEST_DENIED):
        ask = denied.ask
        subject = f"{ask.provider}/{ask.model}/{ask.domain.value}"
        reporter.report(
            now, kinds.REQUEST_DENIED, subject, denied.reason.value, ask.correlation, 0, {}
        )


def report_granted(reporter: EventReporter, ticket: QueueTicket, now: float) -> None:
    state, lease = ticket.domain, ticket.lease
    assert lease is not None
    if reporter.wants(kinds.REQUEST_WAIT_COMPLETED):
        numbers = pressure(state) | {"waited_s": now - ticket.since_s}
        reporter.report(
            now,
            kinds.REQUEST_WAIT_COMPLETED,
            state.key,
            "",
            ticket.ask.correlation,
            lease.id,
            numbers,
        )
    _report_drained(reporter, ticket, now)


def report_ended_wait(
    reporter: EventReporter, ticket: QueueTicket, denied: RequestDenied, now: float
) -> None:
    kind = _ENDS_OF_WAITS.get(denied.reason, kinds.REQUEST_DENIED)
    if reporter.wants(kind):
        numbers = pressure(ticket.domain) | {"waited_s": now - ticket.since_s}
        reporter.report(
            now,
            kind,
            ticket.domain.key,
            denied.reason.value,
            ticket.ask.correlation,
            0,
            numbers,
        )
    _report_drained(reporter, ticket, now)


def _report_drained(reporter: EventReporter, ticket: QueueTicket, now: float) -> None:
    if len(ticket.endpoint.queue) == 0:
        report_request(reporter, kinds.REQUEST_QUEUE_DRAINED, ticket.domain, ticket.ask, 0, now)


def report_refused_release(
    reporter: EventReporter, lease: Lease, result: ReleaseResult, now: float
) -> None:
    reporter.report(
        now, kinds.REQUEST_RELEASE_REFUSED, lease.work_id, result.value, None, lease.id, {}
    )


def report_release(
    reporter: EventReporter, lease: RequestLease, outcome: Outcome, now: float
) -> None:
    """The release itself, the refusal if it was one, and what it did to the limit."""
    state, correlation = lease.domain, lease.ask.correlation
    numbers = pressure(state) | {"held_s": now - lease.acquired_s}
    reported = [kinds.REQUEST_LEASE_RELEASED]
    if outcome is Outcome.RATE_LIMITED:
        reported.append(kinds.REQUEST_RATE_LIMITED)
        numbers["blocked_until_s"] = state.limiter.blocked_until_s
    for kind in reported:
        reporter.report(now, kind, state.key, outcome.value, correlation, lease.id, numbers)
    report_limit(reporter, lease, outcome.value, now)


def report_limit(reporter: EventReporter, lease: RequestLease, reason: str, now: float) -> None:
    """How the limit has moved since that was last reported: by an outcome, a ramp or a probe."""
    state, limiter = lease.domain, lease.domain.limiter
    before, was_ceiling = state.reported_limit, state.reported_ceiling
    state.reported_limit, state.reported_ceiling = limiter.limit, limiter.ceiling
    reported = []
    if limiter.limit < before:
        reported.append(kinds.REQUEST_LIMIT_DECREASED)
    elif limiter.limit > before:
        reported.append(kinds.REQUEST_LIMIT_INCREASED)
        if limiter.limit == limiter.ceiling == was_ceiling:
            reported.append(kinds.REQUEST_SOFT_CEILING_RECOVERED)
        if was_ceiling and not limiter.ceiling:
            reported.append(kinds.REQUEST_FULLY_RECOVERED)
    numbers = pressure(state) | {"limit_before": before}
    for kind in reported:
        reporter.report(now, kind, state.key, reason, lease.ask.correlation, lease.id, numbers)
