"""Answers the question of a plan: a deployment, a load or a knee, as plain data."""

from typing import Any

import msgspec

from windtunnel.core.errors import InputError, nearest
from windtunnel.search.execution.workers import Workers
from windtunnel.search.plan.candidates.choices import SUGGESTED
from windtunnel.search.plan.deployment import DeploymentSearch, space_of
from windtunnel.search.plan.goal import Goal, goal_of
from windtunnel.search.plan.load import find_knee, find_load
from windtunnel.search.plan.runs.trials import OnProgress, SearchResources
from windtunnel.search.plan.several import GoalAsked, JointSearch, parts_of
from windtunnel.search.point import Origin
from windtunnel.twin.scenario.plan import ScenarioPlan

DEPLOYMENT, LOAD, KNEE = FINDS = ("deployment", "load", "knee")
USUAL_SEEDS = 8
FEWEST_SEEDS, MOST_SEEDS = 2, 200
USUAL_RUNS = 400


class Question(msgspec.Struct, frozen=True):
    """The question of a plan. None: as in the scenario's `plan`, or its defaults."""

    find: str = DEPLOYMENT
    attained: float | None = None
    confidence: float | None = None
    slo: tuple[str, ...] | None = None
    seeds: int = USUAL_SEEDS
    max_runs: float = USUAL_RUNS
    seed: int | None = None


def answer(
    origin: Origin, question: Question, workers: Workers, on_progress: OnProgress
) -> dict[str, Any]:
    """Returns the contents of `plan.json`."""
    _refuse(question)
    base = origin.plan(seed=question.seed, option="plan")
    means = SearchResources(workers, question.max_runs, on_progress)
    if question.find == KNEE:
        goal_if_any, confidence = _goal_if_any(base, question), _confidence(base, question)
        return find_knee(base, goal_if_any, confidence, question.seeds, means)
    if question.find == DEPLOYMENT and len(base.models) > 1:
        return _answer_for_several(origin, base, question, means)
    goal = _goal(base, question)
    if question.find == LOAD:
        return find_load(base, goal, question.seeds, means)
    return DeploymentSearch(space_of(origin, base, goal, question.seeds), means).run()


def _answer_for_several(
    origin: Origin, base: ScenarioPlan, question: Question, means: SearchResources
) -> dict[str, Any]:
    planning = base.sections.plan or SUGGESTED
    classes = question.slo or (None if planning.slo is None else tuple(planning.slo))
    asked = GoalAsked(question.attained, _confidence(base, question), classes)
    parts, notes = parts_of(origin, base, asked, question.seeds)
    joint = JointSearch(origin, base, parts, (question.seeds, asked.confidence), means)
    found = joint.run()
    return {**found, "not_tried": notes}


def _refuse(question: Question) -> None:
    """Checks the bounds that the command line also checks, for calls from Python."""
    if question.find not in FINDS:
        hint = nearest(question.find, FINDS)
        raise InputError(f"find is {question.find!r}", allowed=", ".join(FINDS), hint=hint)
    for name, value in (("attained", question.attained), ("confidence", question.confidence)):
        if value is not None and not 0.0 < value < 1.0:
            raise InputError(f"{name} is {value}", allowed="a share above 0 and below 1")
    if question.confidence is not None and question.confidence < 0.6:
        raise InputError(f"confidence is {question.confidence}", allowed="0.6 or more")
    if not FEWEST_SEEDS <= question.seeds <= MOST_SEEDS:
        allowed = f"from {FEWEST_SEEDS} to {MOST_SEEDS}"
        raise InputError(f"seeds is {question.seeds}", allowed=allowed)
    if question.max_runs < 1:
        raise InputError(f"max_runs is {question.max_runs}", allowed="1 or more full-length runs")


def _confidence(base: ScenarioPlan, question: Question) -> float:
    planning = base.sections.plan or SUGGESTED
    return planning.confidence if question.confidence is None else question.confidence


def _goal(base: ScenarioPlan, question: Question) -> Goal:
    planning = base.sections.plan or SUGGESTED
    attained = planning.attained if question.attained is None else question.attained
    classes = question.slo
    if classes is None and planning.slo is not None:
        classes = tuple(planning.slo)
    confidence = _confidence(base, question)
    return goal_of(base, attained, confidence, classes, each_target=planning.each_target)


def _goal_if_any(base: ScenarioPlan, question: Question) -> Goal | None:
    """The goal, or None: a knee can be found without targets."""
    try:
        return _goal(base, question)
    except InputError:
        if question.slo is not None or base.sections.plan is not None:
            raise
        return None
