"""AIBrix' PodAutoscaler: its KPA and APA strategies, and the HPA that it creates."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from windtunnel.scaling.manifests.fields import (
    IN_TEXT,
    SECONDS,
    AnnotationForm,
    Becomes,
    Most,
    Reference,
    ScalingManifest,
    settings_of,
)
from windtunnel.scaling.manifests.names import ScenarioNames
from windtunnel.scaling.policies.aibrix import AibrixSettings
from windtunnel.scaling.policies.hpa import HpaDown, HpaMetric, HpaSettings, HpaUp
from windtunnel.scaling.settings import PolicySettings, PoolBounds, refusals
from windtunnel.settings.faults import Fault
from windtunnel.settings.manifests import AnyText, Count, ManifestMetadata, Opaque
from windtunnel.settings.section import ApiSection, Context

INTERVAL_S: Final = 10.0
Strategy = Literal["HPA", "KPA", "APA"]


class AibrixAnnotations(AnnotationForm):
    """The annotations that the controller reads, without their prefix; others are ignored."""

    prefix: ClassVar[str] = "autoscaling.aibrix.ai/"

    max_scale_up_rate: Annotated[float, Becomes(AibrixSettings, "max_up_rate", IN_TEXT)] | None = (
        Field(default=None, description="Largest growth factor.")
    )
    max_scale_down_rate: (
        Annotated[float, Becomes(AibrixSettings, "max_down_rate", IN_TEXT)] | None
    ) = Field(default=None, description="Largest shrink factor.")
    scale_up_tolerance: (
        Annotated[float, Becomes(AibrixSettings, "up_tolerance", IN_TEXT)] | None
    ) = Field(default=None, description="Tolerated deviation above a target.")
    scale_down_tolerance: (
        Annotated[float, Becomes(AibrixSettings, "down_tolerance", IN_TEXT)] | None
    ) = Field(default=None, description="Tolerated deviation below a target.")
    panic_threshold: (
        Annotated[float, Becomes(AibrixSettings, "panic_threshold", IN_TEXT)] | None
    ) = Field(default=None, description="Ratio of the two means that starts a panic.")
    scale_up_cooldown_window: Annotated[float, Becomes(AibrixSettings, "up_cooldown_s")] | None = (
        Field(default=None, description="Window of recommendations for scaling up.")
    )
    scale_down_cooldown_window: (
        Annotated[float, Becomes(AibrixSettings, "down_cooldown_s")] | None
    ) = Field(default=None, description="Window of recommendations for scaling down.")


class AibrixMetadata(ManifestMetadata):
    """Name and annotations, which configure scaling."""

    def check(self, where: Context) -> Iterator[Fault]:
        yield from AibrixAnnotations.faults(self.annotations, where)


class AibrixSourceForm(ApiSection):
    """A metric, its target, and its source."""

    metric_source_type: Literal["pod", "resource", "custom", "external", "domain"] = Field(
        description="From every pod, or one number for all."
    )
    protocol_type: AnyText | None = Field(default=None, description="Not used.")
    endpoint: AnyText | None = Field(default=None, description="Not used.")
    path: AnyText | None = Field(default=None, description="Not used.")
    port: AnyText | None = Field(default=None, description="Not used.")
    target_metric: AnyText = Field(description="The metric.")
    target_value: Annotated[float, Becomes(HpaMetric, "target", IN_TEXT)] = Field(
        description="The target."
    )

    @property
    def is_one_number(self) -> bool:
        return self.metric_source_type in ("external", "domain")

    def metric(self, names: ScenarioNames) -> str:
        """Maps it to a metric of the scenario."""
        find = names.resource if self.metric_source_type == "resource" else names.metric
        return find(self.target_metric)

    def check(self, where: Context) -> Iterator[Fault]:
        yield from refusals(where, "targetMetric", self.metric, where.root.names)


class SubTargetSelector(ApiSection):
    """The part of the target to scale."""

    role_name: AnyText = Field(default="", description="The name of its role.")


class PodAutoscalerForm(ApiSection):
    """The spec of a PodAutoscaler."""

    scale_target_ref: Reference = Field(description="The object to scale.")
    sub_target_selector: SubTargetSelector = Field(
        default_factory=SubTargetSelector,
        description="The part of it to scale; default: all of it.",
    )
    min_replicas: Count = Field(default=1, description="Fewest replicas.")
    max_replicas: Most = Field(description="Most replicas.")
    schedules: list[Opaque] | None = Field(
        default=None, description="Not used: a run has no time of day."
    )
    metrics_sources: list[AibrixSourceForm] = Field(
        min_length=1, max_length=32, description="The metrics."
    )
    observe_window_seconds: (
        Annotated[float, Becomes(AibrixSettings, "window_s", SECONDS)] | None
    ) = Field(default=None, description="Window of the means.")
    panic_window_seconds: (
        Annotated[float, Becomes(AibrixSettings, "panic_window_s", SECONDS)] | None
    ) = Field(default=None, description="Window of the means in a panic.")
    behavior: Opaque | None = Field(default=None, description="Not used by its controller.")
    scaling_strategy: Strategy = Field(description="HPA, KPA or APA.")

    def pool(self, names: ScenarioNames) -> str:
        return names.pool(self.scale_target_ref.name, self.sub_target_selector.role_name)

    def check(self, where: Context) -> Iterator[Fault]:
        yield from refusals(where, ("scaleTargetRef", "name"), self.pool, where.root.names)
        if self.min_replicas > self.max_replicas:
            what = f"{self.min_replicas} is more than maxReplicas, which is {self.max_replicas}"
            yield where.fault("minReplicas", what)


class PodAutoscaler(ScalingManifest):
    """AIBrix' PodAutoscaler."""

    metadata: AibrixMetadata = Field(description="Its name.")
    spec: PodAutoscalerForm = Field(description="The spec.")

    def notes(self, names: ScenarioNames) -> Iterator[str]:
        if self.spec.schedules:
            yield "schedules are not used: a run has no time of day"
        if self.spec.behavior:
            yield "behavior is not used by AIBrix' controller"

    def policy(self, names: ScenarioNames) -> PolicySettings:
        spec, own = self.spec, settings_of(AibrixAnnotations.of(self.metadata.annotations))
        shared: dict[str, Any] = {
            "pools": {spec.pool(names): PoolBounds(min=spec.min_replicas, max=spec.max_replicas)},
        }
        sources = [(one.metric(names), one) for one in spec.metrics_sources]
        if spec.scaling_strategy != "HPA":
            return AibrixSettings(
                policy="aibrix",
                strategy=spec.scaling_strategy,
                interval_s=INTERVAL_S,
                metrics={
                    name: one.target_value  # the lowest of several wins
                    for name, one in sorted(sources, key=lambda source: -source[1].target_value)
                },
                external=[name for name, one in sources if one.is_one_number],
                **shared,
                **settings_of(spec),
                **own,
            )
        # The HPA that it creates uses its cooldown windows.
        windows = {
            key: {"window_s": own[f"{key}_cooldown_s"]}
            for key in ("up", "down")
            if f"{key}_cooldown_s" in own
        }
        return HpaSettings(
            policy="hpa",
            metrics=[
                HpaMetric(
                    name=name,
                    target=one.target_value,
                    type="total" if one.is_one_number else "average",
                )
                for name, one in sources
            ],
            up=HpaUp(**windows.get("up", {})),
            down=HpaDown(**windows.get("down", {})),
            **shared,
        )
