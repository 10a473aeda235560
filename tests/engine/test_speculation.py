"""Speculative decoding by hand: steps, tokens, slots ahead, and the draws behind them."""

from typing import Any

import pytest

from tests.engine.limits import engine_limits
from tests.engine.test_equivalence import drive
from windtunnel.engine.limits import EngineLimits
from windtunnel.engine.server import Server
from windtunnel.engine.settings import SpeculativeSettings
from windtunnel.models.step_time.linear import Linear
from windtunnel.workload.request import Request

STEPS = Linear(fixed_s=1.0)


def drafting(rates: list[float], method: str = "draft_model", **options: Any) -> EngineLimits:
    speculative = SpeculativeSettings(
        method=method, num_speculative_tokens=len(rates), acceptance=rates
    )
    chosen: dict[str, Any] = {
        "async_scheduling": False,
        "prefix_caching": False,
        "kv_blocks": 100,
    } | options
    return engine_limits(speculative=speculative, **chosen)


def served(limits: EngineLimits, *requests: Request) -> Server:
    server = Server(0, limits, STEPS)
    drive(server, list(requests))
    assert len(server.finished) == len(requests)
    return server


def test_an_answer_takes_as_many_steps_as_its_drafts_leave() -> None:
    """Ten tokens: one with the prompt, then four of every step, three drafted and the model's."""
    server = served(drafting([1.0, 1.0, 1.0]), Request(1, 0.0, 20, 10))
    assert server.finished[0].finished_s == 1 + 3
    assert server.drafts is not None
    assert (server.drafts.steps, server.drafts.drafted, server.drafts.accepted) == (3, 9, 9)
    assert server.drafts.gained == 9 - 3  # the last step ends the answer after one token
    assert server.token_gaps.count == 3  # a step's tokens come together

    server = served(drafting([0.0, 0.0]), Request(1, 0.0, 20, 10))
    assert server.finished[0].finished_s == 10


def test_slots_are_held_for_drafts_and_given_back() -> None:
    """Blocks of one token. A decode of two drafts computes three positions and holds two more."""
    prompt, drafts = 10, 2
    expected = {  # the last step starts with 13 tokens: 4 of the answer, less the last
        ("ngram", False): prompt + 3 + 1 + drafts,
        ("draft_model", False): prompt + 3 + 1 + 2 * drafts,
        ("draft_model", True): prompt + 3 + 1 + 3 * drafts,  # all two of the step before are wrong
    }
    for (method, overlaps), most in expected.items():
        options = {"async_scheduling": overlaps, "block_size": 1, "null_block": False}
        limits = drafting([0.0, 0.0], method, **options)
        server = served(limits, Request(1, 0.0, prompt, 5))
        assert 100 - server.pool.lowest_free == most, (method, overlaps)
        assert server.pool.free == 100
        assert limits.blocks_of(prompt + 4) == most
    limits = drafting([0.0, 0.0], max_model_len=16, block_size=1)
    assert served(limits, Request(1, 0.0, prompt, 5)).pool.lowest_free == 99 - 16


def test_drafts_take_their_part_of_the_budget() -> None:
    """Budget for seven positions: one request verifies four, the next three, the last none."""
    limits = drafting([0.0] * 3, max_num_batched_tokens=7, max_num_seqs=3)
    requests = [Request(number, 0.0, 2, 3) for number in range(3)]
    server = served(limits, *requests)
    assert [request.finished_s for request in requests] == [3.0, 3.0, 5.0]
    assert server.drafts is not None
    assert (server.drafts.steps, server.drafts.drafted) == (6, 2 * 3 + 2 * 2 + 2 * 3)


def test_acceptance_is_what_was_asked_for_and_belongs_to_the_request() -> None:
    rates = [0.8, 0.5, 0.3]
    many = [Request(number, 0.0, 10, 400) for number in range(60)]
    server = served(drafting(rates, kv_blocks=5000), *many)
    assert server.drafts is not None
    assert int(server.drafts.accepted) / int(server.drafts.steps) == pytest.approx(
        sum(rates), rel=0.02
    )
    alone = served(drafting(rates, kv_blocks=5000), Request(7, 0.0, 10, 400)).finished[0]
    together = many[7].finished_s - many[7].first_token_s
    assert alone.finished_s - alone.first_token_s == together
