"""Kthena's manifests: what they come to, and every sentence of its admission."""

from typing import Any

import pytest

from tests.scaling.manifests.texts import (
    bent,
    disaggregated,
    faults,
    heterogeneous,
    homogeneous,
    read,
)
from windtunnel.core.errors import InputError
from windtunnel.scaling.policies.kthena.policy import (
    KthenaDisaggregatedSettings,
    KthenaHeterogeneousSettings,
    KthenaHomogeneousSettings,
)
from windtunnel.scaling.policies.kthena.settings import (
    Band,
    Behavior,
    Coordination,
    KthenaSettings,
    PaceDown,
    PaceUp,
    Panic,
    Ratio,
)
from windtunnel.scaling.settings import PoolBounds

WAITING = "vllm:num_requests_waiting"
LONG = "must be between 0 and 30 minutes"
TARGETS = "spec/homogeneousTarget/target"
UP, DOWN = "spec/behavior/scaleUp", "spec/behavior/scaleDown"


def policy_of(manifest: dict[str, Any], **targets: str) -> KthenaSettings:
    (found,) = read(manifest, **targets)
    assert isinstance(found.policy, KthenaSettings)
    return found.policy


def bounds(low: int, high: int) -> PoolBounds:
    return PoolBounds(min=low, max=high)


def test_a_homogeneous_policy() -> None:
    (found,) = read(homogeneous())
    assert found.source == "AutoscalingPolicy policy"
    assert found.policy == KthenaHomogeneousSettings(
        policy="kthena-homogeneous", metrics={WAITING: 10.0}, pools={"llm": bounds(1, 5)}
    )
    assert found.policy.interval_s == 15.0


def test_a_heterogeneous_policy() -> None:
    assert policy_of(heterogeneous()) == KthenaHeterogeneousSettings(
        policy="kthena-heterogeneous",
        metrics={WAITING: 10.0},
        costs={"h100": 30.0, "a100": 10.0},
        pools={"h100": bounds(1, 4), "a100": bounds(1, 8)},
    )


def test_coordination_names_pools() -> None:
    manifest = heterogeneous()
    coordination = {"mode": "Preferred", "preferredRatio": {"fast": {"min": 20, "max": 40}}}
    manifest["spec"]["heterogeneousTarget"]["coordination"] = coordination
    bent(manifest, "spec/heterogeneousTarget/params/0/target/targetRef/name", "fast")
    policy = policy_of(manifest, fast="h100")
    assert isinstance(policy, KthenaHeterogeneousSettings)
    assert policy.coordination == Coordination(
        mode="Preferred", preferredRatio={"h100": Band(min=20.0, max=40.0)}
    )


def test_a_disaggregated_policy() -> None:
    kv = {"vllm:kv_cache_usage_perc": 0.8}
    assert policy_of(disaggregated()) == KthenaDisaggregatedSettings(
        policy="kthena-disaggregated",
        metrics={},
        metrics_of={"prefill": kv, "decode": kv},
        ratio=Ratio(numerator="prefill", denominator="decode", min=0.25, max=1.0),
        pools={"prefill": bounds(1, 8), "decode": bounds(1, 16)},
    )


def test_a_query_is_a_total() -> None:
    manifest = bent(homogeneous(), "spec/metrics/0/name", "load")
    query = f'sum({WAITING}{{namespace="prod", pod=~"llm-.*"}})'
    source = {"prometheus": {"serverURL": "http://prometheus:9090", "query": query}}
    policy = policy_of(bent(manifest, f"{TARGETS}/metricSources", {"load": source}))
    assert policy.metrics == {WAITING: 10.0}
    assert policy.queries == {WAITING: "sum"}


def test_44_without_a_behavior_the_defaults_of_the_webhook_hold() -> None:
    empty: dict[str, Any] = {"scaleDown": {}, "scaleUp": {"stablePolicy": {}}}
    written: list[dict[str, Any] | None] = [None, {}, {"scaleUp": {}}, empty]
    for behavior in written:
        manifest = homogeneous()
        if behavior is not None:
            manifest["spec"]["behavior"] = behavior
        assert policy_of(manifest).behavior == Behavior(
            up=PaceUp(instances=4, percent=100, period_s=60.0, window_s=0.0, select="Or"),
            down=PaceDown(instances=0, percent=100, period_s=60.0, window_s=300.0, select="Or"),
            panic=None,
        )


def test_44_a_part_of_a_behavior_has_the_defaults_of_the_schema() -> None:
    down = policy_of(bent(homogeneous(), f"{DOWN}/instances", 3)).behavior
    assert down == Behavior(
        down=PaceDown(instances=3, percent=100, period_s=15.0, window_s=300.0, select="Or")
    )
    up = policy_of(bent(homogeneous(), f"{UP}/stablePolicy/percent", 50)).behavior
    assert up == Behavior(
        up=PaceUp(instances=1, percent=50, period_s=15.0, window_s=0.0, select="Or")
    )
    panic = policy_of(bent(homogeneous(), f"{UP}/panicPolicy/period", "10s")).behavior
    assert panic == Behavior(panic=Panic(percent=1000, period_s=10.0, threshold=200, hold_s=60.0))
    none = {"period": "10s", "panicModeHold": "0s"}
    assert policy_of(bent(homogeneous(), f"{UP}/panicPolicy", none)).behavior == Behavior()


def test_everything_of_a_behavior_arrives() -> None:
    written = {
        "scaleUp": {
            "stablePolicy": {
                "instances": 2,
                "percent": 50,
                "period": "1m30s",
                "selectPolicy": "And",
                "stabilizationWindow": "30s",
            },
            "panicPolicy": {
                "percent": 300,
                "period": "0s",
                "panicThresholdPercent": 150,
                "panicModeHold": "5m",
            },
        },
        "scaleDown": {"instances": 1, "percent": 0, "period": "2m", "stabilizationWindow": "0s"},
    }
    assert policy_of(bent(homogeneous(), "spec/behavior", written)).behavior == Behavior(
        up=PaceUp(instances=2, percent=50, period_s=90.0, window_s=30.0, select="And"),
        down=PaceDown(instances=1, percent=0, period_s=120.0, window_s=0.0, select="Or"),
        panic=Panic(percent=300, period_s=0.0, threshold=150, hold_s=300.0),
    )


@pytest.mark.parametrize(
    ("path", "value", "place", "said"),
    [
        (
            "spec/metrics/0/targetValue",
            "-1",
            "spec.metrics[0].targetValue",
            "metric target value must be greater than 0 and not equal to infinity",
        ),
        (
            "spec/metrics/0/targetValue",
            float("inf"),
            "spec.metrics[0].targetValue",
            "metric target value must be greater than 0 and not equal to infinity",
        ),
        (
            f"{TARGETS}/targetRef/kind",
            "Deployment",
            "spec.homogeneousTarget.target.targetRef.kind",
            "targetRef.kind must be ModelServing, but got Deployment",
        ),
        (
            f"{TARGETS}/targetRef/name",
            "",
            "spec.homogeneousTarget.target.targetRef.name",
            "targetRef.name must be set, but got empty",
        ),
        (
            "spec/homogeneousTarget/minReplicas",
            9,
            "spec.homogeneousTarget.minReplicas",
            "minReplicas must be <= maxReplicas",
        ),
        (
            "spec/homogeneousTarget",
            None,
            "spec",
            "exactly one of homogeneousTarget, heterogeneousTarget, or disaggregatedTarget "
            "must be set",
        ),
        (
            f"{DOWN}/period",
            "31m",
            "spec.behavior.scaleDown.period",
            f"stable policy period {LONG}",
        ),
        (
            f"{DOWN}/stabilizationWindow",
            "-1s",
            "spec.behavior.scaleDown.stabilizationWindow",
            f"stable policy stabilization window {LONG}",
        ),
        (
            f"{UP}/stablePolicy/period",
            "31m",
            "spec.behavior.scaleUp.stablePolicy.period",
            f"stable policy period {LONG}",
        ),
        (
            f"{UP}/panicPolicy",
            {"period": "1h"},
            "spec.behavior.scaleUp.panicPolicy.period",
            f"panic policy period {LONG}",
        ),
        (
            f"{UP}/panicPolicy",
            {"period": "1s", "panicModeHold": "1h"},
            "spec.behavior.scaleUp.panicPolicy.panicModeHold",
            f"panic policy panic mode hold {LONG}",
        ),
        (
            f"{TARGETS}/metricSources/{WAITING}",
            {},
            f"spec.homogeneousTarget.target.metricSources.{WAITING}",
            "one metric source backend config is required",
        ),
        (
            f"{TARGETS}/metricSources/{WAITING}/prometheus",
            {"serverURL": "http://p", "query": "up"},
            f"spec.homogeneousTarget.target.metricSources.{WAITING}",
            "pod and prometheus configs are mutually exclusive",
        ),
        (
            f"{TARGETS}/metricSources/{WAITING}",
            {"prometheus": {"serverURL": "ftp://p", "query": "up"}},
            f"spec.homogeneousTarget.target.metricSources.{WAITING}.prometheus.serverURL",
            "'ftp://p' is not an http:// or https:// address",
        ),
    ],
)
def test_43_and_46_each_rule_of_a_homogeneous_policy(
    path: str, value: object, place: str, said: str
) -> None:
    assert faults(bent(homogeneous(), path, value)) == [f"{place}: {said}"]


def test_43_metrics_are_needed_and_named_once() -> None:
    without = bent(homogeneous(), "spec/metrics", [])
    del without["spec"]["homogeneousTarget"]["target"]["metricSources"]
    assert faults(without) == ["spec.metrics: at least one metric must be set"]
    twice = homogeneous()
    twice["spec"]["metrics"] *= 2
    assert faults(twice) == [
        f"spec.metrics[1].name: duplicate metric name {WAITING} is not allowed"
    ]


def test_43_a_metric_without_a_source_would_never_be_read() -> None:
    manifest = homogeneous()
    del manifest["spec"]["homogeneousTarget"]["target"]["metricSources"]
    assert faults(manifest) == [
        "spec.homogeneousTarget.target.metricSources: "
        f"the metric {WAITING} has no source, so Kthena never reads it"
    ]


def test_43_all_faults_are_collected() -> None:
    manifest = bent(homogeneous(), "spec/metrics/0/targetValue", "0")
    bent(manifest, f"{TARGETS}/targetRef/kind", "Pod")
    bent(manifest, f"{DOWN}/period", "40m")
    assert len(faults(manifest)) == 3


@pytest.mark.parametrize(
    ("bands", "place", "said"),
    [
        (
            {"h100": {"min": 60}, "a100": {"min": 50}},
            "",
            "the minimum ratios add up to 110 percent",
        ),
        ({"h200": {}}, ".h200", "there is no target 'h200'"),
        ({"": {}}, ".", "the name of the target is empty"),
        ({"h100": {"min": 50, "max": 40}}, ".h100.min", "min 50 is above max 40"),
        ({"h100": {"max": 101}}, ".h100.max", "101 is too large"),
        ({"h100": {"min": -1}}, ".h100.min", "-1 is too small"),
    ],
)
def test_coordination_is_checked_with_paths(bands: dict[str, Any], place: str, said: str) -> None:
    manifest = heterogeneous()
    section = {"mode": "Preferred", "preferredRatio": bands}
    manifest["spec"]["heterogeneousTarget"]["coordination"] = section
    path = f"spec.heterogeneousTarget.coordination.preferredRatio{place}"
    assert faults(manifest) == [f"{path}: {said}"]


EARLIER = """
apiVersion: workload.serving.volcano.sh/v1alpha1
kind: AutoscalingPolicy
metadata: {name: scaling-policy}
spec:
  metrics:
  - metricName: kthena:num_requests_waiting
    targetValue: 10.0
  tolerancePercent: 20
---
apiVersion: workload.serving.volcano.sh/v1alpha1
kind: AutoscalingPolicyBinding
metadata: {name: binding}
spec:
  policyRef: {name: scaling-policy}
  heterogeneousTarget:
    costExpansionRatePercent: 150
    params:
    - target: {targetRef: {kind: ModelServing, name: h100}, metricEndpoint: {port: 9090}}
      cost: 100
      minReplicas: 1
      maxReplicas: 10
    - target: {targetRef: {kind: ModelServing, name: llm}, subTargets: {kind: Role, name: decode}}
      cost: 50
      minReplicas: 0
      maxReplicas: 20
"""


def test_the_binding_of_earlier_releases() -> None:
    (found,) = read(EARLIER)
    assert found.source == "AutoscalingPolicyBinding binding"
    assert found.policy == KthenaHeterogeneousSettings(
        policy="kthena-heterogeneous",
        metrics={"kthena:num_requests_waiting": 10.0},
        tolerance_percent=20,
        costs={"h100": 100.0, "decode": 50.0},
        cost_expansion_percent=150,
        pools={"h100": bounds(1, 10), "decode": bounds(0, 20)},
    )


def test_a_binding_to_nobody() -> None:
    assert faults(EARLIER.replace("name: scaling-policy}\n  het", "name: scaling}\n  het")) == [
        "spec: exactly one of homogeneousTarget, heterogeneousTarget, or disaggregatedTarget "
        "must be set",
        "spec.policyRef.name: there is no AutoscalingPolicy 'scaling'",
    ]


def test_typing_errors_are_named_with_line_and_nearest_name() -> None:
    text = EARLIER.replace("tolerancePercent", "tolerancePercentage")
    with pytest.raises(InputError) as caught:
        read(text)
    assert str(caught.value) == (
        "autoscaling.yaml:9: spec.tolerancePercentage: unknown key "
        "(did you mean 'tolerancePercent'?)"
    )


def test_a_target_that_no_pool_is() -> None:
    with pytest.raises(InputError) as caught:
        read(bent(homogeneous(), f"{TARGETS}/targetRef/name", "h10"))
    assert str(caught.value) == (
        "autoscaling.yaml:13: spec.homogeneousTarget.target.targetRef.name: no pool is called "
        "'h10'; allowed: llm, h100, a100, prefill, decode (did you mean 'h100'? or write "
        "scaling.targets: {h10: POOL})"
    )


def test_metrics_that_are_not_measured() -> None:
    manifest = bent(
        homogeneous(), f"{TARGETS}/metricSources/{WAITING}/pod/name", "DCGM_FI_DEV_GPU_UTIL"
    )
    assert faults(manifest) == [
        f"spec.homogeneousTarget.target.metricSources.{WAITING}.pod.name: "
        "'DCGM_FI_DEV_GPU_UTIL' is not a metric that is measured here"
    ]
    manifest = bent(homogeneous(), f"{TARGETS}/metricSources/{WAITING}/pod", None)
    source = {"serverURL": "http://p", "query": "a / b"}
    bent(manifest, f"{TARGETS}/metricSources/{WAITING}/prometheus", source)
    assert faults(manifest) == [
        f"spec.homogeneousTarget.target.metricSources.{WAITING}.prometheus.query: "
        "the query does more than is simulated: '/'"
    ]
