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
from windtunnel.scaling.manifests.pools import PoolNames
from windtunnel.scaling.manifests.queries import DESIRED
from windtunnel.scaling.manifests.wva import (
    Variant,
    VariantAnnotations,
    VariantManifest,
    VariantMetadata,
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

MACHINE = ("Resource", "ContainerResource")
AVERAGE_VALUE = "AverageValue"
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

    @property
    def source(self) -> PodsMetricForm | None:
        """What is given for its type."""
        found: PodsMetricForm | None = getattr(self, self.type.lower())
        return found

    def check(self, where: Context) -> Iterator[Fault]:
        if self.type in MACHINE:
            what = f"{self.type} metrics are of the machine, and are not simulated"
            yield where.fault("type", what, "Pods, Object or External")
            return
        key, source = self.type.lower(), self.source
        if source is None:
            yield where.fault(key, "missing", f"must populate the source of type {self.type}")
            return
        if source.metric.name != DESIRED:
            yield from refusals(where, (key, "metric", "name"), metric, source.metric.name)
        target = source.target
        if target.type == "Utilization" or (self.type == "Pods" and target.type != AVERAGE_VALUE):
            allowed = AVERAGE_VALUE if self.type == "Pods" else f"{AVERAGE_VALUE}, Value"
            what = f"{target.type!r} is not known here"
            yield where.fault((key, "target", "type"), what, allowed)
            return
        place = "averageValue" if target.type == AVERAGE_VALUE else "value"
        if (target.average_value if target.type == AVERAGE_VALUE else target.value) is None:
            yield where.fault((key, "target", place), "missing", QUANTITY.allowed)

    def metric(self) -> HpaMetric:
        assert self.source is not None
        target = self.source.target
        name, average = self.source.metric.name, target.type == AVERAGE_VALUE
        if self.type == "Pods":
            return HpaMetric(name=name, target=target.average_value)
        return HpaMetric(
            name=name,
            type=TOTAL if average else VALUE,
            target=target.average_value if average else target.value,
            aggregate=metric(name).natural,
        )


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
        default=None, description="Left out: those of Kubernetes."
    )
    tolerance: Annotated[float, Becomes(HpaUp, "tolerance", QUANTITY)] | None = Field(
        default=None, description="Left out: that of Kubernetes."
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
    max_replicas: Most = Field(description="The most replicas.")
    metrics: list[HpaMetricForm] = Field(default_factory=list, description="The metrics.")
    behavior: HpaBehaviorForm = Field(default_factory=HpaBehaviorForm, description="How fast.")

    @property
    def by_wva(self) -> bool:
        """Whether WVA says how many."""
        sources = (one.source for one in self.metrics if one.type not in MACHINE)
        return any(one is not None and one.metric.name == DESIRED for one in sources)

    @property
    def bounds(self) -> PoolBounds:
        return PoolBounds(min=self.min_replicas, max=self.max_replicas)

    def check(self, where: Context) -> Iterator[Fault]:
        if self.min_replicas > self.max_replicas:
            what = "must be greater than or equal to `minReplicas`"
            yield where.fault("maxReplicas", what)
        if not self.metrics:
            what = "without metrics it is by CPU, which is not simulated"
            yield where.fault("metrics", what, "at least one metric")
        if self.by_wva and len(self.metrics) > 1:
            what = f"other metrics beside {DESIRED} are not simulated"
            yield where.fault("metrics", what)


class HorizontalPodAutoscaler(ScalingManifest, VariantManifest):
    """A whole HPA."""

    metadata: VariantMetadata = Field(description="Who it is.")
    spec: HpaForm = Field(description="What it says.")

    def variant(self, pools: PoolNames) -> Variant | None:
        spec = self.spec
        if not spec.by_wva:
            return None
        pool, pace = pools.find(spec.scale_target_ref.name), spec.behavior.directions()
        cost = VariantAnnotations.of(self.metadata.annotations).variant_cost
        return Variant(pool, spec.bounds, cost, HpaPace(**pace))

    def policy(self, pools: PoolNames) -> HpaSettings:
        spec = self.spec
        return HpaSettings(
            policy="hpa",
            metrics=[one.metric() for one in spec.metrics],
            pools={pools.find(spec.scale_target_ref.name): spec.bounds},
            **spec.behavior.directions(),
        )
