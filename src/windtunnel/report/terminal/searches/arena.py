"""Terminal output of a policy comparison: cost, SLO attainment and regret, the cheapest first."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.analysis.figures import share_text
from windtunnel.report.terminal.layout import print_fitting, say, say_indented, table_of
from windtunnel.report.terminal.searches.comparison import PAGE

HEADS = ("policy", "setting", "SLO attained", "cost", "regret", "changes")
NARROW = ((0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4), (0, 2, 3, 4), (0, 2, 3))
"""Columns that remain on narrower screens; without the setting, `(tuned)` or `(default)` follows
the name of a policy."""


class ArenaLine(NamedTuple):
    """A policy in one setting, as text; `attains`: whether it reached the goal."""

    cells: tuple[str, ...]
    attains: bool
    kind: str


def lines_of(contest: Mapping[str, Any]) -> list[ArenaLine]:
    """Policies that attain the goal, the cheapest first; then the others by attainment."""
    found = []
    for row in contest["contestants"]:
        for one in row["judged"]:
            attained, cost = one["attained"]["mean"], one["cost"]["mean"]
            attains = attained >= contest["goal"]
            order = (not attains, cost if attains else -attained)
            found.append(
                (order, ArenaLine(_cells(row, one, contest["unit"]), attains, one["kind"]))
            )
    return [line for _, line in sorted(found, key=lambda pair: (pair[0], pair[1].cells))]


def _cells(row: Mapping[str, Any], one: Mapping[str, Any], unit: str) -> tuple[str, ...]:
    return (
        row["name"],
        setting_of(row, one),
        _with_reach(one["attained"], 100.0, "%"),
        _with_reach(one["cost"], 1.0, "", "$" if unit == "$" else ""),
        _with_reach(one["regret"], 1.0, "x"),
        f"{one['changes']:.0f}",
    )


def setting_of(row: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    """The setting chosen for the policy."""
    if one["value"] is None:
        return "default"
    if row["knob"] == "replicas":
        return f"{one['value']:g} replicas"
    return f"{row['knob']} {one['value']:g}, min {one['floor']}"


def _with_reach(spread: Mapping[str, Any], scale: float, sign: str, before: str = "") -> str:
    """A mean, and half of its interval if it has one; a share whose interval ends at 0% or 100%
    has both ends."""
    mean, low, high = (spread[name] for name in ("mean", "low", "high"))
    text = f"{before}{scale * mean:.2f}{sign}"
    if low is None:
        return text
    if sign == "%" and not math.isclose(high - mean, mean - low, rel_tol=1e-6, abs_tol=1e-9):
        return f"{text} ({scale * low:.4g} to {scale * high:.4g})"
    return f"{text} ±{scale * (high - mean):.2g}"


def goal_of(contest: Mapping[str, Any]) -> str:
    return f"{100.0 * contest['goal']:.10g}%"


def headline_of(contest: Mapping[str, Any]) -> str:
    """A sentence about the cheapest policy that attained the goal."""
    best = next((line for line in lines_of(contest) if line.attains), None)
    if best is None:
        return f"No policy attained {goal_of(contest)} of the SLO on the traffic it was judged on."
    name, setting, attained, cost, regret, _ = best.cells
    who = f"{name} ({setting}) is the cheapest to attain the goal"
    return f"{who}: {attained} for {cost}, {regret} foresight."


def notes_of(contest: Mapping[str, Any]) -> list[str]:
    """Notes for the reader."""
    cases, bounds = contest["cases"], contest["bounds"]
    notes = [
        f"Each knob was tuned on {cases['tuned_on']} and judged on {cases['judged_on']} other "
        f"runs; goal {goal_of(contest)}, {bounds['min']} to {bounds['max']} replicas, floors "
        f"{' and '.join(map(str, bounds['floors']))} tried for all.",
        "Regret is cost over that of foresight at equal attainment: the cheapest schedule found "
        "with all arrivals known, verified by simulation.",
    ]
    if contest["reached"] < contest["goal"]:
        notes.append(
            f"No fixed pool attained {goal_of(contest)} on the traffic for tuning, however many "
            f"replicas it had; the most was {share_text(contest['reached'])}."
        )
    if cases["judged_on"] == 1:
        notes.append("It was judged on one run, so there is no interval.")
    notes += [f"{one['name']} was left out: {one['says']}" for one in contest["left_out"]]
    return notes


def show_arena(contest: Mapping[str, Any], folder: Path | None, console: Console) -> None:
    """Prints the table, its meaning, and where the page is."""
    say(console, f"policies on {contest['name']}", "bold")
    print_fitting(console, _tables(contest))
    console.print()
    say_indented(console, headline_of(contest))
    for note in notes_of(contest):
        say_indented(console, f"note: {note}")
    if folder is not None:
        say(console, f"open {folder / PAGE}")


def _tables(contest: Mapping[str, Any]) -> Iterable[Table]:
    lines = lines_of(contest)
    for columns in NARROW:
        has_setting = 1 in columns
        rows = []
        for line in lines:
            name = line.cells[0] if has_setting else f"{line.cells[0]} ({line.kind})"
            cells = (name, *(line.cells[place] for place in columns[1:]))
            rows.append([Text(cell, "" if line.attains else "dim") for cell in cells])
        words = 2 if has_setting else 1
        yield table_of([HEADS[place] for place in columns], rows, words=words)
