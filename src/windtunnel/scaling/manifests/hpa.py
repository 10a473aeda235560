"""Kubernetes' HorizontalPodAutoscaler, `autoscaling/v2`, as its users write it."""

import math
from collections.abc import Iterator
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from windtunnel.core.errors import InputError
from windtunnel.scaling.manifests.fields import (
    Amount,
    AnyText,
    Count,
    ManifestForm,
    Most,
    Opaque,
    Reference,
    converted,
    limits_of,
)
from windtunnel.scaling.manifests.pools import Assignment, PoolNames
from windtunnel.scaling.metrics import metric
from windtunnel.scaling.policies.hpa import (
    AVERAGE,
    TOTAL,
    VALUE,
    HpaDown,
    HpaMetric,
    HpaRule,
    HpaSettings,
    HpaUp,
)
from windtunnel.scaling.settings import PoolBounds
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Whole
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.section import ApiSection

AVERAGE_VALUE = "AverageValue"
LONGEST_WINDOW_S = int(limits_of(HpaUp, "window_s")[1])
LONGEST_PERIOD_S = int(limits_of(HpaRule, "period_s")[1])
DIRECTION = {
    "stabilization_window_seconds": "window_s",
    "select_policy": "select",
    "tolerance": "tolerance",
}
"""Keys of a direction of an HPA, and what they are called in a scenario."""

D = TypeVar("D", HpaUp, HpaDown)


class HpaMetricId(ApiSection):
    """Which metric."""

    name: AnyText = Field(description="Its name.")
    selector: Opaque | None = Field(default=None, description="Not used: the target has its own.")


class HpaTargetForm(ApiSection):
    """What a metric should be."""

    type: Literal["AverageValue", "Value", "Utilization"] = Field(description="Of what.")
    average_value: Amount | None = Field(default=None, description="Of one replica.")
    value: Amount | None = Field(default=None, description="Of all replicas.")
    average_utilization: Annotated[int, Whole(1, 10**6)] | None = Field(
        default=None, description="Percent of what a pod requests; nothing here has that."
    )


class PodsMetricForm(ApiSection):
    """The mean of all pods."""

    metric: HpaMetricId = Field(description="Which metric.")
    target: HpaTargetForm = Field(description="What it should be.")


class ObjectMetricForm(PodsMetricForm):
    """A number of another object."""

    described_object: Reference | None = Field(default=None, description="Not used.")


class HpaMetricForm(ApiSection):
    """A metric of an HPA. Resource metrics are of the machine, and are not simulated."""

    type: Literal["Pods", "Object", "External", "Resource", "ContainerResource"] = Field(
        description="Where it comes from."
    )
    pods: PodsMetricForm | None = Field(default=None, description="Of type Pods.")
    object: ObjectMetricForm | None = Field(default=None, description="Of type Object.")
    external: PodsMetricForm | None = Field(default=None, description="Of type External.")
    resource: Opaque | None = Field(default=None, description="Of type Resource.")
    container_resource: Opaque | None = Field(default=None, description="Of its type.")


class HpaRuleForm(ApiSection):
    """A step that is allowed within a period."""

    type: Literal["Pods", "Percent"] = Field(description="Of what.")
    value: Annotated[int, Whole(1, MOST_REPLICAS)] = Field(description="So many.")
    period_seconds: Annotated[int, Whole(1, LONGEST_PERIOD_S)] = Field(
        description="Within this time."
    )

    def rule(self) -> HpaRule:
        period_s = float(self.period_seconds)
        if self.type == "Percent":
            return HpaRule(percent=self.value, period_s=period_s)
        return HpaRule(pods=self.value, period_s=period_s)


class HpaDirectionForm(ApiSection):
    """How fast a size may change in one direction."""

    stabilization_window_seconds: Annotated[int, Whole(0, LONGEST_WINDOW_S)] | None = Field(
        default=None, description="How long a recommendation counts."
    )
    select_policy: Literal["Max", "Min", "Disabled"] | None = Field(
        default=None, description="Which rule holds."
    )
    policies: list[HpaRuleForm] | None = Field(
        default=None, description="Left out: those of Kubernetes."
    )
    tolerance: Amount | None = Field(default=None, description="Left out: that of Kubernetes.")

    def direction(self, kind: type[D]) -> D:
        rules = {} if self.policies is None else {"rules": [one.rule() for one in self.policies]}
        return converted(kind, DIRECTION, self, **rules)


class HpaBehaviorForm(ApiSection):
    """How fast a size may change."""

    scale_up: HpaDirectionForm = Field(
        default_factory=HpaDirectionForm, description="More replicas."
    )
    scale_down: HpaDirectionForm = Field(
        default_factory=HpaDirectionForm, description="Fewer replicas."
    )

    def faults(self, path: KeyPath) -> Iterator[Fault]:
        for key, way in (("scaleUp", self.scale_up), ("scaleDown", self.scale_down)):
            if way.policies == []:
                yield Fault((*path, key, "policies"), "must specify at least one policy")
            low, high = limits_of(HpaSettings, "tolerance")
            if way.tolerance is not None and not low <= way.tolerance <= high:
                what = f"{way.tolerance:g} is no such tolerance"
                yield Fault((*path, key, "tolerance"), what, f"{low:g} to {high:g}")


class HpaForm(ApiSection):
    """What an HPA says."""

    scale_target_ref: Reference = Field(description="What is scaled.")
    min_replicas: Count = Field(default=1, description="The fewest replicas.")
    max_replicas: Most = Field(description="The most replicas.")
    metrics: list[HpaMetricForm] = Field(default_factory=list, description="The metrics.")
    behavior: HpaBehaviorForm = Field(default_factory=HpaBehaviorForm, description="How fast.")


class HorizontalPodAutoscaler(ManifestForm):
    """A whole HPA."""

    spec: HpaForm = Field(description="What it says.")

    def assignment(self, label: str, pools: PoolNames) -> tuple[Assignment | None, list[Fault]]:
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
        policy = HpaSettings(
            policy="hpa",
            metrics=metrics,
            up=spec.behavior.scale_up.direction(HpaUp),
            down=spec.behavior.scale_down.direction(HpaDown),
            pools={pool: PoolBounds(min=spec.min_replicas, max=spec.max_replicas)},
        )
        return Assignment(label, policy), []


def _metric(spec: HpaMetricForm, path: KeyPath) -> HpaMetric | Fault:
    key = spec.type.lower()
    if spec.type in ("Resource", "ContainerResource"):
        what = f"{spec.type} metrics are of the machine, and are not simulated"
        return Fault((*path, "type"), what, "Pods, Object or External")
    given: PodsMetricForm | None = getattr(spec, key)
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
    low, high = limits_of(HpaMetric, "target")
    if not low < amount <= high:
        what = "must be positive" if amount <= low else "it is not finite"
        return Fault(
            place, what if amount == math.inf or amount <= low else f"{amount:g} is too large"
        )
    if spec.type == "Pods":
        return HpaMetric(name=given.metric.name, target=amount, type=AVERAGE)
    kind = TOTAL if average else VALUE
    return HpaMetric(name=given.metric.name, target=amount, type=kind)
