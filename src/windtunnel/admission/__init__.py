"""Whether and when work may start: fair queues, leases, adaptive request limits, without I/O."""

from windtunnel.admission.advisory import Pressure, PressureAdvisory
from windtunnel.admission.backoff import retry_delay_s
from windtunnel.admission.budgets import Budget, Observed
from windtunnel.admission.capacity import CapacityPlan, CapacityValue, capacity_plan
from windtunnel.admission.endpoint import RequestAsk, RequestDenied, RequestLease, Ticket
from windtunnel.admission.events import KINDS, Announcer, Correlation
from windtunnel.admission.fair_queue import FairQueue, Selection
from windtunnel.admission.gradient import GradientLimiter
from windtunnel.admission.headers import read_limits, retry_after_s
from windtunnel.admission.invariants import REQUEST_INVARIANTS, TASK_INVARIANTS
from windtunnel.admission.leases import Lease, TaskLease
from windtunnel.admission.limiter import AimdLimiter, AimdSettings, Limiter
from windtunnel.admission.metadata import (
    MetadataError,
    MetadataFault,
    SchedulingMetadata,
    WorkKind,
    check_metadata,
    model_metadata,
    resolve,
    task_limits,
    tell_fallback,
)
from windtunnel.admission.policies import BoundedBorrow, Policy, StrictFair
from windtunnel.admission.reasons import (
    Domain,
    Outcome,
    ReleaseResult,
    RequestDenial,
    TaskDenial,
)
from windtunnel.admission.requests import RequestAdmission
from windtunnel.admission.row_groups import RowGroupAdmission, RowGroupReason, RowGroupView
from windtunnel.admission.tasks import LLM_WAIT, SUBMISSION, Blocked, Denied, TaskAdmission
from windtunnel.admission.waiting import GroupSpec, Queued

__all__ = [
    # Who is next.
    "FairQueue",
    "GroupSpec",
    "Queued",
    "Selection",
    # Tasks.
    "TaskAdmission",
    "TaskLease",
    "TaskDenial",
    "Denied",
    "Blocked",
    "SUBMISSION",
    "LLM_WAIT",
    "Policy",
    "StrictFair",
    "BoundedBorrow",
    "SchedulingMetadata",
    "WorkKind",
    "MetadataError",
    "MetadataFault",
    "check_metadata",
    "model_metadata",
    "resolve",
    "task_limits",
    "tell_fallback",
    # Requests.
    "RequestAdmission",
    "RequestAsk",
    "RequestLease",
    "RequestDenied",
    "RequestDenial",
    "Ticket",
    "Domain",
    "Outcome",
    "Limiter",
    "AimdLimiter",
    "AimdSettings",
    "GradientLimiter",
    "Budget",
    "Observed",
    "read_limits",
    "retry_after_s",
    "retry_delay_s",
    # Both.
    "Lease",
    "ReleaseResult",
    "Announcer",
    "Correlation",
    "KINDS",
    # Above them.
    "PressureAdvisory",
    "Pressure",
    "RowGroupAdmission",
    "RowGroupReason",
    "RowGroupView",
    "CapacityPlan",
    "CapacityValue",
    "capacity_plan",
    "TASK_INVARIANTS",
    "REQUEST_INVARIANTS",
]
