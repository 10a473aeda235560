"""The policies of others, and ours, in the `scaling` section: what they come to, their faults."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from windtunnel.scaling.build import build_scaler
from windtunnel.scaling.peers.plans import (
    AibrixPlan,
    DynamoPlan,
    HpaDirection,
    HpaMetric,
    HpaPlan,
    HpaRule,
    KedaPlan,
    KnativePlan,
)
from windtunnel.scaling.plan import PolicyPlan
from windtunnel.scaling.predictive.build import PredictivePlan
from windtunnel.settings.faults import dotted
from windtunnel.twin.scenario.scaler_spec import ScalerSpec
from windtunnel.twin.scenario.scaling import scaling_faults, scaling_plan
from windtunnel.twin.scenario.scaling_spec import PolicySpec
from windtunnel.twin.scenario.serving_spec import PoolSpec

POOLS = [PoolSpec(name="main", replicas=2)]
SPEC: TypeAdapter[ScalerSpec] = TypeAdapter(PolicySpec)
WAITING = [{"name": "vllm:num_requests_waiting", "target": 4}]
HPA = HpaPlan((HpaMetric("vllm:num_requests_waiting", 4.0),))


def faults(**written: Any) -> list[tuple[str, str]]:
    section = SPEC.validate_python(written)
    return [(dotted(fault.path), fault.what) for fault in scaling_faults(section, POOLS)]


@pytest.mark.parametrize(
    ("written", "plan"),
    [
        ({"policy": "hpa", "metrics": WAITING}, HPA),
        (
            {
                "policy": "hpa",
                "metrics": [{"name": "rps", "target": 2, "type": "total"}],
                "tolerance": 0.2,
                "up": {"window": "1m", "rules": [{"pods": 2, "period": "30s"}, {"percent": 50}]},
                "down": {"select": "Disabled"},
            },
            HpaPlan(
                (HpaMetric("rps", 2.0, "total"),),
                0.2,
                HpaDirection(60.0, (HpaRule(2, 30.0, False), HpaRule(50, 15.0, True))),
                HpaDirection(300.0, None, "Disabled"),
            ),
        ),
        (
            {"policy": "keda", "metrics": WAITING, "cooldown": "1m", "idle": 1},
            KedaPlan(HPA, 0.0, 60.0, 1),
        ),
        ({"policy": "knative", "target": 10}, KnativePlan(target=10.0)),
        ({"policy": "aibrix", "metrics": {"kv_used": 0.5}}, AibrixPlan({"kv_used": 0.5})),
        ({"policy": "dynamo", "accelerator_budget": 16}, DynamoPlan(budget=16)),
        ({"policy": "predictive", "interval": "30s"}, PredictivePlan(30.0)),
    ],
)
def test_what_is_written_arrives(written: dict[str, Any], plan: PolicyPlan) -> None:
    made = scaling_plan(SPEC.validate_python(written), POOLS, Path())
    assert made.policy == plan
    assert not faults(**written)
    assert build_scaler(made, ["m"]).timing.interval_s == made.timing.interval_s


@pytest.mark.parametrize(
    ("written", "where", "what"),
    [
        ({"policy": "hpa", "metrics": []}, "scaling.metrics", "there is no metric"),
        (
            {"policy": "hpa", "metrics": [{"name": "waitin", "target": 1}]},
            "scaling.metrics[0].name",
            "'waitin' is not a metric that is measured here",
        ),
        (
            {"policy": "hpa", "metrics": WAITING, "up": {"rules": [{"pods": 1, "percent": 2}]}},
            "scaling.up.rules[0]",
            "a rule has either pods or percent",
        ),
        (
            {"policy": "hpa", "metrics": WAITING, "down": {"rules": []}},
            "scaling.down.rules",
            "there is no rule",
        ),
        (
            {"policy": "keda", "metrics": WAITING, "stabilization": {"down": "1m"}},
            "scaling.stabilization",
            "keda does not use it",
        ),
        (
            {"policy": "knative", "metric": "load"},
            "scaling.metric",
            "'load' is not a metric that is measured here",
        ),
        ({"policy": "aibrix", "metrics": {}}, "scaling.metrics", "there is no metric"),
    ],
)
def test_faults_are_told_where_they_are(written: dict[str, Any], where: str, what: str) -> None:
    assert faults(**written) == [(where, what)]
