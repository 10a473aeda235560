"""Cost of checking every invariant after every event: at most 3 times the CPU time of the run."""

from benchmarks.claim import Claim, insist_on_compiled, least_cpu_s, report
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

REQUESTS = 20_000
SERVERS = 16
SCENARIO = f"""
name: checked
seed: 1
model: llama-3.1-8b
workload:
  - name: chat
    count: {REQUESTS}
    arrivals: {{process: poisson, rate: 480/s}}
    prompt_tokens: {{distribution: lognormal, mean: 512, cv: 0.5, min: 4, max: 8192}}
    output_tokens: {{distribution: lognormal, mean: 256, cv: 0.5, min: 1, max: 65536}}
    prefix: {{tokens: 128, groups: 20}}
serving:
  pools:
    - {{name: main, replicas: {SERVERS}, accelerator: h200}}
  router: {{policy: weighted}}
"""


def main() -> None:
    insist_on_compiled()
    plan = load_text(SCENARIO)
    report(
        Claim(
            f"{REQUESTS:,} requests on {SERVERS} servers, every invariant after every event, "
            "compiled",
            ours=least_cpu_s(lambda: simulate(plan, check=True), 3),
            baseline=least_cpu_s(lambda: simulate(plan), 3),
            most=3.0,
            unit="CPU s",
            against="the same, checked at its end",
        )
    )


if __name__ == "__main__":
    main()
