"""`requests.parquet`: one row per request, written as requests end, in constant memory."""

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.analysis import phases
from windtunnel.analysis.rows import arrow_of
from windtunnel.core.errors import OutputError
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.results.columns import RequestColumns
from windtunnel.twin.results.recorder import OUTCOMES, RowSink
from windtunnel.workload.request import NEVER, UNSET, LostTry, Request

TIMES = phases.RequestTimes.__struct_fields__
"""Time columns in chronological order."""
ROWS_PER_GROUP = 65_536
NAME = "name"
COLUMNS = {
    "id": "int64",
    **dict.fromkeys(("source", "tenant", "slo", "adapter"), NAME),
    "session": "int64",
    "turn": "int32",
    "deadline": "float64",
    **dict.fromkeys(TIMES, "float64"),
    "outcome": NAME,
    "reason": NAME,
    **dict.fromkeys(
        ("prompt_tokens", "output_tokens", "media_tokens", "prefix_hit_tokens"), "int64"
    ),
    **dict.fromkeys(("preemptions", "redirects", "retries"), "int32"),
    "pool": NAME,
    "replica": "int32",
    "prefill_pool": NAME,
    "prefill_replica": "int32",
    **dict.fromkeys(("lost_tries", "pauses"), "list"),
    "model": NAME,
}
"""The columns and their Arrow types; `model` is present only if there are several."""


def _time(value: float) -> float | None:
    return None if value == UNSET else value


def admitted_s(request: Request) -> float | None:
    """The time of admission; without a gateway, that of arrival."""
    if request.admitted_s == UNSET and request.server >= 0:
        return request.arrived_s
    return _time(request.admitted_s)


def times_of(request: Request) -> phases.RequestTimes:
    """The times of one request, for drawing it."""
    later = (_time(getattr(request, f"{name}_s")) for name in TIMES[2:])
    return phases.RequestTimes(request.arrived_s, admitted_s(request), *later)


class RequestRows:
    """Receives ended requests and writes them in row groups, in the order of their ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._columns = RequestColumns(OUTCOMES)
        self._names = RecordNames([], [], [], [])
        self._writer: Any = None
        self._file: Any = None

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        self._names = names
        self._columns.add(requests, outcomes)
        if self._columns.rows >= ROWS_PER_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = _ArrowColumns(self._columns, self._names)
        self._columns = RequestColumns(OUTCOMES)
        kept = [name for name in COLUMNS if name != "model" or len(self._names.models) > 1]
        table = pa.Table.from_arrays([columns.column(name) for name in kept], names=kept)
        try:
            if self._writer is None:
                # A file, since pyarrow takes a name with a colon for a URL.
                file = pa.OSFile(str(self._path), "wb")
                # Dictionaries of times and ids, which all differ, take as long as everything else.
                repeated = [name for name in kept if name != "id" and COLUMNS[name] != "float64"]
                self._writer = pq.ParquetWriter(
                    file,
                    table.schema,
                    compression="zstd",
                    use_dictionary=repeated,  # type: ignore[arg-type]  # its stubs know no names
                )
                self._file = file
            self._writer.write_table(table)
        except OSError as error:
            # pyarrow's error text is not the system's.
            reason = (os.strerror(error.errno) if error.errno else str(error)).lower()
            raise OutputError(f"cannot write results: {reason}", where=str(self._path)) from error

    def close(self) -> None:
        if self._writer is None or self._columns.rows:
            self._write_group()
        self._writer.close()
        self._file.close()


class _ArrowColumns:
    """Columns of requests as Arrow arrays."""

    def __init__(self, columns: RequestColumns, names: RecordNames) -> None:
        self._columns = columns
        self._column = functools.cache(columns.column)
        owners = names.owners
        # A request that was routed nowhere has the number -1, the last entry of each list.
        self._replicas = [*owners.numbers, -1]
        pools: list[str | None] = [*owners.pool_names, None]
        self._named: dict[str, tuple[str, Sequence[str | None]]] = {
            "source": ("source", names.sources),
            "tenant": ("tenant", names.tenants),
            "slo": ("slo", names.classes),
            "adapter": ("adapter", [*names.adapters, None]),
            "pool": ("server", pools),
            "prefill_pool": ("prefill_server", pools),
            "model": ("model", names.models),
            "outcome": ("outcome", OUTCOMES),
        }
        self._pools = pools

    def column(self, name: str) -> Any:
        """The Arrow column of that name."""
        columns = self._columns
        if name in self._named:
            attribute, known = self._named[name]
            return _names(self._column(attribute), known)
        if name == "reason":
            return _words(columns.reasons, columns.rows)
        if name == "pauses":
            return _lists(columns.pauses, columns.rows, name)
        if name == "lost_tries":
            lost = {
                row: [self._lost(one) for one in all_] for row, all_ in columns.lost_tries.items()
            }
            return _lists(lost, columns.rows, name)
        values, missing = self._plain(name)
        return arrow_of(values.astype(COLUMNS[name], copy=False), missing)

    def _plain(self, name: str) -> tuple[Any, Any]:
        """A numeric column, and the mask of its missing values."""
        import numpy as np

        if name == "session":
            values = self._column("session")
            return values, values < 0
        if name == "turn":
            return self._column("turn"), self._column("session") < 0
        if name == "deadline":
            values = self._column("deadline_s")
            return values - self._column("arrived_s"), values == NEVER
        if name == "admitted":
            values = self._column("admitted_s")
            at_once = (values == UNSET) & (self._column("server") >= 0)  # there is no gateway
            values = np.where(at_once, self._column("arrived_s"), values)
            return values, values == UNSET
        if name in ("replica", "prefill_replica"):
            attribute = "server" if name == "replica" else "prefill_server"
            values = np.array(self._replicas)[self._column(attribute)]
            return values, values < 0
        if name in TIMES[2:]:
            values = self._column(f"{name}_s")
            return values, values == UNSET
        return self._column(f"{name}_s" if name in TIMES else name), None

    def _lost(self, one: LostTry) -> dict[str, Any]:
        replica = self._replicas[one.server]
        return {
            "pool": self._pools[one.server],
            "replica": replica if replica >= 0 else None,
            "routed": _time(one.routed_s),
            "scheduled": _time(one.scheduled_s),
            "first_token": _time(one.first_token_s),
            "ended": one.ended_s,
            "reason": one.reason,
        }


def _dictionary(indices: Any, words: Sequence[str], missing: Any) -> Any:
    """A dictionary-encoded column of words, in the order of their first rows."""
    import numpy as np
    import pyarrow as pa

    numbers = arrow_of(indices.astype(np.int32), missing)
    return pa.DictionaryArray.from_arrays(numbers, pa.array(words, pa.string()))


def _words(words: Mapping[int, str], rows: int) -> Any:
    """Words by row; null if there is none."""
    import numpy as np

    known: dict[str, int] = {}
    numbers = [known.setdefault(word, len(known)) for word in words.values()]
    indices = np.full(rows, -1)
    indices[list(words)] = numbers
    return _dictionary(indices, list(known), indices < 0)


def _lists(lists: Mapping[int, Sequence[Any]], rows: int, name: str) -> Any:
    """Lists by row; null if there is none."""
    import pyarrow as pa

    kind = _list_type(name)
    return pa.array(map(lists.get, range(rows)), kind, size=rows) if lists else pa.nulls(rows, kind)


def _names(numbers: Any, names: Sequence[str | None]) -> Any:
    """Names by number; null if there is none."""
    import numpy as np

    known: dict[str | None, int] = {}
    numbers = np.array([known.setdefault(name, len(known)) for name in names], np.int64)[numbers]
    different = list(known)
    first = np.full(len(different), len(numbers))
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]  # reversed: the first row wins
    order = [int(n) for n in np.argsort(first) if first[n] < len(numbers)]
    words = [(n, name) for n in order if (name := different[n]) is not None]
    rank = np.full(len(different), -1)
    rank[[n for n, _ in words]] = np.arange(len(words))
    indices = rank[numbers]
    return _dictionary(indices, [name for _, name in words], indices < 0)


def _list_type(name: str) -> Any:
    import pyarrow as pa

    if name == "pauses":
        return pa.list_(pa.float64())
    types: dict[str, Any] = {"pool": pa.string(), "replica": pa.int32(), "reason": pa.string()}
    names = phases.LostTryRow.__struct_fields__
    return pa.list_(pa.struct([(name, types.get(name, pa.float64())) for name in names]))


class RowSinks:
    """Passes every batch of rows to several sinks, in order."""

    def __init__(self, sinks: Sequence[RowSink]) -> None:
        self._sinks = tuple(sinks)

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        for sink in self._sinks:
            sink.write(requests, outcomes, names)
