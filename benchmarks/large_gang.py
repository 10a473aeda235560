"""One gang of thousands of pods: CPU time from an empty cluster to the last ready pod is linear.

The pods of one clique are all its minimum, become ready one after the other, and may be placed in
any rack. What is measured is what `windtunnel gangs status` does after it has read its files.
"""

from functools import partial

from benchmarks.claim import Claim, least_cpu_s, report
from windtunnel.gangs.api.load import load_manifests_text
from windtunnel.twin.kubernetes.build import play
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
              - {{name: main, image: "vllm:1", resources: {{requests: {{nvidia.com/gpu: "1"}}}}}}
"""


def run(size: int) -> None:
    manifests = load_manifests_text(MANIFEST.format(size=size), "web.yaml")
    row = {"name": "n", "count": size // 8, "capacity": {"nvidia.com/gpu": 8}, "per": {"rack": 4}}
    times = {"readiness": {"mean": "90s"}, "startup": {"mean": "3s"}}
    cluster = SimClusterSettings.read({"nodes": [row], "times": times})
    view = play(cluster, manifests).cluster.view
    assert sum(pod.ready for pod in view.pods.values()) == size


def main() -> None:
    run(8)  # imports
    took = {size: least_cpu_s(partial(run, size)) for size in SIZES}
    for size in SIZES:
        print(f"{size:6,} pods: {took[size]:.3f} CPU s", flush=True)
    smallest = SIZES[0]
    for size in SIZES[1:]:
        report(
            Claim(
                f"one gang of {size:,} pods, for each pod",
                ours=1e6 * took[size] / size,
                baseline=1e6 * took[smallest] / smallest,
                most=LINEAR,
                unit="CPU us",
                against=f"with {smallest:,} pods",
            )
        )
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
