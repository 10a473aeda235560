"""The demand of a scenario's traffic: its requests as far as they are known before a run."""

import math
from typing import NamedTuple

from windtunnel.core.random import Streams
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.request import Request
from windtunnel.workload.settings.sources import ReplaySettings, SloClass, SourceSettings
from windtunnel.workload.traffic import Traffic

MOST_READ = 20_000
MOST_KEPT = 1_000


class KnownRequest(NamedTuple):
    """A request in tokens: its prompt, the prefix of it that may be cached, and its output."""

    prompt: int
    cached: int
    output: int


class ClassDemand(NamedTuple):
    """The requests of one SLO class, or a representative sample of them."""

    name: str
    slo: SloClass
    asked: list[KnownRequest]
    total: float
    """Requests of a run, or a little fewer."""
    span_s: float
    """The time in which they arrive, or a little longer."""


class TrafficTraits(NamedTuple):
    """Traits that determine what a part of a run says about the whole."""

    steady: bool
    """Whether the beginning is like the rest: the rate does not change, and no file is replayed."""
    open_loop: bool
    """Whether arrivals do not depend on the completion of earlier requests."""


def traits_of(plan: ScenarioPlan) -> TrafficTraits:
    """The traits of a scenario's traffic."""
    steady = open_loop = True
    for entry in plan.workload:
        if isinstance(entry, ReplaySettings):
            steady = False
            open_loop = open_loop and entry.trace.sessions == "open"
        else:
            steady = steady and entry.rate_curve is None
            open_loop = open_loop and entry.session is None and entry.arrivals.process != "closed"
    counts = {entry.count is None for entry in plan.workload}
    # Sources that end at different times change the mix.
    steady = steady and (len(plan.workload) == 1 or counts == {True})
    return TrafficTraits(steady, open_loop)


def demands_of(plan: ScenarioPlan, goals: tuple[str, ...]) -> list[ClassDemand]:
    """The demand of the classes in `goals`; a class of unknown demand is omitted.

    A closed loop sends as fast as the servers answer, so nothing is known about such traffic before
    a run. The same holds for traffic that changes and is too long to read.
    """
    traits = traits_of(plan)
    if not traits.open_loop:
        return []
    horizon_s = math.inf if plan.duration_s is None else plan.duration_s
    priorities = plan.priorities
    traffic = Traffic(
        plan.workload, Streams(plan.seed), horizon_s, priorities, adapter_slots=plan.adapter_slots
    )
    found: dict[str, list[KnownRequest]] = {goal: [] for goal in goals}
    last_s = 0.0
    while traffic.next_s < math.inf and traffic.taken < MOST_READ:
        last_s = traffic.next_s
        request = traffic.take()
        own = found.get(traffic.classes[request.slo])
        if own is not None:
            own.append(_asked(request))
    whole = traffic.next_s == math.inf
    if not whole and not traits.steady:
        return []
    times = 1.0 if whole else _length_s(plan, last_s) / last_s
    demands = []
    for goal, asked in found.items():
        if asked:
            step = -(-len(asked) // MOST_KEPT)
            # Another seed may have a few less.
            total = max(0.0, times * (len(asked) - 4.0 * math.sqrt(len(asked))))
            demands.append(ClassDemand(goal, plan.slos[goal], asked[::step], total, times * last_s))
    return demands


def _length_s(plan: ScenarioPlan, read_s: float) -> float:
    """The length of traffic that was read up to a time."""
    if plan.duration_s is not None:
        return max(plan.duration_s, read_s)
    ends = [
        entry.count / entry.arrivals.drawn().rate_per_s
        for entry in plan.workload
        if isinstance(entry, SourceSettings) and entry.count is not None
    ]
    return max([*ends, read_s])


def _asked(request: Request) -> KnownRequest:
    shared = int(request.prefix.ends[-1]) if request.prefix is not None else 0
    prompt = int(request.prompt_tokens)
    return KnownRequest(prompt, min(shared, prompt), int(request.output_tokens))
