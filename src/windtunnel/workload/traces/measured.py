"""Measured traces: our own Parquet format with additional columns for measurements of a real
server.

Read as a trace, they contain the requests as they were sent, with TTFT and E2E. Rows are in order
of completion.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from windtunnel.core.errors import InputError, OutputError
from windtunnel.core.statistics.distribution import quantile_of
from windtunnel.workload.traces.formats import parquet
from windtunnel.workload.traces.record import TraceRequest
from windtunnel.workload.traces.writing import cannot_write, draft_of, place_of

ROWS_AT_ONCE = 4_096
PART = ".part"
"""Suffix of the file name while a trace is being measured."""

LATE_S = 0.010
"""Requests sent later than this distort the measurement."""

COMPLETED = "completed"
REJECTED = "rejected"
TIMED_OUT = "timed_out"
FAILED = "failed"
CUT_OFF = "cut_off"
UNFINISHED = "unfinished"
OUTCOMES = (COMPLETED, REJECTED, TIMED_OUT, FAILED, CUT_OFF, UNFINISHED)
"""The outcomes of a measured request. `failed` is a server error or no answer at all; `cut_off` is
an answer that began and broke off."""


class Measured(NamedTuple):
    """One request, and the measurements besides its TTFT and E2E."""

    request: TraceRequest
    due_s: float
    """When it should have been sent; `arrived_s` is when it was."""
    outcome: str
    status: int
    """HTTP status; 0 if there was no answer."""
    error: str | None
    cached_tokens: int | None
    gaps_s: list[float]
    """Gaps between the chunks of the answer."""


def schema() -> Any:
    """The columns of a trace, followed by those for measurements."""
    import pyarrow as pa

    own = parquet.schema()
    more = [
        ("due", pa.float64()),
        ("outcome", pa.string()),
        ("status", pa.int32()),
        ("error", pa.string()),
        ("cached_tokens", pa.int64()),
        ("gaps_us", pa.list_(pa.int32())),
    ]
    fields = [*own, *(pa.field(name, kind) for name, kind in more)]
    return pa.schema(fields, metadata=parquet.BY_END)


class MeasuredTrace:
    """A trace file being written; the rows collected so far appear under its name when it is
    closed.

    Until then rows are in an Arrow stream beside it, which can be read as a trace even if this
    process dies. The constructor checks that the place is writable. Used as a context manager, it
    leaves no file if nothing was measured.
    """

    def __init__(self, path: Path, *, replace: bool) -> None:
        import pyarrow as pa

        pa.array([0.0])  # imports pandas where it is installed: not while requests are measured
        self.path = path
        self.rows = 0
        if path.suffix.lower() != ".parquet":
            allowed = "a name that ends in .parquet"
            raise InputError("a measured trace is Parquet", where=str(path), allowed=allowed)
        self._schema = schema()
        self._waiting: list[Measured] = []
        self._flushed = 0
        try:
            self._place = place_of(path, replace=replace)
            self._part = self._place.with_name(self._place.name + PART)
            self._file = _open_part(self._part, path, replace=replace)
        except OSError as error:
            raise cannot_write(path, error) from error
        self._stream = pa.ipc.new_stream(self._file, self._schema)

    def add(self, measured: Measured) -> None:
        self._waiting.append(measured)
        self.rows += 1
        if len(self._waiting) >= ROWS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Writes the added rows to the stream, where they survive a crash."""
        import msgspec
        import pyarrow as pa

        if not self._waiting:
            return
        rows = []
        for one in self._waiting:
            gaps = [min(round(1e6 * gap), 2**31 - 1) for gap in one.gaps_s]
            more = (one.due_s, one.outcome, one.status, one.error, one.cached_tokens, gaps)
            rows.append((*msgspec.structs.astuple(one.request), *more))
        columns = [list(column) for column in zip(*rows, strict=True)]
        try:
            self._stream.write_table(pa.table(columns, schema=self._schema))
            self._file.flush()
        except OSError as error:
            raise cannot_write(self.path, error, self._kept()) from error
        self._flushed += len(self._waiting)
        self._waiting.clear()

    def _kept(self) -> str:
        if not self._flushed:
            self._part.unlink(missing_ok=True)
            return ""
        return f"what was written before is in {self._part.name}, which can be read as a trace"

    def close(self) -> None:
        """Converts the stream to Parquet under the final name."""
        self.flush()
        try:
            self._stream.close()
            self._file.flush()
            _pack(self._part, self._place, self._schema)
            self._part.unlink()
            self._file.close()
        except OSError as error:
            raise cannot_write(self.path, error, self._kept()) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Keeps the measured rows, also after an exception."""
        try:
            if self.rows:
                self.close()
            else:
                self._part.unlink(missing_ok=True)
        except OutputError:
            if kind is None:
                raise
        finally:
            if not self._file.closed:
                with suppress(OSError):
                    self._stream.close()
                    self._file.close()


def _open_part(part: Path, path: Path, *, replace: bool) -> Any:
    """Opens and locks the stream file; a killed run's rows are overwritten only if `replace`."""
    import fcntl

    file = os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT, 0o644), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise OutputError("another run is writing it now", where=str(path)) from None
    if part.stat().st_size and not replace:
        file.close()
        raise OutputError(
            "a killed run left its measurements there",
            where=str(part),
            hint="`windtunnel trace convert` writes them to another file; --force discards them",
        )
    file.truncate()
    return file


def _pack(part: Path, place: Path, columns: Any) -> None:
    """Converts an Arrow stream to Parquet; the file appears only when it is complete."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with (
        draft_of(place) as file,
        pq.ParquetWriter(file, columns, compression="zstd") as writer,
    ):
        batches: list[Any] = []
        for batch in parquet.stream_batches(part):
            batches.append(batch)
            if sum(held.num_rows for held in batches) >= parquet.ROW_GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(batches))
                batches.clear()
        if batches:
            writer.write_table(pa.Table.from_batches(batches))


class Lateness(NamedTuple):
    """How late requests were sent, compared with their due times."""

    p99_s: float
    max_s: float

    @property
    def matters(self) -> bool:
        return self.p99_s > LATE_S


def lateness(path: Path) -> Lateness | None:
    """The lateness in a measured trace; None for a trace without due times."""
    lags = sorted(sent - due for sent, due in _pairs(path, "arrived", "due"))
    return Lateness(quantile_of(lags, 0.99), lags[-1]) if lags else None


def cached_share(path: Path) -> float | None:
    """The share of prompt tokens that the server reported as cached; None if it reported none."""
    known = _pairs(path, "prompt_tokens", "cached_tokens")
    prompts = sum(prompt for prompt, _ in known)
    return sum(cached for _, cached in known) / prompts if prompts else None


def _pairs(path: Path, first: str, second: str) -> list[tuple[Any, Any]]:
    """Two columns of a measured trace, for rows that have both; empty for any other file."""
    known: list[tuple[Any, Any]] = []
    try:
        with parquet.opened(path) as file:
            if second not in file.schema_arrow.names:
                return []
            for batch in file.iter_batches(columns=[first, second]):
                both = (batch.column(name).to_pylist() for name in (first, second))
                known += [pair for pair in zip(*both, strict=True) if None not in pair]
    except InputError:
        return []  # not Parquet, so not measured
    return known
