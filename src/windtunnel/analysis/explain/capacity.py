"""Explains why a pool had too little capacity: which replicas were ready or starting, and why."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.analysis.explain.history import (
    BLINDS,
    DISTURBS,
    GONE,
    LEAK,
    MACHINE_FAILED,
    PARTITION,
    PENDING,
    RATE_LIMITS,
    READY,
    SLOWS,
    STARTING,
    UNSCHEDULABLE,
    ControlHistory,
    FaultHistory,
    LoggedEvent,
    ReplicaLife,
)
from windtunnel.analysis.explain.machines import Arrival, arrival_of, arrivals_of
from windtunnel.analysis.explain.missing import (
    Missing,
    QueuedSpan,
    saved_on_s,
    saved_s,
    shares_of,
)
from windtunnel.analysis.explain.slowdown import on_server_s
from windtunnel.analysis.explain.steps import (
    AUTOSCALER,
    FAULT,
    FLEET,
    GANG,
    MACHINE,
    POOL,
    SERVER,
    Cause,
    CauseChain,
    CauseStep,
    count,
    moment,
    took,
)
from windtunnel.core.vocabulary import RUN_BEGINS

if TYPE_CHECKING:
    from windtunnel.analysis.explain.pool_sizes import PoolSizes, Shortage
    from windtunnel.analysis.explain.run import ExplainedRun

MOST_NAMED = 3
"""Limit on the faults, losses and reasons that are listed individually."""
LOOP = 4
"""So many terminations without a ready server between them are a loop."""
SHUTS = ("quota-exhaustion", "provider-outage", "capacity-shortage")
"""Faults in which the provider creates no machines."""
INFINITE = float("inf")


class DelayPart(msgspec.Struct, frozen=True):
    """A part of the time until a replica was ready, and its cause."""

    seconds: float
    layer: str
    cause: Cause
    says: str
    at_s: float
    ids: list[str] = []


class CapacityWait(msgspec.Struct, frozen=True):
    """A wait for servers of a pool."""

    pool: str
    start_s: float
    end_s: float
    server: str
    """The server at which it waited, such as `main 3`; empty if none."""
    since_s: float
    """The time since which requests have been queued in that pool without a break: what caused that
    queue also caused this wait."""
    kept_s: float = 0.0
    """How long the autoscaler keeps servers that it does not need."""
    queued: bool = True
    """Whether requests were queued since then; if not, the pool was only short of servers."""

    @property
    def helps_until_s(self) -> float:
        """The time until which more servers would have helped: a request stays on the server it is
        queued on."""
        return self.start_s if self.server else self.end_s


def kept_s(run: ExplainedRun) -> float:
    """How long autoscalers keep servers that they do not need; ignores windows inside policies."""
    from windtunnel.scaling.build import POLICIES, word_of

    scaling = run.scenario.get("scaling")
    patience = {word_of(one): one.patience for one in POLICIES}
    kept = 0.0
    for _, policy in scaling["policies"] if scaling else ():
        usual = patience[policy["policy"]]
        if policy["stabilization"] is not None:
            kept = max(kept, policy["stabilization"]["down_s"])
        elif usual is not None:
            kept = max(kept, usual.down_s)
    return kept


class Blame(msgspec.Struct, frozen=True):
    """A possible cause of a wait, and the servers that the pool was missing because of it."""

    root: CauseStep
    missing: list[Missing] | None
    """None: it can explain all of the wait."""
    own: list[Missing] = []
    """Those that are the server of the wait itself, and slower."""


class CapacityCause(msgspec.Struct, frozen=True):
    """A cause of a wait, and the seconds of the wait that are due to it."""

    chain: CauseChain
    seconds: float


def why_short(run: ExplainedRun, wait: CapacityWait, about: str) -> CauseChain:
    """Traces a wait to its costliest cause."""
    found = causes_of(run, wait, wait.end_s - wait.start_s)
    chain = max(found, key=lambda one: one.seconds).chain
    return CauseChain(about, chain.steps, chain.root)


def causes_of(
    run: ExplainedRun, wait: CapacityWait, whole_s: float, slow: Shortage | None = None
) -> list[CapacityCause]:
    """Traces a wait to its causes, through pool, autoscaler, gangs and machines.

    Each takes the seconds of `whole_s` that the servers it took away can explain (see `missing`).
    `slow`: the shortage that made a server slower, if the request was not queued.
    """
    steps, blames = _blames(run, wait)
    sizes = run.history.sizes(wait.pool)
    if slow is None:
        most = _most(sizes, wait, blames, on_server_s(run))
    else:
        most = _of_slower(sizes, wait, slow, blames)
    shares = shares_of(whole_s, enumerate(most)) or [(0, whole_s)]
    found = []
    for place, seconds in shares:
        more = []
        if place and seconds < whole_s and slow is None and blames[place].missing is None:
            with_all = f"the servers that were missing explain {took(whole_s - seconds)} of it"
            more.append(CauseStep(wait.start_s, POOL, with_all))
        found.append(CapacityCause(CauseChain("", [*steps, *more], blames[place].root), seconds))
    return found


def _most(
    sizes: PoolSizes, wait: CapacityWait, blames: list[Blame], slot_s: float
) -> list[float | None]:
    """The seconds of a wait that each cause can explain in addition to those before it.

    `slot_s`: how long the first of a queue waits for a slot, about.
    """
    span = QueuedSpan(wait.since_s, wait.start_s, wait.end_s, bound=bool(wait.server))
    found: list[float | None] = []
    missing: list[Missing] = []
    before_s = 0.0
    for blame in blames:
        if blame.missing is None or wait.end_s <= wait.start_s or not wait.queued:
            found.append(None)
            continue
        missing += blame.missing
        saved = saved_s(sizes, missing, span)
        if any(one.start_s <= wait.since_s and wait.start_s < one.end_s for one in missing):
            saved += slot_s
        found.append(max(saved - before_s, saved_on_s(blame.own, span) if blame.own else 0.0))
        before_s = max(before_s, saved)
    return found


def _of_slower(
    sizes: PoolSizes, wait: CapacityWait, slow: Shortage, blames: list[Blame]
) -> list[float | None]:
    """The same where servers were slower: by the server-seconds that were missing."""
    start_s, end_s = slow.start_s, min(slow.end_s, wait.end_s)
    short_s = sizes.missing_s(start_s, end_s) if slow.whole else 0.0
    found: list[float | None] = []
    for blame in blames:
        if blame.missing is None or not short_s:
            found.append(None)
            continue
        missing_s = sum(one.seconds(start_s, end_s) for one in blame.missing)
        found.append((wait.end_s - wait.start_s) * missing_s / short_s)
    return found


def _blames(run: ExplainedRun, wait: CapacityWait) -> tuple[list[CauseStep], list[Blame]]:
    """What is known of a shortage, and its possible causes by precedence."""
    history = run.history
    steps = [ready(history, wait)]
    if wait.queued and wait.since_s < wait.start_s:
        says = f"requests have been queued on its servers since {moment(wait.since_s)}"
        steps.append(CauseStep(wait.since_s, POOL, says))
    lost = _lost(history, wait)
    taken: dict[str, list[ReplicaLife]] = {}  # by the fault that took them
    for life in lost:
        for fault in history.faults_of(life):
            taken.setdefault(fault.id, []).append(life)
    faults = [
        one
        for one in history.faults.values()
        if one.overlaps(wait.since_s, wait.end_s) or one.id in taken
    ]
    steps += [of_fault(one) for one in faults[:MOST_NAMED]]
    steps += [loss(history, life) for life in lost[:MOST_NAMED]]
    blames = [
        blame
        for one in faults
        if (blame := _of_fault(run, one, taken.get(one.id, []), wait)).missing or blame.own
    ]
    coming = _coming(history, wait)
    root = None
    late = []
    if coming:
        more, root = _came(history, coming, wait)
        steps += more
        shut = _shut(faults, coming, root)
        if shut is None and root.layer == AUTOSCALER:
            shut = next((one for one in faults if _blinds(one)), None)
        if shut is not None:
            blames.append(Blame(of_fault(shut), _delayed(coming, wait, shut)))
        struck = [life for life in lost if history.faults_of(life)]
        late = [Blame(root, _late(coming, struck, wait))]
    limited = _limited(history, wait)
    steps += limited
    limits = [Blame(limited[0], _refused_by(history, wait))] if limited else []
    blames += [*limits, *late] if not coming or _outlasts(coming, wait) else [*late, *limits]
    spare = [life for life in lost if not history.faults_of(life)]
    if spare:
        blames.append(Blame(loss(history, spare[0]), _taken(run, spare, wait)))
    elif not late and not limits and (refused := _refused_before(history, wait)):
        steps += refused
        blames.append(Blame(refused[0], None))
    recycled = _recycled(history, wait)
    if recycled is not None:
        steps.append(recycled.root)
        blames.insert(0, recycled)
    return steps, [*blames, Blame(_rest(run, wait, resized=bool(late or limits)), None)]


def _recycled(history: ControlHistory, wait: CapacityWait) -> Blame | None:
    """Terminations of gangs that came again and again before their servers were ready, if these
    kept servers away for the longer part of the time since the queue began."""
    found = [
        one
        for one in history.terminations
        if wait.pool in one.data.get("pools", []) and wait.since_s <= one.time <= wait.end_s
    ]
    if len(found) < LOOP:
        return None
    first, last = found[0], found[-1]
    pool = [life for life in history.lives if life.pool == wait.pool]
    ready = [life.since[READY] for life in pool if READY in life.since]
    if any(first.time < ready_s <= last.time for ready_s in ready):
        return None
    if wait.end_s - first.time <= first.time - wait.since_s:
        return None
    starting = sum(life.state_at(last.time) in (PENDING, STARTING) for life in pool)
    says = f"{first.name} was terminated {len(found)} times from {moment(first.time)} to "
    says += f"{moment(last.time)}, each time before its servers were ready: {first.reason}"
    root = CauseStep(first.time, GANG, says, [first.id, last.id], cause=Cause.COLD_START)
    back_s = min((ready_s for ready_s in ready if ready_s > last.time), default=INFINITE)
    return Blame(root, [Missing(first.time, back_s, max(1, starting))])


def _of_fault(
    run: ExplainedRun, fault: FaultHistory, taken: list[ReplicaLife], wait: CapacityWait
) -> Blame:
    """A fault that took servers of the pool, slowed them, or kept requests from them."""
    missing = _taken(run, taken, wait)
    own: list[Missing] = []
    if fault.kind in DISTURBS:
        until_s = INFINITE if fault.until_s is None or fault.kind in LEAK else fault.until_s
        share = _disturbed(run, fault, wait)
        slower = fault.kind not in PARTITION
        hit = [one for one in fault.subjects if one.rpartition("-")[0] == wait.pool]
        disturbed = Missing(fault.at_s, until_s, share * len(hit), slower)
        missing += [disturbed] if hit else []
        if wait.server.replace(" ", "-") in hit and slower:
            own = [Missing(fault.at_s, until_s, share, slower)]
    return Blame(of_fault(fault), missing, own)


def _disturbed(run: ExplainedRun, fault: FaultHistory, wait: CapacityWait) -> float:
    """The share of its capacity that a server loses in a fault."""
    faults = {one["name"] or str(at): one for at, one in enumerate(run.scenario["faults"])}
    set_: dict[str, Any] = faults.get(fault.name, {})
    if fault.kind in SLOWS:
        return 1.0 - 1.0 / float(set_.get("factor", INFINITE))
    if fault.kind in RATE_LIMITS:
        return float(set_.get("share", 1.0))
    if fault.kind in LEAK:
        blocks = next(
            (
                pool["engine"]["kv_blocks"]
                for pool in run.scenario["serving"]["pools"]
                if pool["name"] == wait.pool
            ),
            None,
        )
        rate = float(set_.get("rate_per_s", INFINITE))
        return min(1.0, rate * fault.overlap_s(0.0, wait.end_s) / blocks) if blocks else 1.0
    return 1.0


def _taken(run: ExplainedRun, lives: list[ReplicaLife], wait: CapacityWait) -> list[Missing]:
    """Lost servers, until they were replaced and had done again what was lost with them."""
    sizes, again_s = run.history.sizes(wait.pool), on_server_s(run)
    replaced = run.history.replaced_s
    found: list[Missing] = []
    for life in lives:
        left_s = life.left_s
        if left_s is not None:
            back_s = min(replaced.get(life.server, INFINITE), sizes.back_s(left_s))
            found.append(Missing(left_s, back_s + again_s))
    return found


def _late(
    coming: list[ReplicaLife], struck: list[ReplicaLife], wait: CapacityWait
) -> list[Missing]:
    """Servers until they were ready, without those that replace servers which a fault took."""
    taken = {life.server for life in struck}
    return [
        Missing(wait.since_s, life.since.get(READY, life.since.get(GONE, INFINITE)))
        for life in coming
        if life.instead_of is None or life.instead_of.server not in taken
    ]


def _delayed(coming: list[ReplicaLife], wait: CapacityWait, fault: FaultHistory) -> list[Missing]:
    """Servers that would have been ready earlier, at most by the time that a fault lasted."""
    found = []
    for life in coming:
        ready_s = min(life.since.get(READY, INFINITE), wait.end_s)
        late_s = fault.overlap_s(wait.since_s, ready_s)
        if late_s:
            found.append(Missing(max(wait.since_s, ready_s - late_s), ready_s))
    return found


def _refused_by(history: ControlHistory, wait: CapacityWait) -> list[Missing]:
    """The servers that limits on the autoscaler refused, from each decision to the next."""
    decisions = [one for one in history.by_pool.get(wait.pool, []) if one.time <= wait.end_s]
    ends = [*(one.time for one in decisions[1:]), INFINITE]
    found: list[Missing] = []
    for one, end_s in zip(decisions, ends, strict=True):
        more = one.data["recommended"] - one.data["target"]
        if more > 0 and end_s > wait.since_s:
            start_s = one.time if found else min(one.time, wait.since_s)
            found.append(Missing(start_s, end_s, more))
    return found


def _blinds(fault: FaultHistory) -> bool:
    return fault.kind in BLINDS or fault.restarts("autoscaler")


def _outlasts(coming: list[ReplicaLife], wait: CapacityWait) -> bool:
    """Whether servers were short for longer after the last of these was ready than before."""
    last_s = max(life.since.get(READY, INFINITE) for life in coming)
    return wait.helps_until_s - last_s > last_s - wait.since_s


def ready(history: ControlHistory, wait: CapacityWait) -> CauseStep:
    """How many servers of a pool were ready when a wait began."""
    states = history.in_states(wait.pool, wait.start_s)
    here = sum(len(lives) for lives in states.values())
    others = []
    for state in ("pending", "starting", "draining"):
        lives = states[state]
        if lives:
            since = moment(min(life.since[state] for life in lives))
            others.append(f"{len(lives)} {state}, the first since {since}")
    rest = f"; {'; '.join(others)}" if others else ""
    says = f"{wait.pool} had {len(states[READY])} of {count(here, 'server')} ready{rest}"
    return CauseStep(wait.start_s, POOL, says)


def of_fault(fault: FaultHistory) -> CauseStep:
    """A fault, what it hit, and until when."""
    says = f"{fault.kind} ({fault.began}) hit {fault.struck(MOST_NAMED)}{fault.until}"
    return CauseStep(fault.at_s, FAULT, says, [fault.id], cause=Cause.FAULT)


def _lost(history: ControlHistory, wait: CapacityWait) -> list[ReplicaLife]:
    """Servers lost before the end of the wait, if the pool was still short of servers when the
    queue began."""
    sizes = history.sizes(wait.pool)
    found = []
    for life in history.lives:
        if life.pool == wait.pool and life.left_s is not None and life.left_s <= wait.end_s:
            short = sizes.short_at(life.left_s)
            if short is not None and wait.since_s < short.end_s and history.was_taken(life):
                found.append(life)
    return found


def loss(history: ControlHistory, life: ReplicaLife) -> CauseStep:
    """How a server was lost, and with which machine."""
    gone_s = life.since[GONE]
    says = f"{life.title} {f'was lost: {life.ended}' if life.was_lost else 'drained'}"
    for machine in life.machines:
        failed = [
            one
            for one in history.of_machine.get(machine, [])
            if one.kind == MACHINE_FAILED and one.time <= gone_s
        ]
        if failed:
            says += f" ({machine} failed at {moment(failed[-1].time)}: {failed[-1].reason})"
    return CauseStep(gone_s, SERVER, says, cause=Cause.LOST_SERVER)


def _coming(history: ControlHistory, wait: CapacityWait) -> list[ReplicaLife]:
    """Replicas that were pending or starting during the wait or the queue before it; the first
    ready one first."""
    found = [
        life
        for life in history.lives
        if life.pool == wait.pool
        and life.asked_s <= wait.end_s
        and life.since.get(READY, INFINITE) > wait.since_s
        and life.since.get(GONE, INFINITE) > wait.since_s
        and life.since.get(READY) != life.asked_s
    ]
    found.sort(key=lambda life: (life.since.get(READY, INFINITE), life.server))
    return found


def _came(
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
    asking = _until_requested(history, first, wait)
    if asking and first.asked_s > wait.helps_until_s:
        return steps, _longest(asking, first, "requested")
    if READY not in first.since:
        held = _held(history, [first], wait)
        return steps, held[-1] if held else _way(first)
    parts = _parts(history, first, wait)
    # A gang cannot be placed before its machine arrives: placing it after the wait is no cause.
    begun = [part for part in parts if part.layer != GANG or part.at_s <= wait.helps_until_s]
    return steps, _longest(parts, first, "ready", begun or parts[:1])


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
        for start_s, end_s, until in (
            (wait.since_s, seen_s, "until the autoscaler's next evaluation"),
            (seen_s, decision.time, "until metrics reached the autoscaler"),
            (decision.time, life.asked_s, "until the autoscaler's order was applied"),
        ):
            took_s = end_s - start_s
            parts.append(DelayPart(took_s, AUTOSCALER, Cause.AUTOSCALER, until, start_s, ids))
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
    says = f"{life.title} was {until} after {took(total_s)}, {part} {longest.says}"
    seconds = {part.says: part.seconds for part in parts}
    return CauseStep(longest.at_s, longest.layer, says, longest.ids, seconds, longest.cause)


def _limited(history: ControlHistory, wait: CapacityWait) -> list[CauseStep]:
    """Limits of the last limited autoscaler decision, during the wait or while the queue before it
    grew."""
    last = history.last_decision(wait.pool, wait.helps_until_s)
    since_s = wait.since_s if last is None else min(wait.since_s, last.time)
    limited = [
        one
        for one in history.by_pool.get(wait.pool, [])
        if since_s <= one.time <= wait.helps_until_s
        and one.data["recommended"] > one.data["target"]
    ]
    return _limits_of(limited[-1]) if limited else []


def _refused_before(history: ControlHistory, wait: CapacityWait) -> list[CauseStep]:
    """The last limit on the autoscaler before the queue, if its servers would still exist."""
    since_s = wait.since_s - wait.kept_s
    before = [
        one for one in history.by_pool.get(wait.pool, []) if since_s <= one.time < wait.since_s
    ]
    for one in reversed(before):
        if one.data["target"] < one.data["current"]:
            break  # it has scaled down since then
        if one.data["recommended"] > one.data["target"]:
            kept = f" Servers are kept for {took(wait.kept_s)}: these would still be there."
            return _limits_of(one, kept)
    return []


def _limits_of(found: LoggedEvent, more: str = "") -> list[CauseStep]:
    return [
        CauseStep(
            found.time,
            AUTOSCALER,
            f"{found.id} wanted {found.data['recommended']} and was limited by {limit['name']} to "
            f"{limit['after']}: {limit['reason']}{more}",
            [found.id],
            cause=Cause.QUOTA,
        )
        for limit in found.data["limits"]
        if limit["after"] < limit["before"]
    ]


def _shut(
    faults: list[FaultHistory], coming: list[ReplicaLife], root: CauseStep | None
) -> FaultHistory | None:
    """The fault during which no machine was available, if the first replica waited for one.

    A shortage that the fleet reported before the fault is not caused by it.
    """
    if root is None or (STARTING in coming[0].since and root.layer != FLEET):
        return None
    reported = root.layer == FLEET and READY not in coming[0].since
    found = [one for one in faults if one.kind in SHUTS and (not reported or one.at_s <= root.time)]
    return found[0] if found else None


def _rest(run: ExplainedRun, wait: CapacityWait, *, resized: bool) -> CauseStep:
    """What no missing server explains: the load, or an autoscaler that wanted no more servers."""
    if run.result["scaling"] is None:
        says = (
            f"{wait.pool} has a fixed number of servers, and requests arrive faster than they end"
        )
        return CauseStep(wait.start_s, POOL, says, cause=Cause.QUEUE)
    if resized:
        says = f"requests arrived faster than all servers wanted for {wait.pool} would end them"
        return CauseStep(wait.start_s, POOL, says, cause=Cause.QUEUE)
    found = run.history.last_decision(wait.pool, wait.helps_until_s)
    if found is None:
        says = "the autoscaler had made no decision yet"
        first = run.history.by_pool.get(wait.pool)
        says += f": its first was at {moment(first[0].time)}" if first else ""
        ids = [first[0].id] if first else []
        return CauseStep(wait.start_s, AUTOSCALER, says, ids, cause=Cause.AUTOSCALER)
    empty = emptied(run.history, found)
    if empty is not found:
        says = f"{empty.id} at {moment(empty.time)} left {wait.pool} without a server "
        says += f"({empty.size}): {empty.reason}"
    else:
        says = f"{found.id} at {moment(found.time)} kept {found.data['target']}: {found.reason}"
    return CauseStep(empty.time, AUTOSCALER, says, [empty.id], cause=Cause.AUTOSCALER)


def emptied(history: ControlHistory, last: LoggedEvent) -> LoggedEvent:
    """The decision since which a pool has no server: those that only keep it so decided nothing.

    The last decision itself if the pool has servers.
    """
    found = last
    for one in reversed(history.by_pool[last.name]):
        if one.time > last.time:
            continue
        if one.data["target"]:
            break
        found = one
    return found
