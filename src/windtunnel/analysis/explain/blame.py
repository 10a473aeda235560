"""Explains why a pool had too little capacity: the possible causes, and the seconds due to each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.analysis.explain.coming import (
    SHUTS,
    DelayedServers,
    coming_of,
    how_came,
    outlasts,
    usual_start_s,
    why_late,
)
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
    UNSEEN,
    ControlHistory,
    FaultHistory,
    LoggedEvent,
    ReplicaLife,
)
from windtunnel.analysis.explain.limits import limits_on, refused_before, refused_in
from windtunnel.analysis.explain.missing import (
    CapacityWait,
    Missing,
    QueuedSpan,
    saved_on_s,
    saved_s,
    share_missing,
    shares_of,
)
from windtunnel.analysis.explain.slowdown import on_server_s
from windtunnel.analysis.explain.steps import (
    AUTOSCALER,
    FAULT,
    GANG,
    POOL,
    SERVER,
    Cause,
    CauseChain,
    CauseStep,
    count,
    moment,
    took,
)

if TYPE_CHECKING:
    from windtunnel.analysis.explain.pool_sizes import PoolSizes, Shortage
    from windtunnel.analysis.explain.run import ExplainedRun
    from windtunnel.analysis.phases import Owner


MOST_NAMED = 3
"""Limit on the faults, losses and reasons that are listed individually."""
LOOP = 4
"""So many terminations without a ready server between them are a loop."""
DONE_WHEN_LOST = 0.5
"""The part of a request that is done when its server is lost, on average."""
INFINITE = float("inf")


class Blame(msgspec.Struct, frozen=True):
    """A possible cause of a wait, and the servers that the pool was missing because of it."""

    root: CauseStep
    missing: list[Missing] | None
    """None: it can explain all of the wait."""
    own: list[Missing] = []
    """Those that are the server of the wait itself, and slower."""
    roots: list[tuple[CauseStep, float]] = []
    """If there are several: each, and its share."""


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
        roots = blames[place].roots or [(blames[place].root, 1.0)]
        for at, part_s in shares_of(seconds, enumerate(share * seconds for _, share in roots)):
            chain = CauseChain("", [*steps, *more], roots[at][0])
            found.append(CapacityCause(chain, part_s))
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
        if before_s >= wait.end_s - wait.start_s:
            break  # nothing is left for the others
        missing += blame.missing
        saved = saved_s(sizes, missing, span)
        saved += slot_s * share_missing(sizes, missing, span)
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
        one for one in history.felt if one.overlaps(wait.since_s, wait.end_s) or one.id in taken
    ]
    steps += [of_fault(one) for one in faults[:MOST_NAMED]]
    steps += [loss(history, life) for life in lost[:MOST_NAMED]]
    blames = [
        blame
        for one in faults
        if (blame := _of_fault(run, one, taken.get(one.id, []), wait)).missing or blame.own
    ]
    coming = coming_of(run, wait)
    late: list[Blame] = []
    if coming:
        struck = {life.server for life in lost if history.faults_of(life)}
        own = [
            one for one in coming if one.instead_of is None or one.instead_of.server not in struck
        ]
        more, _ = how_came(history, own or coming, wait)
        steps += more
        look_s = run.scenario["scaling"]["timing"]["interval_s"] if run.result["scaling"] else 0.0
        delays = DelayedServers(history, coming, wait, look_s)
        for fault in faults:
            blinded = _blinds(fault)
            if (blinded or fault.kind in SHUTS) and (missing := delays.by(fault, blinded=blinded)):
                blames.append(Blame(of_fault(fault), missing))
        roots = why_late(history, own or coming, wait, delays)
        late = [Blame(roots[0][0], delays.left(own), roots=roots)]
    limited = limits_on(history, wait)
    steps += limited
    refused = refused_in(history, wait, usual_start_s(run, wait.pool)) if limited else []
    limits = [Blame(limited[0], refused)] if limited else []
    blames += [*limits, *late] if not coming or outlasts(coming, wait) else [*late, *limits]
    spare = [life for life in lost if not history.faults_of(life)]
    if spare:
        blames.append(Blame(loss(history, spare[0]), _taken(run, spare, wait)))
    elif not late and not limits and (before := refused_before(history, wait)):
        steps += before
        blames.append(Blame(before[0], None))
    recycled = _recycled(history, wait)
    if recycled is not None:
        steps.append(recycled.root)
        blames.insert(0, recycled)
    rest = _rest(run, wait, resized=bool(late or limits))
    if rest.layer == AUTOSCALER:
        rest = next((of_fault(one) for one in faults if _keeps_blind(history, one, wait)), rest)
    return steps, [*blames, Blame(rest, None)]


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
        slower = fault.kind not in PARTITION
        for name in fault.subjects:
            pool, _, number = name.rpartition("-")
            if pool != wait.pool:
                continue
            life = run.history.by_owner.get((pool, int(number)))
            left_s = None if life is None else life.left_s
            until_s = min(fault.felt_until_s, INFINITE if left_s is None else left_s)
            share = disturbed(run, fault, pool, min(until_s, wait.end_s))
            found = Missing(fault.at_s, until_s, share, slower)
            if not slower or not wait.server:
                missing.append(found)
                continue
            before, held = _until_it_came(run, found, (pool, int(number)), wait.start_s)
            missing += before
            if wait.server == f"{pool} {number}":
                own = [*held, msgspec.structs.replace(found, start_s=max(fault.at_s, wait.start_s))]
    return Blame(of_fault(fault), missing, own)


def _until_it_came(
    run: ExplainedRun, slower: Missing, owner: Owner, start_s: float
) -> tuple[list[Missing], list[Missing]]:
    """What a slower server lost until a request was queued on a server: for all servers, and for
    those that were queued on it.

    Routers that see its queue send requests to others, which is why these wait, too. What is left
    on it, more than on others, delays only its own.
    """
    end_s = min(slower.end_s, start_s)
    if end_s <= slower.start_s:
        return [], []
    place = run.series.place_of(owner)
    slots = run.slots[place] if place is not None else 0
    held_s = run.series.surplus(owner, start_s) * on_server_s(run) / slots if slots else 0.0
    held = min(slower.servers, held_s / (end_s - slower.start_s))
    parts = (slower.servers - held, held)
    all_, own = (msgspec.structs.replace(slower, end_s=end_s, servers=part) for part in parts)
    return [all_], [own]


def disturbed(run: ExplainedRun, fault: FaultHistory, pool: str, at_s: float) -> float:
    """The share of its capacity that a server of a pool loses in a fault, by a time."""
    faults = {one["name"] or str(at): one for at, one in enumerate(run.scenario["faults"])}
    set_: dict[str, Any] = faults.get(fault.name, {})
    if fault.kind in SLOWS:
        return 1.0 - 1.0 / float(set_.get("factor", INFINITE))
    if fault.kind in RATE_LIMITS:
        return float(set_.get("share", 1.0))
    if fault.kind in LEAK:
        blocks = run.result["pools"][pool]["kv_blocks"]
        leaks_s = (at_s if fault.until_s is None else min(at_s, fault.until_s)) - fault.at_s
        rate = float(set_.get("rate_per_s", INFINITE))
        return min(1.0, rate * max(0.0, leaks_s) / blocks) if blocks else 1.0
    return 1.0


def _taken(run: ExplainedRun, lives: list[ReplicaLife], wait: CapacityWait) -> list[Missing]:
    """Servers that were taken, until they were replaced, and the work that was lost with them."""
    sizes, again_s = run.history.sizes(wait.pool), DONE_WHEN_LOST * on_server_s(run)
    replaced = run.history.replaced_s
    found: list[Missing] = []
    for life in lives:
        left_s = life.left_s
        if left_s is not None:
            back_s = min(replaced.get(life.server, INFINITE), sizes.back_s(left_s))
            found.append(Missing(left_s, back_s))
        if life.was_lost:
            gone_s = life.since[GONE]
            found.append(Missing(gone_s, gone_s + again_s, redone=True))
    return found


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


def of_fault(fault: FaultHistory) -> CauseStep:
    """A fault, what it hit, and until when."""
    says = f"{fault.kind} ({fault.began}) hit {fault.struck(MOST_NAMED)}{fault.until}"
    return CauseStep(fault.at_s, FAULT, says, [fault.id], cause=Cause.FAULT)


def _blinds(fault: FaultHistory) -> bool:
    """Whether it keeps metrics from the autoscaler, or the autoscaler from deciding."""
    if fault.kind in UNSEEN:
        return True
    return fault.kind in (*BLINDS, "controller-restart") and AUTOSCALER in fault.subjects


def _keeps_blind(history: ControlHistory, fault: FaultHistory, wait: CapacityWait) -> bool:
    """Whether the autoscaler has decided nothing since a fault began that kept it from deciding."""
    last = history.last_decision(wait.pool, wait.helps_until_s)
    decided_s = -INFINITE if last is None else last.time
    return _blinds(fault) and decided_s < fault.at_s <= wait.helps_until_s


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
