"""Predicted and measured step times: errors by kind of step, and one offline HTML page."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from windtunnel.models.calibration.calibrate import error_of, regime
from windtunnel.models.step_time.measurements import Measurement
from windtunnel.models.step_time.profile import Profile
from windtunnel.report.page.axes import Tick
from windtunnel.report.page.document import document
from windtunnel.report.page.searches.plan import PlanDot
from windtunnel.report.page.tables import PageTable

__all__ = ["HEADS", "RegimeError", "by_regime", "scatter_page"]

HEADS = ("shape", "kind of step", "points", "mean error", "p90", "bias")
SIDE = 520.0  # of the square plot, in pixels
COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2")


class RegimeError(msgspec.Struct, frozen=True):
    """The error over one kind of step, as fractions; a bias above 0 means that predictions are too
    slow."""

    shape: str
    regime: str
    points: int
    mape: float
    p90: float
    bias: float

    def cells(self) -> list[str]:
        errors = f"{self.mape:.1%}", f"{self.p90:.1%}", f"{self.bias:+.1%}"
        return [self.shape, self.regime, str(self.points), *errors]


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
    """An offline page with the table and a scatter plot."""
    times = [*(row.ms for row in rows), *predicted]
    low = math.floor(math.log10(min(times)))
    high = max(low + 1, math.ceil(math.log10(max(times))))

    def across(ms: float) -> float:
        return round(SIDE * (math.log10(ms) - low) / (high - low), 1)

    colours = {
        shape: COLOURS[place % len(COLOURS)]
        for place, shape in enumerate(dict.fromkeys(row.shape for row in rows))
    }
    dots = []
    for row, guess in zip(rows, predicted, strict=True):
        work = f"prefill {row.prefill}+{row.prior}, decodes {row.decodes} x {row.context}"
        text = f"{row.shape}: {work}: measured {row.ms:g} ms, predicted {guess:.3g} ms"
        y = SIDE - across(guess)
        dots.append(PlanDot(across(row.ms), y, None, None, colours[row.shape], text))
    cells = [error.cells() for error in by_regime(rows, predicted)]
    values = {
        "name": profile.name,
        "origin": profile.origin,
        "side": SIDE,
        "ticks": [Tick(across(10.0**n), f"{10.0**n:g}") for n in range(low, high + 1)],
        "shapes": colours.items(),
        "dots": dots,
        "table": PageTable("", "", 2, list(HEADS), cells),
    }
    return document("calibration.html", values, styles=("report.css",), filters={})
