"""The spare-capacity analyzer: one replica more or fewer, by shares of KV cache and queue lengths.

As the first analyzer of the workload variant autoscaler (WVA) decides.
"""

from typing import Final

from windtunnel.scaling.checks import at_least, share, within
from windtunnel.scaling.parts import Analyzer, Finding, Group, replicas_wanted, unknown


class SpareCapacity(Analyzer):
    """Grows by one when replicas have little to spare, shrinks by one when the rest could do it."""

    def __init__(
        self,
        *,
        kv_threshold: float = 0.8,
        queue_threshold: float = 5.0,
        kv_spare: float = 0.1,
        queue_spare: float = 3.0,
    ) -> None:
        super().__init__("spare capacity")
        share("kv_threshold", kv_threshold)
        at_least("queue_threshold", queue_threshold, above=True)
        at_least("kv_spare", kv_spare)
        at_least("queue_spare", queue_spare)
        within("kv_spare", kv_spare, "kv_threshold", kv_threshold)
        within("queue_spare", queue_spare, "queue_threshold", queue_threshold)
        self._kv_threshold: Final = kv_threshold
        self._queue_threshold: Final = queue_threshold
        self._kv_spare: Final = kv_spare
        self._queue_spare: Final = queue_spare

    def analyze(self, groups: list[Group], now_s: float) -> list[Finding]:
        """Nothing changes in a model while replicas of it start or go."""
        for group in groups:
            for variant in group.variants:
                if variant.target != variant.ready or variant.coming > 0:
                    return [self._frozen(each, variant.name) for each in groups]
        return [self.analyze_group(group, now_s) for group in groups]

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        loads = [replica for variant in group.variants for replica in variant.replicas]
        if not loads:
            return unknown(group, "No replica answered: everything stays as it is.")
        kv = queue = 0.0
        open_ones = 0
        for replica in loads:
            if replica.kv_used < self._kv_threshold and replica.waiting < self._queue_threshold:
                open_ones += 1
                kv += replica.kv_used
                queue += replica.waiting
        evidence: dict[str, float] = {
            "replicas": float(len(loads)),
            "saturated": float(len(loads) - open_ones),
        }
        if open_ones == 0:
            what = f"All of {len(loads)} replicas are saturated: one more."
            return replicas_wanted(group, group.current + 1, evidence, what)
        spare_kv = self._kv_threshold - kv / open_ones
        spare_queue = self._queue_threshold - queue / open_ones
        evidence["spare_kv"] = spare_kv
        evidence["spare_queue"] = spare_queue
        told = f"{spare_kv:.3f} of the cache and {spare_queue:.2f} of the queue are spare"
        if spare_kv < self._kv_spare or spare_queue < self._queue_spare:
            return replicas_wanted(group, group.current + 1, evidence, f"{told}: one more.")
        if open_ones >= 2 and self._could_go(group):
            grown = 1.0 / (open_ones - 1)  # N / (N - 1) times the mean is the sum / (N - 1)
            after_kv = self._kv_threshold - kv * grown
            after_queue = self._queue_threshold - queue * grown
            evidence["spare_kv_after"] = after_kv
            evidence["spare_queue_after"] = after_queue
            if after_kv >= self._kv_spare and after_queue >= self._queue_spare:
                return replicas_wanted(group, group.current - 1, evidence, f"{told}: one fewer.")
        return replicas_wanted(group, group.current, evidence, f"{told}: it stays.")

    def _could_go(self, group: Group) -> bool:
        """Whether a variant has more than one; the last of each stays."""
        for variant in group.variants:
            if variant.target > 1 and variant.target > variant.minimum and not variant.missing:
                return True
        return False

    def _frozen(self, group: Group, changing: str) -> Finding:
        what = f"Replicas of {changing!r} start or go: nothing is changed until they have."
        return replicas_wanted(group, group.current, {}, what)
