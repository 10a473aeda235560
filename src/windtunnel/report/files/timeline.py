"""`timeline.parquet`: a run over time, by server and in total, as the report draws it."""

from pathlib import Path
from typing import Any

from windtunnel.analysis.rows import arrow_of
from windtunnel.core.statistics.histogram import GROWTH, Histogram
from windtunnel.twin.results.timeline import Sample, Timeline
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.pools import cost_of
from windtunnel.twin.servers.replicas import DRAINING, GONE, PENDING, READY, STARTING, STATES

TOTALS = ("arrived", "completed", "rejected", "timed_out", "dropped", "output_tokens")
"""Cumulative counts in a sample; a row has the increase since the previous sample."""
LEVELS = ("at_gateway", "awaiting_server", "in_flight", "transfers")
"""Instantaneous counts in a sample."""
HERE = (PENDING, STARTING, READY, DRAINING)
PAYING = (STARTING, READY, DRAINING)


def write_timeline(path: Path, plan: ScenarioPlan, timeline: Timeline) -> None:
    """Writes one row per sample and server, and before them one per sample for the whole run."""
    import pyarrow.parquet as pq

    with path.open("wb") as file:
        pq.write_table(timeline_table(plan, timeline), file, compression="zstd")


def timeline_table(plan: ScenarioPlan, timeline: Timeline) -> Any:
    """The same as a table in memory. A server has rows from when it is requested until it is
    gone."""
    import numpy as np
    import pyarrow as pa

    samples = timeline.samples
    times = np.array([sample.time_s for sample in samples])
    spans = np.diff(times, prepend=0.0)
    replicas, pools = timeline.owners.numbers, timeline.owners.pools
    rows = len(replicas) + 1
    total = np.tile(np.arange(rows) == 0, len(times))
    states = _grid([sample.states for sample in samples], len(replicas), GONE)

    columns: dict[str, Any] = {
        "time": arrow_of(np.repeat(times, rows)),
        "interval": arrow_of(np.repeat(spans, rows)),
        "pool": pa.DictionaryArray.from_arrays(
            arrow_of(np.tile(np.array([0, *pools], dtype=np.int32), len(times)), total),
            [pool.name for pool in plan.pools],
        ),
        "replica": arrow_of(np.tile([-1, *replicas], len(times)).astype(np.int32), total),
        "state": pa.DictionaryArray.from_arrays(
            arrow_of(_with_all(states, np.zeros(len(times))).astype(np.int32), total), list(STATES)
        ),
    }
    for name, column in _by_server(samples, spans, states, _prices_per_s(plan, pools)).items():
        columns[name] = arrow_of(column)
    for name in TOTALS:
        grown = np.diff([getattr(sample, name) for sample in samples], prepend=0)
        columns[name] = arrow_of(np.repeat(grown, rows), ~total)
    for name in LEVELS:
        found = [getattr(sample, name) for sample in samples]
        columns[name] = arrow_of(np.repeat(found, rows), ~total)
    carried = np.diff([sample.carried_bytes for sample in samples], prepend=0.0)
    columns["transferred_bytes"] = arrow_of(np.repeat(carried, rows), ~total)
    for name, counted in (("replicas", PAYING), *((f"replicas_{STATES[n]}", (n,)) for n in HERE)):
        counts = np.isin(states, counted).sum(axis=1).astype(np.int32)
        columns[name] = arrow_of(np.repeat(counts, rows), ~total)
    wanted = np.array([sum(sample.wanted) for sample in samples], dtype=np.int32)
    columns["replicas_wanted"] = arrow_of(np.repeat(wanted, rows), ~total)
    table = pa.table(columns, schema=_schema())
    here = _with_all(states != GONE, np.ones(len(times), dtype=bool))
    return table if here.all() else table.filter(arrow_of(here))


def _grid(lists: list[Any], servers: int, absent: float) -> Any:
    """One row per sample and one column per server; `absent` for servers that do not exist yet."""
    import numpy as np

    grid = np.full((len(lists), servers), absent)
    for row, values in enumerate(lists):
        grid[row, : len(values)] = values
    return grid


def _by_server(
    samples: list[Sample], spans: Any, states: Any, prices_per_s: list[float]
) -> dict[str, Any]:
    """The per-server columns, preceded at each time by the value for all servers.

    Means are over the servers that could serve at that time.
    """
    import numpy as np

    servers = len(prices_per_s)

    def counts(name: str) -> Any:
        return _grid([getattr(sample, name) for sample in samples], servers, 0)

    def times(name: str) -> Any:
        return _grid([getattr(sample, name) for sample in samples], servers, 0.0)

    span = np.maximum(spans, 1e-300)[:, None]
    waiting, running, kv_used = counts("waiting"), counts("running"), times("kv_used")
    busy = np.clip(np.diff(times("busy_s"), axis=0, prepend=0.0) / span, 0.0, 1.0)
    steps = np.diff(counts("steps"), axis=0, prepend=0)
    cost = np.diff(times("paid_s"), axis=0, prepend=0.0) * prices_per_s
    serving = np.isin(states, (READY, DRAINING))
    return {
        "waiting": _with_all(waiting, waiting.sum(axis=1)),
        "running": _with_all(running, running.sum(axis=1)),
        "kv_used": _with_all(kv_used, _mean(kv_used, serving)),
        "busy": _with_all(busy, _mean(busy, serving)),
        "steps": _with_all(steps, steps.sum(axis=1)),
        "cost": _with_all(cost, cost.sum(axis=1)),
    }


def _mean(values: Any, serving: Any) -> Any:
    """Mean over the serving servers at each time; 0 if there are none."""
    import numpy as np

    return np.where(serving, values, 0.0).sum(axis=1) / np.maximum(serving.sum(axis=1), 1)


def _with_all(values: Any, together: Any) -> Any:
    import numpy as np

    return np.column_stack((together, values)).ravel()


def _prices_per_s(plan: ScenarioPlan, pools: list[int]) -> list[float]:
    """The cost of each server, in dollars per second."""
    return [cost_of(plan.pools[pool], 1.0) for pool in pools]


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            ("time", pa.float64()),
            ("interval", pa.float64()),
            ("pool", pa.dictionary(pa.int32(), pa.string())),
            ("replica", pa.int32()),
            ("state", pa.dictionary(pa.int32(), pa.string())),
            ("waiting", pa.int64()),
            ("running", pa.int64()),
            ("kv_used", pa.float64()),
            ("busy", pa.float64()),
            ("steps", pa.int64()),
            ("cost", pa.float64()),
            *((name, pa.int64()) for name in (*TOTALS, *LEVELS)),
            ("transferred_bytes", pa.float64()),
            ("replicas", pa.int32()),
            *((f"replicas_{STATES[state]}", pa.int32()) for state in HERE),
            ("replicas_wanted", pa.int32()),
        ]
    )


def write_token_gaps(path: Path, gaps: dict[str, Histogram]) -> None:
    """Writes one row per pool and non-empty bucket; gaps of zero have a row of their own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pools: list[str] = []
    lows: list[float] = []
    highs: list[float] = []
    counts: list[int] = []
    for pool, histogram in gaps.items():
        rows = [
            (GROWTH**bucket, GROWTH ** (bucket + 1), n) for bucket, n in histogram.buckets.items()
        ]
        if histogram.zeros:
            rows.insert(0, (0.0, 0.0, histogram.zeros))
        pools += [pool] * len(rows)
        lows += [row[0] for row in rows]
        highs += [row[1] for row in rows]
        counts += [row[2] for row in rows]
    schema = pa.schema(
        [
            ("pool", pa.dictionary(pa.int32(), pa.string())),
            ("low", pa.float64()),
            ("high", pa.float64()),
            ("count", pa.int64()),
        ]
    )
    columns = {"pool": pools, "low": lows, "high": highs, "count": counts}
    with path.open("wb") as file:
        pq.write_table(pa.table(columns, schema=schema), file, compression="zstd")
