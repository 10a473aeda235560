"""What `predictive` computes that a replica carries, beside what it carries in the twin.

Cases are servers, lengths, targets and numbers of replicas; in the twin the rate is bisected at
which 95% attain them. Prints each case, and the share of cases within 10% and 20%.
"""

import math
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Final, NamedTuple

from benchmarks.claim import Claim, report
from windtunnel.scaling.policies.predictive.capacity import capacity_of
from windtunnel.scaling.policies.predictive.mix import RequestMix
from windtunnel.scaling.snapshot import Objective, ReplicaSpec, Variant
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.observation import EngineTimes
from windtunnel.twin.servers.pools import limits_of, shape_of, step_time_of

SCENARIO: Final = """\
name: capacity
seed: 3
duration: {minutes:.1f}m
model: {model}
workload:
  - name: chat
    slo: critical
    arrivals: {{process: poisson, rate: {rate:.6f}/s}}
    prompt_tokens: {{distribution: lognormal, mean: {prompt}, cv: 0.8, min: 4, max: 16384}}
    output_tokens: {{distribution: lognormal, mean: {output}, cv: 0.7, min: 1, max: 4096}}
slo: {{critical: {{ttft: {ttft}, tpot: {tpot}}}}}
serving:
  pools: [{{name: main, replicas: {replicas}, {hardware}}}]
  router: {{policy: least-loaded}}
"""
SERVERS: Final = (
    # model, hardware, pairs of targets for TTFT and TPOT
    ("llama-3.1-70b", "accelerator: h100, tensor_parallel: 4", ("2s 60ms", "1s 40ms", "10s 100ms")),
    ("llama-3.1-8b", "accelerator: l4", ("4s 120ms", "2s 80ms")),
    ("llama-3.1-8b", "accelerator: h100", ("1s 30ms", "500ms 15ms")),
)
LENGTHS: Final = ((800, 250), (3000, 150), (400, 600), (2000, 30))
REPLICAS: Final = (1, 4, 8, 16)
LONGEST_ANSWERS: Final = 600
ATTAINED: Final = 0.95
BISECTIONS: Final = 8


class CapacityCase(NamedTuple):
    model: str
    hardware: str
    targets: str
    prompt: int
    output: int
    replicas: int

    def plan(self, rate: float) -> ScenarioPlan:
        """A run of some 3,000 requests, long enough for the longest answers to end."""
        fewest = 25.0 if self.output >= LONGEST_ANSWERS else 10.0
        minutes = max(fewest, min(240.0, 3000.0 / rate / 60.0))
        ttft, tpot = self.targets.split()
        text = SCENARIO.format(minutes=minutes, rate=rate, ttft=ttft, tpot=tpot, **self._asdict())
        return load_text(text, "capacity.yaml")

    def computed(self) -> float:
        plan = self.plan(1.0)
        (pool,) = plan.pools
        shape, slo = shape_of(pool), plan.slos["critical"]
        limits = limits_of(pool, shape)
        spec = ReplicaSpec(
            kv_tokens=float(limits.kv_blocks * limits.block_size),
            max_num_seqs=int(limits.max_num_seqs),
            max_num_batched_tokens=int(limits.max_num_batched_tokens),
            step_times=EngineTimes(step_time_of(pool, shape)),
        )
        goal = Objective(slo.ttft_s or 0.0, slo.tpot_s or 0.0)
        mix = RequestMix(self.prompt, self.output)
        return capacity_of(Variant("main", spec=spec), mix, goal, self.replicas).rate


def ratio_of(case: CapacityCase) -> float:
    """The rate carried in the twin over the computed one; 0: below a quarter of it."""
    computed = case.computed()
    low, high = computed / 4.0, computed * 2.0
    if not carries(case, low):
        return 0.0
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if carries(case, middle) else (low, middle)
    return math.sqrt(low * high) / computed


def carries(case: CapacityCase, rate: float) -> bool:
    found = simulate(case.plan(rate * case.replicas))["slo"]["critical"]["attained"]
    return (found or 0.0) >= ATTAINED


def main() -> None:
    cases = [
        CapacityCase(model, hardware, targets, *lengths, replicas)
        for model, hardware, pairs in SERVERS
        for targets, lengths, replicas in product(pairs, LENGTHS, REPLICAS)
    ]
    ratios = []
    with ProcessPoolExecutor() as workers:
        for case, ratio in zip(cases, workers.map(ratio_of, cases), strict=True):
            ratios.append(ratio)
            print(*case, f"{ratio:.3f}", flush=True)
    for within, most in ((0.1, 0.25), (0.2, 0.05)):
        beyond = sum(abs(ratio - 1.0) > within for ratio in ratios)
        report(
            Claim(
                f"computed capacities more than {within:.0%} from those of the twin",
                ours=beyond,
                baseline=len(cases),
                most=most,
                unit="cases",
                against="all cases",
            )
        )


if __name__ == "__main__":
    main()
