"""Knative's Service, whose autoscaler is configured by annotations of its template."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field

from windtunnel.scaling.manifests.fields import (
    IN_TEXT,
    AnnotationForm,
    Becomes,
    Like,
    ScalingManifest,
    settings_of,
)
from windtunnel.scaling.manifests.names import ScenarioNames
from windtunnel.scaling.policies.hpa import HpaMetric, HpaSettings
from windtunnel.scaling.policies.knative import KnativeSettings
from windtunnel.scaling.settings import PolicySettings, PoolBounds, refusals
from windtunnel.settings.faults import Fault
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.manifests import AnyText, ManifestMetadata, Opaque
from windtunnel.settings.section import ApiSection, Context

INTERVAL_S = 2.0
WINDOW_S: Final[float] = KnativeSettings.model_fields["window_s"].default
TARGETS: Final = {"concurrency": 100.0, "rps": 200.0}
"""Default targets by metric."""
HPA_TARGET: Final = 80.0
"""Default target of an HPA, in percent of a resource."""
WEIGHTED: Final = "weighted-exponential"
Scale = Annotated[int, Like(PoolBounds, "max", IN_TEXT)]


class KnativeAnnotations(AnnotationForm, extra="forbid"):
    """The annotations of the autoscaler, without their prefix."""

    prefix: ClassVar[str] = "autoscaling.knative.dev/"

    class_: Literal["kpa.autoscaling.knative.dev", "hpa.autoscaling.knative.dev"] = Field(
        default="kpa.autoscaling.knative.dev",
        alias="class",
        description="Knative's own autoscaler, or an HPA.",
    )
    metric: AnyText | None = Field(
        default=None, description="The metric that is averaged; default: concurrency, or cpu."
    )
    target: Annotated[float, Becomes(KnativeSettings, "target", IN_TEXT)] | None = Field(
        default=None,
        description="Target of the metric per replica; default: 100 for concurrency, 200 for rps.",
    )
    target_utilization_percentage: (
        Annotated[float, Becomes(KnativeSettings, "utilization_percent", IN_TEXT)] | None
    ) = Field(default=None, description="Percentage of the target to aim at.")
    window: Annotated[float, Becomes(KnativeSettings, "window_s")] | None = Field(
        default=None, description="The stable window."
    )
    panic_window_percentage: (
        Annotated[float, Becomes(KnativeSettings, "panic_window_percent", IN_TEXT)] | None
    ) = Field(default=None, description="The panic window, as a percentage of the stable one.")
    panic_threshold_percentage: (
        Annotated[float, Becomes(KnativeSettings, "panic_threshold_percent", IN_TEXT)] | None
    ) = Field(default=None, description="Load that starts a panic, in percent of ready capacity.")
    scale_down_delay: Annotated[float, Becomes(KnativeSettings, "scale_down_delay_s")] | None = (
        Field(
            default=None,
            description="Window of recommendations; it shrinks to the highest of them.",
        )
    )
    activation_scale: (
        Annotated[int, Becomes(KnativeSettings, "activation_scale", IN_TEXT)] | None
    ) = Field(default=None, description="Fewest replicas under load.")
    min_scale: Scale = Field(default=0, description="Fewest replicas.")
    max_scale: Scale = Field(default=0, description="Most replicas; 0: any number.")
    initial_scale: Scale = Field(default=1, description="Not used: the pool sets its replicas.")
    target_burst_capacity: Annotated[float, IN_TEXT] = Field(
        default=0.0, description="Not used: nothing buffers in front of a pool."
    )
    metric_aggregation_algorithm: (
        Annotated[
            Literal["linear", "weighted-exponential"],
            Becomes(KnativeSettings, "aggregation"),
            BeforeValidator(lambda word: WEIGHTED if word == "weightedExponential" else word),
        ]
        | None
    ) = Field(default=None, description="How the values of a window are averaged.")
    scale_to_zero_pod_retention_period: (
        Annotated[float, Like(PolicySettings, "zero_after_s")] | None
    ) = Field(default=None, description="How long the last replica stays once it is not needed.")

    def check(self, where: Context) -> Iterator[Fault]:
        if self.max_scale and self.max_scale < self.min_scale:
            what = f"max-scale={self.max_scale} is less than min-scale={self.min_scale}"
            yield where.fault("max-scale", what)
        if self.by_hpa:
            written = "class" if self.metric is None else "metric"
            yield from refusals(where, written, self.hpa_metric, where.root.names)
        elif self.metric not in (None, *TARGETS):
            what = f"{self.metric!r} is not known here"
            yield where.fault("metric", what, ", ".join(TARGETS))

    @property
    def by_hpa(self) -> bool:
        return self.class_.startswith("hpa")

    def hpa_metric(self, names: ScenarioNames) -> str:
        """The metric that the HPA averages."""
        if self.metric in (None, "cpu", "memory"):
            return names.resource(self.metric or "cpu")
        return names.metric(str(self.metric))


class RevisionMetadata(ApiSection):
    """Metadata of each revision."""

    name: AnyText | None = Field(default=None, description="Not used.")
    labels: dict[str, AnyText] | None = Field(default=None, description="Not used.")
    annotations: dict[str, AnyText] = Field(
        default_factory=dict, description="Annotations of the autoscaler; others are ignored."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        yield from KnativeAnnotations.faults(self.annotations, where)


class RevisionForm(ApiSection):
    """The template of revisions."""

    metadata: RevisionMetadata = Field(
        default_factory=RevisionMetadata, description="Its annotations."
    )
    spec: Opaque = Field(default_factory=dict, description="Only `containerConcurrency` is read.")


class KnativeServiceForm(ApiSection):
    """The spec of a Knative Service."""

    template: RevisionForm = Field(description="The template of revisions.")
    traffic: list[Opaque] | None = Field(default=None, description="Not used.")


class ServiceMetadata(ManifestMetadata):
    """The name of the Service, which is that of its pool."""

    def check(self, where: Context) -> Iterator[Fault]:
        yield from refusals(where, "name", where.root.names.pool, self.name)


class KnativeService(ScalingManifest):
    """A Knative Service."""

    metadata: ServiceMetadata = Field(description="Its name.")
    spec: KnativeServiceForm = Field(description="The spec.")

    def policy(self, names: ScenarioNames) -> PolicySettings:
        read = KnativeAnnotations.of(self.spec.template.metadata.annotations)
        bounds = PoolBounds(min=read.min_scale, max=read.max_scale or MOST_REPLICAS)
        pools = {names.pool(self.metadata.name): bounds}
        if read.by_hpa:
            target = HPA_TARGET if read.target is None else read.target
            metrics = [HpaMetric(name=read.hpa_metric(names), target=target)]
            return HpaSettings(policy="hpa", metrics=metrics, pools=pools)
        metric = read.metric or "concurrency"
        target = TARGETS[metric] if read.target is None else read.target
        # A hard limit is also the target if no lower one is given, and may be fully used.
        hard = self.spec.template.spec.get("containerConcurrency", 0)
        if isinstance(hard, int) and hard > 0 and metric == "concurrency":
            target = min(target, float(hard))
        more = settings_of(read)
        retained_s = read.scale_to_zero_pod_retention_period
        if retained_s:  # counted from the end of the window without requests
            more["zero_after_s"] = retained_s + more.get("window_s", WINDOW_S)
        return KnativeSettings(
            policy="knative",
            interval_s=INTERVAL_S,
            pools=pools,
            metric=metric,
            **{**more, "target": target},
        )
