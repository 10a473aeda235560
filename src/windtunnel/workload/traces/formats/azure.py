"""Azure LLM inference traces of 2023 and 2024: TIMESTAMP, ContextTokens, GeneratedTokens."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from windtunnel.workload.traces.notes import TraceNotes, whole
from windtunnel.workload.traces.record import LONGEST_TRACE_S, TraceRequest
from windtunnel.workload.traces.rows import Columns, Row, RowParser, csv_requests

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
WRITTEN_FROM = datetime(2000, 1, 1, tzinfo=UTC)
"""The start date of a trace written in this format, since traces have no date of their own."""

_SECONDS = re.compile(r"(\d{2}(?:\.\d{1,12})?)(?:Z|([+-])(\d{2}):?(\d{2}))?", re.ASCII)


def read(path: Path, notes: TraceNotes) -> Iterator[TraceRequest]:
    """Reads a file; times count from the first row. Only the 2024 files name a time zone."""
    return csv_requests(path, notes, _parser, -LONGEST_TRACE_S)


def _parser(columns: Columns) -> RowParser:
    time_at, prompt_at, output_at = columns.need(*COLUMNS)
    stamps = Timestamps()

    def parse(row: Row) -> TraceRequest:
        time_s = stamps.since_first_s(row[time_at])
        return TraceRequest(time_s, whole(row[prompt_at]), whole(row[output_at]))

    return parse


class Timestamps:
    """Converts timestamps to seconds since the first one, with all digits written."""

    def __init__(self) -> None:
        self._minute = ""
        self._minute_s = 0
        self._first: tuple[int, float] | None = None

    def since_first_s(self, text: str) -> float:
        minute = text[:16]
        match = _SECONDS.fullmatch(text, 17)
        if match is None or text[16] != ":":
            raise ValueError(f"{text[:60]!a} is not a time such as 2023-11-16 18:17:03.9799600")
        if minute != self._minute:
            self._minute_s = _minute_s(minute)
            self._minute = minute
        second, sign, hours, minutes = match.groups()
        minute_s = self._minute_s
        if sign:
            offset_s = int(hours) * 3600 + int(minutes) * 60
            minute_s += offset_s if sign == "-" else -offset_s
        if self._first is None:
            self._first = (minute_s, float(second))
        first_minute_s, first_second = self._first
        return minute_s - first_minute_s + (float(second) - first_second)


def _minute_s(minute: str) -> int:
    try:
        return int(datetime.fromisoformat(minute).replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise ValueError(f"{minute[:60]!a} is not a date and time") from None


def row(request: TraceRequest) -> str:
    """A request as a line in the format of the 2023 files."""
    ticks = round(request.arrived_s * 1e7)
    moment = WRITTEN_FROM + timedelta(seconds=ticks // 10**7)
    stamp = f"{moment:%Y-%m-%d %H:%M:%S}.{ticks % 10**7:07}"
    return f"{stamp},{request.prompt_tokens},{request.output_tokens}\n"
