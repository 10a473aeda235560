"""The `--replay` half of `windtunnel calibrate`: a recorded vLLM run against its simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.engine.replay import RecordedRun, compare, fit_per_step, read_run
from windtunnel.models.catalog import resolve_model
from windtunnel.models.table_files import read_table

NAMES = {"ttft": "first token", "tpot": "time per token", "e2e": "end to end"}


def replay_run(
    folder: Path,
    tables: Path,
    model: str | None,
    kv_blocks: int | None,
    scheduling: str | None,
) -> dict[str, Any]:
    """Fits the time per step and compares; what is given overrides what was recorded."""
    run = _run(read_run(folder), kv_blocks, scheduling)
    name = model or run.model
    if not name:
        raise InputError("meta.json names no model", where=str(folder), hint="add --model NAME")
    table = read_table(tables, resolve_model(name))
    per_step_s = fit_per_step(run, table.with_per_step)
    comparison = compare(run, table.with_per_step(per_step_s), per_step_s)
    settings = msgspec.to_builtins(run)
    del settings["requests"]
    return {"settings": settings | {"model": name}, **msgspec.to_builtins(comparison)}


def _run(run: RecordedRun, kv_blocks: int | None, scheduling: str | None) -> RecordedRun:
    if kv_blocks is not None:
        run = msgspec.structs.replace(run, kv_blocks=kv_blocks)
    if scheduling is not None:
        run = msgspec.structs.replace(run, async_scheduling=scheduling == "async")
    return run


def show_replay(outcome: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    settings = outcome["settings"]
    mode = "asynchronous" if settings["async_scheduling"] else "synchronous"
    blocks = settings["kv_blocks"]
    memory = f"{blocks} KV blocks" if blocks else "KV memory taken to be no limit"
    served = f"{outcome['requests']} requests of {settings['model']}"
    console.print(f"{served}, {mode} scheduling, {memory}")
    console.print(f"Fitted: {1e3 * outcome['per_step_s']:.3f} ms per step beyond the tables")
    table = Table("", "", "measured", "simulated", "error")
    for name, figures in outcome["latency"].items():
        for title, figure in figures.items():
            times = (f"{figure['measured']:.4f} s", f"{figure['simulated']:.4f} s")
            table.add_row(NAMES[name], title, *times, f"{figure['error']:+.1%}")
    console.print(table)
    console.print(
        f"Scheduled at the same place in line: {outcome['order_agreement']:.1%} of the requests; "
        f"{outcome['preemptions']} preemptions simulated"
    )
