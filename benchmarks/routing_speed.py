"""CPU time per request with a weighted router: against the target, and with more servers."""

from benchmarks.claim import Claim, insist_on_compiled, least_cpu_s, report
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan

REQUESTS = 100_000
COMPILED_US = 12.0
MORE_SERVERS_RATIO = 1.3
MANY_SERVERS_US = 15.0
PER_SERVER = 30

SCENARIO = """
name: benchmark
seed: 1
model: llama-3.1-8b
workload:
  - name: chat
    count: {requests}
    arrivals: {{process: poisson, rate: {rate}/s}}
    prompt_tokens: {{distribution: lognormal, mean: 256, cv: 0.5, min: 4, max: 8192}}
    output_tokens: {{distribution: lognormal, mean: 256, cv: 0.5, min: 1, max: 4096}}
    prefix: {{tokens: 256, groups: {groups}}}
serving:
  pools:
    - {{name: main, replicas: {servers}, accelerator: h200}}
  router: {router}
"""

WEIGHTED = (
    "{policy: weighted, scorers: {prefix-cache: 2, queue-depth: 1, kv-utilization: 1}, "
    "staleness: 50ms}"
)


def chat(servers: int, router: str = WEIGHTED, requests: int = REQUESTS) -> ScenarioPlan:
    """30 requests a second per server; half of each prompt is shared within one of many groups."""
    rate = PER_SERVER * servers
    groups = 4 * servers
    text = SCENARIO.format(
        requests=requests, rate=rate, groups=groups, servers=servers, router=router
    )
    return load_text(text)


def us_per_request(plan: ScenarioPlan, repeats: int = 3, requests: int = REQUESTS) -> float:
    return least_cpu_s(lambda: simulate(plan), repeats) / requests * 1e6


def main() -> None:
    insist_on_compiled()
    sixteen = us_per_request(chat(16), 5)
    name = f"{REQUESTS:,} requests, weighted by prefix, queue and KV, 50 ms staleness"
    report(
        Claim(
            f"{name}, 16 servers, CPU per request",
            ours=sixteen,
            baseline=COMPILED_US,
            most=1.0,
            unit="us",
            against="the target",
        )
    )
    report(
        Claim(
            f"{name}, 16 servers, against round-robin",
            ours=sixteen,
            baseline=us_per_request(chat(16, "{policy: round-robin}"), 5),
            most=2.0,
            unit="us",
            against="the same traffic, round-robin",
        )
    )
    report(
        Claim(
            f"{name}, 256 servers, CPU per request",
            ours=us_per_request(chat(256)),
            baseline=us_per_request(chat(4)),
            most=MORE_SERVERS_RATIO,
            unit="us",
            against="4 servers, as many requests to each a second",
        )
    )
    report(
        Claim(
            f"{name}, 1,000 servers, CPU per request",
            ours=us_per_request(chat(1_000), 1),
            baseline=MANY_SERVERS_US,
            most=1.0,
            unit="us",
            against="the target",
        )
    )


if __name__ == "__main__":
    main()
