"""Canary checks on a real API server: changed policies, verdicts, reports, restarts, dry runs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.scaling_stage import (
    autoscaler,
    autoscaling,
    condition,
    deployment,
    hpa,
    ready_pods,
    served,
    size,
    until_condition,
    until_event,
    until_size,
)
from tests.scaling.kubernetes.recorded import CANARY, record_traffic
from windtunnel.live.kubernetes.resources import CONFIG_MAPS, Plain
from windtunnel.live.operate.scaling.canary import CanaryOptions
from windtunnel.live.rehearse.cluster import install

REPORT = "windtunnel-canary-autoscaler-chat"


async def test_a_changed_policy_is_applied_only_after_its_check(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await install(cluster.client)
    record_traffic(tmp_path)
    canary = CanaryOptions(tmp_path)
    async with served() as on:
        await deployment(cluster)
        await ready_pods(cluster)

        async def apply(most: int) -> None:
            await autoscaler(cluster, on.port, scaling=hpa(most), canary=CANARY)

        await apply(5)
        async with autoscaling(cluster, canary=canary) as ours:
            await until_size(cluster, 5)
            await until_condition(cluster, "CanaryPassed", "True", "InForce")
            await apply(1)
            # A check is a process that simulates; it may take as long as its own limit.
            limit_s = canary.timeout_s
            message = await until_condition(cluster, "CanaryPassed", "False", "Refused", limit_s)
            assert "regression on 600 requests" in message
            assert "critical attained" in message
            note = await until_event(cluster, "CanaryRefused")
            assert "the changed policy is not applied" in note
            report = await cluster.client.get(CONFIG_MAPS, cluster.namespace, REPORT, Plain)
            assert "changed against in-force" in report["data"]["check.md"]
            assert report["metadata"]["ownerReferences"][0]["name"] == "chat"
            await ours.ticks(2)
            assert await size(cluster) == 5
        async with autoscaling(cluster, canary=canary) as again:
            await again.ticks(2)
            assert (await condition(cluster, "CanaryPassed"))[:2] == ("False", "Refused")
            assert again.of().check is None  # nothing is checked twice
            assert await size(cluster) == 5
        wrong = {**hpa(6), "polcy": "hpa"}
        await autoscaler(cluster, on.port, scaling=wrong, canary=CANARY)  # while nobody looks
        async with autoscaling(cluster, canary=canary) as again:
            await again.ticks(2)
            message = await until_condition(cluster, "Accepted", "False", "Invalid")
            assert "polcy" in message
            assert message.endswith("The policy in force goes on.")
            await until_condition(cluster, "CanaryPassed", "False", "Invalid")
            assert await size(cluster) == 5
        await apply(6)
        with caplog.at_level(logging.INFO, "windtunnel.operator.scaling"):
            async with autoscaling(cluster, canary=canary, acts=False) as dry:
                while "would be applied: passed" not in caplog.text:
                    await dry.ticks(1)
        assert await size(cluster) == 5
        async with autoscaling(cluster, canary=canary):
            message = await until_condition(cluster, "CanaryPassed", "True", "Passed", limit_s)
            assert message.startswith("passed on 600 requests")
            await until_size(cluster, 6)
