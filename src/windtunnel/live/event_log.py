"""The event log of a live program: a line for every fact and every decision."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from windtunnel.core.errors import OutputError
from windtunnel.core.telemetry import Event, Plain
from windtunnel.live.lines import LineBuffer

STARTED: Final = "gateway.started"
OPERATOR_STARTED: Final = "operator.started"

_encode: Final = msgspec.json.Encoder().encode


def log_line(
    now_s: float, kind: str, subject: str, reason: str, data: Mapping[str, Plain]
) -> bytes:
    return _encode(Event(now_s, kind, subject, reason, data)) + b"\n"


class EventLogFile:
    """Writes the lines of an event log; with a full disk, lines are lost and counted, no more.

    With a limit of `largest` bytes, the log of an earlier process is renamed to `FILE.1`, replacing
    the previous one. A full log is renamed too: the program calls `begin_anew` and records its
    current state again.
    """

    def __init__(
        self, path: Path, head: Mapping[str, Any], program: str = "gateway", largest: int = 0
    ) -> None:
        self._lines: Final = LineBuffer(self._write)
        self._path: Final = path
        self._head: Final = dict(head)
        self._program: Final = program
        self._largest: Final = largest
        try:
            self._file: IO[bytes] = self._open()
        except OSError as error:
            raise OutputError(f"cannot write the log: {error.strerror}", where=str(path)) from None
        self._start()

    def _open(self) -> IO[bytes]:
        self._size = 0
        if self._largest and self._path.is_file():
            self._path.replace(f"{self._path}.1")
        return self._path.open("wb")

    def _start(self) -> None:
        self.record(0.0, f"{self._program}.started", self._program, "", dict(self._head))

    def record(
        self, now_s: float, kind: str, subject: str, reason: str, data: dict[str, Plain]
    ) -> None:
        self._lines.add(log_line(now_s, kind, subject, reason, data))

    @property
    def lost(self) -> int:
        return self._lines.lost

    @property
    def is_full(self) -> bool:
        return 0 < self._largest < self._size

    def begin_anew(self) -> None:
        self.close()
        try:
            self._file = self._open()
        except OSError:
            return  # lines that cannot be written are counted as lost
        self._start()

    def flush(self) -> None:
        self._lines.flush()

    def close(self) -> None:
        self.flush()
        with contextlib.suppress(OSError):
            self._file.close()

    def _write(self, data: bytes) -> None:
        self._size += len(data)
        self._file.write(data)
        self._file.flush()
