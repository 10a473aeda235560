"""`plan --find deployment`: the cheapest servers that attain the targets, and why not others."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from windtunnel.routing.custom import is_custom
from windtunnel.search.execution.workers import MeasuredRun, Outcome
from windtunnel.search.plan.candidates.choices import Choices, choices_of
from windtunnel.search.plan.candidates.demand import demands_of
from windtunnel.search.plan.candidates.space import (
    AS_MANY,
    DOES_NOT_FIT,
    OF_ENGINE,
    OVER_BUDGET,
    TOO_SLOW,
    Candidate,
    ServerKind,
    candidates_of,
    kinds_of,
)
from windtunnel.search.plan.goal import TARGETS, Goal, as_data, trial_of
from windtunnel.search.plan.labels import CandidateLabels, percent
from windtunnel.search.plan.runs.race import (
    DEARER,
    CandidateVerdict,
    Entrant,
    Race,
    RaceResult,
    ServerCounts,
    WantedRun,
)
from windtunnel.search.plan.runs.run_lengths import RunLengths, lengths_of, shortened
from windtunnel.search.plan.runs.trials import (
    RUNNERS_UP,
    Rules,
    RunDriver,
    SearchResources,
    Trial,
    head_of,
)
from windtunnel.search.plan.trust import trust_of_plan
from windtunnel.search.point import Origin
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.pools import price_of
from windtunnel.workload.settings.sources import SourceSettings

DOLLARS, ACCELERATORS = "$", "accelerators"
SHOWN_OF_THE_RULED = 4
"""Candidates that get a short run when bounds rule out all, to show which comes closest."""


class DeploymentSpace(NamedTuple):
    """The candidates to choose from, and the goal of the search."""

    base: ScenarioPlan
    goal: Goal
    choices: Choices
    candidates: list[Candidate]
    lengths: RunLengths
    unit: str
    bounded: bool
    """Whether demand is known before a run, so that bounds could be computed."""


def space_of(origin: Origin, base: ScenarioPlan, goal: Goal, seeds: int) -> DeploymentSpace:
    """Builds the space of everything that may be tried."""
    choices = choices_of(base)
    demands = demands_of(base, goal.classes)
    kinds = kinds_of(origin, base, choices, demands, goal)
    unit = _unit(kinds, choices)
    candidates = candidates_of(kinds, base, choices)
    lengths = lengths_of(msgspec.structs.replace(base, scaling=None), seeds)
    return DeploymentSpace(base, goal, choices, candidates, lengths, unit, bool(demands))


def not_varied(space: DeploymentSpace) -> list[str]:
    """Sentences about what was not varied."""
    notes = list(space.choices.not_varied)
    for name in OF_ENGINE:
        if getattr(space.choices, name) == (None,):
            values = sorted({getattr(one.kind.hardware, name) for one in space.candidates})
            if len(values) == 1:
                notes.append(f"{name} other than {values[0]}")
            else:
                shown = " or ".join(map(str, values))
                notes.append(f"{name} other than the default of each candidate ({shown})")
    return notes


def _unit(kinds: Sequence[ServerKind], choices: Choices) -> str:
    """Dollars, or accelerators if no price is known."""
    priced = choices.machine_price is not None or any(kind.prices for kind in kinds)
    return DOLLARS if priced else ACCELERATORS


NOTHING = RaceResult(None, (), None, {}, 0, 0.0, out_of_runs=False, tests=0)
"""The result of a search without candidates."""


class DeploymentSearch:
    """Runs a race over a space on workers."""

    def __init__(self, space: DeploymentSpace, means: SearchResources) -> None:
        self._space = space
        self._max_runs = means.max_runs
        self._labels = CandidateLabels(space.candidates)
        self._so_far: dict[int, float] = {}
        self._driver: RunDriver[WantedRun, Trial] = RunDriver(
            means,
            lambda run: shortened(space.candidates[run.number].plan(), run.share, run.seed),
            self._trial,
            self._doing,
        )

    def _trial(self, run: WantedRun, outcome: Outcome) -> Trial:
        return trial_of(outcome, self._space.goal, _prices(self._space, run.number))

    def _doing(self, run: WantedRun, outcome: Outcome) -> str:
        """The kind of the current runs, and the best candidate so far: the cheapest that attained,
        or the closest."""
        space, seen = self._space, self._so_far
        seen[run.number] = self._trial(run, outcome).worst
        good = [number for number, worst in seen.items() if worst >= space.goal.attained]
        best = max(seen, key=lambda number: (seen[number], -number))
        if good:
            best = min(good, key=lambda number: (_cost(space, space.candidates[number]), number))
        label = f"{self._labels.of(space.candidates[best])} attains {percent(seen[best])}"
        return f"{_stage(run, space)}, best so far: {label}"

    @property
    def outcomes(self) -> Mapping[WantedRun, Outcome]:
        return self._driver.outcomes

    @property
    def spent(self) -> float:
        """Cost of the runs so far, in whole runs."""
        return self._driver.spent

    def run(self) -> dict[str, Any]:
        """Returns the answer as plain data: the contents of `plan.json`."""
        space = self._space
        lanes = lanes_of(space)
        ended = self.race(lanes, self._max_runs) if lanes else self.least_hopeless()
        return answer_of(space, ended, self.outcomes, self._max_runs)

    def race(
        self, lanes: Sequence[ServerCounts], max_runs: float, runners_up: int = RUNNERS_UP
    ) -> RaceResult:
        """Finds the cheapest entrant of these lanes that attains the goal; no run is repeated."""
        goal, lengths = self._space.goal, self._space.lengths
        rules = Rules(
            attained=goal.attained,
            confidence=goal.confidence,
            stages=lengths.stages,
            test=lengths.test,
            max_runs=max_runs,
            doubtful=lengths.doubtful,
            runners_up=runners_up,
        )
        race = Race(lanes, rules)
        self._driver.play(race.moves())
        return race.ended()

    def least_hopeless(self) -> RaceResult:
        """Short runs of the most promising candidates, to show how far off they are when bounds
        rule out all."""
        built = [
            one for one in self._space.candidates if one.kind.plan is not None and not one.over
        ]
        ranked = sorted(built, key=lambda one: (-_reach(one), one.number))
        kinds: set[int] = set()
        chosen: list[Candidate] = []
        for one in ranked:
            if one.kind.number not in kinds and len(chosen) < SHOWN_OF_THE_RULED:
                kinds.add(one.kind.number)
                chosen.append(one)
        stage = self._space.lengths.stages[0]
        wanted = [WantedRun(one.number, stage.share, stage.seeds[0]) for one in chosen]
        trials = self._driver.run(wanted)
        good = [run for run in wanted if not trials[run].failure]
        if not good:
            return NOTHING
        best = max(good, key=lambda run: (trials[run].worst, -run.number))
        seen = {
            run.number: msgspec.structs.replace(
                _ruled(self._space.candidates[run.number]),
                share=run.share,
                runs=1,
                attained=trials[run].worst,
            )
            for run in good
        }
        return msgspec.structs.replace(
            NOTHING,
            closest=best.number,
            verdicts=seen,
            runs=len(wanted),
            whole_runs=stage.share * len(wanted),
        )


def _reach(candidate: Candidate) -> float:
    """How near a ruled-out candidate comes to its bounds."""
    kind = candidate.kind
    if kind.ruled is not None:
        return -kind.ruled.share
    return min(1.0, candidate.total / kind.fewest)


def _stage(run: WantedRun, space: DeploymentSpace) -> str:
    if run.seed in space.lengths.test:
        return "testing the answer"
    return "short runs" if run.share < 1.0 else "whole runs"


def _prices(space: DeploymentSpace, number: int) -> dict[str, float] | None:
    if space.choices.machine_price is not None:
        return None
    candidate = space.candidates[number]
    plan, more = candidate.plan(), _idle_factor(space, candidate)
    if space.unit == ACCELERATORS:
        return {pool.name: more for pool in plan.pools}
    return {pool.name: more * (price_of(pool) or 0.0) for pool in plan.pools}


def _idle_factor(space: DeploymentSpace, candidate: Candidate) -> float:
    """Accelerators paid for per accelerator used: whole machines are paid for."""
    degree = candidate.kind.hardware.tensor_parallel
    used = candidate.total * degree
    return space.choices.budget.accelerators(candidate.total, degree) / used if used else 1.0


def _cost(space: DeploymentSpace, candidate: Candidate) -> float:
    """Cost per hour of its servers; for an autoscaled candidate, of its minimum."""
    kind = candidate.kind
    each = kind.prices if space.unit == DOLLARS else kind.accelerators
    machine = space.choices.machine_price
    if machine is not None:
        each = tuple(count * machine for count in kind.accelerators)
    counts: Sequence[int] = candidate.servers
    if kind.scales and kind.plan is not None and kind.plan.scaling is not None:
        bounds = kind.plan.scaling.bounds
        counts = [bounds[pool.name].min for pool in kind.plan.pools]
    cost = sum(count * price for count, price in zip(counts, each, strict=False))
    return cost * (1.0 if kind.scales else _idle_factor(space, candidate))


def lanes_of(space: DeploymentSpace) -> list[ServerCounts]:
    """Candidates that bounds leave, by kind and, for separate prefill, by the number of prefill
    servers."""
    groups: dict[tuple[int, tuple[int, ...]], list[Candidate]] = {}
    for candidate in space.candidates:
        if candidate.possible:
            key = (candidate.kind.number, candidate.servers[:-1])
            groups.setdefault(key, []).append(candidate)
    lanes = []
    for group in groups.values():
        on_machines = space.choices.machine_price is not None
        own = [
            Entrant(c.number, c.servers, _cost(space, c), c.kind.scales or on_machines)
            for c in group
        ]
        alone = _not_comparable(group)
        lanes += [ServerCounts((one,), rising=False) for one in own[:alone]]
        if own[alone:]:
            lanes.append(ServerCounts(tuple(own[alone:]), rising=True))
    return lanes


def _not_comparable(group: Sequence[Candidate]) -> int:
    """How many of a lane's smallest candidates may do better than one with more servers.

    A custom router may do anything. Where prefix caches help, a single server holds all prefixes,
    while two that share the traffic hold half each: from two on, more servers are never worse.
    """
    plan = group[0].kind.plan
    assert plan is not None
    if is_custom(plan.router.policy):
        return len(group)
    caching = any(pool.engine.prefix_caching for pool in plan.pools)
    shared = any(
        not isinstance(entry, SourceSettings)
        or entry.prefix is not None
        or entry.session is not None
        for entry in plan.workload
    )
    return sum(one.servers[-1] == 1 for one in group) if caching and shared else 0


# The answer as plain data


def answer_of(
    space: DeploymentSpace,
    ended: RaceResult,
    outcomes: Mapping[WantedRun, Outcome],
    max_runs: float,
) -> dict[str, Any]:
    labels = CandidateLabels(space.candidates)
    by_target = _by_target(space.goal, outcomes)
    rows = [
        _row(space, candidate, ended.verdicts.get(candidate.number), labels, by_target)
        for candidate in space.candidates
    ]
    if ended.best is not None:
        _name_equal_costs(rows, rows[ended.best]["cost_per_hour"])
    base, goal, lengths = space.base, space.goal, space.lengths

    def row(number: int | None) -> dict[str, Any] | None:
        return None if number is None else rows[number]

    return {
        **head_of(base, "deployment"),
        "goal": as_data(base, goal),
        "cost_unit": space.unit,
        "best": row(ended.best),
        "runners_up": [rows[number] for number in ended.runners_up],
        "closest": row(ended.closest),
        "searched": {
            "candidates": len(rows),
            "kinds": len({candidate.kind.number for candidate in space.candidates}),
            "ruled_out_by_bounds": sum(not candidate.possible for candidate in space.candidates),
            "simulated": len({run.number for run in outcomes}),
            "runs": ended.runs,
            "whole_runs": ended.whole_runs,
            "max_runs": max_runs,
            "out_of_runs": ended.out_of_runs,
            "tests": ended.tests,
            "stages": [stage.data() for stage in lengths.stages],
            "doubtful": [stage.data() for stage in lengths.doubtful],
            "test_seeds": list(lengths.test),
            "whole_runs_because": lengths.whole_because or None,
            "reasons": dict(sorted(Counter(str(one["reason"]) for one in rows).items())),
        },
        "trust": _trust(space, ended, outcomes),
        "not_tried": _not_tried(space, ended),
        "candidates": rows,
    }


def _name_equal_costs(rows: Sequence[dict[str, Any]], best: float) -> None:
    """Notes candidates that cost no more than the answer: whole machines are paid for."""
    for row in rows:
        if row["reason"] == DEARER and row["cost_per_hour"] <= best:
            row["why"] = "costs as much as the answer"


def _trust(
    space: DeploymentSpace, ended: RaceResult, outcomes: Mapping[WantedRun, Outcome]
) -> dict[str, Any] | None:
    """Trust in the answer or, without one, in the closest candidate; None if nothing was
    simulated."""
    number = ended.closest if ended.best is None else ended.best
    if number is None:
        return None
    runs = ((run.number, outcome) for run, outcome in outcomes.items())
    return trust_of_plan(space.candidates[number].plan(), runs, space.goal, "candidates")


def _by_target(goal: Goal, outcomes: Mapping[WantedRun, Outcome]) -> dict[int, dict[str, float]]:
    """Share of requests within each target, by class, in the longest runs of each candidate."""
    longest: dict[int, float] = {}
    for run in outcomes:
        longest[run.number] = max(longest.get(run.number, 0.0), run.share)
    kept: dict[int, dict[str, list[float]]] = {}
    for run, outcome in outcomes.items():
        if run.share < longest[run.number] or not isinstance(outcome, MeasuredRun):
            continue
        for name in goal.classes:
            for target in TARGETS:
                share = outcome.metrics.get(f"slo.{name}.attained_by.{target}")
                if share is not None:
                    own = kept.setdefault(run.number, {})
                    own.setdefault(f"{name}.{target}", []).append(float(share))
    return {
        number: {target: sum(shares) / len(shares) for target, shares in own.items()}
        for number, own in kept.items()
    }


def _row(
    space: DeploymentSpace,
    candidate: Candidate,
    verdict: CandidateVerdict | None,
    labels: CandidateLabels,
    by_target: Mapping[int, dict[str, float]],
) -> dict[str, Any]:
    kind = candidate.kind
    said = verdict if verdict is not None else _ruled(candidate)
    kept = by_target.get(candidate.number, {})
    return {
        "number": candidate.number,
        "label": labels.of(candidate),
        "kind": labels.kind(kind),
        "shape": kind.frame.shape,
        "model": kind.frame.model,
        "servers": list(candidate.servers),
        **kind.hardware._asdict(),
        "router": kind.frame.router,
        "scaling": kind.frame.scaling,
        "cost_per_hour": round(_cost(space, candidate) if said.cost is None else said.cost, 6),
        "reason": said.reason,
        "why": labels.why(candidate, said, kept),
        "attained": said.attained,
        "low": said.low,
        "high": said.high,
        "confidence": said.confidence,
        "by_target": kept,
        "run_share": said.share,
        "runs": said.runs,
        "instead": said.instead,
        "settings": [[path, value] for path, value in candidate.settings()],
    }


def _ruled(candidate: Candidate) -> CandidateVerdict:
    """The verdict on a candidate that was never run."""
    kind = candidate.kind
    if kind.plan is None:
        return CandidateVerdict(DOES_NOT_FIT, sentence=kind.sentence)
    if kind.ruled is not None:
        return CandidateVerdict(kind.ruled.reason)
    if not candidate.carries:
        return CandidateVerdict(TOO_SLOW)
    return CandidateVerdict(OVER_BUDGET, sentence=candidate.over)


def _not_tried(space: DeploymentSpace, ended: RaceResult) -> list[str]:
    """Notes what was not tried, though a reader might assume it was."""
    notes = not_varied(space)
    if not space.bounded:
        notes.append(
            "bounds on the load, to rule out candidates: the traffic depends on the answers, or is "
            "a long replay"
        )
    if ended.out_of_runs:
        notes.append("candidates for which no runs were left: the answer may not be the cheapest")
    if space.choices.replicas is None and space.choices.together:
        notes.append(f"more than {AS_MANY} times the fewest servers that could carry the load")
    return notes
