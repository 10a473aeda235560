"""Cost of the whole loop: an hour of 64 servers, half a million requests, every layer on.

At most 12 s of CPU time, and at most 1.5 times that of the servers alone.
"""

from benchmarks.claim import Claim, insist_on_compiled, least_cpu_s, report
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

MOST_S = 12.0
LAYERS = ("scaling", "fleet", "faults", "serving.startup", "serving.admission")
SCENARIO = """
name: whole-loop
seed: 1
duration: 1h
model: llama-3.1-8b
workload:
  - name: chat
    tenant: acme
    slo: critical
    arrivals: {process: poisson, rate: 110/s}
    prompt_tokens: {distribution: lognormal, mean: 512, cv: 0.5, min: 4, max: 8192}
    output_tokens: {distribution: lognormal, mean: 256, cv: 0.5, min: 1, max: 8192}
  - name: reports
    tenant: globex
    slo: standard
    arrivals: {process: poisson, rate: 30/s}
    prompt_tokens: {distribution: lognormal, mean: 512, cv: 0.5, min: 4, max: 8192}
    output_tokens: {distribution: lognormal, mean: 256, cv: 0.5, min: 1, max: 8192}
slo:
  critical: {priority: 4, ttft: 1s}
serving:
  pools: [{name: main, accelerator: h200, replicas: 64}]
  router: {policy: least-loaded}
  admission: {policy: tier-shed, threshold: 100}
  startup: {load: {mean: 60s, stddev: 5s}}
scaling: {policy: saturation, interval: 15s, pools: {main: {min: 64, max: 80}}}
fleet:
  pools:
    - {name: h200-a, accelerator: h200, machines: {initial: 8, max: 12}, machines_per_rack: 2,
       provisioning: {mean: 90s, stddev: 10s}}
faults:
  - {at: 10m, kind: machine-loss, select: {pool: h200-a, count: 1}}
  - {at: 20m, kind: slow-machine, select: {pool: main, count: 2}, factor: 1.5, for: 5m}
  - {at: 40m, kind: rack-loss, select: {pool: h200-a, count: 1}}
"""


def main() -> None:
    insist_on_compiled()
    whole = load_text(SCENARIO)
    alone = load_text(SCENARIO, sets=[f"{name}=null" for name in LAYERS])
    arrived = simulate(whole)["requests"]["arrived"]
    ours, theirs = least_cpu_s(lambda: simulate(whole), 2), least_cpu_s(lambda: simulate(alone), 2)
    name = f"an hour of 64 servers and {arrived:,} requests with every layer and faults, compiled"
    report(Claim(name, ours=ours, baseline=MOST_S, most=1.0, unit="CPU s", against="the target"))
    report(
        Claim(name, ours=ours, baseline=theirs, most=1.5, unit="CPU s", against="its servers alone")
    )


if __name__ == "__main__":
    main()
