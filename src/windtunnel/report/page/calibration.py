"""Predicted against measured step times: by kind of step, and as one offline HTML page."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import msgspec

from windtunnel.models.calibration.calibrate import error_of, regime
from windtunnel.models.step_time.measurements import Measurement
from windtunnel.models.step_time.profile import Profile

__all__ = ["RegimeError", "by_regime", "scatter_page"]

SIDE = 520.0  # of the square plot, in pixels
MARGIN = 56.0
COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2")


class RegimeError(msgspec.Struct, frozen=True):
    """The error over one kind of step, as fractions; a bias above 0 is predicted too slow."""

    shape: str
    regime: str
    points: int
    mape: float
    p90: float
    bias: float


def by_regime(rows: Sequence[Measurement], predicted: Sequence[float]) -> list[RegimeError]:
    """One row for each shape and kind of step, in the order of the measurements."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row, guess in zip(rows, predicted, strict=True):
        groups.setdefault((row.shape, regime(row)), []).append(guess / row.ms - 1.0)
    table = []
    for (shape, kind), signed in groups.items():
        error = error_of([abs(value) for value in signed])
        bias = math.fsum(signed) / len(signed)
        table.append(RegimeError(shape, kind, error.points, error.mape, error.p90, bias))
    return table


def scatter_page(rows: Sequence[Measurement], predicted: Sequence[float], profile: Profile) -> str:
    """A page with the table and a scatter, with nothing loaded from outside."""
    lines = "".join(
        f"<tr><td>{html.escape(e.shape)}</td><td>{html.escape(e.regime)}</td><td>{e.points}</td>"
        f"<td>{e.mape:.1%}</td><td>{e.p90:.1%}</td><td>{e.bias:+.1%}</td></tr>"
        for e in by_regime(rows, predicted)
    )
    title = f"Calibration of {html.escape(profile.name)}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        "<style>body{font:15px system-ui,sans-serif;margin:2rem;max-width:60rem}"
        "table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:right}"
        "td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}"
        "tr:nth-child(even){background:#f3f4f6}svg text{font:12px system-ui,sans-serif}</style>"
        f"<h1>{title}</h1><p>{html.escape(profile.origin)}</p>"
        f"{_scatter(rows, predicted)}"
        "<table><tr><th>shape</th><th>kind of step</th><th>points</th><th>mean error</th>"
        f"<th>90th percentile</th><th>bias</th></tr>{lines}</table></html>\n"
    )


def _scatter(rows: Sequence[Measurement], predicted: Sequence[float]) -> str:
    times = [*(row.ms for row in rows), *predicted]
    low = math.floor(math.log10(min(times)))
    high = max(low + 1, math.ceil(math.log10(max(times))))

    def across(ms: float) -> float:
        return MARGIN + SIDE * (math.log10(ms) - low) / (high - low)

    def up(ms: float) -> float:
        return 2 * MARGIN + SIDE - across(ms)

    size = SIDE + 2 * MARGIN
    first, last = 10.0**low, 10.0**high
    parts = [
        f'<svg viewBox="0 0 {size:g} {size:g}" width="{size:g}" role="img" '
        'aria-label="predicted against measured step time">',
        f'<path d="M{across(first):.1f} {up(first):.1f}L{across(last):.1f} {up(last):.1f}" '
        'stroke="#9ca3af" fill="none"/>',
    ]
    for power in range(low, high + 1):
        ms = 10.0**power
        parts.append(
            f'<text x="{across(ms):.1f}" y="{size - MARGIN + 18:.1f}" text-anchor="middle">'
            f'{ms:g}</text><text x="{MARGIN - 8:g}" y="{up(ms):.1f}" text-anchor="end">'
            f"{ms:g}</text>"
        )
    shapes = list(dict.fromkeys(row.shape for row in rows))
    for row, guess in zip(rows, predicted, strict=True):
        colour = COLOURS[shapes.index(row.shape) % len(COLOURS)]
        label = (
            f"{row.shape}: prefill {row.prefill}+{row.prior}, decodes {row.decodes} x "
            f"{row.context}: measured {row.ms:g} ms, predicted {guess:.3g} ms"
        )
        parts.append(
            f'<circle cx="{across(row.ms):.1f}" cy="{up(guess):.1f}" r="3.5" fill="{colour}" '
            f'fill-opacity="0.6"><title>{html.escape(label)}</title></circle>'
        )
    for place, shape in enumerate(shapes):
        colour = COLOURS[place % len(COLOURS)]
        y = MARGIN + 18 * place
        parts.append(
            f'<text x="{MARGIN + 8:g}" y="{y:g}" fill="{colour}">{html.escape(shape)}</text>'
        )
    middle = size / 2
    parts.append(f'<text x="{middle:g}" y="{size - 12:g}" text-anchor="middle">measured, ms</text>')
    parts.append(
        f'<text x="14" y="{middle:g}" text-anchor="middle" '
        f'transform="rotate(-90 14 {middle:g})">predicted, ms</text></svg>'
    )
    return "".join(parts)
