"""What capacity there is, where each number came from, what is in use, and what was at most."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from windtunnel.admission.tasks.row_groups import RowGroupAdmission

if TYPE_CHECKING:
    from windtunnel.admission.requests.admission import RequestAdmission
    from windtunnel.admission.requests.endpoint import DomainState, ModelEndpoint
    from windtunnel.admission.tasks.admission import TaskAdmission


class CapacitySource(StrEnum):
    """Where a value came from."""

    DEFAULT = "default"
    CONFIGURED = "configured"
    MODEL_METADATA = "model_metadata"
    HEADERS = "headers"
    RUNTIME = "runtime_snapshot"


class CapacityValue(msgspec.Struct, frozen=True):
    """A number and its origin; without a number, why there is none."""

    value: int | None
    source: CapacitySource
    missing_reason: str = ""


class RequestSnapshot(msgspec.Struct, frozen=True):
    """The pressure on one domain of an endpoint."""

    captured_s: float
    key: str
    maximum: int
    limit: int
    in_flight: int
    waiters: int
    cooldown_s: float
    ceiling: int
    consecutive_rate_limits: int
    last_outcome: str
    peak_in_flight: int


class EndpointSnapshot(msgspec.Struct, frozen=True):
    """An endpoint over all its domains."""

    captured_s: float
    key: str
    cap: CapacityValue
    aliases: Mapping[str, int]
    in_flight: int
    waiters: int
    peak_in_flight: int
    peak_waiters: int
    requests_per_minute: CapacityValue
    tokens_per_minute: CapacityValue
    domains: Mapping[str, RequestSnapshot]


class ResourceSnapshot(msgspec.Struct, frozen=True):
    """One resource of task admission."""

    limit: CapacityValue
    leased: int
    available: int
    queued: int
    peak_leased: int
    peak_queued: int


class TaskSnapshot(msgspec.Struct, frozen=True):
    """Task admission as a whole; groups that have nothing are left out."""

    captured_s: float
    queued: int
    leases: int
    resources: Mapping[str, ResourceSnapshot]
    running_by_group: Mapping[str, int]
    queued_by_group: Mapping[str, int]
    debt_by_group: Mapping[str, Mapping[str, int]]
    refused_releases: Mapping[str, int]


class RowGroupSnapshot(msgspec.Struct, frozen=True):
    """How many row groups may be in work."""

    mode: str
    hard_cap: CapacityValue
    target: int
    peak_target: int
    rows_guard: int
    blocked: Mapping[str, int]


class CapacitySnapshot(msgspec.Struct, frozen=True):
    """Admission as a whole at one instant, as plain values."""

    captured_s: float
    tasks: TaskSnapshot
    endpoints: Mapping[str, EndpointSnapshot]
    row_groups: RowGroupSnapshot | None
    transport_pool: CapacityValue


def capacity_snapshot(
    tasks: "TaskAdmission",
    requests: "RequestAdmission",
    row_groups: RowGroupAdmission | None,
    now: float,
) -> CapacitySnapshot:
    """All limits and their use right now."""
    endpoints = {
        f"{endpoint.provider}/{endpoint.model}": endpoint_snapshot(endpoint, now)
        for endpoint in requests.endpoints()
    }
    missing = "connections are pooled by the driver, which admission does not know"
    return CapacitySnapshot(
        now,
        task_snapshot(tasks, now),
        endpoints,
        None if row_groups is None else row_group_snapshot(row_groups),
        CapacityValue(None, CapacitySource.DEFAULT, missing),
    )


def task_snapshot(tasks: "TaskAdmission", now: float) -> TaskSnapshot:
    resources = tasks.resources()
    groups = tasks.queue.groups
    debts = {
        key: {
            resource.name: account.debt
            for resource in resources
            if (account := group.accounts.get(resource.index)) is not None and account.debt
        }
        for key, group in groups.items()
    }
    return TaskSnapshot(
        captured_s=now,
        queued=len(tasks.queue),
        leases=len(tasks.ledger.active),
        resources={
            resource.name: ResourceSnapshot(
                CapacityValue(
                    resource.limit,
                    CapacitySource.CONFIGURED
                    if resource.universal or resource.shared
                    else CapacitySource.MODEL_METADATA,
                ),
                resource.leased,
                resource.limit - resource.leased,
                resource.queued,
                resource.peak_leased,
                resource.peak_queued,
            )
            for resource in resources
        },
        running_by_group={key: group.running for key, group in groups.items() if group.running},
        queued_by_group={key: group.queued for key, group in groups.items() if group.queued},
        debt_by_group={key: owed for key, owed in debts.items() if owed},
        refused_releases={result.value: n for result, n in tasks.ledger.refused.items()},
    )


def endpoint_snapshot(endpoint: "ModelEndpoint", now: float) -> EndpointSnapshot:
    return EndpointSnapshot(
        captured_s=now,
        key=f"{endpoint.provider}/{endpoint.model}",
        cap=CapacityValue(endpoint.cap, CapacitySource.CONFIGURED),
        aliases=dict(endpoint.caps),
        in_flight=endpoint.in_flight,
        waiters=len(endpoint.queue),
        peak_in_flight=endpoint.peak_in_flight,
        peak_waiters=endpoint.peak_waiters,
        requests_per_minute=_budget(endpoint.requests.per_minute, endpoint.requests.source),
        tokens_per_minute=_budget(endpoint.tokens.per_minute, endpoint.tokens.source),
        domains={
            domain.value: request_snapshot(state, now) for domain, state in endpoint.domains.items()
        },
    )


def request_snapshot(state: "DomainState", now: float) -> RequestSnapshot:
    limiter = state.limiter
    return RequestSnapshot(
        captured_s=now,
        key=state.key,
        maximum=limiter.maximum,
        limit=limiter.limit,
        in_flight=state.in_flight,
        waiters=state.lane.queued,
        cooldown_s=max(0.0, limiter.blocked_until_s - now),
        ceiling=limiter.ceiling,
        consecutive_rate_limits=limiter.consecutive_rate_limits,
        last_outcome=state.last_outcome,
        peak_in_flight=state.peak_in_flight,
    )


def row_group_snapshot(row_groups: RowGroupAdmission) -> RowGroupSnapshot:
    return RowGroupSnapshot(
        mode="adaptive" if row_groups.adaptive else "fixed",
        hard_cap=CapacityValue(row_groups.hard_cap, CapacitySource.CONFIGURED),
        target=row_groups.target,
        peak_target=row_groups.peak_target,
        rows_guard=row_groups.rows_guard,
        blocked={reason.value: count for reason, count in row_groups.blocked.items()},
    )


def _budget(limit: int, source: str) -> CapacityValue:
    if limit:
        return CapacityValue(limit, CapacitySource(source))
    return CapacityValue(
        None, CapacitySource.DEFAULT, "no limit was configured, and no reply named one"
    )
