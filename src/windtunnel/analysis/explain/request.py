"""Explains one request: where its time went, and what it waited for, down to a root cause."""

import math
from typing import Any

import msgspec

from windtunnel.analysis.explain.capacity import CapacityWait, loss, of_fault, ready, why_short
from windtunnel.analysis.explain.history import ReplicaLife
from windtunnel.analysis.explain.run import FullRequestRow, RunReader
from windtunnel.analysis.explain.steps import (
    GATEWAY,
    REQUEST,
    SERVER,
    CauseChain,
    CauseStep,
    count,
    moment,
    took,
)
from windtunnel.analysis.phases import DECODE, NAMES, QUEUE, ROOM, UNPLACED, Owner, Phase
from windtunnel.analysis.phases import GATEWAY as AT_GATEWAY
from windtunnel.analysis.saturation import KV_FULL
from windtunnel.analysis.slowest import Slowest

FOR_ROOM = (AT_GATEWAY, UNPLACED, QUEUE, ROOM)
"""Phases in which a request waits for servers to have room."""
REJECTED = "rejected"
WORTH_S = 1e-3
"""Waits that are shorter need no explanation."""


class ExplainedRequest(msgspec.Struct, frozen=True):
    """A request, the phases that it passed through, and why the longest of them were long."""

    request: int
    headline: str
    outcome: str
    ttft: float | None
    e2e: float
    phases: list[Phase]
    chains: list[CauseChain]


def explain_request(run: RunReader, number: int) -> ExplainedRequest:
    row = run.request(number)
    phases = row.phases(run.end_s)
    end_s = run.end_s if row.finished is None else row.finished
    ttft = None if row.first_token is None else row.first_token - row.arrived
    before = [phase for phase in phases if phase.name != DECODE and phase.took_s > WORTH_S]
    longest = [max(before, key=lambda phase: phase.took_s)] if before else []
    longest += [
        phase
        for phase in phases
        if phase.name == DECODE and phase.took_s > max((one.took_s for one in longest), default=0.0)
    ]
    chains = [_chain(run, row, phase) for phase in longest or phases[-1:]]
    if row.outcome == REJECTED:
        chains = chains if longest else [_rejected(run, row, phases[0])]
    return ExplainedRequest(
        number, _headline(row, ttft, end_s), row.outcome, ttft, end_s - row.arrived, phases, chains
    )


def _rejected(run: RunReader, row: FullRequestRow, phase: Phase) -> CauseChain:
    """A request that was refused as it came: nothing was waited for."""
    wait = CapacityWait(_answering(run, row), phase.start_s, phase.end_s, "")
    steps = [*_first_steps(run, row, phase), ready(run.history, wait)]
    return CauseChain("it was rejected at once", steps, _gateway_decision(row, phase))


def _gateway_decision(row: FullRequestRow, phase: Phase) -> CauseStep:
    return CauseStep(phase.end_s, GATEWAY, f"the gateway rejected it: {row.reason}")


def _headline(row: FullRequestRow, ttft: float | None, end_s: float) -> str:
    parts = [f"request {row.id} of {row.source}, {row.outcome.replace('_', ' ')}"]
    if ttft is not None:
        parts.append(f"first token after {took(ttft)}")
    parts.append(f"{took(end_s - row.arrived)} in all")
    if row.reason:
        parts.append(row.reason)
    return ": ".join([parts[0], ", ".join(parts[1:])])


def _chain(run: RunReader, row: FullRequestRow, phase: Phase) -> CauseChain:
    about = f"{took(phase.took_s)} {NAMES[phase.name]}"
    steps = _first_steps(run, row, phase)
    if phase.name not in FOR_ROOM or _has_room(run, row, phase):
        return _at_work(run, row, phase, about, steps)
    pool = row.prompt_server[0] if phase.name != ROOM else row.pool
    wait = CapacityWait(
        pool or _answering(run, row),
        phase.start_s,
        phase.end_s,
        "" if row.pool is None else _title(row.prompt_server),
    )
    chain = why_short(run.history, run.result, wait, about)
    return CauseChain(about, [*steps, *chain.steps], chain.root)


def _at_work(
    run: RunReader, row: FullRequestRow, phase: Phase, about: str, before: list[CauseStep]
) -> CauseChain:
    """Time that went to the request itself: unless its server was slowed, or lost with it."""
    why = Slowest(run.result).why(row, phase, run.series, run.slots)
    steps = [*before, CauseStep(phase.start_s, SERVER, why)]
    root = steps[-1]
    life = _life_of(run, row.server)
    if life is not None:
        if row.outcome == "dropped" and life.since.get("gone") == row.finished:
            root = loss(run.history, life)
            steps.append(root)
        names = {f"{life.pool}-{life.number}", *life.machines}
        struck = [
            fault
            for fault in run.history.faults.values()
            if fault.overlaps(phase.start_s, phase.end_s) and names.intersection(fault.subjects)
        ]
        if struck:
            root = of_fault(struck[0])
    return CauseChain(about, steps, root)


def _has_room(run: RunReader, row: FullRequestRow, phase: Phase) -> bool:
    """Whether its server could have taken it at once, but for what it was doing just then."""
    if phase.name != QUEUE or row.pool is None:
        return False
    came_s = _ready_s(run, row.prompt_server)
    state = _numbers(run, row.prompt_server, run.series.sample_at(phase.start_s))
    if state is None or (came_s is not None and came_s > phase.start_s):
        return False
    return bool(state["running"] < state["slots"] and state["kv"] < KV_FULL)


def _answering(run: RunReader, row: FullRequestRow) -> str:
    """The first pool that a request could have gone to that was sent nowhere."""
    pools = [pool for pool in run.scenario["serving"]["pools"] if pool["role"] != "prefill"]
    ours = [pool for pool in pools if row.model in (None, pool.get("model"))]
    return str((ours or pools)[0]["name"])


def _title(owner: Owner) -> str:
    return f"{owner[0]} {owner[1]}"


def _first_steps(run: RunReader, row: FullRequestRow, phase: Phase) -> list[CauseStep]:
    """What the request itself met: other servers before, the gateway, the line at its server."""
    steps = []
    if row.retries or row.redirects:
        lost = f"{count(row.retries, 'time')} because its server was lost" if row.retries else ""
        sent = f"{count(row.redirects, 'time')} because it drained" if row.redirects else ""
        says = f"it was restarted on another server: {' and '.join(filter(None, (lost, sent)))}"
        steps.append(CauseStep(row.arrived, REQUEST, says))
    if row.preemptions:
        says = f"it was preempted {count(row.preemptions, 'time')}, and computed again"
        steps.append(CauseStep(phase.start_s, SERVER, says))
    sample = run.series.sample_at(phase.start_s)
    whole = run.series.whole
    if phase.name == AT_GATEWAY:
        waiting = int(whole["at_gateway"][sample])
        says = f"{count(waiting, 'request')} queued at the gateway"
        steps.append(CauseStep(phase.start_s, GATEWAY, says))
        if row.outcome == REJECTED:
            steps.append(_gateway_decision(row, phase))
    elif phase.name == UNPLACED:
        steps.append(CauseStep(phase.start_s, SERVER, "no server was ready"))
    elif phase.name in FOR_ROOM:
        steps.append(_at_its_server(run, row, phase, sample))
    return steps


def _at_its_server(run: RunReader, row: FullRequestRow, phase: Phase, sample: int) -> CauseStep:
    owner = row.server if phase.name == ROOM else row.prompt_server
    came_s = _ready_s(run, owner)
    if came_s is not None and came_s > phase.start_s:
        says = (
            f"{_title(owner)}, where it ran in the end, became ready only at "
            f"{moment(came_s)}, {took(came_s - phase.start_s)} later"
        )
        return CauseStep(
            phase.start_s, SERVER, says, [], {"until it was ready": came_s - phase.start_s}
        )
    state = _numbers(run, owner, sample)
    if state is None:
        return CauseStep(phase.start_s, SERVER, f"it was queued on {_title(owner)}")
    says = (
        f"{_title(owner)} had {state['waiting']:,} queued and {state['running']:,} of "
        f"{state['slots']:,} slots taken, {state['kv']:.0%} of its KV blocks in use"
    )
    return CauseStep(phase.start_s, SERVER, says)


def _life_of(run: RunReader, owner: Owner) -> ReplicaLife | None:
    found = (life for life in run.history.lives if (life.pool, life.number) == owner)
    return next(found, None)


def _ready_s(run: RunReader, owner: Owner) -> float | None:
    life = _life_of(run, owner)
    return None if life is None else life.since.get("ready")


def _numbers(run: RunReader, owner: Owner, sample: int) -> dict[str, Any] | None:
    """The state of a server at a sample; None where it did not exist."""
    place = run.series.place_of(owner)
    if place is None:
        return None
    values = {
        name: float(run.series.servers[name][sample, place])
        for name in ("waiting", "running", "kv_used")
    }
    if any(math.isnan(value) for value in values.values()):
        return None
    return {
        "waiting": int(values["waiting"]),
        "running": int(values["running"]),
        "kv": values["kv_used"],
        "slots": run.slots[place],
    }
