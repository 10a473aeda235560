"""What happened, as plain data, to whoever listens.

One vocabulary serves simulated and live runs. An event is built only when a sink wants its kind.
A sink may fail (a full disk, a bug): the run goes on, the failure is counted, and the first one of
each sink is logged with its traceback.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Protocol

import msgspec

from windtunnel.core.errors import OutputError

Plain = str | int | float | bool | None | list["Plain"] | dict[str, "Plain"]

_log = logging.getLogger("windtunnel.telemetry")


class Event(msgspec.Struct, frozen=True):
    """A fact: when, what kind, about whom, why, and the numbers that go with it."""

    time: float
    kind: str
    subject: str
    reason: str = ""
    data: Mapping[str, Plain] = {}


class Sink(Protocol):
    """Somewhere events go."""

    def wants(self, kind: str) -> bool: ...

    def record(self, event: Event) -> None: ...


class MemorySink:
    """Keeps every event, for tests and for short runs."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def wants(self, kind: str) -> bool:  # noqa: ARG002 - this sink wants every kind
        return True

    def record(self, event: Event) -> None:
        self.events.append(event)


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
    """Writes a line of JSON per event."""

    def __init__(self, path: Path) -> None:
        try:
            self._file: IO[bytes] = path.open("wb")
        except OSError as error:
            raise OutputError(f"cannot write events: {error.strerror}", where=str(path)) from error
        self._encoder = msgspec.json.Encoder()

    def wants(self, kind: str) -> bool:  # noqa: ARG002 - this sink wants every kind
        return True

    def record(self, event: Event) -> None:
        self._file.write(self._encoder.encode(event) + b"\n")

    def close(self) -> None:
        self._file.close()


class Telemetry:
    """The way from those who know something to the sinks that want it."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks
        self.failures: dict[int, int] = {}

    def wants(self, kind: str) -> bool:
        """Ask before building an event: with no listener, saying nothing is free."""
        return any(sink.wants(kind) for sink in self._sinks)

    def emit(self, event: Event) -> None:
        for number, sink in enumerate(self._sinks):
            try:
                if sink.wants(event.kind):
                    sink.record(event)
            except Exception:  # noqa: BLE001 - a listener must not stop the run
                self.failures[number] = self.failures.get(number, 0) + 1
                if self.failures[number] == 1:
                    _log.exception(
                        "%s failed on %s at %s; the run goes on, later failures are only counted",
                        type(sink).__name__,
                        event.kind,
                        event.time,
                    )

    @property
    def lost_events(self) -> int:
        """How many events some sink failed to take."""
        return sum(self.failures.values())
