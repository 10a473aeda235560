"""Names of metrics that only the author of a manifest knows: the scenario explains them."""

from typing import Any

import pytest
import yaml

from tests.scaling.manifests.texts import POOLS, disaggregated, homogeneous
from windtunnel.core.errors import InputError
from windtunnel.scaling.manifests.load import read
from windtunnel.scaling.manifests.names import ScenarioNames
from windtunnel.scaling.metrics import WAITING, metric
from windtunnel.scaling.policies.aibrix import AibrixSettings
from windtunnel.scaling.policies.hpa import HpaMetric, HpaSettings
from windtunnel.scaling.policies.keda.policy import KedaMetric, KedaSettings
from windtunnel.scaling.policies.spare_capacity import SpareCapacitySettings
from windtunnel.scaling.settings import PoolBounds


def policies(manifest: dict[str, Any], metrics: dict[str, str]) -> list[Any]:
    names = ScenarioNames(POOLS, {}, metrics)
    found = read([(yaml.safe_dump(manifest), "autoscaling.yaml")], names)
    return [one.policy for one in found.assignments]


def hpa(*metrics: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "llm"},
        "spec": {"scaleTargetRef": {"name": "llm"}, "maxReplicas": 9, "metrics": list(metrics)},
    }


def resource(kind: str, target: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind[0].upper() + kind[1:], kind: {"name": "cpu", "target": target}}


def scaled_object(*triggers: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "llm"},
        "spec": {"scaleTargetRef": {"name": "llm"}, "triggers": list(triggers)},
    }


def prometheus(query: str, **more: str) -> dict[str, Any]:
    return {"type": "prometheus", **more, "metadata": {"query": query, "threshold": "5"}}


def test_resources_of_an_hpa_are_what_the_scenario_says() -> None:
    half = {"type": "Utilization", "averageUtilization": 50}
    inside = resource("containerResource", half)
    inside["containerResource"]["container"] = "vllm"
    (found,) = policies(hpa(resource("resource", half), inside), {"cpu": "batch_utilization"})
    assert isinstance(found, HpaSettings)
    assert found.metrics == [HpaMetric(name="batch_utilization", target=50.0)] * 2


def test_an_hpa_without_metrics_is_by_cpu() -> None:
    (found,) = policies(hpa(), {"cpu": "batch_utilization"})
    assert isinstance(found, HpaSettings)
    assert found.metrics == [HpaMetric(name="batch_utilization", target=80.0)]
    with pytest.raises(InputError, match=r"write scaling\.metrics: \{cpu: batch_utilization\}"):
        policies(hpa(), {})


def test_a_resource_without_its_target() -> None:
    with pytest.raises(InputError, match=r"resource\.target\.averageUtilization: missing"):
        policies(hpa(resource("resource", {"type": "Utilization"})), {"cpu": "running"})


def test_the_adapters_name_of_a_queue() -> None:
    queue = {
        "type": "External",
        "external": {
            "metric": {"name": "model_a_queue"},
            "target": {"type": "AverageValue", "averageValue": "3"},
        },
    }
    (found,) = policies(hpa(queue), {"model_a_queue": "queued"})
    assert isinstance(found, HpaSettings)
    assert found.metrics == [HpaMetric(name="queued", target=3.0, type="total", aggregate="sum")]


@pytest.mark.parametrize("name", ["vllm:num_requests_waiting|gauge", "queue_depth|unknown"])
def test_names_of_googles_adapter(name: str) -> None:
    managed = f"prometheus.googleapis.com|{name}"
    target = {"type": "AverageValue", "averageValue": "7"}
    pods = {"type": "Pods", "pods": {"metric": {"name": managed}, "target": target}}
    (found,) = policies(hpa(pods), {})
    assert found.metrics == [HpaMetric(name=managed, target=7.0)]
    assert metric(managed).quantity == WAITING
    with pytest.raises(InputError, match="is not a metric that is measured here"):
        metric("prometheus.googleapis.com|up|gauge")


@pytest.mark.parametrize(
    ("query", "mapping", "name", "aggregate"),
    [
        ("avg(my_queue)", {"my_queue": "waiting"}, "waiting", "avg"),
        ("my_queue{a='b'} / scalar(up)", {"my_queue": "waiting"}, "waiting", "sum"),
        (
            "histogram_quantile(0.9, sum(rate(my_first_token_bucket[1m])) by (le)) * 1000",
            {"my_first_token": "ttft"},
            "ttft",
            "sum",
        ),
        ("my_first_token", {"my_first_token": "ttft"}, "ttft", "avg"),
        ("clamp_min(up, 1) or vector(0)", {"of-the-trigger": "rate"}, "rate", "sum"),
        # What is known is read as it is, where nothing else is said.
        ("max(vllm:num_requests_running)", {"running": "waiting"}, None, "max"),
    ],
)
def test_a_query_of_any_form(
    query: str, mapping: dict[str, str], name: str | None, aggregate: str
) -> None:
    names = ScenarioNames(POOLS, {}, mapping)
    found = names.query(query, "of-the-trigger")
    assert (found.name, found.aggregate) == (name or "vllm:num_requests_running", aggregate)
    assert bool(names.unused()) == (name is None)


def test_a_query_with_two_explained_names() -> None:
    names = ScenarioNames(POOLS, {}, {"a": "waiting", "b": "running"})
    with pytest.raises(InputError, match="explains several names in the query: a, b"):
        names.query("sum(a) + sum(b)")


def test_triggers_of_keda() -> None:
    memory = {"type": "memory", "metricType": "Utilization", "metadata": {"value": "70"}}
    manifest = scaled_object(memory, prometheus("a * 2", name="busy"), prometheus("sum(c)"))
    mapping = {"memory": "kv_percent", "busy": "concurrency", "c": "waiting"}
    (found,) = policies(manifest, mapping)
    assert isinstance(found, KedaSettings)
    assert found.metrics == [
        KedaMetric(name="kv_percent", target=70.0, type="total", activation=0.0),
        KedaMetric(name="concurrency", target=5.0, type="total", activation=0.0),
        KedaMetric(name="waiting", target=5.0, type="total", activation=0.0),
    ]


def test_a_trigger_that_compares() -> None:
    traffic = prometheus("sum(rate(vllm:num_incoming_requests_total[1m]) > bool 0)", name="traffic")
    (found,) = policies(scaled_object(traffic), {})
    assert found.metrics == [
        KedaMetric(name="request_rate", target=5.0, type="total", activation=0.0, above=0.0)
    ]
    manifest = scaled_object(traffic)
    modifiers = {"formula": "traffic * 3", "target": "1"}
    manifest["spec"]["advanced"] = {"scalingModifiers": modifiers}
    (found,) = policies(manifest, {})
    assert found.formula.of["traffic"].above == 0.0


def test_kthena_does_not_compare() -> None:
    policy = homogeneous()
    policy["spec"]["metrics"] = [{"name": "load", "targetValue": "8"}]
    query = {"serverURL": "http://p", "query": "sum(vllm:num_requests_waiting) > bool 4"}
    target = policy["spec"]["homogeneousTarget"]["target"]
    target["metricSources"] = {"load": {"prometheus": query}}
    with pytest.raises(InputError, match=r"prometheus\.query: a comparison in a query"):
        policies(policy, {})


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ({"type": "rabbitmq", "metadata": {}}, "type: 'rabbitmq' asks for something that is not"),
        ({"type": "cpu", "metadata": {}}, "metadata.value: missing"),
        ({"type": "cpu", "metadata": {"value": "5"}}, "type: 'cpu' is a resource of the machine"),
        ({"type": "prometheus", "metadata": {}}, "metadata.query: missing"),
        (prometheus("up / 2"), r"write scaling\.metrics: \{NAME: METRIC\}"),
    ],
)
def test_triggers_that_are_refused(trigger: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        policies(scaled_object(trigger), {})


def test_sources_of_kthena() -> None:
    policy = homogeneous()
    policy["spec"]["metrics"] = [{"name": "load", "targetValue": "8"}]
    target = policy["spec"]["homogeneousTarget"]["target"]
    target["metricSources"] = {"load": {"pod": {"name": "my:load"}}}
    assert policies(policy, {"my:load": "concurrency"})[0].metrics == {"concurrency": 8.0}
    query = {"serverURL": "http://p", "query": "my:load:rate5m > 0"}
    target["metricSources"] = {"load": {"prometheus": query}}
    for key in ("load", "my:load:rate5m"):
        (found,) = policies(policy, {key: "concurrency"})
        assert found.metrics == {"concurrency": 8.0}


def test_kv_in_percent_and_free_tokens_of_kthena() -> None:
    policy = disaggregated()
    policy["spec"]["metrics"] = [{"name": "kv", "targetValue": "80"}]
    roles = policy["spec"]["disaggregatedTarget"]["roles"]
    roles["prefill"]["metricSources"]["kv"]["pod"]["name"] = "sglang:kv_available_tokens"
    roles["decode"]["metricSources"]["kv"] = {
        "prometheus": {"serverURL": "http://p", "query": "avg(vllm_gpu_kv_cache_usage_percent)"}
    }
    (found,) = policies(policy, {})
    assert found.metrics_of == {
        "prefill": {"sglang:kv_available_tokens": 80.0},
        "decode": {"vllm_gpu_kv_cache_usage_percent": 80.0},
    }


def test_sources_of_aibrix_that_are_one_metric_have_the_lower_target() -> None:
    manifest = {
        "apiVersion": "autoscaling.aibrix.ai/v1alpha1",
        "kind": "PodAutoscaler",
        "metadata": {"name": "llm"},
        "spec": {
            "scaleTargetRef": {"name": "llm"},
            "maxReplicas": 4,
            "scalingStrategy": "APA",
            "metricsSources": [
                {"metricSourceType": "resource", "targetMetric": "cpu", "targetValue": "30"},
                {"metricSourceType": "pod", "targetMetric": "busy", "targetValue": "40"},
            ],
        },
    }
    (found,) = policies(manifest, {"cpu": "batch_utilization", "busy": "batch_utilization"})
    assert isinstance(found, AibrixSettings)
    assert found.metrics == {"batch_utilization": 30.0}


def knative(**annotations: str) -> dict[str, Any]:
    prefix = "autoscaling.knative.dev/"
    return {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {"name": "llm"},
        "spec": {
            "template": {
                "metadata": {"annotations": {prefix + key: at for key, at in annotations.items()}}
            }
        },
    }


def test_knative_with_an_hpa() -> None:
    chosen = knative(**{"class": "hpa.autoscaling.knative.dev", "max-scale": "7"})
    (found,) = policies(chosen, {"cpu": "batch_utilization"})
    assert isinstance(found, HpaSettings)
    assert found.metrics == [HpaMetric(name="batch_utilization", target=80.0)]
    assert found.pools == {"llm": PoolBounds(min=0, max=7)}
    with pytest.raises(InputError, match="'cpu' is a resource of the machine"):
        policies(chosen, {})
    with pytest.raises(InputError, match="'cpu' is not known here; allowed: concurrency, rps"):
        policies(knative(metric="cpu"), {})


def test_knatives_other_spelling_of_its_aggregation() -> None:
    (found,) = policies(knative(metricAggregationAlgorithm="weightedExponential"), {})
    assert found.aggregation == "weighted-exponential"


def test_a_variant_of_before_that_names_no_target() -> None:
    manifest = {
        "apiVersion": "llmd.ai/v1alpha1",
        "kind": "VariantAutoscaling",
        "metadata": {"name": "llm"},
        "spec": {"modelID": "m", "modelProfile": {"accelerators": []}},
    }
    old = {
        "type": "External",
        "external": {
            "metric": {"name": "inferno_desired_replicas"},
            "target": {"type": "AverageValue", "averageValue": "1"},
        },
    }
    text = "---\n".join(yaml.safe_dump(one) for one in (manifest, hpa(old)))
    (found,) = read([(text, "wva.yaml")], ScenarioNames(POOLS)).assignments
    assert isinstance(found.policy, SpareCapacitySettings)
    assert found.policy.pools == {"llm": PoolBounds(min=1, max=9)}
    with pytest.raises(InputError, match=r"metadata\.name: no pool is called 'other'"):
        policies({**manifest, "metadata": {"name": "other"}}, {})


def test_a_metric_that_no_manifest_has() -> None:
    with pytest.raises(InputError, match=r"scaling\.metrics\.x: no manifest has such a metric"):
        policies(homogeneous(), {"x": "waiting"})
