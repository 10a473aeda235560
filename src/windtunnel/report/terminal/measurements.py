"""Measured servers as tables: an observation, and a measured trace beside its simulation."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.analysis.figures import LATENCIES, SECONDS, text_of
from windtunnel.core.units import duration_cell, format_duration
from windtunnel.report.terminal.layout import plain_table, print_fitting, screen
from windtunnel.workload.traces.measured import LATE_S

COMPARED = ("mean", "p50", "p90", "p95", "p99")


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
    print_fitting(console, (_compared_latencies(found["latency"], short) for short in (0, 1)))
    console.print()
    for line in _shares(found):
        console.print(line, soft_wrap=True)
    _print_advice(console, found)


def _compared_latencies(latency: dict[str, dict[str, Any]], short: int) -> Table:
    table = plain_table("latency", "", "measured", "simulated", "error", words=2)
    for kind, figures in latency.items():
        for name in COMPARED:
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
        f"SLO attainment: {goodput['measured']:.1%} measured, {goodput['simulated']:.1%} simulated"
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


OBSERVED = {"ttft": "TTFT", "tpot": "TPOT", "itl": "gap between pieces", "e2e": "E2E"}
OBSERVED_FIGURES = (("mean", "p50", "p90", "p95", "p99", "max"), ("mean", "p50", "p90", "p99"))
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
        print_fitting(console, _observed_latencies(figures["latency"]))
        through = figures["throughput"]
        console.print(
            f"{through['requests_per_s']:.2f} requests/s completed, "
            f"{through['goodput_requests_per_s']:.2f} within their SLO, "
            f"{through['output_tokens_per_s']:.0f} output tokens/s",
            soft_wrap=True,
        )
    for line in _warnings(figures):
        console.print(Text(line, style="yellow"), soft_wrap=True)
    if path is not None:
        console.print(f"trace is in {path}", soft_wrap=True)


def _observed_latencies(latency: dict[str, dict[str, Any]]) -> Iterable[Table]:
    for names in OBSERVED_FIGURES:
        table = plain_table("latency", *names)
        for kind, title in OBSERVED.items():
            values = [latency[kind][name] for name in names]
            cells = [text_of(SECONDS, value) for value in values]
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
