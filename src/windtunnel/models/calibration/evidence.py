"""The evidence for the step times of a model: measurements, and its error against them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from windtunnel.models.calibration.calibrate import error_of
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.step_time.profile import ErrorFigures, Profile
from windtunnel.models.step_time.table import Grid, Table, TimeCurve

__all__ = ["BASES", "Evidence", "profile_evidence", "table_evidence", "without"]

FITTED, UNSEEN, OTHERS = "fitted steps", "unseen steps", "other models"
OPERATORS, LEFT_OUT, NONE = "operators", "left out", "none"
BASES = {
    FITTED: "whole steps of this very model, which the fit has seen",
    UNSEEN: "whole steps of this very model, which the fit has not seen",
    OTHERS: "whole steps of other models",
    OPERATORS: "operators on their own, not whole steps",
    LEFT_OUT: "the table's own measurements, each left out and interpolated from its neighbours",
    NONE: "nothing was measured",
}
"""What an error was found on, from the best to none at all."""


class Evidence(msgspec.Struct, frozen=True):
    """How far predictions were off, as fractions of the measured times, and on what."""

    basis: str
    mape: float | None
    p90: float | None
    points: int
    of: str  # in words, for a sentence


def without(why: str) -> Evidence:
    """There is no measurement, and why."""
    return Evidence(NONE, None, None, 0, why)


def profile_evidence(profile: Profile, shape: ModelShape, tensor_parallel: int) -> Evidence:
    """How well a profile fits steps of this model, or the nearest thing that was measured."""
    if not profile.calibrated:
        return without(f"the efficiencies of profile {profile.name} are those of other hardware")
    if not profile.errors:
        return without(f"profile {profile.name} does not say how far it was off")
    steps = _of_steps(profile, shape, tensor_parallel)
    parts = [
        (name, figures)
        for name, figures in profile.errors.get("operators", {}).items()
        if name in _operators(shape, tensor_parallel)
    ]
    if steps is None:
        return _of_operators([figures for _, figures in parts])
    for name, figures in parts:
        # Steps that were measured had neither: what is known of these kernels is what counts.
        if name in ("gemm in fp8", "experts") and figures.mape > (steps.mape or 0.0):
            what = f"calls of {name}"
            steps = Evidence(OPERATORS, figures.mape, figures.p90, figures.points, what)
    return steps


def _of_steps(profile: Profile, shape: ModelShape, tensor_parallel: int) -> Evidence | None:
    name = shape.name if tensor_parallel == 1 else f"{shape.name}-tp{tensor_parallel}-slice"
    fitted, unseen = (profile.errors.get(kind, {}) for kind in ("shapes", "unseen shapes"))
    for basis, shapes in ((FITTED, fitted), (UNSEEN, unseen)):
        if name in shapes:
            one = shapes[name]
            return Evidence(basis, one.mape, one.p90, one.points, f"measured steps of {name}")
    others = unseen or fitted
    if not others:
        return None
    error = _pooled(list(others.values()))
    models = "1 other model" if len(others) == 1 else f"{len(others)} other models"
    return Evidence(OTHERS, error.mape, error.p90, error.points, f"measured steps of {models}")


def _operators(shape: ModelShape, tensor_parallel: int) -> list[str]:
    """The kinds of operators that most of a step's time goes to."""
    kinds = ["gemm" if shape.matmul_precision == "bf16" else "gemm in fp8"]
    kinds += ["prefill attention", "decode attention"]
    if shape.is_mixture:
        kinds.append("experts")
    if tensor_parallel > 1:
        kinds.append("all-reduce")
    return kinds


def _of_operators(figures: list[ErrorFigures]) -> Evidence:
    """The mean over kinds: in a step their errors add up in part and cancel in part."""
    if not figures:
        return without("the profile has no error of the operators that this model runs")
    mape = math.fsum(one.mape for one in figures) / len(figures)
    p90 = math.fsum(one.p90 for one in figures) / len(figures)
    points = sum(one.points for one in figures)
    return Evidence(OPERATORS, mape, p90, points, "single operators, no whole steps")


def _pooled(figures: list[ErrorFigures]) -> ErrorFigures:
    """As if all points were one set; of percentiles, which cannot be joined, the largest."""
    points = sum(one.points for one in figures)
    mape = math.fsum(one.mape * one.points for one in figures) / max(points, 1)
    return ErrorFigures(mape, max(one.p90 for one in figures), points)


def table_evidence(table: Table) -> Evidence:
    """How far measurements are from what their neighbours would have said."""
    errors = [*_along_and_across(table.prompt), *_along_and_across(table.decode)]
    for curve in (table.tokens, table.sequences):
        if curve is not None:
            errors += _left_out(curve.knots, curve.times)
    if not errors:
        return without("the table has too few sizes to leave one out")
    error = error_of(errors)
    what = "measurements, each left out and interpolated from its neighbours"
    return Evidence(LEFT_OUT, error.mape, error.p90, error.points, what)


def _along_and_across(grid: Grid) -> Iterable[float]:
    """Errors along each curve of a grid of two axes, and from curve to curve."""
    for curve in grid.curves:
        yield from _left_out(curve.knots, curve.times)
    for place in range(1, len(grid.knots) - 1):
        before, here, after = grid.curves[place - 1 : place + 2]
        for knot, time in zip(here.knots, here.times, strict=True):
            if _covers(before, knot) and _covers(after, knot):
                times = [before.at(knot), time, after.at(knot)]
                yield from _left_out(grid.knots[place - 1 : place + 2], times)


def _covers(curve: TimeCurve, knot: float) -> bool:
    return curve.knots[0] <= knot <= curve.knots[-1]


def _left_out(knots: Sequence[float], times: Sequence[float]) -> Iterable[float]:
    """The error at each inner knot of the line between its neighbours."""
    for place in range(1, len(knots) - 1):
        share = (knots[place] - knots[place - 1]) / (knots[place + 1] - knots[place - 1])
        guess = times[place - 1] + share * (times[place + 1] - times[place - 1])
        if times[place] > 0.0:
            yield abs(guess / times[place] - 1.0)
