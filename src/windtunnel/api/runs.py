"""Single runs from Python: `wt.simulate`, `wt.compare` and `wt.explain`."""

import json
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.analysis.comparison import in_unit
from windtunnel.api.inputs import Sets, file_of, plain_of, set_texts
from windtunnel.core.errors import InputError
from windtunnel.core.system.files import writing
from windtunnel.core.units import parse_duration
from windtunnel.search.table import ResultTable, pandas_of, polars_of
from windtunnel.twin.ceiling import MemoryCeiling
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import document_of, load, load_document
from windtunnel.twin.scenario.plan import ScenarioPlan

if TYPE_CHECKING:
    import pyarrow as pa

    from windtunnel.analysis.explain.overview import Explained

HEIGHT_PX = 720
SEEDS_OF_A_COMPARISON = 5
FOLDER_OF_A_DICT = "scenario.yaml"
"""The assumed path of a scenario without a file: paths in it are relative to the working folder."""

Scenario = str | Path | Mapping[str, Any] | ScenarioPlan
"""A file, its content as a dictionary, or the result of `wt.load`."""
SCENARIO_ALLOWED = "the path of a file, its content as a dictionary, or what wt.load returned"


class FigurePage:
    """A self-contained page with charts: it loads no other file and contacts no host."""

    def __init__(self, html: str) -> None:
        self.html = html

    def save(self, path: str | Path) -> Path:
        """Writes the page, and returns its path."""
        place = Path(path)
        with writing(place, what="cannot write the page"):
            place.write_text(self.html, encoding="utf-8")
        return place

    def __repr__(self) -> str:
        return f"<figure, {len(self.html.encode()):,} bytes of HTML: a notebook shows it>"

    def _repr_html_(self) -> str:
        # A frame keeps the page's styles and scripts to itself, and those of the notebook out.
        return (
            f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts" title="Windtunnel" '
            f'style="width: 100%; height: {HEIGHT_PX}px; border: 0"></iframe>'
        )


class RunResult(dict[str, Any]):
    """The result of a run: a dictionary with the keys of `result.json`.

    A notebook displays it. `requests` and `timeline` are Arrow tables, `plot` is the report,
    `explain` says why a request was slow. These need the files of the run. If `simulate` was given
    no folder for them, the first use runs the scenario once more and records it: the same seed
    gives the same run.
    """

    def __init__(self, plan: ScenarioPlan, result: Mapping[str, Any], folder: Path | None) -> None:
        super().__init__(result)
        self.plan = plan
        self._folder = folder

    @property
    def folder(self) -> Path:
        """The folder with the files of this run. A temporary one is deleted with the result."""
        if self._folder is None:
            place = tempfile.mkdtemp(prefix="windtunnel-")
            weakref.finalize(self, shutil.rmtree, place, ignore_errors=True)
            record(self.plan, Path(place, "run"))
            self._folder = Path(place, "run")
        return self._folder

    @property
    def requests(self) -> "pa.Table":
        """A row per request, in order of completion."""
        from windtunnel.analysis.run_folder import REQUESTS

        return _table(self.folder / REQUESTS)

    @property
    def timeline(self) -> "pa.Table":
        """A row per sample of the run and of each of its servers."""
        from windtunnel.analysis.run_folder import TIMELINE

        return _table(self.folder / TIMELINE)

    def to_pandas(self) -> Any:
        """The requests as a pandas DataFrame."""
        return pandas_of(self.requests)

    def to_polars(self) -> Any:
        """The requests as a polars DataFrame."""
        return polars_of(self.requests)

    def plot(self) -> FigurePage:
        """The report: latencies, load over time, and slow requests."""
        from windtunnel.report.page.render import report_page

        return FigurePage(report_page(self.folder))

    def explain(
        self,
        *,
        request: int | None = None,
        at: str | float | None = None,
        decision: str | None = None,
    ) -> "Explanation":
        """Like `wt.explain`, for this run."""
        return explain(self, request=request, at=at, decision=decision)

    def __repr__(self) -> str:
        requests = self["requests"]
        return (
            f"<run of {self['name']}, seed {self['seed']}: {requests['completed']:,} of "
            f"{requests['arrived']:,} requests completed>"
        )

    def _repr_html_(self) -> str:
        from windtunnel.report.page.headline import tiles

        shown = tiles(self)
        return (
            f"<table><caption>{escape(self['name'])}, seed {self['seed']}</caption>"
            f"<thead><tr>{_cells('th', [tile.name for tile in shown])}</tr></thead>"
            f"<tbody><tr>{_cells('td', [tile.figure for tile in shown])}</tr>"
            f"<tr>{_cells('td', [tile.note for tile in shown])}</tr></tbody></table>"
        )


def _cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _table(path: Path) -> "pa.Table":
    from windtunnel.analysis.run_folder import parquet_of

    table: pa.Table = parquet_of(path, ()).read()
    return table


def simulate(
    scenario: Scenario,
    *,
    sets: Sets = (),
    seed: int | None = None,
    check: bool = False,
    folder: str | Path | None = None,
) -> RunResult:
    """Runs a scenario: a file, a dictionary, or a plan from `wt.load`.

    `sets` are overrides: `{"serving.pools.0.replicas": 8}`, or texts in the form of `--set`. With
    `check`, invariants are checked after every event. The files of the run are written to `folder`,
    as by the command of the same name.
    """
    plan = plan_of(scenario, sets, seed)
    if folder is None:
        return RunResult(
            plan, run(plan, check=check, look=MemoryCeiling.of(None).look).result, None
        )
    place = file_of(folder, "folder")
    return RunResult(plan, record(plan, place, check=check), place)


def record(plan: ScenarioPlan, folder: Path, *, check: bool = False) -> dict[str, Any]:
    """Runs a plan, writes its folder, and returns its result."""
    from windtunnel.report.files.folder import RunFolder

    with RunFolder(folder) as files:
        look = MemoryCeiling.of(None).look
        done = run(plan, rows=files.rows(), decisions=files.control(), check=check, look=look)
        files.finish(done)
    return done.result


def plan_of(scenario: Scenario, sets: Sets = (), seed: int | None = None) -> ScenarioPlan:
    """The plan of a file or a dictionary; a plan is returned as it is."""
    if isinstance(scenario, ScenarioPlan):
        if sets or seed is not None:
            what = "a loaded scenario already has its settings"
            raise InputError(what, where="sets, seed", hint="give them to wt.load")
        return scenario
    if isinstance(scenario, RunResult):
        raise InputError("this is a result", where="scenario", hint="its scenario is .plan")
    if isinstance(scenario, Mapping):
        text = json.dumps(plain_of(scenario, "scenario"))
        return load_document(document_of(text, FOLDER_OF_A_DICT, set_texts(sets), seed))
    return load(file_of(scenario, "scenario", SCENARIO_ALLOWED), set_texts(sets), seed)


class ComparisonTable(ResultTable):
    """A row per figure and design; differences are from the first design.

    `found` is everything as plain data, like `compare.json`.
    """

    def __init__(self, found: dict[str, Any]) -> None:
        names = [design["name"] for design in found["designs"]]
        rows = [
            {"figure": metric["path"], "design": name, **_value(design, metric["designs"][0])}
            for metric in found["metrics"]
            for name, design in zip(names, metric["designs"], strict=True)
        ]
        columns = ("figure", "design", "mean", "difference", "low", "high", "verdict")
        super().__init__(columns, rows, caption=" against ".join(reversed(names)))
        self.found = found

    def plot(self) -> FigurePage:
        """The page of the comparison."""
        from windtunnel.report.page.searches.comparison import comparison_page

        return FigurePage(comparison_page(self.found))


def _value(design: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    difference = design["difference"]
    if difference is None:
        return {"mean": design["mean"], **dict.fromkeys(("difference", "low", "high", "verdict"))}
    apart = in_unit(difference, base["mean"])
    return {
        "mean": design["mean"],
        "difference": apart["mean"],
        "low": apart["low"],
        "high": apart["high"],
        "verdict": difference["verdict"],
    }


def compare(
    *scenarios: Scenario,
    names: Sequence[str] | None = None,
    sets: Sets = (),
    seeds: int = SEEDS_OF_A_COMPARISON,
    seed: int | None = None,
    jobs: int | None = None,
) -> ComparisonTable:
    """Compares designs on the same traffic, each with the first, with 95% confidence intervals.

    `names` are the names of the designs; by default those of the scenarios, numbered if not unique.
    """
    from windtunnel.search.repeats.comparison import Design
    from windtunnel.search.repeats.comparison import compare as hold_against

    if len(scenarios) < 2:
        what = f"{'only one' if scenarios else 'no'} scenario was given"
        raise InputError(what, where="compare", allowed="two or more")
    if seeds < 1:
        raise InputError(f"{seeds} is too few", where="seeds", allowed="1 or more")
    plans = [plan_of(scenario, sets, seed) for scenario in scenarios]
    plans = [plan.changed(seed=plans[0].seed) for plan in plans]
    called = list(names) if names is not None else [plan.name for plan in plans]
    if len(called) != len(plans):
        what = f"{len(called)} for {len(plans)} scenarios"
        raise InputError(what, where="names", allowed="one name per scenario")
    if len(set(called)) < len(called):
        called = [f"{number}: {name}" for number, name in enumerate(called, start=1)]
    designs = [Design(name, plan) for name, plan in zip(called, plans, strict=True)]
    return ComparisonTable(hold_against(designs, seeds, lambda *_: None, jobs))


class Explanation:
    """The causes of a slow request or a decision. `found` is plain data; `str()` is for people."""

    def __init__(self, found: "Explained", text: str) -> None:
        self.found = found
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self._text)}</pre>"


def explain(
    of: RunResult | str | Path,
    *,
    request: int | None = None,
    at: str | float | None = None,
    decision: str | None = None,
) -> Explanation:
    """Explains why a request was slow, the state at a time, or what a decision was based on.

    `of` is a result of `wt.simulate`, or the folder of a run. Without an option it lists slow
    requests and large decisions.
    """
    from io import StringIO

    from windtunnel.analysis.explain.overview import explain_run
    from windtunnel.analysis.explain.run import RunReader
    from windtunnel.report.terminal.explain import show
    from windtunnel.report.terminal.layout import Screen

    if sum(one is not None for one in (request, at, decision)) > 1:
        raise InputError("one at a time", where="explain", allowed="request, at or decision")
    folder = of.folder if isinstance(of, RunResult) else file_of(of, "explain")
    at_s = parse_duration(at) if isinstance(at, str) else at
    found = explain_run(RunReader(folder), request, at_s, decision)
    text = StringIO()
    more = "for more: explain(request=ID), explain(decision=ID) or explain(at=TIME)"
    show(found, more, Screen(file=text, width=100, force_jupyter=False))
    return Explanation(found, text.getvalue().rstrip())
