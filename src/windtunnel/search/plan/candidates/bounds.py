"""Bounds that no run can beat, from the step times and the memory of a server alone.

Each bound is optimistic: it ignores queues, unequal loads, preemptions and all other waiting, so
that a candidate it rules out could not attain its targets in any run.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from windtunnel.engine.limits import EngineLimits
from windtunnel.models.step_time.model import StepTimeModel, StepWork
from windtunnel.search.plan.candidates.demand import ClassDemand, KnownRequest
from windtunnel.workload.settings.sources import SloClass

DOUBT = 0.9
"""Factor on step times, since the time of a step need not grow with its work."""
DEVIATIONS = 4.0
"""Allowed sampling error, in standard deviations, when only some of the requests are examined."""
ROOM = 1.5
"""A KV cache is assumed to hold this many times the requests of mean size, since some have just
begun."""

TOO_LONG = "requests-too-long"
TTFT_FLOOR = "ttft-floor"
TPOT_FLOOR = "tpot-floor"
E2E_FLOOR = "e2e-floor"


class Ruled(NamedTuple):
    """Why servers of a kind cannot attain the targets, however many there are."""

    reason: str
    share: float
    """A lower bound on the share of requests of a class that miss a target even alone on a
    server."""
    slo: str


class EngineBounds(NamedTuple):
    """The bounds for servers of one kind."""

    model: StepTimeModel
    limits: EngineLimits
    queueing_s: float = 0.0

    def new_tokens(self, asked: KnownRequest) -> int:
        """Prompt tokens to compute if everything that may be cached is cached."""
        cached = asked.cached if self.limits.prefix_caching else 0
        return max(asked.prompt - cached, 1 if self.limits.compute_whole_hits else 0)

    def answer(self, asked: KnownRequest) -> int:
        """Output tokens; the first of them comes with the prompt."""
        return max(1, int(self.limits.answer_tokens(asked.prompt, asked.output)))

    def ttft_s(self, asked: KnownRequest) -> float:
        """TTFT alone on an empty server."""
        most = int(self.limits.max_num_batched_tokens)
        if self.limits.long_prefill_threshold:
            most = min(most, int(self.limits.long_prefill_threshold))
        left = self.new_tokens(asked)
        time_s = self.queueing_s
        while left > 0:
            chunk = min(left, most)
            done = asked.prompt - left
            work = StepWork([(chunk, done, asked.prompt)], 0, 0, 1 if chunk == left else 0)
            time_s += self.model.step_s(work)
            left -= chunk
        return time_s

    def token_s(self, asked: KnownRequest) -> float:
        """Time of a further token, alone on an empty server."""
        return self.model.step_s(StepWork([], 1, asked.prompt, 1))


def ruled_out(
    prefill: EngineBounds, decode: EngineBounds, demand: ClassDemand, attained: float
) -> Ruled | None:
    """Why servers of these kinds (which may be one kind) never attain the targets of a class, if
    so."""
    slo, asked = demand.slo, demand.asked
    long = [bool(_refusal(prefill, decode, one)) for one in asked]
    ttfts = [DOUBT * prefill.ttft_s(one) for one in asked]
    tokens = [DOUBT * decode.token_s(one) for one in asked]
    late: list[tuple[str, list[bool]]] = [(TOO_LONG, long)]
    if slo.ttft_s is not None:
        late.append((TTFT_FLOOR, [time > slo.ttft_s for time in ttfts]))
    if slo.tpot_s is not None:
        late.append(
            (
                TPOT_FLOOR,
                [
                    time > slo.tpot_s and decode.answer(one) > 1
                    for one, time in zip(asked, tokens, strict=True)
                ],
            )
        )
    if slo.e2e_s is not None:
        whole = [
            first + (decode.answer(one) - 1) * time
            for one, first, time in zip(asked, ttfts, tokens, strict=True)
        ]
        late.append((E2E_FLOOR, [time > slo.e2e_s for time in whole]))
    for reason, misses in late:
        share = _at_least(misses)
        if share > 1.0 - attained:
            return Ruled(reason, share, demand.name)
    return None


def _refusal(prefill: EngineBounds, decode: EngineBounds, asked: KnownRequest) -> str:
    """Why no server accepts the request; an answer that is cut short may still be in time."""
    return decode.limits.refusal(asked.prompt, asked.output) or prefill.limits.refusal(
        asked.prompt, 1
    )


def _at_least(misses: Sequence[bool]) -> float:
    """A lower bound on the share of all requests that miss, from a sample."""
    count = len(misses)
    share = sum(misses) / count
    return share - DEVIATIONS * math.sqrt(share * (1.0 - share) / count) - 1.0 / count


class DueWork(NamedTuple):
    """Work of a request: server seconds, and how soon after arrival they are due."""

    seconds: float
    within_s: float


class WorkCosts(NamedTuple):
    """Lower bounds on the cost of work, in server seconds."""

    token_s: float
    """Per new token, in the best prefill-only step."""
    decode_s: float
    """Per decode, in the best decode-only step."""
    mixed: float
    """The least time of a mixed step, relative to the sum of the two."""


def fewest_servers(
    engine: EngineBounds, demands: Sequence[ClassDemand], attained: float, end_s: float
) -> tuple[int, int]:
    """Lower bounds on the servers of this kind that finish in time: in all, and for answers alone.

    `end_s` is the end of the run, infinite if the run ends by itself. All work due by a time t must
    be done by t, and n servers have n * t seconds for it, in any order.
    """
    moments = sorted({part * demand.span_s for demand in demands for part in PARTS})
    if math.isfinite(end_s):
        moments.append(end_s)
    kinds = [_dues(engine, demand) for demand in demands]
    most = answers = 0.0
    for moment in moments:
        load = writing = 0.0
        for demand, dues in zip(demands, kinds, strict=True):
            asked = [_due_by(moment, one, demand, attained, end_s) for one in dues]
            load += max(asked, default=0.0)
            writing += asked[-1] if asked else 0.0
        most = max(most, DOUBT * load / moment)
        answers = max(answers, DOUBT * writing / moment)
    return max(1, math.ceil(most - 1e-9)), max(1, math.ceil(answers - 1e-9))


PARTS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Moments at which work is counted, as multiples of the time in which requests arrive."""


def _due_by(
    moment: float, dues: Sequence[DueWork], demand: ClassDemand, attained: float, end_s: float
) -> float:
    """Server seconds due by a moment, excluding the requests that may be late.

    Arrivals are spread evenly over the span; the requests with the most work are those that may be
    late.
    """
    span_s = max(demand.span_s, 1e-9)
    parts = []
    for due in dues:
        share = 1.0 if moment >= end_s else (moment - due.within_s) / span_s
        parts.append(due.seconds * min(1.0, max(0.0, share)))
    kept = sorted(parts)[: math.floor(attained * len(parts))]
    return math.fsum(kept) * demand.total / len(dues)


def _dues(engine: EngineBounds, demand: ClassDemand) -> list[list[DueWork]]:
    """Work under each applicable bound; the last one covers answers alone."""
    slo = demand.slo
    answered = slo.tpot_s is not None or slo.e2e_s is not None
    requests = [one._replace(output=engine.answer(one)) for one in demand.asked]
    new = [engine.new_tokens(one) for one in requests]
    prices = prices_of(engine, requests)
    found: list[list[DueWork]] = []
    if slo.ttft_s is not None:
        ttft_s = slo.ttft_s
        found.append([DueWork(prices.token_s * tokens, ttft_s) for tokens in new])
    if answered:
        late = [_deadline_s(slo, one) for one in requests]
        both, answers = [], []
        for one, tokens, within_s in zip(requests, new, late, strict=True):
            prompt_s, answer_s = prices.token_s * tokens, prices.decode_s * (one.output - 1)
            both.append(DueWork(prices.mixed * (prompt_s + answer_s), within_s))
            answers.append(DueWork(answer_s, within_s))
        found += [both, answers]
    elif found:
        found.append([DueWork(0.0, 0.0) for _ in requests])
    return found


def _deadline_s(slo: SloClass, asked: KnownRequest) -> float:
    """Deadline of the last token, after arrival; infinite if no target implies one."""
    late_s = math.inf if slo.e2e_s is None else slo.e2e_s
    if slo.tpot_s is not None and slo.ttft_s is not None:
        late_s = min(late_s, slo.ttft_s + (asked.output - 1) * slo.tpot_s)
    return late_s


def prices_of(engine: EngineBounds, requests: Sequence[KnownRequest]) -> WorkCosts:
    """The least cost of work, however an engine forms its steps.

    For any step with t new tokens and d decodes, and any prices a and b of these, the time is at
    least m * (a * t + b * d), where m is the minimum of time / (a * t + b * d) over all steps. So
    all steps together take at least m * (a * T + b * D). With the prices of the best pure steps, m
    is small if a mixed step does both in the time of one, and 1 if it takes the sum.
    """
    weight = sum(one.output for one in requests)
    context = sum(one.output * (one.prompt + one.output / 2.0) for one in requests) / weight
    shared = sum(one.output * (one.prompt - engine.new_tokens(one)) for one in requests) / weight
    most = _most_decodes(engine, context - shared)
    budget = int(engine.limits.max_num_batched_tokens)
    sizes = sorted({max(1, budget >> power) for power in range(0, 16, 2)})
    batches = sorted({max(1, most >> power) for power in range(16)})
    a = min(_step_s(engine, context, t, 0) / t for t in sizes)
    b = min(_step_s(engine, context, 0, d) / d for d in batches)
    mixed = (
        _step_s(engine, context, t, d) / (a * t + b * d)
        for t in sizes
        for d in batches
        if t + d <= budget
    )
    return WorkCosts(a, b, min(1.0, min(mixed, default=1.0)))


def _most_decodes(engine: EngineBounds, own_context: float) -> int:
    limits = engine.limits
    most = min(int(limits.max_num_seqs), int(limits.max_num_batched_tokens))
    held = int(limits.usable_blocks) * int(limits.block_size) / max(1.0, own_context)
    return max(1, min(most, math.ceil(ROOM * held)))


PIECES = (1, 8, 64)
"""Numbers of prompts that the new tokens of a step are split into: attention costs less for short
ones."""


def _step_s(engine: EngineBounds, mean_context: float, new: int, decodes: int) -> float:
    context = round(decodes * mean_context)
    if new == 0:
        return engine.model.step_s(StepWork([], decodes, context, decodes))
    times = []
    for pieces in PIECES:
        size = new // pieces
        if size:
            first = new - size * (pieces - 1)
            chunks = [(first, 0, first)] + [(size, 0, size)] * (pieces - 1)
            times.append(engine.model.step_s(StepWork(chunks, decodes, context, decodes)))
    return min(times)
