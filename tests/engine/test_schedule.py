"""What vLLM's scheduler does, one behaviour a test, on the fast engine and on the reference."""

import math
from collections.abc import Callable

import pytest

from tests.engine.limits import engine_limits
from tests.engine.reference.engine import ReferenceServer
from windtunnel.engine.limits import LENGTH_CAPPED, EngineLimits
from windtunnel.engine.server import Server
from windtunnel.models.step_time.linear import Linear
from windtunnel.models.step_time.model import StepTimeModel
from windtunnel.workload.request import PrefixChain, Request

Engine = Server | ReferenceServer
Make = Callable[[int, EngineLimits, StepTimeModel], Engine]

ONE_SECOND = Linear(fixed_s=1.0)
"""Every step takes a second, so times count steps."""


@pytest.fixture(params=[Server, ReferenceServer], ids=["fast", "reference"])
def engine(request: pytest.FixtureRequest) -> Make:
    make: Make = request.param
    return make


def limits(**settings: object) -> EngineLimits:
    """Synchronous scheduling unless said otherwise: step k+1 is planned when k has ended."""
    chosen = {"kv_blocks": 1001, "max_num_batched_tokens": 8192, "async_scheduling": False}
    return engine_limits(**{**chosen, **settings})  # type: ignore[arg-type]


def serve(server: Engine, *requests: Request) -> dict[int, Request]:
    """Runs requests to their end; they are also returned by id."""
    waiting = list(requests)
    for _ in range(10_000):
        if waiting and waiting[0].arrived_s <= server.wake_s:
            server.submit(waiting[0], waiting.pop(0).arrived_s)
        elif server.wake_s < math.inf:
            server.advance(server.wake_s)
        elif not waiting:
            return {request.id: request for request in server.finished}
    raise AssertionError("the run does not end")


def asks(number: int, prompt: int, output: int, at: float = 0.0, **more: object) -> Request:
    return Request(number, at, prompt, output, **more)  # type: ignore[arg-type]


def shared(tokens: int, key: int = 7) -> PrefixChain:
    return PrefixChain([key], [tokens])


def free_blocks(server: Engine) -> int:
    return int(server.pool.free) if isinstance(server, Server) else len(server.blocks.free)


def test_the_first_token_comes_from_the_last_step_of_the_prompt(engine: Make) -> None:
    server = engine(0, limits(max_num_batched_tokens=300), ONE_SECOND)
    served = serve(server, asks(0, prompt=600, output=3))
    assert (served[0].first_token_s, served[0].finished_s) == (2.0, 4.0)


def test_running_requests_go_before_waiting_ones(engine: Make) -> None:
    """Decodes take their tokens of the budget first; a new prompt gets the rest in chunks."""
    server = engine(0, limits(max_num_batched_tokens=10, max_num_seqs=10), ONE_SECOND)
    served = serve(server, asks(0, 5, 8), asks(1, 18, 1, at=0.5))
    assert served[0].finished_s == 8.0
    assert (served[1].scheduled_s, served[1].finished_s) == (1.0, 3.0)


def test_prompts_go_alone_and_first_without_mixed_batches(engine: Make) -> None:
    """Request 0 has a token at 1 and 2, waits for two steps of 18 tokens, and goes on beside 1."""
    chosen = limits(max_num_batched_tokens=10, max_num_seqs=10, mixed_batches=False)
    server = engine(0, chosen, ONE_SECOND)
    served = serve(server, asks(0, 5, 4), asks(1, 18, 2, at=1.5))
    assert (served[1].scheduled_s, served[1].first_token_s, served[1].finished_s) == (2.0, 4.0, 5.0)
    assert served[0].finished_s == 6.0
    assert (server.token_gaps.count, server.token_gaps.high) == (4, 3.0)


def test_prompts_wait_until_each_rank_has_one(engine: Make) -> None:
    """Beside two that decode, three prompts are what it takes on average: 2 (1 + 1/2)."""
    chosen = limits(ranks=2, prompt_wait_steps=20)
    served = serve(
        engine(0, chosen, ONE_SECOND),
        asks(0, 5, 30),
        asks(1, 5, 30),
        asks(2, 5, 1, at=1.5),
        asks(3, 5, 1, at=2.5),
        asks(4, 5, 1, at=4.5),
    )
    assert served[0].scheduled_s == served[1].scheduled_s == 0.0
    assert served[2].scheduled_s == served[3].scheduled_s == served[4].scheduled_s == 5.0


def test_prompts_wait_for_other_ranks_for_so_many_steps_at_most(engine: Make) -> None:
    chosen = limits(ranks=2, prompt_wait_steps=3)
    asked = (asks(0, 5, 30), asks(1, 5, 30), asks(2, 5, 1, at=1.5), asks(3, 5, 9, at=20.5))
    served = serve(engine(0, chosen, ONE_SECOND), *asked)
    assert served[2].scheduled_s == 2.0 + 3
    assert served[3].scheduled_s == 21.0 + 3


def test_no_prompt_waits_while_a_rank_has_nothing_to_decode(engine: Make) -> None:
    chosen = limits(ranks=2, prompt_wait_steps=20)
    served = serve(engine(0, chosen, ONE_SECOND), asks(0, 5, 9), asks(1, 5, 9, at=1.5))
    assert served[1].scheduled_s == 2.0


def test_prompts_in_steps_of_their_own_have_the_whole_budget(engine: Make) -> None:
    """Two decodes leave all ten tokens to a prompt that may not be split."""
    chosen = limits(
        max_num_batched_tokens=10, max_num_seqs=3, chunked_prefill=False, mixed_batches=False
    )
    served = serve(
        engine(0, chosen, ONE_SECOND), asks(0, 4, 6), asks(1, 4, 6), asks(2, 10, 1, at=1.5)
    )
    assert (served[2].scheduled_s, served[2].finished_s) == (2.0, 3.0)
    assert served[0].finished_s == served[1].finished_s == 7.0


def test_the_last_admitted_is_the_first_victim(engine: Make) -> None:
    server = engine(0, limits(kv_blocks=13, block_size=4), ONE_SECOND)
    served = serve(server, *(asks(number, 12, 12) for number in range(4)))
    assert [served[number].preemptions for number in range(4)] == [0, 0, 1, 1]


def test_a_preempting_step_admits_nobody(engine: Make) -> None:
    """The urgent request 2 is at the head and would fit where the victim was, but waits a step."""
    server = engine(0, limits(kv_blocks=7, block_size=4, scheduling="priority"), ONE_SECOND)
    served = serve(
        server,
        asks(0, 12, 9, priority=1),
        asks(1, 12, 9, priority=0),
        asks(2, 4, 1, at=0.5, priority=5),
    )
    assert served[1].preemptions == 1
    assert served[2].scheduled_s == 2.0


def test_a_preempted_request_keeps_its_tokens_and_goes_to_the_front(engine: Make) -> None:
    server = engine(0, limits(kv_blocks=7, block_size=4, prefix_caching=False), ONE_SECOND)
    served = serve(server, asks(0, 12, 9), asks(1, 12, 9), asks(2, 12, 2, at=0.5))
    assert served[1].preemptions == 1
    assert served[1].first_token_s == 1.0
    assert served[2].scheduled_s >= served[1].finished_s - 9.0
    assert served[1].finished_s < served[2].finished_s


def test_the_head_of_the_queue_blocks_those_behind_it(engine: Make) -> None:
    """A small request does not pass a large one that waits for blocks."""
    server = engine(0, limits(kv_blocks=11, block_size=4), ONE_SECOND)
    served = serve(server, asks(0, 28, 4), asks(1, 20, 1, at=0.5), asks(2, 4, 1, at=0.6))
    assert served[1].scheduled_s == served[0].finished_s
    assert served[2].scheduled_s == served[1].scheduled_s


def test_a_whole_prompt_is_reserved_before_its_first_chunk(engine: Make) -> None:
    reserving = limits(kv_blocks=11, block_size=4, max_num_seqs=4, max_num_batched_tokens=8)
    eager = limits(
        kv_blocks=11,
        block_size=4,
        max_num_seqs=4,
        max_num_batched_tokens=8,
        reserve_full_prompt=False,
    )
    starts = []
    for setting in (reserving, eager):
        served = serve(engine(0, setting, ONE_SECOND), asks(0, 24, 6), asks(1, 20, 1, at=2.5))
        starts.append(served[1].scheduled_s)
    assert starts[0] > starts[1]


def test_a_full_hit_still_computes_the_last_block(engine: Make) -> None:
    server = engine(0, limits(), ONE_SECOND)
    served = serve(
        server,
        asks(0, 64, 1, prefix=shared(64)),
        asks(1, 64, 1, at=5.0, prefix=shared(64)),
        asks(2, 65, 1, at=10.0, prefix=shared(64)),
    )
    assert [served[number].prefix_hit_tokens for number in range(3)] == [0, 48, 64]


def test_a_request_hits_what_another_is_only_about_to_compute_in_the_same_step(
    engine: Make,
) -> None:
    server = engine(0, limits(), ONE_SECOND)
    served = serve(server, asks(0, 80, 1, prefix=shared(64)), asks(1, 80, 1, prefix=shared(64)))
    assert served[0].scheduled_s == served[1].scheduled_s
    assert served[1].prefix_hit_tokens == 64


def test_the_end_of_a_cached_prefix_is_evicted_first(engine: Make) -> None:
    """Ten blocks: a cached prefix of four, then seven taken. What is left is its beginning."""
    server = engine(0, limits(kv_blocks=11, block_size=16), ONE_SECOND)
    served = serve(
        server,
        asks(0, 64, 1, prefix=shared(64)),
        asks(1, 112, 1, at=5.0),
        asks(2, 65, 1, at=10.0, prefix=shared(64)),
    )
    assert served[2].prefix_hit_tokens == 48


def test_the_least_recently_used_prefix_is_evicted_first(engine: Make) -> None:
    server = engine(0, limits(kv_blocks=13, block_size=16), ONE_SECOND)
    served = serve(
        server,
        asks(0, 64, 1, prefix=shared(64, key=1)),
        asks(1, 64, 1, at=2.0, prefix=shared(64, key=2)),
        asks(2, 65, 1, at=4.0, prefix=shared(64, key=1)),
        asks(3, 96, 1, at=6.0),
        asks(4, 65, 1, at=8.0, prefix=shared(64, key=1)),
        asks(5, 65, 1, at=10.0, prefix=shared(64, key=2)),
    )
    assert served[4].prefix_hit_tokens == 64
    assert served[5].prefix_hit_tokens < 64


def test_one_block_is_never_used(engine: Make) -> None:
    server = engine(0, limits(kv_blocks=5, block_size=16), ONE_SECOND)
    assert free_blocks(server) == 4
    served = serve(server, asks(0, 64, 1), asks(1, 65, 1))
    assert not served[0].dropped
    assert served[1].reason == "needs 5 KV blocks, the server has 4"


def test_async_scheduling_lags_two_steps_behind(engine: Make) -> None:
    """An arrival during step k joins step k+2; the same in sync joins k+1."""
    starts = []
    for lagging in (True, False):
        server = engine(0, limits(async_scheduling=lagging), ONE_SECOND)
        served = serve(server, asks(0, 16, 10), asks(1, 16, 1, at=2.5))
        starts.append(served[1].scheduled_s)
    assert starts == [4.0, 3.0]


def test_async_scheduling_reuses_freed_slots_two_steps_later(engine: Make) -> None:
    server = engine(0, limits(async_scheduling=True, max_num_seqs=1), ONE_SECOND)
    served = serve(server, asks(0, 16, 3), asks(1, 16, 1))
    assert served[0].finished_s == 3.0
    assert served[1].scheduled_s == 3.0  # nothing else ran, so the pipeline starts again


def test_an_idle_async_server_starts_at_once(engine: Make) -> None:
    server = engine(0, limits(async_scheduling=True), ONE_SECOND)
    assert serve(server, asks(0, 16, 1, at=7.25))[0].scheduled_s == 7.25


@pytest.mark.parametrize(("lagging", "finished_s"), [(False, 4 * 1.25), (True, 0.25 + 4 * 1.0)])
def test_host_overhead_is_hidden_by_longer_steps_in_async(
    engine: Make, lagging: bool, finished_s: float
) -> None:
    setting = limits(async_scheduling=lagging, host_overhead_s=0.25)
    assert serve(engine(0, setting, ONE_SECOND), asks(0, 16, 4))[0].finished_s == finished_s


def test_host_overhead_bounds_short_steps_in_async(engine: Make) -> None:
    setting = limits(async_scheduling=True, host_overhead_s=2.0)
    assert serve(engine(0, setting, ONE_SECOND), asks(0, 16, 4))[0].finished_s == 2.0 + 4 * 2.0


def test_a_long_prefill_threshold_lets_several_prompts_advance(engine: Make) -> None:
    server = engine(0, limits(long_prefill_threshold=100), ONE_SECOND)
    served = serve(server, asks(0, 300, 1), asks(1, 300, 1))
    assert [served[number].finished_s for number in (0, 1)] == [3.0, 3.0]


def test_without_chunks_a_prompt_waits_until_it_fits_the_budget(engine: Make) -> None:
    setting = limits(chunked_prefill=False, max_num_batched_tokens=100, max_num_seqs=8)
    served = serve(engine(0, setting, ONE_SECOND), asks(0, 60, 1), asks(1, 60, 1), asks(2, 200, 1))
    assert [served[number].scheduled_s for number in (0, 1)] == [0.0, 1.0]
    assert "without chunked prefill" in served[2].reason


def test_priority_scheduling_takes_the_urgent_first_and_preempts_the_least_urgent(
    engine: Make,
) -> None:
    setting = limits(kv_blocks=7, block_size=4, scheduling="priority")
    served = serve(
        engine(0, setting, ONE_SECOND),
        asks(0, 12, 9, priority=-1),
        asks(1, 12, 9, priority=4),
        asks(2, 8, 1, at=0.5, priority=-2),
        asks(3, 8, 1, at=0.6, priority=3),
    )
    assert (served[0].preemptions, served[1].preemptions) == (1, 0)
    assert served[3].scheduled_s < served[2].scheduled_s


def test_shortest_prompt_first(engine: Make) -> None:
    setting = limits(max_num_seqs=1, scheduling="shortest-prompt")
    server = engine(0, setting, ONE_SECOND)
    served = serve(server, asks(0, 50, 2), asks(1, 40, 1, at=0.1), asks(2, 8, 1, at=0.2))
    assert served[2].scheduled_s < served[1].scheduled_s


def test_max_model_len_cuts_an_answer_and_refuses_a_prompt(engine: Make) -> None:
    server = engine(0, limits(max_model_len=100), ONE_SECOND)
    served = serve(server, asks(0, 90, 50), asks(1, 100, 1))
    assert (served[0].output_tokens, served[0].reason) == (10, LENGTH_CAPPED)
    assert served[1].dropped
    assert served[1].reason == "prompt of 100 tokens, max_model_len is 100"


def test_unhashed_blocks_are_taken_before_cached_ones(engine: Make) -> None:
    """Older releases append them instead, so that a cached prefix goes first."""
    hits = []
    for first in (True, False):
        setting = limits(kv_blocks=13, block_size=16, unhashed_blocks_first=first)
        served = serve(
            engine(0, setting, ONE_SECOND),
            asks(0, 64, 1, prefix=shared(64)),
            *(asks(number, 8, 1, at=2.0 + number) for number in range(1, 13)),
            asks(20, 65, 1, at=40.0, prefix=shared(64)),
        )
        hits.append(served[20].prefix_hit_tokens)
    assert hits[0] == 64
    assert hits[1] < 64
