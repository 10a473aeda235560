"""report.html of a sensitivity study: a bar per setting, with its interval; offline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.analysis.figures import figure
from windtunnel.report.page.document import document
from windtunnel.report.terminal.layout import seeds_text
from windtunnel.report.terminal.searches.sensitivity import (
    doubt_of,
    headline_of,
    heads_of,
    legend_of,
    rows_of,
)

STYLES = ("report.css", "sensitivity.css")


def sensitivity_page(study: Mapping[str, Any]) -> str:
    """The page of a study, as HTML."""
    rows = rows_of(study)
    weight, further = heads_of(study)
    values = {
        "title": study["name"],
        "figure": figure(study["metric"]["name"]).label,
        "headline": headline_of(study),
        "method": study["method"].capitalize(),
        "samples": study["samples"],
        "points": study["points"],
        "runs": study["runs"],
        "seeds": seeds_text(study["seeds"]),
        "legend": legend_of(study),
        "doubt": doubt_of(study),
        "confidence": f"{study['confidence']:.0%}",
        "weight": weight,
        "further": further,
        "rows": [(row, *_places(row.share, row.reach)) for row in rows],
        "windtunnel": study["windtunnel"],
    }
    return document("sensitivity.html", values, styles=STYLES, filters={})


def _places(share: float, reach: tuple[float, float]) -> tuple[float, float, float]:
    """The ends of a bar and of its interval, in percent."""
    full, low, high = (round(100.0 * one, 2) for one in (share, *reach))
    return full, low, high
