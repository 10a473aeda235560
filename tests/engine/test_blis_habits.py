"""Habits of BLIS's engine that ours can be asked for, one a test, on both engines."""

import pytest

from tests.engine.test_schedule import (
    ONE_SECOND,
    Make,
    asks,
    engine,
    free_blocks,
    limits,
    serve,
    shared,
)
from windtunnel.core.errors import InputError
from windtunnel.engine.limits import TierLimits
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.step_time.blis import BlisTrainedPhysics

__all__ = ["engine"]

SMALL = {"kv_blocks": 7, "block_size": 4, "prefix_caching": False}


def test_every_block_is_handed_out_without_a_null_block(engine: Make) -> None:
    assert free_blocks(engine(0, limits(kv_blocks=7), ONE_SECOND)) == 6
    assert free_blocks(engine(0, limits(kv_blocks=7, null_block=False), ONE_SECOND)) == 7


def test_a_restarted_request_generates_its_tokens_again(engine: Make) -> None:
    """Request 1 is preempted in step 6, with five tokens; it starts again when 0 has ended."""
    keeps = serve(engine(0, limits(**SMALL), ONE_SECOND), asks(0, 12, 9), asks(1, 12, 9))
    again = limits(preemption="restart", **SMALL)
    loses = serve(engine(0, again, ONE_SECOND), asks(0, 12, 9), asks(1, 12, 9))
    assert keeps[1].preemptions == loses[1].preemptions == 1
    assert loses[0].finished_s == 9.0
    assert (loses[1].first_token_s, loses[1].finished_s) == (10.0, 18.0)
    assert keeps[1].first_token_s == 1.0
    assert keeps[1].finished_s < loses[1].finished_s


def test_a_restarted_request_finds_what_is_left_of_its_prompt(engine: Make) -> None:
    again = limits(kv_blocks=9, block_size=4, preemption="restart", max_num_batched_tokens=1000)
    server = engine(0, again, ONE_SECOND)
    served = serve(server, asks(0, 12, 14), asks(1, 14, 9))
    restarts = served[1].preemptions
    assert restarts > 0
    assert 26 < server.prefilled_tokens < 26 + restarts * 14


def test_an_answer_that_would_be_too_long_is_refused(engine: Make) -> None:
    strict = limits(max_model_len=20, over_length="refuse")
    served = serve(engine(0, strict, ONE_SECOND), asks(0, 15, 5), asks(1, 15, 6))
    assert (served[0].dropped, served[0].output_tokens) == (False, 5)
    assert served[1].dropped
    assert served[1].reason == "prompt of 15 and answer of 6 tokens, max_model_len is 20"


def test_the_last_step_of_all_need_not_keep_a_newcomer_waiting(engine: Make) -> None:
    served = serve(
        engine(0, limits(last_step_blocks=False), ONE_SECOND),
        asks(0, 8, 3),
        asks(1, 8, 1, at=0.5),  # in a step after which others follow: waits for its end
        asks(2, 8, 2, at=2.25),  # in the last step of all: starts at once
        asks(3, 8, 1, at=2.5),  # in a step of 2, which is not its last
    )
    assert [served[n].scheduled_s for n in range(4)] == [0.0, 1.0, 2.25, 3.25]
    assert [served[n].finished_s for n in range(4)] == [3.0, 2.0, 4.25, 4.25]


def test_requests_end_when_their_steps_do_however_those_overlap(engine: Make) -> None:
    server = engine(0, limits(last_step_blocks=False), ONE_SECOND)
    served = serve(server, *(asks(n, 8, 1, at=0.25 * n) for n in range(6)))
    assert [served[n].finished_s for n in range(6)] == [1.0 + 0.25 * n for n in range(6)]
    assert [request.id for request in server.finished] == list(range(6))
    assert free_blocks(server) == 1000


def test_whoever_leaves_in_an_overlapped_step_is_gone(engine: Make) -> None:
    server = engine(0, limits(last_step_blocks=False), ONE_SECOND)
    first, second = asks(0, 8, 1), asks(1, 8, 3, at=0.5)
    server.submit(first, 0.0)
    server.advance(0.0)
    server.submit(second, 0.5)
    server.advance(0.5)
    server.cancel(first, 0.75)
    served = serve(server)
    assert list(served) == [1]
    assert served[1].finished_s == 3.5


def test_a_prompt_that_is_cached_whole_may_be_answered_at_once(engine: Make) -> None:
    """It computes nothing, shares the step of another, and holds only what it generates."""
    server = engine(0, limits(compute_whole_hits=False), ONE_SECOND)
    served = serve(
        server,
        asks(0, 64, 1, prefix=shared(64)),
        asks(1, 64, 20, at=5.0, prefix=shared(64)),
    )
    assert served[1].prefix_hit_tokens == 64
    assert server.prefilled_tokens == 64
    assert (served[1].first_token_s, served[1].finished_s) == (6.0, 25.0)
    assert free_blocks(server) == 1000


def test_the_last_token_may_take_a_block_just_before_the_end(engine: Make) -> None:
    """The block that it takes is the one that would have been lost next."""
    hits = []
    for stores in (False, True):
        server = engine(0, limits(kv_blocks=9, store_last_token=stores), ONE_SECOND)
        served = serve(
            server,
            asks(0, 65, 1, prefix=shared(64)),
            asks(1, 64, 1, at=5.0),
            asks(2, 65, 1, at=10.0, prefix=shared(64)),
        )
        hits.append(served[2].prefix_hit_tokens)
    assert hits == [64, 48]


@pytest.mark.parametrize(
    "habit",
    [
        {"preemption": "restart"},
        {"last_step_blocks": False},
        {"compute_whole_hits": False},
        {"store_last_token": True},
    ],
)
def test_habits_between_steps_need_steps_one_after_the_other(habit: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"but async_scheduling is true.*async_scheduling: false"):
        limits(async_scheduling=True, **habit)


@pytest.mark.parametrize("habit", [{"last_step_blocks": False}, {"compute_whole_hits": False}])
def test_whoever_waits_for_a_tier_is_not_answered_at_once(habit: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"tiers below.*last_step_blocks: true and compute_whole"):
        limits(tiers=[TierLimits("cpu", 10, 0.1, 0.0)], **habit)


def test_steps_end_on_whole_microseconds_to_the_last_digit(engine: Make) -> None:
    """So that a request which comes at the very end of a step is in the next one, always."""
    model = BlisTrainedPhysics(resolve_model("llama-3.1-8b"), resolve_accelerator("h100"))
    alone = serve(engine(0, limits(), model), asks(0, 100, 400))[0]
    ends = alone.finished_s
    assert ends == round(ends * 1e6) / 1e6
    for step in (1, 37, 200, 350):
        server = engine(0, limits(), model)
        cut = serve(engine(0, limits(), model), asks(0, 100, step))[0].finished_s
        served = serve(server, asks(0, 100, 400), asks(1, 10, 1, at=cut))
        assert served[1].scheduled_s == cut
