"""Defects of a peer's autoscaler, each by its name, that must not be ours."""

from typing import Any

from tests.scaling.worlds import Wants, fleet, variant
from windtunnel.scaling.optimizers import CostOrdered
from windtunnel.scaling.policy import Policy, PolicyParts
from windtunnel.scaling.scaler import Scaler
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

IDLE_AT_FIRST = """
name: idle-at-first
duration: 4m
workload:
  - name: chat
    arrivals: {process: poisson, rate: 4/s}
    rate_curve: [[0s, 0.0], [60s, 0.0], [61s, 1.0], [150s, 1.0], [151s, 0.0]]
    prompt_tokens: 400
    output_tokens: 50
serving:
  pools:
    - name: main
      replicas: 2
      engine: {max_num_seqs: 32, kv_blocks: 2000}
      step_time: {model: linear, fixed: 10ms, per_prefill_token: 20us}
  startup: {load: {mean: 10s}}
scaling:
  policy: blis
  pools: {main: {min: 0, max: 4}}
"""

SPLIT = """
name: split
duration: 2m
workload:
  - name: chat
    arrivals: {process: poisson, rate: 12/s}
    prompt_tokens: 1500
    output_tokens: 60
serving:
  pools:
    - name: prompts
      role: prefill
      engine: {max_num_seqs: 16, kv_blocks: 4000}
      step_time: {model: linear, fixed: 10ms, per_prefill_token: 100us, per_decode: 1ms}
    - name: answers
      role: decode
      engine: {max_num_seqs: 16, kv_blocks: 4000}
      step_time: {model: linear, fixed: 10ms, per_prefill_token: 100us, per_decode: 1ms}
  disaggregation: {decider: always, transfer: {bytes_per_token: 1kB}}
scaling:
  policy: saturation
"""


def sizes(result: dict[str, Any], pool: str) -> list[int]:
    return [row[1] for row in result["scaling"]["pools"][pool]["sizes"]]


def test_an_idle_model_goes_to_zero_and_comes_back_with_its_requests() -> None:
    """The peer took every replica of an idle model away and rejected all 818 requests after."""
    result = simulate(load_text(IDLE_AT_FIRST))
    assert min(sizes(result, "main")) == 0
    requests = result["requests"]
    assert requests["arrived"] > 250
    assert requests["completed"] == requests["arrived"]


def test_a_minimum_is_kept_whatever_the_policy_says() -> None:
    """The peer ignored its minima."""
    result = simulate(load_text(IDLE_AT_FIRST, sets=["scaling.pools.main.min=1"]))
    assert min(sizes(result, "main")) == 1


def test_growth_that_finds_no_accelerators_is_told_and_not_dropped() -> None:
    """The peer logged an error and forgot the decision."""
    policy = Policy("p", PolicyParts([Wants(5)], CostOrdered(), []))
    scaler = Scaler({"m": policy}, 45.0)
    for tick in range(2):
        snapshot = fleet(variant(ready=2), free={"h100": 1}, taken_s=15.0 * tick)
        (decision,) = scaler.tick(snapshot, 15.0 * tick)
        assert (decision.recommended, decision.target) == (5, 3)
        (limit,) = decision.limits
        assert (limit.name, limit.without) == ("accelerators", 5)
        assert limit.reason == "Accelerators are available for 3 replicas, not for 5."


def test_prefill_and_decode_pools_are_scaled_each_by_its_own_need() -> None:
    """The peer did not scale pools that split the work."""
    result = simulate(load_text(SPLIT))
    assert max(sizes(result, "prompts")) > 1
    assert max(sizes(result, "answers")) > 1
