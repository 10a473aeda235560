"""The event log of a live program: a line for every fact and every decision."""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from windtunnel.core.errors import OutputError
from windtunnel.core.telemetry import Event, Plain
from windtunnel.live.lines import LineFile, open_locked
from windtunnel.live.rotation import LOG_LIMITS, LogLimits, rotate

STARTED: Final = "gateway.started"
OPERATOR_STARTED: Final = "operator.started"
ANEW_WITHIN: Final = 2.0
"""A program records its state anew before a file has this many times its size; else the log goes on
in the next file without it."""

_encode: Final = msgspec.json.Encoder().encode


def log_line(
    now_s: float, kind: str, subject: str, reason: str, data: Mapping[str, Plain]
) -> bytes:
    return _encode(Event(now_s, kind, subject, reason, data)) + b"\n"


class EventLogFile:
    """Writes the lines of an event log; with a full disk, lines are lost and counted, no more.

    A start begins with a line of its own, after those of earlier starts. Nothing is written before
    `open`, and one process at a time has a file open. A file that is full is rotated
    (`windtunnel.live.rotation`), and the log goes on in the next one; a program that `records_anew`
    calls `begin_anew` instead, and records its current state again.
    """

    def __init__(
        self,
        path: Path,
        head: Mapping[str, Any],
        program: str = "gateway",
        limits: LogLimits = LOG_LIMITS,
        *,
        records_anew: bool = False,
    ) -> None:
        log = logging.getLogger(f"windtunnel.{program}")
        self._lines: Final = LineFile(f"the event log {path}", self._open, log)
        self._path: Final = path
        self._head: Final = dict(head)
        self._program: Final = program
        self._limits: Final = limits
        self._goes_on_at: Final = limits.rotate_bytes * (ANEW_WITHIN if records_anew else 1.0)
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
        if os.fstat(file.fileno()).st_size <= self._limits.rotate_bytes:
            return file
        with file:
            rotate(self._path, self._limits.keep)
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
        return self._lines.size > self._limits.rotate_bytes

    def begin_anew(self) -> None:
        self.close()
        self._start()
        self.flush()

    def flush(self) -> None:
        self._lines.flush()
        if self._lines.size > self._goes_on_at:
            with suppress(OSError):  # the next lines try again, and are counted if they are lost
                self._lines.open()

    def close(self) -> None:
        self._lines.close()
