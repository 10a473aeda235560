"""How a disaggregated target is changed in a cluster, and what its status says then.

One patch for all roles: each change is guarded by the name of the role at its place, so that a list
that was put in another order meanwhile makes the whole patch fail, and nothing wrong is written.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from windtunnel.scaling.kthena.ratio import ratio_text
from windtunnel.scaling.kthena.settings import Ratio

READY: Final = "disaggregated autoscaling policy reconciled"


def role_patch(
    roles: Sequence[tuple[str, int]], wanted: Mapping[str, int]
) -> list[dict[str, object]]:
    """A JSON patch of a ModelServing whose roles are these, by name and replicas; [] for none."""
    patch: list[dict[str, object]] = []
    for number, (name, replicas) in enumerate(roles):
        size = wanted.get(name, replicas)
        if size != replicas:
            path = f"/spec/template/roles/{number}"
            patch.append({"op": "test", "path": f"{path}/name", "value": name})
            patch.append({"op": "add", "path": f"{path}/replicas", "value": size})
    return patch


class RoleStatus:
    """Of one role: what it has, what its metrics ask for, and when it was last changed."""

    def __init__(
        self, name: str, current: int, desired: int, *, panic: bool, scaled_s: float | None
    ) -> None:
        self.name: Final = name
        self.current: Final = current
        self.desired: Final = desired  # before rates, windows and the ratio
        self.panic: Final = panic
        self.scaled_s: Final = scaled_s


def status(
    roles: Sequence[RoleStatus],
    decided: Mapping[str, int],
    now_s: float,
    *,
    ratio: Ratio | None = None,
    adjusted: bool = False,
    failed: str = "",
) -> dict[str, object]:
    """What is written after a pass; `failed` is why the patch did not go through."""
    ready = {"type": "Ready", "status": "True", "reason": "Reconciled", "message": READY}
    if failed:
        ready = {"type": "Ready", "status": "False", "reason": "ReconcileFailed", "message": failed}
    found = {"type": "TargetFound", "status": "True", "reason": "TargetFound"}
    rows: list[dict[str, object]] = []
    for role in sorted(roles, key=lambda role: role.name):
        changed = not failed and decided[role.name] != role.current
        rows.append(
            {
                "name": role.name,
                "currentReplicas": role.current,
                "desiredReplicas": role.desired,
                "mode": "Panic" if role.panic else "Stable",
                "lastScaleTime": now_s if changed else role.scaled_s,
            }
        )
    text: dict[str, object] = {"roles": rows, "ratioAdjusted": adjusted}
    if ratio is not None:
        sizes = {role.name: role.current for role in roles} if failed else decided
        text["ratioStatus"] = {
            "numeratorRole": ratio.numerator,
            "denominatorRole": ratio.denominator,
            "currentRatio": ratio_text(sizes[ratio.numerator], sizes[ratio.denominator]),
        }
    return {"conditions": [ready, found], "disaggregatedStatus": text}
