"""Explains one decision: what it was based on, what it changed, and what followed."""

import re

import msgspec

from windtunnel.analysis.explain.history import (
    GONE,
    MET,
    READY,
    SHORT,
    STARTING,
    ControlHistory,
    FaultHistory,
    LoggedEvent,
    ReplicaLife,
)
from windtunnel.analysis.explain.machines import arrival_of, arrivals_of
from windtunnel.analysis.explain.moment import decision_lines
from windtunnel.analysis.explain.run import RunReader
from windtunnel.analysis.explain.steps import (
    FLEET,
    MACHINE,
    POOL,
    SERVER,
    CauseStep,
    count,
    moment,
    took,
)
from windtunnel.core.errors import InputError
from windtunnel.core.vocabulary import SUPERSEDED

DECISION = "the decision"
MOST_LIVES = 24
"""Limit on the replicas that are listed individually."""
NUMBERED = re.compile(r"(.+)-(\d+)")


class ExplainedDecision(msgspec.Struct, frozen=True):
    """A decision and its consequences, in chronological order."""

    id: str
    time: float
    kind: str
    headline: str
    based_on: list[str]
    steps: list[CauseStep]
    behind: list[str]
    """Ids of the decisions that led to it."""


def explain_decision(run: RunReader, name: str) -> ExplainedDecision:
    found = _explained(run, name)
    return msgspec.structs.replace(found, steps=sorted(found.steps, key=lambda one: one.time))


def _explained(run: RunReader, name: str) -> ExplainedDecision:
    history = run.history
    fault = history.faults.get(name)
    if fault is not None:
        return _of_fault(history, fault)
    found = history.decisions.get(name)
    if found is None:
        raise InputError(
            f"there is no decision {name}",
            where="--decision",
            allowed=_ranges(history) or "none in this run",
        )
    if found.kind.startswith("scaling."):
        return _of_scaling(run, found)
    if found.kind.startswith("fleet."):
        return _of_fleet(history, found)
    return _of_gang(history, found)


def _ranges(history: ControlHistory) -> str:
    """The existing ids, such as `scaling-1 to scaling-9, fleet-1 to fleet-3`."""
    last: dict[str, list[int]] = {}
    for name in [*history.decisions, *history.faults]:
        parts = NUMBERED.fullmatch(name)
        if parts is not None:
            last.setdefault(parts[1], []).append(int(parts[2]))
    ends = [(layer, min(numbers), max(numbers)) for layer, numbers in last.items()]
    return ", ".join(
        f"{layer}-{first}" + (f" to {layer}-{final}" if final > first else "")
        for layer, first, final in ends
    )


def _of_scaling(run: RunReader, one: LoggedEvent) -> ExplainedDecision:
    history, data = run.history, one.data
    changes = data["target"] != data["current"]
    steps = []
    applied = history.applied.get(one.id)
    if applied is not None and applied.kind == SUPERSEDED:
        says = "it was superseded by a later decision, and not applied"
        steps.append(CauseStep(applied.time, POOL, says))
    elif applied is not None:
        delay = f"{took(applied.time - one.time)} later " if applied.time > one.time else ""
        says = f"{delay}{one.name} was set to {data['target']} instead of {applied.data['current']}"
        steps.append(CauseStep(applied.time, POOL, says))
    elif changes:
        steps.append(CauseStep(run.end_s, POOL, "the run ended before it was applied"))
    lives = [life for life in history.lives if life.by == one.id and life.instead_of is None]
    steps += [_life(history, life, one.time, DECISION) for life in lives[:MOST_LIVES]]
    if lives:
        steps.append(_sum(lives, one.time, run.end_s))
    gone = _drained(history, one, applied)
    if gone:
        titles = ", ".join(life.title for life in gone[:MOST_LIVES])
        steps.append(CauseStep(gone[0].since["draining"], SERVER, f"drained: {titles}"))
    based = decision_lines(one)
    return ExplainedDecision(one.id, one.time, one.kind, one.headline, based, steps, [])


def _life(history: ControlHistory, life: ReplicaLife, since_s: float, cause: str) -> CauseStep:
    """From a cause to a ready replica, with the machine that it waited for.

    The step has the time at which the replica was requested; durations count from the cause.
    """
    parts = []
    seconds = {}
    if life.asked_s < since_s:
        parts.append(f"requested {took(since_s - life.asked_s)} before {cause}")
        cause = "it"
    elif life.asked_s > since_s:
        parts.append(f"requested {took(life.asked_s - since_s)} after {cause}")
        cause = "it"
    for state, word in ((STARTING, "placed"), (READY, "ready"), (GONE, "gone")):
        if state in life.since:
            seconds[word] = life.since[state] - since_s
            parts.append(f"{word} {took(seconds[word])} after {cause}")
            cause = "it"
    if READY not in life.since and GONE not in life.since:
        parts.append("never ready")
    machines = f" on {', '.join(life.machines)}" if life.machines else ""
    ids = [came.order.id for came in arrivals_of(history, life)]
    says = f"{life.title}{machines}: {', '.join(parts)}"
    return CauseStep(life.asked_s, SERVER, says, ids, seconds)


def _sum(lives: list[ReplicaLife], since_s: float, end_s: float) -> CauseStep:
    ready = [life.since[READY] - since_s for life in lives if READY in life.since]
    missing = len(lives) - len(ready)
    if not ready:
        return CauseStep(end_s, POOL, f"none of {count(len(lives), 'server')} ever served")
    first, last = took(min(ready)), took(max(ready))
    says = f"the first served {first} after {DECISION}, the last {last} after it"
    if missing:
        says += f"; {missing} of {len(lives)} never did"
    return CauseStep(
        since_s + max(ready), POOL, says, [], {"first": min(ready), "last": max(ready)}
    )


def _drained(
    history: ControlHistory, one: LoggedEvent, applied: LoggedEvent | None
) -> list[ReplicaLife]:
    """The servers that began to drain between this decision and the next one applied."""
    if applied is None or applied.data["target"] >= applied.data["current"]:
        return []
    later = [
        other.time
        for other in history.applied.values()
        if other.name == one.name and other.time > applied.time
    ]
    until_s = min(later, default=float("inf"))
    return [
        life
        for life in history.lives
        if life.pool == one.name and applied.time <= life.since.get("draining", -1.0) < until_s
    ][: applied.data["current"] - applied.data["target"]]


def _of_fleet(history: ControlHistory, one: LoggedEvent) -> ExplainedDecision:
    data = one.data
    steps, behind = [], []
    lives = []
    pod = data.get("pod", "")
    if one.kind == SHORT:
        met = [
            other.time
            for other in history.happenings
            if other.kind == MET and other.subject == one.subject and other.time >= one.time
        ]
        says = "not met before the run ended"
        says = f"met, or not needed any more, at {moment(met[0])}" if met else says
        steps.append(CauseStep(met[0] if met else one.time, FLEET, says))
    else:
        came = arrival_of(history, one.name, one.time)
        if came is not None and came.order.id == one.id:
            says = f"{one.name}: {came.in_words() or 'it was there at once'}"
            steps.append(CauseStep(one.time, MACHINE, says, [], came.seconds))
        lives = [
            life
            for life in history.lives
            if one.name in life.machines and life.since.get(STARTING, -1.0) >= one.time
        ]
        steps += [_life(history, life, one.time, DECISION) for life in lives[:MOST_LIVES]]
    first = history.of_pod(pod) if pod else None
    behind = list(
        dict.fromkeys(life.by for life in [*([first] if first else []), *lives] if life.by)
    )
    based = [one.reason]
    if pod:
        based.append(f"For the pod {pod} of gang {data['gang']}, pool {data['pool']}.")
    elif data.get("row"):
        based.append(f"For {data['row']}, a row of machines of cluster {data['cluster']}.")
    word = one.kind.removeprefix("fleet.")
    head = f"{word} {one.name}, decided at {moment(one.time)}"
    if one.kind == SHORT:
        head = f"{one.name} has had too few machines since {moment(one.time)}"
    return ExplainedDecision(one.id, one.time, one.kind, head, based, steps, behind)


def _of_gang(history: ControlHistory, one: LoggedEvent) -> ExplainedDecision:
    pools = one.data.get("pools", [])
    steps = [
        CauseStep(one.time, SERVER, f"{life.title} stopped taking requests")
        for life in history.lives
        if life.pool in pools and life.left_s == one.time
    ]
    steps += [
        _life(history, life, one.time, DECISION)
        for life in history.lives
        if one.name in life.gangs and life.since.get(READY, -1.0) >= one.time >= life.asked_s
    ][:MOST_LIVES]
    based = [one.reason, *([f"It concerns {', '.join(pools)}."] if pools else [])]
    word = one.kind.removeprefix("gang.")
    head = f"{word} of {one.name}, at {moment(one.time)}"
    return ExplainedDecision(one.id, one.time, one.kind, head, based, steps, [])


def _of_fault(history: ControlHistory, fault: FaultHistory) -> ExplainedDecision:
    head = f"{fault.kind} at {moment(fault.at_s)}{fault.until}"
    based = [f"It hit {', '.join(fault.subjects) or 'nothing'}."]
    if not fault.is_timed:
        based.insert(0, f"It began {fault.began}.")
    lost = {
        life.server: life
        for life in history.lives
        if life.is_struck_by(fault) and history.was_taken(life)
    }
    steps = [
        CauseStep(
            life.since[GONE],
            SERVER,
            f"{life.title} {f'was lost: {life.ended}' if life.was_lost else 'drained'}",
        )
        for life in lost.values()
    ]
    steps += [
        _life(history, life, fault.at_s, "the fault")
        for life in history.lives
        if life.instead_of is not None and life.instead_of.server in lost
    ]
    return ExplainedDecision(fault.id, fault.at_s, "fault", head, based, steps, [])
