"""Admission control without I/O: fair queues, leases, adaptive request limits."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windtunnel.admission.capacity import capacity_snapshot
    from windtunnel.admission.events import Correlation, EventKind, EventReporter
    from windtunnel.admission.leases import Lease, TaskLease
    from windtunnel.admission.queues.fair_queue import FairQueue, Selection
    from windtunnel.admission.queues.groups import GroupShare, QueuedWork
    from windtunnel.admission.reasons import (
        Domain,
        Outcome,
        ReleaseResult,
        RequestDenial,
        TaskDenial,
    )
    from windtunnel.admission.requests.admission import RequestAdmission
    from windtunnel.admission.requests.budgets import Budget, ObservedLimit, ObservedLimits
    from windtunnel.admission.requests.endpoint import (
        QueueTicket,
        RequestAsk,
        RequestDenied,
        RequestLease,
        TokenEstimate,
    )
    from windtunnel.admission.requests.gradient import GradientLimiter
    from windtunnel.admission.requests.headers import (
        read_limits,
        refusal_delay_s,
        retry_after_s,
        retry_delay_s,
    )
    from windtunnel.admission.requests.limiter import AimdLimiter, AimdSettings, RequestLimiter
    from windtunnel.admission.tasks.admission import (
        LLM_WAIT,
        SUBMISSION,
        TaskAdmission,
        TaskDenied,
    )
    from windtunnel.admission.tasks.metadata import (
        SchedulingMetadata,
        WorkKind,
        resolve,
        task_limits,
    )
    from windtunnel.admission.tasks.pressure import Pressure, PressureAdvisory
    from windtunnel.admission.tasks.row_groups import (
        RowGroupAdmission,
        RowGroupReason,
        RowGroupView,
    )
    from windtunnel.admission.tasks.sharing import BoundedBorrow, SharePolicy, StrictFair

__all__ = [
    # Queues.
    "FairQueue",
    "GroupShare",
    "QueuedWork",
    "Selection",
    # Tasks.
    "TaskAdmission",
    "TaskLease",
    "TaskDenial",
    "TaskDenied",
    "SUBMISSION",
    "LLM_WAIT",
    "SharePolicy",
    "StrictFair",
    "BoundedBorrow",
    "SchedulingMetadata",
    "WorkKind",
    "resolve",
    "task_limits",
    # Requests.
    "RequestAdmission",
    "RequestAsk",
    "TokenEstimate",
    "RequestLease",
    "RequestDenied",
    "RequestDenial",
    "QueueTicket",
    "Domain",
    "Outcome",
    "RequestLimiter",
    "AimdLimiter",
    "AimdSettings",
    "GradientLimiter",
    "Budget",
    "ObservedLimit",
    "ObservedLimits",
    "read_limits",
    "refusal_delay_s",
    "retry_after_s",
    "retry_delay_s",
    # Both.
    "Lease",
    "ReleaseResult",
    "EventReporter",
    "Correlation",
    "EventKind",
    # Above them.
    "PressureAdvisory",
    "Pressure",
    "RowGroupAdmission",
    "RowGroupReason",
    "RowGroupView",
    "capacity_snapshot",
]

_PLACES = {
    "capacity": "capacity_snapshot",
    "events": "Correlation EventKind EventReporter",
    "leases": "Lease TaskLease",
    "queues.fair_queue": "FairQueue Selection",
    "queues.groups": "GroupShare QueuedWork",
    "reasons": "Domain Outcome ReleaseResult RequestDenial TaskDenial",
    "requests.admission": "RequestAdmission",
    "requests.budgets": "Budget ObservedLimit ObservedLimits",
    "requests.endpoint": "QueueTicket RequestAsk RequestDenied RequestLease TokenEstimate",
    "requests.gradient": "GradientLimiter",
    "requests.headers": "read_limits refusal_delay_s retry_after_s retry_delay_s",
    "requests.limiter": "AimdLimiter AimdSettings RequestLimiter",
    "tasks.admission": "LLM_WAIT SUBMISSION TaskAdmission TaskDenied",
    "tasks.metadata": "SchedulingMetadata WorkKind resolve task_limits",
    "tasks.pressure": "Pressure PressureAdvisory",
    "tasks.row_groups": "RowGroupAdmission RowGroupReason RowGroupView",
    "tasks.sharing": "BoundedBorrow SharePolicy StrictFair",
}
"""The module of each name. Modules are imported on first use: simulations need few."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        for place, names in _PLACES.items():
            if name in names.split():
                return getattr(import_module(f"{__name__}.{place}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
