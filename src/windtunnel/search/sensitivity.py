"""How much each setting affects a figure: Morris screening, or Sobol indices (shares of the
variance).

SALib chooses the points and computes Sobol indices. It sees every setting as a position in its
range or list, from 0 to 1, so that indices of different settings are comparable. Integers and lists
do not have every position, so Morris effects are divided by the step actually taken.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import windtunnel
from windtunnel.analysis.figures import figure
from windtunnel.core.errors import InputError, WindtunnelError
from windtunnel.core.random import Stream
from windtunnel.core.system.extras import need
from windtunnel.search.measure import Outcome, check_name
from windtunnel.search.point import Origin, written
from windtunnel.search.sweep.axes import Axis
from windtunnel.search.sweep.designs import MOST_AXES, settings_at
from windtunnel.search.sweep.summary import mean_of, summary_of
from windtunnel.search.sweep.sweep import Sweep, prepare_points

MORRIS, SOBOL = "morris", "sobol"
METHODS = (MORRIS, SOBOL)
USUAL_SAMPLES = {MORRIS: 10, SOBOL: 64}
"""Morris: trajectories through the space. Sobol: base points that the others are derived from."""
MOST_SAMPLES = 4_096
LEVELS = 4
"""Grid levels of a Morris trajectory, which moves by two thirds of a range."""
CONFIDENCE = 0.95
RESAMPLES = 1_000
"""Bootstrap resamples of effects, for the interval of their mean."""
MORRIS_INDICES = ("mu_star", "confidence", "mu", "sigma")
SOBOL_INDICES = {
    "total": "ST",
    "total_confidence": "ST_conf",
    "first": "S1",
    "first_confidence": "S1_conf",
}
"""Our names, and SALib's."""


class Study(NamedTuple):
    """The runs that the indices of a figure need."""

    method: str
    metric: str
    samples: int
    sweep: Sweep
    shares: list[list[float]]
    """Rows of SALib's design, as the positions actually taken."""
    whose: list[int]
    """The point of the sweep for each row; rows with the same values run once."""
    seed: int
    """Seed of SALib's random draws."""


def plan_study(
    origin: Origin,
    axes: Sequence[Axis],
    metric: str,
    *,
    method: str = MORRIS,
    samples: int | None = None,
    seeds: int = 1,
    seed: int | None = None,
) -> Study:
    """The points that a method needs, checked like those of a sweep."""
    if method not in METHODS:
        raise InputError(
            f"{method!r} is not a method", where="--method", allowed=", ".join(METHODS)
        )
    count = USUAL_SAMPLES[method] if samples is None else samples
    _refuse_samples(method, count, len(axes))
    need("SALib", None, "search", "SALib, which computes the indices, is not installed")
    plan = origin.plan(seed=seed)
    check_name(metric, plan, f"--metric {metric}")
    draw = Stream(plan.seed, "search.sensitivity").integer(0, 2**31 - 1)
    shares = _design(method, len(axes), count, draw)
    rows = [settings_at(axes, row) for row in shares]
    points = dict(rows)
    places = {key: number for number, key in enumerate(points)}
    whose = [places[key] for key, _ in rows]
    sweep = prepare_points(origin, plan, axes, method, list(points.values()), seeds)
    taken = [[axis.taken(share) for axis, share in zip(axes, row, strict=True)] for row in shares]
    return Study(method, metric, count, sweep, taken, whose, draw)


def _refuse_samples(method: str, count: int, axes: int) -> None:
    if axes > MOST_AXES:
        raise InputError(f"{axes} settings are varied", allowed=f"up to {MOST_AXES}")
    if not 2 <= count <= MOST_SAMPLES:
        allowed = f"2 to {MOST_SAMPLES:,}"
        raise InputError(f"{count:,} samples", where="--samples", allowed=allowed)
    if method == SOBOL and count & (count - 1):
        below = 2 ** (count.bit_length() - 1)
        what = f"{count} is not a power of two, which the method needs"
        allowed = f"{below} or {2 * below}"
        raise InputError(what, where="--samples", allowed=allowed)


def _problem(axes: int) -> dict[str, Any]:
    names = [str(number) for number in range(axes)]
    return {"num_vars": axes, "names": names, "bounds": [[0.0, 1.0]] * axes}


def _design(method: str, axes: int, count: int, seed: int) -> list[list[float]]:
    if method == MORRIS:
        from SALib.sample import morris

        rows = morris.sample(_problem(axes), count, num_levels=LEVELS, seed=seed)
    else:
        from SALib.sample import sobol

        rows = sobol.sample(_problem(axes), count, calc_second_order=False, seed=seed)
    return [[float(share) for share in row] for row in rows]


def indices_of(study: Study, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The indices of a study, as plain data; the settings with the largest effect come first."""
    summary = summary_of(study.sweep, outcomes, [study.metric])
    points = summary["points"]
    _refuse_gaps(study, points)
    means = [mean_of(points[number], study.metric) or 0.0 for number in study.whose]
    found = _analyzed(study, means)
    settings: list[dict[str, Any]] = [
        {
            "path": axis.path,
            "values": _values(axis),
            "ordered": is_ordered(axis),
            **found[number],
        }
        for number, axis in enumerate(study.sweep.axes)
    ]
    about = figure(study.metric)
    weight = "mu_star" if study.method == MORRIS else "total"
    settings.sort(key=lambda one: (-one[weight], one["path"]))
    unique = [mean_of(point, study.metric) or 0.0 for point in points]
    return {
        "windtunnel": windtunnel.__version__,
        "name": study.sweep.plan.name,
        "method": study.method,
        "samples": study.samples,
        "metric": {"name": study.metric, "unit": about.unit, "better": about.better},
        "seeds": list(study.sweep.seeds),
        "points": len(points),
        "runs": len(study.sweep.runs),
        "confidence": CONFIDENCE,
        "mean": math.fsum(unique) / len(unique),
        "low": min(unique),
        "high": max(unique),
        "settings": settings,
    }


def is_ordered(axis: Axis) -> bool:
    """Whether its values are ordered: for names, a direction of the effect is meaningless."""
    if axis.levels is None:
        return True
    texts = [written(value) for value in axis.levels]
    return all(text[:1].isdecimal() or text[:1] in "+-." for text in texts)


def _values(axis: Axis) -> str:
    if axis.levels is None:
        return axis.range
    return f"{written(axis.levels[0])} to {written(axis.levels[-1])}, {len(axis.levels)} values"


def _refuse_gaps(study: Study, points: Sequence[dict[str, Any]]) -> None:
    """Raises if a point failed or lacks the figure, since indices need all points."""
    failed = [point for point in points if point["failed"] is not None]
    missing = [point for point in points if mean_of(point, study.metric) is None]
    if failed:
        what = f"{len(failed)} of {len(points)} points failed: {failed[0]['failed']}"
        hint = "indices need all of them: vary only values with which every point can run"
        raise WindtunnelError(what, where=study.sweep.plan.name, hint=hint)
    if missing:
        what = f"{len(missing)} of {len(points)} points have no {study.metric}"
        hint = "nothing was measured there: longer runs, or another figure"
        raise WindtunnelError(what, where=study.sweep.plan.name, hint=hint)


def _analyzed(study: Study, means: list[float]) -> list[dict[str, float]]:
    """The indices of every setting, in the order of the axes."""
    axes = len(study.sweep.axes)
    if study.method == MORRIS:
        return _morris(study, means)
    if min(means) == max(means):  # no variance: every index is 0
        return [dict.fromkeys(SOBOL_INDICES, 0.0) for _ in range(axes)]
    import numpy as np
    from SALib.analyze import sobol

    found = sobol.analyze(
        _problem(axes),
        np.array(means),
        calc_second_order=False,
        conf_level=CONFIDENCE,
        seed=study.seed,
    )
    return [
        {ours: float(found[theirs][number]) for ours, theirs in SOBOL_INDICES.items()}
        for number in range(axes)
    ]


def _morris(study: Study, means: list[float]) -> list[dict[str, float]]:
    """Mean effects of settings, absolute (with an interval) and signed, and their standard
    deviation.

    A trajectory has one row more than there are settings, and one setting moves from row to row.
    Its effect is the change of the figure divided by the share of the range moved.
    """
    import numpy as np

    axes = len(study.sweep.axes)
    shares = np.array(study.shares).reshape(-1, axes + 1, axes)
    moves = np.diff(shares, axis=1)
    changes = np.diff(np.array(means).reshape(-1, axes + 1), axis=1)
    rng = np.random.default_rng(study.seed)
    found = []
    for axis in range(axes):
        path, step = np.nonzero(moves[:, :, axis])
        effects = changes[path, step] / moves[path, step, axis]
        sizes = np.abs(effects)
        resampled = rng.choice(sizes, (RESAMPLES, len(sizes))).mean(axis=1)
        reach = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2.0) * resampled.std(ddof=1)
        indices = (sizes.mean(), reach, effects.mean(), effects.std(ddof=1))
        found.append(dict(zip(MORRIS_INDICES, map(float, indices), strict=True)))
    return found
