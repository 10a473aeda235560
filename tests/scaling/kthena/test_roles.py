"""Changing roles in a cluster: guarded, atomic, and told in the status."""

from typing import Any

import pytest

from windtunnel.scaling.kthena.roles import RoleStatus, role_patch, status
from windtunnel.scaling.kthena.settings import Ratio

ROLES = [("decode", 4), ("prefill", 1), ("router", 1)]


def patched(roles: list[tuple[str, int]], patch: list[dict[str, object]]) -> list[tuple[str, int]]:
    """As an API server does it: all of a patch or nothing of it."""
    found = [{"name": name, "replicas": replicas} for name, replicas in roles]
    for step in patch:
        *_, number, key = str(step["path"]).split("/")
        entry: dict[str, Any] = found[int(number)]
        if step["op"] == "test" and entry[key] != step["value"]:
            raise ValueError(f"testing value {step['path']} failed")
        entry[key] = step["value"]
    return [(str(entry["name"]), int(str(entry["replicas"]))) for entry in found]


def test_33_roles_in_another_order_are_not_written() -> None:
    patch = role_patch(ROLES, {"prefill": 2, "decode": 6})
    assert patched(ROLES, patch) == [("decode", 6), ("prefill", 2), ("router", 1)]
    with pytest.raises(ValueError, match="testing value"):
        patched([ROLES[1], ROLES[0], ROLES[2]], patch)


def test_34_a_patch_touches_replicas_alone_and_only_what_changes() -> None:
    assert role_patch(ROLES, {"prefill": 1, "decode": 4}) == []
    assert role_patch(ROLES, {"prefill": 3, "decode": 4}) == [
        {"op": "test", "path": "/spec/template/roles/1/name", "value": "prefill"},
        {"op": "add", "path": "/spec/template/roles/1/replicas", "value": 3},
    ]


def told(failed: str = "") -> dict[str, Any]:
    roles = [
        RoleStatus("prefill", 1, 5, panic=True, scaled_s=7.0),
        RoleStatus("decode", 4, 4, panic=False, scaled_s=None),
    ]
    ratio = Ratio("prefill", "decode", 0.25, 1.0)
    sizes = {"prefill": 3, "decode": 4}
    return status(roles, sizes, 60.0, ratio=ratio, adjusted=True, failed=failed)


def test_status_is_by_role_and_says_when_it_was_scaled() -> None:
    found = told()
    assert [one["status"] for one in found["conditions"]] == ["True", "True"]
    assert found["disaggregatedStatus"] == {
        "roles": [
            {
                "name": "decode",
                "currentReplicas": 4,
                "desiredReplicas": 4,
                "mode": "Stable",
                "lastScaleTime": None,
            },
            {
                "name": "prefill",
                "currentReplicas": 1,
                "desiredReplicas": 5,
                "mode": "Panic",
                "lastScaleTime": 60.0,
            },
        ],
        "ratioAdjusted": True,
        "ratioStatus": {
            "numeratorRole": "prefill",
            "denominatorRole": "decode",
            "currentRatio": "0.75",
        },
    }


def test_35_a_patch_that_fails_leaves_the_time_and_the_target() -> None:
    found = told("testing value failed")
    ready, target = found["conditions"]
    assert (ready["status"], ready["reason"], ready["message"]) == (
        "False",
        "ReconcileFailed",
        "testing value failed",
    )
    assert (target["type"], target["status"]) == ("TargetFound", "True")
    roles = found["disaggregatedStatus"]["roles"]
    assert [role["lastScaleTime"] for role in roles] == [None, 7.0]
    assert found["disaggregatedStatus"]["ratioStatus"]["currentRatio"] == "0.25"
