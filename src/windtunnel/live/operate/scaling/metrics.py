"""The Prometheus metrics of an autoscaler: its decisions, in a form that an HPA can consume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windtunnel.live.metrics import counter, gauge
from windtunnel.live.operate.scaling.operator import ScalingOperator

PREFIX = "windtunnel_scaling_"
OF_OBJECT = ("namespace", "autoscaler")
REPLICAS = {
    "current": "Replicas last requested.",
    "desired": "Replicas the policy decides on, within all of its limits.",
    "recommended": "Replicas the policy would decide on without limits.",
    "ready": "Ready replicas.",
    "missing": "Ready replicas that did not answer.",
}


def scaling_families(operator: ScalingOperator | None, now_s: float) -> Iterator[Any]:
    """Recommended sizes, as metrics that an HPA or KEDA can consume; none without an operator.

    A series without an update for three intervals is left out: no value is better than an old one.
    """
    if operator is None:
        return
    scaled = operator.scaled.values()
    known = [
        ((one.named.namespace, one.named.name), one.control)
        for one in scaled
        if one.control is not None
    ]
    latest = [
        ((*key, target.pool, target.named.kind, target.named.name), published)
        for key, control in known
        for target in control.plan.targets
        if (published := control.published.get(target.pool)) is not None
        and now_s <= published.at_s + 3 * control.plan.interval_s
    ]
    for field, says in REPLICAS.items():
        sizes = [(key, float(getattr(published, field))) for key, published in latest]
        labels = (*OF_OBJECT, "pool", "kind", "target")
        yield gauge(f"{PREFIX}{field}_replicas", says, sizes, *labels)
    conditions = [
        ((*key, condition.type), float(condition.holds))
        for key, control in known
        for condition in control.conditions.values()
    ]
    yield gauge(f"{PREFIX}condition", "1 if it holds.", conditions, *OF_OBJECT, "type")
    orders = [
        ((*key, outcome.value), count)
        for key, control in known
        for outcome, count in control.orders.items()
    ]
    yield counter(f"{PREFIX}orders", "Orders by outcome.", orders, *OF_OBJECT, "outcome")
    standing = [((one.named.namespace, one.named.name), float(one.standing_by)) for one in scaled]
    says = "1 if another installation acts."
    yield gauge(f"{PREFIX}standing_by", says, standing, *OF_OBJECT)
    yield counter(f"{PREFIX}bugs", "Passes ended by a bug.", operator.bugs)
