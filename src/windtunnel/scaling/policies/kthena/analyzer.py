"""Kthena's analyzer: replicas by the metrics of a target."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from windtunnel.scaling.analyzers import Analyzer, Finding, Group, replicas_wanted, unknown
from windtunnel.scaling.metrics import EXTERNAL, RATES, TIMES, Metric, metric, with_missing
from windtunnel.scaling.policies.kthena.behavior import Histories
from windtunnel.scaling.policies.kthena.recommend import NoData, Reading, recommend
from windtunnel.scaling.policies.kthena.settings import KthenaSettings, Metrics
from windtunnel.scaling.snapshot import Variant

AVERAGED: Final = ("_utilization", "_usage", "_ratio", "_percent", "_saturation")
"""Suffixes of metrics that are shares, which are averaged over pools rather than summed."""


class Recommender(Analyzer):
    """Recommends a size by metrics, and updates the history of the target.

    `metrics_of` has the metrics of variants that differ from the rest. `all_or_none`: if one group
    has no data, no group is changed (for the roles of a disaggregated target).
    """

    def __init__(
        self,
        settings: KthenaSettings,
        histories: Histories,
        metrics_of: Mapping[str, Metrics] | None = None,
        *,
        all_or_none: bool = False,
    ) -> None:
        super().__init__("metrics")
        self._settings: Final = settings
        self._histories: Final = histories
        self._metrics_of: Final = metrics_of or {}
        self._all_or_none: Final = all_or_none
        named = [settings.metrics, *self._metrics_of.values()]
        queries: Mapping[str, str] = settings.queries
        asked = [name for name, how in queries.items() if how == EXTERNAL]
        self._measured: Final = {
            name: Metric(name, EXTERNAL) if name in asked else metric(name, "metrics")
            for own in named
            for name in own
        }

    def analyze(self, groups: list[Group], now_s: float) -> list[Finding]:
        findings = [self.analyze_group(group, now_s) for group in groups]
        if not self._all_or_none or all(finding.known for finding in findings):
            return findings
        missing = next(
            group.variants[0].name
            for group, finding in zip(groups, findings, strict=True)
            if not finding.known
        )
        sentence = f"{missing} has no metrics, so no role is changed."
        return [
            unknown(group, sentence if finding.known else finding.sentence, finding.evidence)
            for group, finding in zip(groups, findings, strict=True)
        ]

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        if group.minimum == group.maximum > 0:
            self._histories.look(group, now_s, group.maximum)
            return replicas_wanted(group, group.maximum, {}, f"Its size is fixed: {group.maximum}.")
        targets = self._metrics_of.get(group.variants[0].name, self._settings.metrics)
        tolerance = self._settings.tolerance_percent / 100
        reading = self._reading(group, targets)
        found = recommend(reading, targets, tolerance, group.minimum, group.maximum)
        evidence = _evidence(group, [self._measured[name] for name in targets])
        if isinstance(found, NoData):
            return unknown(group, found.reason, evidence)
        outlook = self._histories.look(group, now_s, found.size)
        sentence = f"{found.reason} Panic mode is active." if outlook.panic else found.reason
        return replicas_wanted(group, found.size, evidence, sentence)

    def _reading(self, group: Group, targets: Metrics) -> Reading:
        external: dict[str, float] = {}
        read: list[Metric] = []
        queries = self._settings.queries
        for measured in (self._measured[name] for name in targets):
            if measured.quantity in TIMES and not measured.is_known(group):
                continue
            if measured.quantity in RATES:
                external[measured.name] = measured.of_group(group)
            elif measured.name in queries:
                query = queries[measured.name]
                external.update(_queried(group, measured, query, targets[measured.name]))
            else:
                read.append(measured)
        entries: list[dict[str, float]] = []
        unready = 0
        for variant in group.variants:
            unready += variant.coming
            if self._settings.tolerance == "summed":
                entries.append(_sums(group, variant, read))
                continue
            for replica in variant.replicas:
                entry = {measured.name: measured.of_replica(replica, group) for measured in read}
                entries.append(entry)
            entries.extend({} for _ in range(variant.counts.missing))
        return Reading(group.current, entries, unready=unready, external=external)


def _queried(group: Group, measured: Metric, how: str, target: float) -> dict[str, float]:
    """The result of a query: one number per variant with replicas, combined into one.

    In a sum, replicas that did not answer count as in Kubernetes.
    """
    answers: list[tuple[float, int]] = []
    for variant in group.variants:
        if how == EXTERNAL:
            if variant.external is not None and measured.name in variant.external:
                answers.append((variant.external[measured.name], variant.target))
            continue
        values = [measured.of_replica(replica, group) for replica in variant.replicas]
        if not values:
            continue
        if how == "max":
            answer = max(values)
        else:
            answer = math.fsum(values) / (len(values) if how == "avg" else 1)
        if how == "sum":
            answer = with_missing(answer, variant.counts.missing, target, variant.target)
        answers.append((answer, variant.target))
    return {measured.name: combined(measured.name, answers)} if answers else {}


def combined(metric: str, values: Sequence[tuple[float, int]]) -> float:
    """Combines (value, replicas) of several pools into one value.

    Shares are averaged by replicas; all other metrics, including rates, are summed.
    """
    if not metric.lower().endswith(AVERAGED):
        return math.fsum(value for value, _ in values)
    replicas = sum(count for _, count in values)
    if replicas == 0:
        return math.fsum(value for value, _ in values) / len(values) if values else 0.0
    return math.fsum(value * count for value, count in values) / replicas


def _sums(group: Group, variant: Variant, metrics: list[Metric]) -> dict[str, float]:
    """One entry for all replicas of a variant; empty if any did not answer."""
    if not variant.replicas or variant.counts.missing:
        return {}
    return {
        measured.name: math.fsum(
            measured.of_replica(replica, group) for replica in variant.replicas
        )
        for measured in metrics
    }


def _evidence(group: Group, metrics: list[Metric]) -> dict[str, float]:
    """The mean of each metric over the replicas that answered, and the results of queries."""
    found = {
        measured.name: measured.of_replicas(group)
        for measured in metrics
        if measured.quantity != EXTERNAL
    }
    asked = {
        name: value
        for variant in group.variants
        for name, value in (variant.external or {}).items()
    }
    means = {name: math.fsum(values) / len(values) for name, values in found.items() if values}
    return {**means, **asked}
