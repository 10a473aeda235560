"""KV in slower tiers: both engines agree, and on what."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.limits import engine_limits
from tests.engine.reference.engine import ReferenceServer
from tests.engine.test_equivalence import (
    TICK,
    Shape,
    drive,
    loras,
    models,
    requests_of,
    tiers,
    tiers_of,
)
from tests.engine.test_leaving_and_moving import FATES, Fate, driven, free_blocks, record, until
from tests.engine.test_schedule import ONE_SECOND, Engine, Make, asks, serve, shared
from tests.engine.test_schedule import limits as settings
from windtunnel.core.errors import InputError
from windtunnel.engine.limits import SCHEDULING, EngineLimits, TierLimits
from windtunnel.engine.server import Server
from windtunnel.models.step_time.model import StepTimeModel
from windtunnel.workload.request import PrefixChain


@st.composite
def tight(draw: st.DrawFn) -> EngineLimits:
    """Servers whose cache is too small for what comes, with tiers below."""
    seqs = draw(st.sampled_from([1, 2, 4, 8]))
    return engine_limits(
        kv_blocks=draw(st.integers(12, 30)),
        max_num_seqs=seqs,
        max_num_batched_tokens=seqs + draw(st.sampled_from([4, 20, 200])),
        block_size=draw(st.sampled_from([1, 2, 4])),
        long_prefill_threshold=draw(st.sampled_from([0, 0, 3])),
        scheduling=draw(st.sampled_from(sorted(SCHEDULING))),
        async_scheduling=draw(st.booleans()),
        host_overhead_s=draw(st.sampled_from([0, 3])) * TICK,
        reserve_full_prompt=draw(st.booleans()),
        unhashed_blocks_first=draw(st.booleans()),
        lora=draw(st.none() | st.none() | loras()),
        tiers=draw(st.lists(tiers(), min_size=1, max_size=3)),
    )


@st.composite
def returning(draw: st.DrawFn) -> list[Shape]:
    """Few long prefixes that come again and again, cut short here and there, and conversations."""
    shapes: list[Shape] = []
    now = 0
    for number in range(draw(st.integers(2, 20))):
        now += draw(st.sampled_from([0, 1, 30, 200, 2000])) + draw(st.integers(0, 9))
        group = draw(st.integers(0, 2))
        ends = [9, 12, 12 + draw(st.integers(1, 9))][: draw(st.integers(1, 3))]
        prefix = PrefixChain([group * 10 + depth for depth in range(len(ends))], ends)
        said = [one for one in shapes if one.answer_key >= 0 and one.prompt + one.output < 40]
        if draw(st.booleans()) and said:
            before = draw(st.sampled_from(said))
            assert before.prefix is not None
            prefix = PrefixChain(
                [*before.prefix.keys, before.answer_key],
                [*before.prefix.ends, before.prompt + before.output],
            )
        prompt = prefix.ends[-1] + draw(st.integers(0, 4))
        answer = 1000 + number if draw(st.booleans()) else -1
        output = draw(st.integers(1, 12))
        adapter = draw(st.integers(-1, 2))
        shapes.append(Shape(now, prompt, output, draw(st.integers(0, 2)), prefix, answer, adapter))
    return shapes


def figures(server: Server | ReferenceServer) -> dict[str, Any]:
    return {
        "steps": server.steps,
        "preemptions": server.preemptions,
        "prefilled": server.prefilled_tokens,
        "tiers": tiers_of(server),
        "gaps": server.token_gaps.buckets,
        "finished": [record(request) for request in server.finished],
    }


@given(tight(), models(), returning())
def test_the_engines_agree_on_what_tiers_hold_and_load(
    limits: EngineLimits, model: StepTimeModel, shapes: list[Shape]
) -> None:
    slow, fast = ReferenceServer(0, limits, model), Server(0, limits, model)
    drive(slow, requests_of(shapes))
    events = drive(fast, requests_of(shapes))
    assert figures(fast) == figures(slow)
    assert math.isclose(fast.busy_s, slow.busy_s, rel_tol=1e-9)
    free_after = dict(slow.free_after)
    assert all(free_after[now] == free for now, free in events)
    assert fast.pool.lowest_free == slow.blocks.lowest_free
    assert fast.pool.free == fast.pool.blocks


@given(tight(), models(), returning(), st.lists(FATES, min_size=1, max_size=8))
def test_the_engines_agree_on_tiers_when_requests_leave_and_kv_is_moved(
    limits: EngineLimits, model: StepTimeModel, shapes: list[Shape], fates: list[Fate]
) -> None:
    slow = driven(ReferenceServer(0, limits, model), shapes, fates)
    fast = driven(Server(0, limits, model), shapes, fates)
    assert fast.story == slow.story
    assert figures(fast.server) == figures(slow.server)
    assert [record(r) for r in fast.requests] == [record(r) for r in slow.requests]


@pytest.fixture(params=[Server, ReferenceServer], ids=["fast", "reference"])
def engine(request: pytest.FixtureRequest) -> Make:
    make: Make = request.param
    return make


HOST = TierLimits("cpu", blocks=100, block_s=0.25, latency_s=0.5)
DISK = TierLimits("disk", blocks=100, block_s=1.0, latency_s=2.0)


def small(make: Make, *below: TierLimits, **more: Any) -> Engine:
    """Ten blocks of 16 tokens, and steps of a second."""
    return make(0, settings(kv_blocks=11, tiers=list(below), **more), ONE_SECOND)


def fill(server: Engine, number: int, at: float) -> None:
    """Takes every block of the server for a step, so that what was cached is evicted."""
    serve(server, asks(number, 160, 1, at))
    assert free_blocks(server) == 10


def test_what_was_evicted_is_loaded_and_not_computed(engine: Make) -> None:
    """Four blocks take a second, and half a second of latency. The rest is one step."""
    server = small(engine, HOST)
    serve(server, asks(0, 70, 1, prefix=shared(64)))
    fill(server, 1, at=10.0)
    again = asks(2, 70, 1, 20.0, prefix=shared(64))
    serve(server, again)
    assert again.prefix_hit_tokens == 64
    assert (again.scheduled_s, again.finished_s) == (21.5, 22.5)
    assert server.prefilled_tokens == 70 + 160 + 6


def test_others_overtake_a_request_whose_kv_is_being_loaded(engine: Make) -> None:
    """It takes no part in steps, but its blocks are its own from the start."""
    server = small(engine, HOST)
    serve(server, asks(0, 70, 1, prefix=shared(64)))
    fill(server, 1, at=10.0)
    loads, passes = asks(2, 70, 1, 20.0, prefix=shared(64)), asks(3, 16, 1, 20.0)
    too_large = asks(4, 96, 1, 20.0)
    serve(server, loads, passes, too_large)
    assert (passes.scheduled_s, loads.scheduled_s) == (20.0, 21.5)
    assert too_large.scheduled_s == loads.finished_s == 22.5


def test_requests_that_want_the_same_blocks_wait_for_one_load(engine: Make) -> None:
    server = small(engine, HOST)
    serve(server, asks(0, 70, 1, prefix=shared(64)))
    fill(server, 1, at=10.0)
    first, second = (asks(number, 70, 1, 20.0, prefix=shared(64)) for number in (2, 3))
    third = asks(4, 70, 1, 21.0, prefix=shared(64))
    serve(server, first, second, third)
    assert first.scheduled_s == second.scheduled_s == third.scheduled_s == 21.5
    assert tiers_of(server)[0][1] == 4  # blocks loaded


def test_loads_of_a_tier_go_one_after_another(engine: Make) -> None:
    """The way is busy for half a second with each; latencies overlap."""
    server = small(engine, HOST)
    serve(server, asks(0, 40, 1, prefix=shared(32, key=1)))
    serve(server, asks(1, 40, 1, 5.0, prefix=shared(32, key=2)))
    fill(server, 2, at=10.0)
    one, other = (asks(2 + key, 40, 1, 20.0, prefix=shared(32, key=key)) for key in (1, 2))
    serve(server, one, other)
    assert (one.scheduled_s, other.scheduled_s) == (21.0, 22.0)  # loaded at 21 and at 21.5


def test_tiers_are_filled_from_fast_to_slow_and_loaded_side_by_side(engine: Make) -> None:
    """Of four blocks the last two have gone on to disk, and take 2 * 1 + 2 seconds."""
    host = TierLimits("cpu", blocks=2, block_s=0.25, latency_s=0.5)
    server = small(engine, host, DISK)
    serve(server, asks(0, 70, 1, prefix=shared(64)))
    fill(server, 1, at=10.0)
    assert [tier[2] for tier in tiers_of(server)] == [2, 2]
    again = asks(2, 70, 1, 20.0, prefix=shared(64))
    serve(server, again)
    assert again.scheduled_s == 24.0
    assert [tier[1] for tier in tiers_of(server)] == [2, 2]


def test_what_no_tier_has_is_computed(engine: Make) -> None:
    """Of four blocks the one place keeps the first, because the end is evicted first."""
    server = small(engine, TierLimits("cpu", blocks=1, block_s=0.25, latency_s=0.5))
    serve(server, asks(0, 70, 1, prefix=shared(64)))
    fill(server, 1, at=10.0)
    again = asks(2, 70, 1, 20.0, prefix=shared(64))
    serve(server, again)
    assert (again.prefix_hit_tokens, again.scheduled_s) == (16, 20.75)
    assert server.prefilled_tokens == 70 + 160 + 54


def test_what_nobody_will_ask_for_takes_up_room_all_the_same(engine: Make) -> None:
    """Ten blocks of a prompt of its own push four of a prefix out of a tier with twelve."""
    server = small(engine, TierLimits("cpu", blocks=12, block_s=0.25, latency_s=0.5))
    serve(server, asks(0, 70, 1, prefix=shared(64)))
    for number in (1, 2):
        fill(server, number, at=10.0 * number)
    again = asks(3, 70, 1, 30.0, prefix=shared(64))
    serve(server, again)
    assert again.prefix_hit_tokens == 32


def test_a_conversation_comes_back_with_its_answers(engine: Make) -> None:
    server = small(engine, HOST)
    first = asks(0, 33, 20, prefix=shared(33))
    first.answer_key = 8
    serve(server, first)
    fill(server, 1, at=50.0)
    second = asks(2, 86, 1, 60.0, prefix=PrefixChain([7, 8], [33, 53]))
    serve(server, second)
    assert second.prefix_hit_tokens == 48
    assert second.scheduled_s == 60 + 3 * 0.25 + 0.5


def test_a_preempted_request_gets_its_own_tokens_back(engine: Make) -> None:
    """The second gives way to the first; what both had computed of it is found in the tier."""
    server = small(engine, HOST)
    first, second = asks(0, 64, 60), asks(1, 64, 60)
    serve(server, first, second)
    assert second.preemptions == 1
    ((_, loaded, _),) = tiers_of(server)
    assert loaded > 0
    computed_again = server.prefilled_tokens - 2 * 64
    assert computed_again < 64


def test_cancelled_while_its_kv_is_loaded(engine: Make) -> None:
    """What is on the way arrives all the same, and whoever comes next waits for it."""
    server = small(engine, HOST)
    serve(server, asks(0, 70, 1, prefix=shared(64)))
    fill(server, 1, at=10.0)
    gone, next_ = (asks(number, 70, 1, 20.0, prefix=shared(64)) for number in (2, 3))
    server.submit(gone, 20.0)
    until(server, 20.5)
    server.cancel(gone, 20.5)
    assert free_blocks(server) == 10
    server.submit(next_, 21.0)
    until(server, math.inf)
    assert next_.scheduled_s == 21.5
    assert gone not in server.finished
    assert tiers_of(server)[0][1] == 4


def test_moved_kv_waits_for_what_is_still_on_its_way_from_a_tier(engine: Make) -> None:
    server = small(engine, HOST)
    serve(server, asks(0, 70, 1, prefix=shared(64)))
    fill(server, 1, at=10.0)
    loads, moved = asks(2, 65, 1, 20.0, prefix=shared(64)), asks(3, 70, 2, prefix=shared(64))
    server.submit(loads, 20.0)
    until(server, 20.5)
    assert server.reserve(moved, 70, 20.5) == 6
    server.submit_arrived(moved, 20.75)
    until(server, math.inf)
    assert moved.scheduled_s == loads.scheduled_s == 21.5


def test_tiers_without_a_cache_are_refused() -> None:
    with pytest.raises(InputError, match="prefix_caching is off"):
        settings(tiers=[HOST], prefix_caching=False)
    with pytest.raises(InputError, match="room for 0 blocks"):
        TierLimits("cpu", blocks=0, block_s=1.0, latency_s=0.0)
