"""What every policy keeps, whatever the fleet looks like."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaling.sections import ServingPool, setup
from windtunnel.scaling.build import build_scaler
from windtunnel.scaling.decision import Decision
from windtunnel.scaling.scaler import Scaler
from windtunnel.scaling.snapshot import (
    Flow,
    MeanLatencies,
    Model,
    Objective,
    ReplicaCounts,
    ReplicaSpec,
    ReplicaView,
    RequestLengths,
    Snapshot,
    Variant,
)

WAITING = {"metrics": {"num_requests_waiting": 4.0}}
LISTED = {"metrics": [{"name": "num_requests_waiting", "target": 4.0}]}
POLICIES: dict[str, dict[str, Any]] = {
    "saturation": {"zero_after": "30s", "matched_roles": True},
    "wva": {
        "rate": {"up": 2, "down": 1},
        "analyzers": ["saturation", "throughput", "queueing"],
    },
    "wva-v1": {},
    "blis": {},
    "predictive": {},
    "kthena-homogeneous": WAITING,
    "kthena-heterogeneous": WAITING,
    "hpa": LISTED,
    "keda": LISTED,
    "knative": {},
    "aibrix": WAITING,
    "dynamo": {},
    "foresight": {"schedule": {"p0": [["0s", 1], ["20s", 3], ["40s", 0]]}, "lead": "10s"},
}
TICKS = 3


class Pool:
    """Draws what a pool looks like at a tick; its bounds stay."""

    def __init__(self, number: int, data: st.DataObject) -> None:
        self.role = "both"
        self.name = f"p{number}"
        self.minimum = data.draw(st.integers(0, 2))
        self.maximum = self.minimum + data.draw(st.integers(0, 6))
        self.target = data.draw(st.integers(self.minimum, self.maximum))

    def look(self, data: st.DataObject) -> Variant:
        ready = data.draw(st.integers(0, self.target))
        replicas = [
            ReplicaView(
                f"{self.name}-{number}",
                waiting=data.draw(st.integers(0, 30)),
                running=data.draw(st.integers(0, 8)),
                kv_tokens_used=data.draw(st.sampled_from([0.0, 2e4, 9e4])),
                kv_tokens=1e5,
                ttft_s=data.draw(st.sampled_from([0.0, 0.2, 3.0])),
                tpot_s=data.draw(st.sampled_from([0.0, 0.02])),
            )
            for number in range(ready)
        ]
        return Variant(
            self.name,
            role=self.role,
            spec=ReplicaSpec(
                accelerator="h100",
                price_per_hour=2.0 + len(self.name),
                kv_tokens=1e5,
                max_num_seqs=64,
                max_num_batched_tokens=2048,
            ),
            minimum=self.minimum,
            maximum=self.maximum,
            counts=ReplicaCounts(target=self.target, starting=self.target - ready),
            replicas=replicas,
        )


def scaler_of(policy: str, pools: list[Pool]) -> Scaler:
    bounds = {pool.name: {"min": pool.minimum, "max": pool.maximum} for pool in pools}
    written = {"policy": policy, "pools": bounds, **POLICIES[policy]}
    return build_scaler(setup([ServingPool(pool.name) for pool in pools], **written), ["m"])


def told(decisions: list[Decision]) -> list[dict[str, object]]:
    return [{"reason": one.reason, **one.as_data()} for one in decisions]


def check(decisions: list[Decision], model: Model) -> None:
    assert [decision.variant for decision in decisions] == [one.name for one in model.variants]
    work = model.queued
    for decision, variant in zip(decisions, model.variants, strict=True):
        assert variant.minimum <= decision.target <= variant.maximum
        assert decision.current == variant.target
        assert decision.reason
        value = decision.recommended
        for limit in decision.limits:
            assert limit.before == value != limit.after
            assert limit.reason
            value = limit.after
        assert value == decision.target
        work += sum(replica.running + replica.waiting for replica in variant.replicas)
    if work and any(variant.maximum for variant in model.variants):
        assert sum(decision.target for decision in decisions) > 0


@pytest.mark.parametrize("policy", POLICIES)
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_bounds_work_explanations_and_memory(policy: str, data: st.DataObject) -> None:
    pools = [Pool(number, data) for number in range(data.draw(st.integers(1, 2)))]
    scaler, again = scaler_of(policy, pools), scaler_of(policy, pools)
    for tick in range(TICKS):
        now_s = 15.0 * (tick + 1)
        flow = Flow(
            15.0,
            arrived=data.draw(st.integers(0, 200)),
            completed=data.draw(st.integers(0, 100)),
            lengths=RequestLengths(prompt_tokens=900.0, output_tokens=200.0),
            latencies=MeanLatencies(
                ttft_s=data.draw(st.sampled_from([0.0, 0.3])), tpot_s=0.02, e2e_s=4.0
            ),
        )
        queued = data.draw(st.integers(0, 3))
        objective = Objective(ttft_s=1.0, tpot_s=0.05)
        variants = [pool.look(data) for pool in pools]
        model = Model("m", variants, flow=flow, queued=queued, objective=objective)
        snapshot = Snapshot(now_s, [model])
        decisions = scaler.tick(snapshot, now_s)
        check(decisions, model)
        # One that is stopped and started again at every tick decides the same.
        assert told(again.tick(snapshot, now_s)) == told(decisions)
        saved = json.loads(json.dumps(again.state()))
        again = scaler_of(policy, pools)
        again.restore(saved)
        for pool, decision in zip(pools, decisions, strict=True):
            pool.target = decision.target
