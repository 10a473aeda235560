"""A scenario to plan for that runs in a few milliseconds."""

SHOP = """\
name: shop
seed: 3
workload:
  - name: chat
    slo: critical
    count: 160
    arrivals: {process: poisson, rate: 40/s}
    prompt_tokens: {distribution: uniform, min: 20, max: 200}
    output_tokens: {distribution: uniform, min: 2, max: 20}
slo:
  critical: {ttft: 200ms, tpot: 40ms}
serving:
  pools:
    - name: main
      replicas: 2
      price_per_hour: 2.5
      engine: {kv_blocks: 400, max_num_seqs: 8}
      step_time: {model: linear, fixed: 8ms, per_prefill_token: 200us, per_decode: 300us}
  router: {policy: least-loaded}
"""
