"""Terminal output of a comparison: for each design, what is better, worse, or neither."""

import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.analysis.comparison import (
    ALIKE,
    BETTER,
    ONE_SAMPLE,
    SAME,
    TOO_FEW,
    UNKNOWN,
    UNSEEN,
    WORSE,
)
from windtunnel.analysis.figures import NOTHING, text_of
from windtunnel.analysis.trust import GOOD
from windtunnel.report.terminal.layout import (
    print_fitting,
    say,
    say_indented,
    seeds_text,
    several,
    table_of,
)

DATA = "compare.json"
PAGE = "compare.html"
COLOURS = {BETTER: "green", WORSE: "red"}
BRIEF = {
    BETTER: "better",
    WORSE: "worse",
    ALIKE: "alike",
    UNSEEN: "unseen",
    TOO_FEW: "too few",
    SAME: "same",
    ONE_SAMPLE: "one run",
    UNKNOWN: NOTHING,
}
"""Short verdicts for narrow screens."""
HEADER_WIDTHS = (16, 12, 10)
"""Widths of design names above their columns, wrapped to several lines; the widest that fits is
used."""
LARGEST_PERCENT = 10_000.0
"""Larger percentages are not shown exactly: their digits are noise."""


class ComparisonLayout(NamedTuple):
    """The parts of a table that remain on narrower screens."""

    columns: tuple[int, ...] = (0, 1, 2, 3, 4)
    ends: bool = True  # both ends of intervals
    brief: bool = False  # verdicts in a word


LAYOUTS = (
    ComparisonLayout(),
    ComparisonLayout(ends=False),
    ComparisonLayout((0, 1, 2, 4), ends=False),
    ComparisonLayout((0, 1, 2, 4), ends=False, brief=True),
    ComparisonLayout((0, 1, 4), ends=False, brief=True),
)
"""All include the figures of the first design, without which a difference means little."""


def show(comparison: dict[str, Any], folder: Path | None, console: Console) -> None:
    """Prints a table for each design except the first, and where the page is."""
    names = [design["name"] for design in comparison["designs"]]
    title = Text.assemble((title_of(comparison), "bold"))
    console.print(title.append(f"  {seeds_text(comparison['seeds'])}", "dim"))
    for place, name in enumerate(names[1:], start=1):
        console.print()
        if len(names) > 2:
            say(console, name, "bold")
        print_fitting(console, tables(comparison, place))
    console.print()
    for note in comparison["notes"]:
        say_indented(console, f"note: {note['says']}")
    for severity, says, whose in doubts(comparison):
        say_indented(console, f"{severity} ({whose}): {says}")
    if folder is not None:
        say(console, f"open {folder / PAGE}")


def title_of(comparison: dict[str, Any]) -> str:
    """Which designs are compared."""
    first, *others = (design["name"] for design in comparison["designs"])
    who = others[0] if len(others) == 1 else f"{len(others)} designs"
    return f"{who} against {first}"


def tables(comparison: dict[str, Any], place: int) -> Iterable[Table]:
    """A design compared with the first, for wide screens and then for narrower ones."""
    first, other = (comparison["designs"][number]["name"] for number in (0, place))
    interval = "difference, 95%" if has_intervals(comparison) else "difference"
    for layout, width in itertools.product(LAYOUTS, HEADER_WIDTHS):
        between = interval if layout.ends else "difference"
        designs = (several(broken(name, width)) for name in (first, other))
        headers: tuple[str | Text, ...] = ("metric", *designs, between, "")
        rows = [_cells(metric, place, layout) for metric in shown_metrics(comparison)]
        yield table_of(
            [headers[number] for number in layout.columns],
            [[cells[number] for number in layout.columns] for cells in rows],
            left=[-1],
        )


def broken(name: str, width: int) -> list[str]:
    """A name split into lines of at most `width`, preferably after its punctuation."""
    lines = [""]
    for part in re.findall(r"[^\s.,:/=_-]*[\s.,:/=_-]?", name):
        for start in range(0, len(part), width):
            piece = part[start : start + width]
            if lines[-1] and len(lines[-1] + piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return [line.strip() for line in lines]


def has_intervals(comparison: dict[str, Any]) -> bool:
    """Whether differences have intervals."""
    return any(
        design["difference"]["low"] is not None
        for metric in comparison["metrics"]
        for design in metric["designs"][1:]
    )


def _cells(metric: dict[str, Any], place: int, layout: ComparisonLayout) -> tuple[str | Text, ...]:
    unit, base, ours = metric["unit"], metric["designs"][0], metric["designs"][place]
    verdict = said = ours["difference"]["verdict"]
    between = (difference_cell if layout.ends else middle_cell)(unit, ours["difference"])
    if layout.brief:
        said = BRIEF[verdict]
    elif verdict == TOO_FEW and 3 in layout.columns:
        between, said = TOO_FEW, ""  # in place of an interval without information
    return (
        metric["name"],
        text_of(unit, base["mean"]),
        text_of(unit, ours["mean"]),
        between,
        Text(said, COLOURS.get(verdict, "dim")),
    )


def doubts(comparison: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The most severe finding of each design that has one: (severity, sentence, designs)."""
    found: dict[tuple[str, str], list[str]] = {}
    for design in comparison["designs"]:
        trust = design["trust"]
        if trust["verdict"] != GOOD:
            found.setdefault((trust["verdict"], trust["says"]), []).append(design["name"])
    every = len(comparison["designs"])
    return [
        (*about, "all" if len(names) == every else ", ".join(names))
        for about, names in found.items()
    ]


def shown_metrics(comparison: dict[str, Any]) -> list[dict[str, Any]]:
    """All metrics except those that are zero for every design in every run."""
    return [
        metric
        for metric in comparison["metrics"]
        if any(value for design in metric["designs"] for value in design["values"])
    ]


def ends_of(unit: str, difference: dict[str, Any]) -> tuple[list[float], str] | None:
    """Low end, middle and high end of a difference, with the unit it is shown in.

    With one sample, the ends equal the middle.
    """
    if difference["mean"] is None:
        return None
    ratio = difference["ratio"]
    found = difference if ratio is None else ratio
    names = ("mean",) * 3 if found["low"] is None else ("low", "mean", "high")
    ends = [found[name] for name in names]
    if ratio is not None:
        return [100.0 * (end - 1.0) for end in ends], "%"
    return ([100.0 * end for end in ends], " points") if unit == "share" else (ends, "")


def difference_cell(unit: str, difference: dict[str, Any]) -> str:
    """Both ends of an interval: percent of the first design, or points for a share."""
    found = ends_of(unit, difference)
    if found is None:
        return NOTHING
    ends, sign = found
    low, high = bounded(ends[0], sign), bounded(ends[2], sign)
    return f"{low}{sign}" if low == high else f"{low} to {high}{sign}"


def middle_cell(unit: str, difference: dict[str, Any]) -> str:
    """The middle of an interval, in the same units."""
    found = ends_of(unit, difference)
    return NOTHING if found is None else f"{bounded(found[0][1], found[1])}{found[1]}"


def bounded(value: float, sign: str) -> str:
    """A number with its sign; very large percentages are cut off."""
    if sign == "%" and value > LARGEST_PERCENT:
        return f">{signed(LARGEST_PERCENT)}"
    return signed(value)


def signed(value: float) -> str:
    """A number with its sign, rounded to about three digits; never shown as 0 unless it is."""
    size = abs(value)
    if size >= 99.95:
        return f"{value:+,.0f}"
    if size >= 0.05:
        return f"{value:+.1f}"
    return "0" if size < 1e-9 else f"{value:+.1g}"
