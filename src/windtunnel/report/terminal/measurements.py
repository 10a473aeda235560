"""Measured servers as tables: an observation, or a measured trace beside its simulation."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console

from windtunnel.analysis.figures import LATENCIES, SECONDS, text_of
from windtunnel.core.units import duration_cell, format_duration
from windtunnel.report.terminal.layout import chosen, print_fitting, say, screen, table_of
from windtunnel.workload.traces.measured import LATE_S

COMPARED = ("mean", "p50", "p90", "p95", "p99")


def show_reality(found: dict[str, Any], title: str, console: Console | None = None) -> None:
    """Prints the result of `compare_with_reality`."""
    console = console or screen()
    requests = found["requests"]
    say(console, title, "bold")
    say(
        console,
        f"{requests['compared']} of {requests['measured']} requests, measured and simulated as "
        "they were sent",
    )
    if found["sent_late"] is not None:
        say(console, _sent_late(found["sent_late"]), "yellow")
    if requests["not_completed_when_simulated"]:
        count = requests["not_completed_when_simulated"]
        say(
            console,
            f"{count} {'is' if count == 1 else 'are'} not completed when simulated",
            "yellow",
        )
    console.print()
    compared_latencies(console, found["latency"])
    console.print()
    for line in _shares(found):
        say(console, line)
    _print_advice(console, found)


def compared_latencies(console: Console, latency: dict[str, dict[str, Any]]) -> None:
    """Prints measured and simulated latencies side by side."""
    heads = ("latency", "", "measured", "simulated", "error")
    tables = (table_of(heads, _compared_rows(latency, short), words=2) for short in (0, 1))
    print_fitting(console, tables)


def _compared_rows(latency: dict[str, dict[str, Any]], short: int) -> Iterable[tuple[str, ...]]:
    for kind, figures in latency.items():
        title = LATENCIES[kind][short]
        for name, figure in figures.items():
            if name in COMPARED and figure["measured"] is not None:
                times = (duration_cell(figure["measured"]), duration_cell(figure["simulated"]))
                error = "-" if figure["error"] is None else f"{figure['error']:+.1%}"
                yield title, name, *times, error
        if figures.get("mape") is not None:
            yield title, "MAPE", "", "", f"{figures['mape']:.1%}"


def _sent_late(late: dict[str, Any]) -> str:
    p99, worst = format_duration(late["p99"]), format_duration(late["max"])
    return f"requests were sent late, {p99} at the 99th percentile and {worst} at worst"


def _shares(found: dict[str, Any]) -> Iterable[str]:
    goodput, hits = found["goodput"], found["prefix_hit"]
    if goodput["measured"] is None:
        yield "SLO attainment: no target"
    else:
        shares = (f"{goodput[side]:.1%} {side}" for side in ("measured", "simulated"))
        yield f"SLO attainment: {', '.join(shares)}"
    if hits["measured"] is not None:
        yield (
            f"prompt tokens found in the prefix cache: {hits['measured']:.1%} measured, "
            f"{hits['simulated']:.1%} simulated"
        )


def _print_advice(console: Console, found: dict[str, Any]) -> None:
    if not found["advice"]:
        say(console, "nothing to recalibrate")
        return
    console.print()
    say(console, "advice", "bold")
    for advice in found["advice"]:
        say(console, f"- {advice['says']}")
        for setting in advice["set"]:
            say(console, f"  --set {setting}")
    after = found["with_advice"]
    if after is not None:
        errors = ", ".join(
            f"{LATENCIES[kind][1]} {error:+.1%}"
            for kind, error in after.items()
            if error is not None
        )
        say(console, f"with these the means are off by: {errors}")


OBSERVED = {"ttft": "TTFT", "tpot": "TPOT", "itl": "gap between pieces", "e2e": "E2E"}
OBSERVED_FIGURES = (("mean", "p50", "p90", "p95", "p99", "max"), ("mean", "p50", "p90", "p99"))
"""Columns for a wide and for a narrow screen."""


def show_observation(
    figures: dict[str, Any],
    path: str | None,
    console: Console | None = None,
    *,
    goodput: bool = True,
) -> None:
    """Prints the figures of an observation; without `goodput`, no request had a target."""
    console = console or screen()
    requests, latency = figures["requests"], figures["latency"]
    sent = f"{requests['sent']} requests in {format_duration(figures['seconds'])}"
    ends = [f"{count} {name.replace('_', ' ')}" for name, count in requests.items() if count]
    say(console, f"{sent}: {', '.join(ends[1:]) or 'none'}", "bold")
    if requests["completed"]:
        heads = ("latency", *OBSERVED_FIGURES[0])
        rows = [
            (title, *(text_of(SECONDS, latency[kind][name]) for name in heads[1:]))
            for kind, title in OBSERVED.items()
        ]
        print_fitting(console, chosen(heads, rows, OBSERVED_FIGURES))
        through = figures["throughput"]
        within = f"{through['goodput_requests_per_s']:.2f} within their SLO, " if goodput else ""
        say(
            console,
            f"{through['requests_per_s']:.2f} requests/s completed, {within}"
            f"{through['output_tokens_per_s']:.0f} output tokens/s",
        )
    for error, count in figures["errors"].items():
        say(console, f"{count} x {error}", "yellow")
    lag = figures["lag"]
    if lag["p99"] is not None and lag["p99"] > LATE_S:
        why = "this machine was too slow, or too many were in flight; the trace has when each was"
        say(console, f"{_sent_late(lag)}: {why} sent", "yellow")
    if path is not None:
        say(console, f"trace is in {path}")
