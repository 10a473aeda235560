"""The autoscaler's loop without an API server: which objects are planned, and what a bug does."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from tests.scaling.kubernetes.pods import HPA, target
from tests.scaling.manifests.texts import HOMOGENEOUS
from windtunnel.core.loop import INFINITY
from windtunnel.live.kubernetes.cache import ObjectCache
from windtunnel.live.kubernetes.errors import ApiStatus, Conflict
from windtunnel.live.kubernetes.resources import Meta, Resource
from windtunnel.live.operate.program import OperatorOptions, OperatorProgram
from windtunnel.live.operate.received import Received
from windtunnel.live.operate.rights import SCALABLE
from windtunnel.live.operate.scaling.caches import AUTOSCALERS, HPAS, KTHENA, ScalingCaches
from windtunnel.live.operate.scaling.operator import ScalingOperator, ScalingOptions
from windtunnel.live.operate.scaling.scaled import FAILED_S, ScaledEntry
from windtunnel.scaling.kubernetes import canary, core
from windtunnel.scaling.kubernetes.autoscaler import autoscaler_plan
from windtunnel.scaling.kubernetes.kthena import POLICY, Stored, wanted_by
from windtunnel.scaling.kubernetes.plan import (
    Claimant,
    ObjectName,
    ScalingPlan,
    TargetKey,
    taken_targets,
)


def scaling_of(pool: str) -> dict[str, Any]:
    return {**HPA, "pools": {pool: {"min": 1, "max": 8}}}


class Stage:
    """An operator that recommends, and the objects that its caches hold."""

    def __init__(self) -> None:
        nothing: Any = None
        self.caches = ScalingCaches(nothing)
        self.operator = ScalingOperator(
            self.caches, nothing, None, None, nothing, lambda: 1.0, ScalingOptions("here")
        )
        self._version = 0

    def show(
        self, name: str, resource: Resource = AUTOSCALERS, *, generation: int = 1,
        status: dict[str, Any] | None = None, **spec: Any,
    ) -> None:  # fmt: skip
        self._version += 1
        meta = Meta(namespace="ns", name=name, uid=name, generation=generation,
                    resource_version=str(self._version))  # fmt: skip
        spec = spec or {"targets": [target(name)], "scaling": scaling_of(name)}
        held = Received(metadata=meta, spec=spec, status=status or {})
        self.cache(resource).show(held)

    def remove(self, name: str, resource: Resource = AUTOSCALERS) -> None:
        held = self.cache(resource).get("ns", name)
        assert held is not None
        self.cache(resource).remove(held)

    def cache(self, resource: Resource) -> ObjectCache[Received]:
        return self.caches.reflectors[f"{resource.kind}.{resource.group}"].cache

    def scaled(self) -> dict[str, ScaledEntry]:
        return {named.name: one for named, one in self.operator.scaled.items()}

    def wrong(self) -> dict[str, str]:
        return {named.name: one.wrong for named, one in self.operator.scaled.items()}


def test_a_bug_in_reading_one_object_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()

    def failing(namespace: str, name: str, spec: Mapping[str, Any]) -> ScalingPlan:
        if name == "bad":
            raise KeyError("#")
        return autoscaler_plan(namespace, name, spec)

    monkeypatch.setattr(canary, "autoscaler_plan", failing)
    for name in ("bad", "good"):
        stage.show(name)
    stage.operator.replan()
    said = stage.wrong()
    assert said["good"] == ""
    assert "a bug in Windtunnel" in said["bad"]
    assert "KeyError('#')" in said["bad"]
    assert stage.operator.bugs == 1


def test_a_former_leader_publishes_nothing() -> None:
    async def lead_and_lose() -> OperatorProgram:
        program, nothing = OperatorProgram(OperatorOptions(scaling=True)), cast("Any", None)
        program._installation = "here"
        leading = asyncio.create_task(program._scale(ScalingCaches(nothing), nothing, None, None))
        async with asyncio.timeout(5):
            while program.scaling is None:
                await asyncio.sleep(0)
        leading.cancel()
        await asyncio.wait([leading])
        return program

    assert asyncio.run(lead_and_lose()).scaling is None


@pytest.mark.parametrize("policies", [one for one in KTHENA if one.kind == POLICY])
def test_what_a_policy_of_kthena_scales_may_be_scaled(policies: Resource) -> None:
    named = ObjectName(policies.api_version, policies.kind, "ns", "policy")
    ((_, wanted),) = wanted_by([Stored(named, HOMOGENEOUS["spec"])], [])
    made = canary.CanaryGate().plan(wanted)
    assert isinstance(made, ScalingPlan)
    scaled = made.targets[0].named
    assert (scaled.api_version, scaled.kind) in {(one.api_version, one.kind) for one in SCALABLE}


def test_only_what_changed_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def counting(claimants: list[Claimant], others: Mapping[TargetKey, str]) -> Any:
        counted.append(len(claimants))
        return taken_targets(claimants, others)

    monkeypatch.setattr(core, "taken_targets", counting)
    stage = Stage()
    for name in "abc":
        stage.show(name)
    stage.operator.replan()
    controls = {name: one.control for name, one in stage.scaled().items()}
    assert counted == [3]
    stage.show("a", status={"conditions": []})  # as after each of our own writes
    stage.operator.replan()
    assert stage.scaled()["a"].status == {"conditions": []}
    assert counted == [3]
    edited = {**scaling_of("b"), "interval": "30s"}
    stage.show("b", generation=2, targets=[target("b")], scaling=edited)
    stage.operator.replan()
    assert counted == [3, 3]
    now = {name: one.control for name, one in stage.scaled().items()}
    assert [name for name in "abc" if now[name] is not controls[name]] == ["b"]
    stage.show("hpa", HPAS, scaleTargetRef={"kind": "Deployment", "name": "c"})
    stage.operator.replan()
    stage.caches.woken.clear()
    stage.show("hpa", HPAS, scaleTargetRef={"kind": "Deployment", "name": "c"}, status={"x": 1})
    assert not stage.caches.woken.is_set()
    assert counted == [3, 3, 3]
    assert list(stage.operator.core.taken.values()) == [{"c": "HorizontalPodAutoscaler hpa"}]
    stage.remove("a")
    stage.operator.replan()
    assert list(stage.scaled()) == ["b", "c"]


def test_the_next_term_starts_with_all_objects() -> None:
    stage = Stage()
    stage.show("a")
    stage.operator.replan()
    nothing: Any = None
    again = ScalingOperator(
        stage.caches, nothing, None, None, nothing, lambda: 2.0, ScalingOptions("here")
    )
    again.replan()
    assert [named.name for named in again.scaled] == ["a"]


def test_a_policy_gets_its_targets_back_when_its_binding_goes() -> None:
    stage = Stage()
    policies, bindings = KTHENA[:2]
    for one in (policies, bindings):
        stage.caches._add(one)
    spec = {
        "policyRef": {"name": "policy"},
        "homogeneousTarget": HOMOGENEOUS["spec"]["homogeneousTarget"],
    }
    stage.show("policy", policies, **HOMOGENEOUS["spec"])
    stage.show("binding", bindings, **spec)
    stage.operator.replan()
    assert stage.scaled()["policy"].control is None
    stage.remove("binding", bindings)
    stage.operator.replan()
    assert stage.scaled()["policy"].control is not None


class ApiWriter:
    """An API server that refuses a write to a version that is not the current one."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.bodies: list[Any] = []

    async def patch(self, _: Resource, namespace: str, name: str, body: Any, *_more: Any,
                    subresource: str) -> Received:  # fmt: skip
        assert subresource == "status"
        self.bodies.append(body)
        if body["metadata"]["resourceVersion"] != self.version:
            raise Conflict("PATCH", 409, ApiStatus(message="the object has been modified"), 0.0)
        self.version = str(int(self.version) + 1)
        meta = Meta(namespace=namespace, name=name, uid=name, resource_version=self.version)
        return Received(metadata=meta, status=body["status"])


def test_a_condition_that_another_writer_has_just_set_is_kept() -> None:
    """The list of conditions is replaced as a whole."""
    nothing: Any = None
    stage, writer = Stage(), cast("Any", ApiWriter("2"))
    stage.operator = ScalingOperator(
        stage.caches, nothing, writer, None, nothing, lambda: 1.0, ScalingOptions("here")
    )
    stage.show("a", targets=[])
    stage.operator.replan()
    asyncio.run(stage.operator._look_at(stage.scaled()["a"]))
    assert stage.scaled()["a"].due_s == 1.0 + FAILED_S  # it is tried again
    stage.show("a", targets=[], status={"conditions": [{"type": "Other", "status": "True"}]})
    stage.operator.replan()
    asyncio.run(stage.operator._look_at(stage.scaled()["a"]))
    kinds = [one["type"] for one in writer.bodies[-1]["status"]["conditions"]]
    assert kinds == ["Other", "Accepted"]
    assert stage.scaled()["a"].due_s == INFINITY
