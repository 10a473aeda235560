"""The evidence for the step times of a model: measurements, and its error against them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from windtunnel.models.calibration.calibrate import error_of
from windtunnel.models.calibration.operators import PARAMETERS_OF
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.step_time.model import StepWork
from windtunnel.models.step_time.physics import Physics
from windtunnel.models.step_time.profile import SCALED_ERROR, ErrorFigures, Profile
from windtunnel.models.step_time.table import Grid, Table, TimeCurve

__all__ = ["BASES", "Evidence", "profile_evidence", "table_evidence", "without"]

FITTED, UNSEEN, OTHERS = "fitted steps", "unseen steps", "other models"
OPERATORS, SCALED, LEFT_OUT, NONE = "operators", "scaled", "left out", "none"
BASES = {
    FITTED: "whole steps of this very model, which the fit has seen",
    UNSEEN: "whole steps of this very model, which the fit has not seen",
    OTHERS: "whole steps of other models",
    OPERATORS: "operators on their own, not whole steps",
    SCALED: "operators on another accelerator, whose fractions of the peaks are taken over",
    LEFT_OUT: "the table's own measurements, each left out and interpolated from its neighbours",
    NONE: "nothing was measured",
}
"""Bases of an error figure, from the strongest evidence to none."""


class Evidence(msgspec.Struct, frozen=True):
    """How far predictions were off, as fractions of the measured times, and on what basis."""

    basis: str
    mape: float | None
    p90: float | None
    points: int
    of: str  # in words, for a sentence


def without(why: str) -> Evidence:
    """Evidence without any measurement, and the reason."""
    return Evidence(NONE, None, None, 0, why)


ASSUMED_ERRORS = {"rest": 0.5, "all-to-all": 0.2, "state space": 0.5}
"""Assumed relative errors. `rest`, small kernels and time beyond kernels: small kernels take 10 us
per layer in vLLM and 20 us in PyTorch, and the time beyond kernels was 0.5 to 1.4 ms in the steps
of the one recorded run. `all-to-all`, dispatch to experts and back: from tables of NCCL and DeepEP,
on one node. `state space`, Mamba-2: no kernel was timed; its states are assumed to be read as fast
as those of gated DeltaNet, and its prompts scanned at the same fraction of the peak."""


def profile_evidence(
    profile: Profile, model: Physics, shape: ModelShape, step: StepWork
) -> Evidence:
    """How well a profile fits steps of this model, or the closest available measurements.

    Operators are weighted by their share of the time of `step`, a typical one. Their errors have
    either sign, so they combine like independent errors.
    """
    if not profile.calibrated and not profile.scaled_from:
        return without(f"the efficiencies of profile {profile.name} are those of other hardware")
    if not profile.errors:
        return without(f"profile {profile.name} does not say how far it was off")
    parts = model.parts_s(step)
    whole_s = math.fsum(parts.values())
    known = profile.errors.get("operators", {})
    steps = _of_steps(profile, shape, model.tensor_parallel)
    if steps is not None:
        # Measured steps include neither collectives nor low precision nor experts.
        parts = {kind: s for kind, s in parts.items() if kind in known and kind not in IN_STEPS}
    squares = {"mape": 0.0, "p90": 0.0}
    points = 0
    missing = []
    for kind, seconds in parts.items():
        share = seconds / whole_s
        if kind in known:
            figures = known[kind]
            squares["mape"] += (share * figures.mape) ** 2
            squares["p90"] += (share * figures.p90) ** 2
            points += figures.points
        elif kind in ASSUMED_ERRORS:
            squares["mape"] += (share * ASSUMED_ERRORS[kind]) ** 2
            squares["p90"] += (share * 2 * ASSUMED_ERRORS[kind]) ** 2
        elif seconds > 0.0:
            missing.append(kind)
    if missing:
        return without(f"profile {profile.name} has no error of {', '.join(missing)}")
    mape, p90 = math.sqrt(squares["mape"]), math.sqrt(squares["p90"])
    ends = profile.at_bounds(name for kind in parts for name in PARAMETERS_OF.get(kind, ()))
    at_ends = f"; at an end of its range in the fit: {', '.join(ends)}" if ends else ""
    if profile.scaled_from:
        what = f"timings of single operators on the {profile.scaled_from}, scaled to other peaks"
        what += at_ends
        mape, p90 = math.hypot(mape, SCALED_ERROR.mape), math.hypot(p90, SCALED_ERROR.p90)
        return Evidence(SCALED, mape, p90, points, what)
    if steps is None:
        what = f"timings of single operators, by their share of a step{at_ends}"
        return Evidence(OPERATORS, mape, p90, points, what)
    if mape <= SMALL_SHARE * (steps.mape or 0.0):
        return steps
    mape, p90 = math.hypot(mape, steps.mape or 0.0), math.hypot(p90, steps.p90 or 0.0)
    also = " and ".join(kind for kind, seconds in parts.items() if seconds > 0.0)
    return Evidence(OPERATORS, mape, p90, steps.points + points, f"{steps.of}, and calls of {also}")


IN_STEPS = ("gemm", "prefill attention", "decode attention", "rest")
"""Operators that whole steps of a dense bf16 model on one GPU already cover."""

SMALL_SHARE = 0.1
"""Share of the error of measured steps; an operator that adds less is not mentioned."""


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


def _pooled(figures: list[ErrorFigures]) -> ErrorFigures:
    """The error over all points as one set; percentiles cannot be combined, so the largest is
    taken."""
    points = sum(one.points for one in figures)
    mape = math.fsum(one.mape * one.points for one in figures) / max(points, 1)
    return ErrorFigures(mape, max(one.p90 for one in figures), points)


def table_evidence(table: Table) -> Evidence:
    """How far measurements are from an interpolation of their neighbours."""
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
    """Leave-one-out errors along each curve of a two-axis grid, and across curves."""
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
    """The relative error, at each inner knot, of the line between its neighbours."""
    for place in range(1, len(knots) - 1):
        share = (knots[place] - knots[place - 1]) / (knots[place + 1] - knots[place - 1])
        guess = times[place - 1] + share * (times[place + 1] - times[place - 1])
        if times[place] > 0.0:
            yield abs(guess / times[place] - 1.0)
