"""The traffic on which claims about the engine are measured."""

from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan

SCENARIO = """
name: benchmark
seed: 1
model: llama-3.1-8b
workload:
  - name: chat
    count: {requests}
    arrivals: {{process: poisson, rate: 480/s}}
    prompt_tokens: {{distribution: lognormal, mean: 512, cv: 0.5, min: 4, max: 8192}}
    output_tokens: {{distribution: lognormal, mean: {output}, cv: 0.5, min: 1, max: 65536}}
serving:
  pools:
    - name: main
      replicas: 16
      accelerator: h200
      engine: {{max_num_seqs: 256, max_num_batched_tokens: 8192, memory_utilization: 0.9}}
"""


def chat(requests: int, output: int = 256) -> ScenarioPlan:
    """16 servers at 30 requests a second each, 512 prompt tokens, physics, prefix caching on."""
    return load_text(SCENARIO.format(requests=requests, output=output))
