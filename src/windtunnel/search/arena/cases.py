"""Cases for tuning and for judging policies: seeds, or halves of a trace."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.search.arena.arena import Case
from windtunnel.twin.results.chance import draws
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.settings.sources import ReplaySettings
from windtunnel.workload.traces.reading import OpenTrace

TUNED_ON: Final = 2
"""Number of tuning seeds; the judging seeds follow them."""
SHORTEST_HALF_S: Final = 60.0

Loader = Callable[[Sequence[str], int | None], ScenarioPlan]
"""Builds a scenario from overrides and a seed."""


def cases_of(load: Loader, seeds: int) -> tuple[list[Case], list[Case]]:
    """The tuning cases and the judging cases.

    Where nothing depends on the seed, as in a replay, the first half of the traffic is for tuning
    and the second for judging.
    """
    plan = load((), None)
    if draws(plan):
        first = plan.seed
        numbers = [first + number for number in range(TUNED_ON + seeds)]
        cases: list[Case] = [partial(_seeded, load, seed) for seed in numbers]
        return cases[:TUNED_ON], cases[TUNED_ON:]
    lasts_s = _lasts_s(plan)
    half_s = lasts_s / 2.0
    if half_s < SHORTEST_HALF_S:
        what = f"the traces last {lasts_s:.0f} s, and half of that is too short to be tuned on"
        raise InputError(what, where="--policies", allowed=f"{2 * SHORTEST_HALF_S:.0f} s or more")
    return [partial(_stretch, load, plan, 0.0, half_s)], [
        partial(_stretch, load, plan, half_s, half_s)
    ]


def _seeded(load: Loader, seed: int, sets: Sequence[str]) -> ScenarioPlan:
    return load(sets, seed)


def _stretch(
    load: Loader, plan: ScenarioPlan, start_s: float, lasts_s: float, sets: Sequence[str]
) -> ScenarioPlan:
    cut = [f"duration={lasts_s!r}s"]
    for number, entry in enumerate(plan.workload):
        if isinstance(entry, ReplaySettings):
            begins_s = entry.trace.start_s + start_s * entry.trace.speedup
            cut.append(f"workload.{number}.trace.start={begins_s!r}s")
    return load([*cut, *sets], None)


def _lasts_s(plan: ScenarioPlan) -> float:
    """Time of the last arrival in the plan's traces, at most the plan's duration."""
    last_s = 0.0
    for entry in plan.workload:
        if isinstance(entry, ReplaySettings):
            for row in OpenTrace(entry, list(plan.slos)).requests:
                last_s = max(last_s, row.arrived_s / entry.trace.speedup)
    return last_s if plan.duration_s is None else min(last_s, plan.duration_s)
