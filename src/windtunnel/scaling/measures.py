"""How well a fleet was scaled, for any policy: oscillation, under- and over-provisioning.

The need is estimated, in the same way for every policy: the fewest replicas whose KV caches (to
80%) or compute limits could hold what was in use and waiting, as counted by the saturation
analyzer. Between snapshots it is taken to be constant.
"""

import math
from typing import Final

from windtunnel.scaling.analyzers import Finding, Group, groups_by_role
from windtunnel.scaling.policies.saturation.policy import KvSaturationSettings
from windtunnel.scaling.snapshot import Snapshot

AN_HOUR_S: Final = 3600.0


class Restlessness:
    """Counts how often the size of a variant changed, and how often the direction reversed."""

    def __init__(self) -> None:
        self.changes = 0
        self.turns = 0
        self._grew: bool | None = None

    def changed(self, more: int) -> None:
        grew = more > 0
        self.changes += 1
        if self._grew is not None and grew != self._grew:
            self.turns += 1
        self._grew = grew


class Measures:
    """Measures a run from its snapshots and changes; `result` has the figures."""

    def __init__(self) -> None:
        self._saturation: Final = KvSaturationSettings(policy="saturation", up=1.0).analyzer()
        self._restlessness: Final[dict[str, Restlessness]] = {}
        self._last_s = 0.0
        self._short = False  # as of the last snapshot
        self._wasted = 0
        self.under_provisioned_s = 0.0
        self.wasted_replica_seconds = 0.0

    def look(self, snapshot: Snapshot) -> None:
        """Takes a snapshot: the need and the replicas from now on."""
        self.close(snapshot.taken_s)
        self._short = False
        self._wasted = 0
        for model in snapshot.models:
            for group in groups_by_role(model, model.variants):
                self._judge(group, snapshot.taken_s)

    def changed(self, variant: str, more: int) -> None:
        """Records that `more` replicas were requested, or fewer if negative."""
        self._restlessness.setdefault(variant, Restlessness()).changed(more)

    def close(self, now_s: float) -> None:
        """Accumulates up to now."""
        span_s = now_s - self._last_s
        self.wasted_replica_seconds += self._wasted * span_s
        if self._short:
            self.under_provisioned_s += span_s
        self._last_s = now_s

    def result(self) -> dict[str, float]:
        """The figures as of the last snapshot or `close`, as plain data."""
        changes = sum(seen.changes for seen in self._restlessness.values())
        return {
            "changes_per_hour": changes * AN_HOUR_S / self._last_s if self._last_s > 0 else 0.0,
            "direction_changes": sum(seen.turns for seen in self._restlessness.values()),
            "under_provisioned_s": self.under_provisioned_s,
            "wasted_replica_seconds": self.wasted_replica_seconds,
        }

    def _judge(self, group: Group, now_s: float) -> None:
        finding = self._saturation.analyze_group(group, now_s)
        if not finding.known:
            return
        if group.work() > 0 and finding.demand > finding.supply:
            self._short = True
        paid = sum(one.ready + one.counts.starting + one.counts.draining for one in group.variants)
        self._wasted += max(0, paid - max(group.minimum, needed(group, finding)))


def needed(group: Group, finding: Finding) -> int:
    """The fewest replicas that could hold the demand; at least one while there is work."""
    ready = 0
    capacity = 0.0
    for number, variant in enumerate(group.variants):
        ready += variant.ready
        capacity += variant.ready * finding.per_replica[number]
    each = capacity / ready if ready > 0 else max(finding.per_replica)
    least = 1 if group.work() > 0 else 0
    return max(least, math.ceil(finding.demand / each)) if each > 0 else least
