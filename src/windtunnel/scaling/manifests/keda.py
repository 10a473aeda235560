"""KEDA's ScaledObject, and the objects of its HTTP add-on."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field
from pydantic.alias_generators import to_camel

from windtunnel.scaling.manifests.fields import (
    IN_TEXT,
    SECONDS,
    Becomes,
    Like,
    Most,
    PoolReference,
    ScalingManifest,
    Seconds,
    settings_of,
)
from windtunnel.scaling.manifests.hpa import HpaBehaviorForm
from windtunnel.scaling.manifests.names import ScenarioNames
from windtunnel.scaling.manifests.queries import DESIRED, QueriedMetric
from windtunnel.scaling.manifests.wva import (
    VariantAnnotations,
    VariantManifest,
    VariantMetadata,
    WvaVariant,
)
from windtunnel.scaling.metrics import SUM
from windtunnel.scaling.policies.hpa import TOTAL, VALUE, HpaDown, HpaPace, HpaUp
from windtunnel.scaling.policies.keda.policy import (
    FormulaOperand,
    KedaFormula,
    KedaMetric,
    KedaSchedule,
    KedaSettings,
    formula_of,
)
from windtunnel.scaling.settings import PoolBounds, refusals
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Flag, Whole
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.manifests import AnyText, Count, Manifest, Opaque
from windtunnel.settings.section import ApiSection, Context

PROMETHEUS = "prometheus"
CRON = "cron"
PUSH = "external-push"
RESOURCES = ("cpu", "memory")
Threshold = Annotated[float, Becomes(KedaMetric, "target", IN_TEXT)]
PAUSES = (
    "autoscaling.keda.sh/paused",
    "autoscaling.keda.sh/paused-replicas",
    "autoscaling.keda.sh/paused-scale-in",
    "autoscaling.keda.sh/paused-scale-out",
)


class QueryForm(ApiSection, extra="ignore"):
    """`metadata` of a trigger, without the connection settings of Prometheus."""

    query: AnyText | None = Field(default=None, description="The query.")
    metric_name: AnyText | None = Field(default=None, description="Its name in older releases.")
    threshold: Threshold | None = Field(
        default=None, description="The target, per replica or for all together."
    )
    value: Threshold | None = Field(default=None, description="The target of a resource.")
    activation_threshold: Annotated[float, Like(KedaSettings, "activation", IN_TEXT)] = Field(
        default=0.0, description="The trigger is active above this."
    )
    interceptor_route: AnyText | None = Field(
        default=None, description="For the HTTP add-on: the route whose requests are counted."
    )
    timezone: AnyText | None = Field(default=None, description="Time zone of a `cron` trigger.")
    start: AnyText | None = Field(default=None, description="When a `cron` trigger starts.")
    end: AnyText | None = Field(default=None, description="When a `cron` trigger ends.")
    desired_replicas: AnyText | None = Field(
        default=None, description="Fewest replicas between start and end."
    )


NEEDED = {
    PROMETHEUS: ("query", "threshold"),
    CRON: ("timezone", "start", "end", "desired_replicas"),
    PUSH: (),
    **dict.fromkeys(RESOURCES, ("value",)),
}
"""The keys that `metadata` must have, by trigger type."""


class TriggerForm(ApiSection):
    """A trigger."""

    type: AnyText = Field(
        description="A Prometheus query, a schedule, an HTTP route, or a machine resource."
    )
    name: AnyText | None = Field(
        default=None, description="A name by which the scenario may map it to a metric."
    )
    metric_type: Literal["AverageValue", "Value", "Utilization"] = Field(
        default="AverageValue",
        description="Whether `threshold` is per replica or for all together.",
    )
    metadata: QueryForm = Field(description="The query or schedule, and its target.")
    use_cached_metrics: Annotated[bool, Flag()] = Field(default=False, description="Not used.")
    authentication_ref: Opaque | None = Field(default=None, description="Not used.")

    def check(self, where: Context) -> Iterator[Fault]:
        route = self.metadata.interceptor_route
        if self.type not in NEEDED or (self.type == PUSH and route is None):
            what = f"{self.type!r} asks for something that is not simulated"
            resources = " and ".join(RESOURCES)
            allowed = (
                f"{PROMETHEUS}, {CRON}, {PUSH} with an interceptorRoute; "
                f"{resources} with scaling.metrics"
            )
            yield where.fault("type", what, allowed)
            return
        missing = [key for key in NEEDED[self.type] if getattr(self.metadata, key) is None]
        for key in missing:
            allowed = IN_TEXT.allowed if key in ("threshold", "value") else "text"
            yield where.fault(("metadata", to_camel(key)), "missing", allowed)
        if not missing and self.type == CRON:
            count = self.metadata.desired_replicas or ""
            if not count.isascii() or not count.isdecimal() or not 0 < int(count) <= MOST_REPLICAS:
                what, allowed = f"{count!r} is not a number of replicas", f"1 to {MOST_REPLICAS}"
                yield where.fault(("metadata", "desiredReplicas"), what, allowed)
                return
            yield from self.schedule().check(where.inside("metadata"))
        elif route is not None and self.type == PUSH:
            yield from refusals(
                where, ("metadata", "interceptorRoute"), where.root.names.route, route
            )
        elif not missing:
            place = ("metadata", "query") if self.type == PROMETHEUS else ("type",)
            yield from refusals(where, place, self.queried, where.root.names)

    def queried(self, names: ScenarioNames) -> QueriedMetric:
        """The metric that it asks for."""
        if self.type in RESOURCES:
            return QueriedMetric(names.resource(self.type), SUM)
        assert self.metadata.query is not None
        return names.query(self.metadata.query, self.name or self.metadata.metric_name)

    def schedule(self) -> KedaSchedule:
        """The schedule of a `cron` trigger."""
        about = self.metadata
        return KedaSchedule(
            start=about.start or "",
            end=about.end or "",
            timezone=about.timezone or "",
            replicas=int(about.desired_replicas or 1),
        )

    def metrics(self, names: ScenarioNames) -> list[KedaMetric]:
        """The metrics with their targets; a route of the HTTP add-on may have two."""
        if self.type != PUSH:
            return [self._metric(names)]
        kind = VALUE if self.metric_type == "Value" else TOTAL
        targets = names.route(self.metadata.interceptor_route or "")
        return [
            KedaMetric(name=name, target=target, type=kind, activation=0.0)
            for name, target in targets.items()
        ]

    def _metric(self, names: ScenarioNames) -> KedaMetric:
        found, about = self.queried(names), self.metadata
        return KedaMetric(
            name=found.name,
            aggregate=found.aggregate,
            target=about.value if self.type in RESOURCES else about.threshold,
            type=VALUE if self.metric_type == "Value" else TOTAL,
            activation=self.metadata.activation_threshold,
            above=found.above,
        )


class HpaConfigForm(ApiSection):
    """Settings of the HPA that KEDA creates."""

    name: AnyText | None = Field(default=None, description="Not used.")
    behavior: HpaBehaviorForm = Field(
        default_factory=HpaBehaviorForm, description="How fast the size may change."
    )


class ModifiersForm(ApiSection):
    """A metric computed from those of triggers."""

    formula: AnyText | None = Field(default=None, description="The formula; default: none.")
    target: Annotated[float, Becomes(KedaFormula, "target", IN_TEXT)] | None = Field(
        default=None, description="The target, per replica or for all together."
    )
    activation_target: Annotated[float, Becomes(KedaFormula, "activation", IN_TEXT)] = Field(
        default=0.0, description="The computed metric is active above this."
    )
    metric_type: Literal["AverageValue", "Value"] = Field(
        default="AverageValue", description="Whether `target` is per replica or for all together."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if self.formula and self.target is None:
            yield where.fault("target", "missing", IN_TEXT.allowed)


class AdvancedForm(ApiSection):
    """Advanced settings."""

    scaling_modifiers: ModifiersForm = Field(
        default_factory=ModifiersForm, description="A metric computed from others."
    )
    restore_to_original_replica_count: Annotated[bool, Flag()] = Field(
        default=False, description="Not used: nothing is deleted."
    )
    horizontal_pod_autoscaler_config: HpaConfigForm = Field(
        default_factory=HpaConfigForm, description="Settings of the HPA."
    )


class ScaledReference(PoolReference):
    """A reference to the scaled object."""

    env_source_container_name: AnyText | None = Field(default=None, description="Not used.")


class ScaledObjectForm(ApiSection):
    """The spec of a ScaledObject."""

    scale_target_ref: ScaledReference = Field(description="The object to scale.")
    polling_interval: Seconds = Field(
        default=30, description="Not used: its HPA decides more often."
    )
    cooldown_period: Annotated[float, Becomes(KedaSettings, "cooldown_s", SECONDS)] | None = Field(
        default=None, description="Inactive time before it scales to zero."
    )
    initial_cooldown_period: Seconds = Field(default=0, description="Not used.")
    idle_replica_count: Annotated[int, Becomes(KedaSettings, "idle")] | None = Field(
        default=None, description="Replicas while no trigger is active."
    )
    min_replica_count: Count = Field(default=0, description="Fewest replicas.")
    max_replica_count: Most = Field(default=100, description="Most replicas.")
    fallback: Opaque | None = Field(default=None, description="Not used: metrics never fail here.")
    advanced: AdvancedForm = Field(default_factory=AdvancedForm, description="Advanced settings.")
    triggers: list[TriggerForm] = Field(min_length=1, max_length=32, description="The triggers.")

    def of(self, *types: str) -> list[TriggerForm]:
        """The triggers of these types."""
        return [one for one in self.triggers if one.type in types]

    def by_wva(self, names: ScenarioNames) -> bool:
        """Whether WVA determines the size."""
        return any(one.queried(names).name in DESIRED for one in self.of(PROMETHEUS, *RESOURCES))

    def computed(self, names: ScenarioNames) -> KedaFormula | None:
        """The computed metric, which replaces those of all Prometheus triggers."""
        how = self.advanced.scaling_modifiers
        if not how.formula:
            return None
        named = {one.name: one.queried(names) for one in self.of(PROMETHEUS) if one.name}
        of = {
            name: FormulaOperand(metric=one.name, aggregate=one.aggregate, above=one.above)
            for name, one in named.items()
        }
        kind = VALUE if how.metric_type == "Value" else TOTAL
        return KedaFormula(formula=how.formula, of=of, type=kind, **settings_of(how))

    @property
    def bounds(self) -> PoolBounds:
        fewest = self.min_replica_count
        if self.idle_replica_count is not None:
            fewest = self.idle_replica_count
        return PoolBounds(min=fewest, max=self.max_replica_count)

    def directions(self) -> dict[str, HpaUp | HpaDown]:
        return self.advanced.horizontal_pod_autoscaler_config.behavior.directions()

    def check(self, where: Context) -> Iterator[Fault]:
        least, most, idle = self.min_replica_count, self.max_replica_count, self.idle_replica_count
        if least > most:
            what = f"MinReplicaCount={least} must be less than MaxReplicaCount={most}"
            yield where.fault("minReplicaCount", what)
        if idle is not None and idle >= least:
            what = f"IdleReplicaCount={idle} must be less than MinReplicaCount={least}"
            yield where.fault("idleReplicaCount", what)
        formula = self.advanced.scaling_modifiers.formula
        if formula:
            place = ("advanced", "scalingModifiers", "formula")
            named = [one.name for one in self.of(PROMETHEUS) if one.name]
            yield from refusals(where, place, formula_of, formula, named)
            for number, one in enumerate(self.triggers):
                if one.type in (CRON, PUSH):
                    what = f"{one.type!r} beside a formula is not simulated"
                    yield where.fault(("triggers", number, "type"), what)


class PausableMetadata(VariantMetadata):
    """Name, and annotations that may pause it."""

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        for name in self.annotations or {}:
            if name in PAUSES:
                what = "a paused object scales nothing"
                yield where.fault(("annotations", name), what, hint="leave it out")


class ScaledObject(ScalingManifest, VariantManifest):
    """A ScaledObject."""

    metadata: PausableMetadata = Field(description="Its name.")
    spec: ScaledObjectForm = Field(description="The spec.")

    def notes(self, names: ScenarioNames) -> Iterator[str]:
        asked = (one.queried(names) for one in self.spec.of(PROMETHEUS, *RESOURCES))
        return filter(None, (one.note for one in asked))

    def variant(self, names: ScenarioNames) -> WvaVariant | None:
        spec = self.spec
        if not spec.by_wva(names):
            return None
        pool = names.pool(spec.scale_target_ref.name)
        cost = VariantAnnotations.of(self.metadata.annotations).variant_cost
        return WvaVariant(pool, spec.bounds, cost, HpaPace(**spec.directions()))

    def policy(self, names: ScenarioNames) -> KedaSettings:
        spec = self.spec
        computed = spec.computed(names)
        measured = spec.of(*RESOURCES) if computed else spec.of(PROMETHEUS, PUSH, *RESOURCES)
        return KedaSettings(
            policy="keda",
            metrics=[metric for one in measured for metric in one.metrics(names)],
            schedules=[one.schedule() for one in spec.of(CRON)],
            formula=computed,
            least=max(spec.min_replica_count, 1),
            pools={names.pool(spec.scale_target_ref.name): spec.bounds},
            **settings_of(spec),
            **spec.directions(),
        )


class RouteTargetForm(ApiSection, extra="ignore"):
    """The target per replica; averaging of rates is ignored."""

    target_value: Annotated[float, Becomes(KedaMetric, "target")] = Field(
        description="Target per replica."
    )


class RouteMetricForm(ApiSection):
    """The scaling metrics: one of the two, or both."""

    concurrency: RouteTargetForm | None = Field(default=None, description="Concurrent requests.")
    request_rate: RouteTargetForm | None = Field(default=None, description="Requests per second.")

    def check(self, where: Context) -> Iterator[Fault]:
        if self.concurrency is None and self.request_rate is None:
            yield where.fault((), "at least one of 'concurrency' or 'requestRate' must be set")


class InterceptorRouteForm(ApiSection, extra="ignore"):
    """The scaling part of an InterceptorRoute; its routing is ignored."""

    scaling_metric: RouteMetricForm = Field(description="The metric to scale by.")

    def targets(self) -> dict[str, float]:
        """The target per replica, by metric."""
        asks = self.scaling_metric
        found = {"concurrency": asks.concurrency, "request_rate": asks.request_rate}
        return {name: one.target_value for name, one in found.items() if one is not None}


class InterceptorRoute(Manifest):
    """A route of the HTTP add-on; a ScaledObject scales by the requests counted on it."""

    spec: InterceptorRouteForm = Field(description="The spec.")


class HttpTargetForm(RouteTargetForm):
    """The target per replica, with a default."""

    target_value: Annotated[float, Becomes(KedaMetric, "target")] = Field(
        default=100.0, description="Target per replica."
    )


class HttpMetricForm(ApiSection):
    """The scaling metric: one of the two."""

    concurrency: HttpTargetForm | None = Field(default=None, description="Concurrent requests.")
    request_rate: HttpTargetForm | None = Field(default=None, description="Requests per second.")

    def check(self, where: Context) -> Iterator[Fault]:
        if (self.concurrency is None) == (self.request_rate is None):
            yield where.fault((), "must have one metric", "concurrency or requestRate")


class HttpReplicasForm(ApiSection):
    """Minimum and maximum replicas."""

    min: Count = Field(default=0, description="Fewest replicas.")
    max: Most = Field(default=100, description="Most replicas.")

    def check(self, where: Context) -> Iterator[Fault]:
        if self.min > self.max:
            yield where.fault("min", f"{self.min} is more than max, which is {self.max}")


class HttpScaledReference(PoolReference):
    """A reference to the scaled object and its service."""

    service: AnyText | None = Field(default=None, description="Not used.")
    port: Annotated[int, Whole(0, 65535)] = Field(default=0, description="Not used.")
    port_name: AnyText | None = Field(default=None, description="Not used.")


class HttpScaledObjectForm(ApiSection, extra="ignore"):
    """The scaling part of an HTTPScaledObject; its routing is ignored."""

    scale_target_ref: HttpScaledReference = Field(description="The object to scale.")
    replicas: HttpReplicasForm = Field(
        default_factory=HttpReplicasForm, description="Minimum and maximum replicas."
    )
    scaling_metric: HttpMetricForm = Field(
        default_factory=lambda: HttpMetricForm(concurrency=HttpTargetForm()),
        description="The metric to scale by; default: 100 concurrent requests.",
    )
    scaledown_period: Annotated[float, Becomes(KedaSettings, "cooldown_s", SECONDS)] | None = Field(
        default=None, description="Inactive time before it scales to zero."
    )


class HttpScaledObject(ScalingManifest):
    """An HTTPScaledObject: the HTTP add-on counts requests, and KEDA scales by them."""

    spec: HttpScaledObjectForm = Field(description="The spec.")

    def policy(self, names: ScenarioNames) -> KedaSettings:
        spec = self.spec
        name, target = "concurrency", spec.scaling_metric.concurrency
        if target is None:
            name, target = "request_rate", spec.scaling_metric.request_rate
        assert target is not None
        bounds = PoolBounds(min=spec.replicas.min, max=spec.replicas.max)
        return KedaSettings(
            policy="keda",
            metrics=[KedaMetric(name=name, target=target.target_value, type=TOTAL)],
            least=max(spec.replicas.min, 1),
            pools={names.pool(spec.scale_target_ref.name): bounds},
            **settings_of(spec),
        )
