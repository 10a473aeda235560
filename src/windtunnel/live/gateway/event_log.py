"""The event log of a gateway: a line for every fact and every decision, for `windtunnel audit`."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from windtunnel.core.errors import OutputError
from windtunnel.core.telemetry import Event, Plain

STARTED: Final = "gateway.started"
BUFFER_BYTES: Final = 1 << 16

_encode: Final = msgspec.json.Encoder().encode


def log_line(
    now_s: float, kind: str, subject: str, reason: str, data: Mapping[str, Plain]
) -> bytes:
    return _encode(Event(now_s, kind, subject, reason, data)) + b"\n"


class EventLogFile:
    """Writes lines; a disk that is full costs lines, which are counted, and nothing else."""

    def __init__(self, path: Path, head: Mapping[str, Any]) -> None:
        self.lost = 0
        try:
            self._file: IO[bytes] = path.open("wb", buffering=BUFFER_BYTES)
        except OSError as error:
            raise OutputError(f"cannot write the log: {error.strerror}", where=str(path)) from None
        self.record(0.0, STARTED, "gateway", "", dict(head))

    def record(
        self, now_s: float, kind: str, subject: str, reason: str, data: dict[str, Plain]
    ) -> None:
        try:
            self._file.write(log_line(now_s, kind, subject, reason, data))
        except (OSError, ValueError):
            self.lost += 1

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._file.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
