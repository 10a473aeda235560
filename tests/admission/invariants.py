"""What must always hold of admission, by name; each check looks at everything once."""

from typing import Final

from windtunnel.admission.leases import TaskLease
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import RequestLease
from windtunnel.admission.tasks.admission import TaskAdmission
from windtunnel.core.invariants import Invariant


def _task_leases(tasks: TaskAdmission) -> list[TaskLease]:
    return [lease for lease in tasks.ledger.active.values() if isinstance(lease, TaskLease)]


def _leased_is_held(tasks: TaskAdmission) -> str | None:
    held: dict[str, int] = {}
    for lease in _task_leases(tasks):
        for name, amount in lease.amounts().items():
            held[name] = held.get(name, 0) + amount
    for resource in tasks.resources():
        if resource.leased != held.get(resource.name, 0):
            return f"{resource.name}: {resource.leased} leased, {held.get(resource.name, 0)} held"
    return None


def _groups_add_up(tasks: TaskAdmission) -> str | None:
    running: dict[str, int] = {}
    for lease in _task_leases(tasks):
        running[lease.group_key] = running.get(lease.group_key, 0) + 1
    for key, group in tasks.queue.groups.items():
        if group.running != running.pop(key, 0):
            return f"group {key} counts {group.running} running"
    return f"leases of forgotten groups: {sorted(running)}" if running else None


def _demand_is_queued(tasks: TaskAdmission) -> str | None:
    wanted: dict[str, int] = {}
    for item in tasks.queue.items():
        for name, amount in item.lane.request().items():
            wanted[name] = wanted.get(name, 0) + amount
    for resource in tasks.resources():
        if resource.queued != wanted.get(resource.name, 0):
            return (
                f"{resource.name}: {resource.queued} counted, {wanted.get(resource.name, 0)} wait"
            )
    return None


def _debt_is_covered(tasks: TaskAdmission) -> str | None:
    for key, group in tasks.queue.groups.items():
        for account in group.accounts.values():
            if not 0 <= account.debt <= account.leased:
                return f"group {key} owes {account.debt} and holds {account.leased}"
    return None


def _in_flight_is_held(requests: RequestAdmission) -> str | None:
    held: dict[str, int] = {}
    for lease in requests.ledger.active.values():
        assert isinstance(lease, RequestLease)
        held[lease.domain.key] = held.get(lease.domain.key, 0) + 1
    for endpoint in requests.endpoints():
        for state in endpoint.domains.values():
            if state.in_flight != held.get(state.key, 0):
                return f"{state.key}: {state.in_flight} in flight, {held.get(state.key, 0)} leases"
        together = sum(state.in_flight for state in endpoint.domains.values())
        if endpoint.in_flight != together:
            return f"{endpoint.provider}/{endpoint.model}: {endpoint.in_flight}, not {together}"
    return None


def _waiters_are_counted(requests: RequestAdmission) -> str | None:
    queued = sum(len(endpoint.queue) for endpoint in requests.endpoints())
    return None if queued == requests.waiting else f"{requests.waiting} counted, {queued} queued"


def _limits_are_within_caps(requests: RequestAdmission) -> str | None:
    for endpoint in requests.endpoints():
        for state in endpoint.domains.values():
            if not 1 <= state.limiter.limit <= endpoint.cap:
                return f"{state.key}: limit {state.limiter.limit}, cap {endpoint.cap}"
    return None


TASK_INVARIANTS: Final = (
    Invariant("task-leases", "what is leased is what leases hold", _leased_is_held),
    Invariant("task-groups", "a group counts the leases that it holds", _groups_add_up),
    Invariant("task-demand", "the demand counted is that of what waits", _demand_is_queued),
    Invariant("task-debt", "no group owes more than it holds", _debt_is_covered),
)
REQUEST_INVARIANTS: Final = (
    Invariant("request-leases", "what is in flight is what leases hold", _in_flight_is_held),
    Invariant("request-waiters", "every queued request is in one queue", _waiters_are_counted),
    Invariant("request-limits", "a limit is between 1 and its cap", _limits_are_within_caps),
)
