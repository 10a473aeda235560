"""`requests.parquet`: a row per request, written as requests end, in constant memory."""

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from windtunnel.analysis import phases
from windtunnel.core.errors import OutputError
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.results.reasons import reason_of
from windtunnel.twin.results.recorder import RowSink
from windtunnel.workload.request import NEVER, UNSET, LostTry, Request

TIMES = phases.RequestTimes.__struct_fields__
"""Columns in the order in which their times come, as far as they do."""
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
    "lost_tries": "lost_tries",
    "pauses": "pauses",
    "model": NAME,
}
"""The columns and their types in Arrow; `model` is there where there are several."""


def _time(value: float) -> float | None:
    return None if value == UNSET else value


def _patience(request: Request) -> float | None:
    return None if request.deadline_s == NEVER else request.deadline_s - request.arrived_s


def admitted_s(request: Request) -> float | None:
    """When it was admitted; without a gateway, as it arrived."""
    if request.admitted_s == UNSET and request.server >= 0:
        return request.arrived_s
    return _time(request.admitted_s)


def times_of(request: Request) -> phases.RequestTimes:
    """The same times of one request, to draw it."""
    later = (_time(getattr(request, f"{name}_s")) for name in TIMES[2:])
    return phases.RequestTimes(request.arrived_s, admitted_s(request), *later)


class RequestRows:
    """Receives ended requests in batches; each becomes a row group. Rows are in order of ending."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        self._file: Any = None

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        found = self._columns(requests, outcomes, names)
        if len(names.models) > 1:
            found["model"] = [names.models[r.model] for r in requests]
        table = pa.table(
            {
                name: pa.array(
                    found[name] if name in found else list(map(attrgetter(name), requests)),
                    _type(kind),
                )
                for name, kind in COLUMNS.items()
                if name != "model" or name in found
            }
        )
        try:
            if self._writer is None:
                # A file, since the library takes a name with a colon for an address.
                file = pa.OSFile(str(self._path), "wb")
                self._writer = pq.ParquetWriter(file, table.schema, compression="zstd")
                self._file = file
            self._writer.write_table(table)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise OutputError(f"cannot write requests: {reason}", where=str(self._path)) from error

    def close(self) -> None:
        if self._writer is None:
            self.write([], [], RecordNames([], [], [], []))
        self._writer.close()
        self._file.close()

    def _columns(
        self, requests: list[Request], outcomes: list[str], names: RecordNames
    ) -> dict[str, list[Any]]:
        """What the rows have that is not the attribute of a request by the same name."""
        # A request that was sent nowhere has the number -1, which is the last of each.
        pools: list[str | None] = [*names.owners.pool_names, None]
        replicas: list[int | None] = [*names.owners.numbers, None]
        reasons = (reason_of(r, outcome) for r, outcome in zip(requests, outcomes, strict=True))
        return {
            "source": [names.sources[r.source] for r in requests],
            "tenant": [names.tenants[r.tenant] for r in requests],
            "slo": [names.classes[r.slo] for r in requests],
            "adapter": [names.adapters[r.adapter] if r.adapter >= 0 else None for r in requests],
            "session": [r.session if r.session >= 0 else None for r in requests],
            "turn": [r.turn if r.session >= 0 else None for r in requests],
            "deadline": [_patience(r) for r in requests],
            "arrived": [r.arrived_s for r in requests],
            "admitted": [admitted_s(r) for r in requests],
            **{
                name: [_time(value) for value in map(attrgetter(f"{name}_s"), requests)]
                for name in TIMES[2:]
            },
            "outcome": outcomes,
            "reason": [reason or None for reason in reasons],
            "pool": [pools[r.server] for r in requests],
            "replica": [replicas[r.server] for r in requests],
            "prefill_pool": [pools[r.prefill_server] for r in requests],
            "prefill_replica": [replicas[r.prefill_server] for r in requests],
            "lost_tries": [
                None
                if r.lost_tries is None
                else [_lost(one, pools, replicas) for one in r.lost_tries]
                for r in requests
            ],
        }


def _lost(one: LostTry, pools: list[str | None], replicas: list[int | None]) -> dict[str, Any]:
    return {
        "pool": pools[one.server],
        "replica": replicas[one.server],
        "routed": _time(one.routed_s),
        "scheduled": _time(one.scheduled_s),
        "first_token": _time(one.first_token_s),
        "ended": one.ended_s,
        "reason": one.reason,
    }


def _type(kind: str) -> Any:
    import pyarrow as pa

    if kind == "pauses":
        return pa.list_(pa.float64())
    if kind == "lost_tries":
        types: dict[str, Any] = {"pool": pa.string(), "replica": pa.int32(), "reason": pa.string()}
        names = phases.LostTryRow.__struct_fields__
        return pa.list_(pa.struct([(name, types.get(name, pa.float64())) for name in names]))
    return pa.dictionary(pa.int32(), pa.string()) if kind == NAME else getattr(pa, kind)()


class RowSinks:
    """Hands every batch of rows to each of some sinks, in their order."""

    def __init__(self, sinks: Sequence[RowSink]) -> None:
        self._sinks = tuple(sinks)

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        for sink in self._sinks:
            sink.write(requests, outcomes, names)
