"""Defects of other simulators' engines, caches, tiers and adapters that must not be here."""

import math

import pytest

from tests.engine.limits import adapters
from tests.engine.reference.engine import ReferenceServer
from tests.engine.test_schedule import ONE_SECOND, Engine, Make, asks, free_blocks, serve, shared
from tests.engine.test_schedule import limits as settings
from tests.twin.runs import one_server, run
from windtunnel.engine.limits import LENGTH_CAPPED, TierLimits
from windtunnel.engine.server import Server
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.step_time.linear import Linear
from windtunnel.models.step_time.model import StepWork
from windtunnel.models.step_time.profile import physics_model
from windtunnel.models.step_time.roofline import Roofline
from windtunnel.workload.request import UNSET, Request

HOST = TierLimits("cpu", blocks=1000, block_s=0.01, latency_s=0.05)


@pytest.fixture(params=[Server, ReferenceServer], ids=["fast", "reference"])
def engine(request: pytest.FixtureRequest) -> Make:
    make: Make = request.param
    return make


def until(server: Engine, now: float) -> None:
    while server.wake_s < now:
        server.advance(server.wake_s)


def with_adapter(request: Request, adapter: int) -> Request:
    request.adapter = adapter
    return request


# One step


def test_nothing_of_a_step_has_happened_before_it_ends(engine: Make) -> None:
    """The peer hands out tokens and blocks at the start of a step, with later times on them.

    A request that comes during the step finds the blocks of one that ends with it still taken.
    """
    server = engine(0, settings(kv_blocks=11), ONE_SECOND)
    first, second = asks(0, 160, 1), asks(1, 160, 1, at=0.5)
    server.submit(first, 0.0)
    until(server, 0.5)
    assert (server.finished, first.first_token_s, free_blocks(server)) == ([], UNSET, 0)
    server.submit(second, 0.5)
    until(server, math.inf)
    assert (first.finished_s, second.scheduled_s) == (1.0, 1.0)


def test_a_preemption_takes_back_neither_the_first_token_nor_the_gaps(engine: Make) -> None:
    """The peer clears both, so that whoever suffers most looks best."""
    server = engine(0, settings(kv_blocks=13, block_size=4), ONE_SECOND)
    served = serve(server, *(asks(number, 12, 12) for number in range(4)))
    preempted = [request for request in served.values() if request.preemptions]
    assert preempted
    assert all(request.first_token_s == 1.0 for request in preempted)
    assert server.token_gaps.count == 4 * 11
    assert server.token_gaps.high > 2.0  # the pause is a gap like any other


def test_a_request_may_reach_the_whole_length_of_the_model(engine: Make) -> None:
    """The peer stops one token short, and drops whoever asks for more than fits."""
    server = engine(0, settings(max_model_len=64), ONE_SECOND)
    served = serve(server, asks(0, 60, 4), asks(1, 60, 100))
    assert (served[0].output_tokens, served[0].reason) == (4, "")
    assert (served[1].output_tokens, served[1].reason) == (4, LENGTH_CAPPED)


def test_a_prompt_that_fits_with_an_answer_that_does_not_ends_the_run(engine: Make) -> None:
    """The peer looks at the prompt alone, and preempts such a request by itself for ever."""
    server = engine(0, settings(kv_blocks=11), ONE_SECOND)
    served = serve(server, asks(0, 100, 100), asks(1, 100, 20))
    assert served[0].dropped
    assert served[1].finished_s == 20.0


def test_pressure_on_blocks_is_no_livelock(engine: Make) -> None:
    """Twenty requests of which two fit: each is served, and none starts over without end."""
    server = engine(0, settings(kv_blocks=21, block_size=4), ONE_SECOND)
    served = serve(server, *(asks(number, 30, 40) for number in range(20)))
    assert len(served) == 20
    assert server.preemptions <= 40


def test_a_server_adds_no_time_that_nobody_wrote_down() -> None:
    """The peer makes every request wait 15.6 ms before its queue, unless told not to."""
    latency = run(one_server())["latency"]
    assert latency["queue"]["max"] == 0.0
    assert latency["ttft"]["max"] == pytest.approx(0.010 + 8 * 0.001)


def test_one_server_is_not_asked_for_a_router_of_several() -> None:
    """A single server of the peer pays for routing decisions that it cannot have."""
    alone = run(one_server())["latency"]
    routed = run(one_server(), "serving.router={policy: weighted}")["latency"]
    assert routed == alone


# Step times


@pytest.mark.parametrize("tokens", [512, 2048, 8000])
def test_no_prefill_is_faster_than_the_arithmetic_of_its_accelerator(tokens: int) -> None:
    """The peer's coefficients come to 104, 283 and 409 percent of an H100's peak."""
    shape, h100 = resolve_model("llama-3.1-8b"), resolve_accelerator("h100")
    work = StepWork([(tokens, 0, tokens)], 0, 0, 1)
    needed = 2.0 * (shape.params - 2 * shape.head_params) * tokens  # looking words up is no work
    for model in (physics_model(shape, h100), Roofline(shape, h100)):
        assert needed / model.step_s(work) <= h100.bf16_flops


def test_a_large_batch_of_decodes_is_bound_by_arithmetic() -> None:
    """With a coefficient of zero the peer's never is, and throughput grows without end."""
    shape, h100 = resolve_model("llama-3.1-8b"), resolve_accelerator("h100")
    for model in (physics_model(shape, h100), Roofline(shape, h100)):
        two, four = (model.step_s(StepWork([], n, n * 16, n)) for n in (2048, 4096))
        assert four > 1.8 * two


def test_an_mlp_has_three_matrices() -> None:
    """The peer's roofline counts two of them."""
    shape, h100 = resolve_model("llama-3.1-8b"), resolve_accelerator("h100")
    mlp = shape.full_layers * 3 * shape.hidden * shape.ffn
    step_s = Roofline(shape, h100).step_s(StepWork([(4000, 0, 4000)], 0, 0, 1))
    assert step_s * h100.bf16_flops > 2 * 4000 * (mlp + shape.full_layers * 2 * shape.hidden**2)


def test_planning_a_step_takes_time_where_that_shows(engine: Make) -> None:
    """The peer has no host between steps; small models were 17 to 56 percent too fast."""
    fast_steps = Linear(fixed_s=0.001)
    server = engine(0, settings(host_overhead_s=0.003, async_scheduling=True), fast_steps)
    served = serve(server, asks(0, 16, 101))
    assert served[0].finished_s == pytest.approx(101 * 0.003 + 0.003)


# Slower tiers


def evicted(make: Make, *more: Request) -> Engine:
    """A server whose tier has a prefix of 64 tokens, as of 10 seconds."""
    server = make(0, settings(kv_blocks=11, tiers=[HOST]), ONE_SECOND)
    serve(server, asks(0, 70, 1, prefix=shared(64)), asks(1, 160, 1, at=5.0), *more)
    return server


def test_a_load_is_waited_for_by_its_request_and_not_by_the_batch(engine: Make) -> None:
    """The peer adds it to the current step of everybody."""
    server = evicted(engine)
    other, loads = asks(2, 16, 9, at=10.0), asks(3, 70, 1, at=10.5, prefix=shared(64))
    serve(server, other, loads)
    assert other.finished_s == 19.0
    assert loads.prefix_hit_tokens == 64


def test_a_load_takes_its_own_time_and_not_whole_steps(engine: Make) -> None:
    """The peer looks again every step: a disk of any speed costs two rounds or three."""
    server = evicted(engine)
    loads = asks(2, 70, 1, at=10.0, prefix=shared(64))
    serve(server, loads)
    assert loads.scheduled_s == pytest.approx(10.0 + 4 * 0.01 + 0.05)


def test_a_tier_is_as_fast_as_its_bytes(engine: Make) -> None:
    """One flag of the peer is said to be in blocks, and divides the tokens of a block."""
    waits = []
    for block_s in (0.01, 0.02):
        tier = TierLimits("cpu", blocks=1000, block_s=block_s, latency_s=0.0)
        server = engine(0, settings(kv_blocks=11, tiers=[tier]), ONE_SECOND)
        loads = asks(2, 70, 1, at=10.0, prefix=shared(64))
        serve(server, asks(0, 70, 1, prefix=shared(64)), asks(1, 160, 1, at=5.0), loads)
        waits.append(loads.scheduled_s - 10.0)
    assert waits[1] == pytest.approx(2 * waits[0])


def test_a_load_is_not_all_or_nothing(engine: Make) -> None:
    """The peer recomputes a prompt of which a tier has lost one block; here the rest is used."""
    tier = TierLimits("cpu", blocks=3, block_s=0.01, latency_s=0.05)
    server = engine(0, settings(kv_blocks=11, tiers=[tier]), ONE_SECOND)
    again = asks(2, 70, 1, at=10.0, prefix=shared(64))
    serve(server, asks(0, 70, 1, prefix=shared(64)), asks(1, 160, 1, at=5.0), again)
    assert again.prefix_hit_tokens == 48


def test_what_lies_in_a_tier_is_seen_by_routers() -> None:
    """The peer's tiers are invisible to routing: a warm server looks cold."""
    server = Server(0, settings(kv_blocks=11, tiers=[HOST]), ONE_SECOND)
    journal: list[int] = []
    server.pool.listen(journal, 0)
    serve(server, asks(0, 70, 1, prefix=shared(64)), asks(1, 160, 1, at=5.0))
    assert journal == [0, 7, 64]
    assert server.cached_tokens(asks(2, 70, 1, prefix=shared(64))) == 64


# LoRA adapters


def test_loading_an_adapter_does_not_hold_up_the_whole_queue(engine: Make) -> None:
    """The peer loads one at a time, and nobody passes the head whose adapter is not there."""
    server = engine(0, settings(lora=adapters(2, load_s=0.5)), ONE_SECOND)
    served = serve(
        server,
        with_adapter(asks(0, 8, 6), 0),
        with_adapter(asks(1, 8, 6), 1),
        with_adapter(asks(2, 8, 1), 2),  # there is no slot for it yet
        with_adapter(asks(3, 8, 1), 1),
        with_adapter(asks(4, 8, 1), -1),
    )
    assert [served[n].scheduled_s for n in (0, 1, 3, 4)] == [0.0] * 4
    assert served[0].first_token_s == 2.0  # both were loaded for the first step
    assert served[2].scheduled_s == 7.0


def test_adapters_that_nobody_asks_for_cost_nothing(engine: Make) -> None:
    """Slots alone make no step longer."""
    plain, slotted = (
        serve(engine(0, settings(lora=lora), ONE_SECOND), asks(0, 40, 9), asks(1, 40, 9, at=2.5))
        for lora in (None, adapters(4, load_s=1.0, step_cost=0.5))
    )
    for number in (0, 1):
        assert plain[number].finished_s == slotted[number].finished_s


def test_an_adapter_is_loaded_once_however_many_ask_for_it_together(engine: Make) -> None:
    server = engine(0, settings(lora=adapters(1, load_s=0.5)), ONE_SECOND)
    served = serve(server, *(with_adapter(asks(number, 8, 1), 3) for number in range(5)))
    assert {request.finished_s for request in served.values()} == {1.5}
