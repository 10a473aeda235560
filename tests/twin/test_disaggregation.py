"""Prompts computed apart from answers, by hand: every wait, every byte, and what can go wrong."""

from pathlib import Path
from typing import Any

import pytest

from tests.twin.runs import run
from windtunnel.core.errors import InputError
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.run import run as run_plan
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load, load_text
from windtunnel.workload.request import Request

SPLIT = """\
name: split
workload:
  - name: chat
    count: {count}
    arrivals: {{process: constant, rate: {rate}}}
    prompt_tokens: {prompt}
    output_tokens: {output}
    {more}
serving:
  pools:
    - name: first
      role: prefill
      replicas: {prefills}
      engine: {{kv_blocks: 1000, async_scheduling: false}}
      step_time: {{model: linear, fixed: 10ms, per_prefill_token: 1ms, per_decode: 2ms}}
    - name: second
      role: decode
      engine: {{kv_blocks: {blocks}, async_scheduling: false}}
      step_time: {{model: linear, fixed: 20ms, per_prefill_token: 2ms, per_decode: 4ms}}
  disaggregation:
    {decider}
    transfer: {{bandwidth: 1MB/s, latency: {latency}, bytes_per_token: 1kB}}
"""


PARTS: dict[str, Any] = {
    "count": 1,
    "rate": "1/s",
    "prompt": 101,
    "output": 3,
    "more": "",
    "prefills": 1,
    "blocks": 1000,
    "decider": "decider: always",
    "latency": "1ms",
}


def split(**values: Any) -> dict[str, Any]:
    return run(SPLIT.format(**(PARTS | values)))


def test_ttft_has_the_whole_prefill_the_transfer_and_the_first_decode_step() -> None:
    """Prefill 10 + 101 ms, transfer 1 + 100 ms, one token of prompt left 20 + 2 ms."""
    latency = split()["latency"]
    ttft_s = 0.111 + 0.101 + 0.022
    assert latency["ttft"]["mean"] == pytest.approx(ttft_s, rel=1e-9)
    assert latency["e2e"]["mean"] == pytest.approx(ttft_s + 2 * 0.024, rel=1e-9)


def test_never_runs_everything_whole_on_the_decode_server() -> None:
    result = split(decider="decider: never")
    assert result["latency"]["ttft"]["mean"] == pytest.approx(0.020 + 2 * 0.101, rel=1e-9)
    assert result["pools"]["first"]["utilization"] == 0.0


def test_a_threshold_splits_only_what_lacks_more_than_it() -> None:
    whole = split(decider="decider: prefix-threshold\n    threshold: 101")
    assert whole["pools"]["first"]["utilization"] == 0.0
    parts = split(decider="decider: prefix-threshold\n    threshold: 100")
    assert parts["pools"]["first"]["utilization"] > 0.0


def test_a_decode_server_without_room_makes_requests_wait_and_loses_none() -> None:
    """Eight blocks hold one request of 104 tokens at a time; the peer would drop the others."""
    result = split(count=5, rate="100/s", blocks=9)
    assert result["requests"]["completed"] == 5
    assert result["disaggregation"]["waited"] > 0


def test_servers_that_do_both_never_wait_for_each_other() -> None:
    """Each has room for two prompts; full of prompts for the other, both would wait for ever."""
    text = """\
name: both
workload:
  - {name: chat, count: 40, arrivals: {process: constant, rate: 100/s}, prompt_tokens: 100,
     output_tokens: 20}
serving:
  pools:
    - {name: main, replicas: 2, step_time: {model: linear, fixed: 10ms}, engine: {kv_blocks: 18}}
    - {name: help, role: prefill, step_time: {model: linear, fixed: 10s}, engine: {kv_blocks: 8}}
  router: {policy: consistent-hash}
  disaggregation: {decider: always, transfer: {bandwidth: 1GB/s, bytes_per_token: 1kB}}
"""
    result = run(text)
    assert result["requests"]["completed"] == 40
    assert result["disaggregation"]["stayed"] > 0
    assert result["disaggregation"]["waited"] == 0


def test_a_request_that_can_never_be_decoded_is_dropped_with_the_reason() -> None:
    result = split(blocks=5)
    assert result["requests"]["dropped"] == 1
    assert result["pools"]["first"]["utilization"] == 0.0, "it was prefilled for nothing"


def test_a_run_may_end_in_the_middle_of_everything() -> None:
    text = SPLIT.format(
        count=40,
        rate="50/s",
        prompt=101,
        output=3,
        more="",
        prefills=2,
        blocks=20,
        decider="decider: always",
        latency="1ms",
    )
    for end in ("50ms", "150ms", "300ms", "1s"):
        result = run(f"duration: {end}\n{text}")
        requests = result["requests"]
        assert requests["arrived"] == requests["completed"] + requests["unfinished"]
        assert requests["unfinished"] > 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("serving.pools.1.role=prefill", "no pool has the role 'decode' or 'both'"),
        ("serving.pools.0.role=decode", "no pool has the role 'prefill' or 'both'"),
    ],
)
def test_roles_without_a_partner_are_faults(change: str, sentence: str) -> None:
    text = SPLIT.format(
        count=1,
        rate="1/s",
        prompt=9,
        output=3,
        more="",
        prefills=1,
        blocks=20,
        decider="decider: always",
        latency="1ms",
    )
    with pytest.raises(InputError, match=sentence):
        load_text(text, sets=[change])


def test_prefill_servers_alone_lack_a_partner_and_nothing_else() -> None:
    """Where nothing can be moved, its size is no question."""
    text = SPLIT.format(**PARTS)
    sets = ["serving.pools.1.role=prefill", "serving.disaggregation=null"]
    with pytest.raises(InputError) as fault:
        load_text(text, sets=sets)
    assert "no pool has the role 'decode' or 'both'" in str(fault.value)
    assert "bytes_per_token" not in str(fault.value)


def test_a_section_that_nothing_can_use_is_noted() -> None:
    text = SPLIT.format(
        count=1,
        rate="1/s",
        prompt=9,
        output=3,
        more="",
        prefills=1,
        blocks=20,
        decider="decider: always",
        latency="1ms",
    )
    sets = ["serving.pools.0.role=both", "serving.pools.1.role=both"]
    (note,) = load_text(text, sets=sets).notes
    assert "nothing is split" in note
    (note,) = load_text(text, sets=["serving.disaggregation.threshold=5"]).notes
    assert "which has no use for it" in note


@pytest.mark.parametrize(
    ("after_ms", "stage"),
    [
        (50, "during prefill"),
        (150, "during the KV transfer"),
        (220, "before the first token on the decode server"),
        (250, "during decode"),
    ],
)
def test_who_leaves_says_how_far_it_had_come(after_ms: int, stage: str) -> None:
    result = split(more=f"timeout: {after_ms}ms")
    assert result["reasons"]["timed_out"] == {f"the client left {stage}": 1}
    duration = f"duration: {1000 + after_ms}ms"  # it arrives after one second
    ended = run(SPLIT.format(**PARTS).replace("name: split", duration))
    assert ended["reasons"]["unfinished"] == {f"the run ended {stage}": 1}


def test_who_waits_for_blocks_on_the_decode_server_says_so() -> None:
    result = split(count=2, rate="100/s", blocks=9, output=20, more="timeout: 600ms")
    assert result["reasons"]["timed_out"] == {
        "the client left before the decode server had room for its KV cache": 1,
        "the client left during decode": 1,
    }


def test_the_wait_for_room_and_the_transfer_are_told_apart() -> None:
    result = split(count=2, rate="1000/s", blocks=9)["disaggregation"]
    assert result["transfer"]["mean"] == pytest.approx(0.101)
    assert result["room"]["p50"] > 0.0
    assert split()["disaggregation"]["room"]["max"] == 0.0


def test_prefill_servers_are_no_room_for_requests() -> None:
    """Four servers that compute prompts beside one that answers: fifty may be in flight."""
    text = SPLIT.format(**(PARTS | {"count": 300, "rate": "100000/s", "prefills": 4}))
    flow = "{policy: flow-control, detector: {kind: concurrency, max_per_server: 50}}"
    assert run(text, f"serving.admission={flow}")["gateway"]["waiting_peak"] == 250


CROWDED = """\
name: crowded
seed: 3
workload:
  - name: chat
    count: 300
    arrivals: {process: poisson, rate: 40/s}
    prompt_tokens: {distribution: lognormal, mean: 300, cv: 1, min: 10, max: 1500}
    output_tokens: {distribution: lognormal, mean: 30, cv: 1, min: 2, max: 200}
serving:
  pools:
    - name: first
      role: prefill
      replicas: 4
      engine: {kv_blocks: 4000}
      step_time: {model: linear, fixed: 5ms, per_prefill_token: 20us}
    - name: second
      role: decode
      engine: {kv_blocks: 120}
      step_time: {model: linear, fixed: 10ms, per_decode: 100us}
  disaggregation:
    transfer: {bandwidth: 1GB/s, latency: 10us, bytes_per_token: 1kB}
"""


class Rows:
    """The requests of a run, as they end."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        self.requests += requests


def test_room_on_a_decode_server_is_given_in_the_order_in_which_it_was_asked_for() -> None:
    rows = Rows()
    result = run_plan(load_text(CROWDED), rows=rows, check=True).result
    assert result["requests"]["completed"] == 300
    assert result["disaggregation"]["waited"] > 200
    ended = sorted(rows.requests, key=lambda request: (request.prefilled_s, request.order))
    begun = [request.transfer_start_s for request in ended]
    assert begun == sorted(begun)
    waits = [request.transfer_start_s - request.prefilled_s for request in ended]
    assert max(waits) < 2 * sorted(waits)[len(waits) * 9 // 10], "nobody is overtaken"


def test_twice_the_load_on_twice_the_servers_keeps_its_ttft() -> None:
    """Each server has a NIC of its own: transfers do not all share one link."""
    path = Path(__file__).parents[2] / "examples" / "disaggregation.yaml"
    once = simulate(load(path, ["workload.0.count=600"]))
    sizes = ["workload.0.count=1200", "workload.0.arrivals.rate=36/s"]
    twice = simulate(
        load(path, [*sizes, "serving.pools.0.replicas=10", "serving.pools.1.replicas=6"])
    )
    for share in ("p50", "p99"):
        assert twice["latency"]["ttft"][share] < 1.1 * once["latency"]["ttft"][share]
    assert twice["disaggregation"]["transfer"]["p99"] < 0.5


def test_layers_move_while_the_next_are_computed() -> None:
    """Of 100 ms, all but the last of 32 layers have been moved during the 111 ms of the prefill."""
    text = SPLIT.format(**PARTS).replace("workload:", "model: llama-3.1-8b\nworkload:")
    apart, layerwise = (
        run(text, f"serving.disaggregation.transfer.layerwise={value}")
        for value in ("false", "true")
    )
    assert apart["disaggregation"]["transfer"]["mean"] == pytest.approx(0.101)
    assert layerwise["disaggregation"]["transfer"]["mean"] == pytest.approx(0.001 + 0.1 / 32)
    assert layerwise["disaggregation"]["moved_bytes"] == apart["disaggregation"]["moved_bytes"]


def test_layers_are_those_of_a_model() -> None:
    text = SPLIT.format(**PARTS)
    with pytest.raises(InputError, match="no model that says how many layers"):
        load_text(text, sets=["serving.disaggregation.transfer.layerwise=true"])
