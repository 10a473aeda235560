"""Each scorer by hand."""

import math

import pytest

from tests.routing.fleet import Fleet, prompt
from windtunnel.routing.build import ALIASES, BY_CACHE, BY_SIGNALS, SCORERS
from windtunnel.routing.scorers import Scorer
from windtunnel.workload.request import Request


def scorer(fleet: Fleet, name: str) -> Scorer:
    made = (
        BY_CACHE[name](fleet.signals, fleet.index())
        if name in BY_CACHE
        else BY_SIGNALS[name](fleet.signals)
    )
    made.set_candidates(fleet.everyone)
    return made


def busy() -> Fleet:
    """In flight 0, 3, 8; seen running 0, 2, 4; so the queues are 0, 1, 4."""
    fleet = Fleet(3)
    fleet.see(running=[0, 2, 4], kv_used=[0.0, 0.25, 0.9])
    fleet.send(*[1] * 3, *[2] * 8)
    return fleet


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("queue-depth", [1.0, 0.75, 0.0]),
        ("kv-utilization", [1.0, 0.75, 0.1]),
        ("load-balance", [1.0, 1 / 4, 1 / 9]),
        ("active-requests", [1.0, 5 / 8, 0.0]),
        ("running-requests", [1.0, 0.5, 0.0]),
        ("load-aware", [0.5, 0.5 * 127 / 128, 0.5 * 124 / 128]),
        ("vllm-dp", [1.0, 14 / 20, 0.0]),  # four times the queue and the batch: 0, 6, 20
        ("least-request", [1.0, 305 / 408, 0.0]),  # 0, 3 + 100, 8 + 400
    ],
)
def test_a_score_by_load(name: str, expected: list[float]) -> None:
    assert scorer(busy(), name).scores(prompt()) == pytest.approx(expected)


@pytest.mark.parametrize("name", sorted(set(SCORERS) - {"no-hit-lru"}))
def test_equal_servers_score_alike(name: str) -> None:
    for request in (prompt(), prompt(keys=[1], adapter=3)):
        scores = scorer(Fleet(4), name).scores(request)
        assert len(set(scores)) == 1
        assert 0.0 <= scores[0] <= 1.0


def test_least_latency_is_half_of_each_time_and_a_chance_without_any() -> None:
    fleet = Fleet(5)
    for server, ttft_s, tpot_s in ((0, 0.1, 0.02), (1, 0.5, 0.01), (2, 0.3, 0.02), (2, 0.3, 0.02)):
        fleet.signals.observe_latency(server, ttft_s, tpot_s)
    made = scorer(fleet, "least-latency")
    assert made.scores(prompt()) == [1.0] * 5  # nobody was asked yet
    fleet.see(running=[0, 0, 0, 0, 1])  # the last will report
    assert made.scores(prompt()) == pytest.approx([0.5, 0.5, 0.25, 1.0, 0.0])


def test_a_mean_latency_is_forgotten_after_ten_seconds() -> None:
    fleet = Fleet(2)
    for name in ("least-latency", "predicted-latency"):
        made = scorer(fleet, name)
        fleet.signals.observe_latency(0, 5.0, 0.5)
        fleet.signals.observe_latency(1, 0.1, 0.01)
        fleet.see(0.0)
        assert made.scores(prompt()) == [0.0, 1.0]
        fleet.signals.observe_latency(1, 0.1, 0.01)
        fleet.see(10.0)
        assert made.scores(prompt()) == [0.0, 1.0]
        fleet.signals.observe_latency(1, 0.1, 0.01)
        fleet.see(10.5)
        assert made.scores(prompt()) == [1.0, 1.0]
        fleet.signals.latency_seen_s[:] = [-math.inf] * 2


def test_predicted_latency_is_that_of_the_present_load() -> None:
    """Server 0 took 0.2 s with 2 requests and 1 s with 10: at 4 it takes less than the other."""
    fleet = Fleet(2)
    made = scorer(fleet, "predicted-latency")
    for in_flight, ttft_s in ((2, 0.2), (10, 1.0)):
        fleet.signals.observe_latency(0, ttft_s, 0.0)
        fleet.signals.observe_latency(1, 0.6, 0.0)
        fleet.see(float(in_flight), running=[in_flight, in_flight])
        made.scores(prompt())
    # What is typical of 0 is 0.44 s with 4.4 requests: 0.2 + 4 * 0.24 / 4.4 = 0.418 s.
    fleet.see(10.1, running=[4, 4])
    assert made.scores(prompt()) == [1.0, 0.0]
    fleet.see(10.2, running=[12, 12])
    assert made.scores(prompt()) == [0.0, 1.0]


def test_token_load_counts_prompts_in_flight_up_to_four_mi() -> None:
    fleet = Fleet(4)
    for server, tokens in enumerate((0, 1 << 20, 1 << 22, 1 << 23)):
        fleet.signals.sent(server, tokens)
    assert scorer(fleet, "token-load").scores(prompt()) == [1.0, 0.75, 0.0, 0.0]
    fleet.signals.ended(2, 1 << 22)
    assert scorer(fleet, "token-load").scores(prompt()) == [1.0, 0.75, 1.0, 0.0]


def test_lora_affinity_prefers_a_loaded_adapter_then_a_free_slot_then_its_queue() -> None:
    fleet = Fleet(5)
    made = scorer(fleet, "lora-affinity")
    observed: list[tuple[list[int], list[int], int]] = [
        ([7], [], 0),
        ([1], [], 1),
        ([1], [7], 1),  # the slot that is free is for the adapter that is queued
        ([1], [7], 0),
        ([1], [2], 0),
    ]
    for server, (loaded, queued, room) in enumerate(observed):
        fleet.signals.observe_adapters(server, loaded, 0.0, queued, room)
    fleet.see()
    assert made.scores(prompt(adapter=7)) == [1.0, 0.8, 0.6, 0.6, 0.0]
    assert made.scores(prompt()) == [1.0] * 5


def test_prefix_cache_runs_from_the_fewest_to_the_most() -> None:
    fleet = Fleet(3)
    index = fleet.index()
    made = BY_CACHE["prefix-cache"](fleet.signals, index)
    made.set_candidates(fleet.everyone)
    for server, tokens in enumerate((16, 48, 80)):
        fleet.caches(server, 1, tokens)
    index.catch_up(0.0)
    assert made.scores(prompt(keys=[1])) == [0.0, 0.5, 1.0]
    assert made.scores(prompt(keys=[2])) == [1.0, 1.0, 1.0]
    assert ALIASES["precise-prefix-cache"] == "prefix-cache"


def note(made: Scorer, request: Request, server: int) -> None:
    made.note(request, server)  # type: ignore[attr-defined]


def test_prefix_affinity_is_the_share_that_was_sent_there() -> None:
    made = scorer(Fleet(2), "prefix-affinity")
    note(made, prompt(keys=[1, 2], ends=[40, 80]), 1)
    assert made.scores(prompt(tokens=160, keys=[1, 2], ends=[40, 80])) == [0.0, 0.5]
    assert made.scores(prompt(tokens=160, keys=[1, 3], ends=[40, 80])) == [0.0, 0.25]
    assert made.scores(prompt(tokens=160)) == [0.0, 0.0]


def test_kthena_looks_at_2048_tokens_and_five_servers() -> None:
    fleet = Fleet(8)
    made = scorer(fleet, "kthena-prefix-cache")
    request = prompt(tokens=8192, keys=[1], ends=[4096])
    for server in (0, 2, 3, 4, 5, 6, 7):
        note(made, request, server)
    assert made.scores(request) == [1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]


def test_cold_prompts_go_round_and_warm_ones_do_not_count() -> None:
    fleet = Fleet(3)
    index = fleet.index()
    made = BY_CACHE["no-hit-lru"](fleet.signals, index)
    made.set_candidates(fleet.everyone)
    cold, warm = prompt(), prompt(keys=[1])
    fleet.caches(2, 1, 16)
    index.catch_up(0.0)
    assert made.scores(cold) == [1.0, 0.5, 0.0]
    note(made, cold, 0)
    note(made, warm, 1)
    assert made.scores(cold) == [0.0, 1.0, 0.5]
    assert made.scores(warm) == [0.5, 0.5, 0.5]


def test_an_adapter_is_best_served_where_it_is_loaded() -> None:
    fleet = Fleet(3)
    fleet.signals.adapters[1] = [4, 5]
    fleet.signals.adapters[2] = [5]
    made = scorer(fleet, "lora-affinity")
    assert made.scores(prompt(adapter=4)) == [0.0, 1.0, 0.0]
    assert made.scores(prompt(adapter=5)) == [0.0, 1.0, 1.0]
    assert made.scores(prompt(adapter=9)) == [0.0, 0.0, 0.0]
    assert made.scores(prompt()) == [1.0, 1.0, 1.0]
