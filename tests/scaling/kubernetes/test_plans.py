"""Objects of a cluster become plans: Autoscalers, and Kthena's before and after its v1.0."""

import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.scaling.kubernetes.pods import HPA, plan, target
from tests.scaling.manifests.texts import HOMOGENEOUS, disaggregated, heterogeneous
from windtunnel.models.step_time.linear import Linear
from windtunnel.models.step_time.model import StepWork
from windtunnel.scaling.kubernetes.autoscaler import autoscaler_plan
from windtunnel.scaling.kubernetes.canary import CanaryGate
from windtunnel.scaling.kubernetes.control import ScalingController, TickObservation
from windtunnel.scaling.kubernetes.crds import crds
from windtunnel.scaling.kubernetes.kthena import Stored, wanted_by
from windtunnel.scaling.kubernetes.plan import InvalidPlan, LinearStepTimes, ObjectName, ScalingPlan
from windtunnel.scaling.kubernetes.snapshots import PodView, PoolObservation
from windtunnel.scaling.manifests.load import read
from windtunnel.scaling.manifests.names import ScenarioNames

EXAMPLES = Path(__file__).parents[3] / "examples"
KTHENA = "workload.serving.volcano.sh/v1alpha1"


def scaling_sections() -> dict[str, dict[str, Any]]:
    found = {}
    for file in sorted(EXAMPLES.glob("*.yaml")):
        scenario = yaml.safe_load(file.read_text())
        section = scenario.get("scaling")
        if isinstance(section, dict) and "policy" in section:
            pools = [pool["name"] for pool in scenario["serving"]["pools"]]
            found[file.stem] = {"scaling": section, "pools": pools}
    return found


@pytest.mark.parametrize("name", scaling_sections())
def test_the_scaling_section_of_an_example_is_that_of_an_autoscaler(name: str) -> None:
    found = scaling_sections()[name]
    section = copy.deepcopy(found["scaling"])
    for pool in found["pools"]:
        section.setdefault("pools", {}).setdefault(pool, {"min": 1, "max": 9})
    step_time = {"fixed": "10ms", "decode": "100us", "prefillToken": "10us"}
    spec = {
        "targets": [
            target(pool, stepTime=step_time, accelerator="h100") for pool in found["pools"]
        ],
        "queue": {"url": "http://gateway:9090/metrics"},
        "scaling": section,
    }
    made = autoscaler_plan("ns", "chat", spec)
    assert [one.pool for one in made.targets] == found["pools"]
    pools = {pool: PoolObservation(1, [PodView(pool, pool, 0.0)]) for pool in found["pools"]}
    assert ScalingController(made, 0.0).decide(TickObservation(pools), 0.0).decisions


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"targets": [], "scaling": HPA}, "spec.targets: the list has no items"),
        ({"targets": [target()], "scaling": {"policy": "hpx"}}, "did you mean 'hpa'?"),
        ({"targets": [target("other")], "scaling": HPA}, "without bounds a mistake could grow"),
        ({"targets": [target(), target()], "scaling": HPA}, "there are two pools 'main'"),
        ({"targets": [target()], "scaling": {**HPA, "pools": {"main": {"min": 0, "max": 2}}}},
         "spec.queue: missing"),
        ({"targets": [target()], "scaling": {"policy": "predictive", "pools": HPA["pools"]}},
         "spec.targets[0].stepTime: missing"),
        ({"targets": [target(port=70000)], "scaling": HPA}, "port: 70000 is too large"),
        ({"targets": [target()], "scaling": {"policy": "foresight", "pools": HPA["pools"],
                                             "schedule": {"main": [["0s", 2]]}}},
         "foresight cannot run on a cluster"),
        ({"targets": [target()], "scaling": {"policy": "foresight", "pools": HPA["pools"]}},
         "foresight cannot run on a cluster"),
        ({"targets": [target()], "scaling": HPA, "queue": {"url": "file:///etc/passwd"}},
         "is not an http:// or https:// address"),
        ({"targets": [target()], "scaling": {**HPA, "interval_s": 10}}, "did you mean 'interval'?"),
        ({"targets": [target(price_per_hour=3)], "scaling": HPA}, "did you mean 'pricePerHour'?"),
        ({"targets": [target()], "scaling": {
            "policy": "keda", "pools": HPA["pools"],
            "formula": {"formula": "# + 1", "of": {"q": {"metric": "waiting"}}, "target": 5}}},
         "'#' is an item of a list"),
        ({"targets": [target(stepTime={"fixed": "0s", "decode": "1ms"})], "scaling": HPA},
         "spec.targets[0].stepTime.fixed: a step would take no time"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidPlan) as caught:
        autoscaler_plan("ns", "chat", spec)
    assert says in str(caught.value)


@given(st.tuples(*[st.floats(0.0, 0.1)] * 3), st.integers(1, 512), st.integers(0, 10**6),
       st.integers(0, 8192))  # fmt: skip
def test_step_times_are_those_of_the_model_that_simulations_have(
    costs: tuple[float, float, float], decoding: int, context: int, prompt: int
) -> None:
    model = Linear(fixed_s=0.01, prefill_token_s=costs[0], decode_s=costs[1],
                   context_token_s=costs[2])  # fmt: skip
    work = StepWork([(prompt, 0, prompt)], decoding, context, decoding)
    planned = LinearStepTimes(0.01, *costs).step_s(prompt, decoding, context)
    assert planned == pytest.approx(model.step_s(work))


def test_groups_of_pods_are_replicas_by_the_label_of_their_kind() -> None:
    reference = {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "name": "main"}
    made = autoscaler_plan("ns", "chat", {"targets": [{"targetRef": reference}], "scaling": HPA})
    assert made.targets[0].replica_label == "grove.io/podcliqueset-replica-index"
    assert plan().targets[0].replica_label == ""


def test_schedules_go_by_the_clock_of_the_cluster() -> None:
    hours = {"start": "0 9 * * *", "end": "0 17 * * *", "replicas": 5}
    keda = {"policy": "keda", "schedules": [hours], "pools": {"main": {"min": 1, "max": 9}}}
    control = ScalingController(plan(keda), 0.0)
    pools = {"main": PoolObservation(1, [PodView("1", "a", 0.0)])}
    midnight_s = datetime(2026, 11, 16, tzinfo=UTC).timestamp()
    assert control.decide(TickObservation(pools), midnight_s + 8 * 3600).orders == []
    (order,) = control.decide(TickObservation(pools), midnight_s + 10 * 3600).orders
    assert order.replicas == 5


def stored(manifest: dict[str, Any], kind: str = "AutoscalingPolicy") -> Stored:
    return Stored(ObjectName(KTHENA, kind, "ns", manifest["metadata"]["name"]), manifest["spec"])


def plans(policies: Any, bindings: Any) -> list[tuple[ObjectName, ScalingPlan | InvalidPlan]]:
    return [(named, CanaryGate().plan(one)) for named, one in wanted_by(policies, bindings)]


def only(*found: Any) -> ScalingPlan:
    ((_, made),) = plans(*found)
    assert isinstance(made, ScalingPlan), made
    return made


def test_a_policy_of_kthena_is_the_one_that_a_simulation_runs() -> None:
    made = only([stored(HOMOGENEOUS)], [])
    simulated = read([(yaml.safe_dump(HOMOGENEOUS), "x.yaml")], ScenarioNames(["llm"]))
    assert made.setup.policies[0].policy == simulated.assignments[0].policy
    (one,) = made.targets
    assert str(one.named) == "ModelServing ns/llm"
    assert (one.port, one.path, one.bounds.max) == (8000, "/metrics", 5)
    assert one.selector == ("modelserving.volcano.sh/entry=true,modelserving.volcano.sh/name=llm")


def binding_of(policy: dict[str, Any]) -> dict[str, Any]:
    """As before v1.0: the policy without a target, and a binding that has it."""
    spec = {"policyRef": {"name": "policy"}}
    spec["homogeneousTarget"] = policy["spec"].pop("homogeneousTarget")
    endpoint = {"uri": "/custom", "port": 9000}
    spec["homogeneousTarget"]["target"]["metricEndpoint"] = endpoint  # type: ignore[index]
    del spec["homogeneousTarget"]["target"]["metricSources"]  # type: ignore[attr-defined]
    return {"metadata": {"name": "binding"}, "spec": spec}


def test_a_binding_has_the_target_before_v1() -> None:
    policy = copy.deepcopy(HOMOGENEOUS)
    binding = stored(binding_of(policy), "AutoscalingPolicyBinding")
    ((named, made),) = plans([stored(policy)], [binding])
    assert isinstance(made, ScalingPlan)
    assert named.kind == "AutoscalingPolicyBinding"
    assert (made.targets[0].port, made.targets[0].path) == (9000, "/custom")
    ((_, alone),) = plans([], [binding])
    assert "there is no AutoscalingPolicy 'policy'" in str(alone)


def test_a_query_is_asked_as_it_is_written() -> None:
    policy = copy.deepcopy(HOMOGENEOUS)
    policy["spec"]["metrics"] = [{"name": "pressure", "targetValue": "2"}]
    query = 'sum(rate(my_own_counter{app="x"}[1m])) / 3'
    source = {"prometheus": {"serverURL": "http://prom:9090", "query": query}}
    policy["spec"]["homogeneousTarget"]["target"]["metricSources"] = {"pressure": source}
    made = only([stored(policy)], [])
    assert [(one.metric, one.url, one.query) for one in made.queries] == [
        ("pressure", "http://prom:9090", query)
    ]
    control = ScalingController(made, 0.0)
    known = PoolObservation(2, [PodView("1", "a", 0.0)], {"pressure": 7.0})
    (order,) = control.decide(TickObservation({"llm": known}), 0.0).orders
    assert order.replicas == 4
    dark = PoolObservation(4, [PodView("1", "a", 0.0)], {})
    assert control.decide(TickObservation({"llm": dark}, problems=["no answer"]), 15.0).orders == []
    assert control.conditions["ScalingActive"].reason == "FailedGetMetrics"


def test_a_key_of_kthena_is_written_as_kthena_writes_it() -> None:
    policy = copy.deepcopy(HOMOGENEOUS)
    policy["spec"]["homogeneousTarget"]["max_replicas"] = 4
    ((_, wrong),) = plans([stored(policy)], [])
    assert "did you mean 'maxReplicas'" in str(wrong)


def test_roles_are_recommended_and_several_targets_are_scaled() -> None:
    made = only([stored(disaggregated())], [])
    assert [one.pool for one in made.targets] == ["llm-prefill", "llm-decode"]
    assert all("no scale subresource" in one.cannot for one in made.targets)
    several = only([stored(heterogeneous())], [])
    assert len(several.targets) == 2
    assert not any(one.cannot for one in several.targets)


def test_the_crd_has_a_type_for_every_value_and_the_words_of_all_policies() -> None:
    (crd,) = crds()
    (version,) = crd["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    nodes, seen = [schema], 0
    while nodes:
        node = nodes.pop()
        seen += 1
        assert "type" in node or "x-kubernetes-int-or-string" in node, node
        nodes += node.get("properties", {}).values()
        nodes += [node["items"]] if "items" in node else []
        more = node.get("additionalProperties")
        nodes += [more] if isinstance(more, dict) else []
    assert seen > 60
    scaling = schema["properties"]["spec"]["properties"]["scaling"]
    assert "predictive" in scaling["properties"]["policy"]["enum"]
    assert scaling["x-kubernetes-preserve-unknown-fields"] is True
    assert "wake" in scaling["properties"]
