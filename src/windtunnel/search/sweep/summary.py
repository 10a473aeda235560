"""The results of a sweep, point by point: means over seeds, the best, and the Pareto front."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import windtunnel
from windtunnel.analysis.figures import HIGHER, LOWER, SHARE, figure
from windtunnel.core.statistics.intervals import CONFIDENCE, Interval, mean_interval
from windtunnel.search.execution.workers import FailedRun, MeasuredRun, Outcome
from windtunnel.search.measure import Metrics
from windtunnel.search.sweep.sweep import Sweep
from windtunnel.twin.scenario.plan import ScenarioPlan

COSTS = ("cost.total", "accelerator_seconds")
"""Cost of a point: dollars or, if nothing has a price, accelerator time."""
LATENCIES = ("latency.ttft.p95", "latency.e2e.p95", "latency.tpot.p95")
GOODPUT = "throughput.goodput_requests_per_s"
MOST_SHOWN = 5
"""Number of figures shown by default."""


def summary_of(
    sweep: Sweep, outcomes: Sequence[Outcome], wanted: Sequence[str] = ()
) -> dict[str, Any]:
    """The results of a sweep for a table, a page or a program, as plain data."""
    points = [_point(sweep, number) for number in range(len(sweep.points))]
    own: list[list[Outcome]] = [[] for _ in points]
    for run, outcome in zip(sweep.runs, outcomes, strict=True):
        own[run.point].append(outcome)
    for point, of_point in zip(points, own, strict=True):
        failures = [outcome.sentence for outcome in of_point if isinstance(outcome, FailedRun)]
        if failures:
            point["failed"] = failures[0]
        elif point["failed"] is None:
            point["metrics"] = _means([o.metrics for o in of_point if isinstance(o, MeasuredRun)])
    names = list(dict.fromkeys(name for point in points for name in point["metrics"]))
    attained = _attained(sweep.plan, names)
    cost, quality = _front_axes(points, attained, wanted)
    return {
        "windtunnel": windtunnel.__version__,
        "name": sweep.plan.name,
        "design": sweep.design,
        "seeds": list(sweep.seeds),
        "confidence": CONFIDENCE,
        "axes": [
            {
                "path": axis.path,
                "values": None if axis.levels is None else list(axis.levels),
                "range": axis.range if axis.levels is None else None,
            }
            for axis in sweep.axes
        ],
        "metrics": [
            {"name": name, "unit": figure(name).unit, "better": figure(name).better}
            for name in names
        ],
        "shown": list(wanted) or _shown(points, [cost, quality, *attained]),
        "front": {
            "cost": cost,
            "quality": quality,
            "points": front_of(points, cost, quality) if cost and quality else [],
        },
        "points": points,
    }


def _point(sweep: Sweep, number: int) -> dict[str, Any]:
    return {
        "point": number,
        "settings": dict(sweep.points[number]),
        "failed": sweep.refused.get(number),
        "metrics": {},
    }


def _means(runs: Sequence[Metrics]) -> dict[str, dict[str, float | None]]:
    """Mean and interval of every figure; all None for a figure that a seed lacks."""
    found: dict[str, dict[str, float | None]] = {}
    for name in runs[0]:
        known = [value for value in (run.get(name) for run in runs) if value is not None]
        if len(known) < len(runs):
            found[name] = {"mean": None, "low": None, "high": None}
        elif len(known) == 1:
            found[name] = {"mean": known[0], "low": None, "high": None}
        else:
            middle, low, high = _interval(name, [float(value) for value in known])
            found[name] = {"mean": middle, "low": low, "high": high}
    return found


def _interval(name: str, values: list[float]) -> Interval:
    least = 0.0 if min(values) >= 0.0 else -math.inf
    most = 1.0 if figure(name).unit == SHARE else math.inf
    return mean_interval(values).within(least, most)


def mean_of(point: Mapping[str, Any], name: str) -> float | None:
    """A point's mean of a figure; None if it has none."""
    found = point["metrics"].get(name)
    mean: float | None = None if found is None else found["mean"]
    return mean


def varies(points: Iterable[Mapping[str, Any]], name: str) -> bool:
    """Whether a figure differs between points."""
    return len({mean_of(point, name) for point in points} - {None}) > 1


def _attained(plan: ScenarioPlan, names: Sequence[str]) -> list[str]:
    """The attainment figures of the classes that have targets."""
    classes = [
        name
        for name, slo in plan.slos.items()
        if any(target is not None for target in (slo.ttft_s, slo.tpot_s, slo.e2e_s))
    ]
    return [name for name in (f"slo.{name}.attained" for name in classes) if name in names]


def _front_axes(
    points: list[dict[str, Any]], attained: Sequence[str], wanted: Sequence[str]
) -> tuple[str | None, str | None]:
    cost = next((name for name in COSTS if varies(points, name)), None)
    asked = [name for name in wanted if name != cost and figure(name).better is not None]
    differing = [name for name in attained if varies(points, name)]
    differing.sort(key=lambda name: (min(_known(points, name)), name))
    candidates = [*asked, *differing, *(name for name in LATENCIES if varies(points, name))]
    return cost, candidates[0] if candidates else None


def _known(points: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    return [mean for mean in (mean_of(point, name) for point in points) if mean is not None]


def _shown(points: list[dict[str, Any]], first: Sequence[str | None]) -> list[str]:
    candidates = [name for name in (*first, *LATENCIES[:2], GOODPUT) if name is not None]
    differing = [name for name in dict.fromkeys(candidates) if varies(points, name)]
    return differing[:MOST_SHOWN] or [*LATENCIES[:2], GOODPUT]


def front_of(points: Sequence[Mapping[str, Any]], cost: str, quality: str) -> list[int]:
    """The Pareto front of cost and quality, by increasing cost."""
    higher = figure(quality).better == HIGHER
    known = []
    for point in points:
        price, good = mean_of(point, cost), mean_of(point, quality)
        if price is not None and good is not None:
            known.append((price, -good if higher else good, point["point"]))
    found: list[int] = []
    best: tuple[float, float] | None = None
    for price, good, number in sorted(known):
        if best is None or good < best[1] or (price, good) == best:
            best = (price, good)
            found.append(number)
    return found


def best_of(points: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The best mean of a figure; None if neither direction is better, or all are equal."""
    better, known = figure(name).better, _known(points, name)
    if better is None or len(set(known)) < 2:
        return None
    return min(known) if better == LOWER else max(known)
