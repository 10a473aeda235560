"""Fits the `physics` step-time model to measured steps, and reports its prediction errors.

All errors are fractions: 0.05 is 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.statistics.distribution import quantile_of
from windtunnel.models.catalog.accelerators import Accelerator
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.step_time.kernels import PhysicsParameters
from windtunnel.models.step_time.measurements import Measurement
from windtunnel.models.step_time.physics import Physics
from windtunnel.models.step_time.profile import (
    PARAMETERS,
    ErrorFigures,
    Profile,
    physics_model,
    profile_for,
)

__all__ = [
    "FEWEST_TO_FIT",
    "evaluate",
    "fit_profile",
    "predictions_ms",
    "regime",
]

FEWEST_TO_FIT = 20
ERROR_SCALE = 0.03  # relative error of a good fit; beyond it an outlier counts less than its square
SMALL_BATCH = 16
LARGE_PREFILL = 256


def regime(row: Measurement) -> str:
    """The kind of step, by what dominates its time."""
    if row.prefill and row.decodes:
        return "mixed"
    if row.prefill:
        size = "large" if row.prefill > LARGE_PREFILL else "small"
        return f"{size} prefill, cached prefix" if row.prior else f"{size} prefill"
    return "small decode batch" if row.decodes <= SMALL_BATCH else "large decode batch"


def predictions_ms(
    rows: Sequence[Measurement], accelerator: Accelerator, profile: Profile
) -> list[float]:
    """The profile's prediction for each measurement."""
    models: dict[str, Physics] = {}
    predicted = []
    for row in rows:
        if row.shape not in models:
            models[row.shape] = physics_model(resolve_model(row.shape), accelerator, profile)
        predicted.append(models[row.shape].step_s(row.work()) * 1e3)
    return predicted


def evaluate(
    rows: Sequence[Measurement], accelerator: Accelerator, profile: Profile
) -> dict[str, ErrorFigures]:
    """The error of the profile's predictions for each shape, in the order of the file."""
    errors: dict[str, list[float]] = {}
    for row, predicted in zip(rows, predictions_ms(rows, accelerator, profile), strict=True):
        errors.setdefault(row.shape, []).append(abs(predicted / row.ms - 1.0))
    return {shape: error_of(found) for shape, found in errors.items()}


def error_of(errors: Sequence[float]) -> ErrorFigures:
    """Mean and 90th percentile (interpolated) of absolute relative errors."""
    ordered = sorted(errors)
    mape, p90 = math.fsum(ordered) / len(ordered), quantile_of(ordered, 0.9)
    return ErrorFigures(mape=mape, p90=p90, points=len(ordered))


def fit_profile(
    rows: Sequence[Measurement],
    accelerator: Accelerator,
    *,
    name: str,
    origin: str,
    rest: Profile | None = None,
) -> Profile:
    """Fits a profile to the measurements; the same rows give the same profile.

    Parameters that steps on one GPU cannot show (collectives, experts, low precision) come from the
    profile `rest`, or else from the accelerator's bundled profile or the generic one.
    """
    if len(rows) < FEWEST_TO_FIT:
        what = f"{len(rows)} measurements are too few to fit"
        raise InputError(what, allowed=f"{FEWEST_TO_FIT} or more")
    fitted = [key for key, rule in PARAMETERS.items() if rule.spread > 0]
    known = rest if rest is not None else profile_for(accelerator)
    fixed = {key: known.parameters[key] for key in PARAMETERS if key not in fitted}
    # Steps measured in isolation use PyTorch's attention, without a server.
    for key in ("decode_rows", "step_s"):
        fixed[key] = PARAMETERS[key].start
    values = {**fixed, **_solve(rows, accelerator, fitted, fixed)}
    profile = Profile(
        name=name,
        accelerator=accelerator.name,
        calibrated=True,
        origin=origin,
        parameters={key: float(f"{values[key]:.6g}") for key in PARAMETERS},
        errors={},
        measured=measured_range(rows),
    )
    shapes = evaluate(rows, accelerator, profile)
    rounded = {shape: error.rounded() for shape, error in shapes.items()}
    return msgspec.structs.replace(profile, errors={"shapes": rounded})


def measured_range(rows: Sequence[Measurement]) -> dict[str, int]:
    """The largest step that the measurements cover."""
    return {
        "tokens": max(row.prefill + row.decodes for row in rows),
        "decodes": max(row.decodes for row in rows),
        "context": max(max(row.context, row.prior + row.prefill) for row in rows),
    }


def _solve(
    rows: Sequence[Measurement],
    accelerator: Accelerator,
    fitted: list[str],
    fixed: dict[str, float],
) -> dict[str, float]:
    """Least squares over log errors, with a prior at the usual values for what the rows do not
    determine."""
    import numpy as np
    from scipy.optimize import least_squares

    shapes: dict[str, ModelShape] = {row.shape: resolve_model(row.shape) for row in rows}
    works = [(row.shape, row.work(), row.ms * 1e-3) for row in rows]
    rules = [PARAMETERS[key] for key in fitted]
    centre = np.log([rule.start for rule in rules])
    spread = np.array([rule.spread for rule in rules])

    def distance(logs: np.ndarray) -> np.ndarray:
        values = {**fixed, **dict(zip(fitted, np.exp(logs).tolist(), strict=True))}
        parameters = PhysicsParameters(values)
        models = {name: Physics(shape, accelerator, parameters) for name, shape in shapes.items()}
        errors = [math.log(models[name].step_s(work) / time) for name, work, time in works]
        return np.concatenate([np.array(errors) / ERROR_SCALE, (logs - centre) / spread])

    solution = least_squares(
        distance,
        centre,
        bounds=(np.log([rule.low for rule in rules]), np.log([rule.high for rule in rules])),
        loss="soft_l1",
    )
    return dict(zip(fitted, np.exp(solution.x).tolist(), strict=True))
