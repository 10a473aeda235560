"""Kubernetes' HorizontalPodAutoscaler, `autoscaling/v2`."""

from collections.abc import Iterator
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from windtunnel.scaling.manifests.fields import (
    QUANTITY,
    SECONDS,
    Becomes,
    Most,
    PoolReference,
    Reference,
    ScalingManifest,
    settings_of,
)
from windtunnel.scaling.manifests.names import ScenarioNames
from windtunnel.scaling.manifests.queries import DESIRED
from windtunnel.scaling.manifests.wva import (
    VariantAnnotations,
    VariantManifest,
    VariantMetadata,
    WvaVariant,
)
from windtunnel.scaling.metrics import metric
from windtunnel.scaling.policies.hpa import (
    TOTAL,
    VALUE,
    HpaDown,
    HpaMetric,
    HpaPace,
    HpaRule,
    HpaSettings,
    HpaUp,
)
from windtunnel.scaling.settings import PoolBounds, refusals
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Whole
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.manifests import AnyText, Count, Opaque
from windtunnel.settings.section import ApiSection, Context

CPU, USUAL_CPU_PERCENT = "cpu", 80.0
"""The metric of an HPA that names none, as in Kubernetes."""
AVERAGE_VALUE = "AverageValue"
TARGET_TYPES = {
    "Pods": (AVERAGE_VALUE,),
    "Object": (AVERAGE_VALUE, "Value"),
    "External": (AVERAGE_VALUE, "Value"),
    "Resource": ("Utilization", AVERAGE_VALUE),
    "ContainerResource": ("Utilization", AVERAGE_VALUE),
}
"""The target types that each metric type may have."""
TARGET_KEYS = {
    AVERAGE_VALUE: "averageValue",
    "Value": "value",
    "Utilization": "averageUtilization",
}
"""The key of the number, by target type."""
Target = Annotated[float, Becomes(HpaMetric, "target", QUANTITY)]
D = TypeVar("D", HpaUp, HpaDown)


class HpaMetricId(ApiSection):
    """The name of a metric."""

    name: AnyText = Field(description="Its name.")
    selector: Opaque | None = Field(
        default=None, description="Not used: the target has its own selector."
    )


class HpaTargetForm(ApiSection):
    """The target of a metric."""

    type: Literal["AverageValue", "Value", "Utilization"] = Field(
        description="The type of the target."
    )
    average_value: Target | None = Field(default=None, description="Per replica.")
    value: Target | None = Field(default=None, description="For all replicas together.")
    average_utilization: Annotated[int, Whole(1, 10**6)] | None = Field(
        default=None, description="For a resource: percent of a pod's request."
    )

    @property
    def number(self) -> float | None:
        """The number given for its type."""
        return {
            AVERAGE_VALUE: self.average_value,
            "Value": self.value,
            "Utilization": self.average_utilization,
        }[self.type]


class PodsMetricForm(ApiSection):
    """A metric averaged over all pods."""

    metric: HpaMetricId = Field(description="The metric.")
    target: HpaTargetForm = Field(description="Its target.")


class ObjectMetricForm(PodsMetricForm):
    """A metric of another object."""

    described_object: Reference | None = Field(default=None, description="Not used.")


class ResourceMetricForm(ApiSection):
    """A machine resource; the scenario says which metric replaces it."""

    name: AnyText = Field(description="Its name.")
    container: AnyText | None = Field(default=None, description="Not used.")
    target: HpaTargetForm = Field(description="Its target.")


class HpaMetricForm(ApiSection):
    """A metric of an HPA."""

    type: Literal["Pods", "Object", "External", "Resource", "ContainerResource"] = Field(
        description="The type of its source."
    )
    pods: PodsMetricForm | None = Field(default=None, description="For type Pods.")
    object: ObjectMetricForm | None = Field(default=None, description="For type Object.")
    external: PodsMetricForm | None = Field(default=None, description="For type External.")
    resource: ResourceMetricForm | None = Field(default=None, description="For type Resource.")
    container_resource: ResourceMetricForm | None = Field(
        default=None, description="For type ContainerResource."
    )

    @property
    def key(self) -> str:
        """The key of the source of its type."""
        return self.type[0].lower() + self.type[1:]

    @property
    def source(self) -> PodsMetricForm | ResourceMetricForm | None:
        """The source given for its type."""
        attribute = "container_resource" if self.type == "ContainerResource" else self.key
        found: PodsMetricForm | ResourceMetricForm | None = getattr(self, attribute)
        return found

    @property
    def by_wva(self) -> bool:
        """Whether WVA determines the size."""
        source = self.source
        return isinstance(source, PodsMetricForm) and source.metric.name in DESIRED

    def check(self, where: Context) -> Iterator[Fault]:
        source = self.source
        if source is None:
            yield where.fault(self.key, "missing", f"must populate the source of type {self.type}")
            return
        if not self.by_wva:
            resource = isinstance(source, ResourceMetricForm)
            place = (self.key, "name") if resource else (self.key, "metric", "name")
            yield from refusals(where, place, self._name, where.root.names)
        target, allowed = source.target, TARGET_TYPES[self.type]
        if target.type not in allowed:
            what = f"{target.type!r} is not known here"
            yield where.fault((self.key, "target", "type"), what, ", ".join(allowed))
        elif target.number is None:
            place = (self.key, "target", TARGET_KEYS[target.type])
            yield where.fault(place, "missing", QUANTITY.allowed)

    def _name(self, names: ScenarioNames) -> str:
        source = self.source
        assert source is not None
        if isinstance(source, ResourceMetricForm):
            return names.resource(source.name)
        return names.metric(source.metric.name)

    def metric(self, names: ScenarioNames) -> HpaMetric:
        assert self.source is not None
        name, target = self._name(names), self.source.target
        if self.type in ("Object", "External"):
            kind = TOTAL if target.type == AVERAGE_VALUE else VALUE
            natural = metric(name).natural
            return HpaMetric(name=name, type=kind, target=target.number, aggregate=natural)
        return HpaMetric(name=name, target=target.number)


class HpaRuleForm(ApiSection):
    """A change allowed within a period."""

    type: Literal["Pods", "Percent"] = Field(description="A number of pods, or a percentage.")
    value: Annotated[int, Whole(1, MOST_REPLICAS)] = Field(description="The number or percentage.")
    period_seconds: Annotated[float, Becomes(HpaRule, "period_s", SECONDS)] = Field(
        description="The period."
    )

    def rule(self) -> HpaRule:
        return HpaRule(**{self.type.lower(): self.value}, **settings_of(self))


class HpaDirectionForm(ApiSection):
    """How fast a size may change in one direction."""

    stabilization_window_seconds: Annotated[float, Becomes(HpaUp, "window_s", SECONDS)] | None = (
        Field(default=None, description="How long a recommendation counts.")
    )
    select_policy: Annotated[Literal["Max", "Min", "Disabled"], Becomes(HpaUp, "select")] | None = (
        Field(default=None, description="Which of the policies applies.")
    )
    policies: list[HpaRuleForm] | None = Field(
        default=None, description="The rules; default: those of Kubernetes."
    )
    tolerance: Annotated[float, Becomes(HpaUp, "tolerance", QUANTITY)] | None = Field(
        default=None, description="Tolerated deviation; default: that of Kubernetes."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if self.policies == []:
            yield where.fault("policies", "must specify at least one policy")

    def direction(self, kind: type[D]) -> D:
        rules = {} if self.policies is None else {"rules": [one.rule() for one in self.policies]}
        return kind(**settings_of(self), **rules)


class HpaBehaviorForm(ApiSection):
    """How fast a size may change."""

    scale_up: HpaDirectionForm = Field(
        default_factory=HpaDirectionForm, description="Limits on scaling up."
    )
    scale_down: HpaDirectionForm = Field(
        default_factory=HpaDirectionForm, description="Limits on scaling down."
    )

    def directions(self) -> dict[str, HpaUp | HpaDown]:
        """The directions as settings of an HPA."""
        return {
            "up": self.scale_up.direction(HpaUp),
            "down": self.scale_down.direction(HpaDown),
        }


class HpaForm(ApiSection):
    """The spec of an HPA."""

    scale_target_ref: PoolReference = Field(description="The object to scale.")
    min_replicas: Count = Field(default=1, description="Fewest replicas.")
    max_replicas: Most = Field(description="Most replicas.")
    metrics: list[HpaMetricForm] = Field(
        default_factory=list, description="The metrics; default: 80% of `cpu`, as in Kubernetes."
    )
    behavior: HpaBehaviorForm = Field(
        default_factory=HpaBehaviorForm, description="How fast the size may change."
    )

    @property
    def by_wva(self) -> bool:
        """Whether WVA determines the size."""
        return any(one.by_wva for one in self.metrics)

    @property
    def bounds(self) -> PoolBounds:
        return PoolBounds(min=self.min_replicas, max=self.max_replicas)

    def check(self, where: Context) -> Iterator[Fault]:
        if self.min_replicas > self.max_replicas:
            what = "must be greater than or equal to `minReplicas`"
            yield where.fault("maxReplicas", what)
        if not self.metrics:
            yield from refusals(where, "metrics", where.root.names.resource, CPU)
        if self.by_wva and len(self.metrics) > 1:
            what = f"other metrics beside {DESIRED[0]} are not simulated"
            yield where.fault("metrics", what)


class HorizontalPodAutoscaler(ScalingManifest, VariantManifest):
    """A HorizontalPodAutoscaler."""

    metadata: VariantMetadata = Field(description="Its name.")
    spec: HpaForm = Field(description="The spec.")

    def variant(self, names: ScenarioNames) -> WvaVariant | None:
        spec = self.spec
        if not spec.by_wva:
            return None
        pool, pace = names.pool(spec.scale_target_ref.name), spec.behavior.directions()
        cost = VariantAnnotations.of(self.metadata.annotations).variant_cost
        return WvaVariant(pool, spec.bounds, cost, HpaPace(**pace))

    def policy(self, names: ScenarioNames) -> HpaSettings:
        spec = self.spec
        if spec.metrics:
            metrics = [one.metric(names) for one in spec.metrics]
        else:
            metrics = [HpaMetric(name=names.resource(CPU), target=USUAL_CPU_PERCENT)]
        return HpaSettings(
            policy="hpa",
            metrics=metrics,
            pools={names.pool(spec.scale_target_ref.name): spec.bounds},
            **spec.behavior.directions(),
        )
