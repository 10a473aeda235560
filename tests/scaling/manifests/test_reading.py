"""Files of manifests: what is refused as a whole, quantities, queries, names of pools."""

from typing import Annotated

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from tests.scaling.manifests.texts import POOLS, bent, faults, homogeneous, read
from windtunnel.core.errors import InputError
from windtunnel.scaling.manifests.load import read as read_texts
from windtunnel.scaling.manifests.names import ScenarioNames
from windtunnel.scaling.manifests.queries import queried
from windtunnel.settings.manifests import Quantity

QUANTITY = TypeAdapter(Annotated[float, Quantity()])


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (10, 10.0),
        (0.5, 0.5),
        ("100m", 0.1),
        ("2k", 2000.0),
        ("1Gi", 2.0**30),
        ("1e3", 1000.0),
        ("1E", 1e18),
        ("-.5", -0.5),
        ("250u", 0.00025),
        ("1e999", float("inf")),
        pytest.param(-(10**400), float("-inf"), id="too many digits"),
    ],
)
def test_quantities(written: object, expected: float) -> None:
    assert QUANTITY.validate_python(written) == pytest.approx(expected)


@pytest.mark.parametrize("written", ["", "10q", "1 k", True, None, float("nan"), "1" * 99, "1e3k"])
def test_what_is_no_quantity(written: object) -> None:
    with pytest.raises(ValidationError):
        QUANTITY.validate_python(written)


@pytest.mark.parametrize(
    ("query", "name", "aggregate"),
    [
        ("sum(vllm:num_requests_waiting)", "vllm:num_requests_waiting", "sum"),
        ("vllm:num_requests_waiting", "vllm:num_requests_waiting", "sum"),
        (
            'avg by (pod) (avg_over_time(vllm:kv_cache_usage_perc{a="(b)"}[5m]))',
            "vllm:kv_cache_usage_perc",
            "avg",
        ),
        ("max(queue_depth{})", "queue_depth", "max"),
        ('sum(rate(http_requests_total{namespace="x"}[2m]))', "request_rate", "sum"),
        (
            "sum(kthena_router_active_downstream_requests)",
            "kthena_router_active_downstream_requests",
            "sum",
        ),
        (
            "histogram_quantile(0.95, sum(rate(dynamo_frontend_time_to_first_token_seconds_bucket"
            '{a="b"}[5m])) by (le))',
            "ttft_p95",
            "avg",
        ),
        (
            'sum(vllm:num_requests_waiting{model="a"}) or vector(0)',
            "vllm:num_requests_waiting",
            "sum",
        ),
        ("sum(rate(http_requests_total[1m])) or on() vector( 0 )", "request_rate", "sum"),
        ("avg(vllm:kv_cache_usage_perc) * 100", "kv_percent", "avg"),
        ("max(vllm:kv_cache_usage_perc{a='b'} * 100)", "kv_percent", "max"),
        ("100 * sum(vllm:gpu_cache_usage_perc) or vector(0)", "kv_percent", "sum"),
        (
            "histogram_quantile(.5, sum(rate(vllm:time_to_first_token_seconds_bucket[5m])))",
            "vllm:time_to_first_token_seconds",
            "avg",
        ),
        (
            "histogram_quantile(0.99, sum(rate(vllm:inter_token_latency_seconds_bucket[5m])))",
            "vllm:inter_token_latency_seconds",
            "avg",
        ),
        (
            "sum(rate(vllm:time_to_first_token_seconds_sum[1m]))"
            " / sum(rate(vllm:time_to_first_token_seconds_count[1m]))",
            "vllm:time_to_first_token_seconds",
            "avg",
        ),
    ],
)
def test_queries_of_one_metric(query: str, name: str, aggregate: str) -> None:
    found = queried(query, {})
    assert (found.name, found.aggregate) == (name, aggregate)


@pytest.mark.parametrize(
    ("query", "name", "aggregate", "above"),
    [
        # A gateway counts requests of a model as one number, whichever replica serves them.
        (
            'sum(rate(vllm:num_incoming_requests_total{model="a"}[2m]) > bool 0)',
            "request_rate",
            "sum",
            0.0,
        ),
        ("sum(queue_depth) >bool 2.5 or vector(0)", "queue_depth", "sum", 2.5),
        ("(max by (pod) (running > bool 8))", "running", "max", 8.0),
        (
            "histogram_quantile(0.95, sum(rate(vllm:time_to_first_token_seconds_bucket[5m])))"
            " > bool .5",
            "ttft_p95",
            "avg",
            0.5,
        ),
    ],
)
def test_queries_that_compare(query: str, name: str, aggregate: str, above: float) -> None:
    found = queried(query, {})
    assert (found.name, found.aggregate, found.above) == (name, aggregate, above)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "the query asks for nothing"),
        (
            "avg(running > bool 3)",
            "the query compares each replica separately, which is not simulated",
        ),
        (
            "sum(rate(vllm:request_success_total[1m]) > bool 0)",
            "the query compares each replica separately, which is not simulated",
        ),
        ("sum(running) > bool 0 / 3", "the query does more than is simulated: '>'"),
        ("sum(running) * 100", "the query does more than is simulated: '*'"),
        ("100 * avg(kv_used) * 100", "the query does more than is simulated: '1'"),
        ("avg(kv_used) * 1000", "the query does more than is simulated: '*'"),
        ("sum(running) > 0", "the query does more than is simulated: '>'"),
        (
            "max(wva_desired_replicas) > bool 1",
            "'wva_desired_replicas' is a number of replicas, and is not compared",
        ),
        ("sum(up)", "'up' is not a metric that is measured here"),
        ("sum(running) / sum(waiting)", "the query does more than is simulated: '/'"),
        (
            "histogram_quantile(0.95, x)",
            "the query does more than is simulated: 'x'",
        ),
        ("topk(ttft)", "the query does more than is simulated: 'topk'"),
        (
            "sum(rate(vllm:num_requests_waiting[1m]))",
            "'vllm:num_requests_waiting' is not a counter of requests that is known here",
        ),
    ],
)
def test_queries_that_are_not_simulated(query: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        queried(query, {})
    assert caught.value.what == said
    assert caught.value.allowed


def test_roles_are_pools_of_three_kinds_of_name() -> None:
    pools = ScenarioNames(["llm-decode", "prefill"], {"llm/encode": "prefill", "spare": "prefill"})
    assert pools.pool("llm", "decode") == "llm-decode"
    assert pools.pool("llm", "prefill") == "prefill"
    assert pools.pool("llm", "encode") == "prefill"
    assert list(pools.unused()) == ["targets.spare"]


def test_a_name_for_a_target_that_nobody_has() -> None:
    assert faults(homogeneous(), other="h100") == [
        "scaling.targets.other: no manifest has such a target"
    ]


def test_two_policies_for_one_pool() -> None:
    second = bent(homogeneous(), "metadata/name", "second")
    assert faults(homogeneous(), second) == [
        "spec: the pool 'llm' is scaled by AutoscalingPolicy policy already"
    ]
    assert faults(homogeneous(), homogeneous())[0] == (
        "metadata.name: there are two of AutoscalingPolicy policy"
    )


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            "kind",
            "AutoscalingPolicies",
            "kind: 'AutoscalingPolicies' is not a kind that is read here",
        ),
        ("kind", None, "kind: missing"),
        ("apiVersion", "v1", "apiVersion: 'v1' is not an apiVersion of AutoscalingPolicy"),
        ("spec/homogeneousTarget/maxReplicas", None, "spec.homogeneousTarget.maxReplicas: missing"),
        (
            "spec/homogeneousTarget/maxReplicas",
            0,
            "spec.homogeneousTarget.maxReplicas: 0 is too small",
        ),
        ("spec/tolerancePercent", 101, "spec.tolerancePercent: 101 is too large"),
    ],
)
def test_what_is_no_manifest(path: str, value: object, said: str) -> None:
    assert faults(bent(homogeneous(), path, value)) == [said]


def test_what_people_keep_beside_it_is_skipped_and_said_once() -> None:
    beside = [
        f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: llm}}\nspec: {{replicas: 3}}\n"
        for version, kind in (("apps/v1", "Deployment"), ("v1", "Service"), ("v1", "Service"))
    ]
    text = "---\n".join([*beside, yaml.safe_dump(homogeneous())])
    found = read_texts([(text, "autoscaling.yaml")], ScenarioNames(POOLS))
    assert [one.source for one in found.assignments] == ["AutoscalingPolicy policy"]
    (note,) = found.notes
    assert note.startswith("scaling.manifests has 1 Deployment, 2 Service too, which are ignored")
    assert (
        read_texts([(beside[0] + "---\n" + text, "a.yaml")], ScenarioNames(POOLS))
        .notes[0]
        .startswith("scaling.manifests has 2 Deployment, 2 Service too")
    )


def test_kinds_of_other_groups_are_skipped_and_those_of_known_groups_are_not() -> None:
    strange = "apiVersion: example.org/v1\nkind: Gateway\nmetadata: {name: llm}\n"
    text = f"{yaml.safe_dump(homogeneous())}---\n{strange}"
    (note,) = read_texts([(text, "a.yaml")], ScenarioNames(POOLS)).notes
    assert note.startswith("scaling.manifests has 1 Gateway too")
    assert faults(strange) == ["scaling.manifests: the manifests scale nothing"]
    typo = strange.replace("example.org/v1", "autoscaling/v2")
    assert faults(typo) == ["kind: 'Gateway' is not a kind that is read here"]


def test_faults_of_all_manifests_are_told_together() -> None:
    first = bent(homogeneous(), "spec/tolerancePercent", 101)
    assert len(faults(first, bent(homogeneous(), "kind", "Deploy"))) == 2


def test_what_an_api_server_adds_is_no_fault() -> None:
    manifest = homogeneous()
    manifest["metadata"] |= {"uid": "1", "resourceVersion": "7", "labels": {"a": "b"}}
    manifest["status"] = {"anything": [1]}
    assert len(read(manifest)) == 1
