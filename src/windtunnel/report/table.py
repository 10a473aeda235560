"""The table that a person sees after a run."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.core.units import format_count, format_duration, format_rate

LATENCIES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "gap between tokens",
    "e2e": "whole request",
    "queue": "waiting in a queue",
}
ENDINGS = {
    "completed": "completed",
    "rejected": "rejected",
    "timed_out": "timed out",
    "dropped": "dropped",
    "unfinished": "unfinished at the end",
}


def show(result: dict[str, Any], folder: Path | None, console: Console | None = None) -> None:
    """Prints a result for people, and where its files are."""
    console = console or Console(highlight=False)
    console.print(_headline(result))
    console.print(_latencies(result["latency"]))
    console.print(_pools(result["pools"]))
    for line in _sentences(result):
        console.print(line)
    if folder is not None:
        console.print(Text(f"results in {folder}/ (result.json, requests.parquet)", style="dim"))


def _headline(result: dict[str, Any]) -> Text:
    simulated = format_duration(result["simulated_seconds"])
    text = Text()
    text.append(result["name"], style="bold")
    text.append(f"  seed {result['seed']}, {simulated} simulated", style="dim")
    return text


def _latencies(latency: dict[str, dict[str, float | None]]) -> Table:
    table = Table("", "mean", "p50", "p90", "p95", "p99", "max", box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for key, name in LATENCIES.items():
        values = latency[key].values()
        cells = ["-" if value is None else format_duration(value) for value in values]
        table.add_row(name, *cells)
    return table


def _pools(pools: dict[str, dict[str, Any]]) -> Table:
    headers = ("pool", "busy", "KV peak", "preemptions", "replica hours")
    table = Table(*headers, box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, pool in pools.items():
        table.add_row(
            name,
            _percent(pool["utilization"]),
            _percent(pool["kv_peak"]),
            str(pool["preemptions"]),
            f"{pool['replica_seconds'] / 3600:.2f}",
        )
    return table


def _sentences(result: dict[str, Any]) -> list[Text]:
    requests, rate = result["requests"], result["throughput"]
    counts = [f"{requests[key]} {name}" for key, name in ENDINGS.items() if requests[key]]
    lines = [Text(f"{requests['arrived']} requests arrived: {', '.join(counts) or 'none ended'}")]
    if rate["requests_per_s"]:
        tokens = format_count(rate["output_tokens_per_s"])
        good = format_rate(rate["goodput_requests_per_s"])
        per_s = format_rate(rate["requests_per_s"])
        lines.append(Text(f"{per_s} requests ({good} within their SLO), {tokens} output tokens/s"))
    for name, slo in result["slo"].items():
        lines.append(Text(f"SLO {name}: {_percent(slo['attained'])} of {slo['requests']} attained"))
    if result["cost"]["total"]:
        cost, per_million = result["cost"]["total"], result["cost"]["per_million_output_tokens"]
        each = f", {per_million:.2f} per million output tokens" if per_million else ""
        lines.append(Text(f"cost {cost:.2f} dollars at list prices{each}"))
    return lines


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
