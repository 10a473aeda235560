"""Checks of changed policies in a process of their own: verdicts, limits, traffic of long ago."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.scaling.kubernetes.pods import HPA
from tests.scaling.kubernetes.recorded import CANARY, STARVED, WIDER, record_traffic
from windtunnel.core.errors import InputError
from windtunnel.live.operate.scaling.canary import CanaryChecks, CanaryOptions, canary_options
from windtunnel.scaling.kubernetes.autoscaler import CanarySpec
from windtunnel.scaling.kubernetes.canary import CanaryAsk, CanaryOutcome, Documents


def checked(options: CanaryOptions | None, changed: dict[str, Any], **more: Any) -> CanaryOutcome:
    sides = [{"scaling": HPA}], [{"scaling": changed}]
    return checked_sides(options, sides, **more)


def checked_sides(
    options: CanaryOptions | None, sides: tuple[Documents, Documents], **more: Any
) -> CanaryOutcome:
    ask = CanaryAsk("key", *sides, CanarySpec.model_validate({**CANARY, **more}))

    async def check() -> CanaryOutcome:
        return await CanaryChecks(options).check(ask)

    return asyncio.run(check())


def test_a_good_change_passes_and_a_bad_one_is_refused_with_a_report(tmp_path: Path) -> None:
    record_traffic(tmp_path)
    good = checked(CanaryOptions(tmp_path), WIDER)
    assert good.passed, good
    assert good.message.startswith("passed on 600 requests in ")
    bad = checked(CanaryOptions(tmp_path), STARVED)
    assert bad.passed is False, bad
    assert "critical attained" in bad.message
    assert "failed" in bad.message
    assert "changed against in-force" in bad.report
    wrong = checked(CanaryOptions(tmp_path), WIDER, limits={"maxCost": "cheap"})
    assert wrong.passed is None
    assert "--max-cost cheap: 'cheap' is not a number" in wrong.message


def test_policies_of_kthena_are_checked_as_manifests(tmp_path: Path) -> None:
    record_traffic(tmp_path)

    def manifests(most: int) -> list[dict[str, Any]]:
        target = {"targetRef": {"kind": "ModelServing", "name": "main"}}
        bounds = {"target": target, "minReplicas": 1, "maxReplicas": most}
        metrics = [{"name": "kthena:num_requests_waiting", "targetValue": 2}]
        specs = {
            "AutoscalingPolicy": {"metrics": metrics},
            "AutoscalingPolicyBinding": {
                "policyRef": {"name": "chat"}, "homogeneousTarget": bounds,
            },
        }  # fmt: skip
        version, meta = "workload.serving.volcano.sh/v1alpha1", {"name": "chat"}
        return [
            {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}
            for kind, spec in specs.items()
        ]

    good = checked_sides(CanaryOptions(tmp_path), (manifests(8), manifests(9)))
    assert good.passed, good
    bad = checked_sides(CanaryOptions(tmp_path), (manifests(8), manifests(1)))
    assert bad.passed is False, bad
    assert "critical attained" in bad.message


def test_a_check_beyond_its_limits_comes_to_no_verdict(tmp_path: Path) -> None:
    record_traffic(tmp_path)
    slow = checked(CanaryOptions(tmp_path, timeout_s=0.05), WIDER)
    assert slow.message == "the check took longer than 50 ms (--canary-timeout)."
    large = checked(CanaryOptions(tmp_path, memory_bytes=48 << 20), WIDER)
    assert large.message == "the check ran out of its 48 MiB (--canary-memory)."
    assert (slow.passed, large.passed) == (None, None)


def test_traffic_of_long_ago_or_none_at_all_is_no_ground_for_a_verdict(tmp_path: Path) -> None:
    assert checked(None, WIDER).message.startswith("the operator has no --canary folder")
    missing = checked(CanaryOptions(tmp_path), WIDER)
    assert missing == (None, "canary.trace trace: No such file or directory.", "")
    record_traffic(tmp_path)
    (file,) = (tmp_path / "trace").iterdir()
    os.utime(file, (file.stat().st_mtime - 7500,) * 2)
    old = checked(CanaryOptions(tmp_path), WIDER)
    assert old.passed is None
    assert "its latest traffic is 2 h 5 min old, beyond 1 h" in old.message
    file.unlink()
    assert checked(CanaryOptions(tmp_path), WIDER).message.endswith("there is no traffic in it.")


def test_options_that_cannot_be(tmp_path: Path) -> None:
    assert canary_options(None, 1, 1.0, autoscale=False) is None
    with pytest.raises(InputError, match="without --autoscale"):
        canary_options(tmp_path, 1, 1.0, autoscale=False)
    with pytest.raises(InputError, match="is not a folder"):
        canary_options(tmp_path / "x", 1, 1.0, autoscale=True)
