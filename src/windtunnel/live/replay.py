"""Replays an event log through its program's decisions, in the log's own time.

A log holds every fact that was given to the decisions, and every decision. The same facts must
produce the same lines, byte for byte; the first line that differs is reported.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.telemetry import Plain
from windtunnel.live.event_log import log_line

LONGEST_LINE: Final = 16 << 20


class AuditReport(NamedTuple):
    """The result of a replay."""

    facts: int
    decisions: int
    difference: str
    """The first line that differs from the log, in words; empty if none does."""
    cut: bool
    """Whether the last line of the log is incomplete because the program was killed."""
    skipped: int = 0
    """Lines that are not replayed."""


class LogLine(msgspec.Struct):
    """A line of a log."""

    time: float
    kind: str
    subject: str
    reason: str = ""
    data: dict[str, Any] = {}


class MadeLines:
    """Collects the lines that a replay records; those before `place` have been matched."""

    def __init__(self) -> None:
        self.lines: Final[list[bytes]] = []
        self.place = 0

    def record(
        self, now_s: float, kind: str, subject: str, reason: str, data: dict[str, Plain]
    ) -> None:
        self.lines.append(log_line(now_s, kind, subject, reason, data))

    @property
    def left(self) -> bool:
        return self.place < len(self.lines)

    def clear(self) -> None:
        self.lines.clear()
        self.place = 0


class Replayed(Protocol):
    """A program's decisions, which record facts and decisions as they did for the original log."""

    decisions: tuple[str, ...]
    """Kinds of lines that are decisions."""

    def skips(self, line: LogLine) -> bool:
        """Whether a line is left out: neither applied as a fact nor expected as a decision."""
        ...

    def tell(self, line: LogLine) -> None:
        """Applies a logged fact; raises LookupError, TypeError or ValueError if impossible."""
        ...


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers; a line longer than `LONGEST_LINE` comes in pieces."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE):
                number += 1
                yield number, line
    except OSError as error:
        raise InputError(f"the log cannot be read: {error.strerror}", where=str(path)) from None


def first_line(path: Path) -> LogLine | None:
    """The first line, with which a program starts its log; None if the file is not a log."""
    raw = next(lines_of(path), (1, b""))[1]
    try:
        return msgspec.json.decode(raw, type=LogLine)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def replay(path: Path, program: Replayed, made: MadeLines, since_s: float = 0.0) -> AuditReport:
    """Replays all facts after the first line; `made` collects the lines that the program records. A
    truncated log has no decisions before `since_s`."""
    lines = lines_of(path)
    number = next(lines)[0]
    heard = decided = skipped = 0
    cut = False
    for number, raw in lines:
        if not raw.endswith(b"\n"):
            cut = True
            break
        line = _decoded(raw, path, number)
        if program.skips(line):
            skipped += 1
            continue
        if line.kind not in program.decisions:
            if made.left:
                break
            made.clear()
            heard += 1
            _tell(program, line, f"{path}:{number}")
            if line.time < since_s:
                del made.lines[1:]
        else:
            decided += 1
        if not made.left:
            what = f"{path}:{number}: the replay lacks a decision of the log: {_shown(raw)}"
            return AuditReport(heard, decided, what, cut, skipped)
        again = made.lines[made.place]
        if again != raw:
            what = f"{path}:{number}: the log has {_shown(raw)}, the replay {_shown(again)}"
            return AuditReport(heard, decided, what, cut, skipped)
        made.place += 1
    if made.left and not cut:
        what = f"{path}:{number}: the replay makes a decision that the log does not have: "
        what += _shown(made.lines[made.place])
        return AuditReport(heard, decided, what, cut, skipped)
    return AuditReport(heard, decided, "", cut, skipped)


def _decoded(raw: bytes, path: Path, number: int) -> LogLine:
    try:
        return msgspec.json.decode(raw, type=LogLine)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InputError("this is not a line of an event log", where=f"{path}:{number}") from None


def _tell(program: Replayed, line: LogLine, where: str) -> None:
    try:
        program.tell(line)
    except (
        *(LookupError, TypeError, ValueError, AttributeError, AssertionError),
        msgspec.ValidationError,
    ) as error:
        what = f"the fact {line.kind!r} is inconsistent with the lines before it ({error!r})"
        raise InputError(what, where=where) from None


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()[:300]
