"""Traces with what a real server made of their requests: our own Parquet, and some columns more.

Whoever reads them as traces finds the requests as they were sent, with their TTFT and E2E. Rows are
in order of ending, as they were measured.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from windtunnel.core.errors import OutputError
from windtunnel.workload.traces import parquet
from windtunnel.workload.traces.record import TraceRequest
from windtunnel.workload.traces.writing import cannot_write, place_of

ROWS_AT_ONCE = 4_096

COMPLETED = "completed"
REJECTED = "rejected"
TIMED_OUT = "timed_out"
FAILED = "failed"
CUT_OFF = "cut_off"
UNFINISHED = "unfinished"
OUTCOMES = (COMPLETED, REJECTED, TIMED_OUT, FAILED, CUT_OFF, UNFINISHED)
"""How a measured request can end. `failed` is a server's error, or no answer at all; `cut_off` is
an answer that began and broke off."""


class Measured(NamedTuple):
    """One request and what was measured beside its TTFT and E2E."""

    request: TraceRequest
    due_s: float
    """When it should have been sent; it arrived when it was."""
    outcome: str
    status: int
    """Of HTTP; 0: there was no answer."""
    error: str | None
    cached_tokens: int | None
    gaps_s: list[float]
    """Between the pieces of the answer."""


def schema() -> Any:
    """The columns of a trace, and those that were measured."""
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
    """A file that is being written; it gets its name when it is closed, with what it has by then.

    Making it finds out whether the place can be written to. As a context it is taken back when
    nothing was measured.
    """

    def __init__(self, path: Path, *, replace: bool) -> None:
        import pyarrow.parquet as pq

        self.path = path
        self.rows = 0
        self._schema = schema()
        self._waiting: list[Measured] = []
        try:
            self._place = place_of(path, replace=replace)
            handle, draft = tempfile.mkstemp(dir=self._place.parent, prefix=f".{path.name}-")
        except OSError as error:
            raise cannot_write(path, error) from error
        self._draft = Path(draft)
        self._file = os.fdopen(handle, "wb")
        self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd")

    def add(self, measured: Measured) -> None:
        self._waiting.append(measured)
        self.rows += 1
        if len(self._waiting) >= ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        import msgspec
        import pyarrow as pa

        rows = []
        for one in self._waiting:
            gaps = [min(round(1e6 * gap), 2**31 - 1) for gap in one.gaps_s]
            more = (one.due_s, one.outcome, one.status, one.error, one.cached_tokens, gaps)
            rows.append((*msgspec.structs.astuple(one.request), *more))
        self._waiting.clear()
        columns = [list(column) for column in zip(*rows, strict=True)]
        try:
            self._writer.write_table(pa.table(columns, schema=self._schema))
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def close(self) -> None:
        """Puts the file in place."""
        if self._waiting:
            self._flush()
        try:
            self._writer.close()
            self._file.close()
            self._draft.chmod(0o644)
            self._draft.replace(self._place)
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Whatever happened, what was measured is kept."""
        try:
            if self.rows:
                self.close()
        except OutputError:
            if kind is None:
                raise
        finally:
            with suppress(OSError):
                self._writer.close()
                self._file.close()
            self._draft.unlink(missing_ok=True)


def cached_share(path: Path) -> float | None:
    """The share of prompt tokens that a server said it had cached; None when it did not say."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            if "cached_tokens" not in file.schema_arrow.names:
                return None
            table = file.read(columns=["prompt_tokens", "cached_tokens"])
    except (pa.ArrowException, OSError):
        return None  # no Parquet: other traces say nothing of it
    known = [
        (prompt, cached)
        for prompt, cached in zip(*(column.to_pylist() for column in table.columns), strict=True)
        if prompt and cached is not None
    ]
    prompts = sum(prompt for prompt, _ in known)
    return sum(cached for _, cached in known) / prompts if prompts else None
