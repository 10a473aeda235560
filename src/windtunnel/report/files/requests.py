"""`requests.parquet`: a row per request, written as requests end, in constant memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.analysis.phases import RequestTimes
from windtunnel.core.errors import OutputError
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.results.reasons import reason_of
from windtunnel.twin.results.recorder import RowSink
from windtunnel.workload.request import NEVER, UNSET, Request

TIMES = RequestTimes.__struct_fields__
"""Columns in the order in which their times come, as far as they do."""


def _time(value: float) -> float | None:
    return None if value == UNSET else value


def _patience(request: Request) -> float | None:
    return None if request.deadline_s == NEVER else request.deadline_s - request.arrived_s


def admitted_s(request: Request) -> float | None:
    """When it was admitted; without a gateway, as it arrived."""
    if request.admitted_s == UNSET and request.server >= 0:
        return request.arrived_s
    return _time(request.admitted_s)


def times_of(request: Request) -> RequestTimes:
    """The same times of one request, to draw it."""
    return RequestTimes(
        request.arrived_s,
        admitted_s(request),
        _time(request.encoded_s),
        _time(request.scheduled_s),
        _time(request.prefilled_s),
        _time(request.transfer_start_s),
        _time(request.transfer_end_s),
        _time(request.first_token_s),
        _time(request.finished_s),
    )


class RequestRows:
    """Receives ended requests in batches; each becomes a row group. Rows are in order of ending."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        self._file: Any = None

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = self._columns(requests, outcomes, names)
        schema = _schema()
        if len(names.models) > 1:
            columns["model"] = [names.models[r.model] for r in requests]
            schema = schema.append(pa.field("model", schema.field("source").type))
        table = pa.table(columns, schema=schema)
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
        # A request that was sent nowhere has the number -1, which is the last of each.
        pools: list[str | None] = [*names.owners.pool_names, None]
        replicas: list[int | None] = [*names.owners.numbers, None]
        reasons = (reason_of(r, outcome) for r, outcome in zip(requests, outcomes, strict=True))
        return {
            "id": [r.id for r in requests],
            "source": [names.sources[r.source] for r in requests],
            "tenant": [names.tenants[r.tenant] for r in requests],
            "slo": [names.classes[r.slo] for r in requests],
            "adapter": [names.adapters[r.adapter] if r.adapter >= 0 else None for r in requests],
            "session": [r.session if r.session >= 0 else None for r in requests],
            "turn": [r.turn if r.session >= 0 else None for r in requests],
            "deadline": [_patience(r) for r in requests],
            "arrived": [r.arrived_s for r in requests],
            "admitted": [admitted_s(r) for r in requests],
            "encoded": [_time(r.encoded_s) for r in requests],
            "scheduled": [_time(r.scheduled_s) for r in requests],
            "prefilled": [_time(r.prefilled_s) for r in requests],
            "transfer_start": [_time(r.transfer_start_s) for r in requests],
            "transfer_end": [_time(r.transfer_end_s) for r in requests],
            "first_token": [_time(r.first_token_s) for r in requests],
            "finished": [_time(r.finished_s) for r in requests],
            "outcome": outcomes,
            "reason": [reason or None for reason in reasons],
            "prompt_tokens": [r.prompt_tokens for r in requests],
            "output_tokens": [r.output_tokens for r in requests],
            "media_tokens": [r.media_tokens for r in requests],
            "prefix_hit_tokens": [r.prefix_hit_tokens for r in requests],
            "preemptions": [r.preemptions for r in requests],
            "redirects": [r.redirects for r in requests],
            "retries": [r.retries for r in requests],
            "pool": [pools[r.server] for r in requests],
            "replica": [replicas[r.server] for r in requests],
            "prefill_pool": [pools[r.prefill_server] for r in requests],
            "prefill_replica": [replicas[r.prefill_server] for r in requests],
        }


def _schema() -> Any:
    import pyarrow as pa

    name = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            ("id", pa.int64()),
            *((column, name) for column in ("source", "tenant", "slo", "adapter")),
            ("session", pa.int64()),
            ("turn", pa.int32()),
            ("deadline", pa.float64()),
            *((column, pa.float64()) for column in TIMES),
            ("outcome", name),
            ("reason", name),
            *(
                (column, pa.int64())
                for column in (
                    "prompt_tokens",
                    "output_tokens",
                    "media_tokens",
                    "prefix_hit_tokens",
                )
            ),
            ("preemptions", pa.int32()),
            ("redirects", pa.int32()),
            ("retries", pa.int32()),
            ("pool", name),
            ("replica", pa.int32()),
            ("prefill_pool", name),
            ("prefill_replica", pa.int32()),
        ]
    )


class RowSinks:
    """Hands every batch of rows to each of some sinks, in their order."""

    def __init__(self, sinks: Sequence[RowSink]) -> None:
        self._sinks = tuple(sinks)

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        for sink in self._sinks:
            sink.write(requests, outcomes, names)
