"""Kthena's split of a total over several kinds of replica: by cost, and by pressure."""

import math
from collections.abc import Mapping
from typing import Final

from windtunnel.scaling.analyzers import Finding, Group
from windtunnel.scaling.metrics import KV_USED, TTFT, WAITING, Metric
from windtunnel.scaling.optimizers import Allocation, Optimizer
from windtunnel.scaling.policies.kthena.behavior import Histories
from windtunnel.scaling.policies.kthena.blocks import Blocks, ReplicaKind
from windtunnel.scaling.policies.kthena.coordinate import Coordinated, coordinate
from windtunnel.scaling.policies.kthena.settings import PREFERRED, Coordination

PRESSURES: Final = {
    "queue_depth": Metric("queue_depth", WAITING),
    "kv_cache_utilization": Metric("kv_cache_utilization", KV_USED),
    "ttft": Metric("ttft", TTFT),
}


class CostSplit(Optimizer):
    """Splits a total over kinds of replica by cost, shifted towards those under pressure."""

    def __init__(
        self,
        histories: Histories,
        *,
        costs: Mapping[str, float],
        growth_percent: int,
        coordination: Coordination,
    ) -> None:
        super().__init__("cost blocks")
        self._histories: Final = histories
        self._costs: Final = dict(costs)  # by variant; others cost their price
        self._growth_percent: Final = growth_percent
        self._coordination: Final = coordination

    def allocate(
        self, groups: list[Group], findings: list[list[Finding]], free: dict[str, int] | None
    ) -> list[Allocation]:
        return [self._of(group, findings[number]) for number, group in enumerate(groups)]

    def _of(self, group: Group, findings: list[Finding]) -> Allocation:
        known = [finding for finding in findings if finding.known]
        wanted = max((int(finding.demand) for finding in known), default=group.current)
        panic = bool(known) and self._histories.outlook(group).panic
        backends = [
            ReplicaKind(
                variant.name,
                self._costs.get(variant.name, variant.spec.price_per_hour),
                variant.minimum,
                variant.maximum,
            )
            for variant in group.variants
        ]
        blocks = Blocks(backends, self._growth_percent)
        return SplitAllocation(group, wanted, blocks, self._coordination, panic=panic)


class SplitAllocation(Allocation):
    """A total split over kinds of replica. Beyond the bounds, the first kind gets the rest."""

    def __init__(
        self,
        group: Group,
        total: int,
        blocks: Blocks,
        coordination: Coordination,
        *,
        panic: bool,
    ) -> None:
        self._blocks: Final = blocks
        self._coordination: Final = coordination
        self._panic: Final = panic
        self._pressures: Final = {
            variant.name: {
                name: math.fsum(measured.of_replica(replica, group) for replica in variant.replicas)
                for name, measured in PRESSURES.items()
            }
            for variant in group.variants
        }
        order = list(range(len(group.variants)))
        reason = ""
        if coordination.mode == PREFERRED:
            split = self._split(total)
            reason = " ".join([f"Split: {split.reason}.", *split.ignored])
        super().__init__(group, total, up=order, down=order[::-1], reason=reason)

    def counts_at(self, total: int) -> list[int]:
        sizes = list(self._split(total).sizes.values())
        beyond = total - sum(sizes)
        if beyond > 0:
            sizes[0] += beyond
        for number in self.down:
            less = min(sizes[number], max(sum(sizes) - total, 0))
            sizes[number] -= less
        return sizes

    def _split(self, total: int) -> Coordinated:
        return coordinate(
            self._coordination,
            self._blocks.backends,
            self._blocks.split(total),
            self._pressures,
            panic=self._panic,
        )
