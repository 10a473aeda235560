"""A sweep: one scenario at many settings, every point with the same seeds of traffic."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from windtunnel.core.errors import InputError, one_sentence_per
from windtunnel.search.execution.workers import FailedRun, Outcome, Workers
from windtunnel.search.measure import Metrics
from windtunnel.search.point import Origin, Settings, written
from windtunnel.search.sweep.axes import Axis
from windtunnel.search.sweep.designs import GRID, MOST_RUNS, settings_of
from windtunnel.search.table import ResultTable
from windtunnel.twin.results.chance import draws
from windtunnel.twin.scenario.plan import ScenarioPlan

POINT, SEED, FAILED = "point", "seed", "failed"
"""Columns besides settings and figures."""
MOST_FAULTS = 20

SweepProgress = Callable[[int, int, int], None]
"""Called with the number of finished runs, the total, and how many were found in the cache."""


class SweepRun(NamedTuple):
    """One run of a sweep."""

    point: int
    seed: int
    plan: ScenarioPlan


class Sweep(NamedTuple):
    """The runs of a sweep: points in the order of their design, and the runs of the valid ones."""

    plan: ScenarioPlan
    """The scenario before anything is varied."""
    axes: tuple[Axis, ...]
    design: str
    seeds: tuple[int, ...]
    points: tuple[Settings, ...]
    refused: dict[int, str]
    """Points with settings that the scenario does not allow together, and the error of each."""
    runs: tuple[SweepRun, ...]


def prepare(
    origin: Origin,
    axes: Sequence[Axis],
    *,
    design: str = GRID,
    points: int | None = None,
    seeds: int = 1,
    seed: int | None = None,
) -> Sweep:
    """Builds the sweep of a design, and checks as much as possible before the first run."""
    try:
        plan = origin.plan(seed=seed)
    except InputError as error:
        raise _with_faults_of_axes(error, origin, axes) from None
    settings = settings_of(axes, design, points, plan.seed)
    return prepare_points(origin, plan, axes, design, settings, seeds)


def _with_faults_of_axes(error: InputError, origin: Origin, axes: Sequence[Axis]) -> InputError:
    """Adds what is wrong with the varied settings to the faults of the scenario itself."""
    found = {str(fault): fault for fault in error.faults}
    for axis in axes:
        try:
            origin.plan(((axis.path, axis.at(0.0)),))
        except InputError as more:
            for fault in more.faults:
                found.setdefault(str(fault), fault)
    return one_sentence_per(list(found.values())[:MOST_FAULTS])


def prepare_points(
    origin: Origin,
    plan: ScenarioPlan,
    axes: Sequence[Axis],
    design: str,
    settings: Sequence[Settings],
    seeds: int,
) -> Sweep:
    """Builds the sweep of the given points; `plan` is the scenario before anything is varied.

    A value that no point can run with raises an error. An invalid combination of values is a failed
    point if other points can run.
    """
    if seeds < 1:
        raise InputError(f"seeds is {seeds}", allowed="1 or more")
    _refuse_too_many(len(settings), seeds)
    plans: dict[int, ScenarioPlan] = {}
    faults: dict[int, InputError] = {}
    for number, chosen in enumerate(settings):
        try:
            plans[number] = origin.plan(chosen, plan.seed)
        except InputError as fault:
            faults[number] = fault
    _refuse_bad_values(axes, settings, faults)
    numbers = tuple(plan.seed + number for number in range(seeds))
    runs = [
        SweepRun(number, one, own.changed(seed=one))
        for number, own in plans.items()
        for one in (numbers if draws(own) else numbers[:1])
    ]
    return Sweep(
        plan=plan,
        axes=tuple(axes),
        design=design,
        seeds=numbers,
        points=tuple(settings),
        refused={number: str(fault) for number, fault in faults.items()},
        runs=tuple(runs),
    )


def _refuse_too_many(points: int, seeds: int) -> None:
    if points * seeds > MOST_RUNS:
        what = f"{points:,} points with {seeds} seeds are {points * seeds:,} runs"
        hint = "fewer seeds or points; several sweeps can share a --cache"
        raise InputError(what, allowed=f"up to {MOST_RUNS:,}", hint=hint)


def _refuse_bad_values(
    axes: Sequence[Axis], settings: Sequence[Settings], faults: dict[int, InputError]
) -> None:
    """Raises an error for each value that every one of its points rejects, taken from the first
    point.

    An error that several values share, such as an unknown path, is reported once.
    """
    found: dict[str, InputError] = {}
    for place, axis in enumerate(axes):
        if axis.levels is None and len(faults) < len(settings):
            continue  # a drawn value has one point, which says nothing about the range
        whose: dict[str, list[int]] = {}
        for number, chosen in enumerate(settings):
            whose.setdefault(written(chosen[place][1]), []).append(number)
        for numbers in whose.values():
            if all(number in faults for number in numbers):
                for fault in faults[numbers[0]].faults:
                    found.setdefault(_without_values(fault, settings[numbers[0]]), fault)
    if found:
        raise one_sentence_per(list(found.values())[:MOST_FAULTS])


def _without_values(fault: InputError, chosen: Settings) -> str:
    """The error text, without the value in the place."""
    text = str(fault)
    for path, value in chosen:
        text = text.replace(f"{path}={written(value)}", path, 1)
    return text


def run_sweep(sweep: Sweep, workers: Workers, done: SweepProgress) -> list[Outcome]:
    """Runs a sweep; the outcomes are in the order of its runs."""
    outcomes: dict[int, Outcome] = {}
    done(0, len(sweep.runs), 0)
    for number, outcome in workers.evaluate([run.plan for run in sweep.runs]):
        outcomes[number] = outcome
        done(len(outcomes), len(sweep.runs), workers.found)
    return [outcomes[number] for number in range(len(sweep.runs))]


def table_of(sweep: Sweep, outcomes: Sequence[Outcome]) -> ResultTable:
    """One row per point and seed: settings, then figures. Rejected points have a row, too."""
    names: dict[str, None] = {}
    rows: list[dict[str, Any]] = []
    for run, outcome in zip(sweep.runs, outcomes, strict=True):
        failed = outcome.sentence if isinstance(outcome, FailedRun) else None
        metrics: Metrics = {} if isinstance(outcome, FailedRun) else outcome.metrics
        names |= dict.fromkeys(metrics)
        rows.append({POINT: run.point, SEED: run.seed, FAILED: failed, **metrics})
    rows += [{POINT: point, FAILED: failed} for point, failed in sweep.refused.items()]
    rows.sort(key=lambda row: (row[POINT], row.get(SEED, 0)))
    paths = [axis.path for axis in sweep.axes]
    columns = [POINT, *paths, SEED, FAILED, *names]
    full = [{**dict(sweep.points[row[POINT]]), **row} for row in rows]
    return ResultTable(columns, full, caption=f"sweep of {sweep.plan.name}")
