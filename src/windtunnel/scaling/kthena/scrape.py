"""What Kthena makes of the pods that it asks: who is asked together, what a group adds up to.

Nothing here talks to anyone. Whoever does hands in the answers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from windtunnel.scaling.kthena.histogram import Histogram, Readings, Unreadable, recent_quantile

URI: Final = "/metrics"
PORT: Final = 8100


class Source:
    """Where a metric is read from pods."""

    def __init__(
        self,
        metric: str,
        uri: str = URI,
        port: int = PORT,
        selector: Mapping[str, str] | None = None,
    ) -> None:
        self.metric: Final = metric
        self.uri: Final = uri
        self.port: Final = port
        self.selector: Final = tuple(sorted((selector or {}).items()))


class Pod:
    """A pod of a target, and what it answered; `values` is None when it did not."""

    def __init__(
        self,
        name: str,
        *,
        started_s: float = 0.0,
        ready: bool = True,
        failed: bool = False,
        restarts: int = 0,
        terminating: bool = False,
        values: Mapping[str, Sequence[float] | Histogram] | None = None,
    ) -> None:
        self.name: Final = name
        self.started_s: Final = started_s
        self.ready: Final = ready
        self.failed: Final = failed
        self.restarts: Final = restarts
        self.terminating: Final = terminating
        self.values: Final = values  # by metric: one value per label series, or a histogram


class Group:
    """The sums over the ready pods of a group, and how many were not ready."""

    def __init__(self, sums: dict[str, float], unready: list[str]) -> None:
        self.sums: Final = sums
        self.unready: Final = unready


def groups(sources: Sequence[Source]) -> list[list[Source]]:
    """Metrics that one question answers: pods are asked once for each of these lists."""
    found: dict[tuple[str, int, tuple[tuple[str, str], ...]], list[Source]] = {}
    for source in sources:
        found.setdefault((source.uri, source.port, source.selector), []).append(source)
    return list(found.values())


def group_sums(
    metrics: Sequence[str], pods: Sequence[Pod], now_s: float, readings: Mapping[str, Readings]
) -> Group | Unreadable:
    """What a group adds up to. One pod in trouble spoils the group: a part would look like less.

    `readings` has the earlier readings of each metric that is a histogram.
    """
    trouble = _trouble(pods)
    if trouble:
        return Unreadable(trouble)
    parts: dict[str, list[float]] = {metric: [] for metric in metrics}
    for pod in pods:
        if not pod.ready:
            continue
        if pod.values is None:
            return Unreadable(f"{pod.name} did not answer")
        for metric in metrics:
            value = _value_of(pod, metric, now_s, readings)
            if isinstance(value, Unreadable):
                return Unreadable(f"{metric} of {pod.name}: {value.reason}")
            parts[metric].append(value)
    sums = {metric: math.fsum(values) for metric, values in parts.items()}
    return Group(sums, [pod.name for pod in pods if not pod.ready])


def _trouble(pods: Sequence[Pod]) -> str:
    if not pods:
        return "there are no pods"
    for pod in pods:
        if pod.failed:
            return f"{pod.name} has failed"
        if pod.terminating:
            return f"{pod.name} is terminating"
        if pod.restarts:
            return f"{pod.name} was restarted {pod.restarts} times"
    return ""


def _value_of(
    pod: Pod, metric: str, now_s: float, readings: Mapping[str, Readings]
) -> float | Unreadable:
    assert pod.values is not None
    value = pod.values.get(metric, ())
    if not isinstance(value, Histogram):
        return math.fsum(value)  # over label series; a pod without the metric adds nothing
    earlier = readings.get(metric)
    base = earlier.base(now_s, pod.name, pod.started_s) if earlier else None
    return recent_quantile(value, base)


def queried_value(url: str, samples: Sequence[float]) -> float | Unreadable:
    """The value of a query's answer, which must be a single number."""
    if not url.startswith(("http://", "https://")):
        return Unreadable(f"{url!r} is no http:// or https:// address")
    if len(samples) != 1:
        return Unreadable(f"the query has {len(samples)} samples, and one is needed")
    if not math.isfinite(samples[0]):
        return Unreadable(f"the query's value is {samples[0]}")
    return samples[0]


AVERAGED: Final = ("_utilization", "_usage", "_ratio", "_percent", "_saturation")


def combined(metric: str, values: Sequence[tuple[float, int]]) -> float:
    """One value for several backends, from (value, replicas) of each.

    Names that speak of a share are averaged by replicas; all others, rates too, are summed.
    """
    if not metric.lower().endswith(AVERAGED):
        return math.fsum(value for value, _ in values)
    replicas = sum(count for _, count in values)
    if replicas == 0:
        return math.fsum(value for value, _ in values) / len(values) if values else 0.0
    return math.fsum(value * count for value, count in values) / replicas
