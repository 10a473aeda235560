"""Every limit of admission with its source, its current use, and its peak."""

from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.budgets import Budget
from windtunnel.admission.requests.endpoint import DomainState, ModelEndpoint
from windtunnel.admission.tasks.admission import TaskAdmission
from windtunnel.admission.tasks.row_groups import RowGroupAdmission
from windtunnel.core.telemetry import Plain

CONFIGURED = "configured"
MODEL_METADATA = "model_metadata"
DEFAULT = "default"
"""Sources of a value; a budget may also come from `headers`."""

Facts = dict[str, Plain]


def capacity_snapshot(
    tasks: TaskAdmission, requests: RequestAdmission, row_groups: RowGroupAdmission, now: float
) -> Facts:
    """Returns all limits and their current use as plain data; groups without use are omitted."""
    return {
        "captured_s": now,
        "tasks": _tasks(tasks),
        "endpoints": {one.key: _endpoint(one, now) for one in requests.endpoints()},
        "row_groups": {
            "mode": "adaptive" if row_groups.adaptive else "fixed",
            "hard_cap": _value(row_groups.hard_cap, CONFIGURED),
            "target": row_groups.target,
            "peak_target": row_groups.peak_target,
            "rows_guard": row_groups.rows_guard,
            "blocked": {reason.value: count for reason, count in row_groups.blocked.items()},
        },
    }


def _tasks(tasks: TaskAdmission) -> Facts:
    resources, groups = tasks.resources(), tasks.queue.groups
    debts: dict[str, Facts] = {
        key: {
            resource.name: account.debt
            for resource in resources
            if (account := group.accounts.get(resource.index)) is not None and account.debt
        }
        for key, group in groups.items()
    }
    return {
        "queued": len(tasks.queue),
        "leases": len(tasks.ledger.active),
        "resources": {
            resource.name: {
                "limit": _value(
                    resource.limit,
                    CONFIGURED if resource.universal or resource.shared else MODEL_METADATA,
                ),
                "leased": resource.leased,
                "available": resource.limit - resource.leased,
                "queued": resource.queued,
                "peak_leased": resource.peak_leased,
                "peak_queued": resource.peak_queued,
            }
            for resource in resources
        },
        "running_by_group": {key: group.running for key, group in groups.items() if group.running},
        "queued_by_group": {key: group.queued for key, group in groups.items() if group.queued},
        "debt_by_group": {key: owed for key, owed in debts.items() if owed},
        "refused_releases": {result.value: n for result, n in tasks.ledger.refused.items()},
    }


def _endpoint(endpoint: ModelEndpoint, now: float) -> Facts:
    return {
        "cap": _value(endpoint.cap, CONFIGURED),
        "aliases": {**endpoint.caps},
        "in_flight": endpoint.in_flight,
        "waiters": len(endpoint.queue),
        "peak_in_flight": endpoint.peak_in_flight,
        "peak_waiters": endpoint.peak_waiters,
        "requests_per_minute": _budget(endpoint.requests),
        "tokens_per_minute": _budget(endpoint.tokens),
        "domains": {
            domain.value: _domain(state, now) for domain, state in endpoint.domains.items()
        },
    }


def _domain(state: DomainState, now: float) -> Facts:
    limiter = state.limiter
    return {
        "maximum": limiter.maximum,
        "limit": limiter.limit,
        "in_flight": state.in_flight,
        "waiters": state.lane.queued,
        "cooldown_s": max(0.0, limiter.blocked_until_s - now),
        "ceiling": limiter.ceiling,
        "consecutive_rate_limits": limiter.consecutive_rate_limits,
        "last_outcome": state.last_outcome,
        "peak_in_flight": state.peak_in_flight,
    }


def _budget(budget: Budget) -> Facts:
    if budget.limit:
        return _value(budget.per_minute, budget.source)
    reason = "no limit was configured, and no reply named one"
    return {"value": None, "source": DEFAULT, "missing_reason": reason}


def _value(value: int, source: str) -> Facts:
    return {"value": value, "source": source}
