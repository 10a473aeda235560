"""The event log of a live program: a line for every fact and every decision."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from windtunnel.core.errors import OutputError
from windtunnel.core.telemetry import Event, Plain
from windtunnel.live.lines import LineFile, open_locked

STARTED: Final = "gateway.started"
OPERATOR_STARTED: Final = "operator.started"

_encode: Final = msgspec.json.Encoder().encode


def log_line(
    now_s: float, kind: str, subject: str, reason: str, data: Mapping[str, Plain]
) -> bytes:
    return _encode(Event(now_s, kind, subject, reason, data)) + b"\n"


class EventLogFile:
    """Writes the lines of an event log; with a full disk, lines are lost and counted, no more.

    A start begins with a line of its own, after those of earlier starts. Nothing is written before
    `open`, and one process at a time has a file open. With a limit of `largest` bytes, a full log
    is renamed to `FILE.1`, replacing the previous one: the program calls `begin_anew` and records
    its current state again.
    """

    def __init__(
        self, path: Path, head: Mapping[str, Any], program: str = "gateway", largest: int = 0
    ) -> None:
        log = logging.getLogger(f"windtunnel.{program}")
        self._lines: Final = LineFile(f"the event log {path}", self._open, log)
        self._path: Final = path
        self._head: Final = dict(head)
        self._program: Final = program
        self._largest: Final = largest
        self._start()

    def open(self) -> None:
        """Opens the file, once the program is certain to start; raises OutputError."""
        where = str(self._path)
        try:
            self._lines.open()
        except BlockingIOError:
            hint = "name another file, or stop that process"
            what = "another process writes this event log"
            raise OutputError(what, where=where, hint=hint) from None
        except OSError as error:
            raise OutputError(f"cannot write the log: {error.strerror}", where=where) from None
        self.flush()

    def _open(self) -> IO[bytes]:
        file = open_locked(self._path)
        if not self._is_over(os.fstat(file.fileno()).st_size):
            return file
        with file:
            self._path.replace(f"{self._path}.1")
        return open_locked(self._path)

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
        return self._is_over(self._lines.size)

    def _is_over(self, size: int) -> bool:
        return 0 < self._largest < size

    def begin_anew(self) -> None:
        self.close()
        self._start()
        self.flush()

    def flush(self) -> None:
        self._lines.flush()

    def close(self) -> None:
        self._lines.close()
