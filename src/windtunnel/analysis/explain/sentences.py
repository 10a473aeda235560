"""Sentences about an interval of a request's time, with the figures of its server."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from windtunnel.analysis.explain.account import PAUSED, TimeInterval, server_of
from windtunnel.analysis.explain.slowdown import batch_of
from windtunnel.analysis.long_prompts import LONG, LongPrompt, mean_tokens
from windtunnel.analysis.phases import (
    DECODE,
    ENCODE,
    GATEWAY,
    PREFILL,
    QUEUE,
    RETRY,
    ROOM,
    TRANSFER,
    UNPLACED,
    Owner,
    RequestRow,
)
from windtunnel.analysis.saturation import KV_FULL, LEAST_SAMPLES
from windtunnel.core.units import format_duration
from windtunnel.core.vocabulary import RATE_LIMITED

if TYPE_CHECKING:
    from windtunnel.analysis.explain.run import ExplainedRun

SLOW = 1.5
"""Tokens whose spacing is this many times the median are called slow."""
WITHOUT_SERVER = {
    GATEWAY: ("at the gateway", "at_gateway"),
    UNPLACED: ("until a server was ready", "awaiting_server"),
}
"""Queues outside servers: the place, and the column of their length."""


def sentence(
    run: ExplainedRun, row: RequestRow, interval: TimeInterval, own_s: float | None = None
) -> str:
    """A sentence about an interval, or about the seconds of it that the request itself took."""
    own_s = interval.took_s if own_s is None else own_s
    took = format_duration(own_s)
    if interval.name == PREFILL:
        return _prefill(run, row, took, ahead_of(run, row, interval))
    if interval.name == DECODE:
        return _decode(run, row, interval, own_s)
    if interval.name in (RETRY, PAUSED):
        return _lost(row, interval, took)
    sample = run.series.sample_at(interval.start_s)
    if interval.lost is not None and interval.lost.reason == RATE_LIMITED:
        return f"waited {took} to be sent again: {interval.lost.reason}"
    if interval.name in WITHOUT_SERVER:
        where, column = WITHOUT_SERVER[interval.name]
        if interval.name == UNPLACED and _never_placed(run, row, interval):
            where = "and no server became ready"
        return f"queued for {took} {where}, {int(run.series.whole[column][sample]):,} queued"
    if interval.name == QUEUE:
        return f"queued for {took}{_why_it_waited(run, row, sample, interval)}"
    return _moving(run, row, interval, sample, took)


def _never_placed(run: ExplainedRun, row: RequestRow, interval: TimeInterval) -> bool:
    """Whether a request waited for a server until its end, or that of the run."""
    end_s = run.end_s if row.finished is None else row.finished
    return row.routed is None and interval.end_s >= end_s


def is_long_prompt(run: ExplainedRun, row: RequestRow) -> bool:
    return row.prompt_tokens > LONG * mean_tokens(run.result, "prompt") > 0


def state_of(run: ExplainedRun, owner: Owner, sample: int) -> tuple[int, int, float, int] | None:
    """Queued, running, share of KV in use and slots of a server at a sample; None if it does not
    exist."""
    place = run.series.place_of(owner)
    if place is None:
        return None
    servers = run.series.servers
    waiting, running, kv_used = (
        float(servers[name][sample, place]) for name in ("waiting", "running", "kv_used")
    )
    if math.isnan(waiting) or math.isnan(running) or math.isnan(kv_used):
        return None
    return int(waiting), int(running), kv_used, run.slots[place]


def had_room(run: ExplainedRun, row: RequestRow, interval: TimeInterval) -> bool:
    """Whether a server had room for what was queued on it, and only computed other prompts."""
    sample = run.series.sample_at(interval.start_s)
    state = state_of(run, server_of(row, interval), sample)
    if state is None or not has_room(state):
        return False
    return not _outgrown(run, server_of(row, interval), sample) or bool(
        ahead_of(run, row, interval)
    )


def _outgrown(run: ExplainedRun, owner: Owner, sample: int) -> bool:
    """Whether a queue is longer than its server's batch, and not for a moment: it computes prompts
    more slowly than they arrive."""
    in_a_row = 0
    for one in range(max(0, sample - LEAST_SAMPLES + 1), sample + LEAST_SAMPLES):
        in_a_row = in_a_row + 1 if _longer_queue(run, owner, one) else 0
        if in_a_row >= LEAST_SAMPLES:
            return True
    return False


def _longer_queue(run: ExplainedRun, owner: Owner, sample: int) -> bool:
    state = state_of(run, owner, sample) if sample < len(run.series.times) else None
    return state is not None and state[0] > state[1]


def has_room(state: tuple[int, int, float, int]) -> bool:
    """Whether the slots and KV cache of a server suffice for everything queued on it."""
    waiting, running, kv_used, slots = state
    return running + waiting <= slots and kv_used < KV_FULL and not _wants_more_kv(state)


def _wants_more_kv(state: tuple[int, int, float, int]) -> bool:
    """Whether the queue does not fit the KV cache, if each request needs as much as a running
    one."""
    waiting, running, kv_used, _ = state
    return kv_used * (running + waiting) > max(1, running)


def _lost(row: RequestRow, interval: TimeInterval, took: str) -> str:
    if interval.name == PAUSED:
        times = "once" if row.preemptions == 1 else f"{row.preemptions} times"
        return f"waited {took} to run again after it was preempted, {times} in all"
    lost = interval.lost
    assert lost is not None
    if interval.unkept:
        tries = len(row.lost_tries or []) + interval.unkept
        which = f"{interval.unkept:,} of its {tries:,} lost tries, with waits"
        return f"lost {took} in {which}: {lost.reason}"
    return f"lost {took} on {lost.pool} {lost.replica}: {lost.reason}"


def _moving(
    run: ExplainedRun, row: RequestRow, interval: TimeInterval, sample: int, took: str
) -> str:
    if interval.name == ENCODE:
        return f"its images or sound took {took} to encode, with the wait for an encoder"
    if interval.name == TRANSFER:
        moving = int(run.series.whole["transfers"][sample])
        others = f", with {moving:,} transfers on the link" if moving > 1 else ""
        return f"its KV cache took {took} to move ({row.prompt_tokens:,} tokens){others}"
    state = state_of(run, row.server, sample)
    full = f": {state[2]:.0%} of its KV blocks were in use" if state is not None else ""
    if interval.name == ROOM:
        return f"its KV cache waited {took} for KV blocks on the decode server{full}"
    return f"waited {took} for its first token on the decode server{full}"


def _prefill(run: ExplainedRun, row: RequestRow, took: str, ahead: list[LongPrompt]) -> str:
    if row.outcome == "unfinished" and row.first_token is None:
        return "the run ended during its prefill"
    if row.first_token is None and row.prefilled is None:
        return f"its prompt was still being computed after {took}"
    if is_long_prompt(run, row):
        times = row.prompt_tokens / mean_tokens(run.result, "prompt")
        return f"its long prompt took {took} to compute, {times:.1f} times the mean length"
    return f"its prompt took {took} to compute, in steps shared with {named(run, ahead)}"


def _decode(run: ExplainedRun, row: RequestRow, interval: TimeInterval, own_s: float) -> str:
    tokens = row.output_tokens
    if row.outcome == "unfinished":
        return f"still on its {tokens:,} output tokens at the end of the run"
    if row.outcome == "timed_out":
        took = format_duration(interval.took_s)
        return f"its client left {took} into a response of {tokens:,} tokens"
    each_s = own_s / max(tokens - 1, 1)
    each = f"{tokens:,} tokens at {format_duration(each_s)} each"
    median_s = run.result["latency"]["tpot"]["p50"]
    if median_s and each_s > SLOW * median_s:
        shared = _shared_steps(run, row, interval)
        return f"slow tokens: {each}, {each_s / median_s:.1f} times the median{shared}"
    if tokens > LONG * mean_tokens(run.result, "output"):
        return f"a long response: {each}"
    return f"its response of {each}"


def _shared_steps(run: ExplainedRun, row: RequestRow, interval: TimeInterval) -> str:
    """What its steps were shared with, if that made them long."""
    ahead = run.long_prompts.ahead(row.server, interval, row.id)
    if ahead:
        return f", in steps shared with {named(run, ahead)}"
    batch, usual = batch_of(run, row.server, interval)
    if batch <= usual:
        return ""
    return f", in batches of {batch:.0f} requests, where {usual:.0f} are usual"


def _why_it_waited(run: ExplainedRun, row: RequestRow, sample: int, interval: TimeInterval) -> str:
    """The state of its server when the wait began."""
    took_s = interval.took_s
    state = state_of(run, server_of(row, interval), sample)
    if state is None:
        return ""
    waiting, running, kv_used, slots = state
    if running >= slots:
        return f": all {slots} slots of its server were taken, {waiting} queued"
    if kv_used >= KV_FULL or _wants_more_kv(state):
        blocks = f"{kv_used:.0%} of its server's KV blocks were in use"
        return f": {blocks} by {running} requests, {waiting} queued"
    if not has_room(state):
        return f": {waiting} queued on its server, and {running} of its {slots} slots taken"
    front_s = _front_end_s(run, row, interval)
    if front_s > took_s / 2:
        return (
            f": its server's front end took {format_duration(min(front_s, took_s))} (`overheads`)"
        )
    ahead = ahead_of(run, row, interval)
    if ahead:
        return f" with room to spare: {named(run, ahead)} came first"
    if _outgrown(run, server_of(row, interval), sample):
        return f": {waiting:,} queued on its server, and only {running:,} running"
    return " with room to spare: a long step, or prompts ahead of it, came first"


def ahead_of(run: ExplainedRun, row: RequestRow, interval: TimeInterval) -> list[LongPrompt]:
    """Long prompts of other requests that its server computed while it waited for its own.

    Of a queue, only if they have more tokens than the rest of it: every long queue has some.
    """
    if interval.name not in (QUEUE, PREFILL) or is_long_prompt(run, row):
        return []
    if interval.name == QUEUE and _front_end_s(run, row, interval) > interval.took_s / 2:
        return []
    found = run.long_prompts.ahead(server_of(row, interval), interval, row.id)
    if interval.name == QUEUE and found:
        state = state_of(run, server_of(row, interval), run.series.sample_at(interval.start_s))
        rest = 0 if state is None else state[0] - len(found)
        if sum(one.tokens for one in found) < rest * mean_tokens(run.result, "prompt"):
            return []
    return found


def stalled(
    run: ExplainedRun, row: RequestRow, interval: TimeInterval
) -> tuple[float, list[LongPrompt]]:
    """How long prompts of other requests stalled a decode, and which.

    As long as its server computed them, and no longer than its tokens took beyond the median.
    """
    median_s = run.result["latency"]["tpot"]["p50"]
    found = run.long_prompts.beside(row.server, interval, row.id) if median_s else []
    if not found:
        return 0.0, []
    beside_s = sum(one.overlap_s(interval) for one in found)
    beyond_s = interval.took_s - median_s * max(row.output_tokens - 1, 1)
    return max(0.0, min(beside_s, beyond_s)), found


def named(run: ExplainedRun, ahead: list[LongPrompt]) -> str:
    """The other requests whose prompts were computed."""
    if not ahead:
        return "other requests"
    first, times = ahead[0], ahead[0].tokens / mean_tokens(run.result, "prompt")
    more = f" and {len(ahead) - 1} more" if len(ahead) > 1 else ""
    size = f"{first.tokens:,} tokens, {times:.1f} times the mean"
    return f"the long prompt of request {first.request} ({size}){more}"


def _front_end_s(run: ExplainedRun, row: RequestRow, interval: TimeInterval) -> float:
    """From arrival at the server to its queue: API server, tokenisation, IPC."""
    for pool in run.scenario["serving"]["pools"]:
        if pool["name"] == server_of(row, interval)[0]:
            own = pool["overheads"]
            return float(own["queueing_s"] + own["per_prompt_token_s"] * row.prompt_tokens)
    return 0.0
