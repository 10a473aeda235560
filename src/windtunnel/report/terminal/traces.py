"""Terminal output of trace statistics, and of how close a fit comes."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.core.units import counted, duration_cell, format_count, format_duration, format_rate
from windtunnel.report.terminal.layout import chosen, print_fitting, print_table, screen

BARS = " ▁▂▃▄▅▆▇█"
WIDEST_LINE = 60
FIGURES = (
    ("mean", "min", "p5", "p25", "p50", "p75", "p95", "p99", "max", "total"),
    ("mean", "min", "p50", "p95", "p99", "max", "total"),
    ("mean", "p50", "p95", "p99", "max"),
    ("mean", "p50", "p99", "max"),
    ("mean", "p50", "p99"),
)
"""Columns for narrower and narrower screens."""
OBSERVED = {"ttft_s": ("observed TTFT", "TTFT"), "e2e_s": ("observed E2E", "E2E")}
POOR_KS = 0.2
"""The Kolmogorov-Smirnov distance above which a fit does not resemble its trace."""
POOR = {"prompt": "prompt lengths", "output": "output lengths", "gaps": "gaps"}
NOT_FITTED = {
    "length_correlation": "prompt and output lengths are correlated",
    "prefix": "prompts share prefixes that are not plain system prompts",
    "session": "requests belong to sessions",
    "slo": "requests have classes of service",
    "tenant": "requests belong to tenants",
    "adapter": "requests are for LoRA adapters",
}


def sparkline(counts: Sequence[int], width: int = WIDEST_LINE) -> str:
    """Counts as bars, several counts to a bar if there are too many; a count above 0 is always
    visible."""
    size = max(-(-len(counts) // width), 1)
    bars = [sum(counts[at : at + size]) for at in range(0, len(counts), size)]
    most = max(bars, default=0)
    top = len(BARS) - 1
    return "".join(BARS[-(-bar * top // most)] if bar else BARS[0] for bar in bars)


def show_summary(
    figures: dict[str, Any], title: str, left_out: Sequence[str], console: Console | None = None
) -> None:
    """Prints the figures of a trace."""
    console = console or screen()
    console.print(Text(title, "bold"))
    if not figures["requests"]:
        console.print("no requests")
    else:
        for line in _sentences(figures, console.width):
            console.print(Text(line))
        print_fitting(console, _lengths(figures))
    if figures["rounded_to_s"] is not None:
        says = f"{_rounded(figures['rounded_to_s'])}; requests of one instant have gaps of 0"
        console.print(Text(says, "yellow"))
    for line in left_out:
        console.print(Text(line, "yellow"))


def _sentences(figures: dict[str, Any], width: int) -> list[str]:
    requests, rate, over = figures["requests"], figures["rate_per_s"], figures["rate_over_time"]
    lines = [f"{counted(requests, 'request')} over {format_duration(figures['span_s'])}"]
    if rate is not None:
        second, minute = figures["by_second"], figures["by_minute"]
        lines += [
            f"rate: mean {format_rate(rate)}, peak {_rate(second['peak_rate_per_s'])} "
            f"in a second, {_rate(minute['peak_rate_per_s'])} over a minute",
            f"|{sparkline(over['requests'], max(min(WIDEST_LINE, width - 2), 1))}|",
            f"burstiness: CV of gaps {_number(figures['gap_cv'])}, variance over mean of counts "
            f"{_number(second['dispersion'])} by second, {_number(minute['dispersion'])} by minute "
            "(poisson: 1)",
        ]
    if figures["length_correlation"] is not None:
        lines.append(
            f"correlation of prompt and output lengths: {figures['length_correlation']:+.2f}"
        )
    names = ("sources", "tenants", "models", "adapters", "slos", "sessions")
    distinct = [f"{figures[name]} {_noun(name, figures)}" for name in names if figures[name]]
    if distinct:
        lines.append(", ".join(distinct))
    prefix = figures["prefix"]
    if prefix["hit_rate"] is not None:
        bound = "at least " if "prefix" in figures["at_least"] else ""
        lines.append(
            f"prefix sharing: an endless cache would find {bound}{prefix['hit_rate']:.1%} of "
            f"prompt tokens, {prefix['segment_hit_rate']:.1%} of {prefix['segments']} segments"
        )
    return lines


def _noun(name: str, figures: dict[str, Any]) -> str:
    many, one = ("classes of service", "class of service") if name == "slos" else (name, name[:-1])
    noun = many if figures[name] != 1 else one
    return f"{noun} or more" if name in figures["at_least"] else noun


def _rate(per_s: float | None) -> str:
    return "-" if per_s is None else format_rate(per_s)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _lengths(figures: dict[str, Any]) -> Iterator[Table]:
    """The table of lengths for narrower and narrower screens."""
    keys = FIGURES[0]
    for short in (0, 1):
        rows = []
        for name in ("prompt_tokens", "output_tokens"):
            row = figures[name]
            cells = (
                format_count(row[key]) if key == "total" else f"{row[key]:.0f}" for key in keys
            )
            rows.append((name.partition("_")[0], *cells))
        for name, nouns in OBSERVED.items():
            row = figures["observed"][name]
            if row is not None:
                times = ("" if key == "total" else duration_cell(row[key]) for key in keys)
                rows.append((nouns[short], *times))
        yield from chosen(("", *keys), rows, FIGURES[: None if short else 1])


def show_fit(figures: dict[str, Any], console: Console | None = None) -> None:
    """Prints the trace beside the traffic that its fit generates."""
    console = console or screen()
    rows = {
        "rate, 1/s": figures["rate_per_s"],
        "CV of gaps": figures["gap_cv"],
        "variance over mean by minute": figures["dispersion_by_minute"],
    }
    for name in ("prompt_tokens", "output_tokens"):
        noun = name.replace("_", " ")
        rows |= {f"{noun}, {key}": figures[name][key] for key in ("mean", "p50", "p90", "p99")}
    cells = (
        (
            name,
            _figure(row["trace"]),
            _figure(row["fitted"]),
            "-" if row["error"] is None else f"{row['error']:+.1%}",
        )
        for name, row in rows.items()
    )
    print_table(console, ("", "trace", "generated", "error"), cells)
    distances = {
        "prompt": figures["prompt_tokens"]["ks"],
        "output": figures["output_tokens"]["ks"],
        "gaps": figures["gap_ks"],
    }
    listed = ", ".join(f"{name} {distance:.3f}" for name, distance in distances.items())
    console.print(Text(f"KS distance (0 is the same, 1 nothing alike): {listed}"))
    for name, distance in distances.items():
        if distance > POOR_KS:
            sentence = f"a poor fit: the {POOR[name]} are not distributed like the trace's"
            console.print(Text(f"{sentence} (KS distance above {POOR_KS})", "yellow"))
    step_s, window_s = figures["rounded_to_s"], figures["window_s"]
    if window_s is not None:
        console.print(Text(f"the rate changes every {format_duration(window_s)}"))
    if step_s is not None:
        says = f"{_rounded(step_s)}; requests of one instant were spread over it"
        console.print(Text(says, "yellow"))
    for name in figures["left_out"]:
        console.print(Text(f"not in the fit: {NOT_FITTED[name]}", "yellow"))


def _rounded(step_s: float) -> str:
    return f"the trace's times are rounded to {format_duration(step_s)}"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if abs(value) < 1_000 else f"{value:,.0f}"
