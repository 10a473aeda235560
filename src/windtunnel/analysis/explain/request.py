"""Explains one request: its time interval by interval, and the root cause of each."""

from math import nextafter

import msgspec

from windtunnel.analysis.explain.account import PAUSED, TimeInterval, intervals_of, server_of
from windtunnel.analysis.explain.blame import causes_of, disturbed, loss, of_fault, ready
from windtunnel.analysis.explain.history import LEAK, RATE_LIMITS, SLOWS, FaultHistory
from windtunnel.analysis.explain.limits import kept_s
from windtunnel.analysis.explain.missing import LEAST_SHARE, CapacityWait
from windtunnel.analysis.explain.run import ExplainedRun, FullRequestRow, RunReader
from windtunnel.analysis.explain.sentences import (
    ahead_of,
    had_room,
    is_long_prompt,
    named,
    sentence,
    stalled,
    state_of,
)
from windtunnel.analysis.explain.slowdown import Slowdown, slowdown
from windtunnel.analysis.explain.steps import (
    AUTOSCALER,
    FAULT,
    GATEWAY,
    POOL,
    REQUEST,
    SERVER,
    Cause,
    CauseChain,
    CauseStep,
    count,
    moment,
    took,
)
from windtunnel.analysis.phases import (
    DECODE,
    ENCODE,
    PREFILL,
    QUEUE,
    RETRY,
    ROOM,
    START,
    TRANSFER,
    UNPLACED,
    LostTryRow,
    Owner,
    Phase,
    RequestRow,
)
from windtunnel.analysis.phases import GATEWAY as AT_GATEWAY
from windtunnel.analysis.slowest import FIRST_TOKEN, LOST, NOT_THERE
from windtunnel.core.vocabulary import (
    DRAINED,
    GATEWAY_AWAY,
    GATEWAY_LOST,
    RATE_LIMITED,
    RESIZED,
    SERVER_LOST,
)

FOR_ROOM = (AT_GATEWAY, UNPLACED, QUEUE, ROOM)
"""Phases in which a request waits for capacity."""
OWN_WORK = {
    ENCODE: Cause.ENCODING,
    QUEUE: Cause.QUEUE,
    PREFILL: Cause.PREFILL,
    TRANSFER: Cause.TRANSFER,
    START: Cause.DECODE,
    DECODE: Cause.DECODE,
    PAUSED: Cause.PREEMPTION,
}
SLOWABLE = (Cause.QUEUE, Cause.PREFILL, Cause.DECODE, Cause.PREEMPTION)
"""Causes of time on a server that grow with its load."""
ABOUT = {
    AT_GATEWAY: "it was queued at the gateway for {}",
    ENCODE: "encoding its media took {}",
    RETRY: "it lost {} on servers that did not finish it",
    UNPLACED: "it waited {} for a ready server",
    QUEUE: "it was queued for {}",
    PREFILL: "prefill took {}",
    ROOM: "it waited {} for KV blocks on the decode server",
    TRANSFER: "its KV transfer took {}",
    START: "its first decode step took {}",
    DECODE: "decode took {}",
    PAUSED: "it was preempted for {}",
}
"""What is explained of an interval, with its duration."""
REJECTED, DROPPED = "rejected", "dropped"
WORTH_S = 1e-3
"""Shorter waits need no explanation."""
WORTH_SHARE = 0.1
"""Causes of a smaller share of a request's time are ranked, but their steps are not shown."""
MOST_CHAINS = 3
LOOP = 4
"""So many drained servers of one request have one cause."""
MOST_TRIES = 3
"""Limit on the attempts that a chain lists individually."""


class RankedCause(msgspec.Struct, frozen=True):
    """A root cause, and the seconds of a request that are due to it."""

    cause: str
    seconds: float
    excess: float
    """Its cost; for prefill and decode, the seconds beyond those of the mean request."""
    says: str
    layer: str
    ids: list[str]


class Accounted(msgspec.Struct, frozen=True):
    """An interval of a request's time, or a part of it, and its cause."""

    interval: TimeInterval
    chain: CauseChain
    seconds: float
    """The seconds of the interval that are due to it."""


class ExplainedRequest(msgspec.Struct, frozen=True):
    """A request, its phases, and the causes of what took longest."""

    request: int
    headline: str
    outcome: str
    ttft: float | None
    e2e: float
    phases: list[Phase]
    tries: list[LostTryRow]
    """The attempts before the last one: of many, the first ones and the last."""
    unkept_tries: int
    """How many before the last of these are only counted."""
    causes: list[RankedCause]
    """By cost; their seconds add up to the whole time."""
    chains: list[CauseChain]


class SlowRequest(msgspec.Struct, frozen=True):
    """A slow request: its time by phase, and why; `still` says that it never got there."""

    request: RequestRow
    took_s: float
    still: str
    phases: list[Phase]
    why: str
    causes: list[RankedCause]


def explain_request(run: RunReader, number: int) -> ExplainedRequest:
    return explain_row(run, run.request(number))


def explain_row(run: ExplainedRun, row: RequestRow) -> ExplainedRequest:
    phases = row.phases(run.end_s)
    end_s = run.end_s if row.finished is None else row.finished
    ttft = None if row.first_token is None else row.first_token - row.arrived
    accounts = account(run, row)
    causes = ranked(run, accounts)
    least_s = WORTH_SHARE * (end_s - row.arrived)
    worth = [cause for cause in causes if cause.excess > least_s] or causes[:1]
    chains = [longest_of(accounts, cause).chain for cause in worth[:MOST_CHAINS]]
    if row.outcome in LOST and sum(cause.seconds for cause in causes) <= WORTH_S:
        chains = [_rejected(run, row, accounts[0].interval)]
        root = chains[0].root
        causes = [RankedCause(root.cause, 0.0, 0.0, root.says, root.layer, root.ids)]
    return ExplainedRequest(
        row.id,
        _headline(row, ttft, end_s),
        row.outcome,
        ttft,
        end_s - row.arrived,
        phases,
        row.lost_tries or [],
        row.unkept_tries,
        causes,
        chains,
    )


def slow_requests(
    run: ExplainedRun, rows: list[tuple[float, RequestRow]], upto: str
) -> list[SlowRequest]:
    """Rows that `Slowest` kept up to `first_token` or `finished`, each with its causes."""
    return [_slow(run, row, took_s, upto) for took_s, row in rows]


def _slow(run: ExplainedRun, row: RequestRow, took_s: float, upto: str) -> SlowRequest:
    phases, accounts = row.phases(run.end_s), account(run, row)
    if upto == FIRST_TOKEN and row.first_token is not None:
        phases = [phase for phase in phases if phase.name != DECODE] or phases
        first_s = row.first_token
        accounts = [one for one in accounts if one.interval.end_s <= first_s] or accounts
    there = row.outcome == "completed" or (upto == FIRST_TOKEN and row.first_token is not None)
    causes = ranked(run, accounts)
    longest = longest_of(accounts, causes[0])
    why = sentence(run, row, longest.interval)
    if causes[0].says not in (why, sentence(run, row, longest.interval, longest.seconds)):
        why += f"; root cause: {causes[0].says}"
    if row.preemptions and longest.interval.name != PAUSED:
        times = "once" if row.preemptions == 1 else f"{row.preemptions} times"
        why += f"; preempted {times}, and computed again"
    still = "" if there else NOT_THERE[row.outcome]
    return SlowRequest(row, took_s, still, phases, why, causes)


def account(run: ExplainedRun, row: RequestRow) -> list[Accounted]:
    """Every interval of a request's time with its causes, in order and without gaps."""
    found = []
    for interval in intervals_of(row, run.end_s):
        wait = _wait_of(run, row, interval)
        if wait is not None:
            found += _waiting(run, row, interval, wait)
            continue
        chain = _chain(run, row, interval)
        slow = _slowed(run, row, interval, chain)
        if slow is None and chain.root.layer == FAULT:
            found += _struck_in_part(run, row, interval, chain)
            continue
        if slow is None:
            found += _worked(run, row, interval, chain)
            continue
        own_s = interval.took_s - slow.seconds
        own = _at_work(run, row, interval, ABOUT[interval.name].format(took(own_s)), [], own_s)
        found.append(Accounted(interval, own, own_s))
        found += _slow_causes(run, row, interval, slow)
    return found


def ranked(run: ExplainedRun, accounts: list[Accounted]) -> list[RankedCause]:
    """The causes by cost, the highest first; then those of negligible cost."""
    usual_s = _usual(run)
    roots: dict[tuple[str, ...], CauseStep] = {}
    seconds: dict[tuple[str, ...], float] = {}
    for one in sorted(accounts, key=lambda one: -one.seconds):
        key = (one.chain.root.cause, *one.chain.root.ids)
        roots.setdefault(key, one.chain.root)
        seconds[key] = seconds.get(key, 0.0) + one.seconds
    found = []
    for key, root in roots.items():
        excess_s = max(0.0, seconds[key] - usual_s.get(root.cause, 0.0))
        found.append(
            RankedCause(root.cause, seconds[key], excess_s, root.says, root.layer, root.ids)
        )
    least_s = WORTH_SHARE * sum(seconds.values())

    def cost(cause: RankedCause) -> tuple[float, float]:
        return -cause.excess if cause.excess > least_s else 0.0, -cause.seconds

    return sorted(found, key=cost)


def _usual(run: ExplainedRun) -> dict[str, float]:
    """Seconds of prefill and decode of a mean request."""
    latency = run.result["latency"]
    if latency["e2e"]["mean"] is None:
        return {}
    first_s, end_s, queued_s = (latency[name]["mean"] for name in ("ttft", "e2e", "queue"))
    return {Cause.DECODE: end_s - first_s, Cause.PREFILL: first_s - queued_s}


def longest_of(accounts: list[Accounted], cause: RankedCause) -> Accounted:
    """The interval of which most is due to a cause."""
    found = (one for one in accounts if one.chain.root.says == cause.says)
    return max(found, key=lambda one: one.seconds)


def end_of(run: ExplainedRun, row: RequestRow) -> CauseStep:
    """What ended a request that was lost: its last try, or the reason it was turned away for."""
    accounts = account(run, row)
    tries = [one for one in accounts if one.interval.name == RETRY]
    if tries and row.reason in (SERVER_LOST, GATEWAY_LOST):
        return tries[-1].chain.root
    if row.reason == RATE_LIMITED and row.lost_tries:
        return _refused(run, row.lost_tries[-1], "").root
    root = _turned_away(run, row, accounts[-1].interval)
    worst = ranked(run, accounts)[0]
    if root.layer in (FAULT, SERVER) or worst.excess <= WORTH_S or worst.layer == root.layer:
        return root
    says = f"{root.says}; it had waited {took(worst.excess)}: {worst.says}"
    return CauseStep(root.time, worst.layer, says, worst.ids, cause=worst.cause)


def _rejected(run: ExplainedRun, row: RequestRow, phase: TimeInterval) -> CauseChain:
    """Explains a request that was rejected on arrival, without any wait."""
    wait = CapacityWait(_answering(run, row), phase.start_s, phase.end_s, "", phase.start_s)
    steps = [*_first_steps(run, row, phase), ready(run.history, wait)]
    return CauseChain(f"it was {row.outcome} at once", steps, _turned_away(run, row, phase))


def _turned_away(run: ExplainedRun, row: RequestRow, phase: Phase) -> CauseStep:
    """Why a request was rejected or dropped: by the gateway, or by a server that cannot serve
    it."""
    if row.reason in (GATEWAY_AWAY, GATEWAY_LOST):
        return _restart(run, phase.end_s)
    if row.outcome == DROPPED:
        return CauseStep(phase.end_s, SERVER, f"dropped: {row.reason}", cause=Cause.ADMISSION)
    says = f"the gateway rejected it: {row.reason}"
    return CauseStep(phase.end_s, GATEWAY, says, cause=Cause.ADMISSION)


def _restart(run: ExplainedRun, at_s: float) -> CauseStep:
    """The fault that restarted the gateway or kept it away; a generic step if the log does not have
    it."""
    for fault in run.history.faults.values():
        if fault.restarts("gateway") and fault.overlaps(at_s, at_s):
            return of_fault(fault)
    return CauseStep(at_s, GATEWAY, GATEWAY_LOST, cause=Cause.FAULT)


def _headline(row: RequestRow, ttft: float | None, end_s: float) -> str:
    parts = [f"request {row.id} of {row.source}, {row.outcome.replace('_', ' ')}"]
    if ttft is not None:
        parts.append(f"first token after {took(ttft)}")
    parts.append(f"{took(end_s - row.arrived)} in all")
    if row.reason:
        parts.append(row.reason)
    return ": ".join([parts[0], ", ".join(parts[1:])])


def _struck_in_part(
    run: ExplainedRun, row: RequestRow, interval: TimeInterval, chain: CauseChain
) -> list[Accounted]:
    """The time by which a fault made an interval on a server longer, and the rest of it."""
    owner, history = server_of(row, interval), run.history
    fault = history.faults[chain.root.ids[0]] if chain.root.ids else None
    if interval.name == RETRY or fault is None or fault.kind not in SLOWS or owner[0] is None:
        return [Accounted(interval, chain, interval.took_s)]
    felt_s = fault.overlap_s(interval.start_s, interval.end_s)
    longer_s = felt_s * disturbed(run, fault, owner[0], interval.end_s)
    own_s = interval.took_s - longer_s
    about = ABOUT[interval.name].format(f"{took(longer_s)} longer")
    step = _own_work(run, row, interval, own_s)
    own = CauseChain(ABOUT[interval.name].format(took(own_s)), [step], step)
    slower = CauseChain(about, chain.steps, chain.root)
    return [Accounted(interval, own, own_s), Accounted(interval, slower, longer_s)]


def _worked(
    run: ExplainedRun, row: RequestRow, interval: TimeInterval, chain: CauseChain
) -> list[Accounted]:
    """The time of a request's own work, without that in which long prompts of others stalled its
    decode."""
    if interval.name != DECODE or chain.root.cause != Cause.DECODE:
        return [Accounted(interval, chain, interval.took_s)]
    stalled_s, others = stalled(run, row, interval)
    if stalled_s < max(WORTH_S, LEAST_SHARE * interval.took_s):
        return [Accounted(interval, chain, interval.took_s)]
    own_s = interval.took_s - stalled_s
    own = _at_work(run, row, interval, ABOUT[DECODE].format(took(own_s)), [], own_s)
    says = f"its decode was stalled for {took(stalled_s)} by {named(run, others)}"
    root = CauseStep(others[0].start_s, SERVER, says, cause=Cause.LONG_PROMPT)
    about = ABOUT[DECODE].format(f"{took(stalled_s)} longer")
    return [
        Accounted(interval, own, own_s),
        Accounted(interval, CauseChain(about, [root], root), stalled_s),
    ]


def _chain(run: ExplainedRun, row: RequestRow, interval: TimeInterval) -> CauseChain:
    about = ABOUT[interval.name].format(took(interval.took_s))
    if interval.name == RETRY:
        return _lost_try(run, row, interval, about)
    before = interval.lost
    if before is not None and before.reason == RATE_LIMITED:
        return _refused(run, before, f"it waited {took(interval.took_s)} to be sent again")
    return _at_work(run, row, interval, about, _first_steps(run, row, interval))


def _wait_of(run: ExplainedRun, row: RequestRow, interval: TimeInterval) -> CapacityWait | None:
    """The wait for servers of a pool that an interval was; None if it was none."""
    name, before = interval.name, interval.lost
    if name not in FOR_ROOM or interval.took_s <= WORTH_S or _has_room(run, row, interval):
        return None
    if before is not None and before.reason == RATE_LIMITED:
        return None
    owner = server_of(row, interval) if name == QUEUE else row.prompt_server
    pool = (owner[0] if name != ROOM else row.pool) or _answering(run, row)
    server = "" if name in (AT_GATEWAY, UNPLACED) else _title(owner)
    only_model = not run.result.get("models")
    since_s = run.series.backlog_since(pool, interval.start_s, only_model=only_model)
    return CapacityWait(pool, interval.start_s, interval.end_s, server, since_s, kept_s(run))


def _waiting(
    run: ExplainedRun, row: RequestRow, interval: TimeInterval, wait: CapacityWait
) -> list[Accounted]:
    """The causes of a wait, each with its part."""
    steps, found = _first_steps(run, row, interval), []
    for one in causes_of(run, wait, interval.took_s):
        part = took(one.seconds)
        if one.seconds < interval.took_s:
            part += f" (of {took(interval.took_s)})"
        about = ABOUT[interval.name].format(part)
        chain = CauseChain(about, [*steps, *one.chain.steps], one.chain.root)
        found.append(Accounted(interval, chain, one.seconds))
    return found


def _slowed(
    run: ExplainedRun, row: RequestRow, interval: TimeInterval, chain: CauseChain
) -> Slowdown | None:
    """What a shortage of servers cost a request while a server worked on it."""
    if chain.root.cause not in SLOWABLE or chain.root.layer != SERVER:
        return None
    if interval.took_s <= WORTH_S:
        return None
    return slowdown(run, server_of(row, interval), interval)


def _slow_causes(
    run: ExplainedRun, row: RequestRow, interval: TimeInterval, slow: Slowdown
) -> list[Accounted]:
    server = _title(server_of(row, interval))
    pool = str(server_of(row, interval)[0])
    since_s = run.series.backlog_since(pool, slow.start_s, only_model=not run.result.get("models"))
    queued = since_s < slow.start_s
    since_s = min(since_s, nextafter(slow.shortage.end_s, 0.0))  # its effect may outlast it
    short = CapacityWait(pool, slow.start_s, slow.end_s, "", since_s, kept_s(run), queued)
    steps = [CauseStep(slow.start_s, SERVER, slow.in_words(server))]
    if slow.shortage.whole:
        says = f"{pool} has been short of capacity since {moment(slow.shortage.start_s)}"
        steps.append(CauseStep(slow.shortage.start_s, POOL, says))
    found = []
    for one in causes_of(run, short, slow.seconds, slow.shortage):
        about = ABOUT[interval.name].format(f"{took(one.seconds)} longer")
        chain = CauseChain(about, [*steps, *one.chain.steps], one.chain.root)
        found.append(Accounted(interval, chain, one.seconds))
    return found


def _lost_try(run: ExplainedRun, row: RequestRow, interval: TimeInterval, about: str) -> CauseChain:
    """Explains time on a server that did not finish the request: its end cost all of that time."""
    lost = interval.lost
    assert lost is not None
    tries = [*(row.lost_tries or []), *([] if lost in (row.lost_tries or []) else [lost])]
    steps = [_try(number, one) for number, one in enumerate(tries[:MOST_TRIES], 1)]
    if lost.reason == GATEWAY_LOST:
        return CauseChain(about, steps, _restart(run, lost.ended))
    history = run.history
    owners = dict.fromkeys([lost.server, row.prompt_server])
    lives = [life for owner in owners if (life := history.by_owner.get(owner)) is not None]
    life = next((one for one in lives if one.since.get("gone") == lost.ended), None)
    life = life or next(iter(lives), None)
    if lost.reason == DRAINED or life is None:
        return CauseChain(about, steps, _drain(run, row, lost))
    gone = loss(history, life)
    struck = history.faults_of(life)
    root = of_fault(struck[0]) if struck else gone
    return CauseChain(about, [*steps, gone], root)


def _try(number: int, lost: LostTryRow) -> CauseStep:
    sent_s = lost.ended if lost.routed is None else lost.routed
    parts = [f"sent to {_title(lost.server)} at {moment(sent_s)}"]
    if lost.scheduled is not None:
        parts.append(f"running from {moment(lost.scheduled)}")
    if lost.first_token is not None:
        parts.append(f"first token at {moment(lost.first_token)}")
    says = f"try {number}: {', '.join(parts)}, given up at {moment(lost.ended)}: {lost.reason}"
    seconds = {"on the server": lost.ended - sent_s}
    return CauseStep(sent_s, REQUEST, says, [], seconds)


def _drain(run: ExplainedRun, row: RequestRow, lost: LostTryRow) -> CauseStep:
    """The decision that removed a server; of a server that was removed again and again, all."""
    drained = [one for one in row.lost_tries or [] if one.reason == DRAINED]
    if lost.reason != DRAINED or len(drained) < LOOP:
        says = f"{_title(lost.server)} was drained"
        return CauseStep(lost.ended, AUTOSCALER, says, _removal(run, lost), cause=Cause.DRAIN)
    first, last, times = drained[0], drained[-1], len(drained) + row.unkept_tries
    each_s = sum(one.ended - (one.routed or one.ended) for one in drained) / len(drained)
    says = f"its servers were drained {times:,} times, from {moment(first.ended)} to "
    says += f"{moment(last.ended)}, each after {took(each_s)} on average"
    ids = list(dict.fromkeys([*_removal(run, first), *_removal(run, last)]))
    return CauseStep(first.ended, AUTOSCALER, says, ids, cause=Cause.DRAIN)


def _removal(run: ExplainedRun, lost: LostTryRow) -> list[str]:
    decision = run.history.last_decision(lost.pool, lost.ended)
    return [decision.id] if decision is not None and decision.kind == RESIZED else []


def _refused(run: ExplainedRun, lost: LostTryRow, about: str) -> CauseChain:
    """Explains a wait to resend a request after servers had refused it."""
    steps = [_try(1, lost)]
    name = f"{lost.server[0]}-{lost.server[1]}"
    storms = [  # at the refusal: even one that ended soon after caused the whole wait
        fault
        for fault in run.history.faults.values()
        if fault.kind in RATE_LIMITS
        and fault.overlaps(lost.ended, lost.ended)
        and name in fault.subjects
    ]
    root = (
        of_fault(storms[0])
        if storms
        else CauseStep(lost.ended, SERVER, lost.reason, cause=Cause.ADMISSION)
    )
    return CauseChain(about, steps, root)


def _struck(
    run: ExplainedRun, phase: Phase, kinds: tuple[str, ...], owner: Owner
) -> list[FaultHistory]:
    """Faults of these kinds that hit a server during a significant part of a phase."""
    name = f"{owner[0]}-{owner[1]}"
    return [
        fault
        for fault in run.history.faults.values()
        if fault.kind in kinds
        and fault.overlap_s(phase.start_s, phase.end_s) >= WORTH_SHARE * phase.took_s
        and name in fault.subjects
    ]


def _at_work(
    run: ExplainedRun,
    row: RequestRow,
    interval: TimeInterval,
    about: str,
    before: list[CauseStep],
    own_s: float | None = None,
) -> CauseChain:
    """Explains time spent on the request itself, unless a fault slowed its server.

    `own_s`: the seconds of it that a shortage of servers does not explain; None: all.
    """
    step = _own_work(run, row, interval, own_s)
    kinds = (*SLOWS, *LEAK) if interval.name == PAUSED else SLOWS
    struck = _struck(run, interval, kinds, server_of(row, interval))
    root = of_fault(struck[0]) if struck and interval.took_s > WORTH_S else step
    return CauseChain(about, [*before, step], root)


def _own_work(
    run: ExplainedRun, row: RequestRow, interval: TimeInterval, own_s: float | None
) -> CauseStep:
    cause = OWN_WORK.get(interval.name, Cause.QUEUE)
    ahead = ahead_of(run, row, interval) if interval.took_s > WORTH_S else []
    if ahead or (interval.name == PREFILL and is_long_prompt(run, row)):
        cause = Cause.LONG_PROMPT
    says = sentence(run, row, interval, own_s)
    return CauseStep(interval.start_s, SERVER, says, cause=cause)


def _has_room(run: ExplainedRun, row: RequestRow, phase: TimeInterval) -> bool:
    """Whether its server had room for it, and was only busy with a step or other prompts."""
    return phase.name == QUEUE and had_room(run, row, phase)


def _answering(run: ExplainedRun, row: RequestRow) -> str:
    """The first pool that could have served a request that was routed nowhere."""
    pools = [pool for pool in run.scenario["serving"]["pools"] if pool["role"] != "prefill"]
    model = row.model if isinstance(row, FullRequestRow) else None
    ours = [pool for pool in pools if model in (None, pool.get("model"))]
    return str((ours or pools)[0]["name"])


def _title(owner: Owner) -> str:
    return f"{owner[0]} {owner[1]}"


def _first_steps(run: ExplainedRun, row: RequestRow, phase: TimeInterval) -> list[CauseStep]:
    """What the request itself encountered: the gateway, or the queue of its server."""
    sample = run.series.sample_at(phase.start_s)
    if phase.name == AT_GATEWAY:
        waiting = int(run.series.whole["at_gateway"][sample])
        says = f"{count(waiting, 'request')} queued at the gateway"
        steps = [CauseStep(phase.start_s, GATEWAY, says)]
        return [*steps, _turned_away(run, row, phase)] if row.outcome == REJECTED else steps
    if phase.name == UNPLACED:
        return [CauseStep(phase.start_s, SERVER, "no server was ready")]
    if phase.name in FOR_ROOM:
        return [_at_its_server(run, row, phase, sample)]
    return []


def _at_its_server(
    run: ExplainedRun, row: RequestRow, phase: TimeInterval, sample: int
) -> CauseStep:
    owner = server_of(row, phase)
    state = state_of(run, owner, sample)
    if state is None:
        return CauseStep(phase.start_s, SERVER, f"it was queued on {_title(owner)}")
    waiting, running, kv_used, slots = state
    says = (
        f"{_title(owner)} had {waiting:,} queued and {running:,} of "
        f"{slots:,} slots taken, {kv_used:.0%} of its KV blocks in use"
    )
    return CauseStep(phase.start_s, SERVER, says)
