"""`timeline.parquet`: a run over time, by server and in all, as the report draws it."""

from pathlib import Path
from typing import Any

from windtunnel.twin.prices import cost_of
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.timeline import Sample, Timeline

TOTALS = ("arrived", "completed", "rejected", "timed_out", "dropped", "output_tokens")
"""Counts up to a sample; a row has what came since the sample before."""
LEVELS = ("at_gateway", "in_flight", "transfers")
"""Counts at a sample."""


def write_timeline(path: Path, plan: ScenarioPlan, timeline: Timeline) -> None:
    """Writes a row per sample and server, and one per sample for the whole run before them."""
    import pyarrow.parquet as pq

    with path.open("wb") as file:
        pq.write_table(timeline_table(plan, timeline), file, compression="zstd")


def timeline_table(plan: ScenarioPlan, timeline: Timeline) -> Any:
    """The same as a table in memory."""
    import numpy as np
    import pyarrow as pa

    samples = timeline.samples
    times = np.array([sample.time_s for sample in samples])
    spans = np.diff(times, prepend=0.0)
    replicas = [replica for pool in plan.pools for replica in range(pool.replicas)]
    pools = [index for index, pool in enumerate(plan.pools) for _ in range(pool.replicas)]
    rows = len(replicas) + 1
    total = np.tile(np.arange(rows) == 0, len(times))

    columns: dict[str, Any] = {
        "time": np.repeat(times, rows),
        "interval": np.repeat(spans, rows),
        "pool": pa.DictionaryArray.from_arrays(
            np.tile(np.array([0, *pools], dtype=np.int32), len(times)),
            [pool.name for pool in plan.pools],
            mask=total,
        ),
        "replica": pa.array(np.tile([-1, *replicas], len(times)).astype(np.int32), mask=total),
        **_by_server(plan, samples, spans),
    }
    for name in TOTALS:
        grown = np.diff([getattr(sample, name) for sample in samples], prepend=0)
        columns[name] = pa.array(np.repeat(grown, rows), mask=~total)
    for name in LEVELS:
        found = [getattr(sample, name) for sample in samples]
        columns[name] = pa.array(np.repeat(found, rows), mask=~total)
    carried = np.diff([sample.carried_bytes for sample in samples], prepend=0.0)
    columns["transferred_bytes"] = pa.array(np.repeat(carried, rows), mask=~total)
    alive = np.full(len(total), len(replicas), dtype=np.int32)
    columns["replicas"] = pa.array(alive, mask=~total)
    return pa.table(columns, schema=_schema())


def _by_server(plan: ScenarioPlan, samples: list[Sample], spans: Any) -> dict[str, Any]:
    """Columns that servers have: those of all servers together come first at each time."""
    import numpy as np

    span = np.maximum(spans, 1e-300)[:, None]
    waiting = np.array([sample.waiting for sample in samples], dtype=np.int64)
    running = np.array([sample.running for sample in samples], dtype=np.int64)
    kv_used = np.array([sample.kv_used for sample in samples])
    busy = np.diff([sample.busy_s for sample in samples], axis=0, prepend=0.0) / span
    steps = np.diff([sample.steps for sample in samples], axis=0, prepend=0)
    cost = np.outer(spans, _prices_per_s(plan))
    return {
        "waiting": _with_all(waiting, waiting.sum(axis=1)),
        "running": _with_all(running, running.sum(axis=1)),
        "kv_used": _with_all(kv_used, kv_used.mean(axis=1)),
        "busy": _with_all(np.clip(busy, 0.0, 1.0), np.clip(busy, 0.0, 1.0).mean(axis=1)),
        "steps": _with_all(steps, steps.sum(axis=1)),
        "cost": _with_all(cost, cost.sum(axis=1)),
    }


def _with_all(values: Any, together: Any) -> Any:
    import numpy as np

    return np.column_stack((together, values)).ravel()


def _prices_per_s(plan: ScenarioPlan) -> list[float]:
    """What each server costs, in dollars."""
    return [cost_of(pool, 1.0) for pool in plan.pools for _ in range(pool.replicas)]


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            ("time", pa.float64()),
            ("interval", pa.float64()),
            ("pool", pa.dictionary(pa.int32(), pa.string())),
            ("replica", pa.int32()),
            ("waiting", pa.int64()),
            ("running", pa.int64()),
            ("kv_used", pa.float64()),
            ("busy", pa.float64()),
            ("steps", pa.int64()),
            ("cost", pa.float64()),
            *((name, pa.int64()) for name in (*TOTALS, *LEVELS)),
            ("transferred_bytes", pa.float64()),
            ("replicas", pa.int32()),
        ]
    )
