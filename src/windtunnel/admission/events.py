"""Events of admission: one vocabulary for tasks and requests, correlated, as plain data.

Every event carries what is known of run, group, task, attempt and lease, so that one reader can
follow a row from the queue to the provider and back. Sinks are asked once, when the controller is
built, which kinds they want; events of other kinds are never built.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from windtunnel.core.telemetry import Event, Plain, Telemetry


class EventKind(StrEnum):
    """The kinds of admission events."""

    TASK_ENQUEUED = "task_enqueued"
    TASK_DISCARDED = "task_discarded"
    TASK_LEASE_ACQUIRED = "task_lease_acquired"
    TASK_LEASE_RELEASED = "task_lease_released"
    TASK_RELEASE_REFUSED = "task_release_refused"
    TASK_ADMISSION_DENIED = "task_admission_denied"
    TASK_STALE_SELECTION = "task_stale_selection"
    PRESSURE_ADVISORY_SKIPPED = "pressure_advisory_skipped"
    TASK_COMPLETED = "task_completed"
    TASK_DEFERRED = "task_deferred"
    TASK_SALVAGED = "task_salvaged"
    JOB_STARTED = "scheduler_job_started"
    JOB_COMPLETED = "scheduler_job_completed"
    HEALTH = "scheduler_health_snapshot"
    ROW_COMPLETED = "row_completed"
    ROW_CLOSED = "row_closed"
    ROW_GROUP_ADMITTED = "row_group_admitted"
    ROW_GROUP_ENDED = "row_group_ended"
    ROW_GROUP_TARGET_CHANGED = "row_group_target_changed"
    ROW_GROUP_BLOCKED = "row_group_blocked"
    REQUEST_REGISTERED = "request_registered"
    REQUEST_CAP_CHANGED = "request_cap_changed"
    REQUEST_BUDGET_CHANGED = "request_budget_changed"
    REQUEST_QUEUE_FORMED = "request_queue_formed"
    REQUEST_QUEUE_DRAINED = "request_queue_drained"
    REQUEST_WAIT_STARTED = "request_wait_started"
    REQUEST_WAIT_COMPLETED = "request_wait_completed"
    REQUEST_WAIT_TIMEOUT = "request_wait_timeout"
    REQUEST_WAIT_CANCELLED = "request_wait_cancelled"
    REQUEST_DENIED = "request_denied"
    REQUEST_LEASE_ACQUIRED = "request_lease_acquired"
    REQUEST_LEASE_RELEASED = "request_lease_released"
    REQUEST_RELEASE_REFUSED = "request_release_refused"
    REQUEST_RATE_LIMITED = "request_rate_limited"
    REQUEST_LIMIT_DECREASED = "request_limit_decreased"
    REQUEST_LIMIT_INCREASED = "request_limit_increased"
    REQUEST_SOFT_CEILING_RECOVERED = "request_soft_ceiling_recovered"
    REQUEST_FULLY_RECOVERED = "request_fully_recovered"


class Correlation(NamedTuple):
    """The group, task and attempt that an event belongs to; empty means unknown."""

    group: str = ""
    task: str = ""
    attempt: str = ""


class EventReporter:
    """Builds events for the sinks that want them, with the correlation filled in."""

    def __init__(self, telemetry: Telemetry | None = None, run: str = "") -> None:
        self._telemetry: Final = telemetry
        self._run: Final = run
        self._wanted: Final[set[EventKind]] = set()
        if telemetry is not None:
            self._wanted.update(kind for kind in EventKind if telemetry.wants(kind))
        self.wants_any: Final = bool(self._wanted)

    def wants(self, kind: EventKind) -> bool:
        return kind in self._wanted

    def report(
        self,
        now: float,
        kind: EventKind,
        subject: str,
        *,
        reason: str = "",
        correlation: Correlation | None = None,
        lease: int = 0,
        numbers: Mapping[str, Plain] | None = None,
    ) -> None:
        """Emits one event; check `wants` before gathering its numbers."""
        telemetry = self._telemetry
        if telemetry is None or kind not in self._wanted:
            return
        data: dict[str, Plain] = {"run": self._run}
        if correlation is not None:
            data |= {name: value for name, value in correlation._asdict().items() if value}
        if lease:
            data["lease"] = lease
        data.update(numbers or {})
        telemetry.emit(Event(now, kind.value, subject, str(reason), data))
