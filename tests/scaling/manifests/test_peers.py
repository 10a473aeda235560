"""HPA, KEDA and Knative as their users write them: what they come to, and what is refused."""

from typing import Any

import pytest
import yaml

from tests.scaling.manifests.texts import bent, faults, homogeneous, read
from windtunnel.core.errors import InputError
from windtunnel.scaling.build import ScalingSetup, build_scaler
from windtunnel.scaling.policies.hpa import HpaMetric, HpaRule, HpaSettings, HpaUp
from windtunnel.scaling.policies.keda.policy import KedaMetric, KedaSettings
from windtunnel.scaling.policies.knative import KnativeSettings
from windtunnel.scaling.settings import PoolBounds, ScalerTiming

WAITING = "vllm:num_requests_waiting"

HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: llm}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: llm}
  maxReplicas: 10
  metrics:
  - type: Pods
    pods:
      metric: {name: vllm_num_requests_waiting}
      target: {type: AverageValue, averageValue: 500m}
  - type: External
    external:
      metric: {name: request_rate, selector: {matchLabels: {app: llm}}}
      target: {type: Value, value: "40"}
  - type: Object
    object:
      describedObject: {kind: Service, name: llm}
      metric: {name: queue_depth}
      target: {type: AverageValue, averageValue: 5}
  behavior:
    scaleUp:
      stabilizationWindowSeconds: 30
      tolerance: "0"
      selectPolicy: Min
      policies:
      - {type: Pods, value: 2, periodSeconds: 60}
      - {type: Percent, value: 50, periodSeconds: 30}
"""

KEDA = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: llm}
spec:
  scaleTargetRef: {name: llm}
  cooldownPeriod: 120
  idleReplicaCount: 0
  minReplicaCount: 2
  maxReplicaCount: 20
  triggers:
  - type: prometheus
    metadata:
      serverAddress: http://prometheus:9090
      query: sum(vllm:num_requests_waiting{app="llm"})
      threshold: "5"
      activationThreshold: "1"
"""

KNATIVE = """
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: llm}
spec:
  template:
    metadata:
      annotations:
        autoscaling.knative.dev/class: kpa.autoscaling.knative.dev
        autoscaling.knative.dev/metric: concurrency
        autoscaling.knative.dev/target: "20"
        autoscaling.knative.dev/target-utilization-percentage: "80"
        autoscaling.knative.dev/minScale: "1"
        autoscaling.knative.dev/max-scale: "12"
        autoscaling.knative.dev/window: 90s
        example.com/other: anything
    spec:
      containers: [{image: vllm}]
"""


def hpa() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(HPA)
    return loaded


def test_an_hpa() -> None:
    (found,) = read(HPA)
    assert found.source == "HorizontalPodAutoscaler llm"
    rules = [HpaRule(pods=2, period_s=60.0), HpaRule(percent=50, period_s=30.0)]
    assert found.policy == HpaSettings(
        policy="hpa",
        metrics=[
            HpaMetric(name="vllm_num_requests_waiting", target=0.5),
            HpaMetric(name="request_rate", target=40.0, type="value"),
            HpaMetric(name="queue_depth", target=5.0, type="total"),
        ],
        up=HpaUp(window_s=30.0, rules=rules, select="Min", tolerance=0.0),
        pools={"llm": PoolBounds(min=1, max=10)},
    )


def test_a_scaled_object() -> None:
    (found,) = read(KEDA)
    assert found.policy == KedaSettings(
        policy="keda",
        metrics=[KedaMetric(name=WAITING, target=5.0, type="total", activation=1.0)],
        cooldown_s=120.0,
        idle=0,
        least=2,
        pools={"llm": PoolBounds(min=0, max=20)},
    )


def test_a_knative_service() -> None:
    def policy(target: float) -> KnativeSettings:
        return KnativeSettings(
            policy="knative",
            interval_s=2.0,
            target=target,
            utilization_percent=80.0,
            window_s=90.0,
            pools={"llm": PoolBounds(min=1, max=12)},
        )

    (found,) = read(KNATIVE)
    assert found.policy == policy(20.0)
    hard = KNATIVE.replace("containers:", "containerConcurrency: 8\n      containers:")
    assert read(hard)[0].policy == policy(8.0)


def test_a_value_beyond_what_is_simulated_is_a_fault() -> None:
    assert faults(KEDA.replace('"5"', '"1e19"')) == [
        "spec.triggers[0].metadata.threshold: 1e+19 is too large"
    ]
    with pytest.raises(InputError) as caught:
        read(KEDA.replace("cooldownPeriod: 120", "cooldownPeriod: 99999999"))
    assert str(caught.value) == (
        "autoscaling.yaml:7: spec.cooldownPeriod: 99999999 is too large; "
        "allowed: a duration from 0s to 366d, such as 250ms"
    )
    long = bent(hpa(), "spec/behavior/scaleUp/stabilizationWindowSeconds", 3601)
    assert faults(long) == ["spec.behavior.scaleUp.stabilizationWindowSeconds: 3601 is too large"]


def test_manifests_of_all_kinds_are_run_together() -> None:
    found = read(
        homogeneous(),
        HPA.replace("name: llm}\n  max", "name: h100}\n  max"),
        KEDA.replace("{name: llm}\n  cool", "{name: a100}\n  cool"),
        KNATIVE.replace("{name: llm}", "{name: decode}"),
    )
    made = ScalingSetup(ScalerTiming(interval_s=2.0), tuple(found), {})
    assert len(build_scaler(made, ["m"]).state()["policies"]) == 1  # type: ignore[arg-type]
    pools = {name for one in found for name in one.policy.pools}
    assert pools == {"llm", "h100", "a100", "decode"}


PODS = "spec.metrics[0].pods"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            "spec/minReplicas",
            11,
            "spec.maxReplicas: must be greater than or equal to `minReplicas`",
        ),
        (
            "spec/metrics",
            [],
            "spec.metrics: 'cpu' is a resource of the machine, and is not simulated",
        ),
        (
            "spec/metrics/0",
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 50},
                },
            },
            "spec.metrics[0].resource.name: 'cpu' is a resource of the machine, and is not "
            "simulated",
        ),
        ("spec/metrics/0", {"type": "Pods"}, f"{PODS}: missing"),
        (
            "spec/metrics/0/pods/metric/name",
            "gpu",
            f"{PODS}.metric.name: 'gpu' is not a metric that is measured here",
        ),
        (
            "spec/metrics/0/pods/target/type",
            "Value",
            f"{PODS}.target.type: 'Value' is not known here",
        ),
        (
            "spec/metrics/0/pods/target/averageValue",
            "-1",
            f"{PODS}.target.averageValue: -1.0 is too small",
        ),
        (
            "spec/metrics/0/pods/target/averageValue",
            "1e400",
            f"{PODS}.target.averageValue: inf is not a number",
        ),
        (
            "spec/metrics/0/pods/target/averageValue",
            None,
            f"{PODS}.target.averageValue: missing",
        ),
        (
            "spec/behavior/scaleUp/policies",
            [],
            "spec.behavior.scaleUp.policies: must specify at least one policy",
        ),
        (
            "spec/behavior/scaleUp/tolerance",
            "2",
            "spec.behavior.scaleUp.tolerance: 2.0 is too large",
        ),
        ("spec/scaleTargetRef/name", "x", "spec.scaleTargetRef.name: no pool is called 'x'"),
    ],
)
def test_what_an_hpa_cannot_be(path: str, value: object, said: str) -> None:
    assert faults(bent(hpa(), path, value)) == [said]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "minReplicaCount: 2",
            "minReplicaCount: 21",
            "spec.minReplicaCount: MinReplicaCount=21 must be less than MaxReplicaCount=20",
        ),
        (
            "idleReplicaCount: 0",
            "idleReplicaCount: 2",
            "spec.idleReplicaCount: IdleReplicaCount=2 must be less than MinReplicaCount=2",
        ),
        (
            "type: prometheus",
            "type: kafka",
            "spec.triggers[0].type: 'kafka' asks for something that is not simulated",
        ),
        (
            'threshold: "5"',
            'threshold: "0"',
            "spec.triggers[0].metadata.threshold: 0.0 is too small",
        ),
        (
            'activationThreshold: "1"',
            'activationThreshold: "x"',
            "spec.triggers[0].metadata.activationThreshold: 'x' is not a number",
        ),
        (
            "metadata: {name: llm}",
            "metadata: {name: llm, annotations: {autoscaling.keda.sh/paused: 'true'}}",
            "metadata.annotations.autoscaling.keda.sh/paused: a paused object scales nothing",
        ),
        (
            "cooldownPeriod: 120",
            "advanced: {scalingModifiers: {formula: queue + 1, target: '2'}}",
            "the formula has the name 'queue', and no metric is called so",
        ),
        ('      query: sum(vllm:num_requests_waiting{app="llm"})\n', "", "query: missing"),
        ("  scaleTargetRef: {name: llm}\n", "", "spec.scaleTargetRef: missing"),
    ],
)
def test_what_a_scaled_object_cannot_be(before: str, after: str, said: str) -> None:
    assert before in KEDA
    (found,) = faults(KEDA.replace(before, after))
    assert found.endswith(said)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('max-scale: "12"', 'max-scale: "-1"', "max-scale: -1.0 is too small"),
        ('minScale: "1"', 'minScale: "13"', "max-scale: max-scale=12 is less than min-scale=13"),
        ("window: 90s", "window: soon", "window: 'soon' is not a duration"),
        ("window: 90s", "windows: 90s", "windows: unknown key"),
        ("metric: concurrency", "metric: cpu", "metric: 'cpu' is not known here"),
        (
            "window: 90s",
            "metric-aggregation-algorithm: median",
            "metric-aggregation-algorithm: 'median' is not known here",
        ),
    ],
)
def test_what_annotations_cannot_be(before: str, after: str, said: str) -> None:
    assert before in KNATIVE
    (found,) = faults(KNATIVE.replace(before, after))
    assert found == f"spec.template.metadata.annotations.autoscaling.knative.dev/{said}"


HTTP = """
apiVersion: http.keda.sh/v1alpha1
kind: HTTPScaledObject
metadata: {name: chat}
spec:
  hosts: [chat.example.com]
  scaleTargetRef: {name: llm, kind: Deployment, service: llm, port: 8000}
  replicas: {min: 0, max: 12}
  scaledownPeriod: 120
  scalingMetric: {requestRate: {targetValue: 4, window: 1m, granularity: 1s}}
"""


def test_an_http_scaled_object() -> None:
    (found,) = read(HTTP)
    assert found.policy == KedaSettings(
        policy="keda",
        metrics=[KedaMetric(name="request_rate", target=4.0, type="total")],
        cooldown_s=120.0,
        pools={"llm": PoolBounds(min=0, max=12)},
    )
    build_scaler(ScalingSetup(ScalerTiming(), (found,), {}), ["m"])


def test_an_http_scaled_object_of_few_words() -> None:
    manifest = bent(yaml.safe_load(HTTP), "spec/scalingMetric", None)
    (found,) = read(bent(manifest, "spec/replicas", {"min": 2}))
    assert found.policy == KedaSettings(
        policy="keda",
        metrics=[KedaMetric(name="concurrency", target=100.0, type="total")],
        cooldown_s=120.0,
        least=2,
        pools={"llm": PoolBounds(min=2, max=100)},
    )


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("spec/scalingMetric", {}, "spec.scalingMetric: must have one metric"),
        ("spec/replicas/min", 20, "spec.replicas.min: 20 is more than max, which is 12"),
        ("spec/scaleTargetRef/name", "x", "spec.scaleTargetRef.name: no pool is called 'x'"),
        (
            "spec/scalingMetric/requestRate/targetValue",
            0,
            "spec.scalingMetric.requestRate.targetValue: 0 is too small",
        ),
    ],
)
def test_what_an_http_scaled_object_cannot_be(path: str, value: object, said: str) -> None:
    assert faults(bent(yaml.safe_load(HTTP), path, value)) == [said]


ROUTE = """
apiVersion: http.keda.sh/v1beta1
kind: InterceptorRoute
metadata: {name: to-chat}
spec:
  target: {service: llm, port: 8000}
  rules: [{hosts: [chat.example.com]}]
  scalingMetric: {concurrency: {targetValue: 30}, requestRate: {targetValue: 4, window: 1m}}
"""
PUSHED = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: chat}
spec:
  scaleTargetRef: {name: llm}
  maxReplicaCount: 6
  triggers:
  - type: external-push
    metadata: {scalerAddress: "scaler.keda:9090", interceptorRoute: to-chat}
"""


@pytest.mark.parametrize("manifests", [(ROUTE, PUSHED), (PUSHED, ROUTE)])
def test_a_scaled_object_by_the_requests_of_a_route(manifests: tuple[str, str]) -> None:
    (found,) = read(*manifests)
    assert found.policy == KedaSettings(
        policy="keda",
        metrics=[
            KedaMetric(name="concurrency", target=30.0, type="total", activation=0.0),
            KedaMetric(name="request_rate", target=4.0, type="total", activation=0.0),
        ],
        pools={"llm": PoolBounds(min=0, max=6)},
    )
    build_scaler(ScalingSetup(ScalerTiming(), (found,), {}), ["m"])


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "Route: to-chat",
            "Route: chat",
            "spec.triggers[0].metadata.interceptorRoute: there is no InterceptorRoute 'chat'",
        ),
        (
            "interceptorRoute: to-chat",
            "queue: chat",
            "spec.triggers[0].type: 'external-push' asks for something that is not simulated",
        ),
        (
            "  triggers:",
            "  advanced: {scalingModifiers: {formula: '1', target: '1'}}\n  triggers:",
            "spec.triggers[0].type: 'external-push' beside a formula is not simulated",
        ),
    ],
)
def test_what_a_trigger_by_a_route_cannot_be(before: str, after: str, said: str) -> None:
    assert before in PUSHED
    assert faults(ROUTE, PUSHED.replace(before, after)) == [said]


def test_what_a_route_cannot_be() -> None:
    neither = bent(yaml.safe_load(ROUTE), "spec/scalingMetric", {})
    said = "spec.scalingMetric: at least one of 'concurrency' or 'requestRate' must be set"
    assert said in faults(neither, PUSHED)
    assert faults(ROUTE) == ["scaling.manifests: the manifests scale nothing"]
