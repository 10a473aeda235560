"""Traces recorded by a gateway: consecutive files in a folder, across restarts."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from windtunnel.core.errors import InputError

PATTERN = "trace-*.jsonl"
RESTART_S = 60.0
"""Times count from the gateway's start, so a drop larger than this suggests a restart."""
MOST_BEHIND = 20
"""Consecutive rows behind earlier ones that together mean a restart."""
MOST_HELD = 1_000
SAME_ARRIVAL_S = 1.0
"""Largest difference between a request's arrival times in the trace and in the gateway's log."""

Row = TypeVar("Row")


class StartOrder(Generic[Row]):
    """Finds the rows at which the gateway was restarted.

    A gateway opens a file when it starts, and writes a row when a request ends, timed from its
    start. A row that ended before earlier rows arrived therefore marks a restart if it is the first
    complete answer of its file, or if many rows in a row ended long before (files may be joined);
    a single one is merely late. Only complete answers have an end time: an answer that broke off
    may have arrived long before.
    """

    def __init__(self) -> None:
        self._latest_s = 0.0
        self._held: list[tuple[Row, float]] = []
        """Rows that may belong to the next start, with their arrival times."""
        self._behind = 0
        """The number of held rows that suggest a restart."""

    def take(
        self, row: Row, arrived_s: float, e2e_s: float | None, *, is_first: bool
    ) -> Iterator[tuple[bool, Row]]:
        """Takes a row; yields the rows now decided, and whether the gateway restarted at each.

        `is_first`: no earlier row of the file has a complete answer.
        """
        least_s = self._latest_s - (SAME_ARRIVAL_S if is_first else RESTART_S)
        is_behind = e2e_s is not None and arrived_s + e2e_s < least_s
        self._behind += is_behind
        self._held.append((row, arrived_s))
        if is_behind:
            if is_first or self._behind >= MOST_BEHIND:
                yield from self._decided(begins=True)
        elif e2e_s is not None or len(self._held) >= MOST_HELD or not (self._behind or is_first):
            yield from self._decided(begins=False)

    def rest(self) -> Iterator[tuple[bool, Row]]:
        """Decides the rows that are left at the end."""
        yield from self._decided(begins=self._behind > 0)

    def _decided(self, *, begins: bool) -> Iterator[tuple[bool, Row]]:
        held, self._held, self._behind = self._held, [], 0
        for row, arrived_s in held:
            self._latest_s = arrived_s if begins else max(self._latest_s, arrived_s)
            yield begins, row
            begins = False


class GatewayRow(NamedTuple):
    """A row as written, and the number of the gateway start that it belongs to."""

    start: int
    arrived_s: float
    row: dict[str, Any]


def one_trace(path: Path, stack: ExitStack, last_s: float | None = None) -> Path:
    """Returns the path of one file with all requests, or with the last `last_s` of a gateway's
    trace.

    The times of a part count from the cut. A file created here is deleted when `stack` closes.
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
    """The trace files of a folder, oldest first."""
    files = sorted(folder.glob(PATTERN))
    if not files:
        what = "the folder has no trace of a gateway"
        raise InputError(what, where=str(folder), allowed=f"files named {PATTERN}, or a file")
    return files


def joined_rows(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """All rows on one clock: times and ids continue after a restart."""
    shift_s = latest_s = 0.0
    start = 0
    for one in gateway_rows(files):
        if one.start > start:
            shift_s, start = latest_s, one.start
        latest_s = max(latest_s, one.arrived_s + shift_s)
        named = {"id": f"{start}-{one.row['id']}"} if start and "id" in one.row else {}
        yield {**one.row, "arrived": one.arrived_s + shift_s, **named}


def gateway_rows(files: Sequence[Path]) -> Iterator[GatewayRow]:
    """The rows of the files, oldest file first.

    Rows are in order of completion, so arrival times are out of order by up to the duration of a
    request. An unfinished last line, left by a killed gateway, is ignored.
    """
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    order = StartOrder[GatewayRow]()
    start = 0

    def counted(found: Iterator[tuple[bool, GatewayRow]]) -> Iterator[GatewayRow]:
        nonlocal start
        for begins, one in found:
            start += begins
            yield one._replace(start=start)

    for file in files:
        is_first = True
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    continue
                try:
                    row = decode(line)
                    one = GatewayRow(start, float(row["arrived"]), row)
                    e2e_s = None if row.get("e2e") is None else float(row["e2e"])
                except (msgspec.DecodeError, LookupError, TypeError, ValueError, RecursionError):
                    what = "this is not a row of a gateway's trace"
                    raise InputError(what, where=f"{file}:{number}") from None
                yield from counted(order.take(one, one.arrived_s, e2e_s, is_first=is_first))
                is_first = is_first and e2e_s is None
    yield from counted(order.rest())
