"""Replays an event log through its program's decisions, in the log's own time.

A log holds every fact that was given to the decisions, and every decision. The same facts must
produce the same lines, byte for byte; the first line that differs is reported. Each start of the
program is a section of the log, replayed on its own.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.telemetry import Event, Plain
from windtunnel.live.event_log import OPERATOR_STARTED, STARTED, log_line
from windtunnel.live.rotation import is_rotated, opened

LONGEST_LINE: Final = 16 << 20
STARTS: Final = (STARTED, OPERATOR_STARTED)
START_WORD: Final = b'.started"'
START_BYTES: Final = 100
"""A line without the word in its first bytes is no start."""


class AuditReport(NamedTuple):
    """The result of a replay."""

    facts: int
    decisions: int
    difference: str
    """The first line that differs from the log, in words; empty if none does."""
    cut: bool
    """Whether a start ends within a line or before its last decision: the program was killed."""
    skipped: int = 0
    """Lines that are not replayed."""
    starts: int = 1


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

    def skips(self, line: Event) -> bool:
        """Whether a line is left out: neither applied as a fact nor expected as a decision."""
        ...

    def apply(self, line: Event) -> None:
        """Applies a logged fact; raises LookupError, TypeError or ValueError if impossible."""
        ...


class LogSection(NamedTuple):
    """A part of a log: what one start of the program wrote."""

    head: Event
    """Its first line."""
    where: str
    """File and number of that line."""
    place: int
    """The bytes before the next line, over all files of the log."""
    last_s: float
    """The time of its last line."""


class SectionLine(NamedTuple):
    """A line of a section; without `line`, it is the last and incomplete."""

    where: str
    """Its file and number."""
    raw: bytes
    line: Event | None


def sections_of(path: Path) -> list[LogSection]:
    """The starts in a log and its rotated files, oldest first; empty if the file is not a log.

    Lines before the first of them belong to a start whose file is no longer kept.
    """
    found: list[LogSection] = []
    before = last = b""
    is_first = True
    for where, place, raw in _lines_of(path, 0, 0):
        head = _decoded(raw) if is_first or START_WORD in raw[:START_BYTES] else None
        if head is not None and head.kind in STARTS:
            _close(found, last, before)
            found.append(LogSection(head, where, place, head.time))
        elif is_first and head is None:
            return []
        is_first = False
        before, last = last, raw
    _close(found, last, before)
    if not found and not is_first and is_rotated(path):
        what = "the file with the start of this log is no longer kept"
        hint = "live.log_keep of a gateway says how many are; a restart begins a new section"
        raise InputError(what, where=str(path), hint=hint)
    return found


def first_lines_missing(path: Path, first: LogSection) -> bool:
    """Whether a log has lines of an earlier start, whose file is no longer kept."""
    _, place, _ = next(_lines_of(path, 0, 0))
    return place < first.place


def _close(found: list[LogSection], *last: bytes) -> None:
    """Notes the end of the last section; of its last lines, one may be incomplete."""
    line = next((line for raw in last if (line := _decoded(raw)) is not None), None)
    if found and line is not None:
        found[-1] = found[-1]._replace(last_s=line.time)


def _lines_of(path: Path, place: int, number: int) -> Iterator[tuple[str, int, bytes]]:
    """The lines of a log after the first `place` bytes of its files, of which the last ended line
    `number` of a file: each with its file and number, and the place of its end.

    A line longer than `LONGEST_LINE` comes in pieces.
    """
    try:
        with opened(path) as files:
            before = 0
            for file in files:
                size = os.fstat(file.fileno()).st_size
                if place >= before + size:
                    number = 0
                else:
                    file.seek(max(0, place - before))
                    number = number if place > before else 0
                    while line := file.readline(LONGEST_LINE):
                        number += 1
                        yield f"{file.name}:{number}", before + file.tell(), line
                    size = file.tell()
                before += size
    except OSError as error:
        raise InputError(f"the log cannot be read: {error.strerror}", where=str(path)) from None


def lines_in(path: Path, section: LogSection) -> Iterator[SectionLine]:
    """All lines of a section after the first."""
    torn: SectionLine | None = None
    ends = False
    for where, _, raw in _lines_of(path, section.place, int(section.where.rpartition(":")[2])):
        line = _decoded(raw) if raw.endswith(b"\n") else None
        ends = line is not None and line.kind in STARTS
        if ends or torn is not None:
            break
        if line is None:
            torn = SectionLine(where, raw, None)
        else:
            yield SectionLine(where, raw, line)
    if torn is None:
        return
    if not ends and torn.raw.endswith(b"\n"):
        raise InputError("this is not a line of an event log", where=torn.where)
    yield torn


def audit_all(
    sections: Iterable[LogSection], audit: Callable[[LogSection], AuditReport]
) -> AuditReport:
    """Audits every start, up to the first that differs; the counts are totals."""
    whole = AuditReport(0, 0, "", cut=False, starts=0)
    for section in sections:
        one = audit(section)
        whole = AuditReport(
            whole.facts + one.facts,
            whole.decisions + one.decisions,
            one.difference,
            whole.cut or one.cut,
            whole.skipped + one.skipped,
            whole.starts + 1,
        )
        if one.difference:
            break
    return whole


def replay(
    path: Path, section: LogSection, program: Replayed, made: MadeLines, since_s: float = 0.0
) -> AuditReport:
    """Replays all facts of a section; `made` collects the lines that the program records. A
    truncated log has no decisions before `since_s`."""
    facts = decided = skipped = 0
    for where, raw, line in lines_in(path, section):
        if line is None:
            return AuditReport(facts, decided, "", cut=True, skipped=skipped)
        if program.skips(line):
            skipped += 1
            continue
        if line.kind not in program.decisions:
            if made.left:
                what = f"{where}: the replay makes a decision that the log does not have: "
                what += _shown(made.lines[made.place])
                return AuditReport(facts, decided, what, cut=False, skipped=skipped)
            made.clear()
            facts += 1
            _apply(program, line, where)
            if line.time < since_s:
                del made.lines[1:]
        else:
            decided += 1
        if not made.left:
            what = f"{where}: the replay lacks a decision of the log: {_shown(raw)}"
            return AuditReport(facts, decided, what, cut=False, skipped=skipped)
        again = made.lines[made.place]
        if again != raw:
            what = f"{where}: the log has {_shown(raw)}, the replay {_shown(again)}"
            return AuditReport(facts, decided, what, cut=False, skipped=skipped)
        made.place += 1
    return AuditReport(facts, decided, "", cut=made.left, skipped=skipped)


def _decoded(raw: bytes) -> Event | None:
    try:
        return msgspec.json.decode(raw, type=Event)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _apply(program: Replayed, line: Event, where: str) -> None:
    try:
        program.apply(line)
    except (
        *(LookupError, TypeError, ValueError, AttributeError, AssertionError),
        msgspec.ValidationError,
    ) as error:
        what = f"the fact {line.kind!r} is inconsistent with the lines before it ({error!r})"
        raise InputError(what, where=where) from None


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()[:300]
