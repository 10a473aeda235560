"""What a person sees after a comparison: for each design, what is better, worse, or neither."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.core.units import format_count
from windtunnel.report.layout import duration_cell, indented, plain_table, print_fitting
from windtunnel.twin.comparison import BETTER, WORSE
from windtunnel.twin.trust import GOOD

DATA = "compare.json"
PAGE = "compare.html"
NOTHING = "-"
COLOURS = {BETTER: "green", WORSE: "red"}
LONGEST_HEADER = 16
NARROW = (
    (0, 1, 2, 3, 4),
    (0, 2, 3, 4),
    (0, 3, 4),
    (0, 4),
)
"""Which columns are left on narrower and narrower screens."""


def show(comparison: dict[str, Any], folder: Path | None, console: Console) -> None:
    """Prints a table for each design but the first, and where the page is."""
    names = [design["name"] for design in comparison["designs"]]
    seeds = comparison["seeds"]
    title = Text.assemble((title_of(comparison), "bold"))
    console.print(title.append(f"  seeds {seeds[0]} to {seeds[-1]}", "dim"))
    for place, name in enumerate(names[1:], start=1):
        console.print()
        if len(names) > 2:
            console.print(Text(name, "bold"), soft_wrap=True)
        print_fitting(console, _tables(comparison, place))
    console.print()
    for note in comparison["notes"]:
        text, _ = indented(console, f"note: {note['says']}")
        console.print(Text(text), soft_wrap=True)
    for severity, says, whose in doubts(comparison):
        text, _ = indented(console, f"{severity} ({whose}): {says}")
        console.print(Text(text), soft_wrap=True)
    if folder is not None:
        # Not wrapped: a path that is broken in two cannot be copied.
        console.print(Text(f"open {folder / PAGE}"), soft_wrap=True)


def title_of(comparison: dict[str, Any]) -> str:
    """Who is held against whom."""
    first, *others = (design["name"] for design in comparison["designs"])
    who = others[0] if len(others) == 1 else f"{len(others)} designs"
    return f"{who} against {first}"


def _tables(comparison: dict[str, Any], place: int) -> Iterable[Table]:
    names = [comparison["designs"][number]["name"] for number in (0, place)]
    long = any(len(name) > LONGEST_HEADER for name in names)
    first, other = ("first", "this one") if long else names
    headers = ("metric", first, other, "difference, 95%", "")
    for kept in NARROW:
        table = plain_table(*(headers[number] for number in kept))
        table.columns[-1].justify = "left"
        for metric in shown_metrics(comparison):
            base, ours = metric["designs"][0], metric["designs"][place]
            difference = ours["difference"]
            verdict = difference["verdict"]
            cells = (
                Text(metric["name"]),
                Text(value_cell(metric["unit"], base["mean"])),
                Text(value_cell(metric["unit"], ours["mean"])),
                Text(difference_cell(metric["unit"], difference)),
                Text(verdict, COLOURS.get(verdict, "dim")),
            )
            table.add_row(*(cells[number] for number in kept))
        yield table


def doubts(comparison: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The gravest finding of each design that has one: (severity, sentence, whose)."""
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
    """All but those of which no design has any in any run: a zero everywhere tells nothing."""
    return [
        metric
        for metric in comparison["metrics"]
        if any(value for design in metric["designs"] for value in design["values"])
    ]


def value_cell(unit: str, value: float | None) -> str:
    """A figure as a column needs it."""
    if value is None:
        return NOTHING
    if unit == "s":
        return duration_cell(value)
    if unit == "share":
        return f"{value:.1%}"
    if unit == "$":
        return f"${value:,.2f}" if value >= 0.1 else f"${value:.3g}"
    if unit == "requests/s":
        return f"{value:.3g}/s" if value < 999.5 else f"{value:,.0f}/s"
    if unit == "tokens/s":
        return f"{format_count(value)}/s"
    return f"{value:,.1f}".removesuffix(".0")


def ends_of(unit: str, difference: dict[str, Any]) -> tuple[list[float], str] | None:
    """Low end, middle and high end of a difference, with the unit that people read it in."""
    if difference["low"] is None:
        return None
    if difference["ratio"] is not None:
        ratio = difference["ratio"]
        return [100.0 * (ratio[name] - 1.0) for name in ("low", "mean", "high")], "%"
    ends = [difference[name] for name in ("low", "mean", "high")]
    return ([100.0 * end for end in ends], " points") if unit == "share" else (ends, "")


def difference_cell(unit: str, difference: dict[str, Any]) -> str:
    """Both ends of an interval: percent of the first, of a share points."""
    found = ends_of(unit, difference)
    if found is None:
        return NOTHING
    ends, sign = found
    low, high = signed(ends[0]), signed(ends[2])
    return f"{low}{sign}" if low == high else f"{low} to {high}{sign}"


def signed(value: float) -> str:
    """Three digits at most, and never nothing for something."""
    size = abs(value)
    if size >= 99.95:
        return f"{value:+,.0f}"
    if size >= 0.05:
        return f"{value:+.1f}"
    return "0" if size < 1e-9 else f"{value:+.1g}"
