"""What no run could do better than: bounds from the step times and the memory of a server alone.

Each is an optimist. It leaves out queues, unequal loads, preemptions and everything that a request
might have to wait for, so that what it rules out no run can bring back.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from windtunnel.engine.limits import EngineLimits
from windtunnel.models.steptime import StepTimeModel, StepWork
from windtunnel.search.demand import Asked, Demand

DOUBT = 0.9
"""Times are taken for this much of what they are, since a model need not grow with its work."""
DEVIATIONS = 4.0
"""A part of the requests may by chance be this far from all of them."""
ROOM = 1.5
"""A cache holds this many times as many requests as of the mean size, since some are just begun."""

TOO_LONG = "requests-too-long"
TTFT_FLOOR = "ttft-floor"
TPOT_FLOOR = "tpot-floor"
E2E_FLOOR = "e2e-floor"


class Ruled(NamedTuple):
    """Why servers of a kind can never do, however many there are."""

    reason: str
    share: float
    """Of the requests of a class, at least so many miss a target of it even alone on a server."""
    slo: str


class Engine:
    """Servers of one kind."""

    def __init__(self, model: StepTimeModel, limits: EngineLimits, queueing_s: float = 0.0) -> None:
        self.model = model
        self.limits = limits
        self.queueing_s = queueing_s

    def new_tokens(self, asked: Asked) -> int:
        """Of a prompt, those that must be computed when a cache has all that it may have."""
        cached = asked.cached if self.limits.prefix_caching else 0
        return max(asked.prompt - cached, 1 if self.limits.compute_whole_hits else 0)

    def answer(self, asked: Asked) -> int:
        """The tokens that are written; the first of them comes with the prompt."""
        return max(1, int(self.limits.answer_tokens(asked.prompt, asked.output)))

    def ttft_s(self, asked: Asked) -> float:
        """Alone on an empty server."""
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

    def token_s(self, asked: Asked) -> float:
        """A further token, alone on an empty server."""
        return self.model.step_s(StepWork([], 1, asked.prompt, 1))


def ruled_out(prefill: Engine, decode: Engine, demand: Demand, attained: float) -> Ruled | None:
    """Why servers of these kinds never keep the targets of a class; they may be the same."""
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
            return Ruled(reason, share, slo.name)
    return None


def _refusal(prefill: Engine, decode: Engine, asked: Asked) -> str:
    """Why no server takes it; an answer that is cut short may still be in time."""
    return decode.limits.refusal(asked.prompt, asked.output) or prefill.limits.refusal(
        asked.prompt, 1
    )


def _at_least(misses: Sequence[bool]) -> float:
    """The share of all requests that misses, judged by some of them."""
    count = len(misses)
    share = sum(misses) / count
    return share - DEVIATIONS * math.sqrt(share * (1.0 - share) / count) - 1.0 / count


class Work(NamedTuple):
    """The tokens that must be computed and written within a time, for targets to be kept."""

    new_tokens: float
    decodes: float
    context: float
    """That a decode has before it, on average, of which `shared` may be one for many."""
    shared: float
    within_s: float


def work_of(engine: Engine, demand: Demand, attained: float, end_s: float) -> Work | None:
    """Of those requests of a class that must keep its targets, and the least of them all.

    None: nothing says by when. `end_s` is when the run ends, and infinite when it ends by itself.
    """
    slo = demand.slo
    answers = slo.tpot_s is not None or slo.e2e_s is not None
    sizes = sorted(
        ((engine.new_tokens(one), one._replace(output=engine.answer(one))) for one in demand.asked),
        key=lambda pair: (pair[0] + pair[1].output, pair[1]),
    )
    kept = sizes[: max(1, math.floor(attained * len(sizes)))]
    each = demand.total / len(demand.asked)
    decodes = sum(one.output - 1 for _, one in kept) if answers else 0
    late_s = max(_deadline_s(demand, one) for _, one in kept)
    within_s = min(demand.span_s + late_s, max(end_s, demand.span_s))
    if not math.isfinite(within_s) or within_s <= 0.0:
        return None
    weight = sum(one.output for _, one in kept)
    context = sum(one.output * (one.prompt + one.output / 2.0) for _, one in kept) / weight
    shared = sum(one.output * (one.prompt - new) for new, one in kept) / weight
    new = sum(tokens for tokens, _ in kept)
    return Work(each * new, each * decodes, context, shared, within_s)


def _deadline_s(demand: Demand, asked: Asked) -> float:
    """After its arrival; infinite where no target says."""
    slo = demand.slo
    if slo.tpot_s is None and slo.e2e_s is None:
        return math.inf if slo.ttft_s is None else slo.ttft_s
    late_s = math.inf
    if slo.tpot_s is not None and slo.ttft_s is not None:
        late_s = slo.ttft_s + (asked.output - 1) * slo.tpot_s
    return late_s if slo.e2e_s is None else min(late_s, slo.e2e_s)


def fewest_servers(engine: Engine, works: Sequence[Work]) -> int:
    """No fewer servers of this kind can do all of this in time."""
    needed = 0.0
    for work in works:
        needed += DOUBT * seconds_of(engine, work) / work.within_s
    return max(1, math.ceil(needed - 1e-9))


def seconds_of(engine: Engine, work: Work) -> float:
    """The least time that one server takes for all of it.

    Of any step with t new tokens and d decodes, and any prices a and b of these, the time is at
    least m * (a * t + b * d), where m is the least of time / (a * t + b * d) over all steps. So all
    steps together take m * (a * T + b * D). With prices for which pure steps come out even, a mixed
    step that does both for the time of one has a small m, and one that takes the sum an m of 1.
    """
    most = _most_decodes(engine, work)
    budget = int(engine.limits.max_num_batched_tokens)
    sizes = sorted({max(1, budget >> power) for power in range(0, 16, 2)})
    batches = sorted({max(1, most >> power) for power in range(16)})
    pure = [(t, 0, _step_s(engine, work, t, 0)) for t in sizes]
    writing = [(0, d, _step_s(engine, work, 0, d)) for d in batches]
    a = min(time_s / t for t, _, time_s in pure)
    b = min(time_s / d for _, d, time_s in writing)
    mixed = [(t, d, _step_s(engine, work, t, d)) for t in sizes for d in batches if t + d <= budget]
    least = min(
        (time_s / (a * t + b * d) for t, d, time_s in mixed),
        default=1.0,
    )
    both = min(1.0, least) * (a * work.new_tokens + b * work.decodes)
    return max(both, a * work.new_tokens, b * work.decodes)


def _most_decodes(engine: Engine, work: Work) -> int:
    limits = engine.limits
    most = min(int(limits.max_num_seqs), int(limits.max_num_batched_tokens))
    own = max(1.0, work.context - work.shared)
    held = int(limits.usable_blocks) * int(limits.block_size) / own
    return max(1, min(most, math.ceil(ROOM * held)))


PIECES = (1, 8, 64)
"""Into how many prompts the new tokens of a step are cut: short ones have less to attend to."""


def _step_s(engine: Engine, work: Work, new: int, decodes: int) -> float:
    context = round(decodes * work.context)
    if new == 0:
        return engine.model.step_s(StepWork([], decodes, context, decodes))
    times = []
    for pieces in PIECES:
        size = new // pieces
        if size:
            chunks = [(size, 0, size)] * pieces
            first = new - size * (pieces - 1)
            chunks[0] = (first, 0, first)
            times.append(engine.model.step_s(StepWork(chunks, decodes, context, decodes)))
    return min(times)
