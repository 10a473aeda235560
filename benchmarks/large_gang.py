"""One gang of thousands of pods: CPU time of its start and of a rolling update is linear.

All pods of one clique are needed, become ready one by one, and may be placed in any rack; they
share machines, or take whole ones. Measured are `windtunnel gangs status` after reading its files,
and then an update to another image, one pod at a time; for a scaling group, one replica of a leader
and a worker at a time.
"""

from functools import partial

from benchmarks.claim import Claim, least_cpu_s, report
from windtunnel.core.clock import cpu_s
from windtunnel.core.loop import Loop
from windtunnel.gangs.api.load import Manifests, load_manifests_text
from windtunnel.twin.kubernetes.build import play
from windtunnel.twin.kubernetes.cluster import SimCluster
from windtunnel.twin.kubernetes.settings import SimClusterSettings

SIZES = (1_000, 4_000, 16_000)
LINEAR = 1.3
MOST_S = 1.5
"""The target for 4,000 pods."""
MANIFEST = """
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {{name: web}}
spec:
  replicas: 1
  template:
    cliques:
      - name: worker
        spec:
          roleName: worker
          replicas: {size}
          minAvailable: {size}
          podSpec:
            containers:
              - name: main
                image: "vllm:{version}"
                resources: {{requests: {{nvidia.com/gpu: "{gpus}"}}}}
"""
GROUP_SIZES = (100, 400, 1_600, 3_200)
GROUP = """
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {{name: web}}
spec:
  replicas: 1
  template:
    cliques:
      - name: leader
        spec: {{roleName: leader, replicas: 1, podSpec: &pod {{containers: [
          {{name: main, image: "vllm:{version}",
            resources: {{requests: {{nvidia.com/gpu: "{gpus}"}}}}}}]}}}}
      - name: worker
        spec: {{roleName: worker, replicas: 1, podSpec: *pod}}
    podCliqueScalingGroups:
      - {{name: serve, cliqueNames: [leader, worker], replicas: {size}, minAvailable: 1}}
"""


def manifest(size: int, version: int, gpus: int = 1) -> Manifests:
    text = MANIFEST.format(size=size, version=version, gpus=gpus)
    return load_manifests_text(text, "web.yaml")


def group(size: int, version: int, gpus: int = 1) -> Manifests:
    text = GROUP.format(size=size, version=version, gpus=gpus)
    return load_manifests_text(text, "web.yaml")


def run(size: int, gpus: int = 1) -> tuple[SimCluster, Loop]:
    return started(manifest(size, 1, gpus), size, gpus)


def started(set_: Manifests, pods: int, gpus: int = 1) -> tuple[SimCluster, Loop]:
    row = {
        "name": "n",
        "count": pods * gpus // 8,
        "capacity": {"nvidia.com/gpu": 8},
        "per": {"rack": 4},
    }
    times = {"readiness": {"mean": "90s"}, "startup": {"mean": "3s"}}
    cluster = SimClusterSettings.read({"nodes": [row], "times": times})
    played, loop = play(cluster, set_)
    assert sum(pod.ready for pod in played.view.pods.values()) == pods
    return played, loop


def update_s(before: Manifests, after: Manifests, pods: int) -> float:
    played, loop = started(before, pods)
    started_s = cpu_s()
    played.server.change_spec("web", after.sets[0].spec)
    loop.wake()
    loop.run()
    took_s = cpu_s() - started_s
    assert not played.view.sets["web"].status.updating
    return took_s


def grown(gpus: int, what: str) -> dict[int, float]:
    """CPU time of a start, by size; per pod it must not grow."""
    took = {size: least_cpu_s(partial(run, size, gpus)) for size in SIZES}
    smallest = SIZES[0]
    for size in SIZES:
        print(f"{size:6,} {what}: {took[size]:.3f} CPU s", flush=True)
    for size in SIZES[1:]:
        report(
            Claim(
                f"one gang of {size:,} {what}, for each pod",
                ours=1e6 * took[size] / size,
                baseline=1e6 * took[smallest] / smallest,
                most=LINEAR,
                unit="CPU us",
                against=f"with {smallest:,} pods",
            )
        )
    return took


def main() -> None:
    run(8)  # imports
    updates = {
        size: min(update_s(manifest(size, 1), manifest(size, 2), size) for _ in range(2))
        for size in SIZES[:2]
    }
    report(
        Claim(
            "a rolling update of a clique of 4,000 pods, for each pod",
            ours=1e6 * updates[4_000] / 4_000,
            baseline=1e6 * updates[1_000] / 1_000,
            most=LINEAR,
            unit="CPU us",
            against="with 1,000 pods",
        )
    )
    groups = {size: update_s(group(size, 1), group(size, 2), 2 * size) for size in GROUP_SIZES}
    for size in GROUP_SIZES[1:]:
        report(
            Claim(
                f"a rolling update of a scaling group of {size:,} replicas, for each replica",
                ours=1e6 * groups[size] / size,
                baseline=1e6 * groups[GROUP_SIZES[0]] / GROUP_SIZES[0],
                most=LINEAR,
                unit="CPU us",
                against=f"with {GROUP_SIZES[0]} replicas",
            )
        )
    took = grown(1, "pods")
    grown(8, "pods that take a whole machine")
    report(
        Claim(
            "one gang of 4,000 pods, from an empty cluster to the last ready pod",
            ours=took[4_000],
            baseline=MOST_S,
            most=1.0,
            unit="CPU s",
            against="the target",
        )
    )


if __name__ == "__main__":
    main()
