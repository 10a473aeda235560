"""The page of a plan: cost against attainment, or load against latency; one offline file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windtunnel.core.units import format_duration
from windtunnel.report.page.axes import ACROSS, Tick, anchor_at, path, percent, round_up
from windtunnel.report.page.document import document
from windtunnel.report.page.headline import TrustBox, trust_box
from windtunnel.report.terminal.searches.plan import (
    REASONS,
    PlannedScenario,
    answer_lines,
    command_of,
    cost,
    curve_cells,
    number,
    parts_of,
    searched,
    share,
    unit_of,
    why_not,
)

STYLES = ("report.css", "trust.css", "plan.css")
HEIGHT = 300.0
DEAREST = 3.0
"""The most expensive candidate drawn, as a multiple of the answer's cost."""
MOST_LISTED = 500
LOOKS = {"best": "best", "runner-up": "next", "misses-slo": "misses", "not-sure-enough": "unsure"}
KEYS = (
    ("best", "the answer"),
    ("next", "runners-up"),
    ("unsure", "attains it, with too little confidence"),
    ("misses", "misses"),
    ("other", "not judged to the end"),
)


class PlanDot(msgspec.Struct, frozen=True):
    """A candidate, or a load: percent across, pixels down, and its vertical interval."""

    x: float
    y: float
    low: float | None
    high: float | None
    look: str
    text: str


class PlanChart(msgspec.Struct, frozen=True):
    """Dots over two axes, a line through some of them, and reference lines."""

    title: str
    about: str
    dots: list[PlanDot]
    line: str
    across: list[Tick]
    down: list[Tick]
    level: float | None = None
    """The goal, in pixels down."""
    level_text: str = ""
    mark: float | None = None
    """The answer, in percent across."""
    band: tuple[float, float] | None = None
    mark_text: str = ""


def plan_page(found: Mapping[str, Any], asked: PlannedScenario) -> str:
    """The page of a plan, as HTML."""
    deployment = found["find"] == "deployment"
    lines = answer_lines(found)
    values = {
        "found": found,
        "title": lines[0],
        "lines": lines[1:],
        "charts": _all_charts(found) if deployment else _load_charts(found),
        "keys": KEYS if deployment else (),
        "height": HEIGHT,
        "across": ACROSS,
        "tiles": _tiles(found),
        "goals": [_goal(part) for part in parts_of(found)],
        "trust": _trust(found),
        "searched": searched(found),
        "command": command_of(found["best"], asked) if found.get("best") else None,
        "parts": [_part(part) for part in parts_of(found)] if deployment else [],
        "curve": [curve_cells(row) for row in found.get("curve", ())],
        "unit": unit_of(found) if deployment else "",
    }
    return document("plan.html", values, styles=STYLES, filters={})


def _part(found: Mapping[str, Any]) -> dict[str, Any]:
    """The candidates of a plan, or those of one of its models."""
    return {
        "of": f" for {found['model']}" if "model" in found else "",
        "best": found["best"],
        "runners_up": [_row(row, found) for row in found["runners_up"]],
        "why": [_row(row, found) for row in why_not(found)],
        "reasons": _reasons(found),
        "listed": [_row(row, found) for row in found["candidates"]][:MOST_LISTED],
        "left": max(0, len(found["candidates"]) - MOST_LISTED),
    }


def _trust(found: Mapping[str, Any]) -> TrustBox | None:
    """The trust box, as for a run; repeats are not suggested, since a plan has run several
    seeds."""
    if found["trust"] is None:
        return None
    return trust_box(found, {"by_chance": False})


def _row(row: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, str]:
    several = len(found["goal"]["classes"]) > 1
    return {
        "label": row["label"],
        "cost": number(row, found),
        "attained": share(row["attained"]),
        "low": share(row["low"]),
        "why": row["why"],
        "look": LOOKS.get(row["reason"], "other"),
        "targets": ", ".join(
            f"{name if several else name.rpartition('.')[2]} {share(kept)}"
            for name, kept in row["by_target"].items()
        ),
        "reason": REASONS.get(row["reason"], row["reason"]),
    }


def _goal(found: Mapping[str, Any]) -> str:
    """`critical: TTFT up to 500 ms, TPOT up to 50 ms; 95% of its requests, 95% confidence`."""
    goal = found.get("goal")
    if goal is None:
        return str(found["definition"])
    parts = []
    for name, targets in goal["classes"].items():
        kept = [f"{k.upper()} up to {format_duration(v)}" for k, v in targets.items() if v]
        of = f"{found['model']}, " if "model" in found else ""
        parts.append(f"{of}{name}: {', '.join(kept)}")
    asked = f"{share(goal['attained'])} of the requests"
    asked += ", each target by itself" if goal["each_target"] else ""
    return f"{'; '.join(parts)}; {asked}, {share(goal['confidence'])} confidence"


def _reasons(found: Mapping[str, Any]) -> list[tuple[str, int]]:
    counts = found["searched"]["reasons"]
    order = [*REASONS, *(name for name in counts if name not in REASONS)]
    return [(REASONS.get(name, name), counts[name]) for name in order if name in counts]


def _tiles(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    of = found["searched"]
    runs = ("runs", str(of["runs"]), f"as long as {of['whole_runs']:.3g} full-length")
    if found["find"] == "load" and found["carried"] is not None:
        carried = found["carried"]
        rate = carried["requests_per_s"]
        per_s = "" if rate is None else f"{rate:.3g} requests/s"
        return [
            ("carries", f"{carried['load']:.3g} x", per_s),
            ("attained there", share(carried["attained"]), f"at least {share(carried['low'])}"),
            runs,
        ]
    if found["find"] == "knee" and found["knee"] is not None:
        knee, light = found["knee"], found["light"]
        between = f"{knee['low']:.3g} to {knee['high']:.3g} x"
        return [
            ("the knee", f"{knee['load']:.3g} x", between if knee["confidence"] else ""),
            ("p95 TTFT there", format_duration(knee["ttft_p95"]), ""),
            ("at a light load", format_duration(light["ttft_p95"]), f"{light['load']:.3g} x"),
            runs,
        ]
    if "models" in found:
        taken = sum(row["taken"] for row in found["budget"]["accelerators"])
        served = sum(one["best"] is not None for one in found["models"])
        return [
            ("cost", cost(found["budget"], found), f"{taken} accelerators"),
            ("models served", str(served), f"of {len(found['models'])}"),
            runs,
        ]
    if found["find"] == "deployment" and found["best"] is not None:
        best = found["best"]
        return [
            ("cost", cost(best, found), hardware_of(best["label"])),
            ("attained", share(best["attained"]), f"at least {share(best['low'])}"),
            (
                "candidates",
                str(of["candidates"]),
                f"{of['ruled_out_by_bounds']} ruled out before any run",
            ),
            ("simulated", str(of["simulated"]), f"{of['runs']} runs"),
        ]
    return [runs]


def hardware_of(label: str) -> str:
    """`5 x h200 (5 servers, tp 1)` of a label that goes on with model, router or autoscaler."""
    return re.split(r", (?![^(]*\))", label)[0]


# Charts


def _all_charts(found: Mapping[str, Any]) -> list[PlanChart]:
    return [chart for part in parts_of(found) for chart in _deployment_charts(part)]


def _deployment_charts(found: Mapping[str, Any]) -> list[PlanChart]:
    rows = [row for row in found["candidates"] if row["attained"] is not None]
    if not rows:
        return []
    answer = found["best"] or found["closest"] or rows[0]
    limit = DEAREST * answer["cost_per_hour"] or 1.0
    beyond = sum(row["cost_per_hour"] > limit for row in rows)
    rows = [row for row in rows if row["cost_per_hour"] <= limit]
    top = round_up(1.02 * max(row["cost_per_hour"] for row in rows))
    dots = []
    for row in sorted(rows, key=lambda one: one["reason"] in ("best", "runner-up")):
        judged = row["run_share"] == 1.0 and row["runs"] > 1
        dots.append(
            PlanDot(
                x=percent(row["cost_per_hour"] / top),
                y=_down(row["attained"]),
                low=_down(row["low"]) if judged else None,
                high=_down(row["high"]) if judged else None,
                look=LOOKS.get(row["reason"], "other"),
                text=f"{row['label']}: {cost(row, found)}, {row['why'] or share(row['attained'])}",
            )
        )
    goal = found["goal"]["attained"]
    best = found["best"]
    of = f" for {found['model']}" if "model" in found else ""
    return [
        PlanChart(
            title=f"Cost and attainment{of}",
            about="Each dot is a candidate that was simulated, by its longest runs; the line is "
            "the highest attainment at that cost or less."
            + (f" {beyond} that cost far more are not shown." if beyond else ""),
            dots=dots,
            line=path(_frontier(rows, top)),
            across=_cost_ticks(top, found),
            down=[Tick(_down(level), share(level)) for level in (0.0, 0.25, 0.5, 0.75, 1.0)],
            level=_down(goal),
            level_text=f"{share(goal)} asked for",
            mark=None if best is None else percent(best["cost_per_hour"] / top),
            mark_text="" if best is None else cost(best, found),
        )
    ]


def _down(level: float) -> float:
    return round(HEIGHT * (1.0 - level), 2)


def _frontier(rows: Sequence[Mapping[str, Any]], top: float) -> list[tuple[float, float]]:
    """A staircase: the highest attainment at each cost or below."""
    points: list[tuple[float, float]] = []
    most = -1.0
    for row in sorted(rows, key=lambda one: (one["cost_per_hour"], -one["attained"])):
        if row["attained"] > most:
            x = row["cost_per_hour"] / top
            if points:
                points.append((x, points[-1][1]))
            most = row["attained"]
            points.append((x, 1.0 - most))
    if points:
        points.append((1.0, points[-1][1]))
    return points


def _cost_ticks(top: float, found: Mapping[str, Any]) -> list[Tick]:
    sign = "$" if found["cost_unit"] == "$" else ""
    return [
        Tick(percent(part), f"{sign}{top * part:,.3g}", anchor_at(part))
        for part in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]


def _load_charts(found: Mapping[str, Any]) -> list[PlanChart]:
    rows = found["curve"]
    if len(rows) < 2:
        return []
    low, high = rows[0]["load"], rows[-1]["load"]
    span = math.log(high / low) or 1.0

    def at(load: float) -> float:
        return min(1.0, max(0.0, math.log(load / low) / span))

    across = _load_ticks(low, high, at)
    answer = found["carried"] if found["find"] == "load" else found["knee"]
    marked: dict[str, Any] = {
        "mark": None if answer is None else percent(at(answer["load"])),
        "mark_text": "" if answer is None else f"{answer['load']:.3g} x",
        "band": _band(found, at),
    }
    charts = []
    if any(row["attained"] is not None for row in rows):
        goal = found.get("goal")
        charts.append(
            PlanChart(
                title="Attainment",
                about="Over the load, as a factor on the scenario's rates.",
                dots=[_load_dot(row, at, row["attained"], share(row["attained"])) for row in rows],
                line=path([(at(row["load"]), 1.0 - row["attained"]) for row in rows]),
                across=across,
                down=[Tick(_down(level), share(level)) for level in (0.0, 0.5, 1.0)],
                level=None if goal is None else _down(goal["attained"]),
                level_text="" if goal is None else f"{share(goal['attained'])} asked for",
                **marked,
            )
        )
    charts += _latency_chart(found, rows, at, across, marked)
    return charts


def _latency_chart(
    found: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    at: Any,
    across: list[Tick],
    marked: dict[str, Any],
) -> list[PlanChart]:
    known = [row for row in rows if row["ttft_p95"]]
    if len(known) < 2:
        return []
    bottom = 10.0 ** math.floor(math.log10(min(row["ttft_p95"] for row in known)))
    top = 10.0 ** math.ceil(math.log10(1.001 * max(row["ttft_p95"] for row in known)))
    decades = round(math.log10(top / bottom))

    def up(value: float) -> float:
        return math.log10(value / bottom) / decades

    light = found.get("light")
    doubled = None if light is None or not light["ttft_p95"] else 2.0 * light["ttft_p95"]
    return [
        PlanChart(
            title="p95 TTFT",
            about="On logarithmic axes. A queue that grows while requests arrive has no steady "
            "level: waits depend on the length of the run.",
            dots=[
                _load_dot(row, at, up(row["ttft_p95"]), format_duration(row["ttft_p95"]))
                for row in known
            ],
            line=path([(at(row["load"]), 1.0 - up(row["ttft_p95"])) for row in known]),
            across=across,
            down=[
                Tick(_down(power / decades), format_duration(bottom * 10.0**power))
                for power in range(decades + 1)
            ],
            level=None if doubled is None else _down(up(doubled)),
            level_text="" if doubled is None else "twice that of a light load",
            **marked,
        )
    ]


def _load_dot(row: Mapping[str, Any], at: Any, up: float, text: str) -> PlanDot:
    return PlanDot(
        percent(at(row["load"])), _down(up), None, None, "next", f"{row['load']:.3g} x: {text}"
    )


def _band(found: Mapping[str, Any], at: Any) -> tuple[float, float] | None:
    knee = found.get("knee")
    if knee is None or knee["confidence"] is None:
        return None
    low = percent(at(knee["low"]))
    return low, percent(at(knee["high"])) - low


def _load_ticks(low: float, high: float, at: Any) -> list[Tick]:
    powers = range(math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9) + 1)
    every = max(1, math.ceil(len(powers) / 8))
    loads = [2.0**power for power in powers if power % every == 0]
    return [Tick(percent(at(load)), f"{load:.3g} x", anchor_at(at(load))) for load in loads]
