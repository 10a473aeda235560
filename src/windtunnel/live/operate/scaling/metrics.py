"""The Prometheus metrics of an autoscaler: its decisions, in a form that an HPA can consume."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from windtunnel.live.operate.scaling.operator import ScalingOperator


class ScalingCollector:
    """Recommended sizes, as metrics that an HPA or KEDA can consume.

    A series without an update for three intervals is left out: no value is better than an old one.
    """

    def __init__(self, operator: Callable[[], ScalingOperator | None], now_s: Callable[[], float]):
        self._operator: Final = operator
        self._now_s: Final = now_s

    def collect(self) -> Iterable[Any]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        operator = self._operator()
        if operator is None:
            return
        name, labels = "windtunnel_scaling_", ["namespace", "autoscaler", "pool", "kind", "target"]
        gauges = {
            field: GaugeMetricFamily(f"{name}{field}_replicas", says, labels=labels)
            for field, says in (
                ("current", "Replicas last requested."),
                ("desired", "Replicas the policy decides on, within all of its limits."),
                ("recommended", "Replicas the policy would decide on without limits."),
                ("ready", "Ready replicas."),
                ("missing", "Ready replicas that did not answer."),
            )
        }
        states = ["namespace", "autoscaler", "type"]
        conditions = GaugeMetricFamily(f"{name}condition", "1 if it holds.", labels=states)
        orders = CounterMetricFamily(
            f"{name}orders", "Orders by outcome.", labels=["namespace", "autoscaler", "outcome"]
        )
        standing = GaugeMetricFamily(
            f"{name}standing_by", "1 if another installation acts.", labels=states[:2]
        )
        now_s = self._now_s()
        for one in operator.scaled.values():
            control, key = one.control, [one.named.namespace, one.named.name]
            standing.add_metric(key, float(one.standing_by))
            if control is None:
                continue
            for target in control.plan.targets:
                published = control.published.get(target.pool)
                if published is None or now_s > published.at_s + 3 * control.plan.interval_s:
                    continue
                for field, gauge in gauges.items():
                    value = float(getattr(published, field))
                    named = [target.pool, target.named.kind, target.named.name]
                    gauge.add_metric([*key, *named], value)
            for condition in control.conditions.values():
                conditions.add_metric([*key, condition.type], float(condition.holds))
            for outcome, count in control.orders.items():
                orders.add_metric([*key, outcome.value], count)
        yield from (*gauges.values(), conditions, orders, standing)
        yield CounterMetricFamily(f"{name}bugs", "Passes ended by a bug.", value=operator.bugs)
