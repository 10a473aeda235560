"""The policies of others, and ours, in the `scaling` section: what they come to, their faults."""

from typing import Any

import pytest

from tests.scaling.sections import ServingPool, setup, told
from windtunnel.scaling.build import build_scaler
from windtunnel.scaling.policies.aibrix import AibrixSettings
from windtunnel.scaling.policies.dynamo import DynamoSettings
from windtunnel.scaling.policies.hpa import HpaDown, HpaMetric, HpaRule, HpaSettings, HpaUp
from windtunnel.scaling.policies.keda.policy import KedaMetric, KedaSettings
from windtunnel.scaling.policies.knative import KnativeSettings
from windtunnel.scaling.policies.predictive.analyzer import PredictiveSettings
from windtunnel.scaling.settings import PolicySettings

POOLS = [ServingPool("main", 2)]
WAITING = [{"name": "vllm:num_requests_waiting", "target": 4}]
LISTED = [HpaMetric(name="vllm:num_requests_waiting", target=4.0)]
TRIGGERS = [KedaMetric(name="vllm:num_requests_waiting", target=4.0)]


@pytest.mark.parametrize(
    ("written", "policy"),
    [
        ({"policy": "hpa", "metrics": WAITING}, HpaSettings(policy="hpa", metrics=LISTED)),
        (
            {
                "policy": "hpa",
                "metrics": [{"name": "rps", "target": 2, "type": "total"}],
                "tolerance": 0.2,
                "up": {"window": "1m", "rules": [{"pods": 2, "period": "30s"}, {"percent": 50}]},
                "down": {"select": "Disabled"},
            },
            HpaSettings(
                policy="hpa",
                metrics=[HpaMetric(name="rps", target=2.0, type="total")],
                tolerance=0.2,
                up=HpaUp(
                    window_s=60.0, rules=[HpaRule(pods=2, period_s=30.0), HpaRule(percent=50)]
                ),
                down=HpaDown(select="Disabled"),
            ),
        ),
        (
            {"policy": "keda", "metrics": WAITING, "cooldown": "1m", "idle": 1},
            KedaSettings(policy="keda", metrics=TRIGGERS, cooldown_s=60.0, idle=1),
        ),
        ({"policy": "knative", "target": 10}, KnativeSettings(policy="knative", target=10.0)),
        (
            {"policy": "aibrix", "metrics": {"kv_used": 0.5}},
            AibrixSettings(policy="aibrix", metrics={"kv_used": 0.5}),
        ),
        (
            {"policy": "dynamo", "accelerator_budget": 16},
            DynamoSettings(policy="dynamo", accelerator_budget=16),
        ),
        (
            {"policy": "predictive", "interval": "30s"},
            PredictiveSettings(policy="predictive", interval_s=30.0),
        ),
    ],
)
def test_what_is_written_arrives(written: dict[str, Any], policy: PolicySettings) -> None:
    made = setup(POOLS, **written)
    assert [one.policy for one in made.policies] == [policy]
    assert not told(POOLS, **written)
    assert build_scaler(made, ["m"]).oldest_s == 3 * policy.interval_s


def test_defaults_of_an_hpa_depend_on_the_direction() -> None:
    policy = HpaSettings(policy="hpa", metrics=LISTED)
    assert (policy.up.window_s, policy.down.window_s) == (0.0, 300.0)
    assert policy.up.rules == [HpaRule(pods=4), HpaRule(percent=100)]
    assert policy.down.rules == [HpaRule(percent=100)]


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
    assert told(POOLS, **written) == [(where, what)]
