"""Kthena's policies in the `scaling` section: what they come to, and what is told of faults."""

from typing import Any

import pytest

from tests.scaling.sections import ServingPool, section, setup, told
from windtunnel.scaling.build import build_scaler
from windtunnel.scaling.policies.kthena.policy import (
    KthenaDisaggregatedSettings,
    KthenaHeterogeneousSettings,
)
from windtunnel.scaling.policies.kthena.settings import (
    Band,
    Behavior,
    Coordination,
    KthenaSettings,
    PaceDown,
    PaceUp,
    Panic,
    Ratio,
)

POOLS = [ServingPool("main", 2), ServingPool("spare", 1)]
METRICS = {"vllm:num_requests_waiting": 10.0}
HOMOGENEOUS, HETEROGENEOUS, DISAGGREGATED = "homogeneous", "heterogeneous", "disaggregated"


def kthena(policy: str, **written: Any) -> KthenaSettings:
    found = section(**{"policy": f"kthena-{policy}", "metrics": METRICS, **written})
    assert isinstance(found, KthenaSettings)
    return found


@pytest.mark.parametrize("target", [HOMOGENEOUS, HETEROGENEOUS, DISAGGREGATED])
def test_a_policy_with_metrics_alone_is_as_kthena_has_it(target: str) -> None:
    policy = kthena(target)
    assert (policy.metrics, policy.queries, policy.tolerance_percent) == (METRICS, {}, 10)
    up, down = policy.behavior.up, policy.behavior.down
    assert (up.instances, up.percent, up.period_s, up.window_s) == (4, 100, 60.0, 0.0)
    assert (down.instances, down.percent, down.period_s, down.window_s) == (0, 100, 60.0, 300.0)
    assert policy.behavior.panic is None
    written = {"policy": f"kthena-{target}", "metrics": METRICS}
    assert not told(POOLS, **written)
    assert build_scaler(setup(POOLS, **written), ["m"]).oldest_s == 45.0


def test_what_is_left_out_is_null_in_the_values_of_a_scenario() -> None:
    values = kthena(HETEROGENEOUS, behavior={"up": {"percent": 100}}).model_dump(by_alias=True)
    up = {"instances": None, "percent": 100, "period": None, "select": "Or", "window": None}
    assert values["behavior"] == {"up": up, "down": {**up, "percent": None}, "panic": None}
    assert "queries" not in values


def test_everything_written_arrives() -> None:
    behavior = {
        "up": {"instances": 2, "percent": 50, "period": "30s", "select": "And", "window": "1m"},
        "down": {"instances": 1},
        "panic": {"hold": "2m", "threshold": 150, "percent": 300, "period": "10s"},
    }
    written = kthena(
        HETEROGENEOUS,
        tolerance_percent=5,
        tolerance="summed",
        behavior=behavior,
        history="lost",
        costs={"spare": 3},
        cost_expansion_percent=150,
        coordination={"mode": "Preferred", "preferredRatio": {"main": {"min": 20, "max": 40}}},
    )
    up = PaceUp(instances=2, percent=50, period_s=30.0, window_s=60.0, select="And")
    assert written == KthenaHeterogeneousSettings(
        policy="kthena-heterogeneous",
        metrics=METRICS,
        tolerance_percent=5,
        tolerance="summed",
        behavior=Behavior(
            up=up,
            down=PaceDown(instances=1),
            panic=Panic(percent=300, period_s=10.0, threshold=150, hold_s=120.0),
        ),
        history="lost",
        costs={"spare": 3.0},
        cost_expansion_percent=150,
        coordination=Coordination(
            mode="Preferred", preferredRatio={"main": Band(min=20.0, max=40.0)}
        ),
    )


def test_a_ratio_arrives() -> None:
    ratio = {"numerator": "main", "denominator": "spare", "min": 0.25, "max": 1}
    metrics = {"spare": {"kv_cache_utilization": 0.8}}
    written = kthena(DISAGGREGATED, ratio={**ratio, "rule": "as-shipped"}, metrics_of=metrics)
    assert written == KthenaDisaggregatedSettings(
        policy="kthena-disaggregated",
        metrics=METRICS,
        metrics_of=metrics,
        ratio=Ratio(numerator="main", denominator="spare", min=0.25, max=1.0, rule="as-shipped"),
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
    found = told(POOLS, **{"policy": f"kthena-{policy}", "metrics": METRICS, **written})
    assert found == [(where, what)]
