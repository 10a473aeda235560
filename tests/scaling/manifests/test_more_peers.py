"""AIBrix, WVA, Dynamo and Knative as their users write them: what their manifests come to."""

from typing import Any

import pytest
import yaml

from tests.scaling.manifests.texts import POOLS, bent, faults, read
from windtunnel.scaling.analyzers import Group
from windtunnel.scaling.build import ScalingSetup, build_scaler
from windtunnel.scaling.manifests.load import read as read_texts
from windtunnel.scaling.manifests.names import ScenarioNames
from windtunnel.scaling.policies.aibrix import AibrixSettings
from windtunnel.scaling.policies.hpa import (
    HpaDown,
    HpaMetric,
    HpaPace,
    HpaRule,
    HpaSettings,
)
from windtunnel.scaling.policies.keda.policy import KedaMetric, KedaSettings
from windtunnel.scaling.policies.knative import Knative, KnativeSettings
from windtunnel.scaling.policies.spare_capacity import SpareCapacitySettings
from windtunnel.scaling.settings import PoolBounds, ScalerTiming
from windtunnel.scaling.snapshot import Model, ReplicaCounts, ReplicaView, Snapshot, Variant

AIBRIX = """
apiVersion: autoscaling.aibrix.ai/v1alpha1
kind: PodAutoscaler
metadata:
  name: llm
  labels: {app: llm}
  annotations:
    autoscaling.aibrix.ai/scale-up-tolerance: "0.2"
    autoscaling.aibrix.ai/max-scale-down-rate: "4"
    autoscaling.aibrix.ai/scale-down-cooldown-window: 2m
    autoscaling.aibrix.ai/storm-service-mode: pool
    apa.autoscaling.aibrix.ai/window: 30s
spec:
  scalingStrategy: APA
  minReplicas: 2
  maxReplicas: 8
  metricsSources:
  - {metricSourceType: pod, protocolType: http, port: "8000", path: metrics,
     targetMetric: gpu_cache_usage_perc, targetValue: "0.5"}
  - {metricSourceType: external, targetMetric: aibrix_queue_depth, targetValue: "40"}
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: llm}
"""


def aibrix() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(AIBRIX)
    return loaded


def test_an_aibrix_pod_autoscaler() -> None:
    (found,) = read(AIBRIX)
    assert found.source == "PodAutoscaler llm"
    assert found.policy == AibrixSettings(
        policy="aibrix",
        interval_s=10.0,
        strategy="APA",
        metrics={"gpu_cache_usage_perc": 0.5, "aibrix_queue_depth": 40.0},
        external=["aibrix_queue_depth"],
        up_tolerance=0.2,
        max_down_rate=4.0,
        down_cooldown_s=120.0,
        pools={"llm": PoolBounds(min=2, max=8)},
    )
    build_scaler(ScalingSetup(ScalerTiming(), (found,), {}), ["m"])


def test_the_hpa_of_a_pod_autoscaler() -> None:
    (found,) = read(bent(aibrix(), "spec/scalingStrategy", "HPA"))
    assert found.policy == HpaSettings(
        policy="hpa",
        metrics=[
            HpaMetric(name="gpu_cache_usage_perc", target=0.5),
            HpaMetric(name="aibrix_queue_depth", target=40.0, type="total"),
        ],
        down=HpaDown(window_s=120.0),
        pools={"llm": PoolBounds(min=2, max=8)},
    )


def test_a_role_of_a_storm_service() -> None:
    manifest = bent(aibrix(), "spec/subTargetSelector", {"roleName": "decode"})
    bent(manifest, "spec/schedules", [{"name": "day", "startTime": "09:00", "endTime": "18:00"}])
    read_text = read_texts([(yaml.safe_dump(manifest), "a.yaml")], ScenarioNames(POOLS))
    assert list(read_text.assignments[0].policy.pools) == ["decode"]
    assert read_text.notes == [
        "PodAutoscaler llm: schedules are not used: a run has no time of day"
    ]


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            "spec/metricsSources/0",
            {"metricSourceType": "resource", "targetMetric": "cpu", "targetValue": "50"},
            "spec.metricsSources[0].targetMetric: 'cpu' is a resource of the machine, "
            "and is not simulated",
        ),
        (
            "spec/metricsSources/0/targetMetric",
            "go_threads",
            "spec.metricsSources[0].targetMetric: 'go_threads' is not a metric that is measured "
            "here",
        ),
        (
            "spec/metricsSources/0/targetValue",
            "no",
            "spec.metricsSources[0].targetValue: 'no' is not a number",
        ),
        ("spec/minReplicas", 9, "spec.minReplicas: 9 is more than maxReplicas, which is 8"),
        ("spec/scaleTargetRef/name", "x", "spec.scaleTargetRef.name: no pool is called 'x'"),
        ("spec/scalingStrategy", "CPA", "spec.scalingStrategy: 'CPA' is not known here"),
        (
            "metadata/annotations/autoscaling.aibrix.ai~scale-up-tolerance",
            "2",
            "metadata.annotations.autoscaling.aibrix.ai/scale-up-tolerance: 2.0 is too large",
        ),
        (
            "metadata/annotations/autoscaling.aibrix.ai~scale-up-tolerance",
            "20%",
            "metadata.annotations.autoscaling.aibrix.ai/scale-up-tolerance: '20%' is not a number",
        ),
    ],
)
def test_what_a_pod_autoscaler_cannot_be(path: str, value: object, said: str) -> None:
    manifest = aibrix()
    if "~" in path:
        key = path.rpartition("/")[2].replace("~", "/")
        manifest["metadata"]["annotations"][key] = value
    else:
        bent(manifest, path, value)
    assert faults(manifest) == [said]


WVA = """
apiVersion: llmd.ai/v1alpha1
kind: VariantAutoscaling
metadata: {name: llm}
spec:
  scaleTargetRef: {kind: Deployment, name: llm}
  modelID: org/model
  variantCost: "30.0"
  modelProfile: {accelerators: [{acc: A100, accCount: 1}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: llm-hpa}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: llm}
  minReplicas: 1
  maxReplicas: 10
  behavior:
    scaleDown:
      stabilizationWindowSeconds: 120
      policies: [{type: Pods, value: 1, periodSeconds: 60}]
  metrics:
  - type: External
    external:
      metric: {name: wva_desired_replicas, selector: {matchLabels: {variant_name: llm}}}
      target: {type: AverageValue, averageValue: "1"}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: a100
  annotations: {llm-d.ai/managed: "true", llm-d.ai/variant-cost: "10.0"}
spec:
  scaleTargetRef: {name: a100}
  maxReplicaCount: 4
  triggers:
  - type: prometheus
    metadata:
      serverAddress: https://prometheus:9090
      query: |
        wva_desired_replicas{variant_name="a100"}
      threshold: "1"
      metricType: Value
"""


def test_variants_of_wva_are_one_policy() -> None:
    (found,) = read(WVA)
    assert found.source == "workload-variant-autoscaler"
    down = HpaDown(window_s=120.0, rules=[HpaRule(pods=1, period_s=60.0)])
    assert found.policy == SpareCapacitySettings(
        policy="wva-v1",
        pools={"llm": PoolBounds(min=1, max=10), "a100": PoolBounds(min=0, max=4)},
        costs={"llm": 30.0, "a100": 10.0},
        hpas={"llm": HpaPace(down=down), "a100": HpaPace()},
    )
    assert found.policy.window_down() == ("hpas.down.window", 120.0)


def test_a_variant_without_an_hpa_is_scaled_within_its_own_bounds() -> None:
    alone = WVA.split("---", maxsplit=1)[0] + "  minReplicas: 2\n  maxReplicas: 6\n"
    (found,) = read(alone)
    assert found.policy == SpareCapacitySettings(
        policy="wva-v1", pools={"llm": PoolBounds(min=2, max=6)}, costs={"llm": 30.0}
    )


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('variantCost: "30.0"', 'variantCost: "much"', "spec.variantCost: 'much' is not a number"),
        ('cost: "10.0"', 'cost: "-1"', "llm-d.ai/variant-cost: -1.0 is too small"),
        ("name: llm}\n  minR", "name: a100}\n  minR", "spec: the pool 'a100' is scaled by"),
    ],
)
def test_what_variants_cannot_be(before: str, after: str, said: str) -> None:
    assert before in WVA
    found = faults(WVA.replace(before, after))
    assert said in found[0]


def decided(found: Any, sizes: list[int], waiting: int) -> list[int]:
    """Sizes tick by tick, while every replica has so many requests waiting."""
    setup = ScalingSetup(ScalerTiming(interval_s=15.0), (found,), {})
    scaler, size = build_scaler(setup, ["m"]), sizes[0]
    for tick in range(1, 20):
        replicas = [
            ReplicaView(f"r{number}", waiting=waiting, kv_tokens=1.0) for number in range(size)
        ]
        pool = Variant("llm", maximum=50, counts=ReplicaCounts(size), replicas=replicas)
        snapshot = Snapshot(15.0 * tick, [Model("m", [pool])])
        size = scaler.tick(snapshot, 15.0 * tick)[0].target
        sizes.append(size)
    return sizes


def test_the_hpa_of_a_variant_limits_what_wva_asks_for() -> None:
    (found,) = read(WVA.split("---\napiVersion: keda", maxsplit=1)[0])
    sizes = decided(found, [5], 0)
    # WVA asks for one fewer at every tick; the window lets each go after two minutes.
    assert sizes == [5] * 9 + [4] * 8 + [3] * 3
    # From ten replicas on, one more is within the tolerance of an HPA: it never comes.
    assert (
        decided(found._replace(policy=found.policy.model_copy(update={"hpas": {}})), [10], 9)[-1]
        == 29
    )
    assert set(decided(found, [10], 9)) == {10}


DYNAMO = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: decode}
spec:
  scaleTargetRef: {kind: DynamoGraphDeploymentScalingAdapter, name: decode}
  minReplicaCount: 1
  maxReplicaCount: 10
  triggers:
  - type: prometheus
    metadata:
      metricName: dynamo_ttft_p95
      query: |
        histogram_quantile(0.95,
          sum(rate(dynamo_frontend_time_to_first_token_seconds_bucket{dynamo_namespace="x"}[5m]))
          by (le)
        )
      threshold: "0.5"
      activationThreshold: "0.1"
  - type: prometheus
    metricType: Value
    metadata:
      query: sum(dynamo_frontend_stage_requests{stage=~"preprocess|route|dispatch"})
      threshold: "10"
"""


def test_metrics_of_dynamos_frontend() -> None:
    found = read_texts([(DYNAMO, "a.yaml")], ScenarioNames(POOLS))
    assert found.assignments[0].policy == KedaSettings(
        policy="keda",
        metrics=[
            KedaMetric(
                name="ttft_p95",
                target=0.5,
                type="total",
                aggregate="avg",
                activation=0.1,
            ),
            KedaMetric(
                name="dynamo_frontend_stage_requests", target=10.0, type="value", activation=0.0
            ),
        ],
        least=1,
        pools={"decode": PoolBounds(min=1, max=10)},
    )
    assert not found.notes
    median = DYNAMO.replace("histogram_quantile(0.95", "histogram_quantile(0.5")
    assert read_texts([(median, "a.yaml")], ScenarioNames(POOLS)).notes == [
        "ScaledObject decode: a quantile of dynamo_frontend_time_to_first_token_seconds is read as "
        "the mean since the last look"
    ]


KNATIVE = """
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: llm}
spec:
  template:
    metadata:
      annotations:
        autoscaling.knative.dev/minScale: "1"
        autoscaling.knative.dev/maxScale: "9"
        autoscaling.knative.dev/initialScale: "3"
        autoscaling.knative.dev/scaleDownDelay: 15m
        autoscaling.knative.dev/targetUtilizationPercentage: "75"
        autoscaling.knative.dev/targetBurstCapacity: "200"
        autoscaling.knative.dev/panicWindowPercentage: "20.0"
        autoscaling.knative.dev/panicThresholdPercentage: "150.0"
        autoscaling.knative.dev/scaleToZeroPodRetentionPeriod: 1m5s
        autoscaling.knative.dev/metricAggregationAlgorithm: weighted-exponential
"""


def test_annotations_of_knative_as_they_were_once_written() -> None:
    expected = KnativeSettings(
        policy="knative",
        interval_s=2.0,
        utilization_percent=75.0,
        panic_window_percent=20.0,
        panic_threshold_percent=150.0,
        scale_down_delay_s=900.0,
        aggregation="weighted-exponential",
        zero_after_s=125.0,  # the retention, after a window without requests
        pools={"llm": PoolBounds(min=1, max=9)},
    )
    assert read(KNATIVE)[0].policy == expected
    lines = KNATIVE.replace("Scale:", "-scale:").replace("scaleDownDelay", "scale-down-delay")
    assert read(lines)[0].policy == expected


def test_a_weighted_window_forgets_what_is_long_ago() -> None:
    def stable(aggregation: str) -> float:
        settings = {"policy": "knative", "metric": "running", "aggregation": aggregation}
        knative = Knative(KnativeSettings(**settings))
        for second in range(0, 60, 2):
            replicas = [ReplicaView("r", running=100 if second >= 50 else 0)]
            pool = Variant("v", counts=ReplicaCounts(1), replicas=replicas)
            group = Group(Model("m", [pool]), "both", [pool], "m")
            found = knative.analyze_group(group, float(second))
        return found.evidence["mean_stable"]

    assert stable("linear") == pytest.approx(100 * 5 / 30)
    # A sample weighs 0.8 a second later: five of thirty have 1 - 0.8^10 of the weight.
    assert stable("weighted-exponential") == pytest.approx(100 * (1 - 0.8**10), rel=1e-5)
