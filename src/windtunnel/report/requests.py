"""`requests.parquet`: a row per request, written as requests end, in constant memory."""

from pathlib import Path
from typing import Any

from windtunnel.core.errors import OutputError
from windtunnel.twin.recorder import UNFINISHED
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.request import UNSET, Request

WAITING_AT_THE_END = "waiting when the run ended"
RUNNING_AT_THE_END = "running when the run ended"


def _time(value: float) -> float | None:
    return None if value == UNSET else value


def _reason(request: Request, outcome: str) -> str | None:
    """Why it ended as it did; nothing for a request that went as it should."""
    if outcome == UNFINISHED:
        return WAITING_AT_THE_END if request.scheduled_s == UNSET else RUNNING_AT_THE_END
    return request.reason or None


class RequestRows:
    """Receives ended requests in batches; each becomes a row group. Rows are in order of ending."""

    def __init__(self, path: Path, plan: ScenarioPlan) -> None:
        self._path = path
        self._sources = plan.sources
        self._pools: list[str] = []
        self._replicas: list[int] = []
        for pool in plan.pools:
            self._pools += [pool.name] * pool.replicas
            self._replicas += range(pool.replicas)
        self._writer: Any = None
        self._file: Any = None

    def write(self, requests: list[Request], outcomes: list[str]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table(self._columns(requests, outcomes), schema=_schema())
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
            self.write([], [])
        self._writer.close()
        self._file.close()

    def _columns(self, requests: list[Request], outcomes: list[str]) -> dict[str, list[Any]]:
        sources = [self._sources[r.source] for r in requests]
        placed = [r.server >= 0 for r in requests]
        return {
            "id": [r.id for r in requests],
            "source": [s.name for s in sources],
            "tenant": [s.tenant for s in sources],
            "slo": [s.slo for s in sources],
            "session": [None] * len(requests),
            "turn": [None] * len(requests),
            "arrived": [r.arrived_s for r in requests],
            "admitted": [r.arrived_s for r in requests],
            "scheduled": [_time(r.scheduled_s) for r in requests],
            "first_token": [_time(r.first_token_s) for r in requests],
            "finished": [_time(r.finished_s) for r in requests],
            "outcome": outcomes,
            "reason": [_reason(r, outcome) for r, outcome in zip(requests, outcomes, strict=True)],
            "prompt_tokens": [r.prompt_tokens for r in requests],
            "output_tokens": [r.output_tokens for r in requests],
            "prefix_hit_tokens": [r.prefix_hit_tokens for r in requests],
            "preemptions": [r.preemptions for r in requests],
            "pool": [
                self._pools[r.server] if at else None
                for r, at in zip(requests, placed, strict=True)
            ],
            "replica": [
                self._replicas[r.server] if at else None
                for r, at in zip(requests, placed, strict=True)
            ],
        }


def _schema() -> Any:
    import pyarrow as pa

    name = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            ("id", pa.int64()),
            *((column, name) for column in ("source", "tenant", "slo")),
            ("session", pa.int64()),
            ("turn", pa.int32()),
            *(
                (column, pa.float64())
                for column in ("arrived", "admitted", "scheduled", "first_token", "finished")
            ),
            ("outcome", name),
            ("reason", name),
            *(
                (column, pa.int64())
                for column in ("prompt_tokens", "output_tokens", "prefix_hit_tokens")
            ),
            ("preemptions", pa.int32()),
            ("pool", name),
            ("replica", pa.int32()),
        ]
    )
