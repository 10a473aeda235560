"""A batch as a trace for ui.perfetto.dev: calls as slices on their model, limits as counters.

Each model of an endpoint is a process. Each of its calls is a slice, preceded by its wait; the
limit on calls in flight, the calls in flight and the waiting calls are counters. Row groups and the
ends of rows are on a process of their own.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from windtunnel.core.telemetry import Event
from windtunnel.report.files.perfetto import name_event, trace_bytes, trace_event

MOST_EVENTS = 400_000
"""As many as a browser opens without trouble."""
ROWS = 1
"""The process id of row groups; models follow from 2."""

_WAIT_ENDS = ("request_wait_completed", "request_wait_timeout", "request_wait_cancelled")
_COUNTED = ("limit", "in_flight", "waiters")
HEALTH = "scheduler_health_snapshot"
_HEALTH = ("in_flight", "queued", "resting", "parked", "open_rows")
_MARKS = {
    "request_rate_limited": "refused",
    "task_deferred": "tried again later",
    "task_salvaged": "salvaged",
    "row_closed": "row closed",
    "row_group_target_changed": "row groups",
    "scheduler_job_started": "job started",
    "scheduler_job_completed": "job completed",
}
_KINDS = frozenset(
    (
        *_MARKS,
        *_WAIT_ENDS,
        "request_wait_started",
        "request_lease_acquired",
        "request_lease_released",
        "row_group_admitted",
        "row_group_ended",
        HEALTH,
    )
)


class BatchTrace:
    """Collects events up to a limit, and writes them at the end."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._processes: dict[str, int] = {}
        self._lost = 0

    def wants(self, kind: str) -> bool:
        return kind in _KINDS

    def record(self, event: Event) -> None:
        if len(self._events) >= MOST_EVENTS:
            self._lost += 1
            return
        kind, data = event.kind, event.data
        if kind in ("row_group_admitted", "row_group_ended"):
            begins = kind == "row_group_admitted"
            number = int(event.subject.rpartition(" ")[2])
            self._slice(event, "b" if begins else "e", event.subject, ROWS, number, "row group")
        elif kind == "request_wait_started" or kind in _WAIT_ENDS:
            phase = "b" if kind == "request_wait_started" else "e"
            attempt = str(data.get("attempt", ""))
            self._slice(event, phase, "wait", self._process(event.subject), attempt, "wait")
        elif kind in ("request_lease_acquired", "request_lease_released"):
            phase = "b" if kind == "request_lease_acquired" else "e"
            name, lease = str(data.get("task", "call")), int(str(data["lease"]))
            self._slice(event, phase, name, self._process(event.subject), lease, "call")
        elif kind == HEALTH:
            values = {name: data[name] for name in _HEALTH}
            self._events.append(_event("C", "job", ROWS, event.time) | {"args": values})
        else:
            self._mark(event)
        self._count(event)

    @property
    def cut(self) -> str:
        """A sentence about what is missing; empty if nothing is."""
        if not self._lost:
            return ""
        return f"the trace ends after {MOST_EVENTS:,} events; {self._lost:,} more happened"

    def content(self, path: Path, redact: Callable[[bytes], bytes]) -> bytes:
        """The whole trace with secrets redacted; compressed if the name ends in .gz."""
        processes = {"rows": ROWS, **self._processes}
        names = [name_event("process_name", pid, 0, name) for name, pid in processes.items()]
        return trace_bytes([*names, *self._events], {"events": self.cut or "all"}, path, redact)

    def _process(self, subject: str) -> int:
        return self._processes.setdefault(subject, len(self._processes) + ROWS + 1)

    def _slice(
        self, event: Event, phase: str, name: str, pid: int, key: int | str, category: str
    ) -> None:
        record = _event(phase, name, pid, event.time) | {"cat": category, "id": key}
        if phase == "e":
            record["args"] = {"reason": event.reason} if event.reason else {}
        self._events.append(record)

    def _mark(self, event: Event) -> None:
        is_request = event.kind.startswith("request_")
        pid = self._process(event.subject) if is_request else ROWS
        args = {"what": event.subject, "reason": event.reason, **event.data}
        self._events.append(
            _event("i", _MARKS[event.kind], pid, event.time) | {"s": "p", "args": args}
        )

    def _count(self, event: Event) -> None:
        if not event.kind.startswith("request_"):
            return
        values = {name: event.data[name] for name in _COUNTED if name in event.data}
        if values:
            pid = self._process(event.subject)
            self._events.append(_event("C", "calls", pid, event.time) | {"args": values})


def _event(phase: str, name: str, pid: int, time_s: float) -> dict[str, Any]:
    return trace_event(phase, name, pid, 0) | {"ts": round(time_s * 1e6, 3)}
