"""Small scenarios with parts to fill in, for tests that run them."""

from typing import Any

from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

ONE_SERVER = """\
name: one
workload:
  - name: chat
    count: {count}
    arrivals: {{process: constant, rate: {rate}}}
    prompt_tokens: {prompt}
    output_tokens: {output}
serving:
  pools:
    - name: main
      engine: {{kv_blocks: 1000, async_scheduling: {overlapped}, host_overhead: {host}}}
      step_time: {{model: linear, fixed: 10ms, per_prefill_token: 1ms, per_decode: 2ms,
                   per_context_token: 100us}}
"""
"""A server whose every step can be computed by hand, under requests at equal gaps."""


def one_server(
    *,
    count: int = 1,
    rate: str = "1/s",
    prompt: int = 8,
    output: int = 3,
    overlapped: bool = False,
    host: str = "0s",
) -> str:
    """The text of that scenario."""
    return ONE_SERVER.format(
        count=count,
        rate=rate,
        prompt=prompt,
        output=output,
        overlapped=str(overlapped).lower(),
        host=host,
    )


BUSY = """\
name: busy
duration: 2s
workload:
  - name: chat
    slo: critical
    arrivals: {process: poisson, rate: 100/s}
    prompt_tokens: {distribution: lognormal, mean: 60, cv: 1, max: 400}
    output_tokens: {distribution: uniform, min: 1, max: 80}
    prefix: {tokens: 40, groups: 3}
  - name: nightly
    tenant: acme
    slo: batch
    count: 60
    arrivals: {process: gamma, rate: 60/s, cv: 3}
    prompt_tokens: {distribution: exponential, mean: 250, max: 900}
    output_tokens: 30
slo:
  critical: {ttft: 200ms, tpot: 30ms}
serving:
  pools:
    - name: main
      replicas: 2
      engine: {kv_blocks: 50, max_num_seqs: 16, scheduling: priority, reserve_full_prompt: false}
      step_time: {model: linear, fixed: 5ms, per_prefill_token: 20us, per_decode: 100us}
    - name: spare
      engine: {kv_blocks: 30, async_scheduling: false}
      step_time: {model: linear, fixed: 8ms}
      overheads: {queueing: 5ms, per_token: 10us, completion: 1ms}
"""
"""Completed, dropped and unfinished requests; prefixes, priorities, preemptions, two pools."""


def run(text: str, *sets: str, check: bool = True) -> dict[str, Any]:
    """The result of a scenario, every invariant checked after every event."""
    return simulate(load_text(text, sets=sets), check=check)
