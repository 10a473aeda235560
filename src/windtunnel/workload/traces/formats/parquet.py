"""Windtunnel's own traces as Parquet; a run's `requests.parquet` can also be read as a trace."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from windtunnel.core.errors import InputError, nearest, one_line
from windtunnel.workload.traces.formats.windtunnel import (
    ANSWER,
    COLUMNS,
    MEDIA,
    NEEDED,
    PREFIX,
    SPANS,
    TURN,
    once,
)
from windtunnel.workload.traces.lines import refuse_irregular
from windtunnel.workload.traces.notes import IdCheck, NameCheck, TraceNotes
from windtunnel.workload.traces.record import TraceRequest, fault_of

STREAM_MARK = b"\xff\xff\xff\xff"
"""The first bytes of an Arrow stream, which is a trace that is still being measured."""
BATCH_ROWS = 16_384
ROW_GROUP_ROWS = 65_536
FOUND = "prefix_hit_tokens"
RUN_COLUMNS = ("first_token", "finished", "outcome")
"""Columns that distinguish a run's requests from a trace; their rows are in order of completion."""
BY_END: dict[bytes | str, bytes | str] = {b"windtunnel.rows": b"in order of ending"}
"""The metadata of a trace whose rows are also in order of completion."""


def schema() -> Any:
    """The columns of a trace, in the order of TraceRequest's fields."""
    import pyarrow as pa

    whole, real, text = pa.int64(), pa.float64(), pa.string()
    kinds: dict[str, Any] = {
        "arrived": real,
        "prompt_tokens": whole,
        "output_tokens": whole,
        TURN: whole,
        ANSWER: whole,
        MEDIA: whole,
    }
    kinds |= dict.fromkeys(SPANS, real) | dict.fromkeys(PREFIX, pa.list_(whole))
    return pa.schema([(name, kinds.get(name, text)) for name in COLUMNS])


def is_by_end(path: Path) -> bool:
    """Whether rows are in order of completion: a run's `requests.parquet`, or a measured trace."""
    with opened(path) as file:
        found = file.schema_arrow
        if set(RUN_COLUMNS) <= set(found.names):
            return True
        return BY_END.items() <= (found.metadata or {}).items()


def opened(path: Path) -> Any:
    """Opens a Parquet file, or the Arrow stream of a trace that is still being measured."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    refuse_irregular(path)
    try:
        if is_stream(path):
            return _Rows(path)
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise InputError("there is no such file", where=str(path)) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        what = f"this is not a whole Parquet file: {_first_line(error)}"
        raise InputError(what, where=str(path)) from None


def is_stream(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(STREAM_MARK)) == STREAM_MARK


def stream_batches(path: Path) -> Iterator[Any]:
    """The batches of an Arrow stream, up to one that its writer was killed in."""
    import pyarrow as pa

    # For half a batch Arrow raises an OSError or an exception of its own.
    with (
        path.open("rb") as file,
        pa.ipc.open_stream(file) as reader,
        suppress(pa.ArrowException, OSError),
    ):
        yield from reader


class _Rows:
    """An Arrow stream with the interface of a Parquet file."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._path = path
        with path.open("rb") as file, pa.ipc.open_stream(file) as reader:
            self.schema_arrow = reader.schema

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing: no file is held open."""

    def iter_batches(self, columns: list[str], batch_size: int = 0) -> Iterator[Any]:  # noqa: ARG002
        """The batches as they were written; `batch_size` is ignored."""
        for batch in stream_batches(self._path):
            yield batch.select(columns)


def read(path: Path, notes: TraceNotes) -> Iterator[TraceRequest]:
    """Reads a file; times count from the trace's start, as written."""
    with opened(path) as file:
        present = file.schema_arrow.names
        for name in NEEDED:
            if name not in present:
                found = one_line(", ".join(present), 200)
                what = f"the column {name!r} is missing (found: {found})"
                raise notes.fault(what, hint=nearest(name, present))
        wanted = [name for name in (*COLUMNS, *RUN_COLUMNS[:2]) if name in present]
        if FOUND in present and PREFIX[0] not in present:
            wanted.append(FOUND)
        names, ids, row = NameCheck(), IdCheck(), 0
        for columns in _batches(file, wanted, notes):
            for fields in zip(*(columns[name] for name in COLUMNS), strict=True):
                row += 1
                notes.line = row
                request = _request(fields, names, ids, row, notes)
                if request is not None:
                    yield request


def _request(
    fields: Sequence[Any], names: NameCheck, ids: IdCheck, row: int, notes: TraceNotes
) -> TraceRequest | None:
    try:
        made = _made(fields, names)
        once(made, ids)
        fault = fault_of(made)
    except (ValueError, TypeError) as error:
        fault = str(error)
    if fault:
        notes.skip(f"row {row}: {fault}", None)
        return None
    if not made.prompt_tokens or not made.output_tokens:
        notes.empty += 1
        return None
    if made.slo is not None:
        notes.check_class(made.slo, row)
    return made


def _made(fields: Sequence[Any], names: NameCheck) -> TraceRequest:
    values: list[Any] = [names(value) if isinstance(value, str) else value for value in fields]
    values[-2:] = tuple(values[-2] or ()), tuple(values[-1] or ())
    if None in values[: len(NEEDED)]:
        raise ValueError("a time or a token count is missing")
    return TraceRequest(*values)


def _batches(file: Any, wanted: list[str], notes: TraceNotes) -> Iterator[dict[str, list[Any]]]:
    """The columns of a trace as Python values, batch by batch."""
    import pyarrow as pa

    kinds = {field.name: field.type for field in schema()}
    kinds |= {FOUND: pa.int64()} | {name: pa.float64() for name in RUN_COLUMNS[:2]}
    try:
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
            columns = {}
            for name in wanted:
                try:
                    columns[name] = batch.column(name).cast(kinds[name]).to_pylist()
                except (pa.ArrowException, UnicodeDecodeError) as error:
                    what = f"the column {name!r} does not hold what it should"
                    raise notes.fault(f"{what}: {_first_line(error)}") from None
            if "ttft" not in columns and set(RUN_COLUMNS[:2]) <= columns.keys():
                for name, observed in zip(("ttft", "e2e"), RUN_COLUMNS, strict=False):
                    columns[name] = _since(columns["arrived"], columns[observed])
            notes.prefix_tokens += sum(found or 0 for found in columns.get(FOUND, ()))
            nothing = [None] * batch.num_rows
            yield {name: columns.get(name, nothing) for name in COLUMNS}
    except (pa.ArrowException, OSError) as error:
        raise notes.fault(f"the file is damaged: {_first_line(error)}") from None


def _since(starts: list[Any], ends: list[Any]) -> list[float | None]:
    return [
        None if start is None or end is None else end - start
        for start, end in zip(starts, ends, strict=True)
    ]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
