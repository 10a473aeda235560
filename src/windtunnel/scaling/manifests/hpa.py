"""Kubernetes' HorizontalPodAutoscaler, `autoscaling/v2`, as its users write it."""

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from windtunnel.core.errors import InputError
from windtunnel.scaling.manifests.fields import (
    Amount,
    AnyText,
    Count,
    Manifest,
    Most,
    Opaque,
    Reference,
)
from windtunnel.scaling.manifests.pools import Assignment, Pools
from windtunnel.scaling.metrics import metric
from windtunnel.scaling.peers.hpa import AVERAGE, TOTAL, VALUE
from windtunnel.scaling.peers.plans import HpaDirection, HpaMetric, HpaPlan, HpaRule
from windtunnel.scaling.plan import BoundsPlan
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Whole
from windtunnel.settings.section import ApiSection

INTERVAL_S = 15.0
UP_WINDOW_S = 0.0
DOWN_WINDOW_S = 300.0
TOLERANCE = 0.1
AVERAGE_VALUE = "AverageValue"


class MetricId(ApiSection):
    """Which metric."""

    name: AnyText = Field(description="Its name.")
    selector: Opaque | None = Field(default=None, description="Not used: the target has its own.")


class TargetSpec(ApiSection):
    """What a metric should be."""

    type: Literal["AverageValue", "Value", "Utilization"] = Field(description="Of what.")
    average_value: Amount | None = Field(default=None, description="Of one replica.")
    value: Amount | None = Field(default=None, description="Of all replicas.")
    average_utilization: Annotated[int, Whole(1, 10**6)] | None = Field(
        default=None, description="Percent of what a pod requests; nothing here has that."
    )


class PodsMetric(ApiSection):
    """The mean of all pods."""

    metric: MetricId = Field(description="Which metric.")
    target: TargetSpec = Field(description="What it should be.")


class ObjectMetric(PodsMetric):
    """A number of another object."""

    described_object: Reference | None = Field(default=None, description="Not used.")


class MetricSpec(ApiSection):
    """A metric of an HPA. Resource metrics are of the machine, and are not simulated."""

    type: Literal["Pods", "Object", "External", "Resource", "ContainerResource"] = Field(
        description="Where it comes from."
    )
    pods: PodsMetric | None = Field(default=None, description="Of type Pods.")
    object: ObjectMetric | None = Field(default=None, description="Of type Object.")
    external: PodsMetric | None = Field(default=None, description="Of type External.")
    resource: Opaque | None = Field(default=None, description="Of type Resource.")
    container_resource: Opaque | None = Field(default=None, description="Of its type.")


class RuleSpec(ApiSection):
    """A step that is allowed within a period."""

    type: Literal["Pods", "Percent"] = Field(description="Of what.")
    value: Annotated[int, Whole(1, 10**6)] = Field(description="So many.")
    period_seconds: Annotated[int, Whole(1, 1800)] = Field(description="Within this time.")


class DirectionSpec(ApiSection):
    """How fast a size may change in one direction."""

    stabilization_window_seconds: Annotated[int, Whole(0, 3600)] | None = Field(
        default=None, description="How long a recommendation counts; up 0, down 300."
    )
    select_policy: Literal["Max", "Min", "Disabled"] = Field(
        default="Max", description="Which rule holds."
    )
    policies: list[RuleSpec] | None = Field(
        default=None, description="Left out: up by 4 or 100% in 15 s, down by 100%."
    )
    tolerance: Amount | None = Field(default=None, description="Left out: 0.1.")

    def plan(self, window_s: float) -> HpaDirection:
        given_s = self.stabilization_window_seconds
        rules = None
        if self.policies is not None:
            rules = tuple(
                HpaRule(rule.value, float(rule.period_seconds), rule.type == "Percent")
                for rule in self.policies
            )
        seconds = window_s if given_s is None else float(given_s)
        return HpaDirection(seconds, rules, self.select_policy)


class BehaviorSpec(ApiSection):
    """How fast a size may change."""

    scale_up: DirectionSpec = Field(default_factory=DirectionSpec, description="More replicas.")
    scale_down: DirectionSpec = Field(default_factory=DirectionSpec, description="Fewer replicas.")

    def faults(self, path: KeyPath) -> Iterator[Fault]:
        for key, way in (("scaleUp", self.scale_up), ("scaleDown", self.scale_down)):
            if way.policies == []:
                yield Fault((*path, key, "policies"), "must specify at least one policy")
            if way.tolerance is not None and not 0 <= way.tolerance <= 1:
                what = f"{way.tolerance:g} is no such tolerance"
                yield Fault((*path, key, "tolerance"), what, "0 to 1")


class HpaSpec(ApiSection):
    """What an HPA says."""

    scale_target_ref: Reference = Field(description="What is scaled.")
    min_replicas: Count = Field(default=1, description="The fewest replicas.")
    max_replicas: Most = Field(description="The most replicas.")
    metrics: list[MetricSpec] = Field(default_factory=list, description="The metrics.")
    behavior: BehaviorSpec = Field(default_factory=BehaviorSpec, description="How fast.")


class HorizontalPodAutoscaler(Manifest):
    """A whole HPA."""

    spec: HpaSpec = Field(description="What it says.")

    def assignment(self, label: str, pools: Pools) -> tuple[Assignment | None, list[Fault]]:
        """Who scales which pool, or what is wrong."""
        spec = self.spec
        faults = list(spec.behavior.faults(("spec", "behavior")))
        if spec.min_replicas > spec.max_replicas:
            what = "must be greater than or equal to `minReplicas`"
            faults.append(Fault(("spec", "maxReplicas"), what))
        pool = pools.find(spec.scale_target_ref.name, ("spec", "scaleTargetRef", "name"))
        metrics: list[HpaMetric] = []
        if not spec.metrics:
            what = "without metrics it is by CPU, which is not simulated"
            faults.append(Fault(("spec", "metrics"), what, "at least one metric"))
        for number, one in enumerate(spec.metrics):
            found = _metric(one, ("spec", "metrics", number))
            if isinstance(found, Fault):
                faults.append(found)
            else:
                metrics.append(found)
        if isinstance(pool, Fault):
            faults.append(pool)
        if faults or isinstance(pool, Fault):
            return None, faults
        plan = hpa_plan(metrics, spec.behavior)
        bounds = {pool: BoundsPlan(spec.min_replicas, spec.max_replicas)}
        return Assignment(label, plan, bounds, INTERVAL_S), []


def hpa_plan(metrics: list[HpaMetric], behavior: BehaviorSpec) -> HpaPlan:
    up, down = behavior.scale_up, behavior.scale_down
    return HpaPlan(
        tuple(metrics),
        TOLERANCE if up.tolerance is None else up.tolerance,
        up.plan(UP_WINDOW_S),
        down.plan(DOWN_WINDOW_S),
        TOLERANCE if down.tolerance is None else down.tolerance,
    )


def _metric(spec: MetricSpec, path: KeyPath) -> HpaMetric | Fault:
    key = spec.type.lower()
    if spec.type in ("Resource", "ContainerResource"):
        what = f"{spec.type} metrics are of the machine, and are not simulated"
        return Fault((*path, "type"), what, "Pods, Object or External")
    given: PodsMetric | None = getattr(spec, key)
    if given is None:
        return Fault((*path, key), "missing", f"must populate the source of type {spec.type}")
    here = (*path, key)
    try:
        metric(given.metric.name)
    except InputError as error:
        return Fault((*here, "metric", "name"), error.what, error.allowed, error.hint)
    target = given.target
    if target.type == "Utilization" or (spec.type == "Pods" and target.type != AVERAGE_VALUE):
        allowed = AVERAGE_VALUE if spec.type == "Pods" else f"{AVERAGE_VALUE}, Value"
        return Fault((*here, "target", "type"), f"{target.type!r} is not known here", allowed)
    average = target.type == AVERAGE_VALUE
    amount = target.average_value if average else target.value
    place = (*here, "target", "averageValue" if average else "value")
    if amount is None:
        return Fault(place, "missing", "a quantity such as 10, 0.5 or 250m")
    if not 0 < amount < math.inf:
        return Fault(place, "it is not finite" if amount > 0 else "must be positive")
    if spec.type == "Pods":
        return HpaMetric(given.metric.name, amount, AVERAGE)
    return HpaMetric(given.metric.name, amount, TOTAL if average else VALUE)
