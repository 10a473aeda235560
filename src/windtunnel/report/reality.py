"""A measured server beside its simulation, as a table for people."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.core.units import format_duration
from windtunnel.report.layout import duration_cell, plain_table, print_fitting, screen
from windtunnel.report.table import LATENCIES

FIGURES = ("mean", "p50", "p90", "p95", "p99")


def show_reality(found: dict[str, Any], title: str, console: Console | None = None) -> None:
    """Prints what `compare_with_reality` found."""
    console = console or screen()
    requests = found["requests"]
    console.print(Text(title, style="bold"))
    console.print(
        f"{requests['compared']} of {requests['measured']} requests, measured and simulated as "
        "they were sent",
        soft_wrap=True,
    )
    if requests["not_completed_when_simulated"]:
        count = requests["not_completed_when_simulated"]
        console.print(Text(f"{count} are not completed when simulated", style="yellow"))
    late = found["sent_late"]
    if late is not None:
        said = f"{format_duration(late['p99'])} at the 99th percentile"
        text = f"requests were sent late, {said} and {format_duration(late['max'])} at worst"
        console.print(Text(text, style="yellow"), soft_wrap=True)
    console.print()
    print_fitting(console, (_latencies(found["latency"], short) for short in (0, 1)))
    console.print()
    for line in _shares(found):
        console.print(line, soft_wrap=True)
    _print_advice(console, found)


def _latencies(latency: dict[str, dict[str, Any]], short: int) -> Table:
    table = plain_table("latency", "", "measured", "simulated", "error", words=2)
    for kind, figures in latency.items():
        for name in FIGURES:
            figure = figures[name]
            if figure["measured"] is None:
                continue
            times = (duration_cell(figure["measured"]), duration_cell(figure["simulated"]))
            error = "-" if figure["error"] is None else f"{figure['error']:+.1%}"
            table.add_row(LATENCIES[kind][short], name, *times, error)
        if figures["mape"] is not None:
            table.add_row(LATENCIES[kind][short], "MAPE", "", "", f"{figures['mape']:.1%}")
    return table


def _shares(found: dict[str, Any]) -> Iterable[str]:
    goodput, hits = found["goodput"], found["prefix_hit"]
    yield (
        f"within their targets: {goodput['measured']:.1%} measured, "
        f"{goodput['simulated']:.1%} simulated"
    )
    if hits["measured"] is not None:
        yield (
            f"prompt tokens found in the prefix cache: {hits['measured']:.1%} measured, "
            f"{hits['simulated']:.1%} simulated"
        )


def _print_advice(console: Console, found: dict[str, Any]) -> None:
    if not found["advice"]:
        console.print("nothing to recalibrate", soft_wrap=True)
        return
    console.print(Text("\nto recalibrate", style="bold"))
    for advice in found["advice"]:
        console.print(f"- {advice['says']}", soft_wrap=True)
        for setting in advice["set"]:
            console.print(f"  --set {setting}", soft_wrap=True)
    after = found["with_advice"]
    if after is not None:
        errors = ", ".join(
            f"{LATENCIES[kind][1]} {error:+.1%}"
            for kind, error in after.items()
            if error is not None
        )
        console.print(f"with these the means are off by: {errors}", soft_wrap=True)
