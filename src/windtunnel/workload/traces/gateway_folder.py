"""The trace of a gateway: files that follow each other in a folder, over restarts."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from windtunnel.core.errors import InputError

PATTERN = "trace-*.jsonl"
RESTART_S = 60.0
"""A gateway counts from its start: times that fall by more are those of the next start."""
MOST_BEHIND = 20
"""Rows behind those before them, one after the other: the gateway was started again."""
MOST_HELD = 1_000
SAME_ARRIVAL_S = 1.0
"""Between the arrival of a request in the trace and in the gateway's log, at most."""

Row = TypeVar("Row")


class StartOrder(Generic[Row]):
    """Finds the rows with which a trace begins anew, since the gateway was started again.

    A gateway begins a file when it starts, and writes rows when requests end, timed from its start.
    So a row that ended before others arrived begins a start if it is the first complete answer of
    its file, or if many in a row ended long before (files may be joined); a single one is late.
    Only complete answers say when they ended: one that broke off may have arrived long before.
    """

    def __init__(self) -> None:
        self._latest_s = 0.0
        self._held: list[tuple[Row, float]] = []
        """Rows that may be of another start, with their arrivals."""
        self._behind = 0
        """Those of them that show it."""

    def take(
        self, row: Row, arrived_s: float, e2e_s: float | None, *, is_first: bool
    ) -> Iterator[tuple[bool, Row]]:
        """The rows that are decided now, and whether the gateway started with it.

        `is_first`: the file has had no complete answer before it.
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
        """The same of what is left at the end."""
        yield from self._decided(begins=self._behind > 0)

    def _decided(self, *, begins: bool) -> Iterator[tuple[bool, Row]]:
        held, self._held, self._behind = self._held, [], 0
        for row, arrived_s in held:
            self._latest_s = arrived_s if begins else max(self._latest_s, arrived_s)
            yield begins, row
            begins = False


class GatewayRow(NamedTuple):
    """A row as it is written, and which start of the gateway it is of."""

    start: int
    arrived_s: float
    row: dict[str, Any]


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
