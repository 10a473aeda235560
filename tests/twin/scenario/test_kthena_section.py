"""Kthena's policies in the `scaling` section: what they come to, and what is told of faults."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from windtunnel.scaling.build import build_scaler
from windtunnel.scaling.kthena.settings import (
    DISAGGREGATED,
    HETEROGENEOUS,
    HOMOGENEOUS,
    Band,
    Behavior,
    Coordination,
    KthenaPlan,
    Pace,
    Panic,
    Ratio,
)
from windtunnel.settings.faults import dotted
from windtunnel.twin.scenario.scaler_spec import ScalerSpec
from windtunnel.twin.scenario.scaling import scaling_faults, scaling_plan
from windtunnel.twin.scenario.scaling_spec import PolicySpec
from windtunnel.twin.scenario.serving_spec import PoolSpec

POOLS = [PoolSpec(name="main", replicas=2), PoolSpec(name="spare", replicas=1)]
SPEC: TypeAdapter[ScalerSpec] = TypeAdapter(PolicySpec)
METRICS = {"vllm:num_requests_waiting": 10.0}


def section(policy: str, **written: Any) -> ScalerSpec:
    return SPEC.validate_python({"policy": f"kthena-{policy}", "metrics": METRICS, **written})


@pytest.mark.parametrize("target", [HOMOGENEOUS, HETEROGENEOUS, DISAGGREGATED])
def test_a_policy_with_metrics_alone_is_as_kthena_has_it(target: str) -> None:
    plan = scaling_plan(section(target), POOLS, Path())
    assert plan.policy == KthenaPlan(target, METRICS)
    assert not list(scaling_faults(section(target), POOLS))
    assert build_scaler(plan, ["m"]).timing.interval_s == 15.0


def test_everything_written_arrives() -> None:
    behavior = {
        "up": {"instances": 2, "percent": 50, "period": "30s", "select": "And", "window": "1m"},
        "down": {"instances": 1},
        "panic": {"hold": "2m", "threshold": 150, "percent": 300, "period": "10s"},
    }
    written = section(
        HETEROGENEOUS,
        tolerance_percent=5,
        tolerance="summed",
        behavior=behavior,
        history="lost",
        costs={"spare": 3},
        cost_expansion_percent=150,
        coordination={"mode": "Preferred", "preferredRatio": {"main": {"min": 20, "max": 40}}},
    )
    assert scaling_plan(written, POOLS, Path()).policy == KthenaPlan(
        HETEROGENEOUS,
        METRICS,
        tolerance_percent=5,
        tolerance="summed",
        behavior=Behavior(
            Pace(2, 50, 30.0, 60.0, "And"), Pace(1, 100, 60.0, 300.0), Panic(300, 10.0, 150, 120.0)
        ),
        history="lost",
        costs={"spare": 3.0},
        growth_percent=150,
        coordination=Coordination("Preferred", {"main": Band(20.0, 40.0)}),
    )


def test_a_ratio_arrives() -> None:
    ratio = {"numerator": "main", "denominator": "spare", "min": 0.25, "max": 1}
    metrics = {"spare": {"kv_cache_utilization": 0.8}}
    written = section(DISAGGREGATED, ratio={**ratio, "rule": "as-shipped"}, metrics_of=metrics)
    assert scaling_plan(written, POOLS, Path()).policy == KthenaPlan(
        DISAGGREGATED,
        METRICS,
        pool_metrics=metrics,
        ratio=Ratio("main", "spare", 0.25, 1.0),
        ratio_rule="as-shipped",
    )


@pytest.mark.parametrize(
    ("policy", "written", "where", "what"),
    [
        (HOMOGENEOUS, {"metrics": {}}, "scaling.metrics", "there is no metric"),
        (
            HOMOGENEOUS,
            {"metrics": {"num_request_waiting": 3}},
            "scaling.metrics",
            "'num_request_waiting' is not a metric that is measured here",
        ),
        (
            HOMOGENEOUS,
            {"stabilization": {}},
            "scaling.stabilization",
            "kthena-homogeneous does not use it",
        ),
        (HETEROGENEOUS, {"costs": {"mian": 1}}, "scaling.costs.mian", "there is no such pool"),
        (
            HETEROGENEOUS,
            {"coordination": {"preferredRatio": {"main": {}}}},
            "scaling.coordination.preferredRatio",
            "coordination is off",
        ),
        (
            HETEROGENEOUS,
            {"coordination": {"mode": "Preferred", "preferredRatio": {"man": {}}}},
            "scaling.coordination.preferredRatio.man",
            "there is no target 'man'",
        ),
        (
            HETEROGENEOUS,
            {
                "coordination": {
                    "mode": "Preferred",
                    "preferredRatio": {"main": {"min": 60}, "spare": {"min": 50}},
                }
            },
            "scaling.coordination.preferredRatio",
            "the minimum ratios add up to 110 percent",
        ),
        (
            DISAGGREGATED,
            {"ratio": {"numerator": "main", "denominator": "spar", "min": 0, "max": 1}},
            "scaling.ratio.denominator",
            "there is no such pool",
        ),
        (
            DISAGGREGATED,
            {"ratio": {"numerator": "main", "denominator": "main", "min": 0, "max": 1}},
            "scaling.ratio.denominator",
            "numerator and denominator are the same pool",
        ),
        (
            DISAGGREGATED,
            {"ratio": {"numerator": "main", "denominator": "spare", "min": 2, "max": 1}},
            "scaling.ratio.min",
            "2 is more than max, which is 1",
        ),
        (
            DISAGGREGATED,
            {
                "ratio": {"numerator": "main", "denominator": "spare", "min": 0.6, "max": 0.65},
                "pools": {"main": {"max": 2}, "spare": {"max": 2}},
            },
            "scaling.ratio",
            "no whole numbers within the bounds have a ratio of 0.6 to 0.65",
        ),
        (DISAGGREGATED, {"metrics_of": {"x": {}}}, "scaling.metrics_of.x", "there is no such pool"),
    ],
)
def test_faults_are_told_with_their_place(
    policy: str, written: dict[str, Any], where: str, what: str
) -> None:
    found = list(scaling_faults(section(policy, **written), POOLS))
    assert [(dotted(fault.path), fault.what) for fault in found] == [(where, what)]
