"""LoRA adapters, one behaviour a test, on the fast engine and on the reference."""

import math

import pytest

from tests.engine.limits import adapters
from tests.engine.reference.engine import ReferenceServer
from tests.engine.test_equivalence import adapters_of
from tests.engine.test_schedule import ONE_SECOND, Engine, Make, asks, limits, serve, shared
from windtunnel.engine.server import Server
from windtunnel.models.step_time.linear import Linear
from windtunnel.workload.request import Request


@pytest.fixture(params=[Server, ReferenceServer], ids=["fast", "reference"])
def engine(request: pytest.FixtureRequest) -> Make:
    make: Make = request.param
    return make


def wants(adapter: int, number: int, prompt: int, output: int, at: float = 0.0) -> Request:
    request = asks(number, prompt, output, at)
    request.adapter = adapter
    return request


def loads(server: Engine) -> object:
    return adapters_of(server)[0]


def evictions(server: Engine) -> object:
    return adapters_of(server)[1]


def here(server: Engine) -> object:
    return adapters_of(server)[2]


def test_a_batch_has_no_more_adapters_than_slots_and_others_pass_by(engine: Make) -> None:
    """The third adapter waits for a slot; the base model and adapters in use need none."""
    server = engine(0, limits(lora=adapters(2)), ONE_SECOND)
    served = serve(
        server,
        wants(0, 0, 8, 5),
        wants(1, 1, 8, 9),
        wants(2, 2, 8, 2),
        wants(-1, 3, 8, 2),
        wants(1, 4, 8, 2),
        wants(2, 5, 8, 2, at=0.5),
    )
    assert [served[number].scheduled_s for number in range(6)] == [0, 0, 5, 0, 0, 5]
    assert loads(server) == {0: 1, 1: 1, 2: 1}
    assert evictions(server) == {0: 1}
    assert here(server) == [1, 2]


def test_whoever_was_passed_by_keeps_its_place(engine: Make) -> None:
    """One sequence slot: the oldest of those that fit goes first, whatever came between."""
    server = engine(0, limits(lora=adapters(1), max_num_seqs=2), ONE_SECOND)
    served = serve(
        server,
        wants(0, 0, 8, 4),
        wants(1, 1, 8, 2),
        wants(2, 2, 8, 2),
        wants(0, 3, 8, 1),
        wants(1, 4, 8, 2, at=0.5),
    )
    assert served[3].scheduled_s == 0.0  # past 1 and 2, because adapter 0 is in use
    assert served[1].scheduled_s == served[4].scheduled_s == 4.0  # 4 passes 2, 1 goes before both
    assert served[2].scheduled_s == 6.0


def test_the_head_that_has_a_slot_and_no_blocks_is_not_passed(engine: Make) -> None:
    server = engine(0, limits(lora=adapters(1), kv_blocks=11), ONE_SECOND)
    served = serve(server, wants(0, 0, 80, 3), wants(0, 1, 100, 1), wants(-1, 2, 8, 1))
    assert served[2].scheduled_s == served[1].scheduled_s == 3.0


def test_a_load_makes_the_step_that_needs_it_longer(engine: Make) -> None:
    """Two adapters are loaded before the first step; whoever is in it waits for both."""
    server = engine(0, limits(lora=adapters(2, load_s=0.25)), ONE_SECOND)
    served = serve(
        server, wants(0, 0, 8, 2), wants(1, 1, 8, 1), wants(-1, 2, 8, 1), wants(0, 3, 8, 1, at=5.0)
    )
    assert [served[number].first_token_s for number in range(4)] == [1.5, 1.5, 1.5, 6.0]
    assert served[0].finished_s == 2.5
    assert loads(server) == {0: 1, 1: 1}


def test_an_adapter_that_nobody_uses_stays_until_its_slot_is_needed(engine: Make) -> None:
    """The one that has gone unused longest goes: 1 was used after 0."""
    server = engine(0, limits(lora=adapters(2)), ONE_SECOND)
    serve(
        server,
        wants(0, 0, 8, 1),
        wants(1, 1, 8, 3),
        wants(2, 2, 8, 1, at=10.0),
        wants(1, 3, 8, 1, at=20.0),
        wants(0, 4, 8, 1, at=30.0),
    )
    assert loads(server) == {0: 2, 1: 1, 2: 1}
    assert evictions(server) == {0: 1, 2: 1}
    assert here(server) == [0, 1]


@pytest.mark.parametrize("overlapped", [False, True])
def test_every_adapter_in_a_batch_makes_its_steps_longer(engine: Make, overlapped: bool) -> None:
    """A quarter each. Adapter 1 ends after two steps, adapter 0 after four, the base after six."""
    settings = limits(lora=adapters(2, step_cost=0.25), async_scheduling=overlapped)
    server = engine(0, settings, ONE_SECOND)
    served = serve(server, wants(0, 0, 8, 4), wants(1, 1, 8, 2), wants(-1, 2, 8, 6))
    assert (served[1].finished_s, served[0].finished_s, served[2].finished_s) == (3.0, 5.5, 7.5)


def test_a_run_of_steps_is_as_long_as_its_adapters_make_it(engine: Make) -> None:
    """A request of the base model joins in the middle, and leaves: the run goes on as before."""
    server = engine(0, limits(lora=adapters(1, step_cost=0.5)), ONE_SECOND)
    served = serve(server, wants(0, 0, 8, 101), wants(-1, 1, 8, 2, at=15.0))
    assert served[0].finished_s == 101 * 1.5
    assert served[1].scheduled_s == 15.0


def test_the_numbers_on_the_page_of_the_engine(engine: Make) -> None:
    model = Linear(fixed_s=0.01)
    lora = adapters(2, load_s=0.005, step_cost=0.05)
    server = engine(0, limits(lora=lora), model)
    a, b, c, base = wants(0, 0, 8, 3), wants(1, 1, 8, 9), wants(2, 2, 8, 1), wants(-1, 3, 8, 9)
    serve(server, a, b, c, base)
    assert b.first_token_s == pytest.approx(0.021)
    assert c.scheduled_s == a.finished_s == pytest.approx(0.021 + 2 * 0.011)
    assert c.first_token_s - c.scheduled_s == pytest.approx(0.016)


def test_moved_kv_waits_for_a_slot_too(engine: Make) -> None:
    """And those without KV that need none pass by."""
    server = engine(0, limits(lora=adapters(1)), ONE_SECOND)
    moved = wants(1, 1, 32, 2)
    assert server.reserve(moved, 32, 0.0) == 32
    server.submit(wants(0, 0, 8, 4), 0.0)
    while server.wake_s < 0.5:
        server.advance(server.wake_s)
    server.submit_arrived(moved, 0.5)
    base = wants(-1, 2, 8, 1)
    server.submit(base, 0.75)
    while server.wake_s < math.inf:
        server.advance(server.wake_s)
    assert (base.scheduled_s, moved.scheduled_s) == (1.0, 4.0)


def test_a_cancelled_request_gives_its_slot_up(engine: Make) -> None:
    server = engine(0, limits(lora=adapters(1)), ONE_SECOND)
    first, second = wants(0, 0, 8, 50), wants(1, 1, 8, 1)
    for request in (first, second):
        server.submit(request, 0.0)
    while server.wake_s < 2.5:
        server.advance(server.wake_s)
    server.cancel(first, 2.5)
    while server.wake_s < math.inf:
        server.advance(server.wake_s)
    assert second.scheduled_s == 3.0
    assert evictions(server) == {0: 1}


def test_an_answer_of_one_token_from_the_cache_makes_no_step_longer(engine: Make) -> None:
    """Its whole prompt is cached: it loads its adapter, and computes nothing with it."""
    lora = adapters(2, load_s=0.25, step_cost=0.5)
    server = engine(0, limits(lora=lora, compute_whole_hits=False), ONE_SECOND)
    cached = asks(1, 64, 1, 5.0, prefix=shared(64))
    cached.adapter = 0
    served = serve(server, asks(0, 64, 1, prefix=shared(64)), cached)
    assert served[1].prefix_hit_tokens == 64
    assert served[1].finished_s == 6.25
    assert loads(server) == {0: 1}


def test_a_request_that_will_be_skipped_holds_no_blocks_back(engine: Make) -> None:
    """It came during the step and its adapter has no slot: KV from elsewhere need not wait."""
    some = limits(lora=adapters(1), kv_blocks=11, async_scheduling=True)
    server = engine(0, some, ONE_SECOND)
    server.submit(wants(0, 0, 16, 20), 0.0)
    server.advance(0.0)
    server.submit(wants(1, 1, 144, 1), 0.25)
    assert server.reserve(wants(-1, 2, 48, 4), 48, 0.5) == 48
