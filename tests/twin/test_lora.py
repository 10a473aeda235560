"""LoRA adapters in a whole run: accounts, events, routing by what is loaded, caches apart."""

from typing import Any

import pytest

from tests.core.sinks import MemorySink
from tests.twin.runs import one_server, run
from windtunnel.core.telemetry import Telemetry
from windtunnel.twin.compose import compose
from windtunnel.twin.run import breathe
from windtunnel.twin.scenario.load import load_text

TUNED = """\
name: tuned
workload:
  - name: chat
    count: 400
    arrivals: {process: poisson, rate: 40/s}
    prompt_tokens: 64
    output_tokens: 20
    prefix: {tokens: 96}
    adapters: {count: 8}
serving:
  pools:
    - name: main
      replicas: 4
      engine: {kv_blocks: 2000, lora: {slots: 2, load: 10ms, step_cost: 0.05}}
      step_time: {model: linear, fixed: 5ms, per_prefill_token: 20us, per_decode: 100us}
  router: {policy: ROUTER}
"""
ROUND_ROBIN = TUNED.replace("ROUTER", "round-robin")
AFFINITY = TUNED.replace("ROUTER", "weighted, scorers: {lora-affinity: 4, load-balance: 1}")


def total(result: dict[str, Any], key: str) -> int:
    return sum(int(adapter[key]) for adapter in result["adapters"].values())


def test_every_adapter_has_an_account() -> None:
    result = run(ROUND_ROBIN)
    adapters = result["adapters"]
    assert sorted(adapters) == sorted(f"adapter-{number}" for number in range(8))
    assert total(result, "requests") == total(result, "completed") == 400
    assert total(result, "output_tokens") == 400 * 20
    for adapter in adapters.values():
        assert adapter["loads"] >= 1
        assert 0 < adapter["ttft"]["p50"] <= adapter["ttft"]["p99"]
        per_s = adapter["output_tokens"] / result["simulated_seconds"]
        assert adapter["output_tokens_per_s"] == pytest.approx(per_s)
    # What was loaded is still there or was evicted: two slots on each of four servers.
    assert total(result, "loads") - total(result, "evictions") == 8


def test_a_run_without_slots_has_no_accounts_of_adapters() -> None:
    assert run(one_server())["adapters"] is None


def test_a_router_that_knows_what_is_loaded_loads_less() -> None:
    blind, seeing = run(ROUND_ROBIN), run(AFFINITY)
    assert total(seeing, "loads") < total(blind, "loads") / 4
    assert seeing["latency"]["ttft"]["p50"] < blind["latency"]["ttft"]["p50"]


def test_what_is_loaded_is_seen_as_old_as_signals_are() -> None:
    """Signals that are taken once, before anything is loaded, say nothing."""
    late = run(AFFINITY, "serving.router.staleness=1h")
    assert total(late, "loads") > total(run(AFFINITY), "loads") * 2


def test_adapters_share_no_cached_block() -> None:
    """Each computes the 96 shared tokens for itself: six blocks on one server, once an adapter."""
    one = run(
        ROUND_ROBIN,
        "serving.pools.0.replicas=1",
        "serving.pools.0.engine.lora.slots=8",
        "workload.0.arrivals.rate=4/s",
    )
    assert one["tokens"]["prefix_hit"] == (400 - 8) * 96


def test_loads_and_evictions_are_told_as_they_happen() -> None:
    sink = MemorySink()
    simulation = compose(load_text(ROUND_ROBIN), telemetry=Telemetry(sink))
    simulation.run(breathe)
    told = sink.events
    for kind, counted in (("adapter.loaded", "loads"), ("adapter.evicted", "evictions")):
        events = [event for event in told if event.kind == kind]
        assert events
        for number, server in enumerate(simulation.servers):
            assert server.slots is not None
            mine = [event for event in events if event.subject == f"server/{number}"]
            assert len(mine) == sum(getattr(server.slots, counted).values())
    assert {event.data["adapter"] for event in told if event.kind == "adapter.loaded"} == {
        f"adapter-{number}" for number in range(8)
    }


def test_both_halves_of_a_split_request_need_the_adapter() -> None:
    """Prefill and decode servers each load all that pass through them."""
    split = TUNED.replace("ROUTER", "round-robin").replace("replicas: 4", "role: prefill")
    pool = split[split.index("    - name: main") : split.index("  router:")]
    decode = pool.replace("main", "answers").replace("role: prefill", "role: decode")
    text = split.replace("  router:", decode + "  router:").replace(
        "serving:\n", "serving:\n  disaggregation: {transfer: {bytes_per_token: 100kB}}\n"
    )
    simulation = compose(load_text(text, sets=["workload.0.count=60"]))
    simulation.run(breathe)
    for server in simulation.servers:
        assert server.slots is not None
        assert len(server.slots.loads) == 8
