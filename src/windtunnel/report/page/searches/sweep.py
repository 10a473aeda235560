"""report.html of a sweep: Pareto fronts, parallel coordinates and a table; one offline file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windtunnel.analysis.figures import figure, text_of
from windtunnel.core.errors import one_line
from windtunnel.report.page.document import document
from windtunnel.report.terminal.layout import seeds_text
from windtunnel.report.terminal.searches.sweep import figure_cell, short_names
from windtunnel.search.point import written
from windtunnel.search.sweep.summary import best_of, mean_of, varies

STYLES = ("report.css", "sweep.css")
MOST_DRAWN = 1_000
"""Limit on the points in charts; beyond it, the front and evenly spaced others are drawn."""
MOST_LISTED = 300
MOST_FAILURES = 20
LONGEST_VALUE = 60
DIGITS = 6
_NUMBER_AND_UNIT = re.compile(r"([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)(\D*)")


class FigureCell(msgspec.Struct, frozen=True):
    """A figure in the table: its text, its sort key, and whether no other is better."""

    text: str
    value: float | None
    best: bool


class PointLine(msgspec.Struct, frozen=True):
    """A point in the table."""

    point: int
    settings: list[tuple[str, float | str]]  # text and sort key
    cells: list[FigureCell]
    front: bool


def sweep_page(summary: Mapping[str, Any]) -> str:
    """The page of a sweep, as HTML."""
    measured = [point for point in summary["points"] if point["failed"] is None]
    failed = [point for point in summary["points"] if point["failed"] is not None]
    drawn = _some(measured, summary["front"]["points"], MOST_DRAWN)
    listed = _some(measured, summary["front"]["points"], MOST_LISTED)
    paths = [axis["path"] for axis in summary["axes"]]
    best = {name: best_of(measured, name) for name in summary["shown"]}
    seeds = summary["seeds"]
    values = {
        "title": summary["name"],
        "count": len(summary["points"]),
        "design": summary["design"],
        "seeds": seeds_text(seeds),
        "several": len(seeds) > 1,
        "confidence": f"{summary['confidence']:.0%}",
        "sentences": _sentences(summary, measured, paths),
        "axes": [
            (axis["path"], axis["range"] or ", ".join(_short(v) for v in axis["values"]))
            for axis in summary["axes"]
        ],
        "heads": short_names(paths),
        "figures": [figure(name).label for name in summary["shown"]],
        "lines": [_line(summary, point, paths, best) for point in listed],
        "unlisted": len(measured) - len(listed),
        "undrawn": len(measured) - len(drawn),
        "measured": len(measured),
        "failures": [
            (point["point"], one_line(point["failed"], 400)) for point in failed[:MOST_FAILURES]
        ],
        "unfailed": len(failed) - len(failed[:MOST_FAILURES]),
        "windtunnel": summary["windtunnel"],
    }
    return document(
        "sweep.html",
        values,
        styles=STYLES,
        filters={},
        script="sweep.js",
        hover=_drawing(summary, drawn),
    )


def _some(points: list[Any], front: Sequence[int], most: int) -> list[Any]:
    """All points, or if there are too many, the front and evenly spaced others, in order."""
    if len(points) <= most:
        return points
    on_front = frozenset(front)
    kept = [point for point in points if point["point"] in on_front][:most]
    others = [point for point in points if point["point"] not in on_front]
    room = most - len(kept)
    step = len(others) / room if room else 1.0
    kept += [others[int(number * step)] for number in range(room)]
    return sorted(kept, key=lambda point: int(point["point"]))


def _sentences(
    summary: Mapping[str, Any], points: Sequence[Mapping[str, Any]], paths: Sequence[str]
) -> list[str]:
    """Sentences about the best of each figure shown."""
    found = []
    names = dict(zip(paths, short_names(paths), strict=True))
    for name in summary["shown"][:3]:
        best = best_of(points, name)
        if best is None:
            continue
        whose = [point for point in points if mean_of(point, name) == best]
        unit = next(metric["unit"] for metric in summary["metrics"] if metric["name"] == name)
        at = ", ".join(f"{names[path]} {_short(v)}" for path, v in whose[0]["settings"].items())
        if len(whose) > len(points) / 4:
            continue  # too many to be a choice
        others = f"{len(whose) - 1} other point{'s' if len(whose) > 2 else ''}"
        more = f" and at {others}" if len(whose) > 1 else ""
        found.append(f"Best {figure(name).label}: {text_of(unit, best)} at {at}{more}.")
    return found


def _short(value: Any) -> str:
    return one_line(written(value), LONGEST_VALUE)


def _line(
    summary: Mapping[str, Any],
    point: Mapping[str, Any],
    paths: Sequence[str],
    best: Mapping[str, float | None],
) -> PointLine:
    settings = []
    for path in paths:
        value = point["settings"][path]
        number = not isinstance(value, bool) and isinstance(value, int | float)
        settings.append((_short(value), value if number else written(value)))
    cells = []
    for name in summary["shown"]:
        mean = mean_of(point, name)
        is_best = mean is not None and mean == best[name]
        cells.append(FigureCell(figure_cell(point, name, ends=True), mean, is_best))
    front = point["point"] in summary["front"]["points"]
    return PointLine(point["point"], settings, cells, front)


# Data for the script


def _drawing(summary: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    paths = [axis["path"] for axis in summary["axes"]]
    metrics = [
        metric
        for metric in summary["metrics"]
        if varies(points, metric["name"]) or metric["name"] in summary["shown"]
    ]
    scales = [_scale(path, points) for path in paths]
    return {
        "settings": [
            {"label": name, "words": words, "unit": unit}
            for name, (words, unit, _) in zip(short_names(paths), scales, strict=True)
        ],
        "metrics": [
            {
                "name": metric["name"],
                "label": figure(metric["name"]).label,
                "unit": metric["unit"],
                "better": metric["better"],
            }
            for metric in metrics
        ],
        "points": [
            {
                "point": point["point"],
                "at": [places[number] for _, _, places in scales],
                "says": [_short(point["settings"][path]) for path in paths],
                "figures": [_figure(point, metric["name"]) for metric in metrics],
            }
            for number, point in enumerate(points)
        ],
        "x": summary["front"]["cost"],
        "y": summary["front"]["quality"],
        "shown": summary["shown"],
    }


def _scale(
    path: str, points: Sequence[Mapping[str, Any]]
) -> tuple[list[str] | None, str, list[float]]:
    """The words of a categorical axis or None, its unit, and the position of every point."""
    values = [point["settings"][path] for point in points]
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return None, "", [float(value) for value in values]
    parsed = [_NUMBER_AND_UNIT.fullmatch(value) for value in values if isinstance(value, str)]
    known = [one for one in parsed if one is not None]
    if len(known) == len(values) and len({one[2] for one in known}) == 1:
        return None, known[0][2], [float(one[1]) for one in known]
    words = list(dict.fromkeys(_short(value) for value in values))
    return words, "", [float(words.index(_short(value))) for value in values]


def _figure(point: Mapping[str, Any], name: str) -> list[float | None] | None:
    found = point["metrics"].get(name)
    if found is None or found["mean"] is None:
        return None
    ends = [found["mean"], found["low"], found["high"]]
    return [None if value is None else float(f"{value:.{DIGITS}g}") for value in ends]
