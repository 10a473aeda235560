"""The input of a batch: scanned once before anything is sent, then read on demand.

The scan finds every bad line, the kinds of rows, and a digest that must match when the run is
resumed. It keeps sixteen bytes a row; the content is read again when a row's turn comes.
"""

import hashlib
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from windtunnel.admission.queues.groups import PRIORITY_MAX
from windtunnel.core.errors import InputError, one_sentence_per, os_reason
from windtunnel.live.batch.settings import BatchSettings
from windtunnel.live.batch.work import WantedServer, Work, build_work, is_request

LONGEST_LINE = 16 << 20
BYTES_PER_TOKEN = 4
_ANSWER_CHANGED = 0.25
"""A relative change of the expected answer size beyond which turns are computed again."""
ANSWER_TOKENS = 512
"""The assumed size of an answer before any has arrived, if the request has no limit."""
MOST_FAULTS = 20
MOST_KINDS = 100_000
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LINES_NAMED = 5
"""Line numbers listed for one fault."""


class Kind(NamedTuple):
    """The scheduling attributes that rows share: tenant, model and priority."""

    tenant: str
    wanted: WantedServer | None
    """None if the row does not determine it."""
    priority: int = 0
    """Higher values go first."""


@dataclass(slots=True)
class RowData:
    """A row in progress: its fields, and the columns finished so far."""

    row: int
    line: int
    custom_id: str
    fields: dict[str, Any]
    values: dict[str, Any] = field(default_factory=dict)
    response: dict[str, Any] | None = None
    failed_at: str = ""
    """The endpoint that failed last for this row; the next attempt prefers another."""


class Rows:
    """All rows of a file, numbered from 0."""

    def __init__(self, file: int, path: Path, work: Work, found: "_Found") -> None:
        self.path = path
        self.work = work
        self.kinds: Sequence[Kind] = list(found.kinds)
        self.sha256 = found.digest.hexdigest()
        self._file = file
        self._starts = found.starts
        self._lines = found.lines
        self._kind_of = found.kind_of

    def __len__(self) -> int:
        return len(self._lines)

    def kind_of(self, row: int) -> int:
        return self._kind_of[row]

    def read(self, row: int) -> RowData:
        """Reads a row's fields from the file."""
        start, end = self._starts[row], self._starts[row + 1]
        raw = os.pread(self._file, end - start, start)
        line = self._lines[row]
        try:
            fields = msgspec.json.decode(raw.removeprefix(BYTE_ORDER_MARK).strip())
            assert isinstance(fields, dict)
        except (msgspec.DecodeError, AssertionError) as error:
            what = "the file has changed since this run began"
            raise InputError(what, where=f"{self.path}:{line}") from error
        custom_id = self.work.custom_id(fields) or f"row-{line}"
        return RowData(row, line, custom_id, fields)

    def tenants(self) -> list[str]:
        return list(dict.fromkeys(kind.tenant for kind in self.kinds))

    def tokens(self, row: int) -> int:
        """The approximate length of a row."""
        return (self._starts[row + 1] - self._starts[row]) // BYTES_PER_TOKEN

    def in_fair_order(
        self, weights: Mapping[str, int], answer_tokens: Callable[[], int] = int
    ) -> Iterator[int]:
        """Row numbers by priority; among equals, every prefix has each tenant's share.

        Shares count rows, or tokens if `answer_tokens` returns a number above 0. It is called for
        each row, since answer sizes and token limits may be learned during the run.
        """
        levels = sorted({kind.priority for kind in self.kinds}, reverse=True)
        tenants = self.tenants()
        if len(levels) == len(tenants) == 1:
            yield from range(len(self))
            return
        place = {tenant: number for number, tenant in enumerate(tenants)}
        theirs = {level: [array("Q") for _ in tenants] for level in levels}
        of_kind = [theirs[kind.priority][place[kind.tenant]] for kind in self.kinds]
        for row in range(len(self)):
            of_kind[self._kind_of[row]].append(row)
        each = [weights.get(tenant, 1) for tenant in tenants]
        for level in levels:
            yield from self._in_turns(theirs[level], each, answer_tokens)

    def _in_turns(
        self,
        theirs: Sequence[Sequence[int]],
        each: Sequence[int],
        answer_tokens: Callable[[], int],
    ) -> Iterator[int]:
        """All rows, ordered so that every prefix has each list's share by weight."""
        taken, prompts, answer = [0] * len(theirs), [0] * len(theirs), answer_tokens()

        def turn(whose: int) -> tuple[float, int]:
            number = taken[whose]
            cost = number + 1
            if answer:
                cost = prompts[whose] + self.tokens(theirs[whose][number]) + cost * answer
            return cost / each[whose], whose

        turns = [turn(whose) for whose, rows in enumerate(theirs) if rows]
        heapify(turns)
        while turns:
            learned = answer_tokens()
            if abs(learned - answer) > _ANSWER_CHANGED * answer:
                answer = learned
                turns = [turn(whose) for _, whose in turns]
                heapify(turns)
            whose = turns[0][1]
            row = theirs[whose][taken[whose]]
            yield row
            taken[whose] += 1
            prompts[whose] += self.tokens(row)
            if taken[whose] == len(theirs[whose]):
                heappop(turns)
            else:
                heapreplace(turns, turn(whose))

    def close(self) -> None:
        os.close(self._file)


class _Found:
    def __init__(self) -> None:
        self.starts = array("Q")
        self.lines = array("Q")
        self.kind_of = array("L")
        self.kinds: dict[Kind, int] = {}
        self.digest = hashlib.sha256()
        self.faults: dict[str, list[int]] = {}
        """The line numbers of each fault."""
        self.bad = 0
        self.fields: dict[str, None] = {}
        """The fields named by options that at least one row has."""
        self.ids: dict[str, int] = {}


def open_rows(plan: BatchSettings) -> Rows:
    """Scans the input; bad lines are reported, up to `MOST_FAULTS`."""
    path = plan.input
    where = str(path)
    if path.exists() and not path.is_file():
        what = "the input cannot be read: it is not a regular file"
        raise InputError(what, where=where, hint="it is read twice")
    try:
        file = os.open(path, os.O_RDONLY)
    except (OSError, ValueError) as error:
        raise InputError(f"the input cannot be read: {os_reason(error)}", where=where) from error
    try:
        return Rows(file, path, *_look_through(file, plan))
    except BaseException:
        os.close(file)
        raise


def _look_through(file: int, plan: BatchSettings) -> tuple[Work, _Found]:
    found, work = _Found(), None
    place = 0
    with os.fdopen(os.dup(file), "rb") as lines:
        for number, raw in enumerate(iter(lambda: lines.readline(LONGEST_LINE + 1), b""), start=1):
            found.digest.update(raw)
            start, place = place, place + len(raw)
            if len(raw) > LONGEST_LINE:
                what = f"the line is longer than {LONGEST_LINE >> 20} MiB"
                raise InputError(what, where=f"{plan.input}:{number}")
            text = raw.removeprefix(BYTE_ORDER_MARK).strip() if number == 1 else raw.strip()
            if not text:
                continue
            row, fault = _decoded(text)
            if row is not None and work is None:
                work = build_work(plan, requests=is_request(row))
            if row is not None and work is not None:
                fault = work.fault(row) or _file_row(found, work, plan, row, number)
            found.starts.append(start)
            found.lines.append(number)
            if fault:
                found.faults.setdefault(fault, []).append(number)
                found.bad += 1
                if found.bad >= MOST_FAULTS:
                    break
    found.starts.append(place)
    found.ids.clear()
    _refuse(found, plan)
    assert work is not None
    return work, found


def _refuse(found: _Found, plan: BatchSettings) -> None:
    faults = [
        InputError(f"{fault}{_and_more(lines[1:])}", where=f"{plan.input}:{lines[0]}")
        for fault, lines in found.faults.items()
    ]
    if found.bad >= MOST_FAULTS:
        what = "there may be more faults; the rest was not looked at"
        faults.append(InputError(what, where=str(plan.input)))
    if faults:
        raise one_sentence_per(faults)
    if not found.lines:
        raise InputError("the file has no rows", where=str(plan.input))
    for option, name in _field_options(plan):
        if name and name not in found.fields:
            raise InputError(f"no row has a field {name!r}", where=option)
    tenants = {kind.tenant for kind in found.kinds}
    for name in plan.tenant_weights:
        if name not in tenants:
            raise InputError(
                f"no row is of the tenant {name!r}",
                where="--tenant-weight",
                allowed=", ".join(sorted(tenants)[:20]),
            )


def _and_more(lines: Sequence[int]) -> str:
    """The other lines with the same fault, in words."""
    if not lines:
        return ""
    count = "1 more line" if len(lines) == 1 else f"{len(lines)} more lines"
    more = ", ..." if len(lines) > LINES_NAMED else ""
    return f" (and {count}: {', '.join(map(str, lines[:LINES_NAMED]))}{more})"


def _decoded(text: bytes) -> tuple[dict[str, Any] | None, str]:
    try:
        row = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return None, f"this line is not JSON: {str(error).rstrip('.')}"
    except RecursionError:
        return None, "this line is nested too deep"
    if not isinstance(row, dict):
        return None, "this line is not a mapping; a row is {...}"
    return row, ""


def _file_row(
    found: _Found, work: Work, plan: BatchSettings, row: dict[str, Any], number: int
) -> str:
    """Assigns a row to its kind; returns the fault, if any."""
    custom_id = work.custom_id(row) or f"row-{number}"
    before = found.ids.setdefault(custom_id, number)
    if before != number:
        return f"the id {custom_id[:60]!r} is the id of line {before} too"
    said, urgency = (_field(found, row, field) for _, field in _field_options(plan))
    tenant = "" if said is None else str(said)[:200]
    priority = 0 if urgency is None else urgency
    if type(priority) is not int or not -PRIORITY_MAX <= priority <= PRIORITY_MAX:
        allowed = f"a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}"
        return f"the priority {urgency!r:.24} is not {allowed}"
    kind = Kind(tenant, work.wanted(0, row) if work.by_row else None, priority)
    place = found.kinds.setdefault(kind, len(found.kinds))
    if len(found.kinds) > MOST_KINDS:
        return f"there are more than {MOST_KINDS:,} kinds of rows by tenant, priority and model"
    found.kind_of.append(place)
    return ""


def _field_options(plan: BatchSettings) -> tuple[tuple[str, str], ...]:
    return ("--tenant-field", plan.tenant_field), ("--priority-field", plan.priority_field)


def _field(found: _Found, row: Mapping[str, Any], name: str) -> Any:
    """The value of a field in a row or in its request body; None if neither has it."""
    if not name:
        return None
    said = row.get(name)
    if said is None and isinstance(row.get("body"), dict):
        said = row["body"].get(name)
    if said is not None:
        found.fields[name] = None
    return said
