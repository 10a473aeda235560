"""Kthena's policies as parts of the frame: an analyzer, the split by cost, the ratio of roles."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from windtunnel.scaling.kthena.blocks import Backend, Blocks
from windtunnel.scaling.kthena.coordinate import Coordinated, coordinate
from windtunnel.scaling.kthena.memory import Histories
from windtunnel.scaling.kthena.ratio import Bounds, Paired, exact, shipped
from windtunnel.scaling.kthena.recommend import NoData, Reading, recommend
from windtunnel.scaling.kthena.settings import PREFERRED, Coordination, Ratio
from windtunnel.scaling.limits import Context, Limiter
from windtunnel.scaling.metrics import KV_USED, RATE, TTFT, WAITING, Metric, metric
from windtunnel.scaling.parts import (
    Allocation,
    Analyzer,
    Finding,
    Group,
    Optimizer,
    replicas_wanted,
    unknown,
)
from windtunnel.scaling.snapshot import Variant

PRESSURES: Final = {
    "queue_depth": Metric("queue_depth", WAITING),
    "kv_cache_utilization": Metric("kv_cache_utilization", KV_USED),
    "ttft": Metric("ttft", TTFT),
}
AVERAGED: Final = ("_utilization", "_usage", "_ratio", "_percent", "_saturation")
"""How the names of metrics end that are shares: several pools have their mean, not their sum."""


class Targets:
    """Metrics, and what one replica should have of each."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self.values: Final = dict(values)
        self.metrics: Final = [metric(name, "metrics") for name in values]


class Recommender(Analyzer):
    """What the metrics ask for, and what the history of the target thinks of it.

    `queries` names metrics that are read as one number for a variant, and how: sum, avg, max.
    `by_variant` has metrics for single variants that differ from those of the rest. `all_or_none`:
    where one group has no data, none is changed (the roles of a disaggregated target).
    """

    def __init__(
        self,
        targets: Targets,
        histories: Histories,
        *,
        tolerance: float,
        summed: bool,
        queries: Mapping[str, str] | None = None,
        by_variant: Mapping[str, Targets] | None = None,
        all_or_none: bool = False,
    ) -> None:
        super().__init__("metrics")
        self._targets: Final = targets
        self._histories: Final = histories
        self._tolerance: Final = tolerance
        self._summed: Final = summed
        self._queries: Final = dict(queries or {})
        self._by_variant: Final = dict(by_variant or {})
        self._all_or_none: Final = all_or_none

    def analyze(self, groups: list[Group], now_s: float) -> list[Finding]:
        findings = [self.analyze_group(group, now_s) for group in groups]
        if not self._all_or_none or all(finding.known for finding in findings):
            return findings
        missing = next(
            group.variants[0].name
            for group, finding in zip(groups, findings, strict=True)
            if not finding.known
        )
        sentence = f"{missing} has no metrics, so that no role is changed."
        return [
            unknown(group, sentence if finding.known else finding.sentence, finding.evidence)
            for group, finding in zip(groups, findings, strict=True)
        ]

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        if group.minimum == group.maximum > 0:
            self._histories.look(group, now_s, group.maximum)
            return replicas_wanted(group, group.maximum, {}, f"Its size is fixed: {group.maximum}.")
        targets = self._by_variant.get(group.variants[0].name, self._targets)
        reading = self._reading(group, targets)
        found = recommend(reading, targets.values, self._tolerance, group.minimum, group.maximum)
        evidence = _evidence(group, targets)
        if isinstance(found, NoData):
            return unknown(group, found.reason, evidence)
        outlook = self._histories.look(group, now_s, found.size)
        sentence = f"{found.reason} It is in panic." if outlook.panic else found.reason
        return replicas_wanted(group, found.size, evidence, sentence)

    def _reading(self, group: Group, targets: Targets) -> Reading:
        external: dict[str, float] = {}
        read: list[Metric] = []
        for measured in targets.metrics:
            if measured.quantity == RATE:
                external[measured.name] = measured.of_group(group)
            elif measured.name in self._queries:
                external.update(_queried(group, measured, self._queries[measured.name]))
            else:
                read.append(measured)
        entries: list[dict[str, float]] = []
        unready = 0
        for variant in group.variants:
            unready += variant.coming
            if self._summed:
                entries.append(_sums(group, variant, read))
                continue
            for replica in variant.replicas:
                entry = {measured.name: measured.of_replica(replica, group) for measured in read}
                entries.append(entry)
        return Reading(group.current, entries, unready=unready, external=external)


def _queried(group: Group, measured: Metric, how: str) -> dict[str, float]:
    """The answer to a query: one number for each variant that has replicas, made one for all."""
    answers: list[tuple[float, int]] = []
    for variant in group.variants:
        values = [measured.of_replica(replica, group) for replica in variant.replicas]
        if not values:
            continue
        if how == "max":
            answer = max(values)
        else:
            answer = math.fsum(values) / (len(values) if how == "avg" else 1)
        answers.append((answer, variant.target))
    return {measured.name: combined(measured.name, answers)} if answers else {}


def combined(metric: str, values: Sequence[tuple[float, int]]) -> float:
    """One value for several pools, from (value, replicas) of each.

    Shares are averaged by replicas; all other metrics, rates too, are summed.
    """
    if not metric.lower().endswith(AVERAGED):
        return math.fsum(value for value, _ in values)
    replicas = sum(count for _, count in values)
    if replicas == 0:
        return math.fsum(value for value, _ in values) / len(values) if values else 0.0
    return math.fsum(value * count for value, count in values) / replicas


def _sums(group: Group, variant: Variant, metrics: list[Metric]) -> dict[str, float]:
    """One entry for all replicas of a variant; nothing is known of one that has none."""
    if not variant.replicas:
        return {}
    return {
        measured.name: math.fsum(
            measured.of_replica(replica, group) for replica in variant.replicas
        )
        for measured in metrics
    }


def _evidence(group: Group, targets: Targets) -> dict[str, float]:
    """The mean of each metric over the ready replicas."""
    if not group.ready:
        return {}
    return {
        measured.name: math.fsum(
            measured.of_replica(replica, group)
            for variant in group.variants
            for replica in variant.replicas
        )
        / group.ready
        for measured in targets.metrics
    }


class CostSplit(Optimizer):
    """Spreads a total over kinds of replica by cost, and leans to where the pressure is."""

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
            Backend(
                variant.name,
                self._costs.get(variant.name, variant.price_per_hour),
                variant.minimum,
                variant.maximum,
            )
            for variant in group.variants
        ]
        blocks = Blocks(backends, self._growth_percent)
        return SplitAllocation(group, wanted, blocks, self._coordination, panic=panic)


class SplitAllocation(Allocation):
    """A total over kinds of replica. Beyond the bounds, the first kind has the rest."""

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


class RatioLimiter(Limiter):
    """Keeps two roles in their ratio: as shipped, or exactly and no faster than the rates."""

    def __init__(self, ratio: Ratio, histories: Histories, *, as_shipped: bool) -> None:
        super().__init__("ratio")
        self._ratio: Final = ratio
        self._histories: Final = histories
        self._as_shipped: Final = as_shipped

    def limit(self, totals: list[int], context: Context) -> list[int]:
        pair = self._pair(context)
        if pair is None:
            return totals
        numerator, denominator = pair
        found = self._paired(totals[numerator], totals[denominator], pair, context)
        limited = list(totals)
        limited[numerator], limited[denominator] = found.sizes
        return limited

    def why(self, before: int, after: int, number: int, context: Context) -> str:
        if after > before:
            short = f"{after - before} more are needed to keep it."
        else:
            short = f"{before - after} fewer keep it, since the other role can grow no further."
        ratio = self._ratio
        names = f"{ratio.numerator} to {ratio.denominator}"
        return f"{names} must be {ratio.minimum:g} to {ratio.maximum:g}: {short}"

    def _pair(self, context: Context) -> tuple[int, int] | None:
        """The groups of both roles; None where one of them is held."""
        numbers = {
            group.variants[0].name: number
            for number, group in enumerate(context.groups)
            if not context.held[number]
        }
        numerator = numbers.get(self._ratio.numerator)
        denominator = numbers.get(self._ratio.denominator)
        return None if numerator is None or denominator is None else (numerator, denominator)

    def _paired(
        self, numerator: int, denominator: int, pair: tuple[int, int], context: Context
    ) -> Paired:
        groups = [context.groups[number] for number in pair]
        num, den = (Bounds(group.minimum, group.maximum) for group in groups)
        if self._as_shipped:
            return shipped(self._ratio, numerator, denominator, num, den)
        outlooks = [self._histories.outlook(group) for group in groups]
        near_num, near_den = (
            Bounds(bounds.clamp(outlook.lowest), bounds.clamp(outlook.highest))
            for bounds, outlook in zip((num, den), outlooks, strict=True)
        )
        found = exact(self._ratio, numerator, denominator, near_num, near_den)
        if found.held:
            return found
        # Not in one step: as far towards it as the rates allow.
        goal = exact(self._ratio, numerator, denominator, num, den)
        sizes = near_num.clamp(goal.numerator), near_den.clamp(goal.denominator)
        return Paired(*sizes, goal.reason, held=False)
