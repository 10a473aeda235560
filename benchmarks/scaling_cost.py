"""CPU time that an autoscaler with an interval of 15 s adds to a simulation: at most 5%."""

from benchmarks.claim import Claim, insist_on_compiled, least_cpu_s, report
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

REQUESTS = 100_000
SCENARIO = f"""
name: scaled
seed: 1
model: llama-3.1-8b
workload:
  - name: chat
    count: {REQUESTS}
    arrivals: {{process: poisson, rate: 480/s}}
    prompt_tokens: {{distribution: lognormal, mean: 512, cv: 0.5, min: 4, max: 8192}}
    output_tokens: {{distribution: lognormal, mean: 256, cv: 0.5, min: 1, max: 65536}}
serving:
  pools:
    - {{name: main, replicas: 16, accelerator: h200}}
scaling: {{policy: saturation, interval: 15s, pools: {{main: {{min: 16, max: 16}}}}}}
"""


def main() -> None:
    insist_on_compiled()
    fixed, scaled = load_text(SCENARIO, sets=["scaling=null"]), load_text(SCENARIO)
    report(
        Claim(
            f"{REQUESTS:,} requests on 16 servers with an autoscaler that keeps them, compiled",
            ours=least_cpu_s(lambda: simulate(scaled), 5),
            baseline=least_cpu_s(lambda: simulate(fixed), 5),
            most=1.05,
            unit="CPU s",
            against="the same without one",
        )
    )


if __name__ == "__main__":
    main()
