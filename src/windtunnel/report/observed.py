"""What an observation of a real server came to, as a table for people."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.core.units import format_duration
from windtunnel.report.layout import duration_cell, plain_table, print_fitting, screen
from windtunnel.workload.traces.measured import LATE_S

NAMES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "gap between pieces", "e2e": "E2E"}
FIGURES = (("mean", "p50", "p90", "p95", "p99", "max"), ("mean", "p50", "p90", "p99"))
"""What is left out first on a narrow screen."""


def show_observation(
    figures: dict[str, Any], path: str | None, console: Console | None = None
) -> None:
    """Prints the figures of an observation."""
    console = console or screen()
    requests = figures["requests"]
    sent = f"{requests['sent']} requests in {format_duration(figures['seconds'])}"
    ends = [f"{count} {name.replace('_', ' ')}" for name, count in requests.items() if count]
    console.print(Text(f"{sent}: {', '.join(ends[1:]) or 'none'}", style="bold"))
    if requests["completed"]:
        print_fitting(console, _latencies(figures["latency"]))
        through = figures["throughput"]
        console.print(
            f"{through['requests_per_s']:.2f} requests/s completed, "
            f"{through['goodput_requests_per_s']:.2f} within their targets, "
            f"{through['output_tokens_per_s']:.0f} output tokens/s",
            soft_wrap=True,
        )
    for line in _warnings(figures):
        console.print(Text(line, style="yellow"), soft_wrap=True)
    if path is not None:
        console.print(f"trace is in {path}", soft_wrap=True)


def _latencies(latency: dict[str, dict[str, Any]]) -> Iterable[Table]:
    for names in FIGURES:
        table = plain_table("latency", *names)
        for kind, title in NAMES.items():
            values = [latency[kind][name] for name in names]
            cells = ["-" if value is None else duration_cell(value) for value in values]
            table.add_row(title, *cells)
        yield table


def _warnings(figures: dict[str, Any]) -> list[str]:
    lines = [f"{count} x {error}" for error, count in figures["errors"].items()]
    lag = figures["lag"]
    if lag["p99"] is not None and lag["p99"] > LATE_S:
        late = f"{format_duration(lag['p99'])} at the 99th percentile"
        lines.append(
            f"requests were sent late, {late} and {format_duration(lag['max'])} at worst: this "
            "machine was too slow, or too many were in flight; the trace has when each was sent"
        )
    return lines
