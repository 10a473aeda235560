"""Terminal output of a run: what happened, how fast, and where the files are."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.analysis.figures import (
    DOLLARS,
    LATENCIES,
    NOTHING,
    OUTCOMES,
    SECONDS,
    cells_of,
    heads_of,
    text_of,
)
from windtunnel.analysis.run_folder import REPORT
from windtunnel.core.units import (
    UNIT_SECONDS,
    format_count,
    format_duration,
    format_rate,
)
from windtunnel.report.terminal.layout import (
    chosen,
    narrower,
    print_fitting,
    say,
    say_indented,
)
from windtunnel.report.terminal.run_details import (
    class_tables,
    ending_lines,
    fault_lines,
    infrastructure_lines,
    machine_tables,
    part_lines,
    part_tables,
    short_lines,
)
from windtunnel.report.terminal.trust import show_trust
from windtunnel.workload.settings.sources import SloClass

FIGURES = (
    ("mean", "p50", "p90", "p95", "p99", "max"),
    ("mean", "p50", "p90", "p99", "max"),
    ("mean", "p50", "p99", "max"),
    ("mean", "p50", "p99"),
    ("mean", "p99"),
)
"""Columns for narrower and narrower screens."""


def show(
    result: dict[str, Any],
    slos: Mapping[str, SloClass],
    folder: Path | None,
    console: Console,
    also: Mapping[str, Path] | None = None,
    *,
    by_chance: bool = True,
) -> None:
    """Prints a result, and where its files are; `slos` are those of its scenario.

    `also` are additional files, by their content. `by_chance`: whether another seed would change
    anything.
    """
    targeted = {name for name in result["slo"] if _has_target(slos[name])}
    console.print(_headline(result))
    for override in result.get("overrides", ()):
        say_indented(console, f"set {override}")
    console.print()
    console.print(_counts(result))
    for line in ending_lines(result, OUTCOMES):
        say_indented(console, line)
    for line in [
        *_sentences(result, goodput=bool(targeted)),
        *part_lines(result),
        *infrastructure_lines(result),
        *fault_lines(result),
    ]:
        console.print(Text(line))
    console.print()
    print_fitting(console, _latencies(latencies_of(result)))
    console.print()
    if result["slo"]:
        print_fitting(console, class_tables(result["slo"], targeted))
        console.print()
    if result.get("models"):
        models = result["models"]
        print_fitting(console, part_tables("models.MODEL", models, len(models)))
        console.print()
    if len(result["tenants"]) > 1:
        print_fitting(console, part_tables("tenants.TENANT", result["tenants"]))
        console.print()
    print_fitting(console, _pools(result))
    console.print()
    if result["fleet"] is not None:
        print_fitting(console, machine_tables(result["fleet"], result["simulated_seconds"]))
        for line in short_lines(result["fleet"]):
            say_indented(console, line)
        console.print()
    show_trust(result["trust"], console, by_chance=by_chance)
    if folder is not None:
        console.print()
        say(console, f"open {folder / REPORT}; the results are beside it")
    for what, path in (also or {}).items():
        say(console, f"{what}: {path}")


def latencies_of(result: dict[str, Any]) -> dict[str, dict[str, float | None]]:
    """The latencies to show; that of the gateway is omitted if there is none."""
    latency = result["latency"]
    return {key: latency[key] for key in LATENCIES if key != "gateway" or latency[key]["mean"]}


def _headline(result: dict[str, Any]) -> Text:
    simulated = format_duration(result["simulated_seconds"])
    simulated = f"{simulated} simulated{', partial' if result.get('partial') else ''}"
    simulated += measured_text(result)
    return Text.assemble((result["name"], "bold"), (f"  seed {result['seed']}, {simulated}", "dim"))


def measured_text(result: dict[str, Any]) -> str:
    """The part of the run that figures are measured over; empty if it is the whole."""
    window = result.get("measured")
    if window is None:
        return ""
    start, end = format_duration(window["from"]), window["to"]
    return f", measured from {start}" + (f" to {format_duration(end)}" if end is not None else "")


def _has_target(slo: SloClass) -> bool:
    return any(target is not None for target in (slo.ttft_s, slo.tpot_s, slo.e2e_s))


def _counts(result: dict[str, Any]) -> Text:
    requests = result["requests"]
    counts = [f"{requests[key]} {name}" for key, name in OUTCOMES.items() if requests[key]]
    noun = "request" if requests["arrived"] == 1 else "requests"
    arrived = f"{requests['arrived'] or 'no'} {noun} arrived"
    return Text(arrived + ": " * bool(counts) + ", ".join(counts))


def _sentences(result: dict[str, Any], *, goodput: bool) -> list[str]:
    requests, rate, cost = result["requests"], result["throughput"], result["cost"]
    lines = []
    if requests["completed"]:
        completed = format_rate(rate["requests_per_s"])
        unit = completed.rpartition("/")[2]
        good = rate["goodput_requests_per_s"] * UNIT_SECONDS[unit]
        digits = f"{good:.3g}" if good < 999.5 else f"{good:.0f}"
        within = f", {digits}/{unit} within their SLO" if goodput else ""
        tokens = format_count(rate["output_tokens_per_s"])
        lines.append(f"{completed} completed{within}, {tokens} output tokens/s")
    if cost["total"]:
        each = cost["per_million_output_tokens"]
        per_million = f", {text_of(DOLLARS, each)} per million output tokens" if each else ""
        lines.append(f"cost: {text_of(DOLLARS, cost['total'])}{per_million}")
    return lines


def _latencies(latency: dict[str, dict[str, float | None]]) -> Iterable[Table]:
    """The table of latencies for narrower and narrower screens."""
    heads = ("latency", *FIGURES[0])
    for short in (0, 1):
        rows = [
            (LATENCIES[key][short], *(text_of(SECONDS, values[name]) for name in FIGURES[0]))
            for key, values in latency.items()
        ]
        yield from chosen(heads, rows, FIGURES[: None if short else 1])


def _pools(result: dict[str, Any]) -> Iterable[Table]:
    shown = differing(result["pools"])
    rows = []
    for name, pool in result["pools"].items():
        servers = pool["replica_seconds"] / (result["simulated_seconds"] or 1.0)
        cells = [name, f"{servers:.1f}".removesuffix(".0"), *cells_of("pools.POOL", pool)]
        rows.append([*cells, *(pool[key] or NOTHING for key in shown)])
    return narrower(["pool", "servers", *heads_of("pools.POOL"), *shown], rows, 3, len(shown))


def differing(pools: dict[str, dict[str, Any]]) -> list[str]:
    """The columns that distinguish pools: model and cluster, each if there are several."""
    keys = ("model", "cluster")
    return [key for key in keys if len({pool.get(key) for pool in pools.values()}) > 1]
