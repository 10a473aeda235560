"""The servers of a pool that were requested and not ready: how each came, and what delayed it."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, nextafter
from typing import TYPE_CHECKING

import msgspec

from windtunnel.analysis.explain.history import (
    GONE,
    READY,
    STARTING,
    UNSCHEDULABLE,
    ControlHistory,
    FaultHistory,
    LoggedEvent,
    ReplicaLife,
)
from windtunnel.analysis.explain.machines import Arrival, arrival_of, arrivals_of
from windtunnel.analysis.explain.missing import CapacityWait, Missing
from windtunnel.analysis.explain.steps import (
    AUTOSCALER,
    FLEET,
    GANG,
    MACHINE,
    POOL,
    SERVER,
    Cause,
    CauseStep,
    moment,
    took,
)
from windtunnel.core.vocabulary import RUN_BEGINS

if TYPE_CHECKING:
    from windtunnel.analysis.explain.run import ExplainedRun

MOST_NAMED = 3
"""Limit on the faults, losses and reasons that are listed individually."""
MOST_COMING = 10
"""Limit on the servers whose delays are divided by cause."""
SHUTS = ("quota-exhaustion", "provider-outage", "capacity-shortage")
"""Faults in which the provider creates no machines."""
INFINITE = float("inf")


class DelayPart(msgspec.Struct, frozen=True):
    """A part of the time until a replica was ready, its cause, and what happened when it began."""

    seconds: float
    layer: str
    cause: Cause
    says: str
    at_s: float
    ids: list[str] = []
    begins: str = "it was requested"


def coming_of(run: ExplainedRun, wait: CapacityWait) -> list[ReplicaLife]:
    """Replicas that were pending or starting during the wait or the queue before it; the first
    ready one first.

    If it had requested none of these: those that the autoscaler requested next, if the queue lasted
    until then.
    """
    pool = [life for life in run.history.lives if life.pool == wait.pool]
    found = [
        life
        for life in pool
        if life.asked_s <= wait.end_s
        and life.since.get(READY, INFINITE) > wait.since_s
        and life.since.get(GONE, INFINITE) > wait.since_s
        and life.since.get(READY) != life.asked_s
    ]
    if all(life.instead_of is not None for life in found):
        found += _requested_next(run, pool, wait)
    found.sort(key=lambda life: (life.since.get(READY, INFINITE), life.server))
    return found


def _requested_next(
    run: ExplainedRun, pool: list[ReplicaLife], wait: CapacityWait
) -> list[ReplicaLife]:
    """The servers that the next decision requested, if requests were queued until then."""
    later = [life for life in pool if life.asked_s > wait.end_s and life.instead_of is None]
    decision = run.history.decisions.get(later[0].by) if later else None
    if decision is None:
        return []
    only_model = not run.result.get("models")
    since_s = run.series.backlog_since(wait.pool, decision.data["seen"], only_model=only_model)
    return [life for life in later if life.by == decision.id] if since_s <= wait.start_s else []


class DelayedServers:
    """What faults delayed servers by, and what is left of each delay.

    `look_s`: the autoscaler's interval.
    """

    def __init__(
        self,
        history: ControlHistory,
        coming: list[ReplicaLife],
        wait: CapacityWait,
        look_s: float = 0.0,
    ) -> None:
        self._history = history
        self._coming = coming
        self._wait = wait
        self._look_s = look_s
        self._ready = {life.server: _came_s(life) for life in coming}
        """When each would have been ready without the faults so far."""
        came = [life.since[READY] - life.asked_s for life in coming if READY in life.since]
        self._usual_s = min(came, default=0.0)
        """How long one takes from the request on, for those that never came."""
        self._due: dict[tuple[int, Cause], float] = {}

    def by(self, fault: FaultHistory, *, blinded: bool) -> list[Missing]:
        """The servers that a fault delayed, each for at most the time that the fault lasted.

        `blinded`: whether it made the autoscaler request them late.
        """
        found = []
        for life in self._coming:
            if blinded:
                late_s = self._unseen_s(life, fault)
            else:
                late_s = self._without_machine_s(life, fault)
            ready_s = self._ready[life.server]
            if not late_s:
                continue
            if ready_s < INFINITE:
                self._ready[life.server] = ready_s - late_s
            else:
                asked_s = life.asked_s - late_s if blinded else life.asked_s
                self._ready[life.server] = asked_s + self._usual_s
            found.append(Missing(self._ready[life.server], ready_s))
            due = life.server, Cause.AUTOSCALER if blinded else Cause.MACHINE
            self._due[due] = self._due.get(due, 0.0) + late_s
        return found

    def _unseen_s(self, life: ReplicaLife, fault: FaultHistory) -> float:
        """How much earlier the autoscaler would have requested a server: by the evaluations that it
        missed, one per interval."""
        decision = self._history.decisions.get(life.by)
        if life.instead_of is not None or decision is None or not self._look_s:
            return 0.0  # no autoscaler requested it
        seen_s: float = decision.data["seen"]
        first_s = max(self._wait.since_s, fault.at_s)
        missed = int((seen_s - first_s) / self._look_s)
        after_s = max(0.0, seen_s - fault.felt_until_s)  # evaluations after it requested nothing
        after = max(0, ceil(after_s / self._look_s) - 1)
        return max(0, missed - after) * self._look_s

    def _without_machine_s(self, life: ReplicaLife, fault: FaultHistory) -> float:
        """How long a server waited for the creation of its machine to begin while a fault let none
        be created; a shortage that the fleet reported earlier is not due to the fault."""
        if self._history.short(nextafter(fault.at_s, 0.0), life.pool):
            return 0.0
        came = arrivals_of(self._history, life)[-1:]
        if came:
            return fault.overlap_s(life.asked_s, came[0].begun_s)
        if STARTING in life.since:
            return 0.0  # its machine was already there
        return fault.overlap_s(life.asked_s, life.since.get(GONE, self._wait.end_s))

    def left(self, lives: list[ReplicaLife]) -> list[Missing]:
        """Servers from the beginning of the queue on until they would have been ready."""
        return [Missing(self._wait.since_s, self._ready[life.server]) for life in lives]

    def left_of(self, life: ReplicaLife, cause: Cause, seconds: float) -> float:
        """What faults leave of the part of a delay that has a cause."""
        return max(0.0, seconds - self._due.get((life.server, cause), 0.0))


def usual_start_s(run: ExplainedRun, pool: str) -> float:
    """How long a server of a pool takes from the autoscaler's request until it is ready: the median
    of those that came; if none did, the mean times of the scenario."""
    came = sorted(
        life.since[READY] - life.asked_s
        for life in run.history.lives
        if life.pool == pool and life.by and life.instead_of is None and READY in life.since
    )
    if came:
        return came[len(came) // 2]
    startup, fleet = run.scenario["serving"].get("startup"), None
    if run.scenario.get("infrastructure"):
        fleet = run.scenario["infrastructure"].get("fleet")
    created = [one["provisioning"]["mean_s"] for one in fleet["pools"]] if fleet else []
    load_s: float = startup["load"]["mean_s"] if startup else 0.0
    return load_s + max(created, default=0.0)


def _came_s(life: ReplicaLife) -> float:
    return life.since.get(READY, life.since.get(GONE, INFINITE))


def outlasts(coming: list[ReplicaLife], wait: CapacityWait) -> bool:
    """Whether servers were short for longer after the last of these was ready than before."""
    last_s = max(life.since.get(READY, INFINITE) for life in coming)
    return wait.helps_until_s - last_s > last_s - wait.since_s


def how_came(
    history: ControlHistory, coming: list[ReplicaLife], wait: CapacityWait
) -> tuple[list[CauseStep], CauseStep]:
    """How the first replica became ready, and the longest part of that delay."""
    first = _closest(history, coming, wait)
    steps = []
    decision = history.decisions.get(first.by)
    if decision is not None:
        steps.append(_decided(decision, wait))
    elif first.instead_of is None:
        why = "to keep the size of the pool" if first.reason == RUN_BEGINS else first.reason
        says = f"{first.title} was requested: {why}"
        steps.append(CauseStep(first.asked_s, POOL, says))
    steps.append(_way(first))
    steps += _unplaced(history, first)
    for came in arrivals_of(history, first):
        order = came.order
        says = (
            f"{first.title} waited for the machine {came.machine}: ordered "
            f"{took(max(0.0, order.time - first.asked_s))} later, {came.in_words()}"
        )
        steps.append(CauseStep(order.time, MACHINE, says, [order.id], came.seconds))
    ready_s = first.since.get(READY, INFINITE)
    if wait.server and wait.server != first.title and ready_s < wait.end_s:
        rest_s = wait.end_s - max(ready_s, wait.start_s)
        says = f"for the other {took(rest_s)} it stayed queued on {wait.server}"
        steps.append(CauseStep(ready_s, SERVER, says, [], {"queued there": rest_s}))
    missing = [life for life in coming if STARTING not in life.since]
    if missing:
        steps += [step for step in _held(history, missing, wait) if step not in steps]
    return steps, max(_roots(history, first, wait), key=lambda one: one[1])[0]


def why_late(
    history: ControlHistory,
    lives: list[ReplicaLife],
    wait: CapacityWait,
    delays: DelayedServers,
) -> list[tuple[CauseStep, float]]:
    """The causes that servers were not ready earlier, and the share of each in their delays.

    The first servers to be ready stand for the others.
    """
    lives = [life for life in lives if life.asked_s <= wait.helps_until_s] or lives
    first = _closest(history, lives, wait)
    roots: dict[str, CauseStep] = {}
    seconds: dict[str, float] = {}
    for life in [first, *(one for one in lives[:MOST_COMING] if one is not first)]:
        for root, took_s in _roots(history, life, wait):
            roots.setdefault(root.cause, root)
            left_s = delays.left_of(life, Cause(root.cause), took_s)
            seconds[root.cause] = seconds.get(root.cause, 0.0) + left_s
    total_s = sum(seconds.values())
    if not total_s:
        return [(next(iter(roots.values())), 1.0)]
    found = [(root, seconds[cause] / total_s) for cause, root in roots.items() if seconds[cause]]
    return sorted(found, key=lambda one: -one[1])


def _roots(
    history: ControlHistory, life: ReplicaLife, wait: CapacityWait
) -> list[tuple[CauseStep, float]]:
    """The causes of the delay of one server, and the seconds of each."""
    asking = _until_requested(history, life, wait)
    if asking and life.asked_s > wait.helps_until_s:
        return [(_longest(asking, life, "requested"), sum(part.seconds for part in asking))]
    if READY not in life.since:
        held = _held(history, [life], wait)
        until_s = life.since.get(GONE, history.happenings[-1].time)
        return [(held[-1] if held else _way(life), until_s - life.asked_s)]
    parts = _parts(history, life, wait)
    # A gang cannot be placed before its machine arrives: placing it after the wait is no cause.
    begun = [part for part in parts if part.layer != GANG or part.at_s <= wait.helps_until_s]
    alike: dict[Cause, list[DelayPart]] = {}
    for part in begun or parts[:1]:
        alike.setdefault(part.cause, []).append(part)
    return [
        (_longest(parts, life, "ready", among), sum(part.seconds for part in among))
        for among in alike.values()
    ]


def _closest(history: ControlHistory, coming: list[ReplicaLife], wait: CapacityWait) -> ReplicaLife:
    """The replica that was ready first; if none was, the first one whose machines had arrived."""
    if READY in coming[0].since:
        return coming[0]
    gangs = {gang for life in coming for gang in life.gangs}
    late = {came.order.data.get("gang") for came in _not_arrived(history, gangs, wait)}
    return next((life for life in coming if late.isdisjoint(life.gangs)), coming[0])


def _not_arrived(history: ControlHistory, gangs: set[str], wait: CapacityWait) -> list[Arrival]:
    """Machines ordered for these gangs that had not arrived while they would have helped."""
    until_s = wait.helps_until_s
    return [
        came
        for machine in history.of_machine
        if (came := arrival_of(history, machine, until_s)) is not None
        and _is_for(came.order, gangs, wait.pool)
        and (came.end_s is None or came.end_s > until_s)
    ]


def _unplaced(history: ControlHistory, life: ReplicaLife) -> list[CauseStep]:
    """Why the gangs of a replica were unschedulable before it had a machine."""
    placed_s = life.since.get(STARTING, INFINITE)
    reported = {
        one.name: one
        for one in history.happenings
        if one.kind == UNSCHEDULABLE
        and one.name in life.gangs
        and life.asked_s <= one.time < placed_s
    }
    return [
        CauseStep(
            one.time,
            GANG,
            f"the gang {name} was unschedulable: {one.reason}",
            [one.id],
            cause=Cause.GANG,
        )
        for name, one in list(reported.items())[:MOST_NAMED]
    ]


def _decided(decision: LoggedEvent, wait: CapacityWait) -> CauseStep:
    data = decision.data
    when = decision.time - wait.start_s
    relative = f"{took(-when)} before" if when <= 0 else f"{took(when)} after"
    says = (
        f"{decision.id} {relative}: {data['current']} -> {data['target']}, on what was seen at "
        f"{moment(data['seen'])}. {decision.reason}"
    )
    return CauseStep(decision.time, AUTOSCALER, says, [decision.id])


def _way(life: ReplicaLife) -> CauseStep:
    """How long a replica took to become ready, by state."""
    order = [state for state in ("pending", "starting", "ready") if state in life.since]
    seconds: dict[str, float] = {
        state: life.since[later] - life.since[state] for state, later in pairwise(order)
    }
    parts = ", ".join(f"{state} for {took(value)}" for state, value in seconds.items() if value)
    if READY in life.since:
        says = f"{life.title} was the first: {parts}, ready at {moment(life.since[READY])}"
    elif GONE in life.since:
        says = f"{life.title} was abandoned at {moment(life.since[GONE])}: {life.ended}"
    else:
        says = f"{life.title} never became ready: {order[-1]} until the end"
    cause = Cause.COLD_START if STARTING in life.since else Cause.GANG
    return CauseStep(life.asked_s, SERVER, says, [], seconds, cause)


def _is_for(event: LoggedEvent, gangs: set[str], pool: str) -> bool:
    """Whether a machine or need was for these gangs or, if it names no gang, for their pool."""
    if event.data.get("gang"):
        return event.data["gang"] in gangs
    return event.data.get("pool") == pool


def _held(history: ControlHistory, lives: list[ReplicaLife], wait: CapacityWait) -> list[CauseStep]:
    """Why replicas were not placed: their gang, or a fleet without a machine."""
    steps = [step for life in lives[:1] for step in _unplaced(history, life)]
    gangs = {gang for life in lives for gang in life.gangs}
    for came in _not_arrived(history, gangs, wait):
        says = f"the machine {came.machine} was ordered, and had not arrived"
        ids = [came.order.id]
        steps.append(CauseStep(came.order.time, MACHINE, says, ids, cause=Cause.MACHINE))
    steps += [
        CauseStep(
            one.time,
            FLEET,
            f"{one.name} had too few machines: {one.reason}",
            [one.id],
            cause=Cause.QUOTA,
        )
        for one in history.short(wait.end_s, wait.pool)
        if _is_for(one, gangs, wait.pool)
    ][:MOST_NAMED]
    return steps


def _until_requested(
    history: ControlHistory, life: ReplicaLife, wait: CapacityWait
) -> list[DelayPart]:
    """The delay from the start of the queue until the autoscaler requested a replica, by part."""
    parts = []
    ids = [life.by] if life.by else []
    decision = history.decisions.get(life.by) if life.instead_of is None else None
    if decision is not None:
        seen_s = decision.data["seen"]
        for start_s, end_s, until, begins in (
            (wait.since_s, seen_s, "until the autoscaler's next evaluation", "the queue began"),
            (seen_s, decision.time, "until metrics reached the autoscaler", "the evaluation"),
            (decision.time, life.asked_s, "until the autoscaler's order was applied", decision.id),
        ):
            part = DelayPart(
                end_s - start_s, AUTOSCALER, Cause.AUTOSCALER, until, start_s, ids, begins
            )
            parts.append(part)
    return [part for part in parts if part.seconds > 0.0]


def _parts(history: ControlHistory, life: ReplicaLife, wait: CapacityWait) -> list[DelayPart]:
    """The delay until a replica was ready, by part: from the queue or, without a decision, the
    request on."""
    parts = _until_requested(history, life, wait)
    placed_s = life.since.get(STARTING, life.since[READY])
    at_s = life.asked_s
    for came in arrivals_of(history, life)[-1:]:
        order = came.order
        cycle = "until the fleet's next cycle"
        parts.append(DelayPart(order.time - at_s, FLEET, Cause.MACHINE, cycle, at_s, [order.id]))
        at_s = max(at_s, order.time)
        for part, seconds in came.seconds.items():
            says = f"for the machine {came.machine} {part}"
            parts.append(DelayPart(seconds, MACHINE, Cause.MACHINE, says, at_s, [order.id]))
            at_s += seconds
    parts.append(DelayPart(placed_s - at_s, GANG, Cause.GANG, "to be placed", at_s))
    load_s = life.since[READY] - placed_s
    parts.append(DelayPart(load_s, SERVER, Cause.COLD_START, "to load the model", placed_s))
    return [part for part in parts if part.seconds > 0.0]


def _longest(
    parts: list[DelayPart], life: ReplicaLife, until: str, among: list[DelayPart] | None = None
) -> CauseStep:
    total_s = sum(part.seconds for part in parts)
    longest = max(among or parts, key=lambda part: part.seconds)
    part = f"of which {took(longest.seconds)}" if len(parts) > 1 else "all of it"
    since = f"{took(total_s)} after {parts[0].begins}"
    says = f"{life.title} was {until} {since}, {part} {longest.says}"
    seconds = {part.says: part.seconds for part in parts}
    return CauseStep(longest.at_s, longest.layer, says, longest.ids, seconds, longest.cause)
