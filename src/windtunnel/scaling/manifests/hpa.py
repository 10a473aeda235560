"""Kubernetes' HorizontalPodAutoscaler, `autoscaling/v2`, as its users write it."""

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
"""What Kubernetes scales by where an HPA names no metric."""
AVERAGE_VALUE = "AverageValue"
TARGET_TYPES = {
    "Pods": (AVERAGE_VALUE,),
    "Object": (AVERAGE_VALUE, "Value"),
    "External": (AVERAGE_VALUE, "Value"),
    "Resource": ("Utilization", AVERAGE_VALUE),
    "ContainerResource": ("Utilization", AVERAGE_VALUE),
}
"""Types of a metric, and of the targets that it may have."""
TARGET_KEYS = {
    AVERAGE_VALUE: "averageValue",
    "Value": "value",
    "Utilization": "averageUtilization",
}
"""Types of a target, and the key of its number."""
Target = Annotated[float, Becomes(HpaMetric, "target", QUANTITY)]
D = TypeVar("D", HpaUp, HpaDown)


class HpaMetricId(ApiSection):
    """Which metric."""

    name: AnyText = Field(description="Its name.")
    selector: Opaque | None = Field(default=None, description="Not used: the target has its own.")


class HpaTargetForm(ApiSection):
    """What a metric should be."""

    type: Literal["AverageValue", "Value", "Utilization"] = Field(description="Of what.")
    average_value: Target | None = Field(default=None, description="Of one replica.")
    value: Target | None = Field(default=None, description="Of all replicas.")
    average_utilization: Annotated[int, Whole(1, 10**6)] | None = Field(
        default=None, description="Of a resource: percent of what a pod requests."
    )

    @property
    def number(self) -> float | None:
        """What is given for its type."""
        return {
            AVERAGE_VALUE: self.average_value,
            "Value": self.value,
            "Utilization": self.average_utilization,
        }[self.type]


class PodsMetricForm(ApiSection):
    """The mean of all pods."""

    metric: HpaMetricId = Field(description="Which metric.")
    target: HpaTargetForm = Field(description="What it should be.")


class ObjectMetricForm(PodsMetricForm):
    """A number of another object."""

    described_object: Reference | None = Field(default=None, description="Not used.")


class ResourceMetricForm(ApiSection):
    """A resource of the machine; the scenario says which metric takes its place."""

    name: AnyText = Field(description="Its name.")
    container: AnyText | None = Field(default=None, description="Not used.")
    target: HpaTargetForm = Field(description="What it should be.")


class HpaMetricForm(ApiSection):
    """A metric of an HPA."""

    type: Literal["Pods", "Object", "External", "Resource", "ContainerResource"] = Field(
        description="Where it comes from."
    )
    pods: PodsMetricForm | None = Field(default=None, description="Of type Pods.")
    object: ObjectMetricForm | None = Field(default=None, description="Of type Object.")
    external: PodsMetricForm | None = Field(default=None, description="Of type External.")
    resource: ResourceMetricForm | None = Field(default=None, description="Of its type.")
    container_resource: ResourceMetricForm | None = Field(default=None, description="Of its type.")

    @property
    def key(self) -> str:
        """Where the source of its type is written."""
        return self.type[0].lower() + self.type[1:]

    @property
    def source(self) -> PodsMetricForm | ResourceMetricForm | None:
        """What is given for its type."""
        attribute = "container_resource" if self.type == "ContainerResource" else self.key
        found: PodsMetricForm | ResourceMetricForm | None = getattr(self, attribute)
        return found

    @property
    def by_wva(self) -> bool:
        """Whether WVA says how many."""
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
    """A step that is allowed within a period."""

    type: Literal["Pods", "Percent"] = Field(description="Of what.")
    value: Annotated[int, Whole(1, MOST_REPLICAS)] = Field(description="So many.")
    period_seconds: Annotated[float, Becomes(HpaRule, "period_s", SECONDS)] = Field(
        description="Within this time."
    )

    def rule(self) -> HpaRule:
        return HpaRule(**{self.type.lower(): self.value}, **settings_of(self))


class HpaDirectionForm(ApiSection):
    """How fast a size may change in one direction."""

    stabilization_window_seconds: Annotated[float, Becomes(HpaUp, "window_s", SECONDS)] | None = (
        Field(default=None, description="How long a recommendation counts.")
    )
    select_policy: Annotated[Literal["Max", "Min", "Disabled"], Becomes(HpaUp, "select")] | None = (
        Field(default=None, description="Which rule holds.")
    )
    policies: list[HpaRuleForm] | None = Field(
        default=None, description="Default: those of Kubernetes."
    )
    tolerance: Annotated[float, Becomes(HpaUp, "tolerance", QUANTITY)] | None = Field(
        default=None, description="Default: that of Kubernetes."
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
        default_factory=HpaDirectionForm, description="More replicas."
    )
    scale_down: HpaDirectionForm = Field(
        default_factory=HpaDirectionForm, description="Fewer replicas."
    )

    def directions(self) -> dict[str, HpaUp | HpaDown]:
        """As settings of an HPA have them."""
        return {
            "up": self.scale_up.direction(HpaUp),
            "down": self.scale_down.direction(HpaDown),
        }


class HpaForm(ApiSection):
    """What an HPA says."""

    scale_target_ref: PoolReference = Field(description="What is scaled.")
    min_replicas: Count = Field(default=1, description="The fewest replicas.")
    max_replicas: Most = Field(description="Most replicas.")
    metrics: list[HpaMetricForm] = Field(
        default_factory=list, description="The metrics; default: 80% of `cpu`, as in Kubernetes."
    )
    behavior: HpaBehaviorForm = Field(default_factory=HpaBehaviorForm, description="How fast.")

    @property
    def by_wva(self) -> bool:
        """Whether WVA says how many."""
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
    """A whole HPA."""

    metadata: VariantMetadata = Field(description="Its name.")
    spec: HpaForm = Field(description="What it says.")

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
