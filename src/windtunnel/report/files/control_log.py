"""`control.jsonl`: the events of a run's control plane; always written, with bounded length."""

from pathlib import Path

from windtunnel.core.telemetry import Event, RunLog
from windtunnel.core.vocabulary import CUT, KEPT

MOST_EVENTS = 100_000
"""Lines of a log; further events are only counted."""
MOST_KEPT = 20_000
"""Limit among them on autoscaler decisions that changed nothing."""


class ControlLog:
    """Records the events of a control plane up to a limit."""

    def __init__(self, path: Path, most: int = MOST_EVENTS, most_kept: int = MOST_KEPT) -> None:
        self._sink = RunLog(path)
        self._left = most
        self._kept_left = most_kept
        self._missing = 0
        self._since_s = 0.0

    def wants(self, kind: str) -> bool:  # noqa: ARG002 - omitted events are counted
        return True

    def record(self, event: Event) -> None:
        kept = event.kind == KEPT
        if self._left <= 0 or (kept and self._kept_left <= 0):
            if not self._missing:
                self._since_s = event.time
            self._missing += 1
            return
        self._left -= 1
        self._kept_left -= kept
        self._sink.record(event)

    def close(self) -> None:
        if self._missing:
            reason = f"{self._missing} events are left out: the log would grow too long"
            data = {"missing": self._missing}
            self._sink.record(Event(self._since_s, CUT, "run", reason, data))
        self._sink.close()
