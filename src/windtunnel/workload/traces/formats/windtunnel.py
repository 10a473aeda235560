"""Windtunnel's own traces as text: CSV, or one JSON object per line, with the same columns."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.workload.traces.notes import IdCheck, NameCheck, TraceNotes, seconds, whole
from windtunnel.workload.traces.record import TraceRequest
from windtunnel.workload.traces.rows import (
    Columns,
    Row,
    RowParser,
    csv_line,
    csv_requests,
    json_requests,
)

NEEDED = ("arrived", "prompt_tokens", "output_tokens")
NAMES = ("id", "source", "tenant", "slo", "session")
TURN = "turn"
MODELS = ("model", "adapter")
SPANS = ("deadline", "ttft", "e2e", "think")
ANSWER = "answer_key"
MEDIA = "media_tokens"
PREFIX = ("prefix_keys", "prefix_ends")
COLUMNS = (*NEEDED, *NAMES, TURN, *MODELS, *SPANS, ANSWER, MEDIA, *PREFIX)
"""All columns in the order of TraceRequest's fields; only the first three are required."""
NAME_PLACES = tuple(COLUMNS.index(name) for name in (*NAMES, *MODELS))


class TraceLine(msgspec.Struct, gc=False, omit_defaults=True):
    """One line of the file; its fields are those of TraceRequest, in order."""

    arrived: float
    prompt_tokens: int
    output_tokens: int
    id: str | int | None = None
    source: str | None = None
    tenant: str | None = None
    slo: str | None = None
    session: str | int | None = None
    turn: int | None = None
    model: str | None = None
    adapter: str | None = None
    deadline: float | None = None
    ttft: float | None = None
    e2e: float | None = None
    think: float | None = None
    answer_key: int | None = None
    media_tokens: int | None = None
    prefix_keys: tuple[int, ...] = ()
    prefix_ends: tuple[int, ...] = ()


def read_json(path: Path, notes: TraceNotes) -> Iterator[TraceRequest]:
    """Reads JSON lines; times count from the trace's start, as written."""
    names, ids = NameCheck(), IdCheck()

    def request(line: TraceLine) -> TraceRequest:
        fields = list(msgspec.structs.astuple(line))
        for at in NAME_PLACES:
            if fields[at] is not None:
                fields[at] = names(str(fields[at]))
        made = TraceRequest(*fields)
        once(made, ids)
        return made

    return json_requests(path, notes, TraceLine, request)


def once(request: TraceRequest, ids: IdCheck) -> None:
    """Raises ValueError if an id is repeated."""
    if request.id is not None and ids.repeated(request.id):
        raise ValueError(f"the id {request.id[:60]!a} appears twice")


def read_csv(path: Path, notes: TraceNotes) -> Iterator[TraceRequest]:
    """Reads CSV; times count from the trace's start, as written."""
    return csv_requests(path, notes, _parser)


def _parser(columns: Columns) -> RowParser:
    time_at, prompt_at, output_at = columns.need(*NEEDED)
    name_ats = columns.want(*NAMES)
    turn_at, answer_at, media_at = columns.want(TURN, ANSWER, MEDIA)
    model_ats, span_ats, prefix_ats = (columns.want(*names) for names in (MODELS, SPANS, PREFIX))
    names, ids = NameCheck(), IdCheck()

    def parse(row: Row) -> TraceRequest:
        fields: list[Any] = [
            seconds(row[time_at]),
            whole(row[prompt_at]),
            whole(row[output_at]),
            *(names(row[at]) if at >= 0 else None for at in name_ats),
            whole(row[turn_at]) if turn_at >= 0 and row[turn_at] else None,
            *(names(row[at]) if at >= 0 else None for at in model_ats),
            *(seconds(row[at]) if at >= 0 and row[at] else None for at in span_ats),
            whole(row[answer_at]) if answer_at >= 0 and row[answer_at] else None,
            whole(row[media_at]) if media_at >= 0 and row[media_at] else None,
            *(_numbers(row[at]) if at >= 0 else () for at in prefix_ats),
        ]
        made = TraceRequest(*fields)
        once(made, ids)
        return made

    return parse


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split())) if text else ()


def header() -> str:
    """The header line of the CSV form."""
    return ",".join(COLUMNS) + "\n"


def row(request: TraceRequest) -> str:
    """A request as a line of CSV."""
    fields = list(msgspec.structs.astuple(request))
    fields[0] = repr(float(request.arrived_s))
    fields[-2:] = " ".join(map(str, request.prefix_keys)), " ".join(map(str, request.prefix_ends))
    return csv_line(fields)


def line(request: TraceRequest) -> bytes:
    """A request as a line of JSON; unknown fields are left out."""
    return msgspec.json.encode(TraceLine(*msgspec.structs.astuple(request))) + b"\n"
