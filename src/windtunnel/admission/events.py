"""Events of admission: one vocabulary for tasks and requests, correlated, as plain data.

Every event carries what is known of run, group, task, attempt and lease, so that one reader can
follow a row from the queue to the provider and back. Which kinds anyone wants is asked once, when
the controller is built; nothing is built for other kinds.
"""

from collections.abc import Mapping
from typing import Final

from windtunnel.core.telemetry import Event, Plain, Telemetry

TASK_ENQUEUED: Final = "task_enqueued"
TASK_DISCARDED: Final = "task_discarded"
TASK_LEASE_ACQUIRED: Final = "task_lease_acquired"
TASK_LEASE_RELEASED: Final = "task_lease_released"
TASK_RELEASE_REFUSED: Final = "task_release_refused"
TASK_ADMISSION_DENIED: Final = "task_admission_denied"
TASK_STALE_SELECTION: Final = "task_stale_selection"
TASK_LIMIT_CHANGED: Final = "task_limit_changed"
TASK_METADATA_FELL_BACK: Final = "task_metadata_fell_back"
PRESSURE_ADVISORY_SKIPPED: Final = "pressure_advisory_skipped"
TASK_COMPLETED: Final = "task_completed"
TASK_DEFERRED: Final = "task_deferred"
TASK_SALVAGED: Final = "task_salvaged"
ROW_COMPLETED: Final = "row_completed"
ROW_CLOSED: Final = "row_closed"
ROW_GROUP_ADMITTED: Final = "row_group_admitted"
ROW_GROUP_ENDED: Final = "row_group_ended"
ROW_GROUP_TARGET_CHANGED: Final = "row_group_target_changed"
ROW_GROUP_BLOCKED: Final = "row_group_blocked"
REQUEST_REGISTERED: Final = "request_registered"
REQUEST_CAP_CHANGED: Final = "request_cap_changed"
REQUEST_BUDGET_CHANGED: Final = "request_budget_changed"
REQUEST_QUEUE_FORMED: Final = "request_queue_formed"
REQUEST_QUEUE_DRAINED: Final = "request_queue_drained"
REQUEST_WAIT_STARTED: Final = "request_wait_started"
REQUEST_WAIT_COMPLETED: Final = "request_wait_completed"
REQUEST_WAIT_TIMEOUT: Final = "request_wait_timeout"
REQUEST_WAIT_CANCELLED: Final = "request_wait_cancelled"
REQUEST_DENIED: Final = "request_denied"
REQUEST_LEASE_ACQUIRED: Final = "request_lease_acquired"
REQUEST_LEASE_RELEASED: Final = "request_lease_released"
REQUEST_RELEASE_REFUSED: Final = "request_release_refused"
REQUEST_RATE_LIMITED: Final = "request_rate_limited"
REQUEST_LIMIT_DECREASED: Final = "request_limit_decreased"
REQUEST_LIMIT_INCREASED: Final = "request_limit_increased"
REQUEST_SOFT_CEILING_RECOVERED: Final = "request_soft_ceiling_recovered"
REQUEST_FULLY_RECOVERED: Final = "request_fully_recovered"

KINDS: Final = (
    TASK_ENQUEUED,
    TASK_DISCARDED,
    TASK_LEASE_ACQUIRED,
    TASK_LEASE_RELEASED,
    TASK_RELEASE_REFUSED,
    TASK_ADMISSION_DENIED,
    TASK_STALE_SELECTION,
    TASK_LIMIT_CHANGED,
    TASK_METADATA_FELL_BACK,
    PRESSURE_ADVISORY_SKIPPED,
    TASK_COMPLETED,
    TASK_DEFERRED,
    TASK_SALVAGED,
    ROW_COMPLETED,
    ROW_CLOSED,
    ROW_GROUP_ADMITTED,
    ROW_GROUP_ENDED,
    ROW_GROUP_TARGET_CHANGED,
    ROW_GROUP_BLOCKED,
    REQUEST_REGISTERED,
    REQUEST_CAP_CHANGED,
    REQUEST_BUDGET_CHANGED,
    REQUEST_QUEUE_FORMED,
    REQUEST_QUEUE_DRAINED,
    REQUEST_WAIT_STARTED,
    REQUEST_WAIT_COMPLETED,
    REQUEST_WAIT_TIMEOUT,
    REQUEST_WAIT_CANCELLED,
    REQUEST_DENIED,
    REQUEST_LEASE_ACQUIRED,
    REQUEST_LEASE_RELEASED,
    REQUEST_RELEASE_REFUSED,
    REQUEST_RATE_LIMITED,
    REQUEST_LIMIT_DECREASED,
    REQUEST_LIMIT_INCREASED,
    REQUEST_SOFT_CEILING_RECOVERED,
    REQUEST_FULLY_RECOVERED,
)


class Correlation:
    """Which run, group, task and attempt something belongs to; empty means unknown."""

    __slots__ = ("attempt", "group", "task")

    def __init__(self, group: str = "", task: str = "", attempt: str = "") -> None:
        self.group: Final = group
        self.task: Final = task
        self.attempt: Final = attempt


class EventReporter:
    """Builds events for sinks that want them, with the correlation filled in."""

    def __init__(self, telemetry: Telemetry | None = None, run: str = "") -> None:
        self._telemetry: Final = telemetry
        self._run: Final = run
        self._wanted: Final[set[str]] = set()
        if telemetry is not None:
            self._wanted.update(kind for kind in KINDS if telemetry.wants(kind))
        self.wants_any: Final = bool(self._wanted)

    def wants(self, kind: str) -> bool:
        return kind in self._wanted

    def report(
        self,
        now: float,
        kind: str,
        subject: str,
        reason: str,
        correlation: Correlation | None,
        lease: int,
        numbers: Mapping[str, Plain],
    ) -> None:
        """Emits one event; ask `wants` before gathering its numbers."""
        telemetry = self._telemetry
        if telemetry is None or kind not in self._wanted:
            return
        data: dict[str, Plain] = {"run": self._run}
        if correlation is not None:
            if correlation.group:
                data["group"] = correlation.group
            if correlation.task:
                data["task"] = correlation.task
            if correlation.attempt:
                data["attempt"] = correlation.attempt
        if lease:
            data["lease"] = lease
        data.update(numbers)
        telemetry.emit(Event(now, kind, subject, str(reason), data))
