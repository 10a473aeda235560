"""Where to start: the worst requests of a run, and its most important decisions."""

import msgspec

from windtunnel.analysis.explain.decision import ExplainedDecision, explain_decision
from windtunnel.analysis.explain.history import SHORT, ControlHistory, LoggedEvent
from windtunnel.analysis.explain.moment import ExplainedMoment, explain_moment, without_machines
from windtunnel.analysis.explain.request import (
    WORTH_SHARE,
    ExplainedRequest,
    SlowRequest,
    account,
    explain_request,
    ranked,
    slow_requests,
)
from windtunnel.analysis.explain.run import ExplainedRun, RunReader
from windtunnel.analysis.explain.steps import (
    AUTOSCALER,
    FAULT,
    GANG,
    SERVER,
    Cause,
    CauseStep,
    count,
    moment,
    took,
)
from windtunnel.analysis.long_prompts import LONG, mean_tokens
from windtunnel.analysis.phases import RequestRow
from windtunnel.analysis.slowest import FINISHED, FIRST_TOKEN, Slowest
from windtunnel.core.vocabulary import RESIZED
from windtunnel.gangs.controllers.controller import GROUP_REPLICA_DELETED, SET_REPLICA_DELETED

TERMINATIONS = (SET_REPLICA_DELETED, GROUP_REPLICA_DELETED)
HOW_MANY = 3
RANKED = 100
"""Number of requests whose causes are summed: the slowest to the end."""
MOST_CAUSES = 5
MOST_DECISIONS = 8


class Slow(msgspec.Struct, frozen=True):
    """A request worth examining."""

    request: int
    took: float
    upto: str
    why: str


class CauseTotal(msgspec.Struct, frozen=True):
    """The cost of a cause over the slowest requests."""

    cause: str
    seconds: float
    requests: int
    says: str
    ids: list[str]
    evidence: str = ""
    """What all of these requests have in common."""


SPENT = {
    Cause.FAULT: "lost {time} to a fault",
    Cause.LOST_SERVER: "lost {time} on servers that were lost",
    Cause.DRAIN: "lost {time} on servers that drained",
    Cause.ADMISSION: "lost {time} to refusals",
    Cause.QUOTA: "waited {time} because of a limit on replicas or machines",
    Cause.AUTOSCALER: "waited {time} for the autoscaler",
    Cause.MACHINE: "waited {time} for machines",
    Cause.GANG: "waited {time} for gangs to be placed",
    Cause.COLD_START: "waited {time} for models to load",
    Cause.QUEUE: "were queued for {time} behind other requests",
    Cause.ENCODING: "spent {time} on encoding media",
    Cause.LONG_PROMPT: "spent {time} on long prompts",
    Cause.PREFILL: "spent {time} more in prefill than the mean request",
    Cause.TRANSFER: "waited {time} for KV transfers",
    Cause.PREEMPTION: "were preempted for {time}",
    Cause.DECODE: "spent {time} more in decode than the mean request",
}
"""The effect of a cause on requests, in words."""


def cause_in_words(cause: CauseTotal) -> str:
    """`machine: 100 requests together waited 1 h 20 min for machines`, and the evidence."""
    ids = f" [{', '.join(cause.ids)}]" if cause.ids else ""
    who = count(cause.requests, "request") + " together" * (cause.requests > 1)
    return f"{cause.cause}: {who} {_spent(cause)}{ids}"


class Overview(msgspec.Struct, frozen=True):
    requests: list[Slow]
    causes: list[CauseTotal]
    """Summed over the slowest requests, the costliest first."""
    decisions: list[CauseStep]
    cut: str
    """What is missing in the log; empty if it is complete."""
    partial: str
    """Why the run ended early; empty if it did not."""


Explained = ExplainedRequest | ExplainedMoment | ExplainedDecision | Overview


def explain_run(
    run: RunReader, request: int | None, at_s: float | None, decision: str | None
) -> Explained:
    """Explains the request, decision or time given; without any, returns the overview."""
    if request is not None:
        return explain_request(run, request)
    if decision is not None:
        return explain_decision(run, decision)
    return overview(run) if at_s is None else explain_moment(run, at_s)


def overview(run: RunReader) -> Overview:
    slowest = run.slowest(RANKED)
    slow: dict[int, Slow] = {}
    for upto, word in ((FIRST_TOKEN, "to the first token"), (FINISHED, "to the end")):
        for found in slow_requests(run, slowest.requests(upto)[:HOW_MANY], upto):
            slow.setdefault(found.request.id, _slow(found, word))
    history = run.history
    cut = "" if history.cut is None else f"after {moment(history.cut.time)} {history.cut.reason}"
    partial = run.result.get("partial") or ""
    causes = _causes(run, slowest.requests(FINISHED))
    return Overview(list(slow.values()), causes, _important(history), cut, partial)


def slowest_in_words(run: ExplainedRun, slowest: Slowest) -> str:
    """What cost the slowest requests of a run most, in a sentence; empty if nothing did."""
    rows = slowest.requests(FINISHED)
    found = _causes(run, rows)
    if not found:
        return ""
    some, many = found[0].requests, len(rows)
    who = f"{'The' if some == many else f'{some} of the'} {many} slowest requests"
    return f"{who} together {_spent(found[0])}" if many > 1 else f"The slowest {_spent(found[0])}"


def _spent(cause: CauseTotal) -> str:
    spent = SPENT[Cause(cause.cause)].format(time=took(cause.seconds))
    spent = spent.replace("were ", "was ", 1) if cause.requests == 1 else spent
    return f"{spent}: {cause.evidence}" if cause.evidence else spent


def _causes(run: ExplainedRun, rows: list[tuple[float, RequestRow]]) -> list[CauseTotal]:
    totals: dict[tuple[str, ...], CauseTotal] = {}
    for _, row in rows:
        for one in ranked(run, account(run, row)):
            key = (one.cause, *one.ids)
            evidence = one.says if one.ids else ""
            before = totals.get(key, CauseTotal(one.cause, 0.0, 0, one.says, one.ids, evidence))
            totals[key] = msgspec.structs.replace(
                before, seconds=before.seconds + one.excess, requests=before.requests + 1
            )
    decode, times = totals.get((Cause.DECODE,)), _length(run, rows)
    if decode is not None and times >= LONG:
        evidence = f"the slowest requests have responses of {times:.1f} times the mean length"
        totals[Cause.DECODE,] = msgspec.structs.replace(decode, evidence=evidence)
    found = sorted(totals.values(), key=lambda one: -one.seconds)
    least_s = WORTH_SHARE * sum(one.seconds for one in found)
    return [one for one in found if one.seconds > least_s][:MOST_CAUSES]


def _length(run: ExplainedRun, rows: list[tuple[float, RequestRow]]) -> float:
    """How many times as long as the mean response those of some requests are, on average."""
    mean = mean_tokens(run.result, "output")
    total = sum(row.output_tokens for _, row in rows)
    return total / len(rows) / mean if rows and mean else 0.0


def _slow(found: SlowRequest, word: str) -> Slow:
    return Slow(found.request.id, found.took_s, word, found.why)


def _important(history: ControlHistory) -> list[CauseStep]:
    """What went wrong and the largest size changes, with half of the places reserved for the
    latter; in chronological order."""
    wrong = [
        CauseStep(one.at_s, FAULT, f"{one.kind} of {one.struck(3)}", [one.id])
        for one in history.faults.values()
    ]
    wrong += [
        CauseStep(one.time, GANG, f"{one.name}: {one.reason}", [one.id])
        for one in history.happenings
        if one.kind.removeprefix("gang.") in TERMINATIONS
    ]
    wrong += without_machines([one for one in history.happenings if one.kind == SHORT])
    wrong += [
        CauseStep(life.since["gone"], SERVER, f"{life.title} was lost: {life.ended}")
        for life in history.lives
        if life.was_lost
    ]
    changes = [
        one for decisions in history.by_pool.values() for one in decisions if one.kind == RESIZED
    ]
    changes.sort(key=lambda one: (-_size(one), one.time, one.id))
    resized = [
        CauseStep(one.time, AUTOSCALER, f"{one.name}: {one.size}. {one.reason}", [one.id])
        for one in changes
    ]
    half = MOST_DECISIONS // 2
    kept = [*wrong[: MOST_DECISIONS - min(half, len(resized))]]
    kept += resized[: MOST_DECISIONS - len(kept)]
    return sorted(kept, key=lambda step: step.time)


def _size(one: LoggedEvent) -> int:
    return abs(int(one.data["target"]) - int(one.data["current"]))


def in_words(slow: Slow) -> str:
    return f"request {slow.request}, {took(slow.took)} {slow.upto}: {slow.why}"
