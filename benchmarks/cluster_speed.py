"""CPU time of whole clusters: cache-aware routing, many servers, a busy hour, and real traces."""

import os
from pathlib import Path

from benchmarks.claim import Claim, insist_on_compiled, least_cpu_s, report
from windtunnel.core.clock import cpu_s
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

WEIGHTED_US = 12.0
GROWTH = 1.3
HOUR_S = 15.0
MOONCAKE_S = 0.6
AZURE_S = 0.15
TRACES = Path(os.environ.get("WINDTUNNEL_TRACES", "../shared/data/traces"))

AWARE = """
name: aware
seed: 1
model: llama-3.1-8b
workload:
  - name: chat
    count: {requests}
    arrivals: {{process: poisson, rate: {rate}/s}}
    prompt_tokens: {{distribution: lognormal, mean: 256, cv: 0.5, min: 4, max: 8192}}
    output_tokens: {{distribution: lognormal, mean: 256, cv: 0.5, min: 1, max: 65536}}
    prefix: {{tokens: 256, groups: {groups}}}
serving:
  pools:
    - {{name: main, replicas: {servers}, accelerator: h200}}
  router: {{policy: weighted, scorers: {{prefix-cache: 2, queue-depth: 1, kv-utilization: 1}},
           staleness: 50ms}}
"""

HOUR = """
name: hour
seed: 1
duration: 1h
model: llama-3.1-8b
workload:
  - name: chat
    arrivals: {process: gamma, rate: 278/s, cv: 2}
    prompt_tokens: {distribution: lognormal, mean: 1155, cv: 0.95, min: 4, max: 14050}
    output_tokens: {distribution: lognormal, mean: 211, cv: 0.77, min: 1, max: 1000}
serving:
  pools:
    - {name: main, replicas: 16, accelerator: h200}
"""

REPLAY = """
name: replay
model: llama-3.1-8b
workload:
  - trace: {{format: {format}, path: {path}}}
    count: {count}
serving:
  pools:
    - {{name: main, replicas: {servers}, accelerator: h200}}
  router: {router}
"""


def aware_us(servers: int, repeats: int) -> float:
    """CPU microseconds per request, at 30 requests a second and three prefixes per server."""
    requests = max(20_000, servers * 800)
    text = AWARE.format(requests=requests, rate=30 * servers, groups=3 * servers, servers=servers)
    plan = load_text(text)
    return least_cpu_s(lambda: simulate(plan), repeats) / requests * 1e6


def watched_s() -> tuple[float, float]:
    """CPU seconds of five busy minutes, with an autoscaler that changes nothing and without one."""
    fixed = HOUR.replace("duration: 1h", "duration: 5m")
    bounds = "pools: {main: {min: 16, max: 16}}"
    watched = fixed + f"scaling: {{policy: saturation, interval: 15s, {bounds}}}\n"
    scaled, plain = load_text(watched), load_text(fixed)
    return least_cpu_s(lambda: simulate(scaled), 5), least_cpu_s(lambda: simulate(plain), 5)


def replay_s(form: str, path: Path, count: int, servers: int, router: str) -> float:
    text = REPLAY.format(
        format=form, path=path.resolve(), count=count, servers=servers, router=router
    )
    plan = load_text(text)
    return least_cpu_s(lambda: simulate(plan), 3)


def main() -> None:
    insist_on_compiled()
    target = "the target"
    sixteen = aware_us(16, 3)
    name = "prefix, queue and KV routing over 16 servers, CPU per request"
    report(Claim(name, ours=sixteen, baseline=WEIGHTED_US, most=1.0, unit="us", against=target))
    watched, fixed = watched_s()
    name = "an autoscaler that looks every 15 s, CPU of a run"
    unwatched = "the same run without"
    report(Claim(name, ours=watched, baseline=fixed, most=1.05, unit="s", against=unwatched))
    report(
        Claim(
            "the same over 256 servers",
            ours=aware_us(256, 2),
            baseline=aware_us(4, 3),
            most=GROWTH,
            unit="us",
            against="over 4 servers",
        )
    )
    plan = load_text(HOUR)
    start = cpu_s()
    result = simulate(plan)
    took = cpu_s() - start
    name = f"an hour of {result['requests']['arrived']:,} requests, CPU"
    report(Claim(name, ours=took, baseline=HOUR_S, most=1.0, unit="s", against=target))
    aware = "{policy: weighted, scorers: {prefix-cache: 2, queue-depth: 1}}"
    replays = (
        ("mooncake", "mooncake_conversation.jsonl", 12_031, 4, aware, MOONCAKE_S),
        ("azure", "azure_2023_conv.csv", 5_000, 1, "{policy: round-robin}", AZURE_S),
    )
    for form, file, count, servers, router, most_s in replays:
        if not (TRACES / file).is_file():
            print(f"skipped: {file} is not in {TRACES} (WINDTUNNEL_TRACES names the folder)")
            continue
        took = replay_s(form, TRACES / file, count, servers, router)
        name = f"{file}, {count:,} requests on {servers} server(s), CPU"
        report(Claim(name, ours=took, baseline=most_s, most=1.0, unit="s", against=target))


if __name__ == "__main__":
    main()
