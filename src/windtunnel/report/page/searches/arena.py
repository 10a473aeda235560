"""The page of a policy comparison: cost against SLO attainment, and a table; offline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windtunnel.report.page.document import document
from windtunnel.report.terminal.searches.arena import (
    HEADS,
    goal_of,
    headline_of,
    lines_of,
    notes_of,
    setting_of,
)

STYLES = ("report.css", "arena.css")
WIDTH, HEIGHT = 760.0, 320.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 12.0, 12.0, 34.0
SHARES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
FEWEST_MISSES, MOST_MISSES = 5e-4, 0.6
COSTS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
"""Costs with a tick, and their multiples by powers of ten."""
LETTER, LINE = 6.6, 12.0
"""Width of a letter and height of a line, at least, in the font of labels."""
RADIUS = 4.5
DIRECTIONS = tuple((math.cos(math.pi * n / 8), -math.sin(math.pi * n / 8)) for n in range(16))
NEAR, FAR, STEP = 9.0, 180.0, 6.0
"""Distances of a label from its dot: the first, the last, and from one to the next."""


class ArenaDot(msgspec.Struct, frozen=True):
    """A policy in one setting: its position, its interval, and its name."""

    x: float
    y: float
    low_x: float
    high_x: float
    low_y: float
    high_y: float
    look: str
    says: str
    name: str


class ArenaLabel(msgspec.Struct, frozen=True):
    """The name of a dot beside it, and a line from the dot to a name further away."""

    x: float
    y: float
    name: str
    look: str
    leader: tuple[float, float, float, float] | None


class ArenaPicture(msgspec.Struct, frozen=True):
    """Cost across, SLO attainment up; log scales of costs and of misses."""

    dots: list[ArenaDot]
    labels: list[ArenaLabel]
    tried: list[tuple[float, float, str]]
    lines: list[str]
    goal: float
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


def arena_page(title: str, contests: Sequence[Mapping[str, Any]]) -> str:
    """The page of one or several policy comparisons, as HTML."""
    values = {
        "title": title,
        "heads": HEADS,
        "contests": [
            {
                "name": contest["name"],
                "headline": headline_of(contest),
                "notes": notes_of(contest),
                "lines": lines_of(contest),
                "unit": contest["unit"],
                "goal": goal_of(contest),
                "picture": _picture(contest),
            }
            for contest in contests
        ],
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "bottom": HEIGHT - BOTTOM,
        "windtunnel": contests[0]["windtunnel"] if contests else "",
    }
    return document("arena.html", values, styles=STYLES, filters={})


def _picture(contest: Mapping[str, Any]) -> ArenaPicture:
    judged = [(row, one) for row in contest["contestants"] for one in row["judged"]]
    tried = [(row, one) for row in contest["contestants"] for one in row["tried"]]
    frontiers = [one["frontier"] for one in contest["foresight"]]
    costs = [one["cost"]["mean"] for _, one in judged]
    costs += [cost for points in frontiers for _, cost in points]
    paid = [cost for cost in costs if cost > 0.0] or [1.0]
    bottom, top = min(paid) / 1.1, 1.1 * max(paid)

    def across(cost: float) -> float:
        share = math.log(min(max(cost, bottom), top) / bottom) / math.log(top / bottom)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)

    def up(attained: float) -> float:
        misses = min(max(1.0 - attained, FEWEST_MISSES), MOST_MISSES)
        share = math.log(MOST_MISSES / misses) / math.log(MOST_MISSES / FEWEST_MISSES)
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share, 1)

    dots = []
    for row, one in judged:
        attained, cost = one["attained"], one["cost"]
        dots.append(
            ArenaDot(
                x=across(cost["mean"]),
                y=up(attained["mean"]),
                low_x=across(_end(cost, "low")),
                high_x=across(_end(cost, "high")),
                low_y=up(_end(attained, "low")),
                high_y=up(_end(attained, "high")),
                look=f"ours {one['kind']}" if row["name"] == "predictive" else one["kind"],
                says=f"{row['name']}, {setting_of(row, one)}: {attained['mean']:.2%} for "
                f"{cost['mean']:.2f}, regret {one['regret']['mean']:.2f}",
                name=row["name"] if one["kind"] == "tuned" else "",
            )
        )
    return ArenaPicture(
        dots=dots,
        labels=labels_of(dots),
        tried=[
            (across(one["cost"]), up(one["attained"]), f"{row['name']}, {setting_of(row, one)}")
            for row, one in tried
            if bottom <= one["cost"] <= top
        ],
        lines=[
            " ".join(f"{across(cost)},{up(attained)}" for attained, cost in points)
            for points in frontiers
        ],
        goal=up(contest["goal"]),
        x_ticks=[(across(cost), f"{cost:g}") for cost in _round_costs(bottom, top)],
        y_ticks=[(up(share), f"{100 * share:g}%") for share in SHARES],
    )


def _round_costs(bottom: float, top: float) -> list[float]:
    powers = range(math.floor(math.log10(bottom)), math.floor(math.log10(top)) + 1)
    ticks = [10.0**power * cost for power in powers for cost in COSTS]
    return [cost for cost in ticks if bottom <= cost <= top]


class _Box(msgspec.Struct, frozen=True):
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    @property
    def is_within_the_chart(self) -> bool:
        return self.left >= LEFT and self.right <= WIDTH and self.top >= 0 and self.bottom <= HEIGHT


def labels_of(dots: Sequence[ArenaDot]) -> list[ArenaLabel]:
    """Places each name as near to its dot as possible without covering a dot or a name."""
    taken = [_Box(d.x - RADIUS, d.y - RADIUS, d.x + RADIUS, d.y + RADIUS) for d in dots]
    labels = []
    named = [dot for dot in dots if dot.name]
    for dot in sorted(named, key=lambda d: (d.look != "ours tuned", d.x, d.y)):
        box = _place(dot, taken)
        taken.append(box)
        # The leader ends at the point of the box that is nearest to the dot.
        to_x = min(max(dot.x, box.left), box.right)
        to_y = min(max(dot.y, box.top), box.bottom)
        away = math.dist((dot.x, dot.y), (to_x, to_y)) > NEAR + 1.0
        leader = (dot.x, dot.y, round(to_x, 1), round(to_y, 1)) if away else None
        x, y = round(box.left, 1), round(box.bottom - 3.0, 1)
        labels.append(ArenaLabel(x, y, dot.name, dot.look, leader))
    return labels


def _place(dot: ArenaDot, taken: Sequence[_Box]) -> _Box:
    """The free box nearest to a dot, right and up first; if there is none, the nearest."""
    wide = LETTER * len(dot.name)
    found = None
    for step in range(int((FAR - NEAR) / STEP) + 1):
        for across, down in DIRECTIONS:
            # The box's edge or corner that faces the dot lies in this direction.
            x = dot.x + across * (NEAR + step * STEP) + (across - 1.0) / 2.0 * wide
            y = dot.y + down * (NEAR + step * STEP) + (down - 1.0) / 2.0 * LINE
            box = _Box(x, y, x + wide, y + LINE)
            found = found or box
            if box.is_within_the_chart and not any(box.overlaps(other) for other in taken):
                return box
    assert found is not None
    return found


def _end(spread: Mapping[str, Any], name: str) -> float:
    end = spread[name]
    return float(spread["mean"] if end is None else end)
