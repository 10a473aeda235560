"""The log of faults that have begun, for the result and for event listeners."""

from typing import Any, Final

from windtunnel.core.telemetry import Event, Plain, Telemetry
from windtunnel.core.vocabulary import FAULT_BEGAN, FAULT_ENDED

MOST_LISTED: Final = 1_000
"""The most faults that a result lists individually; all are counted, and emitted as events."""

MOST_SUBJECTS: Final = 100
"""The most subjects listed per fault."""


class LoggedFault:
    """A fault that has begun."""

    def __init__(self, name: str, kind: str, at_s: float, subjects: list[str], why: str) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.at_s: Final = at_s
        self.subjects: Final = subjects
        self.why: Final = why
        self.until_s: float | None = None  # None: it has not ended


class FaultLog:
    """Logs every fault that begins and ends."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry: Final = telemetry
        self.begun = 0
        self.listed: Final[list[LoggedFault]] = []

    def begin(self, entry: LoggedFault, until_s: float | None) -> None:
        """Logs a fault that begins; `until_s` is when it will end, if known."""
        self.begun += 1
        if len(self.listed) < MOST_LISTED:
            self.listed.append(entry)
        self._emit(entry.at_s, FAULT_BEGAN, entry, {"until": until_s})

    def end(self, entry: LoggedFault, now_s: float) -> None:
        entry.until_s = now_s
        self._emit(now_s, FAULT_ENDED, entry, {"at": entry.at_s})

    def _emit(self, now_s: float, kind: str, entry: LoggedFault, more: dict[str, Plain]) -> None:
        if self._telemetry.wants(kind):
            subjects: list[Plain] = list(entry.subjects[:MOST_SUBJECTS])
            data: dict[str, Plain] = {"kind": entry.kind, "subjects": subjects, **more}
            self._telemetry.emit(Event(now_s, kind, f"fault/{entry.name}", entry.why, data))

    def result(self) -> list[dict[str, Any]]:
        """The faults listed in `result.json`, in the order in which they began."""
        return [
            {
                "name": one.name,
                "kind": one.kind,
                "at": one.at_s,
                "until": one.until_s,
                "subjects": one.subjects[:MOST_SUBJECTS],
                "reason": one.why,
            }
            for one in self.listed
        ]
