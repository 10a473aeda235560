"""KV in slower tiers in a whole run: figures, events, reasons, and routing that sees them."""

from typing import Any

import pytest

from tests.core.sinks import MemorySink
from tests.twin.runs import one_server, run
from windtunnel.core.telemetry import Telemetry
from windtunnel.engine.views import ServerCaches
from windtunnel.routing.prefixes import CacheIndex, CacheJournal
from windtunnel.twin.compose import compose
from windtunnel.twin.run import breathe
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.simulation import Simulation

TALKS = """\
name: talks
workload:
  - name: chat
    count: 40
    arrivals: {process: poisson, rate: 2/s}
    prompt_tokens: 100
    output_tokens: 30
    session: {turns: 4, think: 8s}
serving:
  pools:
    - name: main
      replicas: 2
      engine:
        kv_blocks: 200
        kv_bytes_per_token: 100kB
        offload:
          - {tier: cpu, size: 320MB, bandwidth: 1GB/s}
          - {tier: disk, size: 10GB, bandwidth: 500MB/s}
      step_time: {model: linear, fixed: 5ms, per_prefill_token: 500us, per_decode: 100us}
  router: {policy: ROUTER}
"""
STICKY = TALKS.replace("ROUTER", "session-sticky")
BLOCK_BYTES = 16 * 100e3


def tiers(result: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = result["pools"]["main"]["offload"]["tiers"]
    return found


def ran(text: str, *sets: str, sink: MemorySink | None = None) -> Simulation:
    telemetry = Telemetry(sink) if sink is not None else None
    simulation = compose(load_text(text, sets=sets), telemetry=telemetry)
    simulation.run(breathe)
    return simulation


def test_history_is_loaded_and_not_computed_again() -> None:
    """A conversation says 130 tokens a turn; nothing of that is lost with 10 GB of disk."""
    kept = run(STICKY)
    lost = run(
        STICKY,
        "serving.pools.0.engine.offload=null",
        "serving.pools.0.engine.kv_bytes_per_token=null",
    )
    hits = sum((turn * 130 - 1) // 16 * 16 for turn in (1, 2, 3))
    assert kept["tokens"]["prefix_hit"] == 40 * hits
    assert lost["tokens"]["prefix_hit"] < 40 * hits / 2
    assert kept["sessions"]["warm_ttft"]["mean"] < lost["sessions"]["warm_ttft"]["mean"]
    assert lost["pools"]["main"]["offload"] is None


def test_figures_of_tiers_belong_together() -> None:
    result = run(STICKY)
    cpu, disk = tiers(result)["cpu"], tiers(result)["disk"]
    assert (cpu["blocks"], disk["blocks"]) == (200, 6250)
    assert cpu["peak"] == 1.0
    assert cpu["evicted_bytes"] == disk["stored_bytes"] > 0
    assert disk["evicted_bytes"] == 0
    for tier, bytes_per_s in ((cpu, 1e9), (disk, 500e6)):
        assert tier["loads"] > 0
        assert tier["loaded_bytes"] == tier["loaded_tokens"] * 100e3
        busy_s = tier["loaded_bytes"] / bytes_per_s
        assert tier["busy"] == pytest.approx(busy_s / result["simulated_seconds"] / 2)
    wait = result["pools"]["main"]["offload"]["wait"]
    assert 0 < wait["p50"] <= wait["max"]


def test_a_run_without_tiers_says_nothing_of_them() -> None:
    assert run(one_server())["pools"]["main"]["offload"] is None


def test_loads_are_told_as_they_begin() -> None:
    sink = MemorySink()
    simulation = ran(STICKY, sink=sink)
    told = [event for event in sink.events if event.kind == "request.fetched"]
    waits = 0
    for server in simulation.servers:
        assert server.tiers is not None
        waits += server.tiers.waits.count
    assert len(told) == waits > 0
    loaded = sum(
        int(tier.loaded)
        for s in simulation.servers
        if s.tiers is not None
        for tier in s.tiers.tiers
    )
    assert sum(int(str(event.data["tokens"])) for event in told) == loaded * 16
    assert all(float(str(event.data["wait_s"])) > 0 for event in told)


def test_a_client_that_leaves_during_a_load_is_counted_with_that_reason() -> None:
    slow = ["serving.pools.0.engine.offload.0.bandwidth=1MB/s", "workload.0.timeout=5s"]
    result = run(STICKY, *slow)
    assert result["requests"]["timed_out"] > 0
    assert "the client left during the load of its KV cache" in result["reasons"]["timed_out"]


def test_a_router_sees_what_lies_in_tiers() -> None:
    """The precise picture of caches counts them; each turn goes where its history is."""
    seeing = TALKS.replace(
        "ROUTER", "weighted, scorers: {precise-prefix-cache: 1}, cache_delay: 0s"
    )
    result = run(seeing)
    hits = sum((turn * 130 - 1) // 16 * 16 for turn in (1, 2, 3))
    assert result["tokens"]["prefix_hit"] == 40 * hits
    assert sum(tier["loads"] for tier in tiers(result).values()) > 0


def test_what_the_last_tier_loses_is_not_looked_for() -> None:
    """The picture that a router has is what servers can find, at every moment."""
    text = STICKY
    small = [f"serving.pools.0.engine.offload=[{{tier: cpu, size: {60 * BLOCK_BYTES:.0f}B}}]"]
    simulation = compose(load_text(text, sets=small))
    journal = CacheJournal(ServerCaches(simulation.servers))
    index = CacheIndex(journal, [0, 1], 0.0)
    compared = 0

    def compare(now: Simulation) -> None:
        nonlocal compared
        index.read_on()
        for server in now.servers:
            for request in server.waiting.requests():
                if request.prefix is not None and not request.preemptions:
                    found = index.tokens(request, server.index)
                    assert found == server.cached_tokens(request)
                    compared += found > 0

    simulation.run(breathe, compare)
    assert simulation.servers[0].tiers is not None
    assert simulation.servers[0].tiers.tiers[0].evicted > 0
    assert compared > 10
