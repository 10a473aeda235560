"""The last lines after a run: how far to trust it, the most severe findings first."""

from typing import Any

from rich.console import Console
from rich.text import Text

from windtunnel.analysis.figures import TARGETS
from windtunnel.analysis.trust import CAUTION, DOUBT, GOOD
from windtunnel.core.units import duration_cell
from windtunnel.report.terminal.layout import INDENT, chosen, indented, print_fitting

MOST_LINES = 3
FIGURES = (("mean", "p50", "p95", "p99"), ("mean", "p50", "p99"), ("mean", "p99"))
"""Columns for narrower and narrower screens."""
COLOURS = {GOOD: "green", CAUTION: "yellow", DOUBT: "red"}


def show_trust(
    trust: dict[str, Any], console: Console, *, by_chance: bool, data: str = "result.json"
) -> None:
    """Prints the verdict and a few findings; a run without objections gets one line.

    `by_chance`: whether another seed would change anything. `data` is the file with all findings.
    """
    verdict = trust["verdict"]
    console.print(Text.assemble(("trust", "bold"), "  ", (verdict, COLOURS[verdict])))
    if trust["latency_intervals"] is not None:
        heads = (intervals_are(trust), *FIGURES[0])
        rows = [(name, *cells) for name, cells in interval_rows(trust)]
        print_fitting(console, chosen(heads, rows, FIGURES))
        if trust["repeats"] is not None and trust["repeats"]["by_chance"] is None:
            console.print(Text("other seeds change nothing: step times alone are varied", "dim"))
    grave = [one for one in trust["findings"] if one["severity"] != GOOD]
    for one in grave[:MOST_LINES]:
        lines, start = indented(console, f"{one['severity']}: {one['says']}")
        text = Text(lines)
        text.stylize(COLOURS[one["severity"]], start, start + len(one["severity"]) + 1)
        console.print(text, soft_wrap=True)
    if len(grave) > MOST_LINES:
        console.print(Text(f"{INDENT}and {len(grave) - MOST_LINES} more, in {data}", "dim"))
    if trust["repeats"] is None and by_chance:
        console.print(Text("figures of one seed: --trust repeats the run for intervals", "dim"))


def intervals_are(trust: dict[str, Any]) -> str:
    """What intervals cover: chance as well, or errors of step times alone."""
    of_chance = trust["repeats"] is None or trust["repeats"]["by_chance"] is not None
    return "95% of further runs" if of_chance else "fast to slow steps"


def interval_rows(trust: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Intervals of further runs, a row for each latency; empty after a single run."""
    intervals = trust["latency_intervals"]
    if intervals is None:
        return []
    return [
        (name, [interval_cell(intervals[kind][figure]) for figure in FIGURES[0]])
        for kind, name in TARGETS.items()
    ]


def interval_cell(ends: list[float] | None) -> str:
    """Both ends of an interval; the unit is shown once if both have the same."""
    if ends is None:
        return "-"
    low, high = (duration_cell(end) for end in ends)
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(' ' + unit) else low} to {high}"
