"""What Python code asks of a search: `wt.sweep` and `wt.sensitivity`, which give tables."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.core.spec.yaml_source import Plain
from windtunnel.search.axes import Axis, axes_of, axis_of, listed_axis
from windtunnel.search.cache import Cache
from windtunnel.search.designs import GRID
from windtunnel.search.measure import check_name
from windtunnel.search.point import Origin
from windtunnel.search.sensitivity import MORRIS, indices_of, plan_study
from windtunnel.search.summary import mean_of, summary_of
from windtunnel.search.sweep import FAILED, POINT, prepare, run_sweep, table_of
from windtunnel.search.table import Table
from windtunnel.search.workers import LOCAL, Workers

Varied = Mapping[str, "str | Sequence[Any]"]
"""Settings by path: values, or a range as text, such as `2..16`."""
USUAL_SEEDS = 5
SEEDS_OF_A_STUDY = 3


class SweepTable(Table):
    """A row per point and seed; a notebook shows the means of points.

    `means` has a row per point, `front` those points that nothing beats, and `summary` is all of it
    as plain data, with intervals.
    """

    def __init__(self, whole: Table, summary: dict[str, Any]) -> None:
        super().__init__(whole.columns, whole.rows, caption=whole.caption)
        self.summary = summary
        settings = [axis["path"] for axis in summary["axes"]]
        names = [metric["name"] for metric in summary["metrics"]]
        shown = [*settings, *summary["shown"]]
        rows = [_means_of(point, names) for point in summary["points"]]
        columns = [POINT, *settings, FAILED, *names]
        self.means = Table(columns, rows, caption=f"{self.caption}: means", shown=shown)
        best = [rows[number] for number in summary["front"]["points"]]
        self.front = Table(columns, best, caption=f"{self.caption}: front", shown=shown)

    def _repr_html_(self) -> str:
        return self.means._repr_html_()


def _means_of(point: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    means = {name: mean_of(point, name) for name in names}
    return {POINT: point["point"], **point["settings"], FAILED: point["failed"], **means}


def sweep(
    scenario: str | Path,
    vary: Varied,
    *,
    sets: Mapping[str, Plain] | None = None,
    design: str = GRID,
    points: int | None = None,
    seeds: int = USUAL_SEEDS,
    seed: int | None = None,
    metrics: Sequence[str] = (),
    on: str = LOCAL,
    jobs: int | None = None,
    cache: str | Path | None = None,
) -> SweepTable:
    """Runs a scenario file at many settings, every point with the same seeds.

    `vary` has the values of every setting, `sets` what is set for all. `metrics` are the figures
    that a notebook shows. What a `cache` folder has is not run again. Everything else is as for the
    command of the same name.
    """
    sweep = prepare(
        origin_of(scenario, sets),
        axes_in(vary),
        design=design,
        points=points,
        seeds=seeds,
        seed=seed,
    )
    for name in metrics:
        check_name(name, sweep.runs[0].plan, f"metrics {name}")
    with Workers(on=on, jobs=jobs, cache=None if cache is None else Cache(Path(cache))) as workers:
        outcomes = run_sweep(sweep, workers, lambda *_: None)
    return SweepTable(table_of(sweep, outcomes), summary_of(sweep, outcomes, metrics))


class SensitivityTable(Table):
    """A row per setting, those that matter most first.

    `points` has all runs, and `summary` is what was found as plain data.
    """

    def __init__(self, summary: dict[str, Any], points: Table) -> None:
        rows = summary["settings"]
        caption = f"sensitivity of {summary['metric']['name']} in {summary['name']}"
        super().__init__(list(rows[0]), rows, caption=caption)
        self.summary = summary
        self.points = points


def sensitivity(
    scenario: str | Path,
    vary: Varied,
    metric: str,
    *,
    sets: Mapping[str, Plain] | None = None,
    method: str = MORRIS,
    samples: int | None = None,
    seeds: int = SEEDS_OF_A_STUDY,
    seed: int | None = None,
    on: str = LOCAL,
    jobs: int | None = None,
    cache: str | Path | None = None,
) -> SensitivityTable:
    """Says which settings a figure depends on, and how much: by `morris` or by `sobol`.

    Everything else is as for the command of the same name and for `sweep`.
    """
    study = plan_study(
        origin_of(scenario, sets),
        axes_in(vary),
        metric,
        method=method,
        samples=samples,
        seeds=seeds,
        seed=seed,
    )
    with Workers(on=on, jobs=jobs, cache=None if cache is None else Cache(Path(cache))) as workers:
        outcomes = run_sweep(study.sweep, workers, lambda *_: None)
    return SensitivityTable(indices_of(study, outcomes), table_of(study.sweep, outcomes))


def origin_of(scenario: str | Path, sets: Mapping[str, Plain] | None) -> Origin:
    """The scenario of a file, with what is set for all points."""
    texts = [f"{path}={json.dumps(value)}" for path, value in (sets or {}).items()]
    return Origin.read(scenario, texts)


def axes_in(vary: Varied) -> list[Axis]:
    """The axes that a mapping asks for."""
    if not vary:
        return axes_of([])
    return [
        axis_of(f"{path}={values}")
        if isinstance(values, str)
        else listed_axis(path, list(values), f"vary {path}")
        for path, values in vary.items()
    ]
