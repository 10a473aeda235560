"""Reads the rows of text files: CSV by column name, or one JSON object per line."""

import csv
import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

import msgspec

from windtunnel.core.errors import InputError, nearest, one_line
from windtunnel.core.units import counted
from windtunnel.workload.traces.lines import Lines
from windtunnel.workload.traces.notes import TraceNotes
from windtunnel.workload.traces.record import TraceRequest

MOST_COLUMNS = 1_000


class Columns:
    """Positions of a file's columns by name."""

    def __init__(self, header: Sequence[str], where: str) -> None:
        self.names = [name.strip() for name in header]
        self._where = where
        self._places: dict[str, int] = {}
        for place, name in enumerate(self.names):
            if name in self._places:
                raise InputError(f"the column {name[:60]!r} appears twice", where=where)
            self._places[name] = place

    def need(self, *names: str) -> list[int]:
        """The positions of required columns; raises an InputError for the first that is missing."""
        for name in names:
            if name not in self._places:
                found = one_line(", ".join(self.names), 200) or "nothing"
                what = f"the column {name!r} is missing (found: {found})"
                raise InputError(what, where=self._where, hint=nearest(name, self.names))
        return [self._places[name] for name in names]

    def want(self, *names: str) -> list[int]:
        """The positions of optional columns; -1 for those that are missing."""
        return [self._places.get(name, -1) for name in names]


Row = Sequence[str]
RowParser = Callable[[Row], TraceRequest]
Line = TypeVar("Line")


def csv_requests(
    path: Path,
    notes: TraceNotes,
    parser: Callable[[Columns], RowParser],
    earliest_s: float = 0.0,
    most_lines: int = 1,
) -> Iterator[TraceRequest]:
    """The requests of a CSV file whose first line names its columns.

    `parser` takes the columns and returns a function that turns a row into a request; a ValueError
    that it raises is a fault of that row. `most_lines` is the most lines that a row with free text
    may span.
    """
    lines = Lines(path, notes)
    rows = CsvRows(lines, most_lines)
    header = _header(rows, notes)
    parse = parser(Columns(header, f"{path}:{rows.number}"))
    width = len(header)
    while True:
        try:
            row = next(rows)
            if not row or (len(row) == 1 and not row[0].strip()):
                notes.blank(rows.number)
                continue
            request = parse(_even(row, width))
        except StopIteration:
            return
        except (ValueError, csv.Error, OverflowError) as error:
            notes.skip(str(error) or "the row cannot be read", rows.number)
            continue
        if notes.accepts(request, rows.number, earliest_s):
            yield request


class CsvRows:
    """The fields of each row: one line, or several where free text may contain line breaks.

    A quote that is not closed within those lines spoils its own line only, not the lines after it.
    """

    def __init__(self, lines: Lines, most_lines: int = 1) -> None:
        self._lines = lines
        self._texts = lines.texts()
        self._most_lines = most_lines
        self._ahead: deque[tuple[int, str]] = deque()
        self.number = 0
        """The line in which the latest row begins."""

    def __iter__(self) -> "CsvRows":
        return self

    def __next__(self) -> list[str]:
        if self._ahead:
            self.number, line = self._ahead.popleft()
        else:
            line = next(self._texts)
            self.number = self._lines.number
        if '"' not in line:
            return line.rstrip("\r").split(",") if line else []
        fields = csv.reader(chain((line,), self._following()), strict=True)
        try:
            row = next(fields)
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise csv.Error("a quoted field has no end") from None
            raise
        for _ in range(fields.line_num - 1):
            self._ahead.popleft()
        return row

    def _following(self) -> Iterator[str]:
        """The lines on which a row may continue; they stay queued until it is known to do so."""
        for at in range(self._most_lines - 1):
            if at == len(self._ahead):
                line = next(self._texts, None)
                if line is None:
                    return
                self._ahead.append((self._lines.number, line))
            yield self._ahead[at][1]


def _header(rows: Iterator[list[str]], notes: TraceNotes) -> list[str]:
    try:
        header = next((row for row in rows if any(row)), None)
    except csv.Error as error:
        raise notes.fault(f"the first line cannot be read: {error}", 1) from None
    if header is None:
        raise notes.fault("the file is empty")
    if len(header) > MOST_COLUMNS:
        raise notes.fault(f"there are more than {MOST_COLUMNS} columns", 1)
    return header


def _even(row: list[str], width: int) -> list[str]:
    if len(row) != width:
        cut = ", perhaps truncated" if len(row) < width else ""
        raise ValueError(f"the row has {counted(len(row), 'column')}, not {width}{cut}")
    return row


def csv_line(fields: Iterable[object]) -> str:
    """A row as a line of CSV; None becomes an empty field."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow("" if one is None else one for one in fields)
    return text.getvalue()


def json_requests(
    path: Path, notes: TraceNotes, kind: type[Line], parse: Callable[[Line], TraceRequest]
) -> Iterator[TraceRequest]:
    """The requests of a file with a JSON object per line; a line that is no valid `kind` is bad."""
    lines = Lines(path, notes)
    decode = msgspec.json.Decoder(kind).decode
    for line in lines.raw():
        try:
            request = parse(decode(line))
        except (ValueError, RecursionError, OverflowError) as error:
            notes.skip(_reason(error), lines.number)
            continue
        if notes.accepts(request, lines.number):
            yield request
    if not lines.number:
        raise notes.fault("the file is empty")


def _reason(error: Exception) -> str:
    """Why a line cannot be read, as a sentence."""
    if isinstance(error, msgspec.ValidationError):
        return f"not a valid request: {str(error)[0].lower()}{str(error)[1:200]}"
    if isinstance(error, msgspec.DecodeError | RecursionError | UnicodeDecodeError):
        return "the line is not JSON, perhaps truncated"
    return str(error)[:200] or "the line cannot be read"
