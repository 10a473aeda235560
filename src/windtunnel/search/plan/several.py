"""`plan` for several models: what to deploy for each, within one budget, at least cost.

Each model is planned on its own traffic and pools, one kind of server (accelerator, degree of
tensor parallelism, router) at a time, and only where the joint choice may need it: an unexplored
kind counts as good as its bounds allow. The joint choice is then simulated with all models
together.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from windtunnel.core.errors import InputError, nearest
from windtunnel.search.execution.workers import Outcome
from windtunnel.search.plan.candidates.choices import SUGGESTED, PlanBudget
from windtunnel.search.plan.candidates.space import OVER_BUDGET, Candidate
from windtunnel.search.plan.deployment import (
    DeploymentSearch,
    DeploymentSpace,
    answer_of,
    lanes_of,
    not_varied,
    space_of,
)
from windtunnel.search.plan.goal import Goal, goal_of, trial_of
from windtunnel.search.plan.joint import JointUse, Use, cheapest, cost_of, taken_by, usable
from windtunnel.search.plan.labels import CandidateLabels, percent
from windtunnel.search.plan.runs.confidence import ShareBounds, confidence_of_test
from windtunnel.search.plan.runs.race import (
    BEST,
    DEARER,
    MISSES,
    NOT_SURE,
    RUNNER_UP,
    UNTRIED,
    CandidateVerdict,
    Entrant,
    RaceResult,
    ServerCounts,
    closest_of,
)
from windtunnel.search.plan.runs.run_lengths import lengths_of
from windtunnel.search.plan.runs.trials import RunDriver, SearchResources, Trial, head_of, sure_of
from windtunnel.search.plan.trust import trust_of_plan
from windtunnel.search.point import Origin, Settings
from windtunnel.search.settings import ModelChoices
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.settings.sources import ReplaySettings, models_of

UNLIMITED = PlanBudget({}, None, None)


class GoalAsked(NamedTuple):
    """The goal for every model; None: as in the scenario's `plan`."""

    attained: float | None
    confidence: float
    classes: tuple[str, ...] | None


class ModelPart(NamedTuple):
    """One of the models: its part of the scenario, and its choices."""

    name: str
    model: str | None
    origin: Origin
    """The scenario with only this model's traffic and pools."""
    space: DeploymentSpace
    """Costs here cover the accelerators of servers, without idle ones of machines."""
    pools: tuple[int, ...]
    entries: tuple[int, ...]
    """Its indices into the workload of the file."""


class _Group:
    """Deployments of a model that the joint choice distinguishes only by their number of
    servers."""

    def __init__(self, part: int, router: str, name: str, degree: int) -> None:
        self.part = part
        self.router = router
        self.accelerator = name
        self.degree = degree
        self.lanes: list[ServerCounts] = []
        self.best: int | None = None
        self.explored = False

    @property
    def entrants(self) -> Iterator[Entrant]:
        return (one for lane in self.lanes for one in lane.entrants)

    @property
    def use(self) -> Use | None:
        """The use of its best deployment; for an unexplored group, of the fewest servers that
        bounds allow."""
        left = [one for one in self.entrants if self.best in (None, one.number)]
        if not left or (self.explored and self.best is None):
            return None
        least = min(left, key=lambda one: (sum(one.servers), one.number))
        servers = sum(least.servers)
        price = least.cost / (servers * self.degree)
        return Use(self.accelerator, self.degree, servers, price)

    def drop_up_to(self, servers: int) -> None:
        """Drops deployments of this many servers or fewer, and marks the group as unexplored."""
        kept = (
            ServerCounts(tuple(one for one in lane.entrants if sum(one.servers) > servers), rising)
            for lane, rising in ((lane, lane.rising) for lane in self.lanes)
        )
        self.lanes = [lane for lane in kept if lane.entrants]
        self.best, self.explored = None, False


class JointRun(NamedTuple):
    """A wanted whole run of all models."""

    choice: int
    """Index of the joint choice."""
    seed: int

    @property
    def cost(self) -> float:
        return 1.0


class _BudgetSpent(Exception):
    """No runs are left."""


def parts_of(
    origin: Origin, base: ScenarioPlan, asked: GoalAsked, seeds: int
) -> tuple[list[ModelPart], list[str]]:
    """Each model on its own, and notes on what is not tried."""
    notes = _refuse(base)
    data = origin.data()
    parts = []
    for model, name in zip(base.models, base.model_names, strict=True):
        pools = tuple(n for n, pool in enumerate(base.pools) if pool.model == model)
        entries = tuple(n for n, one in enumerate(base.workload) if model in models_of(one))
        if not entries:
            what = f"no entry of the workload asks for {name}"
            raise InputError(what, where="workload", hint="leave out its pools, or add one")
        own = origin.changed(tuple(_own_settings(data, model, pools, entries)), "plan")
        plan = own.plan(seed=base.seed, option="plan")
        goal = _goal(plan, asked, name, len(base.models))
        space = space_of(own, plan, goal, seeds)
        choices = msgspec.structs.replace(space.choices, budget=UNLIMITED)
        parts.append(ModelPart(name, model, own, space._replace(choices=choices), pools, entries))
    units = {part.space.unit for part in parts}
    if len(units) > 1:
        what = "some models have prices and others none, so that costs cannot be added"
        raise InputError(what, where="plan.prices", hint="give price_per_hour to every pool")
    return parts, [*notes, *dict.fromkeys(note for one in parts for note in not_varied(one.space))]


def _refuse(base: ScenarioPlan) -> list[str]:
    """Rejects what a plan of several models does not support; returns notes on what it ignores."""
    planning = base.sections.plan or SUGGESTED
    notes = []
    if base.on_machines:
        what = "a plan of several models chooses accelerators, and the scenario has its own "
        hint = "plan without them (--set fleet=null --set gangs=null), or one model at a time"
        where = "gangs" if base.sections.fleet is None else "fleet"
        raise InputError(f"{what}machines or gangs", where=where, hint=hint)
    if planning.autoscalers is not None:
        what = "a plan of several models chooses fixed numbers of servers"
        raise InputError(what, where="plan.autoscalers", hint="leave it out")
    if planning.models is not None:
        what = "the scenario serves several models, and these are variants of one"
        hint = f"as in plan.by_model: {{{base.model_names[0]}: {{models: [...]}}}}"
        raise InputError(what, where="plan.models", hint=hint)
    for name in planning.by_model:
        if name not in base.models:
            known = [one for one in base.models if one]
            raise InputError(
                f"no pool serves {name!r}",
                where="plan.by_model",
                allowed=", ".join(known),
                hint=nearest(name, known),
            )
    if base.scaling is not None:
        notes.append("autoscalers: a plan of several models chooses fixed numbers of servers")
    for index, entry in enumerate(base.workload):
        if len({*models_of(entry)}) > 1 and isinstance(entry, ReplaySettings):
            what = "its requests are for several models, which are planned one by one"
            hint = "one entry for each model, with the rows of that model"
            raise InputError(what, where=f"workload[{index}].trace.models", hint=hint)
    return notes


def _own_settings(
    data: dict[str, Any], model: str | None, pools: Sequence[int], entries: Sequence[int]
) -> Iterator[tuple[str, Any]]:
    """The settings that reduce a scenario to one of its models."""

    def without_model(section: Any) -> Any:
        return {key: value for key, value in section.items() if key != "model"}

    own_pools = [without_model(data["serving"]["pools"][n]) for n in pools]
    names = {pool["name"] for pool in own_pools}
    yield "model", model
    yield "workload", [without_model(data["workload"][n]) for n in entries]
    yield "serving.pools", own_pools
    clusters = {pool.get("cluster") for pool in own_pools}
    known = data["serving"].get("clusters") or {}
    if known.keys() - clusters:
        kept = {name: value for name, value in known.items() if name in clusters}
        yield "serving.clusters", kept or None
    yield "scaling", None
    if data.get("faults"):
        others = {pool["name"] for pool in data["serving"]["pools"]} - names
        left = [
            one for one in data["faults"] if (one.get("select") or {}).get("pool") not in others
        ]
        yield "faults", left or None
    if isinstance(data.get("plan"), dict):
        yield "plan", _own_plan(data["plan"], model)


def _own_plan(written: dict[str, Any], model: str | None) -> dict[str, Any]:
    """The `plan` section for one model, without SLO classes, which are chosen separately."""
    own = {key: value for key, value in written.items() if key not in ("by_model", "slo")}
    own |= (written.get("by_model") or {}).get(model) or {}
    return own


def _goal(plan: ScenarioPlan, asked: GoalAsked, name: str, models: int) -> Goal:
    """The goal of one model; the error probability is divided equally among the models."""
    planning: ModelChoices = plan.sections.plan or SUGGESTED
    attained = planning.attained if asked.attained is None else asked.attained
    classes = asked.classes
    if classes is not None:
        used = {entry.slo for entry in plan.workload}
        own = tuple(one for one in classes if one in used or None in used)
        classes = own or None
    confidence = 1.0 - (1.0 - asked.confidence) / models
    try:
        return goal_of(plan, attained, confidence, classes, each_target=planning.each_target)
    except InputError as error:
        what = f"of {name}: {error.what}"
        raise InputError(what, where=error.where, allowed=error.allowed, hint=error.hint) from error


class JointSearch:
    """Explores groups of deployments until the cheapest joint choice consists of explored ones
    only."""

    def __init__(
        self,
        origin: Origin,
        base: ScenarioPlan,
        parts: Sequence[ModelPart],
        question: tuple[int, float],
        means: SearchResources,
    ) -> None:
        """`question` holds the number of test seeds, and the confidence for all models together."""
        seeds, self._confidence = question
        self._origin = origin
        self._base = base
        self._parts = parts
        self._means = means
        planning = base.sections.plan or SUGGESTED
        self._budget = PlanBudget(
            planning.stock_by_name, planning.machine, planning.dollars_per_hour
        )
        self._searches = [
            DeploymentSearch(part.space, means._replace(on_progress=self._progress_of(part.name)))
            for part in parts
        ]
        self._groups = [group for n in range(len(parts)) for group in _groups_of(n, parts[n])]
        self._verdicts: list[dict[int, CandidateVerdict]] = [{} for _ in parts]
        self._runs: list[int] = [0 for _ in parts]
        lengths = lengths_of(msgspec.structs.replace(base, scaling=None), seeds)
        used = [seed for stage in (*lengths.stages, *lengths.doubtful) for seed in stage.seeds]
        first = 1 + max([*used, *lengths.test])
        self._by_chance = bool(lengths.test)
        self._seeds = tuple(range(first, first + seeds)) if self._by_chance else (base.seed,)
        self._tests = 0
        self._plans: list[ScenarioPlan] = []
        self._driver: RunDriver[JointRun, Outcome] = RunDriver(
            means._replace(on_progress=self._progress_of("all models")),
            lambda run: self._plans[run.choice].changed(seed=run.seed),
            lambda _, outcome: outcome,
            lambda *_: "testing the answer",
        )

    @property
    def _spent(self) -> float:
        return self._driver.spent + sum(one.spent for one in self._searches)

    def _progress_of(self, name: str) -> Any:
        on_progress, max_runs = self._means.on_progress, self._means.max_runs
        return lambda doing, _spent, _most: on_progress(f"{name}: {doing}", self._spent, max_runs)

    def run(self) -> dict[str, Any]:
        """Returns the answer as plain data: the contents of `plan.json`."""
        chosen: list[_Group | None] = [None for _ in self._parts]
        sure: list[ShareBounds] = []
        settings: Settings = ()
        out_of_runs = False
        alone: list[_Group | None] = [None for _ in self._parts]
        try:
            while True:
                chosen = self._explored_choice(range(len(self._parts)))
                if None in chosen:
                    break
                settings = self._joined(chosen)
                sure = self._test(settings)
                missed = [
                    n for n, one in enumerate(sure) if one.low < self._parts[n].space.goal.attained
                ]
                if not missed:
                    break
                for n in missed:
                    self._drop(chosen[n], sure[n])
                sure = []
            for n, group in enumerate(chosen):
                alone[n] = group or self._explored_choice([n])[n]
        except _BudgetSpent:
            out_of_runs, sure = True, []
            chosen = [None for _ in self._parts]
        return self._answer(chosen, alone, sure, settings, out_of_runs=out_of_runs)

    # The joint choice

    def _explored_choice(self, served: Sequence[int]) -> list["_Group | None"]:
        """The cheapest choice for the given models; explores its groups first where necessary."""
        while True:
            chosen = self._choice(served)
            unknown = [group for group in chosen if group is not None and not group.explored]
            if not unknown:
                return chosen
            for group in unknown:
                self._explore(group)

    def _choice(self, served: Sequence[int]) -> list["_Group | None"]:
        """The cheapest choice in which all models have the same router."""
        best: list[_Group | None] = [None for _ in self._parts]
        least = (len(self._parts) + 1, 0.0, 0.0)
        for router in dict.fromkeys(group.router for group in self._groups):
            known = [
                [(g, g.use) for g in self._groups if (g.part, g.router) == (n, router) and g.use]
                if n in served
                else []
                for n in range(len(self._parts))
            ]
            options = [[use for _, use in own if use is not None] for own in known]
            picked = cheapest(options, self._budget)
            groups = [
                None if at is None else own[at][0] for own, at in zip(known, picked, strict=True)
            ]
            uses = _uses(groups)
            cost = cost_of(taken_by(uses, self._budget.machine).values())
            score = (groups.count(None), cost, cost_of(uses))
            if score < least:
                best, least = groups, score
        return best

    def _explore(self, group: _Group) -> None:
        """Finds the fewest servers of a group that attain the goal of its model."""
        search, verdicts = self._searches[group.part], self._verdicts[group.part]
        ended = search.race(group.lanes, self._means.max_runs - self._spent, runners_up=0)
        verdicts |= {
            number: said
            for number, said in ended.verdicts.items()
            if number not in verdicts or said.reason != UNTRIED
        }
        self._runs[group.part] += ended.tests
        group.best, group.explored = ended.best, True
        if ended.best is None and ended.out_of_runs:
            raise _BudgetSpent

    def _test(self, settings: Settings) -> list[ShareBounds]:
        """Bounds on each model's attainment when all run together, with seeds not used in
        choosing."""
        plan = self._origin.plan(settings, seed=self._base.seed, option="plan").changed(plan=None)
        plan, goals = _with_classes_apart(plan, self._parts)
        if self._spent + len(self._seeds) > self._means.max_runs:
            raise _BudgetSpent
        self._plans.append(plan)
        wanted = [JointRun(self._tests, seed) for seed in self._seeds]
        seen = self._driver.run(wanted)
        found = []
        for goal in goals:
            confidence = confidence_of_test(goal.confidence, self._tests)
            trials: list[Trial] = [trial_of(seen[run], goal, {}) for run in wanted]
            found.append(sure_of(trials, confidence, chance=self._by_chance))
        self._tests += 1
        return found

    def _drop(self, group: _Group | None, sure: ShareBounds) -> None:
        """Drops a deployment that misses its goal beside the others; more servers take its
        place."""
        assert group is not None
        assert group.best is not None
        part = self._parts[group.part]
        said = self._verdicts[group.part][group.best]
        reason = MISSES if sure.high < part.space.goal.attained else NOT_SURE
        self._verdicts[group.part][group.best] = msgspec.structs.replace(
            said, reason=reason, attained=sure.share, low=sure.low, high=sure.high
        )
        group.drop_up_to(part.space.candidates[group.best].total)

    # The scenario with all of them

    def _joined(self, chosen: Sequence["_Group | None"]) -> Settings:
        """The settings that turn the scenario into the joint deployment."""
        data: Any = self._origin.data()
        pools: list[list[Any]] = [[pool] for pool in data["serving"]["pools"]]
        settings: dict[str, Any] = {}
        same_shape = True
        for part, candidate in self._candidates(chosen):
            own: Any = part.origin.changed(candidate.settings()).data()
            model, listed = own.get("model"), own["serving"]["pools"]
            before = [pools[n][0] for n in part.pools]
            same = [one["name"] for one in listed] == [one["name"] for one in before]
            same_shape = same_shape and same
            for one in listed:
                if model != part.model or any("model" in pool for pool in before):
                    one["model"] = model
                if not same:
                    many = f"-{one['name']}" if len(listed) > 1 else ""
                    one["name"] = f"{before[0]['name']}{many}"
            for n in part.pools:
                pools[n] = []
            for n, one in zip(
                part.pools if same else [part.pools[0]] * len(listed), listed, strict=True
            ):
                pools[n].append(one)
            if model != part.model:
                settings |= {f"workload.{n}.model": model for n in part.entries}
            settings |= {p: value for p, value in candidate.settings() if p == "serving.router"}
        if same_shape:
            for n, old in enumerate(data["serving"]["pools"]):
                settings |= dict(_differences(f"serving.pools.{n}", old, pools[n][0]))
        else:
            settings["serving.pools"] = [one for own in pools for one in own]
        if data.get("scaling") is not None:
            settings["scaling"] = None
        return tuple(settings.items())

    def _candidates(
        self, chosen: Sequence["_Group | None"]
    ) -> Iterator[tuple[ModelPart, Candidate]]:
        for group in chosen:
            if group is not None and group.best is not None:
                part = self._parts[group.part]
                yield part, part.space.candidates[group.best]

    # The answer as plain data

    def _answer(
        self,
        chosen: Sequence["_Group | None"],
        alone: Sequence["_Group | None"],
        sure: Sequence[ShareBounds],
        settings: Settings,
        *,
        out_of_runs: bool,
    ) -> dict[str, Any]:
        answers = [
            self._model_answer(n, chosen[n], sure[n] if sure else None, out_of_runs=out_of_runs)
            for n in range(len(self._parts))
        ]
        taken = taken_by(_uses(chosen), self._budget.machine)
        cost = cost_of(taken.values())
        for n, found in enumerate(answers):
            found["why"] = (
                "" if chosen[n] is not None else self._why_unserved(alone[n], found, taken)
            )
        best = None
        if sure:
            best = {
                "label": "; ".join(f"{one['model']}: {one['best']['label']}" for one in answers),
                "cost_per_hour": cost,
                "attained": min(one.share for one in sure),
                "low": min(one.low for one in sure),
                "high": min(one.high for one in sure),
                "settings": [[path, value] for path, value in settings],
            }
        parts = [found["searched"] for found in answers]
        return {
            **head_of(self._base, "deployment"),
            "goal": {"confidence": self._confidence},
            "cost_unit": self._parts[0].space.unit,
            "best": best,
            "budget": self._budget_data(taken),
            "models": answers,
            "searched": {
                **{
                    name: sum(part[name] for part in parts)
                    for name in ("candidates", "kinds", "ruled_out_by_bounds", "simulated")
                },
                "runs": sum(part["runs"] for part in parts) + len(self._driver.outcomes),
                "whole_runs": self._spent,
                "max_runs": self._means.max_runs,
                "out_of_runs": out_of_runs,
                "tests": self._tests,
                "test_seeds": list(self._seeds),
            },
            "trust": self._trust(answers, sure=bool(sure)),
            "not_tried": [],
        }

    def _budget_data(self, taken: Mapping[str, JointUse]) -> dict[str, Any]:
        names = list(dict.fromkeys([*(name for name in taken if name), *self._budget.stock]))
        rows = []
        for name in names:
            one = taken.get(name)
            rows.append(
                {
                    "accelerator": name,
                    "used": 0 if one is None else one.used,
                    "taken": 0 if one is None else one.taken,
                    "usable": usable(self._budget, name),
                    "stock": self._budget.stock.get(name),
                    "cost_per_hour": 0.0 if one is None else round(one.cost, 6),
                }
            )
        return {
            "accelerators": rows,
            "machine": self._budget.machine,
            "dollars_per_hour": self._budget.dollars_per_hour,
            "cost_per_hour": cost_of(taken.values()),
        }

    def _why_unserved(
        self, group: _Group | None, found: dict[str, Any], taken: Mapping[str, JointUse]
    ) -> str:
        """Why a model is not served: what it would take alone, or that nothing attains its
        targets."""
        if found["searched"]["out_of_runs"]:
            return "not known: the run limit ended the search"
        if group is None or group.best is None:
            return "none of its candidates within the budget attains its targets, even alone"
        row = found["candidates"][group.best]
        left = []
        for name in self._budget.stock:
            most = usable(self._budget, name) or 0
            rest = most - (taken[name].used if name in taken else 0)
            left.append(f"{rest} of {most} {name}")
        dollars = self._budget.dollars_per_hour
        if dollars is not None:
            unspent = dollars - cost_of(taken.values())
            left.append(f"${unspent:,.2f} of ${dollars:,.2f} an hour")
        alone = f"alone it would take {row['label']}"
        return f"{alone}; the other models leave {' and '.join(left)}"

    def _model_answer(
        self, number: int, group: _Group | None, sure: ShareBounds | None, *, out_of_runs: bool
    ) -> dict[str, Any]:
        part, search = self._parts[number], self._searches[number]
        verdicts = dict(self._verdicts[number])
        own = [one for one in self._groups if one.part == number]
        best = None if group is None else group.best
        labels = CandidateLabels(part.space.candidates)
        for one in own:
            for entrant in one.entrants:
                said = verdicts.get(entrant.number)
                if said is None or (not one.explored and said.reason == DEARER):
                    reason = UNTRIED if out_of_runs else DEARER
                    why = (
                        ""
                        if out_of_runs
                        else "no joint deployment with it does as well at lower cost"
                    )
                    verdicts[entrant.number] = CandidateVerdict(
                        reason, cost=entrant.cost, sentence=why
                    )
                elif said.reason == DEARER and one.best is not None:
                    than = labels.of(part.space.candidates[one.best])
                    verdicts[entrant.number] = msgspec.structs.replace(
                        said, sentence=f"costs no less than {than}"
                    )
                elif said.reason == BEST and best is None:
                    why = f"attains {percent(said.attained or 0.0)}, and does not fit beside the "
                    verdicts[entrant.number] = msgspec.structs.replace(
                        said, reason=OVER_BUDGET, sentence=f"{why}other models"
                    )
                elif said.reason == BEST and entrant.number != best:
                    verdicts[entrant.number] = msgspec.structs.replace(said, reason=RUNNER_UP)
        if best is not None and sure is not None:
            verdicts[best] = msgspec.structs.replace(
                verdicts[best],
                attained=sure.share,
                low=sure.low,
                high=sure.high,
                runs=len(self._seeds),
            )
        others = [n for n, said in verdicts.items() if said.reason == RUNNER_UP]
        others.sort(key=lambda n: (verdicts[n].cost or 0.0, n))
        ended = RaceResult(
            best=best,
            runners_up=tuple(others),
            closest=closest_of(verdicts) if best is None else None,
            verdicts=dict(sorted(verdicts.items())),
            runs=len(search.outcomes),
            whole_runs=search.spent,
            out_of_runs=out_of_runs,
            tests=self._runs[number],
        )
        if not own:
            ended = search.least_hopeless()
        found = answer_of(part.space, ended, search.outcomes, self._means.max_runs)
        return {"model": part.name, **found}

    def _trust(self, answers: Sequence[dict[str, Any]], *, sure: bool) -> dict[str, Any] | None:
        """Trust in the joint answer or, without one, in the closest candidate of a model that has
        none."""
        if not sure:
            return next((one["trust"] for one in answers if one["best"] is None), None)
        runs = [
            ((number, run.number), outcome)
            for number, search in enumerate(self._searches)
            for run, outcome in search.outcomes.items()
        ]
        return trust_of_plan(self._plans[-1], runs, None, "candidates")


def _uses(chosen: Sequence[_Group | None]) -> list[Use]:
    return [group.use for group in chosen if group is not None and group.use is not None]


def _groups_of(number: int, part: ModelPart) -> list[_Group]:
    """Lanes that bounds leave, grouped by what the joint choice distinguishes."""
    groups: dict[tuple[str, str, int], _Group] = {}
    for lane in lanes_of(part.space):
        kind = part.space.candidates[lane.entrants[0].number].kind
        router = json.dumps([value for path, value in kind.settings if path == "serving.router"])
        key = (router, kind.hardware.accelerator or "", kind.hardware.tensor_parallel)
        groups.setdefault(key, _Group(number, *key)).lanes.append(lane)
    return list(groups.values())


def _differences(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any]]:
    """Values of `new` that differ from `old` or are missing there."""
    for key, value in new.items():
        was = old.get(key)
        if isinstance(value, dict) and isinstance(was, dict):
            yield from _differences(f"{path}.{key}", was, value)
        elif value != was:
            yield f"{path}.{key}", value


def _with_classes_apart(
    plan: ScenarioPlan, parts: Sequence[ModelPart]
) -> tuple[ScenarioPlan, list[Goal]]:
    """Gives each model its own copy of a shared SLO class, so that each can be judged."""
    users = [{plan.workload[n].slo for n in part.entries} for part in parts]
    slos, workload = dict(plan.slos), list(plan.workload)
    goals = []
    for number, part in enumerate(parts):
        others = {name for n, own in enumerate(users) if n != number for name in own}
        names = {
            name: f"{name}@{number}" for name in users[number] & others if isinstance(name, str)
        }
        slos |= {new: plan.slos[name] for name, new in names.items()}
        for n in part.entries:
            new = names.get(workload[n].slo or "")
            if new is not None:
                workload[n] = workload[n].model_copy(update={"slo": new})
        goal = part.space.goal
        goals.append(
            msgspec.structs.replace(
                goal,
                classes=tuple(names.get(name, name) for name in goal.classes),
                targets=tuple((names.get(name, name), target) for name, target in goal.targets),
            )
        )
    return plan.changed(slo=slos, workload=workload), goals
