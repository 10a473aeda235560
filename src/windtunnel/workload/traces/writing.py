"""Writes traces: a file appears only when it is complete, and replaces another only if asked to."""

import gzip
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import IO, Any

from windtunnel.core.errors import InputError, OutputError, nearest, os_reason
from windtunnel.workload.traces.formats import azure, blis, burstgpt, mooncake, parquet, windtunnel
from windtunnel.workload.traces.formats.registry import OWN, by_ending
from windtunnel.workload.traces.record import TraceRequest, fault_of

TEXT_FORMATS: dict[str, tuple[str, Callable[[TraceRequest, int], str | bytes]]] = {
    "azure": (",".join(azure.COLUMNS) + "\n", lambda request, _: azure.row(request)),
    "burstgpt": (",".join(burstgpt.WRITTEN) + "\n", lambda request, _: burstgpt.row(request)),
    "mooncake": ("", lambda request, _: mooncake.line(request)),
    "blis": (",".join(blis.WRITTEN) + "\n", blis.row),
    "csv": (windtunnel.header(), lambda request, _: windtunnel.row(request)),
    "jsonl": ("", lambda request, _: windtunnel.line(request)),
}
"""For each format: the header line, and a function from a request and its number to a line."""
WRITABLE = (*TEXT_FORMATS, "parquet")


def written_format(name: str | None, path: Path) -> str:
    """The format to write: the one named, or else the one that the file's ending names."""
    own = by_ending(path)
    if name in (None, OWN):
        if own is None:
            allowed = "a name that ends in .parquet, .csv or .jsonl, or --to FORMAT"
            raise InputError("the format to write is not clear", where=str(path), allowed=allowed)
        name = own
    assert name is not None
    if name not in WRITABLE:
        what = f"{name[:60]!r} is not a format that can be written"
        raise InputError(what, allowed=", ".join(WRITABLE), hint=nearest(name, WRITABLE))
    packed = path.suffix.lower() in (".gz", ".zst")
    if name == "parquet" and packed:
        raise InputError("Parquet is already compressed", where=str(path), allowed=".parquet")
    if name == "blis" and path.suffix.lower() != ".csv":
        what = "BLIS reads rows from a .csv, and a .yaml of the same name beside it"
        raise InputError(what, where=str(path), allowed="a name that ends in .csv")
    return name


def write_trace(
    requests: Iterable[TraceRequest],
    path: str | Path,
    format: str | None = None,  # noqa: A002 - the word that people write
    *,
    replace: bool = False,
) -> int:
    """Writes a stream of requests to a file, all or nothing; returns how many were written."""
    path = Path(path)
    name = written_format(format, path)
    header = path.with_suffix(".yaml") if name == "blis" else None
    try:
        place = place_of(path, replace=replace)
        header_place = place_of(header, replace=replace) if header is not None else None
        with draft_of(place) as file:
            count = _write(_checked(requests, path), file, name, path.suffix.lower())
            if header_place is not None:
                header_place.write_text(blis.WRITTEN_HEADER, encoding="utf-8")
    except OSError as error:
        raise cannot_write(path, error) from error
    return count


@contextmanager
def draft_of(place: Path) -> Iterator[IO[bytes]]:
    """Opens a temporary file beside the place, which replaces it once it is complete."""
    handle, draft_name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}-")
    draft = Path(draft_name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        draft.chmod(0o644)
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)


def place_of(path: Path, *, replace: bool) -> Path:
    """The path to write to, with links resolved; refuses anything but a new or replaceable file."""
    where = str(path)
    if where == "-":
        raise OutputError("a trace is written to a file, not to the terminal", where=where)
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise OutputError("cannot be written: the link leads to itself", where=where)
    if path.is_dir():
        raise OutputError("cannot be written: this is a folder", where=where)
    if path.exists() and not path.is_file():
        raise OutputError("cannot be written: this is not a plain file", where=where)
    if path.exists() and not replace:
        raise OutputError("the file already exists", where=where, hint="--force replaces it")
    return place


def _checked(requests: Iterable[TraceRequest], path: Path) -> Iterator[TraceRequest]:
    """Rejects requests that could not be read back."""
    for number, request in enumerate(requests, 1):
        fault = fault_of(request)
        if fault is not None:
            raise OutputError(f"cannot be written: of request {number}, {fault}", where=str(path))
        yield request


def cannot_write(path: Path, error: OSError, hint: str = "") -> OutputError:
    """The error for an OSError when writing, as a sentence."""
    return OutputError(f"cannot be written: {os_reason(error)}", where=str(path), hint=hint)


def _write(requests: Iterable[TraceRequest], file: Any, name: str, ending: str) -> int:
    if name == "parquet":
        return _write_parquet(iter(requests), file)
    first, line = TEXT_FORMATS[name]
    with _packing(file, ending) as packed:
        packed.write(first.encode())
        count = 0
        for request in requests:
            try:
                text = line(request, count)
            except ValueError as error:
                raise OutputError(f"request {count + 1}: {error}") from None
            packed.write(text if isinstance(text, bytes) else text.encode())
            count += 1
    return count


def _packing(file: Any, ending: str) -> Any:
    if ending == ".gz":
        return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
    if ending == ".zst":
        import pyarrow as pa

        return pa.CompressedOutputStream(file, "zstd")
    return nullcontext(file)


def _write_parquet(requests: Iterator[TraceRequest], file: Any) -> int:
    import msgspec
    import pyarrow as pa
    import pyarrow.parquet as pq

    count, schema = 0, parquet.schema()
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while True:
            rows = [
                msgspec.structs.astuple(request)
                for request in islice(requests, parquet.ROW_GROUP_ROWS)
            ]
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
            if rows or not count:
                writer.write_table(pa.table([list(column) for column in columns], schema=schema))
            count += len(rows)
            if len(rows) < parquet.ROW_GROUP_ROWS:
                return count
