"""Several policies for one model: each decides its own pools, and the rest stays."""

import json

from tests.scaling.policies.kthena.paces import AT_ONCE
from windtunnel.scaling.build import ScalingSetup, build_scaler
from windtunnel.scaling.manifests.fields import Assignment
from windtunnel.scaling.policies.kthena.policy import (
    KthenaHeterogeneousSettings,
    KthenaHomogeneousSettings,
)
from windtunnel.scaling.scaler import Scaler
from windtunnel.scaling.settings import PoolBounds, ScalerTiming
from windtunnel.scaling.snapshot import (
    Flow,
    Model,
    ReplicaCounts,
    ReplicaSpec,
    ReplicaView,
    Snapshot,
    Variant,
)


def homogeneous(source: str, pools: tuple[str, ...], **metrics: float) -> Assignment:
    policy = KthenaHomogeneousSettings(
        policy="kthena-homogeneous",
        metrics=metrics,
        behavior=AT_ONCE,
        pools=dict.fromkeys(pools, PoolBounds()),
    )
    return Assignment(source, policy)


def heterogeneous(source: str, pools: tuple[str, ...], **metrics: float) -> Assignment:
    policy = KthenaHeterogeneousSettings(
        policy="kthena-heterogeneous",
        metrics=metrics,
        behavior=AT_ONCE,
        pools=dict.fromkeys(pools, PoolBounds()),
    )
    return Assignment(source, policy)


def scaler(*parts: Assignment) -> Scaler:
    return build_scaler(ScalingSetup(ScalerTiming(), parts, {}), ["m"])


def pool(name: str, waiting: int, replicas: int = 1) -> Variant:
    return Variant(
        name,
        minimum=1,
        maximum=100,
        counts=ReplicaCounts(target=replicas),
        spec=ReplicaSpec(price_per_hour=1.0),
        replicas=[ReplicaView(f"{name}-{number}", waiting=waiting) for number in range(replicas)],
    )


def ask(autoscaler: Scaler, *pools: Variant) -> dict[str, tuple[int, str]]:
    flow = Flow(10.0, arrived=400)
    found = autoscaler.tick(Snapshot(0.0, [Model("m", list(pools), flow=flow)]), 0.0)
    return {decision.variant: (decision.target, decision.reason) for decision in found}


def test_each_policy_has_its_pools() -> None:
    autoscaler = scaler(
        homogeneous("one", ("c",), waiting=10.0),
        heterogeneous("two", ("a", "d"), waiting=20.0),
    )
    found = ask(autoscaler, pool("a", 50), pool("b", 90), pool("c", 30), pool("d", 50))
    assert list(found) == ["a", "b", "c", "d"]
    assert {name: size for name, (size, _) in found.items()} == {"a": 3, "b": 1, "c": 3, "d": 2}
    assert found["b"] == (1, "No policy scales this pool.")


def test_a_pool_of_its_own_policy_still_sees_only_its_part_of_the_traffic() -> None:
    autoscaler = scaler(homogeneous("one", ("a",), rps=10.0))
    assert ask(autoscaler, pool("a", 0), pool("b", 0, replicas=3))["a"][0] == 1


def test_memory_is_by_what_asks_for_the_policy() -> None:
    parts = [
        homogeneous("one", ("a",), waiting=10.0),
        homogeneous("two", ("b",), rps=1.0),
    ]
    autoscaler = scaler(*parts)
    ask(autoscaler, pool("a", 30), pool("b", 3))
    memory = json.loads(json.dumps(autoscaler.state()))
    other = scaler(parts[1])
    other.restore(memory)
    kept = json.loads(json.dumps(other.state()))
    assert kept["policies"][0]["parts"]["two"] == memory["policies"][0]["parts"]["two"]
