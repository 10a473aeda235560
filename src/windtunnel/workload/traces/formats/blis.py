"""BLIS TraceV2: a CSV of requests with a YAML header of the same name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from windtunnel.workload.traces.lines import first_bytes
from windtunnel.workload.traces.notes import IdCheck, NameCheck, TraceNotes, whole
from windtunnel.workload.traces.record import LONGEST_TRACE_S, TraceRequest, key_of
from windtunnel.workload.traces.rows import Columns, Row, RowParser, csv_line, csv_requests

COLUMNS = ("request_id", "input_tokens", "output_tokens", "arrival_time_us")
NAMES = (
    "client_id",
    "tenant_id",
    "slo_class",
    "session_id",
    "model",
    "prefix_group",
    "adapter",
)
COUNTS = (
    "round_index",
    "prefix_length",
    "deadline_us",
    "send_time_us",
    "first_chunk_time_us",
    "last_chunk_time_us",
    "server_input_tokens",
    "think_time_us",
    "image_tokens",
    "audio_tokens",
    "video_tokens",
)
HEADERS = (".yaml", ".yml")
VERSIONS = (2, 3)
MICROSECONDS = ("us", "microseconds", "")
LARGEST_HEADER = 1024**2
MOST_LINES = 100
"""Lines of one row: its error message can be any text."""


def read(path: Path, notes: TraceNotes) -> Iterator[TraceRequest]:
    """Reads a trace given its CSV or its header; times count from the first row."""
    if path.suffix.lower() in HEADERS:
        _check_header(path)
        path = _beside(path, (".csv", ".csv.gz"), notes)
        notes.path = str(path)
    else:
        for ending in HEADERS:
            header = path.with_name(path.name.removesuffix(".gz")).with_suffix(ending)
            if header.is_file():
                _check_header(header)
                break
    return csv_requests(path, notes, _parser, -LONGEST_TRACE_S, MOST_LINES)


def _beside(header: Path, endings: tuple[str, ...], notes: TraceNotes) -> Path:
    for ending in endings:
        data = header.with_suffix(ending)
        if data.is_file():
            return data
    raise notes.fault(f"there is no {header.with_suffix('.csv').name} beside this header")


def _check_header(path: Path) -> None:
    import yaml

    notes = TraceNotes(str(path))
    text = first_bytes(path, LARGEST_HEADER + 1)
    if len(text) > LARGEST_HEADER:
        raise notes.fault(f"the header has more than {LARGEST_HEADER} bytes")
    try:
        header: Any = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise notes.fault("the header is not YAML") from None
    if not isinstance(header, dict) or "trace_version" not in header:
        return  # an unrelated file with the same name
    if header["trace_version"] not in VERSIONS:
        allowed = " and ".join(map(str, VERSIONS))
        version = str(header["trace_version"])[:60]
        raise notes.fault(f"the trace_version is {version}", allowed=allowed)
    unit = header.get("time_unit", "")
    if unit not in MICROSECONDS:
        raise notes.fault(f"the time_unit is {str(unit)[:60]!r}", allowed="microseconds")


def _parser(columns: Columns) -> RowParser:
    id_at, input_at, output_at, arrival_at = columns.need(*COLUMNS)
    names_at = columns.want(*NAMES)
    counts_at = columns.want(*COUNTS)
    names, ids = NameCheck(), IdCheck()
    prefixes: dict[str, int] = {}
    first_us: list[int] = []

    def parse(row: Row) -> TraceRequest:
        arrival_us = whole(row[arrival_at])
        if arrival_us < 0:
            raise ValueError(f"arrival_time_us is negative ({row[arrival_at][:60]})")
        client, tenant, slo, session, model, group, adapter = (
            names(row[at]) if at >= 0 else None for at in names_at
        )
        counts = [whole(row[at] or "0") if at >= 0 else 0 for at in counts_at]
        turn, prefix, deadline_us, send_us, shown_us, done_us, served, think_us, *media = counts
        if prefix < 0:
            raise ValueError(f"the prefix_length is {prefix}")
        name = names(row[id_at])
        if name is None or ids.repeated(name):
            raise ValueError(f"the request_id {name!r} appears twice" if name else "no request_id")
        own = whole(row[input_at])
        if group is None:
            prefix = 0
            own = served if served > 0 else own
        elif prefix or group in prefixes:
            prefix = prefixes.setdefault(group, prefix)
        sent_us = send_us if send_us > 0 else arrival_us
        if not first_us:
            first_us.append(sent_us)
        return TraceRequest(
            (sent_us - first_us[0]) / 1e6,
            own + prefix,
            whole(row[output_at]),
            id=name,
            source=client,
            tenant=tenant,
            slo=slo,
            session=session,
            turn=turn if session is not None else None,
            model=model,
            adapter=adapter,
            deadline_s=max(deadline_us - sent_us, 0) / 1e6 if deadline_us else None,
            ttft_s=(shown_us - sent_us) / 1e6 if shown_us else None,
            e2e_s=(done_us - sent_us) / 1e6 if done_us else None,
            think_s=think_us / 1e6 if think_us else None,
            media_tokens=sum(media) or None,
            prefix_keys=(key_of(group),) if group is not None and prefix else (),
            prefix_ends=(prefix,) if prefix else (),
        )

    return parse


WRITTEN = (
    "request_id", "client_id", "tenant_id", "slo_class", "session_id", "round_index",
    "prefix_group", "prefix_length", "streaming", "input_tokens", "output_tokens", "text_tokens",
    "image_tokens", "audio_tokens", "video_tokens", "reason_ratio", "model", "deadline_us",
    "server_input_tokens", "arrival_time_us", "send_time_us", "first_chunk_time_us",
    "last_chunk_time_us", "num_chunks", "status", "error_message", "finish_reason", "adapter",
    "think_time_us",
)  # fmt: skip
"""The columns in BLIS's order; BLIS reads all but the last two by position."""
WRITTEN_HEADER = """\
trace_version: 3
time_unit: microseconds
mode: generated
warm_up_requests: 0
"""
"""The header file that is written with the rows."""


def row(request: TraceRequest, number: int) -> str:
    """A request as a row. Its own id is lost, since BLIS numbers requests."""
    if len(request.prefix_keys) > 1:
        what = f"a prefix of {len(request.prefix_keys)} segments"
        raise ValueError(f"{what} cannot be written as one prefix_group")
    prefix = request.prefix_ends[0] if request.prefix_ends else 0
    group = f"{request.prefix_keys[0] % 2**64:x}" if request.prefix_keys else None
    media = request.media_tokens or 0
    arrival_us = round(request.arrived_s * 1e6)

    def after(span_s: float | None) -> int:
        return 0 if span_s is None else arrival_us + round(span_s * 1e6)

    own = request.prompt_tokens - prefix
    fields = (
        number, request.source, request.tenant, request.slo, request.session, request.turn or 0,
        group, prefix, "true", own, request.output_tokens, max(own - media, 0),
        media, 0, 0, 0, request.model, after(request.deadline_s),
        0, arrival_us, arrival_us, after(request.ttft_s),
        after(request.e2e_s), 0, "ok", None, None, request.adapter,
        round((request.think_s or 0.0) * 1e6),
    )  # fmt: skip
    return csv_line(fields)
