"""Several policies for one model: each decides its own pools, and the rest stays."""

import json

from windtunnel.scaling.build import build_scaler
from windtunnel.scaling.kthena.settings import (
    HETEROGENEOUS,
    HOMOGENEOUS,
    Behavior,
    KthenaPlan,
    Pace,
)
from windtunnel.scaling.plan import PartPlan, ScalingPlan, TimingPlan
from windtunnel.scaling.scaler import Scaler
from windtunnel.scaling.snapshot import Flow, Model, Replica, Snapshot, Variant

TIMING = TimingPlan(15.0, 0.0, 0.0, 0.0, None)
FREE = Pace(1000, 1000, 0.0, 0.0)


def part(source: str, pools: tuple[str, ...], target: str, **metrics: float) -> PartPlan:
    return PartPlan(source, pools, KthenaPlan(target, metrics, behavior=Behavior(FREE, FREE)))


def scaler(*parts: PartPlan) -> Scaler:
    return build_scaler(ScalingPlan(TIMING, parts, {}), ["m"])


def pool(name: str, waiting: int, replicas: int = 1) -> Variant:
    return Variant(
        name,
        minimum=1,
        maximum=100,
        target=replicas,
        price_per_hour=1.0,
        replicas=[Replica(f"{name}-{number}", waiting=waiting) for number in range(replicas)],
    )


def ask(autoscaler: Scaler, *pools: Variant) -> dict[str, tuple[int, str]]:
    flow = Flow(10.0, arrived=400)
    found = autoscaler.tick(Snapshot(0.0, [Model("m", list(pools), flow=flow)]), 0.0)
    return {decision.variant: (decision.target, decision.reason) for decision in found}


def test_each_policy_has_its_pools() -> None:
    autoscaler = scaler(
        part("one", ("c",), HOMOGENEOUS, waiting=10.0),
        part("two", ("a", "d"), HETEROGENEOUS, waiting=20.0),
    )
    found = ask(autoscaler, pool("a", 50), pool("b", 90), pool("c", 30), pool("d", 50))
    assert list(found) == ["a", "b", "c", "d"]
    assert {name: size for name, (size, _) in found.items()} == {"a": 3, "b": 1, "c": 3, "d": 2}
    assert found["b"] == (1, "No policy scales it.")


def test_a_pool_of_its_own_policy_still_sees_only_its_part_of_the_traffic() -> None:
    autoscaler = scaler(part("one", ("a",), HOMOGENEOUS, rps=10.0))
    assert ask(autoscaler, pool("a", 0), pool("b", 0, replicas=3))["a"][0] == 1


def test_memory_is_by_what_asks_for_the_policy() -> None:
    parts = [
        part("one", ("a",), HOMOGENEOUS, waiting=10.0),
        part("two", ("b",), HOMOGENEOUS, rps=1),
    ]
    autoscaler = scaler(*parts)
    ask(autoscaler, pool("a", 30), pool("b", 3))
    memory = json.loads(json.dumps(autoscaler.state()))
    other = scaler(parts[1])
    other.restore(memory)
    kept = json.loads(json.dumps(other.state()))
    assert kept["policies"][0]["parts"]["two"] == memory["policies"][0]["parts"]["two"]
