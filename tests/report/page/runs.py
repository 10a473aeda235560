"""Folders of small runs, for tests that make reports of them."""

from pathlib import Path

from windtunnel.report.files.folder import RunFolder
from windtunnel.twin.run import Run, run
from windtunnel.twin.scenario.load import load_text

FULL = """\
name: full
duration: 8s
workload:
  - name: chat
    slo: critical
    arrivals: {{process: poisson, rate: {rate}/s}}
    prompt_tokens: {{distribution: lognormal, mean: 200, cv: 1, max: 900}}
    output_tokens: {{distribution: uniform, min: 1, max: 80}}
slo:
  critical: {{ttft: 200ms, tpot: 30ms}}
serving:
  pools:
    - name: main
      replicas: {replicas}
      engine: {{kv_blocks: 600, max_num_seqs: 8}}
      step_time: {{model: linear, fixed: 5ms, per_prefill_token: 20us, per_decode: 100us}}
"""
"""A server carries some 25 of these requests a second."""

STUCK = """\
name: stuck
duration: 3s
workload:
  - name: chat
    arrivals: {process: constant, rate: 20/s}
    prompt_tokens: 100
    output_tokens: 4000
  - name: huge
    arrivals: {process: constant, rate: 2/s}
    prompt_tokens: {distribution: uniform, min: 20000, max: 40000}
    output_tokens: 10
serving:
  pools:
    - name: main
      engine: {kv_blocks: 1000, max_num_seqs: 4}
      step_time: {model: linear, fixed: 30ms}
"""
"""Nothing is completed: answers take longer than the run, and some prompts never fit."""

SILENT = STUCK.replace("3s", "1ms")
"""Nothing arrives."""


SPLIT = """\
name: split
duration: 8s
workload:
  - name: chat
    tenant: acme
    slo: critical
    arrivals: {process: poisson, rate: 25/s}
    prompt_tokens: {distribution: lognormal, mean: 300, cv: 1, max: 1500}
    output_tokens: {distribution: uniform, min: 1, max: 60}
    timeout: 2s
  - name: nightly
    tenant: beta
    slo: batch
    arrivals: {process: gamma, rate: 5/s, cv: 3}
    prompt_tokens: 900
    output_tokens: 40
slo:
  critical: {ttft: 400ms, tpot: 30ms}
  batch: {e2e: 5s}
serving:
  pools:
    - name: first
      role: prefill
      replicas: 2
      accelerator: h100
      engine: {kv_blocks: 400}
      step_time: {model: linear, fixed: 5ms, per_prefill_token: 60us, per_decode: 100us}
    - name: second
      role: decode
      engine: {kv_blocks: 300, max_num_seqs: 16}
      accelerator: h200
      step_time: {model: linear, fixed: 8ms, per_prefill_token: 60us, per_decode: 200us}
  disaggregation:
    decider: prefix-threshold
    threshold: 100
    transfer: {bandwidth: 20MB/s, latency: 2ms, bytes_per_token: 2kB}
"""
"""Prompts apart from answers, over a slow link, to a server that is short of blocks."""


TALKS = """\
name: talks
workload:
  - name: chat
    count: 20
    arrivals: {process: constant, rate: 5/s}
    prompt_tokens: 50
    output_tokens: 10
    session: {turns: 3, think: 500ms, context: accumulate}
serving:
  pools:
    - name: main
      replicas: 2
      engine: {kv_blocks: 2000}
      step_time: {model: linear, fixed: 5ms, per_prefill_token: 100us}
"""
"""Conversations of three turns."""


GATED = """\
name: gated
duration: 8s
workload:
  - name: chat
    slo: critical
    tenant: acme
    arrivals: {process: poisson, rate: 20/s}
    prompt_tokens: 200
    output_tokens: {distribution: uniform, min: 1, max: 80}
  - name: job
    slo: sheddable
    tenant: bulk
    arrivals: {process: poisson, rate: 60/s}
    prompt_tokens: 200
    output_tokens: 60
slo:
  critical: {ttft: 500ms}
serving:
  pools:
    - name: main
      engine: {kv_blocks: 600, max_num_seqs: 8}
      step_time: {model: linear, fixed: 5ms, per_prefill_token: 20us, per_decode: 100us}
  admission:
    policy: flow-control
    order: priority
    detector: {kind: concurrency, max_per_server: 10}
    ttl: 3s
"""
"""A line at the gateway, in which some wait for too long."""


def full(rate: int = 20, replicas: int = 1) -> str:
    return FULL.format(rate=rate, replicas=replicas)


def run_into(folder: Path, text: str, *sets: str) -> Run:
    """Runs a scenario and leaves its files in a folder."""
    plan = load_text(text, sets=sets)
    with RunFolder(folder) as place:
        done = run(plan, rows=place.rows(), decisions=place.control())
        place.finish(done)
    return done
