"""The fast engine and the reference engine give the same schedule, times, blocks and gaps."""

import math
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.limits import adapters, engine_limits
from tests.engine.reference.engine import ReferenceServer
from windtunnel.engine.adapters import Slots
from windtunnel.engine.limits import (
    SCHEDULING,
    EngineLimits,
    TierLimits,
    WindowGroups,
)
from windtunnel.engine.server import Server
from windtunnel.engine.settings import LoraSettings, SpeculativeSettings
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.step_time.blis import BlisTrainedPhysics
from windtunnel.models.step_time.linear import Linear
from windtunnel.models.step_time.model import MeasuredBounds, StepTimeModel, StepWork
from windtunnel.models.step_time.physics import Ranks
from windtunnel.models.step_time.profile import physics_model
from windtunnel.models.step_time.roofline import Roofline
from windtunnel.models.step_time.table import Grid, Table, TimeCurve
from windtunnel.workload.request import PrefixChain, Request

TICK = 2.0**-20
"""Times are multiples of this, so sums are exact and ties are ties in both engines."""


class Kinked(StepTimeModel):
    """A line with kinks, as a roofline or a table of measurements has."""

    def __init__(
        self,
        knots: list[int],
        slopes: list[int],
        fixed: int,
        prefill: int,
        bounds: MeasuredBounds | None,
    ) -> None:
        self.bounds = bounds
        self.knots = knots
        self.slopes = slopes
        self.fixed = fixed
        self.prefill = prefill

    def __repr__(self) -> str:
        return f"Kinked({self.knots}, {self.slopes}, {self.fixed}, {self.prefill}, {self.bounds})"

    def measured(self) -> MeasuredBounds | None:
        return self.bounds

    def decode_line(self, decodes: int, context: int) -> tuple[float, float, float]:
        base, low = self.fixed + decodes, 0
        for knot, slope in zip([*self.knots, math.inf], self.slopes, strict=True):
            if context < knot:
                return ((base - slope * low) * TICK, slope * TICK, knot)
            base += slope * (int(knot) - low)
            low = int(knot)
        raise AssertionError

    def step_s(self, work: StepWork) -> float:
        base, slope, _ = self.decode_line(work.decodes, work.context)
        tokens = sum(c[0] for c in work.chunks) + work.drafted
        return base + slope * work.context + tokens * self.prefill * TICK


def loras() -> st.SearchStrategy[LoraSettings]:
    return st.builds(
        adapters,
        slots=st.integers(1, 4),
        load_s=st.sampled_from([0, 3, 50, 700]).map(lambda ticks: ticks * TICK),
        step_cost=st.sampled_from([0.0, 0.25, 1.0]),
    )


def tiers() -> st.SearchStrategy[TierLimits]:
    return st.builds(
        TierLimits,
        name=st.just("tier"),
        blocks=st.integers(1, 12) | st.integers(1, 200),
        block_s=st.sampled_from([1, 7, 100]).map(lambda ticks: ticks * TICK),
        latency_s=st.sampled_from([0, 5, 300]).map(lambda ticks: ticks * TICK),
    )


def windows() -> st.SearchStrategy[WindowGroups]:
    return st.builds(
        WindowGroups,
        full=st.sampled_from([1, 1, 3]),
        windowed=st.integers(1, 5),
        most_blocks=st.integers(1, 4),
    )


seeds = st.integers(0, 1 << 32)


@st.composite
def limits(draw: st.DrawFn, habits: bool = True) -> EngineLimits:
    """Any; without `habits` only such as can hand out tokens one by one."""
    seqs = draw(st.sampled_from([1, 2, 3, 5, 8, 16]))
    caching = draw(st.booleans())
    overlaps = draw(st.booleans())
    between = habits and not overlaps
    below = draw(st.none() | st.lists(tiers(), min_size=1, max_size=3)) if caching else None
    return engine_limits(
        kv_blocks=draw(st.integers(6, 60)),
        max_num_seqs=seqs,
        max_num_batched_tokens=seqs + draw(st.sampled_from([0, 1, 7, 20, 64, 300])),
        block_size=draw(st.sampled_from([1, 2, 4, 16])),
        max_model_len=draw(st.sampled_from([30, 100, 1 << 40])),
        long_prefill_threshold=draw(st.sampled_from([0, 0, 0, 3, 10])),
        scheduling=draw(st.sampled_from(sorted(SCHEDULING))),
        prefix_caching=caching,
        chunked_prefill=draw(st.sampled_from([True, True, True, False])),
        mixed_batches=draw(st.sampled_from([True, False])),
        ranks=draw(st.sampled_from([1, 1, 2, 3])),
        prompt_wait_steps=draw(st.sampled_from([0, 0, 1, 4, 20])),
        async_scheduling=overlaps,
        host_overhead_s=draw(st.sampled_from([0, 3, 40, 200])) * TICK,
        reserve_full_prompt=draw(st.booleans()),
        unhashed_blocks_first=draw(st.booleans()),
        lora=draw(st.none() | loras()),
        tiers=below,
        windows=draw(st.none() | windows()),
        null_block=draw(st.booleans()),
        preemption=draw(st.sampled_from(["recompute", "restart"])) if between else "recompute",
        over_length=draw(st.sampled_from(["cut", "refuse"])),
        last_step_blocks=not between or bool(below) or draw(st.booleans()),
        store_last_token=between and draw(st.booleans()),
        compute_whole_hits=not between or bool(below) or draw(st.booleans()),
    )


@st.composite
def drafting(draw: st.DrawFn) -> EngineLimits:
    """Any limits of a server that drafts."""
    known = draw(limits(habits=False))
    tokens = draw(st.integers(1, 5))
    rates = sorted(draw(st.lists(st.floats(0, 1), min_size=tokens, max_size=tokens)), reverse=True)
    speculative = SpeculativeSettings(
        method=draw(st.sampled_from(["draft_model", "ngram"])),
        num_speculative_tokens=tokens,
        acceptance=rates,
    )
    options = known.options.model_copy(update={"speculative": speculative})
    parallel = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2)]))
    return EngineLimits(
        options,
        known.kv_blocks,
        known.max_model_len,
        known.tiers,
        known.windows,
        draw(seeds),
        *parallel,
    )


@st.composite
def models(draw: st.DrawFn) -> StepTimeModel:
    if draw(st.booleans()):
        return Linear(
            fixed_s=draw(st.integers(1, 100)) * TICK,
            prefill_token_s=draw(st.integers(0, 5)) * TICK,
            decode_s=draw(st.integers(0, 10)) * TICK,
            context_token_s=draw(st.integers(0, 2)) * TICK,
        )
    knots = sorted(draw(st.sets(st.integers(1, 400), max_size=4)))
    slopes = draw(st.lists(st.integers(0, 4), min_size=len(knots) + 1, max_size=len(knots) + 1))
    bounds = draw(st.none() | measured())
    return Kinked(knots, slopes, draw(st.integers(1, 100)), draw(st.integers(0, 5)), bounds)


@st.composite
def measured(draw: st.DrawFn) -> MeasuredBounds:
    """Bounds that some steps keep and some do not, each of them perhaps out of the way."""
    sizes = (st.integers(low, high) for low, high in ((1, 80), (0, 9), (0, 120), (1, 90)))
    return MeasuredBounds(*(draw(st.just(1 << 30) | size) for size in sizes))


class Shape(NamedTuple):
    """A request to be made anew for each engine."""

    at: int
    prompt: int
    output: int
    priority: int
    prefix: PrefixChain | None
    answer_key: int = -1
    adapter: int = -1

    def request(self, number: int) -> Request:
        at_s = self.at * TICK
        made = Request(number, at_s, self.prompt, self.output, self.priority, 0, self.prefix)
        made.answer_key = self.answer_key
        made.adapter = self.adapter
        return made


@st.composite
def prefixes(draw: st.DrawFn, prompt: int, lengths: list[list[int]]) -> PrefixChain:
    """Some of a group's segments, the last one perhaps cut short: how traces share prompts."""
    group = draw(st.integers(0, len(lengths) - 1))
    ends: list[int] = []
    for length in lengths[group][: draw(st.integers(1, 3))]:
        ends.append(min((ends[-1] if ends else 0) + length, prompt))
        if ends[-1] == prompt:
            break
    ends[-1] -= draw(st.integers(0, ends[-1] - (ends[-2] if len(ends) > 1 else 0) - 1))
    return PrefixChain([group * 10 + depth for depth in range(len(ends))], ends)


@st.composite
def traffic(draw: st.DrawFn) -> list[Shape]:
    lengths = draw(
        st.lists(st.lists(st.integers(1, 30), min_size=3, max_size=3), min_size=1, max_size=3)
    )
    requests: list[Shape] = []
    now = 0
    for _ in range(draw(st.integers(1, 25))):
        now += draw(st.sampled_from([0, 0, 1, 5, 50, 300, 3000])) + draw(st.integers(0, 20))
        prompt = draw(st.integers(1, 60))
        prefix = draw(st.none() | prefixes(prompt, lengths))
        output = draw(st.integers(1, 4) | st.integers(1, 120))
        said = [r for r in requests if r.answer_key >= 0 and r.prompt + r.output <= 90]
        if draw(st.booleans()) and said:
            prefix = continued(draw(st.sampled_from(said)))
            prompt = prefix.ends[-1] + draw(st.integers(0, 20))
        answer = 1000 + len(requests) if draw(st.booleans()) else -1
        priority, adapter = draw(st.integers(-2, 3)), draw(st.integers(-1, 4))
        requests.append(Shape(now, prompt, output, priority, prefix, answer, adapter))
    return requests


def continued(said: Shape) -> PrefixChain:
    """A prompt that starts with another and with the answer to it."""
    before = said.prefix or PrefixChain([], [])
    keys = [*before.keys, said.answer_key]
    return PrefixChain(keys, [*before.ends, said.prompt + said.output])


def drive(
    server: Server | ReferenceServer, arrivals: list[Request], horizon: float = math.inf
) -> list[tuple[float, int]]:
    """Feeds requests and time as a driver does: arrivals before steps that end at the same time."""
    seen: list[tuple[float, int]] = []
    position = 0
    for _ in range(200_000):
        arrival = arrivals[position].arrived_s if position < len(arrivals) else math.inf
        if min(arrival, server.wake_s) > horizon or arrival == math.inf == server.wake_s:
            if horizon < math.inf:
                server.stop(horizon)
            return seen
        if arrival <= server.wake_s:
            server.submit(arrivals[position], arrival)
            position += 1
        else:
            now, steps = server.wake_s, server.steps
            server.advance(now)
            if isinstance(server, Server):
                free, _ = server.pool.recount()
                assert free == server.pool.free
                if server.limits.last_step_blocks or server.steps > steps:
                    # Else somebody's end may have woken it in the middle of a run of steps.
                    seen.append((now, free))
    raise AssertionError("the run does not end")


def requests_of(shapes: list[Shape]) -> list[Request]:
    return [shape.request(number) for number, shape in enumerate(shapes)]


def outcome(request: Request) -> tuple[object, ...]:
    return (
        request.id,
        request.reason,
        request.scheduled_s,
        request.first_token_s,
        request.finished_s,
        request.preemptions,
        request.prefix_hit_tokens,
    )


def check_extrapolation(fast: Server, slow: ReferenceServer) -> None:
    """Steps that are larger than what was measured are the same ones."""
    found = fast.extrapolation
    if found is None:
        assert slow.beyond.counts["steps"] == 0
        return
    assert slow.beyond.counts == {
        "steps": found.steps,
        "tokens": found.over_tokens,
        "decodes": found.over_decodes,
        "context": found.over_context,
    }
    assert slow.beyond.most == {
        "tokens": found.most_tokens,
        "decodes": found.most_decodes,
        "context": found.most_context,
    }
    assert found.time_s == pytest.approx(slow.beyond.time_s, rel=1e-9, abs=1e-12)


def adapters_of(server: Server | ReferenceServer) -> tuple[object, ...]:
    """Which were loaded and evicted how often, and which are there."""
    slots = server.slots
    if slots is None:
        return ()
    here = slots.loaded() if isinstance(slots, Slots) else sorted(slots.last_used)
    return dict(slots.loads), dict(slots.evictions), here


def drafts_of(server: Server | ReferenceServer) -> tuple[int, int, int]:
    """Drafts that were verified, their tokens, and those that were right."""
    if isinstance(server, ReferenceServer):
        return server.verified, server.drafted, server.accepted
    drafts = server.drafts
    return (0, 0, 0) if drafts is None else (drafts.steps, drafts.drafted, drafts.accepted)


def tiers_of(server: Server | ReferenceServer) -> list[tuple[int, int, int]]:
    """Blocks that came, that were loaded and that are there, by tier."""
    if isinstance(server, ReferenceServer):
        return [(tier.stored, tier.loaded, len(tier.names)) for tier in server.blocks.tiers]
    if server.tiers is None:
        return []
    assert server.tiers.fault() is None
    return [(int(t.stored), int(t.loaded), int(t.used)) for t in server.tiers.tiers]


@given(limits() | drafting(), models(), traffic())
def test_the_fast_engine_equals_the_reference(
    limits: EngineLimits,
    model: StepTimeModel,
    shapes: list[Shape],
) -> None:
    slow, fast = ReferenceServer(0, limits, model), Server(0, limits, model)
    drive(slow, requests_of(shapes))
    events = drive(fast, requests_of(shapes))

    assert [outcome(r) for r in fast.finished] == [outcome(r) for r in slow.finished]
    assert len(fast.finished) == len(shapes)
    last_admissions = list(dict.fromkeys(reversed(slow.admission_order)))[::-1]
    admitted = sorted((r for r in fast.finished if r.admission >= 0), key=lambda r: r.admission)
    preempted_at_the_end = {r.id for r in fast.finished if r.admission < 0}
    assert [r.id for r in admitted] == [i for i in last_admissions if i not in preempted_at_the_end]
    assert (fast.steps, fast.preemptions, fast.prefilled_tokens) == (
        slow.steps,
        slow.preemptions,
        slow.prefilled_tokens,
    )
    assert math.isclose(fast.busy_s, slow.busy_s, rel_tol=1e-9)
    free_after = dict(slow.free_after)
    assert all(free_after[now] == free for now, free in events)
    assert fast.pool.lowest_free == slow.blocks.lowest_free
    assert fast.pool.free == fast.pool.blocks
    check_extrapolation(fast, slow)
    assert drafts_of(fast) == drafts_of(slow)
    assert adapters_of(fast) == adapters_of(slow)
    assert tiers_of(fast) == tiers_of(slow)
    assert fast.token_gaps.buckets == slow.token_gaps.buckets
    assert (fast.token_gaps.count, fast.token_gaps.low, fast.token_gaps.high) == (
        slow.token_gaps.count,
        slow.token_gaps.low,
        slow.token_gaps.high,
    )


@given(limits() | drafting(), models(), traffic(), st.integers(0, 4000))
def test_a_run_that_is_cut_off_counts_the_same(
    limits: EngineLimits, model: StepTimeModel, shapes: list[Shape], end: int
) -> None:
    slow, fast = ReferenceServer(0, limits, model), Server(0, limits, model)
    drive(slow, requests_of(shapes), end * TICK)
    drive(fast, requests_of(shapes), end * TICK)
    assert [outcome(r) for r in fast.finished] == [outcome(r) for r in slow.finished]
    assert fast.steps == slow.steps
    assert math.isclose(fast.busy_s, slow.busy_s, rel_tol=1e-9)
    check_extrapolation(fast, slow)
    assert fast.token_gaps.buckets == slow.token_gaps.buckets
    arrived = sum(shape.at <= end for shape in shapes)
    assert len(fast.finished) + len(fast.unfinished()) == arrived
    assert fast.pool.recount()[0] + fast.blocks_held() == fast.pool.blocks
    if not limits.async_scheduling:
        # An overlapped step is planned when the one before it starts; the fast engine, later.
        assert fast.preemptions == slow.preemptions
        assert fast.pool.lowest_free == slow.blocks.lowest_free


def a_table() -> Table:
    """Small tables with uneven knots, as measurements have."""

    def grid(times: list[list[float]]) -> Grid:
        curves = [TimeCurve([0.0, 16.0, 100.0], [ms / 1000 for ms in row]) for row in times]
        return Grid([1.0, 8.0, 40.0][: len(curves)], [], curves)

    prompt = grid([[1.0, 1.1, 1.5], [1.2, 1.25, 2.0], [3.0, 3.5, 4.0]])
    decode = grid([[1.0, 1.05, 1.4], [1.1, 1.3, 2.1]])
    bounds = MeasuredBounds(48, 8, 60, 55)
    head = TimeCurve([1.0, 16.0], [0.0001, 0.0002])
    return Table(prompt, decode, None, 0.0, None, head, 0.0003, bounds)


LLAMA = resolve_model("llama-3.1-8b")
MIXTRAL = resolve_model("mixtral-8x7b")
GEMMA = resolve_model("gemma-3-4b")
HYBRID = resolve_model("qwen3.5-35b-a3b")
DEEPSEEK = resolve_model("deepseek-v3.2")
H200, L40S = resolve_accelerator("h200"), resolve_accelerator("l40s")
REAL_MODELS: dict[str, StepTimeModel] = {
    "physics": physics_model(LLAMA, H200),
    "physics, experts": physics_model(MIXTRAL, H200, tensor_parallel=2),
    "physics, window": physics_model(GEMMA, L40S),
    "physics, recurrent": physics_model(HYBRID, H200),
    "physics, ranks": physics_model(
        DEEPSEEK, H200, expert_parallel=8, ranks=Ranks(8, "deepep_low_latency")
    ),
    "roofline": Roofline(LLAMA, L40S),
    "roofline, experts": Roofline(MIXTRAL, H200, tensor_parallel=2),
    "blis-trained-physics": BlisTrainedPhysics(LLAMA, resolve_accelerator("h100")),
    "table": a_table(),
}


@pytest.mark.parametrize("name", REAL_MODELS)
@given(limits=limits(), shapes=traffic(), pace_s=st.floats(1e-4, 0.1))
def test_the_engines_agree_on_real_step_times(
    name: str, limits: EngineLimits, shapes: list[Shape], pace_s: float
) -> None:
    """Times are no longer exact in binary, so sums may differ in their last digits."""
    slow = ReferenceServer(0, limits, REAL_MODELS[name])
    fast = Server(0, limits, REAL_MODELS[name])
    for server in (slow, fast):
        arrivals = requests_of(shapes)
        for request in arrivals:
            # No arrival coincides with the end of a step, where a last digit would decide.
            ticks = request.arrived_s / TICK + float(request.id) * math.pi / 1000
            request.arrived_s = ticks * pace_s / 99
        drive(server, arrivals)
    for one, other in zip(fast.finished, slow.finished, strict=True):
        assert outcome(one)[:2] == outcome(other)[:2]
        assert outcome(one)[2:] == pytest.approx(outcome(other)[2:], rel=1e-9)
    assert (fast.steps, fast.preemptions) == (slow.steps, slow.preemptions)
    assert fast.pool.lowest_free == slow.blocks.lowest_free
    check_extrapolation(fast, slow)
    assert fast.token_gaps.count == slow.token_gaps.count
    assert fast.token_gaps.total == pytest.approx(slow.token_gaps.total, rel=1e-9)


@given(
    limits(), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20)), min_size=1, max_size=20)
)
def test_chains_that_contradict_each_other_lose_no_block(
    limits: EngineLimits, chains: list[tuple[int, int]]
) -> None:
    model = Linear(fixed_s=TICK, prefill_token_s=TICK)
    server = Server(0, limits, model)
    drive(
        server,
        [
            Request(n, n * TICK, 40, 3, 0, 0, PrefixChain([key, 3 - key, key], [end, end + 5, 40]))
            for n, (key, end) in enumerate(chains)
        ],
    )
    assert len(server.finished) == len(chains)
    assert server.pool.free == server.pool.blocks
