"""The state of every layer at one time of a run, and the latest decisions."""

from typing import Any

import msgspec

from windtunnel.analysis.explain.blame import why_short
from windtunnel.analysis.explain.history import LoggedEvent
from windtunnel.analysis.explain.limits import kept_s
from windtunnel.analysis.explain.machines import CONFIGURING, CREATING
from windtunnel.analysis.explain.missing import CapacityWait
from windtunnel.analysis.explain.run import RunReader
from windtunnel.analysis.explain.steps import (
    FAULT,
    FLEET,
    GANG,
    GATEWAY,
    MACHINE,
    POOL,
    SERVER,
    TRAFFIC,
    CauseStep,
    count,
    moment,
    some_of,
    took,
)
from windtunnel.core.errors import InputError
from windtunnel.core.units import format_duration

MOST_NAMED = 6
MACHINE_STATES = ("creating", "idle", "configuring", "configured", "draining", "deleting", "failed")
PODS = ("pending", "starting", "ready", "terminating")


class ExplainedMoment(msgspec.Struct, frozen=True):
    """A time, a sentence for each layer, and the autoscaler's latest decision for each pool."""

    time: float
    layers: list[CauseStep]
    decisions: list[LoggedEvent]


def explain_moment(run: RunReader, at_s: float) -> ExplainedMoment:
    """The state of all layers at a time, from traffic down to machines."""
    if not 0.0 <= at_s <= run.end_s:
        allowed = f"0 s to {format_duration(run.end_s)}, when the run ended"
        what = f"{format_duration(at_s)} is too late" if at_s > 0.0 else "the run begins at 0 s"
        raise InputError(what, where="--at", allowed=allowed)
    layers = [*_load(run, at_s), *_pools(run, at_s)]
    layers += [*_gangs(run, at_s), *_fleet(run, at_s), *_faults(run, at_s)]
    history = run.history
    found = [history.last_decision(pool, at_s) for pool in sorted(history.by_pool)]
    return ExplainedMoment(at_s, layers, [one for one in found if one is not None])


def _load(run: RunReader, at_s: float) -> list[CauseStep]:
    series = run.series
    sample = series.sample_at(at_s)
    whole = {name: float(values[sample]) for name, values in series.whole.items()}
    span_s = max(whole["interval"], 1e-12)
    since = f"in the {took(span_s)} around it"
    came, done = whole["arrived"] / span_s, whole["completed"] / span_s
    steps = [CauseStep(at_s, TRAFFIC, f"{came:.3g}/s arrived and {done:.3g}/s completed, {since}")]
    if run.result["gateway"] is not None:
        waiting = count(int(whole["at_gateway"]), "request")
        steps.append(CauseStep(at_s, GATEWAY, f"{waiting} queued at the gateway"))
    if whole["awaiting_server"]:
        for_one = count(int(whole["awaiting_server"]), "request")
        steps.append(CauseStep(at_s, SERVER, f"{for_one} queued until a server is ready"))
    waiting, running = count(int(whole["waiting"]), "request"), int(whole["running"])
    where = " at servers" if whole["awaiting_server"] else ""
    says = (
        f"{waiting} queued{where}, {running:,} running; on "
        f"average {whole['kv_used']:.0%} of KV blocks in use, busy {whole['busy']:.0%} of the time"
    )
    return [*steps, CauseStep(at_s, SERVER, says)]


def _pools(run: RunReader, at_s: float) -> list[CauseStep]:
    steps = []
    for pool in run.history.pools():
        states = run.history.in_states(pool, at_s)
        parts = [f"{len(lives)} {state}" for state, lives in states.items() if lives]
        slow = [life for state in ("pending", "starting") for life in states[state]]
        if slow:
            first = min(slow, key=lambda life: (life.asked_s, life.server))
            by = f" by {first.by}" if first.by else ""
            parts.append(f"{first.title} requested {took(at_s - first.asked_s)} before{by}")
        ids = list(dict.fromkeys(life.by for life in slow if life.by))
        steps.append(CauseStep(at_s, POOL, f"{pool}: {', '.join(parts) or 'no server'}", ids))
        steps += _short(run, pool, at_s)
    return steps


def _short(run: RunReader, pool: str, at_s: float) -> list[CauseStep]:
    """Why a pool has too few servers, if it does: fewer than it should have, or with a queue."""
    short = run.history.sizes(pool).short_at(at_s)
    only_model = not run.result.get("models")
    queued_s = run.series.backlog_since(pool, at_s, only_model=only_model)
    if short is None and queued_s >= at_s:
        return []
    sample_s = float(run.series.whole["interval"][run.series.sample_at(at_s)])
    since_s = queued_s  # up to a sample too early
    if short is not None and short.start_s <= queued_s + sample_s:
        since_s = short.start_s
    wait = CapacityWait(pool, at_s, at_s, "", at_s, kept_s(run))
    if short is None:
        wait = CapacityWait(pool, at_s, at_s, "", queued_s, kept_s(run))
    elif queued_s + sample_s < short.start_s:  # the queue was there before: what made it?
        start_s = at_s - run.series.queued_for_s(pool, at_s)
        wait = CapacityWait(pool, max(start_s, queued_s), at_s, "", queued_s, kept_s(run))
    root = why_short(run, wait, "").root
    what = f"{pool} has been short of capacity since {moment(since_s)}"
    return [CauseStep(root.time, root.layer, f"{what}: {root.says}", root.ids, cause=root.cause)]


def _gangs(run: RunReader, at_s: float) -> list[CauseStep]:
    gangs = run.result["gangs"]
    steps = []
    for cluster, found in (gangs or {"clusters": {}})["clusters"].items():
        row = _row_at(found["sizes"], at_s)
        counts = [f"{int(row[place])} {name}" for place, name in enumerate(PODS, 1) if row[place]]
        waiting = count(int(row[5]), "gang")
        says = f"pods in {cluster}: {', '.join(counts) or 'none'}; pods of {waiting} pending"
        steps.append(CauseStep(at_s, GANG, says))
    alike: dict[str, list[LoggedEvent]] = {}
    for one in run.history.unplaced(at_s):
        alike.setdefault(one.reason, []).append(one)
    for reason, found in list(alike.items())[:MOST_NAMED]:
        first, more = found[0], len(found) - 1
        whose = some_of([one.name for one in found], "gang") + (" have" if more else " has")
        ids = [one.id for one in found[:MOST_NAMED]]
        since = f"{', the first' * bool(more)} since {moment(first.time)}"
        says = f"{whose} been unschedulable{since}: {reason}"
        steps.append(CauseStep(first.time, GANG, says, ids))
    return steps


def _fleet(run: RunReader, at_s: float) -> list[CauseStep]:
    fleet: dict[str, Any] | None = run.result["fleet"]
    if fleet is None:
        return []
    steps = []
    for kind, found in fleet["pools"].items():
        row = _row_at(found["sizes"], at_s)
        states = enumerate(MACHINE_STATES, 1)
        counts = [f"{int(row[place])} {name}" for place, name in states if row[place]]
        says = f"{kind}: {', '.join(counts) or 'none'}; ${row[-1]:,.2f} an hour"
        steps.append(CauseStep(at_s, MACHINE, says))
    for machine, events in run.history.of_machine.items():
        before = [one for one in events if one.time <= at_s]
        if before and before[-1].kind in (CREATING, CONFIGURING):
            order = next((one for one in reversed(before) if one.id), None)
            ids = [order.id] if order is not None else []
            state = before[-1].kind.removeprefix("machine.")
            says = f"{machine} {state} since {moment(before[-1].time)}"
            steps.append(CauseStep(before[-1].time, MACHINE, says, ids))
    return [*steps, *without_machines(run.history.short(at_s))]


def without_machines(short: list[LoggedEvent]) -> list[CauseStep]:
    """Needs that the fleet could not meet, together if for the same reason."""
    alike: dict[str, list[LoggedEvent]] = {}
    for one in short:
        alike.setdefault(one.reason, []).append(one)
    steps = []
    for reason, found in list(alike.items())[:MOST_NAMED]:
        first, names = found[0], list(dict.fromkeys(one.name for one in found))
        whose = some_of(names, "need") + (" have" if len(names) > 1 else " has")
        since = f"since {moment(first.time)}"
        says = f"{whose} had too few machines {since}: {reason}"
        steps.append(CauseStep(first.time, FLEET, says, [one.id for one in found[:MOST_NAMED]]))
    return steps


def _faults(run: RunReader, at_s: float) -> list[CauseStep]:
    return [
        CauseStep(one.at_s, FAULT, f"{one.kind} of {one.struck(MOST_NAMED)}", [one.id])
        for one in run.history.faults.values()
        if one.overlaps(at_s, at_s)
    ]


def _row_at(rows: list[list[float]], at_s: float) -> list[float]:
    """The levels at a time; zeros before the first."""
    found = [row for row in rows if row[0] <= at_s]
    return found[-1] if found else [at_s] + [0.0] * 8


def decision_lines(one: LoggedEvent) -> list[str]:
    """An autoscaler decision: its reason, the limits between recommendation and target, and its
    metrics."""
    data = one.data
    lines = [one.reason, f"Wanted: {data['recommended']}."]
    for limit in data["limits"]:
        without = (
            "it made no difference in the end"
            if limit["without"] == data["target"]
            else f"without it {limit['without']}"
        )
        change = f"{limit['before']} -> {limit['after']}"
        lines.append(f"{limit['name']}: {change}. {limit['reason']} ({without})")
    if not data["limits"]:
        lines.append("No limit bound it.")
    if data["metrics"]:
        numbers = [f"{name} {_figure(value)}" for name, value in data["metrics"].items()]
        lines.append(f"Seen at {moment(data['seen'])}: {', '.join(numbers)}.")
    return lines


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
