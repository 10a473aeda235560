"""Terminal output of a policy comparison: cost, SLO attainment and regret, the cheapest first."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.report.terminal.layout import print_fitting, say, say_indented, table_of
from windtunnel.report.terminal.searches.comparison import PAGE

HEADS = ("policy", "setting", "SLO attained", "cost", "regret", "changes")
NARROW = ((0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4), (0, 2, 3, 4), (0, 2, 3))
"""Columns that remain on narrower screens."""


class ArenaLine(NamedTuple):
    """A policy in one setting, as text; `attains`: whether it reached the goal."""

    cells: tuple[str, ...]
    attains: bool
    tuned: bool


def lines_of(contest: Mapping[str, Any]) -> list[ArenaLine]:
    """Policies that attain the goal, the cheapest first; then the others by attainment."""
    found = []
    for row in contest["contestants"]:
        for one in row["judged"]:
            attained, cost = one["attained"]["mean"], one["cost"]["mean"]
            attains = attained >= contest["goal"]
            order = (not attains, cost if attains else -attained)
            found.append(
                (order, ArenaLine(_cells(row, one, contest["unit"]), attains, _tuned(one)))
            )
    return [line for _, line in sorted(found, key=lambda pair: (pair[0], pair[1].cells))]


def _tuned(judged: Mapping[str, Any]) -> bool:
    return bool(judged["kind"] == "tuned")


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
    """A mean, and half of its interval if it has one."""
    text = f"{before}{scale * spread['mean']:.2f}{sign}"
    if spread["low"] is None:
        return text
    return f"{text} ±{scale * (spread['high'] - spread['mean']):.2g}"


def headline_of(contest: Mapping[str, Any]) -> str:
    """A sentence about the cheapest policy that attained the goal."""
    best = next((line for line in lines_of(contest) if line.attains), None)
    if best is None:
        return (
            f"No policy attained {contest['goal']:.0%} of the SLO on the traffic it was judged on."
        )
    name, setting, attained, cost, regret, _ = best.cells
    who = f"{name} ({setting}) is the cheapest to attain the goal"
    return f"{who}: {attained} for {cost}, {regret} foresight."


def notes_of(contest: Mapping[str, Any]) -> list[str]:
    """Notes for the reader."""
    cases, bounds = contest["cases"], contest["bounds"]
    notes = [
        f"Each knob was tuned on {cases['tuned_on']} and judged on {cases['judged_on']} other "
        f"runs; goal {contest['goal']:.0%}, {bounds['min']} to {bounds['max']} replicas, floors "
        f"{' and '.join(map(str, bounds['floors']))} tried for all.",
        "Regret is cost over that of foresight at equal attainment: the cheapest schedule found "
        "with all arrivals known, verified by simulation.",
    ]
    if contest["reached"] < contest["goal"]:
        notes.append(
            f"No fixed pool attained {contest['goal']:.0%} on the traffic for tuning, however many "
            f"replicas it had; the most was {contest['reached']:.1%}."
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
        rows = [
            [Text(line.cells[place], "" if line.attains else "dim") for place in columns]
            for line in lines
        ]
        words = 2 if 1 in columns else 1
        yield table_of([HEADS[place] for place in columns], rows, words=words)
