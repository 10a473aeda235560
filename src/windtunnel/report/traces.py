"""What a trace is like, and how close a fit comes, as tables for people."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.core.units import format_count, format_duration, format_rate

BARS = " ▁▂▃▄▅▆▇█"
WIDEST_LINE = 60
PERCENTILES = ("min", "p5", "p25", "p50", "p75", "p95", "p99", "max")
NOT_FITTED = {
    "length_correlation": "prompt and output lengths are correlated",
    "prefix": "prompts share prefixes that are no plain system prompts",
    "session": "requests belong to sessions",
    "slo": "requests have classes of service",
    "tenant": "requests belong to tenants",
}


def sparkline(counts: Sequence[int], width: int = WIDEST_LINE) -> str:
    """Counts as bars, several to a bar where there are more than fit; a bar that is seen is > 0."""
    size = max(-(-len(counts) // width), 1)
    bars = [sum(counts[at : at + size]) for at in range(0, len(counts), size)]
    most = max(bars, default=0)
    top = len(BARS) - 1
    return "".join(BARS[-(-bar * top // most)] if bar else BARS[0] for bar in bars)


def show_summary(
    figures: dict[str, Any], title: str, left_out: Sequence[str], console: Console | None = None
) -> None:
    """Prints the figures of a trace."""
    console = console or Console(highlight=False)
    console.print(Text(title, style="bold"))
    if not figures["requests"]:
        console.print("no requests")
    else:
        for line in _sentences(figures):
            console.print(Text(line))
        console.print(_lengths(figures))
    for line in left_out:
        console.print(Text(line, style="yellow"))


def _sentences(figures: dict[str, Any]) -> list[str]:
    requests, rate, over = figures["requests"], figures["rate_per_s"], figures["rate_over_time"]
    lines = [f"{requests} requests over {format_duration(figures['span_s'])}"]
    if rate is not None:
        second, minute = figures["by_second"], figures["by_minute"]
        lines += [
            f"rate: mean {format_rate(rate)}, peak {format_rate(second['peak_rate_per_s'])} "
            f"in a second, {format_rate(minute['peak_rate_per_s'])} over a minute",
            f"|{sparkline(over['requests'])}|",
            f"burstiness: CV of gaps {_number(figures['gap_cv'])}, variance over mean of counts "
            f"{_number(second['dispersion'])} by second, {_number(minute['dispersion'])} by minute "
            "(poisson: 1)",
        ]
    if figures["length_correlation"] is not None:
        lines.append(
            f"correlation of prompt and output lengths: {figures['length_correlation']:+.2f}"
        )
    names = ("sources", "tenants", "models", "slos", "sessions")
    counted = [f"{figures[name]} {_noun(name, figures)}" for name in names if figures[name]]
    if counted:
        lines.append(", ".join(counted))
    prefix = figures["prefix"]
    if prefix["hit_rate"] is not None:
        bound = "at least " if "prefix" in figures["at_least"] else ""
        lines.append(
            f"prefix sharing: an endless cache would find {bound}{prefix['hit_rate']:.1%} of "
            f"prompt tokens, {prefix['segment_hit_rate']:.1%} of {prefix['segments']} segments"
        )
    return lines


def _noun(name: str, figures: dict[str, Any]) -> str:
    words = {"slos": "classes of service"}
    noun = words.get(name, name) if figures[name] != 1 else words.get(name, name[:-1])
    return f"{noun} or more" if name in figures["at_least"] else noun


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _lengths(figures: dict[str, Any]) -> Table:
    table = Table("", "mean", *PERCENTILES, "total", box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for name in ("prompt_tokens", "output_tokens"):
        row = figures[name]
        cells = [f"{row[key]:.0f}" for key in ("mean", *PERCENTILES)]
        table.add_row(name.partition("_")[0], *cells, format_count(row["total"]))
    for name, noun in (("ttft_s", "observed TTFT"), ("e2e_s", "observed E2E")):
        row = figures["observed"][name]
        if row is not None:
            table.add_row(noun, *(format_duration(row[key]) for key in ("mean", *PERCENTILES)), "")
    return table


def show_fit(figures: dict[str, Any], section: str, console: Console | None = None) -> None:
    """Prints a fitted section, and the trace beside what it generates."""
    console = console or Console(highlight=False)
    console.print(Text(section), soft_wrap=True)
    table = Table("", "trace", "generated", "error", box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    rows = {
        "rate, 1/s": figures["rate_per_s"],
        "CV of gaps": figures["gap_cv"],
        "variance over mean by minute": figures["dispersion_by_minute"],
    }
    for name in ("prompt_tokens", "output_tokens"):
        noun = name.replace("_", " ")
        rows |= {f"{noun}, {key}": figures[name][key] for key in ("mean", "p50", "p90", "p99")}
    for name, row in rows.items():
        error = "-" if row["error"] is None else f"{row['error']:+.1%}"
        table.add_row(name, _figure(row["trace"]), _figure(row["fitted"]), error)
    console.print(table)
    prompt, output = figures["prompt_tokens"]["ks"], figures["output_tokens"]["ks"]
    distances = f"prompt {prompt:.3f}, output {output:.3f}, gaps {figures['gap_ks']:.3f}"
    console.print(Text(f"KS distance (0 is the same, 1 nothing alike): {distances}"))
    for name in figures["left_out"]:
        console.print(Text(f"not in the fit: {NOT_FITTED[name]}", style="yellow"))


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
