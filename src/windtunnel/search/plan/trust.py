"""Trust in the answer of a plan: its servers, and requests that were cut off."""

from collections.abc import Iterable, Mapping
from typing import Any

from windtunnel.analysis.trust import (
    CAUTION,
    DOUBT,
    MISLEADING_UNFINISHED,
    TrustFinding,
    as_section,
)
from windtunnel.search.execution.workers import MeasuredRun, Outcome
from windtunnel.search.measure import Metrics, glance
from windtunnel.search.plan.goal import Goal
from windtunnel.twin.scenario.plan import ScenarioPlan

OF_SERVERS = ("calibration", "max-model-len")
"""Findings that do not depend on the traffic: a glance is enough."""


def trust_of_plan(
    answer: ScenarioPlan, runs: Iterable[tuple[Any, Outcome]], goal: Goal | None, what: str
) -> dict[str, Any]:
    """The section `trust` of an answer, like that of a run without intervals.

    `runs` are the outcomes of a search, each with its candidate; `what` is the word for candidates.
    """
    seen: dict[Any, list[Metrics]] = {}
    for candidate, outcome in runs:
        if isinstance(outcome, MeasuredRun):
            seen.setdefault(candidate, []).append(outcome.metrics)
    known = [one for one in glance(answer)["trust"]["findings"] if one["code"] in OF_SERVERS]
    findings = [TrustFinding(**one) for one in known]
    section = as_section([*findings, *_unfinished(seen, goal, what)])
    return {**section, "latency_intervals": None, "repeats": None}


def _unfinished(
    seen: Mapping[Any, list[Metrics]], goal: Goal | None, what: str
) -> list[TrustFinding]:
    """Reports candidates whose runs cut off so many requests that attainment reflects the cut."""
    shares: list[float] = []
    would = 0
    for runs in seen.values():
        cut = [metrics for metrics in runs if _share(metrics) > MISLEADING_UNFINISHED]
        if cut:
            shares.append(max(_share(metrics) for metrics in cut))
            would += goal is not None and any(_misled(metrics, goal) for metrics in cut)
    if not shares:
        return []
    says = f"{len(shares)} of {len(seen)} simulated {what} had runs in which more than "
    says += f"{MISLEADING_UNFINISHED:.0%} of the requests had not ended when the run did (up to "
    says += f"{max(shares):.0%}). They count as missed, even if their first token came in time."
    if would and goal is not None:
        says += f" Counting only requests that ended, {would} of these {what} would attain "
        says += f"{100 * goal.attained:.4g}%."
    says += " A `count` of requests instead of `duration` lets all of them end."
    figures = {what: len(shares), "share": max(shares), "attained_of_ended": would}
    return [TrustFinding("unfinished", DOUBT if would else CAUTION, says, figures)]


def _share(metrics: Metrics) -> float:
    return (metrics["requests.unfinished"] or 0) / (metrics["requests.arrived"] or 1)


def _misled(metrics: Metrics, goal: Goal) -> bool:
    """Whether the run misses the goal, but attains it among the requests that ended."""
    misses, attains = False, True
    for name, path in goal.shares:
        count = metrics.get(f"slo.{name}.requests") or 0
        share = metrics.get(path) or 0.0
        ended = count - (metrics.get(f"slo.{name}.unfinished") or 0)
        misses = misses or (count > 0 and share < goal.attained)
        attains = attains and ended > 0 and share * count >= goal.attained * ended
    return misses and attains
