"""Telemetry: events as plain data, for the sinks that want them.

One vocabulary serves simulated and live runs. An event is built only when a sink wants its kind. A
sink may fail (a full disk, a bug): the run goes on and the failure is counted. The first bug of
each sink is logged with its traceback; a full disk is reported where the file was opened.
"""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from windtunnel.core.errors import OutputError
from windtunnel.core.vocabulary import CLOSED

Plain = str | int | float | bool | None | list["Plain"] | dict[str, "Plain"]

Record = Callable[[float, str, str, str, dict[str, Plain]], None]
"""Records a fact or a decision as (time, kind, subject, reason, data), where a log is kept."""

_log = logging.getLogger("windtunnel.telemetry")


class Event(msgspec.Struct, frozen=True):
    """A fact: time, kind, subject, reason, and related data."""

    time: float
    kind: str
    subject: str
    reason: str = ""
    data: Mapping[str, Any] = {}


class Sink(Protocol):
    """A consumer of events."""

    def wants(self, kind: str) -> bool: ...

    def record(self, event: Event) -> None: ...


class CountingSink:
    """Counts events by kind and reason."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}

    def wants(self, kind: str) -> bool:  # noqa: ARG002 - this sink wants every kind
        return True

    def record(self, event: Event) -> None:
        key = (event.kind, event.reason)
        self.counts[key] = self.counts.get(key, 0) + 1


class JsonlSink:
    """Writes one line of JSON per event.

    The file's earlier content is kept until the first event, so a run that is refused before it
    begins loses nothing. With `append` it is kept for good.
    """

    def __init__(self, path: Path, *, append: bool = False) -> None:
        try:
            self._file: IO[bytes] = path.open("ab")
            self._is_torn = append and _is_torn(path)
        except OSError as error:
            raise OutputError(f"cannot write events: {error.strerror}", where=str(path)) from error
        self._is_old = not append and path.is_file()
        self._encoder = msgspec.json.Encoder()

    def wants(self, kind: str) -> bool:  # noqa: ARG002 - this sink wants every kind
        return True

    def record(self, event: Event) -> None:
        if self._is_old:
            self._file.truncate(0)
            self._is_old = False
        if self._is_torn:
            self._file.write(b"\n")
            self._is_torn = False
        self._file.write(self._encoder.encode(event) + b"\n")

    def close(self) -> None:
        self._file.close()


class RunLog(JsonlSink):
    """The log of one run: its last line counts the others, so that truncation is noticed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lines = 0
        self._time_s = 0.0

    def record(self, event: Event) -> None:
        self._lines += 1
        self._time_s = event.time
        super().record(event)

    def close(self) -> None:
        super().record(Event(self._time_s, CLOSED, "run", data={"lines": self._lines}))
        super().close()


def _is_torn(path: Path) -> bool:
    """Whether the last line of a file was cut off by a crash."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


class Telemetry:
    """Passes events to the sinks that want them."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks
        self.failures: dict[int, int] = {}

    def wants(self, kind: str) -> bool:
        """Whether any sink wants this kind; ask before building an event."""
        return any(sink.wants(kind) for sink in self._sinks)

    def emit(self, event: Event) -> None:
        for number, sink in enumerate(self._sinks):
            try:
                if sink.wants(event.kind):
                    sink.record(event)
            except Exception as error:  # noqa: BLE001 - a listener must not stop the run
                self.failures[number] = self.failures.get(number, 0) + 1
                if self.failures[number] == 1:
                    _log.log(
                        logging.DEBUG if isinstance(error, OSError) else logging.ERROR,
                        "%s failed on %s at %s; the run goes on, later failures are only counted",
                        type(sink).__name__,
                        event.kind,
                        event.time,
                        exc_info=error,
                    )

    @property
    def lost_events(self) -> int:
        """The number of events lost to failing sinks; an event counts once per sink."""
        return sum(self.failures.values())
