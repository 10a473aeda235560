"""The autoscaler's loop without an API server: which objects are planned, and what a bug does."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from tests.scaling.kubernetes.pods import HPA, target
from tests.scaling.manifests.texts import HOMOGENEOUS
from windtunnel.live.kubernetes.resources import Meta, Resource
from windtunnel.live.operate.mirror import Received
from windtunnel.live.operate.program import OperatorOptions, Program
from windtunnel.live.operate.rights import SCALABLE
from windtunnel.live.operate.scaling.caches import AUTOSCALERS, KTHENA, ScalingCaches
from windtunnel.live.operate.scaling.operator import ScalingOperator, ScalingOptions
from windtunnel.scaling.kubernetes import canary
from windtunnel.scaling.kubernetes.autoscaler import autoscaler_plan
from windtunnel.scaling.kubernetes.kthena import POLICY, Stored, plans
from windtunnel.scaling.kubernetes.plan import ObjectName, ScalingPlan


class Stage:
    """An operator that recommends, and the objects that its caches hold."""

    def __init__(self) -> None:
        nothing: Any = None
        self.caches = ScalingCaches(nothing)
        self.operator = ScalingOperator(
            self.caches, nothing, None, None, nothing, lambda: 1.0, ScalingOptions("here")
        )
        self._version = 0

    def show(self, name: str, generation: int = 1, **spec: Any) -> None:
        self._version += 1
        meta = Meta(namespace="ns", name=name, uid=name, generation=generation,
                    resource_version=str(self._version))  # fmt: skip
        spec = {"targets": [target()], "scaling": HPA, **spec}
        held = Received(metadata=meta, spec=spec)
        self.caches.reflectors[f"{AUTOSCALERS.kind}.{AUTOSCALERS.group}"].cache.show(held)

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
    async def lead_and_lose() -> Program:
        program, nothing = Program(OperatorOptions(scaling=True)), cast("Any", None)
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
    ((_, made),) = plans([Stored(named, HOMOGENEOUS["spec"])], [])
    assert isinstance(made, ScalingPlan)
    scaled = made.targets[0].named
    assert (scaled.api_version, scaled.kind) in {(one.api_version, one.kind) for one in SCALABLE}
