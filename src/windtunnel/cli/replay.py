"""The `--replay` half of `windtunnel calibrate`: a recorded vLLM run against its simulation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.engine.replay import (
    RecordedRun,
    compare,
    fit_per_step,
    insist_on_setting,
    read_run,
)
from windtunnel.models.catalog import resolve_model
from windtunnel.models.table_files import read_table

if TYPE_CHECKING:
    from rich.table import Table


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
        insist_on_setting("--kv-blocks", kv_blocks)
        run = msgspec.structs.replace(run, kv_blocks=kv_blocks)
    if scheduling is not None:
        run = msgspec.structs.replace(run, async_scheduling=scheduling == "async")
    return run


def show_replay(outcome: dict[str, Any], tables: Path) -> None:
    """Prints how a replay came out, and how a scenario uses what was fitted."""
    from windtunnel.report.terminal.layout import print_fitting, screen

    console = screen()
    settings = outcome["settings"]
    mode = "asynchronous" if settings["async_scheduling"] else "synchronous"
    blocks = settings["kv_blocks"]
    memory = f"{blocks} KV blocks" if blocks else "KV memory taken to be no limit"
    served = f"{outcome['requests']} requests of {settings['model']}"
    per_step = f"{1e3 * outcome['per_step_s']:.3f}"
    console.print(f"{served}, {mode} scheduling, {memory}")
    console.print(f"fitted: {per_step} ms per step beyond the tables\n")
    print_fitting(console, (_latencies(outcome["latency"], short) for short in (0, 1)))
    console.print(
        f"\nscheduled at the same place in line: {outcome['order_agreement']:.1%} of the requests; "
        f"{outcome['preemptions']} preemptions simulated"
    )
    # Not wrapped: a line that is broken in two cannot be copied.
    use = f"use it: step_time: {{model: table, path: {tables}, per_step: {per_step}ms}}"
    console.print(use, soft_wrap=True)


def _latencies(latency: dict[str, dict[str, Any]], short: int) -> Table:
    from windtunnel.analysis.figures import LATENCIES
    from windtunnel.core.units import duration_cell
    from windtunnel.report.terminal.layout import plain_table

    table = plain_table("latency", "", "measured", "simulated", "error", words=2)
    for name, figures in latency.items():
        for title, figure in figures.items():
            times = (duration_cell(figure["measured"]), duration_cell(figure["simulated"]))
            table.add_row(LATENCIES[name][short], title, *times, f"{figure['error']:+.1%}")
    return table
