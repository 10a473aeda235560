"""The page of a policy comparison: cost against SLO attainment, and a table; offline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windtunnel.report.page.document import document
from windtunnel.report.terminal.arena import HEADS, headline_of, lines_of, notes_of, setting_of

STYLES = ("report.css", "arena.css")
WIDTH, HEIGHT = 760.0, 320.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 12.0, 12.0, 34.0
SHARES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
FEWEST_MISSES, MOST_MISSES = 5e-4, 0.6
COSTS = 5


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


class ArenaPicture(msgspec.Struct, frozen=True):
    """Cost across, SLO attainment up, on a log scale of misses."""

    dots: list[ArenaDot]
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
                "goal": f"{contest['goal']:.0%}",
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
    top = 1.08 * max(costs, default=1.0)

    def across(cost: float) -> float:
        share = min(max(cost / top, 0.0), 1.0) if top > 0.0 else 0.0
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
                look="ours" if row["name"] == "predictive" else one["kind"],
                says=f"{row['name']}, {setting_of(row, one)}: {attained['mean']:.2%} for "
                f"{cost['mean']:.2f}, regret {one['regret']['mean']:.2f}",
                name=row["name"] if one["kind"] == "tuned" else "",
            )
        )
    return ArenaPicture(
        dots=dots,
        tried=[
            (across(one["cost"]), up(one["attained"]), f"{row['name']}, {setting_of(row, one)}")
            for row, one in tried
            if one["cost"] <= top
        ],
        lines=[
            " ".join(f"{across(cost)},{up(attained)}" for attained, cost in points)
            for points in frontiers
        ],
        goal=up(contest["goal"]),
        x_ticks=[(across(top * n / COSTS), f"{top * n / COSTS:.3g}") for n in range(COSTS + 1)],
        y_ticks=[(up(share), f"{100 * share:g}%") for share in SHARES],
    )


def _end(spread: Mapping[str, Any], name: str) -> float:
    end = spread[name]
    return float(spread["mean"] if end is None else end)
