"""One large run against the same fleet in shards on Ray: equal figures, and wall time.

Twenty models with 50 servers each, and 1,000,000 requests or the number in the first argument
(10,000,000). Sources draw from their own streams and each model has its own router, so a run of one
model alone has exactly the figures that it has in the fleet. Ray's time is that of warm workers: it
takes seconds to start, once.
"""

import importlib.util
import math
import os
import resource
import sys

from benchmarks.claim import Claim, insist_on_compiled, report
from benchmarks.routing_speed import PER_SERVER, WEIGHTED
from windtunnel.core.clock import cpu_s, monotonic_s
from windtunnel.core.system.processes import processors
from windtunnel.search.execution.workers import MeasuredRun, Workers
from windtunnel.search.measure import Metrics, measured
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan

REQUESTS = 1_000_000
SERVERS = 50
MODELS = [
    "llama-3.1-8b",
    "llama-3.2-1b",
    "llama-3.2-3b",
    "qwen2.5-0.5b",
    "qwen2.5-1.5b",
    "qwen2.5-3b",
    "qwen2.5-7b",
    "qwen2.5-14b",
    "qwen3-0.6b",
    "qwen3-1.7b",
    "qwen3-4b",
    "qwen3-8b",
    "qwen3-14b",
    "mistral-7b",
    "gemma-3-4b",
    "gemma-3-12b",
    "mistral-nemo-12b",
    "granite-3.1-8b",
    "granite-4.1-3b",
    "granite-4.1-8b",
]
SUMS = (
    *("requests.arrived", "requests.completed", "requests.unfinished"),
    *("tokens.prompt", "tokens.output", "tokens.prefix_hit"),
)
"""Figures of a whole run that are sums over its models."""

SOURCE = """
  - name: {model}
    model: {model}
    slo: {model}
    arrivals: {{process: poisson, rate: {rate}/s}}
    prompt_tokens: {{distribution: lognormal, mean: 256, cv: 0.5, min: 4, max: 8192}}
    output_tokens: {{distribution: lognormal, mean: 256, cv: 0.5, min: 1, max: 4096}}
    prefix: {{tokens: 256, groups: {groups}}}"""
POOL = """
    - {{name: {model}, model: {model}, replicas: {servers}, accelerator: h200}}"""
CLASS = """
  {model}: {{ttft: 500ms, tpot: 50ms}}"""


def fleet(models: list[str], duration_s: float) -> ScenarioPlan:
    """30 requests a second per server; half of each prompt is shared within one of many groups."""

    def each(text: str) -> str:
        rate, groups = PER_SERVER * SERVERS, 4 * SERVERS
        return "".join(
            text.format(model=one, rate=rate, groups=groups, servers=SERVERS) for one in models
        )

    text = f"name: fleet\nseed: 1\nduration: {duration_s}s\nworkload:{each(SOURCE)}\n"
    text += f"slo:{each(CLASS)}\nserving:\n  router: {WEIGHTED}\n  pools:{each(POOL)}\n"
    return load_text(text)


def merged(shards: list[Metrics]) -> Metrics:
    """The figures of each shard for its own models, and sums over all."""
    own = ("slo.", "pools.")
    found = {name: one[name] for one in shards for name in one if name.startswith(own)}
    for name in SUMS:
        found[name] = sum(one[name] or 0 for one in shards)
    return found


def metrics_of(outcome: object) -> Metrics:
    assert isinstance(outcome, MeasuredRun), outcome
    return outcome.metrics


def main(requests: int) -> None:
    insist_on_compiled()
    if importlib.util.find_spec("ray") is None:
        print("skipped: Ray is not installed")
        return
    duration_s = requests / (PER_SERVER * SERVERS * len(MODELS))
    load = os.getloadavg()[0]
    start_s, start_cpu_s = monotonic_s(), cpu_s()
    whole = metrics_of(measured(fleet(MODELS, duration_s)))
    whole_s, whole_cpu_s = monotonic_s() - start_s, cpu_s() - start_cpu_s
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    shards = [fleet([model], duration_s) for model in MODELS]
    jobs = processors()
    with Workers(on="ray", jobs=jobs) as workers:
        warm = [one.changed(duration_s=0.1) for one in shards[: 2 * jobs]]
        assert len(list(workers.evaluate(warm))) == len(warm)
        start_s = monotonic_s()
        outcomes = dict(workers.evaluate(shards))
        sharded_s = monotonic_s() - start_s
    found = merged([metrics_of(outcomes[number]) for number in range(len(shards))])
    differing = [name for name, value in found.items() if value != whole[name]]
    assert not differing, differing
    count = whole["requests.arrived"]
    assert count is not None
    assert math.isclose(count, requests, rel_tol=0.01)
    print(f"  {count:,} requests on {SERVERS * len(MODELS):,} servers in one process: ", end="")
    print(f"{whole_cpu_s:.1f} CPU s, at most {peak_mib:,.0f} MiB")
    print(f"  {len(found):,} figures of {len(shards)} shards equal those of the whole run")
    report(
        Claim(
            f"{count:,} requests in {len(shards)} shards on Ray, {jobs} workers, load {load:.0f}",
            ours=sharded_s,
            baseline=whole_s,
            most=1.0 / (0.925 * jobs),
            unit="s",
            against="one run in one process, wall time",
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS)
