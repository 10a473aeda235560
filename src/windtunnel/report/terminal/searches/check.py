"""Terminal output of a check: the verdict, limits, decisions that differ, figures."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from windtunnel.analysis.figures import NOTHING
from windtunnel.core.units import format_duration
from windtunnel.report.terminal.layout import (
    narrower,
    print_fitting,
    print_table,
    say,
    say_indented,
    seeds_text,
)
from windtunnel.report.terminal.searches.comparison import doubts, tables, title_of

DATA, PAGE, MARKDOWN = "check.json", "check.html", "check.md"
COLOURS = {"passed": "green", "failed": "red", "uncertain": "yellow"}
LIMIT_HEADS = ("limit", "", "found", "verdict")
DECISION_HEADS = ("decisions", "made", "differ", "first")


def show(found: dict[str, Any], folder: Path | None, console: Console) -> None:
    """Prints the check, and where the page is."""
    title = Text.assemble((title_of(found), "bold"))
    console.print(title.append(f"  {traffic_of(found)}", "dim"), soft_wrap=True)
    console.print()
    rows = [
        [name, limit, value, Text(verdict, COLOURS[verdict])]
        for name, limit, value, verdict in limit_rows(found)
    ]
    print_fitting(console, narrower(LIMIT_HEADS, rows, 1, last=2))
    console.print()
    decisions = decision_rows(found)
    print_table(console, DECISION_HEADS[:-1], [row[:-1] for row in decisions])
    for kind, _, _, first in decisions:
        if first != NOTHING:
            say_indented(console, f"first {kind}: {first}")
    console.print()
    print_fitting(console, tables(found, 1))
    console.print()
    for note in found["notes"]:
        say_indented(console, f"note: {note['says']}")
    for severity, says, whose in doubts(found):
        say_indented(console, f"{severity} ({whose}): {says}")
    say(console, outcome_of(found), f"bold {COLOURS[sign_of(found)]}")
    if folder is not None:
        say(console, f"open {folder / PAGE}")


def sign_of(found: dict[str, Any]) -> str:
    """The verdict on a limit that looks like the verdict on the whole check."""
    return {"regression": "failed", "undecided": "uncertain"}.get(found["verdict"], "passed")


def outcome_of(found: dict[str, Any]) -> str:
    """The verdict in a sentence."""
    sign = sign_of(found)
    if sign == "passed":
        count = len(found["limits"])
        kind = "default limit" if found["default_limits"] else "limit"
        return f"passed: {count} of {count} {kind}{'' if count == 1 else 's'} met"
    parts = ", ".join(
        f"{one['name']} {one['found_text']} ({one['limit']})"
        for one in found["limits"]
        if one["verdict"] == sign
    )
    more = "run more seeds" if len(found["seeds"]) > 1 else "replay more traffic"
    advice = f"; {more}" if sign == "uncertain" else ""
    return f"{found['verdict']}: {parts}{advice}"


def traffic_of(found: dict[str, Any]) -> str:
    """The requests that both sides got."""
    base, changed = found["requests"]
    count = f"{base:,}" if base == changed else f"{base:,} and {changed:,}"
    source = f" of {found['traffic']}" if found["traffic"] is not None else ""
    blocks = found["blocks"]
    how = seeds_text(found["seeds"])
    if blocks is not None:
        how = f"{blocks['count']} blocks of {format_duration(blocks['s'])}"
    return f"{count} requests{source} in {format_duration(found['traffic_s'])}, {how}"


def limit_rows(found: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    return [
        (one["name"], one["limit"], one["found_text"], one["verdict"]) for one in found["limits"]
    ]


def decision_rows(found: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """The kind of decision, how many were made, how many differ, and the first difference."""
    return [
        (one["kind"], f"{one['decided']:,}", _share(one), _first(one["first"]))
        for one in found["decisions"]
    ]


def _share(one: dict[str, Any]) -> str:
    if not one["differ"]:
        return "0"
    return f"{one['differ']:,} ({one['differ'] / one['decided']:.1%})"


def _first(first: dict[str, Any] | None) -> str:
    if first is None:
        return NOTHING
    at = format_duration(first["time_s"])
    return f"{first['subject']} at {at}: {first['base']} -> {first['changed']}"
