"""`plan --find load` and `--find knee`: the load that a deployment carries, and its latency
knee."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from windtunnel.search.execution.workers import MeasuredRun, Outcome
from windtunnel.search.measure import Metrics
from windtunnel.search.plan.goal import Goal, as_data, trial_of
from windtunnel.search.plan.runs.bisection import (
    DOUBLED,
    FLAT,
    MOST_DOUBLINGS,
    PRECISION,
    KneeSearch,
    LoadResult,
    LoadSearch,
    WantedLoad,
    knee_interval,
    weight,
)
from windtunnel.search.plan.runs.run_lengths import counted, lengths_of, shortened, why_whole
from windtunnel.search.plan.runs.trials import Rules, RunDriver, SearchResources, head_of
from windtunnel.search.plan.trust import trust_of_plan
from windtunnel.twin.results.chance import draws
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.settings.sources import SourceSettings, WorkloadEntry

LATENCY = "latency.ttft.p95"
DEFINITION = (
    f"the load at which the p95 of TTFT is {DOUBLED:g} times that of a light load; a load is light "
    f"if its p95 is at most {100 * (FLAT - 1):.0f}% above that of half the load"
)

T = TypeVar("T")


def loaded(plan: ScenarioPlan, load: float) -> ScenarioPlan:
    """The scenario with all its rates multiplied by `load`.

    Rates are the arrivals of open loops and sessions, the users of closed loops, and the speedup of
    traces. A heavier load has more requests, so that the run lasts as long; a lighter one has no
    fewer.
    """
    return plan.changed(workload=[_loaded(entry, load) for entry in plan.workload])


def _loaded(entry: WorkloadEntry, load: float) -> WorkloadEntry:
    if not isinstance(entry, SourceSettings):
        trace = entry.trace.model_copy(update={"speedup": entry.trace.speedup * load})
        return entry.model_copy(update={"trace": trace})
    count = None if entry.count is None else math.ceil(entry.count * weight(load))
    return entry.model_copy(update={"arrivals": entry.arrivals.scaled(load), "count": count})


def offered(plan: ScenarioPlan) -> float | None:
    """Requests, or conversations, that begin per second; None if that changes."""
    rates = []
    for entry in plan.workload:
        if not isinstance(entry, SourceSettings) or entry.rate_curve is not None:
            return None
        if entry.arrivals.process == "closed":
            return None
        rates.append(entry.arrivals.drawn().rate_per_s)
    return sum(rates)


def _driver(
    base: ScenarioPlan, means: SearchResources, seen: Callable[[Outcome], T]
) -> RunDriver[WantedLoad, T]:
    """A driver that runs the scenario at different loads."""
    return RunDriver(
        means,
        # Shortened first, for the same number of requests at any load.
        lambda run: loaded(shortened(base, run.share, run.seed), run.load),
        lambda _, outcome: seen(outcome),
        lambda run, _: f"runs at {run.load:.3g} x",
    )


def _curve(
    base: ScenarioPlan, outcomes: Mapping[WantedLoad, Outcome], goal: Goal | None
) -> list[dict[str, Any]]:
    """The figures at each load, from its longest runs; from light to heavy."""
    loads: dict[float, list[tuple[WantedLoad, Metrics]]] = {}
    for run, outcome in outcomes.items():
        if isinstance(outcome, MeasuredRun):
            loads.setdefault(run.load, []).append((run, outcome.metrics))
    rate = offered(base)
    rows = []
    for load, seen in sorted(loads.items()):
        share = max(run.share for run, _ in seen)
        longest = [metrics for run, metrics in seen if run.share == share]
        attained = None
        if goal is not None:
            trials = [trial_of(MeasuredRun(metrics), goal, {}) for metrics in longest]
            attained = min(
                _mean([trial.attained[one] for trial in trials]) for one in range(len(goal.shares))
            )
        latencies = [metrics[LATENCY] for metrics in longest]
        known = [float(latency) for latency in latencies if latency is not None]
        rows.append(
            {
                "load": load,
                "requests_per_s": None if rate is None else rate * load,
                "attained": attained,
                "ttft_p95": _mean(known) if known else None,
                "runs": len(longest),
                "run_share": share,
            }
        )
    return rows


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def find_load(base: ScenarioPlan, goal: Goal, seeds: int, means: SearchResources) -> dict[str, Any]:
    """Finds the highest load that the scenario's own servers carry; returns plain data."""
    lengths = lengths_of(base, seeds)
    rules = Rules(goal.attained, goal.confidence, lengths.stages, lengths.test, means.max_runs)
    search = LoadSearch(rules)
    driver = _driver(base, means, lambda outcome: trial_of(outcome, goal, {}))
    driver.play(search.moves())
    ended = search.ended()
    curve = _curve(base, driver.outcomes, goal)
    return {
        **head_of(base, "load"),
        "goal": as_data(base, goal),
        "carried": _carried(base, ended),
        "missed": next((row for row in curve if row["load"] == ended.missed), None),
        "searched": _searched(driver, means.max_runs, out_of_runs=ended.out_of_runs)
        | {
            "tests": ended.tests,
            "stages": [stage.data() for stage in lengths.stages],
            "test_seeds": list(lengths.test),
            "whole_runs_because": lengths.whole_because or None,
        },
        "trust": None if ended.out_of_runs else _trust(base, driver.outcomes, goal),
        "not_tried": _not_tried(base),
        "curve": curve,
    }


def _carried(base: ScenarioPlan, ended: LoadResult) -> dict[str, Any] | None:
    if ended.carried is None or ended.sure is None:
        return None
    rate = offered(base)
    return {
        "load": ended.carried,
        "requests_per_s": None if rate is None else rate * ended.carried,
        "attained": ended.sure.share,
        "low": ended.sure.low,
        "high": ended.sure.high,
        "confidence": ended.confidence,
    }


def find_knee(
    base: ScenarioPlan, goal: Goal | None, confidence: float, seeds: int, means: SearchResources
) -> dict[str, Any]:
    """Finds the latency knee of the scenario's own servers; returns plain data."""
    first = base.seed
    chosen = range(first, first + seeds) if draws(base) else range(first, first + 1)
    # With a duration, a light load would have few requests: use a count instead, if equivalent.
    steady = base if why_whole(base) else counted(base)
    search = KneeSearch(chosen, means.max_runs)
    driver = _driver(steady, means, _latency)
    driver.play(search.moves())
    knees = search.knees()
    interval = knee_interval(knees, confidence) if len(knees) == len(chosen) else None
    rate = offered(base)
    found = None
    if interval is not None:
        found = {
            "load": interval.middle,
            "low": interval.low,
            "high": interval.high,
            "confidence": confidence if len(knees) > 1 else None,
            "requests_per_s": None if rate is None else rate * interval.middle,
            "ttft_p95": _mean([knee.latency_s or 0.0 for knee in knees]),
        }
    return {
        **head_of(base, "knee"),
        "definition": DEFINITION,
        "knee": found,
        "light": {
            "load": min((knee.light_load for knee in knees), default=None),
            "ttft_p95": _mean([knee.light_s for knee in knees]) if knees else None,
        },
        "seeds": [msgspec.to_builtins(knee) for knee in knees],
        "searched": _searched(driver, means.max_runs, out_of_runs=search.out_of_runs),
        "trust": None if found is None else _trust(base, driver.outcomes, goal),
        "not_tried": _not_tried(base),
        "curve": _curve(steady, driver.outcomes, goal),
    }


def _latency(outcome: Outcome) -> float | None:
    if not isinstance(outcome, MeasuredRun):
        return None
    latency = outcome.metrics[LATENCY]
    return None if latency is None else float(latency)


def _trust(
    base: ScenarioPlan, outcomes: Mapping[WantedLoad, Outcome], goal: Goal | None
) -> dict[str, Any] | None:
    """Trust in the scenario's own servers; None if no run of them completed."""
    if not any(isinstance(outcome, MeasuredRun) for outcome in outcomes.values()):
        return None
    runs = ((run.load, outcome) for run, outcome in outcomes.items())
    return trust_of_plan(base, runs, goal, "loads")


def _searched(
    runs: RunDriver[WantedLoad, Any], max_runs: float, *, out_of_runs: bool
) -> dict[str, Any]:
    return {
        "runs": len(runs.outcomes),
        "whole_runs": runs.spent,
        "max_runs": max_runs,
        "out_of_runs": out_of_runs,
        "precision": PRECISION,
    }


def _not_tried(base: ScenarioPlan) -> list[str]:
    most = 2**MOST_DOUBLINGS
    notes = [f"loads below 1/{most} and above {most} times the scenario's"]
    if any(
        isinstance(entry, SourceSettings) and entry.rate_curve is not None
        for entry in base.workload
    ):
        notes.append("a longer or a shorter curve: only its rates scale with the load")
    if any(not isinstance(entry, SourceSettings) for entry in base.workload):
        notes.append("requests other than those of the trace: it is replayed faster or slower")
    return notes
