"""The trace of a gateway: files that follow each other in a folder, over restarts."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from windtunnel.core.errors import InputError

PATTERN = "trace-*.jsonl"
RESTART_S = 60.0
"""A gateway counts from its start: times that fall by more are those of the next start."""
SAME_ARRIVAL_S = 1.0
"""Between the arrival of a request in the trace and in the gateway's log, at most."""


class GatewayRow(NamedTuple):
    """A row as it is written, and which start of the gateway it is of."""

    start: int
    arrived_s: float
    row: dict[str, Any]

    @property
    def ended_s(self) -> float:
        """When its answer was complete; of others the time of its arrival."""
        e2e = self.row.get("e2e")
        return self.arrived_s + (float(e2e) if isinstance(e2e, int | float) else 0.0)


def one_trace(path: Path, stack: ExitStack, last_s: float | None = None) -> Path:
    """The path of a file with all requests, or with those of the `last_s` of a gateway's trace.

    The clock of a part begins where it is cut. A file that is made is gone when `stack` ends.
    """
    if last_s is None and not path.is_dir():
        return path
    files = gateway_files(path) if path.is_dir() else [path]
    first_s = 0.0
    if last_s is not None:
        latest_s = max((row["arrived"] for row in joined_rows(files)), default=0.0)
        first_s = max(0.0, latest_s - last_s)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="windtunnel-")))
    joined = folder / f"{path.name.removesuffix('.jsonl') or 'trace'}.jsonl"
    with joined.open("wb") as out:
        for row in joined_rows(files):
            at_s = row["arrived"] - first_s
            if last_s is None or at_s >= 0.0:
                out.write(msgspec.json.encode({**row, "arrived": at_s}) + b"\n")
    return joined


def gateway_files(folder: Path) -> list[Path]:
    """The files of a folder, the oldest first."""
    files = sorted(folder.glob(PATTERN))
    if not files:
        what = "the folder has no trace of a gateway"
        raise InputError(what, where=str(folder), allowed=f"files named {PATTERN}, or a file")
    return files


def joined_rows(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """All rows on one clock: after a restart times and ids go on."""
    shift_s = latest_s = 0.0
    start = 0
    for one in gateway_rows(files):
        if one.start > start:
            shift_s, start = latest_s, one.start
        latest_s = max(latest_s, one.arrived_s + shift_s)
        named = {"id": f"{start}-{one.row['id']}"} if start and "id" in one.row else {}
        yield {**one.row, "arrived": one.arrived_s + shift_s, **named}


def gateway_rows(files: Sequence[Path]) -> Iterator[GatewayRow]:
    """The rows of files, oldest first.

    Rows are in order of their ends, so times go back and forth by the length of an answer. A last
    line that a killed gateway did not finish is left out.
    """
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    latest_s = 0.0
    start = 0
    for file in files:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    continue
                try:
                    row = decode(line)
                    one = GatewayRow(start, float(row["arrived"]), row)
                except (msgspec.DecodeError, LookupError, TypeError, ValueError):
                    what = "this is not a row of a gateway's trace"
                    raise InputError(what, where=f"{file}:{number}") from None
                if one.ended_s < latest_s - RESTART_S:
                    start, latest_s = start + 1, 0.0
                    one = one._replace(start=start)
                latest_s = max(latest_s, one.arrived_s)
                yield one
