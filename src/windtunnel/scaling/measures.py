"""How well a fleet was scaled, by any policy: restlessness, shortage and waste.

What was needed is known only roughly, and the same for every policy: the fewest replicas whose KV
caches (to 80%) or compute limits could hold what was in use and waiting, as the saturation analyzer
counts it. From one look to the next it is taken to stay as it was.
"""

import math
from typing import Final

from windtunnel.scaling.analyzers import Finding, Group, groups_by_role
from windtunnel.scaling.policies.saturation import KvSaturationSettings
from windtunnel.scaling.snapshot import Snapshot

AN_HOUR_S: Final = 3600.0


class Restlessness:
    """How often the size of a variant was changed, and how often in the other direction."""

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
    """Looks at every snapshot and change of a run; `result` says what came of it."""

    def __init__(self, since_s: float = 0.0) -> None:
        self._saturation: Final = KvSaturationSettings(policy="saturation", up=1.0).analyzer()
        self._restlessness: Final[dict[str, Restlessness]] = {}
        self._since_s: Final = since_s
        self._last_s = since_s
        self._short = False  # at the last look
        self._wasted = 0
        self.under_provisioned_s = 0.0
        self.wasted_replica_seconds = 0.0

    def look(self, snapshot: Snapshot) -> None:
        """What is needed from now on, and what there is."""
        self.close(snapshot.taken_s)
        self._short = False
        self._wasted = 0
        for model in snapshot.models:
            for group in groups_by_role(model, model.variants):
                self._judge(group, snapshot.taken_s)

    def changed(self, variant: str, more: int) -> None:
        """So many replicas more are asked for, or fewer."""
        self._restlessness.setdefault(variant, Restlessness()).changed(more)

    def close(self, now_s: float) -> None:
        """Counts up to now."""
        span_s = now_s - self._last_s
        self.wasted_replica_seconds += self._wasted * span_s
        if self._short:
            self.under_provisioned_s += span_s
        self._last_s = now_s

    def result(self) -> dict[str, float]:
        """Plain data, as of the last look or close."""
        changes = sum(seen.changes for seen in self._restlessness.values())
        lasted_s = self._last_s - self._since_s
        return {
            "changes_per_hour": changes * AN_HOUR_S / lasted_s if lasted_s > 0 else 0.0,
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
    """The fewest replicas that could hold the demand; one at least where there is work."""
    ready = 0
    capacity = 0.0
    for number, variant in enumerate(group.variants):
        ready += variant.ready
        capacity += variant.ready * finding.per_replica[number]
    each = capacity / ready if ready > 0 else max(finding.per_replica)
    least = 1 if group.work() > 0 else 0
    return max(least, math.ceil(finding.demand / each)) if each > 0 else least
