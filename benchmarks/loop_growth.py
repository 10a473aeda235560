"""The whole loop at the size of a cluster: an hour of 4,000 machines and 32,000 pods.

A pool of servers of eight pods each, in scaling groups that stay in one rack, on machines of a
fleet. A schedule adds a tenth of the servers in the middle of the hour and removes them again;
machines and a rack are lost, engines crash, the provider has an outage, and the controllers of
gangs and machines restart. The traffic is modest, and the same at every size.

In a second scenario, a launch, a schedule scales from a hundredth of the servers to all of them, on
machines that are then provisioned: thousands of gangs wait while machines join one by one.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.claim import Claim, insist_on_compiled, report
from windtunnel.core.clock import cpu_s
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load
from windtunnel.twin.scenario.plan import ScenarioPlan

SIZES = (500, 1_000, 2_000, 4_000)
"""Machines, each with eight pods."""
PODS = 8
MOST_S = 60.0
LINEAR = 1.3
MANIFEST = """
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {{name: chat}}
spec:
  replicas: 1
  template:
    terminationDelay: 2m
    cliques:
      - name: leader
        spec: {{roleName: leader, replicas: 1, podSpec: &pod {{containers: [
          {{name: engine, image: "engine:1",
            resources: {{requests: {{cpu: "8", nvidia.com/gpu: "1"}}}}}}]}}}}
      - name: worker
        spec: {{roleName: worker, replicas: 7, podSpec: *pod}}
    podCliqueScalingGroups:
      - name: engine
        cliqueNames: [leader, worker]
        replicas: {servers}
        minAvailable: 1
        topologyConstraint: {{topologyName: racks, pack: {{required: rack}}}}
"""
SCENARIO = """
name: loop
seed: 1
duration: 1h
workload:
  - name: chat
    slo: critical
    arrivals: {{process: poisson, rate: 20/s}}
    prompt_tokens: {{distribution: lognormal, mean: 512, cv: 0.5, min: 4, max: 8192}}
    output_tokens: {{distribution: lognormal, mean: 256, cv: 0.5, min: 1, max: 8192}}
slo:
  critical: {{priority: 4, ttft: 1s}}
serving:
  pools:
    - name: main
      accelerator: h200
      tensor_parallel: 8
      clique: engine
      engine: {{kv_blocks: 2000, max_num_seqs: 16}}
      step_time: {{model: linear, fixed: 20ms, per_prefill_token: 10us, per_decode: 1ms}}
  router: {{policy: least-loaded}}
  startup: {{load: {{mean: 60s, stddev: 5s}}}}
scaling:
  policy: keda
  interval: 15s
  schedules: [{{start: "20 * * * *", end: "40 * * * *", replicas: {largest}}}]
  pools: {{main: {{min: {servers}, max: {largest}}}}}
gangs:
  manifests: [gangs.yaml]
fleet:
  pools:
    - name: a
      accelerator: h200
      accelerators: 8
      machines: {{initial: {servers}, max: {machines}}}
      machines_per_rack: 16
      provisioning: {{mean: 90s, stddev: 15s}}
      price_per_hour: 36
faults:
  - {{at: 10m, kind: machine-loss, select: {{pool: a, count: {lost}}}}}
  - {{at: 15m, kind: engine-crash, select: {{pool: main, count: {lost}}}}}
  - {{at: 21m, kind: provider-outage, for: 2m}}
  - {{at: 30m, kind: rack-loss, select: {{pool: a, count: 1}}}}
  - {{at: 35m, kind: controller-restart, controller: gangs}}
  - {{at: 36m, kind: controller-restart, controller: fleet}}
"""


def loop(machines: int, folder: Path, *, launch: bool = False) -> ScenarioPlan:
    """The scenario with this many machines at most, which hold all servers at the peak."""
    few = max(1, machines // 100)
    servers = few if launch else machines * 9 // 10
    sizes = {"machines": machines, "servers": servers, "lost": few, "largest": machines}
    (folder / "gangs.yaml").write_text(MANIFEST.format(**sizes), encoding="utf-8")
    (folder / "loop.yaml").write_text(SCENARIO.format(**sizes), encoding="utf-8")
    return load(folder / "loop.yaml", sets=["faults=null"] if launch else [])


def run(machines: int, *, launch: bool = False) -> tuple[float, dict[str, Any]]:
    """CPU seconds of the hour, and its result."""
    with TemporaryDirectory() as folder:
        plan = loop(machines, Path(folder), launch=launch)
        start_s = cpu_s()
        result = simulate(plan)
        took_s = cpu_s() - start_s
    assert result["ended_by"] == "duration"
    assert result["invariants"]["broken"] == 0
    assert result["fleet"]["pools"]["a"]["most"] == machines
    sizes = result["gangs"]["clusters"]["main"]["sizes"]
    assert max(sum(pods[1:4]) for pods in sizes) == PODS * machines
    return took_s, result


def main() -> None:
    insist_on_compiled()
    for name, launch in (("hour", False), ("launch", True)):
        took = {}
        for size in SIZES:
            took[size] = run(size, launch=launch)[0]
            print(f"{name}, {size:6,} machines: {took[size]:.2f} CPU s", flush=True)
        smallest, largest = SIZES[0], SIZES[-1]
        report(
            Claim(
                f"whole loop, {name} of {largest:,} machines and {PODS * largest:,} pods",
                ours=took[largest],
                baseline=MOST_S,
                most=1.0,
                unit="CPU s",
                against="the target",
            )
        )
        report(
            Claim(
                f"the same, for each machine ({name})",
                ours=1e3 * took[largest] / largest,
                baseline=1e3 * took[smallest] / smallest,
                most=LINEAR,
                unit="CPU ms",
                against=f"{smallest:,} machines",
            )
        )


if __name__ == "__main__":
    main()
