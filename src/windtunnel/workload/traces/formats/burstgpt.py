"""BurstGPT traces: seconds, model and token counts, with or without session and elapsed time."""

from collections.abc import Iterator
from pathlib import Path

from windtunnel.workload.traces.notes import NameCheck, TraceNotes, seconds, whole
from windtunnel.workload.traces.record import LONGEST_TRACE_S, TraceRequest
from windtunnel.workload.traces.rows import Columns, Row, RowParser, csv_line, csv_requests

COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens")
SESSION, ELAPSED, LOG = OPTIONAL = ("Session ID", "Elapsed time", "Log Type")


def read(path: Path, notes: TraceNotes) -> Iterator[TraceRequest]:
    """Reads a file; times count from the first row. Failed requests have no response tokens."""
    return csv_requests(path, notes, _parser, -LONGEST_TRACE_S)


def _parser(columns: Columns) -> RowParser:
    time_at, model_at, prompt_at, output_at = columns.need(*COLUMNS)
    session_at, elapsed_at, log_at = columns.want(*OPTIONAL)
    names = NameCheck()
    first_s: list[float] = []

    def parse(row: Row) -> TraceRequest:
        time_s = seconds(row[time_at])
        if time_s < 0:
            raise ValueError(f"the time is negative ({time_s:g} s)")
        if not first_s:
            first_s.append(time_s)
        elapsed = row[elapsed_at] if elapsed_at >= 0 else ""
        return TraceRequest(
            time_s - first_s[0],
            whole(row[prompt_at]),
            whole(row[output_at]),
            source=names(row[log_at]) if log_at >= 0 else None,
            session=names(row[session_at]) if session_at >= 0 else None,
            model=names(row[model_at]),
            e2e_s=seconds(elapsed) if elapsed else None,
        )

    return parse


WRITTEN = ("Timestamp", SESSION, ELAPSED, *COLUMNS[1:], "Total tokens", LOG)


def row(request: TraceRequest) -> str:
    """A request as a row in the format of the files with sessions."""
    prompt, output = request.prompt_tokens, request.output_tokens
    fields = (
        repr(float(request.arrived_s)),
        request.session,
        None if request.e2e_s is None else repr(float(request.e2e_s)),
        request.model,
        prompt,
        output,
        prompt + output,
        request.source,
    )
    return csv_line(fields)
