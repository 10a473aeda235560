"""How long the runs of a search are, and with which seeds: from short runs to whole ones."""

import math
from typing import NamedTuple

from windtunnel.search.plan.demand import traits_of
from windtunnel.search.plan.trials import Stage
from windtunnel.twin.results.chance import draws
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.settings.sources import SourceSettings, WorkloadEntry

SHORTEST = 1.0 / 16.0
LONGER = 4.0
"""Each stage runs this many times as long as the one before."""
NEARLY_WHOLE = 0.5
"""A part as long as this is not worth a stage."""
FEWEST_REQUESTS = 1_000
"""Of a short run."""
CHOOSING = 3
"""Seeds with which whole runs choose the candidates to test."""
DOUBTFUL = (6, 12)
"""Seeds of whole runs for candidates that miss on average but not surely: so many, then more."""


class RunLengths(NamedTuple):
    """The stages of a search, the seeds of its test, and why runs are not cut short, if so.

    `doubtful` are further stages of undecided candidates; their seeds come after those of the test.
    """

    stages: tuple[Stage, ...]
    test: tuple[int, ...]
    whole_because: str
    doubtful: tuple[Stage, ...] = ()


def lengths_of(plan: ScenarioPlan, seeds: int) -> RunLengths:
    """For a scenario, with this many seeds in the test."""
    first = plan.seed
    if not draws(plan):
        return RunLengths((Stage(1.0, (first,)),), (), "nothing in it is left to chance")
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
    """Why the beginning of a run says nothing of the rest; empty where it does."""
    if plan.scaling is not None:
        return "an autoscaler needs its time"
    if plan.on_machines:
        return "machines and gangs need theirs"
    if plan.faults:
        return "what goes wrong in it has its time"
    if not traits_of(plan).steady:
        return "the traffic changes over time"
    for entry in plan.workload:
        assert isinstance(entry, SourceSettings), "a replay is not steady"
        if entry.arrivals.process == "closed" and entry.count is None:
            return "its users ask again and again until it ends"
        if entry.session is not None and plan.duration_s is not None:
            return "its conversations go on until it ends"
    return ""


def requests_of(plan: ScenarioPlan) -> float:
    """How many requests, or conversations, the sources of a run begin; about."""
    return sum(_count(entry, plan) for entry in plan.workload)


def _count(entry: WorkloadEntry, plan: ScenarioPlan) -> float:
    if not isinstance(entry, SourceSettings):
        return math.inf if entry.count is None else float(entry.count)
    by_time = math.inf
    if plan.duration_s is not None and entry.arrivals.process != "closed":
        by_time = entry.arrivals.drawn().rate_per_s * plan.duration_s
    return min(by_time, math.inf if entry.count is None else entry.count)


def shortened(plan: ScenarioPlan, share: float, seed: int) -> ScenarioPlan:
    """A part of a run, with a seed; all of it is the run as it is."""
    plan = plan.changed(seed=seed)
    return plan if share >= 1.0 else counted(plan, share)


def counted(plan: ScenarioPlan, share: float = 1.0) -> ScenarioPlan:
    """So much of the requests of a steady run, all of which come to their end.

    A `duration` would cut off those that are under way, which are few in a whole run and many in a
    short one; so there is none.
    """
    entries = [
        entry.model_copy(update={"count": max(1, math.ceil(share * _count(entry, plan)))})
        for entry in plan.workload
    ]
    return plan.changed(duration_s=None, workload=entries)
