"""The result keeps its contract: every key, every request accounted for, nulls for what is not."""

from typing import Any

import pytest

import windtunnel
from tests.twin.runs import BUSY, one_server, run
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.twin.scenario.load import load_text

FIGURES = {"mean", "p50", "p90", "p95", "p99", "max"}
CONTRACT: dict[str, set[str] | None] = {
    "name": None,
    "seed": None,
    "overrides": None,
    "windtunnel": None,
    "scenario_sha256": None,
    "simulated_seconds": None,
    "ended_by": None,
    "partial": None,
    "measured": None,
    "requests": {"arrived", "completed", "rejected", "timed_out", "dropped", "unfinished"},
    "reasons": {"completed", "rejected", "timed_out", "dropped", "unfinished"},
    "tokens": {"prompt", "output", "prefix_hit"},
    "latency": {"ttft", "tpot", "itl", "e2e", "queue", "gateway"},
    "throughput": {"requests_per_s", "output_tokens_per_s", "goodput_requests_per_s"},
    "slo": None,
    "sources": None,
    "tenants": None,
    "fairness": {"served_tokens", "goodput"},
    "sessions": {"count", "turns", "ended", "cold_ttft", "warm_ttft", "duration"},
    "adapters": None,
    "models": None,
    "gateway": None,
    "routing": None,
    "encode": None,
    "disaggregation": None,
    "pools": None,
    "servers": None,
    "cost": {"total", "per_million_output_tokens"},
    "scaling": None,
    "gangs": None,
    "fleet": None,
    "decisions": {"scaling", "faults", "gang_terminations", "fleet_actions"},
    "faults": None,
    "invariants": {"checked", "broken"},
    "trust": {"verdict", "findings", "pools", "saturated", "latency_intervals", "repeats"},
}
POOL = {
    "model",
    "cluster",
    "replica_seconds",
    "ready_seconds",
    "replicas",
    "accelerator_seconds",
    "utilization",
    "preemptions",
    "kv_peak",
    "kv_blocks",
    "kv_leaked",
    "offload",
    "price_per_hour",
    "cost",
    "step_time",
}
TALLY = {
    "requests",
    "completed",
    "rejected",
    "timed_out",
    "dropped",
    "unfinished",
    "attained",
}
CLASS = TALLY | {
    "attained_by",
    "goodput_requests_per_s",
    "ttft",
    "tpot",
    "e2e",
    "queue",
}
ACCOUNT = TALLY | {
    "goodput_requests_per_s",
    "prompt_tokens",
    "output_tokens",
    "served_share",
}
SERVER = {
    "pool",
    "server",
    "requests",
    "queue_mean",
    "utilization",
    "steps",
    "preemptions",
    "kv_peak",
    "prefix_hit_tokens",
    "output_tokens",
}

NOTHING_ARRIVES = one_server(rate="1/s").replace("name: one", "duration: 500ms")
NOTHING_COMPLETES = one_server(rate="1/s", output=900).replace("name: one", "duration: 1500ms")
ALL_ARE_DROPPED = one_server(count=3, prompt=20_000)


@pytest.mark.parametrize(
    "text", [one_server(), BUSY, NOTHING_ARRIVES, NOTHING_COMPLETES, ALL_ARE_DROPPED]
)
def test_every_key_is_there_whatever_happened(text: str) -> None:
    result = run(text)
    assert set(result) == set(CONTRACT)
    for key, below in CONTRACT.items():
        assert below is None or set(result[key]) == below, key
    for figures in result["latency"].values():
        assert set(figures) == FIGURES
    for pool in result["pools"].values():
        assert set(pool) == POOL
    for slo in result["slo"].values():
        assert set(slo) == CLASS
        assert set(slo["attained_by"]) == {"ttft", "tpot", "e2e"}
        assert all(set(slo[name]) == FIGURES for name in ("ttft", "tpot", "e2e"))
    for account in result["sources"].values():
        assert set(account) == ACCOUNT
    for account in result["tenants"].values():
        assert set(account) == ACCOUNT | {"ttft", "e2e"}
    for server in result["servers"]:
        assert set(server) == SERVER
    assert list(result["trust"]["pools"]) == list(result["pools"])
    for pool in result["trust"]["pools"].values():
        assert set(pool) == {"error", "measured", "extrapolated"}
    requests = dict(result["requests"])
    assert requests.pop("arrived") == sum(requests.values())
    assert result["windtunnel"] == windtunnel.__version__
    assert result["scenario_sha256"] == load_text(text).sha256
    assert result["invariants"]["broken"] == 0


def assert_no_latencies(result: dict[str, Any]) -> None:
    for figures in result["latency"].values():
        assert set(figures.values()) == {None}
    assert result["tokens"] == {"prompt": 0, "output": 0, "prefix_hit": 0}
    assert set(result["throughput"].values()) == {0.0}
    assert result["cost"] == {"total": 0.0, "per_million_output_tokens": None}


def assert_class(result: dict[str, Any], *, requests: int, attained: float | None) -> None:
    """The only class there is, in a run in which nothing completed."""
    (slo,) = result["slo"].values()
    assert (slo["requests"], slo["attained"], slo["completed"]) == (requests, attained, 0)
    assert set(slo["attained_by"].values()) == {None}
    assert slo["ttft"]["p50"] is slo["e2e"]["p99"] is None


def test_nothing_arrives() -> None:
    result = run(NOTHING_ARRIVES)
    assert set(result["requests"].values()) == {0}
    assert_no_latencies(result)
    assert result["simulated_seconds"] == 0.5
    assert_class(result, requests=0, attained=None)
    assert result["ended_by"] == "duration"
    assert result["fairness"] == {"served_tokens": None, "goodput": None}
    assert result["pools"]["main"]["utilization"] == 0.0
    assert result["pools"]["main"]["kv_peak"] == 0.0


def test_nothing_completes_before_the_end() -> None:
    result = run(NOTHING_COMPLETES)
    assert result["requests"]["arrived"] == result["requests"]["unfinished"] == 1
    assert result["latency"]["ttft"]["mean"] is None
    assert result["latency"]["e2e"]["max"] is None
    assert result["throughput"]["requests_per_s"] == 0.0
    assert_class(result, requests=1, attained=0.0)
    assert result["reasons"]["unfinished"] == {"the run ended during decode": 1}
    assert result["fairness"] == {"served_tokens": None, "goodput": None}


def test_what_can_never_fit_is_dropped() -> None:
    result = run(ALL_ARE_DROPPED)
    assert result["requests"]["dropped"] == 3
    assert_no_latencies(result)
    assert result["simulated_seconds"] == pytest.approx(3.0)
    assert_class(result, requests=3, attained=0.0)
    assert result["ended_by"] == "last request"
    assert result["reasons"]["dropped"] == {"needs 1251 KV blocks, the server has 999": 3}


def test_a_busy_run_shows_everything_at_once() -> None:
    """The scenario that other tests rely on has what they look for."""
    result = run(BUSY)
    requests = result["requests"]
    assert min(requests["completed"], requests["dropped"], requests["unfinished"]) > 0
    assert result["pools"]["main"]["preemptions"] > 0
    assert result["tokens"]["prefix_hit"] > 0
    assert 0.0 < result["slo"]["critical"]["attained"] < 1.0
    assert list(result["slo"]) == ["batch", "critical"]
    assert list(result["pools"]) == ["main", "spare"]
    assert result["simulated_seconds"] == 2.0


def test_the_duration_cuts_off_and_counts_what_is_left() -> None:
    whole = run(one_server(count=40, rate="20/s", output=10))
    assert whole["requests"]["completed"] == 40
    cut = run(one_server(count=40, rate="20/s", output=10), "duration=1s")
    assert cut["simulated_seconds"] == 1.0
    assert cut["requests"]["arrived"] == 19  # the twentieth comes at the very end
    assert cut["requests"]["completed"] + cut["requests"]["unfinished"] == 19
    assert 0 < cut["requests"]["unfinished"] < 19


def test_pool_seconds_and_cost_follow_from_the_hardware() -> None:
    text = one_server(output=3).replace("name: one", "duration: 36s\nmodel: llama-3.1-8b")
    text = text.replace(
        "name: main\n", "name: main\n      replicas: 3\n      accelerator: h200\n"
    ).replace("replicas: 3", "replicas: 3\n      tensor_parallel: 2")
    result = run(text)
    pool = result["pools"]["main"]
    assert pool["replica_seconds"] == 3 * 36.0
    assert pool["accelerator_seconds"] == 3 * 36.0 * 2
    price = resolve_accelerator("h200").price_per_hour or 0.0
    assert result["cost"]["total"] == pytest.approx(6 * 0.01 * price)
    per_million = result["cost"]["total"] / result["tokens"]["output"] * 1e6
    assert result["cost"]["per_million_output_tokens"] == pytest.approx(per_million)
