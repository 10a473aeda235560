"""Servers on as many machines: CPU time grows linearly, at most twice that without machines."""

from benchmarks.claim import Claim, least_cpu_s, report
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

SIZES = (250, 1_000, 2_000, 4_000)
COMPARED = 2_000
"""The size at which a run with machines is compared with the same run without."""
WITHOUT = ("fleet=null", "serving.startup=null")
LINEAR = 1.3
TWICE = 2.0
SCENARIO = """
name: growth
seed: 1
duration: 10m
workload:
  - name: chat
    count: 5
    arrivals: {{process: constant, rate: 1/s}}
    prompt_tokens: {{distribution: constant, value: 100}}
    output_tokens: {{distribution: constant, value: 200}}
serving:
  pools:
    - name: main
      accelerator: h200
      tensor_parallel: 8
      replicas: {size}
      engine: {{kv_blocks: 500, max_num_seqs: 4}}
      step_time: {{model: linear, fixed: 20ms, per_prefill_token: 10us, per_decode: 1ms}}
  startup: {{load: {{mean: 30s}}}}
  router: {{policy: least-loaded}}
fleet:
  pools:
    - name: big
      accelerator: h200
      accelerators: 8
      machines: {{max: {size}}}
      price_per_hour: 36
      provisioning: {{mean: 60s}}
      machines_per_rack: 8
"""


def cpu_s_of(size: int, sets: tuple[str, ...] = (), repeats: int = 2) -> float:
    """CPU time of five requests and ten simulated minutes on this many machines."""
    plan = load_text(SCENARIO.format(size=size), sets=list(sets))
    return least_cpu_s(lambda: simulate(plan), repeats)


def main() -> None:
    """Prints the time of each size, and whether growth and fleet overhead meet their targets."""
    took = {size: cpu_s_of(size) for size in SIZES}
    for size in SIZES:
        print(f"{size:6,} machines and servers: {took[size]:.3f} CPU s", flush=True)
    smallest, largest = SIZES[0], SIZES[-1]
    report(
        Claim(
            f"{largest:,} machines and as many servers, for each machine",
            ours=1e3 * took[largest] / largest,
            baseline=1e3 * took[smallest] / smallest,
            most=LINEAR,
            unit="CPU ms",
            against=f"{smallest:,} machines",
        )
    )
    report(
        Claim(
            f"{COMPARED:,} servers on {COMPARED:,} machines",
            ours=took[COMPARED],
            baseline=cpu_s_of(COMPARED, WITHOUT),
            most=TWICE,
            unit="CPU s",
            against="the same servers without machines",
        )
    )


if __name__ == "__main__":
    main()
