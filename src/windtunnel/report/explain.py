"""Explains the decisions of an autoscaler: what it saw, what it wanted, and what bound it."""

from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from windtunnel.core.errors import InputError
from windtunnel.core.units import format_duration
from windtunnel.report.decisions import Decided, decisions_of
from windtunnel.report.layout import indented


def decisions_at(folder: Path, at_s: float | None) -> list[Decided]:
    """The last decision about each pool up to a time, or of the run; by the name of the pool."""
    last: dict[str, Decided] = {}
    first_s: float | None = None
    for decided in decisions_of(folder):
        first_s = decided.time if first_s is None else first_s
        if at_s is not None and decided.time > at_s:
            break
        last[decided.subject] = decided
    if first_s is None:
        raise InputError("no decision was made in this run", where=str(folder))
    if not last:
        first, hint = format_duration(first_s), "give a later time with --at"
        raise InputError(f"the first decision was made at {first}", where=str(folder), hint=hint)
    return [last[subject] for subject in sorted(last)]


def as_json(decisions: list[Decided]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [
        {"time": one.time, "pool": one.pool, "reason": one.reason, **msgspec.to_builtins(one.data)}
        for one in decisions
    ]


def show(decisions: list[Decided], console: Console) -> None:
    """Prints each decision: the outcome, the reason, the way from the wish to it, the numbers."""
    for place, one in enumerate(decisions):
        if place:
            console.print()
        _show_one(one, console)


def _show_one(one: Decided, console: Console) -> None:
    told = one.data
    change = f"{told.current} -> {told.target}" if told.target != told.current else "stays at"
    size = change if told.target != told.current else f"{change} {told.target}"
    console.print(f"{one.pool}: {size}, decided at {format_duration(one.time)}", soft_wrap=True)
    lines = [one.reason, f"Wanted: {told.recommended}."]
    for limit in told.limits:
        without = (
            "it made no difference in the end"
            if limit.without == told.target
            else f"without it {limit.without}"
        )
        lines.append(f"{limit.name}: {limit.before} -> {limit.after}. {limit.reason} ({without})")
    if not told.limits:
        lines.append("No limit bound it.")
    if told.metrics:
        numbers = [f"{name} {_figure(value)}" for name, value in told.metrics.items()]
        lines.append("Seen: " + ", ".join(numbers) + ".")
    for line in lines:
        console.print(indented(console, line)[0], soft_wrap=True)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
