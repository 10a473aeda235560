"""Searches from Python: `wt.sweep`, `wt.sensitivity`, `wt.plan` and `wt.check`, as tables."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.analysis.comparison import in_unit
from windtunnel.api.inputs import Sets, file_of, mapping_of, plain_of, set_texts
from windtunnel.api.runs import FigurePage
from windtunnel.core.errors import InputError
from windtunnel.core.units import parse_duration
from windtunnel.report.terminal.searches.plan import PlannedScenario
from windtunnel.search.check.check import CheckAsk
from windtunnel.search.check.check import check as run_check
from windtunnel.search.check.limits import limits_of
from windtunnel.search.check.sides import CheckInput
from windtunnel.search.execution.cache import Cache
from windtunnel.search.execution.workers import LOCAL, Workers
from windtunnel.search.measure import check_name
from windtunnel.search.plan.planner import (
    DEPLOYMENT,
    USUAL_RUNS,
    USUAL_SEEDS,
    Question,
    answer,
)
from windtunnel.search.point import Origin
from windtunnel.search.sensitivity import MORRIS, indices_of, plan_study
from windtunnel.search.sweep.axes import Axis, axes_of, axis_of, listed_axis
from windtunnel.search.sweep.designs import GRID
from windtunnel.search.sweep.summary import mean_of, summary_of
from windtunnel.search.sweep.sweep import FAILED, POINT, prepare, run_sweep, table_of
from windtunnel.search.table import ResultTable
from windtunnel.settings.fields import shown

Varied = Mapping[str, "str | Iterable[Any]"]
"""Settings by path: values, or a range as text, such as `2..16`."""
EXAMPLE = '{"serving.pools.0.replicas": [2, 3, 4]}, or "2..4" in place of the list'
SEEDS_OF_A_SWEEP = 5
SEEDS_OF_A_STUDY = 3


class SweepTable(ResultTable):
    """A row per point and seed; a notebook displays the means of points.

    `means` has a row per point, `front` is the Pareto front, and `summary` is everything as plain
    data, with intervals.
    """

    def __init__(self, whole: ResultTable, summary: dict[str, Any]) -> None:
        super().__init__(whole.columns, whole.rows, caption=whole.caption)
        self.summary = summary
        settings = [axis["path"] for axis in summary["axes"]]
        names = [metric["name"] for metric in summary["metrics"]]
        shown = [*settings, *summary["shown"]]
        rows = [_means_of(point, names) for point in summary["points"]]
        columns = [POINT, *settings, FAILED, *names]
        self.means = ResultTable(columns, rows, caption=f"{self.caption}: means", shown=shown)
        best = [rows[number] for number in summary["front"]["points"]]
        self.front = ResultTable(columns, best, caption=f"{self.caption}: front", shown=shown)

    def _repr_html_(self) -> str:
        return self.means._repr_html_()

    def plot(self) -> FigurePage:
        """The page of the sweep."""
        from windtunnel.report.page.searches.sweep import sweep_page

        return FigurePage(sweep_page(self.summary))


def _means_of(point: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    means = {name: mean_of(point, name) for name in names}
    return {POINT: point["point"], **point["settings"], FAILED: point["failed"], **means}


def sweep(
    scenario: str | Path,
    vary: Varied,
    *,
    sets: Sets | None = None,
    design: str = GRID,
    points: int | None = None,
    seeds: int = SEEDS_OF_A_SWEEP,
    seed: int | None = None,
    metrics: Sequence[str] = (),
    on: str = LOCAL,
    jobs: int | None = None,
    cache: str | Path | None = None,
) -> SweepTable:
    """Runs a scenario file at many settings, every point with the same seeds.

    `vary` has the values of each setting; `sets` are overrides for all points. `metrics` are the
    figures that a notebook displays. Runs found in the `cache` folder are not repeated. Everything
    else is as for the command of the same name.
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
    with _workers(on, jobs, cache) as workers:
        outcomes = run_sweep(sweep, workers, lambda *_: None)
    return SweepTable(table_of(sweep, outcomes), summary_of(sweep, outcomes, metrics))


class SensitivityTable(ResultTable):
    """A row per setting, the most influential first.

    `points` has all runs, and `summary` is the result as plain data.
    """

    def __init__(self, summary: dict[str, Any], points: ResultTable) -> None:
        rows = summary["settings"]
        caption = f"sensitivity of {summary['metric']['name']} in {summary['name']}"
        super().__init__(list(rows[0]), rows, caption=caption)
        self.summary = summary
        self.points = points

    def plot(self) -> FigurePage:
        """The page of the study."""
        from windtunnel.report.page.searches.sensitivity import sensitivity_page

        return FigurePage(sensitivity_page(self.summary))


def sensitivity(
    scenario: str | Path,
    vary: Varied,
    metric: str,
    *,
    sets: Sets | None = None,
    method: str = MORRIS,
    samples: int | None = None,
    seeds: int = SEEDS_OF_A_STUDY,
    seed: int | None = None,
    on: str = LOCAL,
    jobs: int | None = None,
    cache: str | Path | None = None,
) -> SensitivityTable:
    """Ranks the settings that a figure depends on, by `morris` or `sobol`.

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
    with _workers(on, jobs, cache) as workers:
        outcomes = run_sweep(study.sweep, workers, lambda *_: None)
    return SensitivityTable(indices_of(study, outcomes), table_of(study.sweep, outcomes))


SHOWN_OF_PLAN = ("label", "cost_per_hour", "attained", "low", "reason", "why")


class PlanTable(ResultTable):
    """A row for each candidate or each load that was tried, and the answer.

    With several models, `models` has the answer for each: its `best`, or `why` if it has none.
    """

    def __init__(self, found: Mapping[str, Any], asked: PlannedScenario) -> None:
        rows: Sequence[Mapping[str, Any]] = found.get("candidates", found.get("curve", ()))
        shown: Sequence[str] = SHOWN_OF_PLAN
        if "models" in found:
            rows = [
                {"serves": one["model"], **row}
                for one in found["models"]
                for row in one["candidates"]
            ]
            shown = ("serves", *shown)
        columns = list(rows[0]) if rows else []
        shown = shown if found["find"] == DEPLOYMENT else columns
        super().__init__(columns, rows, caption=f"plan of {found['name']}", shown=shown)
        self.found = dict(found)
        self._asked = asked

    def plot(self) -> FigurePage:
        """The page of the plan."""
        from windtunnel.report.page.searches.plan import plan_page

        return FigurePage(plan_page(self.found, self._asked))

    @property
    def best(self) -> dict[str, Any] | None:
        """The answer: a candidate, the load carried, or the knee; None if there is none."""
        key = {DEPLOYMENT: "best", "load": "carried"}.get(self.found["find"], "knee")
        row: dict[str, Any] | None = self.found[key]
        return row

    @property
    def models(self) -> dict[str, dict[str, Any]]:
        """The answers of a plan of several models, by model."""
        return {one["model"]: one for one in self.found.get("models", ())}

    @property
    def runners_up(self) -> list[dict[str, Any]]:
        """The next cheapest kinds of deployment that passed the same test."""
        return list(self.found.get("runners_up", ()))

    @property
    def closest(self) -> dict[str, Any] | None:
        """The candidate that came closest, if none is good enough."""
        row: dict[str, Any] | None = self.found.get("closest")
        return row

    @property
    def not_tried(self) -> list[str]:
        """Sentences about what was not tried, but might be assumed to have been."""
        return list(self.found["not_tried"])


def plan(
    scenario: str | Path,
    *,
    find: str = DEPLOYMENT,
    sets: Sets | None = None,
    slo: Sequence[str] | None = None,
    attained: float | None = None,
    confidence: float | None = None,
    seed: int | None = None,
    seeds: int = USUAL_SEEDS,
    max_runs: float = USUAL_RUNS,
    on: str = LOCAL,
    jobs: int | None = None,
    cache: str | Path | None = None,
) -> PlanTable:
    """Finds the cheapest deployment that attains the SLO, or the load that the servers carry.

    `sets` may list what to choose from, as in `{"plan.accelerators": ["h200", "l40s"]}`. Everything
    else is as for the command of the same name.
    """
    question = Question(
        find=find,
        attained=attained,
        confidence=confidence,
        slo=None if slo is None else tuple(slo),
        seeds=seeds,
        max_runs=max_runs,
        seed=seed,
    )
    origin = origin_of(scenario, sets)
    with _workers(on, jobs, cache) as workers:
        found = answer(origin, question, workers, lambda *_: None)
    return PlanTable(found, PlannedScenario(Path(scenario), set_texts(sets), seed))


class CheckTable(ResultTable):
    """A row per figure, with its difference; `found` is everything, like `check.json`."""

    def __init__(self, found: dict[str, Any]) -> None:
        rows = [_row_of(metric) for metric in found["metrics"]]
        base, changed = (design["name"] for design in found["designs"])
        super().__init__(list(rows[0]), rows, caption=f"{changed} against {base}")
        self.found = found

    def plot(self) -> FigurePage:
        """The page of the check."""
        from windtunnel.report.page.searches.comparison import check_page

        return FigurePage(check_page(self.found))

    @property
    def passed(self) -> bool:
        """Whether every limit is met."""
        return bool(self.found["verdict"] == "passed")


def _row_of(metric: Mapping[str, Any]) -> dict[str, Any]:
    base, changed = metric["designs"]
    difference = changed["difference"]
    apart = in_unit(difference, base["mean"])
    return {
        "figure": metric["path"],
        "base": base["mean"],
        "changed": changed["mean"],
        "difference": apart["mean"],
        "low": apart["low"],
        "high": apart["high"],
        "verdict": difference["verdict"],
    }


def check(
    *files: str | Path,
    base: str | None = None,
    head: str | None = None,
    scenario: str | Path | None = None,
    trace: str | Path | None = None,
    max_cost: str | None = None,
    min_attainment: str | None = None,
    most: Mapping[str, str] | None = None,
    least: Mapping[str, str] | None = None,
    sets: Sets | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    block: str | None = None,
    jobs: int | None = None,
) -> CheckTable:
    """Compares a changed configuration with a base: two files, or one and `base`, a Git revision.

    `most` and `least` have limits by figure, as in `{"latency.ttft.p99": "+10%"}`. Everything else
    is as for the command of the same name.
    """
    for name, limit in (("max_cost", max_cost), ("min_attainment", min_attainment)):
        if not isinstance(limit, str | None):
            raise InputError(f"{shown(limit)} is not text", where=name, allowed="such as '+5%'")
    limits = limits_of(max_cost, min_attainment, *(_limit_texts(part) for part in (most, least)))
    given = CheckInput(
        [file_of(file, "check") for file in files],
        base,
        head,
        None if scenario is None else file_of(scenario, "scenario"),
        None if trace is None else file_of(trace, "trace"),
        set_texts(sets),
        seed,
    )
    block_s = None if block is None else parse_duration(block)
    return CheckTable(run_check(given, CheckAsk(limits, seeds, block_s, jobs), lambda *_: None))


def _limit_texts(limits: Mapping[str, str] | None) -> list[str]:
    given = mapping_of(limits or {}, "limits", '{"latency.ttft.p99": "+10%"}')
    return [f"{path}={value}" for path, value in given.items()]


def _workers(on: str, jobs: int | None, cache: str | Path | None) -> Workers:
    return Workers(on=on, jobs=jobs, cache=None if cache is None else Cache(Path(cache)))


def origin_of(scenario: str | Path, sets: Sets | None) -> Origin:
    """The scenario of a file, with overrides for all points."""
    return Origin.read(file_of(scenario, "scenario"), set_texts(sets))


def axes_in(vary: Varied) -> list[Axis]:
    """The axes that a mapping describes."""
    given = mapping_of(vary, "vary", EXAMPLE)
    return [_axis(path, values) for path, values in given.items()] or axes_of([])


def _axis(path: str, values: Any) -> Axis:
    if isinstance(values, str):
        return axis_of(f"{path}={values}")
    where = f"vary {path}"
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, Iterable) or isinstance(values, Mapping | bytes):
        raise InputError(f"{shown(values)} is not a list of values", where=where, allowed=EXAMPLE)
    listed = [plain_of(value, where) for value in values]
    if not listed:
        raise InputError("the list of values is empty", where=where, allowed=EXAMPLE)
    return listed_axis(path, listed, where)
