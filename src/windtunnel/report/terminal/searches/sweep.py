"""Terminal output of a sweep: a row per point, the best figures, and the Pareto front."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.analysis.figures import NOTHING, SHARE, figure, text_of
from windtunnel.core.errors import one_line
from windtunnel.report.terminal.layout import (
    print_fitting,
    say,
    say_indented,
    seeds_text,
    table_of,
)
from windtunnel.search.point import written
from windtunnel.search.sweep.folder import PAGE, RESULTS
from windtunnel.search.sweep.summary import best_of, mean_of

MOST_ROWS = 40
"""Limit on the points shown; beyond it, the Pareto front."""
MOST_FAILURES = 5
LONGEST_VALUE = 28
ON_FRONT = "*"
SURE = 0.005
"""Half widths below half a percent are not shown; for shares, below a tenth of that."""


def show(summary: Mapping[str, Any], folder: Path | None, console: Console) -> None:
    """Prints the table of a sweep, what failed, and where the page is."""
    points, front = summary["points"], summary["front"]
    title = f"{summary['name']} at {len(points)} point{'' if len(points) == 1 else 's'}"
    console.print(Text.assemble((title, "bold"), (f"  {seeds_text(summary['seeds'])}", "dim")))
    shown, left_out = _rows(summary)
    if shown:
        console.print()
        print_fitting(console, _tables(summary, shown))
    console.print()
    if left_out:
        say_indented(console, f"{left_out} points more are in the page and in {RESULTS}")
    if front["points"]:
        quality, cost = figure(front["quality"]).label, figure(front["cost"]).label
        say_indented(console, f"{ON_FRONT} on the Pareto front of {quality} and {cost}")
    failures = _failures([point for point in points if point["failed"] is not None])
    for sentence, whose in failures[:MOST_FAILURES]:
        say_indented(console, f"failed ({whose}): {sentence}")
    if len(failures) > MOST_FAILURES:
        say_indented(console, f"{len(failures) - MOST_FAILURES} other failures are in {RESULTS}")
    if folder is not None:
        say(console, f"open {folder / PAGE}")


def _rows(summary: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], int]:
    """The points that the table shows, and the number it omits."""
    measured = [point for point in summary["points"] if point["failed"] is None]
    if len(measured) <= MOST_ROWS:
        return measured, 0
    front = summary["front"]["points"]
    shown = [point for point in measured if point["point"] in front] or measured
    return shown[:MOST_ROWS], len(measured) - len(shown[:MOST_ROWS])


def _failures(failed: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The errors of failed points, each once, with its points."""
    found: dict[str, list[int]] = {}
    for point in failed:
        found.setdefault(one_line(point["failed"], 300), []).append(point["point"])
    return [
        (sentence, f"point {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} points")
        for sentence, numbers in found.items()
    ]


def _tables(summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterable[Table]:
    """Tables with intervals and fewer and fewer figures, at least two; then without intervals."""
    several = any(figures["low"] is not None for figures in rows[0]["metrics"].values())
    names: list[str] = summary["shown"]
    for count in range(len(names), min(len(names), 2) - 1, -1) if several else ():
        yield _table(summary, rows, names[:count], ends=True)
    for count in range(len(names), 0, -1):
        yield _table(summary, rows, names[:count], ends=False)


def _table(
    summary: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    *,
    ends: bool,
) -> Table:
    paths = [axis["path"] for axis in summary["axes"]]
    heads = ["", *short_names(paths), *(figure(name).label for name in names)]
    worded = [
        place
        for place, path in enumerate(paths, 1)
        if any(isinstance(point["settings"][path], str) for point in rows)
    ]
    front = summary["front"]["points"]
    best = {name: best_of(summary["points"], name) for name in names}
    lines = []
    for point in rows:
        settings = [one_line(written(point["settings"][path]), LONGEST_VALUE) for path in paths]
        cells = []
        for name in names:
            mean = mean_of(point, name)
            is_best = mean is not None and mean == best[name]
            cells.append(Text(figure_cell(point, name, ends=ends), "green" if is_best else ""))
        lines.append([ON_FRONT if point["point"] in front else "", *settings, *cells])
    return table_of(heads, lines, left=worded)


def figure_cell(point: Mapping[str, Any], name: str, *, ends: bool) -> str:
    """A mean and, with `ends`, half of its interval; a share whose interval ends at 0% or 100%
    has both ends."""
    mean = mean_of(point, name)
    if mean is None:
        return NOTHING
    unit = figure(name).unit
    text = text_of(unit, mean)
    low, high = point["metrics"][name]["low"], point["metrics"][name]["high"]
    if not ends or low is None:
        return text
    half = max(mean - low, high - mean)
    if not mean or half < (SURE / 10.0 if unit == SHARE else SURE * abs(mean)):
        return text
    if unit != SHARE:
        return f"{text} ±{half / abs(mean):.0%}"
    if math.isclose(mean - low, high - mean, rel_tol=1e-6):
        return f"{text} ±{100.0 * half:.1f}"
    return f"{text} ({100.0 * low:.1f} to {100.0 * high:.1f})"


def short_names(paths: Sequence[str]) -> list[str]:
    """The last components of paths, as many as make them unique."""
    for words in range(1, 33):
        names = [".".join(path.split(".")[-words:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return list(paths)
