"""Lengths and seeds of the runs of a search, from short runs to whole ones."""

import math
from typing import NamedTuple

from windtunnel.search.plan.candidates.demand import traits_of
from windtunnel.search.plan.runs.trials import Stage
from windtunnel.twin.results.chance import draws
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.settings.sources import SourceSettings, WorkloadEntry

SHORTEST = 1.0 / 16.0
LONGER = 4.0
"""The ratio of the lengths of consecutive stages."""
NEARLY_WHOLE = 0.5
"""Runs of at least this share of the whole length do not get a stage of their own."""
FEWEST_REQUESTS = 1_000
"""Minimum number of requests in a short run."""
CHOOSING = 3
"""Number of seeds in the whole runs that choose the candidates to test."""
DOUBTFUL = (6, 12)
"""Numbers of seeds, one per stage, in whole runs of candidates that miss on average but not
certainly."""


class RunLengths(NamedTuple):
    """The stages of a search, the seeds of its test, and why runs are not shortened, if they are
    not.

    `doubtful` are further stages for undecided candidates; their seeds follow those of the test.
    """

    stages: tuple[Stage, ...]
    test: tuple[int, ...]
    whole_because: str
    doubtful: tuple[Stage, ...] = ()


def lengths_of(plan: ScenarioPlan, seeds: int) -> RunLengths:
    """The run lengths for a scenario, with this many seeds in the test."""
    first = plan.seed
    if not draws(plan):
        return RunLengths((Stage(1.0, (first,)),), (), "nothing in it is random")
    chosen = tuple(range(first, first + CHOOSING))
    test = tuple(range(first + CHOOSING, first + CHOOSING + seeds))
    after = first + CHOOSING + seeds
    doubtful = tuple(
        Stage(1.0, (*chosen, *range(after, after + many - CHOOSING))) for many in DOUBTFUL
    )
    why = why_whole(plan)
    if why:
        return RunLengths((Stage(1.0, (first,)), Stage(1.0, chosen)), test, why, doubtful)
    shares = []
    share = max(SHORTEST, FEWEST_REQUESTS / max(1.0, requests_of(plan)))
    while share < NEARLY_WHOLE:
        shares.append(share)
        share *= LONGER
    stages = [Stage(share, (first,)) for share in shares]
    if not stages:
        stages = [Stage(1.0, (first,))]
    return RunLengths((*stages, Stage(1.0, chosen)), test, "", doubtful)


def why_whole(plan: ScenarioPlan) -> str:
    """Why the beginning of a run does not represent the rest; empty if it does."""
    if plan.scaling is not None:
        return "an autoscaler needs time to react"
    if plan.on_machines:
        return "machines and gangs need time to start"
    if plan.faults:
        return "its faults happen at set times"
    if not traits_of(plan).steady:
        return "the traffic changes over time"
    for entry in plan.workload:
        assert isinstance(entry, SourceSettings), "a replay is not steady"
        if entry.arrivals.process == "closed" and entry.count is None:
            return "its users send requests until it ends"
        if entry.session is not None and plan.duration_s is not None:
            return "its conversations go on until it ends"
    return ""


def requests_of(plan: ScenarioPlan) -> float:
    """Approximate number of requests, or conversations, that the sources of a run begin."""
    return sum(_count(entry, plan) for entry in plan.workload)


def _count(entry: WorkloadEntry, plan: ScenarioPlan) -> float:
    if not isinstance(entry, SourceSettings):
        return math.inf if entry.count is None else float(entry.count)
    by_time = math.inf
    if plan.duration_s is not None and entry.arrivals.process != "closed":
        by_time = entry.arrivals.drawn().rate_per_s * plan.duration_s
    return min(by_time, math.inf if entry.count is None else entry.count)


def shortened(plan: ScenarioPlan, share: float, seed: int) -> ScenarioPlan:
    """A run with this seed, shortened to a share of its requests; 1 leaves it whole."""
    plan = plan.changed(seed=seed)
    return plan if share >= 1.0 else counted(plan, share)


def counted(plan: ScenarioPlan, share: float = 1.0) -> ScenarioPlan:
    """A steady run with a share of its requests, all of which complete.

    There is no `duration`: it would cut off requests in flight, which are few in a whole run and
    many in a short one.
    """
    entries = [
        entry.model_copy(update={"count": max(1, math.ceil(share * _count(entry, plan)))})
        for entry in plan.workload
    ]
    return plan.changed(duration_s=None, workload=entries)
