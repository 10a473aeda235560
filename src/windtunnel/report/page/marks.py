"""Decisions and faults as marks on charts; marks that would overlap are merged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from windtunnel.core.units import format_duration
from windtunnel.report.page.axes import percent

if TYPE_CHECKING:
    from windtunnel.analysis.explain.history import FaultHistory, LoggedEvent

PLACES = 200
"""Positions across a chart; marks at the same position are merged."""
MOST_SAID = 4
"""Limit on the decisions listed for one mark."""
MOST_FAULTS = 60


class DecisionMark(msgspec.Struct, frozen=True):
    """A mark above a chart; `many` if several decisions share it."""

    x: float
    says: str
    many: bool = False


class FaultSpan(msgspec.Struct, frozen=True):
    """A fault, with its start and length in percent of the run."""

    x: float
    width: float
    says: str


def thinned(moments: Iterable[tuple[float, str]], end_s: float) -> list[DecisionMark]:
    """Marks for moments, in chronological order."""
    places: dict[int, list[tuple[float, str]]] = {}
    for time_s, says in sorted(moments):
        places.setdefault(int(PLACES * time_s / end_s), []).append((time_s, says))
    marks = []
    for found in places.values():
        said = [f"{format_duration(time_s)}: {says}" for time_s, says in found[:MOST_SAID]]
        more = len(found) - MOST_SAID
        if more > 0:
            said.append(f"and {more} more")
        middle_s = (found[0][0] + found[-1][0]) / 2.0
        marks.append(DecisionMark(percent(middle_s / end_s), "\n".join(said), len(found) > 1))
    return marks


def of_scaling(happenings: Iterable[LoggedEvent]) -> list[tuple[float, str]]:
    """Scaling decisions that changed a size."""
    return [
        (one.time, f"{one.id}: {one.data['current']} to {one.data['target']}. {one.reason}")
        for one in happenings
        if one.data["target"] != one.data["current"]
    ]


def of_others(happenings: Iterable[LoggedEvent]) -> list[tuple[float, str]]:
    """Decisions of the gang controllers and the fleet."""
    found = []
    for one in happenings:
        word = one.kind.partition(".")[2]
        name = f"{one.id}: " if one.id else ""
        reason = f". {one.reason}" if one.reason else ""
        found.append((one.time, f"{name}{word} {one.name}{reason}"))
    return found


def troubles(faults: Iterable[FaultHistory], end_s: float) -> list[FaultSpan]:
    """Faults, as drawn through every chart, up to a limit."""
    found = []
    for one in list(faults)[:MOST_FAULTS]:
        until_s = end_s if one.until_s is None else min(one.until_s, end_s)
        when = format_duration(one.at_s)
        whom = one.struck(MOST_SAID)
        long = f" until {format_duration(until_s)}" if until_s > one.at_s else ""
        says = f"{one.id} at {when}{long}: {one.kind} of {whom}"
        width = percent((until_s - one.at_s) / end_s)
        found.append(FaultSpan(percent(one.at_s / end_s), width, says))
    return found
