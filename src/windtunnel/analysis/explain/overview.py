"""Where to start: the worst requests of a run, and its most important decisions."""

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from windtunnel.analysis.explain.blame import emptied
from windtunnel.analysis.explain.decision import ExplainedDecision, explain_decision
from windtunnel.analysis.explain.history import SHORT, ControlHistory, LoggedEvent
from windtunnel.analysis.explain.moment import ExplainedMoment, explain_moment, without_machines
from windtunnel.analysis.explain.request import (
    WORTH_SHARE,
    ExplainedRequest,
    RankedCause,
    SlowRequest,
    account,
    end_of,
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
from windtunnel.analysis.slowest import FINISHED, FIRST_TOKEN, LostRequests, Slowest
from windtunnel.core.vocabulary import BY_WAITING, RESIZED, TERMINATIONS, general

HOW_MANY = 3
LOSSES = (Cause.FAULT, Cause.LOST_SERVER, Cause.DRAIN)
"""Causes of lost requests that a report names first."""
RANKED = 100
"""Number of requests whose causes are summed: the slowest to the end."""
MOST_CAUSES = 5
MOST_IDS = 3
MOST_DECISIONS = 8
TO_FIRST, TO_END = "to the first token", "to the end"
NEVER_THERE = {TO_FIRST: "without a first token", TO_END: "and no end, {still}"}
"""What is said of a request that never got there."""
LOOP = 4
"""So many decisions alike are one line, with their number."""


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


class LostTotal(msgspec.Struct, frozen=True):
    """Requests that were dropped or rejected for one reason."""

    outcome: str
    requests: int
    share: float
    """Of all requests that arrived."""
    cause: str
    says: str
    ids: list[str]
    example: int


def lost_in_words(lost: LostTotal) -> str:
    """`613 requests were dropped, such as 234: crash-loop (at 30 s) hit main-0`."""
    were = "was" if lost.requests == 1 else "were"
    such = f", such as {lost.example}" if lost.requests > 1 else f" ({lost.example})"
    says = lost.says.removeprefix(f"{lost.outcome}: ").removeprefix("the gateway rejected it: ")
    ids = f" [{', '.join(lost.ids)}]" if lost.ids else ""
    return f"{count(lost.requests, 'request')} {were} {lost.outcome}{such}: {says}{ids}"


class Overview(msgspec.Struct, frozen=True):
    requests: list[Slow]
    lost: list[LostTotal]
    """Those that were dropped or rejected, the most frequent first."""
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
    slowest, lost = run.worst(RANKED)
    slow: dict[int, Slow] = {}
    for upto, word in ((FIRST_TOKEN, TO_FIRST), (FINISHED, TO_END)):
        for found in slow_requests(run, slowest.requests(upto)[:HOW_MANY], upto):
            slow.setdefault(found.request.id, _slow(found, word))
    history = run.history
    cut = "" if history.cut is None else f"after {moment(history.cut.time)} {history.cut.reason}"
    partial = run.result.get("partial") or _forsaken(run)
    causes = _causes(run, slowest.requests(FINISHED))
    totals = lost_totals(run, lost)
    return Overview(list(slow.values()), totals, causes, important(history), cut, partial)


def _forsaken(run: RunReader) -> str:
    """Why a run ended with requests that nothing planned could serve; empty if it did not."""
    if run.result.get("ended_by") != BY_WAITING:
        return ""
    left = count(run.result["requests"]["unfinished"], "request")
    history, says = run.history, ""
    for pool in sorted(history.by_pool):
        last = history.last_decision(pool, run.end_s)
        if last is not None and not last.data["target"]:
            empty = emptied(history, last)
            says += f"; pool {pool} has been at 0 since {moment(empty.time)} [{empty.id}]"
    return f"nothing that was planned could serve the {left} inside{says}"


def lost_totals(run: ExplainedRun, lost: LostRequests) -> list[LostTotal]:
    """Lost requests by what ended them, the most frequent first."""
    totals: list[LostTotal] = []
    arrived = run.result["requests"]["arrived"]
    for outcome, rows in lost.rows.items():
        counts = {general(one): count for one, count in run.result["reasons"][outcome].items()}
        alike = Counter[str]()
        ends: dict[tuple[str, ...], tuple[CauseStep, list[RequestRow]]] = {}
        for row in rows:
            root, reason = end_of(run, row), general(row.reason or "")
            alike[reason] += 1
            ends.setdefault((reason, root.cause, *root.ids), (root, []))[1].append(row)
        for (reason, *_), (root, found) in ends.items():
            many = round(counts[reason] * len(found) / alike[reason])
            totals.append(
                LostTotal(
                    outcome, many, many / arrived, root.cause, root.says, root.ids, found[0].id
                )
            )
    totals.sort(key=lambda one: (-one.requests, one.example))
    return totals[:MOST_CAUSES]


def losses_in_words(run: ExplainedRun, lost: LostRequests) -> str:
    """What took most requests that were lost to a fault, or dropped; empty if none was."""
    totals = [one for one in lost_totals(run, lost) if one.cause in LOSSES]
    if not totals:
        return ""
    return lost_in_words(msgspec.structs.replace(totals[0], ids=[]))


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
    alike: dict[tuple[str, ...], list[tuple[int, RankedCause]]] = {}
    for _, row in rows:
        for one in ranked(run, account(run, row)):
            key = (one.cause, *(one.ids if one.cause == Cause.FAULT else ()))
            alike.setdefault(key, []).append((row.id, one))
    totals = {key: _total(found) for key, found in alike.items()}
    decode, times = totals.get((Cause.DECODE,)), _length(run, rows)
    if decode is not None and times >= LONG:
        evidence = f"the slowest requests have responses of {times:.1f} times the mean length"
        totals[Cause.DECODE,] = msgspec.structs.replace(decode, evidence=evidence)
    found = sorted(totals.values(), key=lambda one: -one.seconds)
    least_s = WORTH_SHARE * sum(one.seconds for one in found)
    return [one for one in found if one.seconds > least_s][:MOST_CAUSES]


def _total(found: list[tuple[int, RankedCause]]) -> CauseTotal:
    """A cause over requests; of several decisions, the costliest is named."""
    each: dict[tuple[str, ...], float] = {}
    for _, one in found:
        each[tuple(one.ids)] = each.get(tuple(one.ids), 0.0) + one.excess
    first = max(each, key=lambda ids: each[ids])
    cause = next(one for _, one in found if tuple(one.ids) == first)
    ids = list(
        dict.fromkeys(name for some in sorted(each, key=lambda ids: -each[ids]) for name in some)
    )
    others = len(ids) - len(first)
    evidence = cause.says.rstrip(".") if first else ""
    if others and first:
        evidence += f"; and {count(others, 'more decision')}"
    return CauseTotal(
        cause.cause,
        sum(one.excess for _, one in found),
        len({number for number, _ in found}),
        cause.says,
        ids[:MOST_IDS],
        evidence,
    )


def _length(run: ExplainedRun, rows: list[tuple[float, RequestRow]]) -> float:
    """How many times as long as the mean response those of some requests are, on average."""
    mean = mean_tokens(run.result, "output")
    total = sum(row.output_tokens for _, row in rows)
    return total / len(rows) / mean if rows and mean else 0.0


def _slow(found: SlowRequest, word: str) -> Slow:
    if found.still:
        word = NEVER_THERE[word].format(still=found.still)
        if any(one.first_token is not None for one in found.request.lost_tries or []):
            word = word.replace("a first", "a lasting first")
    return Slow(found.request.id, found.took_s, word, found.why)


def important(history: ControlHistory) -> list[CauseStep]:
    """What went wrong and the largest size changes, with half of the places reserved for the
    latter; in chronological order."""
    wrong = _together(
        (
            (one.name, one.kind),
            CauseStep(one.at_s, FAULT, f"{one.kind} of {one.struck(3)}", [one.id]),
        )
        for one in history.felt
    )
    ended = [one for one in history.happenings if one.kind.removeprefix("gang.") in TERMINATIONS]
    wrong += _together(
        (
            (one.subject, one.reason),
            CauseStep(one.time, GANG, f"{one.name}: {one.reason}", [one.id]),
        )
        for one in ended
    )
    wrong += without_machines([one for one in history.happenings if one.kind == SHORT])
    wrong += _together(
        (
            (life.pool, life.ended),
            CauseStep(life.since["gone"], SERVER, f"{life.title} was lost: {life.ended}"),
        )
        for life in history.lives
        if life.was_lost
    )
    changes = [
        one for decisions in history.by_pool.values() for one in decisions if one.kind == RESIZED
    ]
    changes.sort(key=lambda one: (-_size(one), one.time, one.id))
    resized = _together(
        (
            (one.name, one.size, _without_figures(one.reason)),
            CauseStep(one.time, AUTOSCALER, f"{one.name}: {one.size}. {one.reason}", [one.id]),
        )
        for one in changes
    )
    half = MOST_DECISIONS // 2
    kept = [*wrong[: MOST_DECISIONS - min(half, len(resized))]]
    kept += resized[: MOST_DECISIONS - len(kept)]
    return sorted(kept, key=lambda step: step.time)


def _together(steps: Iterable[tuple[tuple[str, ...], CauseStep]]) -> list[CauseStep]:
    """Steps in order, with those of a loop (LOOP alike, by key) as one."""
    alike: dict[tuple[str, ...], list[CauseStep]] = {}
    for key, step in steps:
        alike.setdefault(key, []).append(step)
    found = []
    for many in alike.values():
        if len(many) < LOOP:
            found += many
            continue
        last = max(many, key=lambda step: step.time)
        says = f"{many[0].says} ({len(many):,} times alike, the last at {moment(last.time)})"
        ids = [*many[0].ids, *last.ids]
        found.append(CauseStep(many[0].time, many[0].layer, says, ids))
    return found


def _without_figures(reason: str) -> str:
    """What reasons with other numbers have in common."""
    return " ".join(re.sub(r"\d[\d.,]*( [a-z]+)?", "", reason).split())


def _size(one: LoggedEvent) -> int:
    return abs(int(one.data["target"]) - int(one.data["current"]))


def in_words(slow: Slow) -> str:
    return f"request {slow.request}, {took(slow.took)} {slow.upto}: {slow.why}"
