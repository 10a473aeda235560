"""Reads files that hold one JSON object a line."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from windtunnel.workload.traces.lines import Lines
from windtunnel.workload.traces.notes import TraceNotes
from windtunnel.workload.traces.record import TraceRequest, fault_of

Line = TypeVar("Line")


def json_requests(
    path: Path, notes: TraceNotes, kind: type[Line], parse: Callable[[Line], TraceRequest]
) -> Iterator[TraceRequest]:
    """The requests of a file; a line that is no `kind`, or no good one, is a bad row."""
    lines = Lines(path, notes)
    decode = msgspec.json.Decoder(kind).decode
    for line in lines.raw():
        try:
            request = parse(decode(line))
        except (ValueError, RecursionError, OverflowError) as error:
            notes.skip(said(error), lines.number)
            continue
        fault = fault_of(request)
        if fault:
            notes.skip(fault, lines.number)
        elif request.prompt_tokens and request.output_tokens:
            if request.slo is not None:
                notes.check_class(request.slo, lines.number)
            notes.line = lines.number
            yield request
        else:
            notes.empty += 1
    if not lines.number:
        raise notes.fault("the file is empty")


def said(error: Exception) -> str:
    """What keeps a line from being read, as a sentence."""
    if isinstance(error, msgspec.ValidationError):
        return f"not such a request: {str(error)[0].lower()}{str(error)[1:200]}"
    if isinstance(error, msgspec.DecodeError | RecursionError | UnicodeDecodeError):
        return "the line is not JSON, perhaps cut off"
    return str(error)[:200] or "the line cannot be read"
