"""Small scenarios that the tests of this folder start from."""

SMALL = """\
name: small
workload:
  - name: chat
    count: 100
    arrivals: {process: poisson, rate: 40/s}
    prompt_tokens: 512
    output_tokens: {distribution: lognormal, mean: 200, cv: 0.8, max: 4096}
serving:
  pools:
    - name: main
      replicas: 2
      engine: {kv_blocks: 1000}
      step_time: {model: linear, fixed: 6ms}
"""
"""Everything that must be there, and a little more; line 3 is the source, line 10 the pool."""

LARGE = """\
name: large
seed: 7
duration: 30m
model: meta-llama/Llama-3.1-8B
workload:
  - name: chat
    tenant: acme
    slo: critical
    arrivals: {process: gamma, rate: 2400/min, cv: 2.5}
    prompt_tokens: {distribution: normal, mean: 900, stddev: 90, min: 16, max: 16384}
    output_tokens: {distribution: exponential, mean: 250}
    prefix: {tokens: 600, groups: 12}
  - name: nightly
    slo: offline
    count: 1e3
    arrivals: {process: constant, rate: 5}
    prompt_tokens: {distribution: uniform, min: 100, max: 300}
    output_tokens: {distribution: constant, value: 64}
slo:
  critical: {ttft: 500ms, tpot: 50ms, e2e: 30s}
  offline: {priority: -1}
serving:
  pools:
    - name: main
      role: both
      replicas: 4
      accelerator: h200
      tensor_parallel: 2
      engine: {max_num_seqs: 512, scheduling: priority, host_overhead: 2ms, max_model_len: 32768}
      step_time: {model: physics, profile: profiles/mine.json}
      overheads: {queueing: 5ms, per_token: 10us, completion: 1ms}
    - name: old
      accelerator: a100
      engine: {kv_blocks: auto, prefix_caching: false}
      step_time: {model: blis-trained-physics, alpha: [1, 2.5, 3]}
    - {name: measured, accelerator: h100, step_time: {model: table, path: steps.csv, per_step: 1ms}}
  router: {policy: round-robin}
  admission: {policy: always}
"""

EVERYTHING = """\
name: everything
duration: 20s
workload:
  - name: talk
    tenant: acme
    arrivals: {process: weibull, shape: 0.8, scale: 300ms}
    rate_curve: {spike: {at: 5s, duration: 2s, factor: 3}}
    prompt_tokens: {distribution: pareto-lognormal, mean: 40, cv: 1, max: 300,
                    tail: {share: 0.1, start: 100, alpha: 1}}
    output_tokens: {distribution: empirical, path: seen.csv}
    population: {members: 3, tenants: per-member, prefixes: per-member}
    prefix: {tokens: 20}
    media: {tokens: 16, share: 0.3}
    reasoning: {tokens: {distribution: exponential, mean: 9}}
    session: {turns: {distribution: uniform, min: 1, max: 5}, think: 100ms}
    timeout: 500ms
  - name: loop
    arrivals: {process: closed, users: 4, think: {distribution: exponential, mean: 200ms}}
    prompt_tokens: 30
    output_tokens: 8
  - trace: {path: t.csv, sessions: closed, think: {distribution: exponential, mean: 1s}}
serving:
  encode: {}
  pools:
    - name: main
      replicas: 2
      engine: {kv_blocks: 60}
      step_time: {model: linear, fixed: 10ms, per_prefill_token: 200us}
"""
"""Every kind of traffic there is; it names the files seen.csv and t.csv."""
