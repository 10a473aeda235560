"""Knative's Service: its autoscaler is set by the annotations of the template."""

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
"""Metrics, and the targets that they have by default."""
HPA_TARGET: Final = 80.0
"""Percent of a resource, where no target is written."""
WEIGHTED: Final = "weighted-exponential"
Scale = Annotated[int, Like(PoolBounds, "max", IN_TEXT)]


class KnativeAnnotations(AnnotationForm, extra="forbid"):
    """The annotations of the autoscaler, without their prefix."""

    prefix: ClassVar[str] = "autoscaling.knative.dev/"

    class_: Literal["kpa.autoscaling.knative.dev", "hpa.autoscaling.knative.dev"] = Field(
        default="kpa.autoscaling.knative.dev",
        alias="class",
        description="Knative's own, or an HPA.",
    )
    metric: AnyText | None = Field(
        default=None, description="The metric that is averaged; default: concurrency, or cpu."
    )
    target: Annotated[float, Becomes(KnativeSettings, "target", IN_TEXT)] | None = Field(
        default=None, description="Default: 100 of concurrency, 200 of rps."
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
    ) = Field(default=None, description="Load that starts a panic.")
    scale_down_delay: Annotated[float, Becomes(KnativeSettings, "scale_down_delay_s")] | None = (
        Field(default=None, description="Window of recommendations before it shrinks.")
    )
    activation_scale: (
        Annotated[int, Becomes(KnativeSettings, "activation_scale", IN_TEXT)] | None
    ) = Field(default=None, description="The fewest replicas under any load.")
    min_scale: Scale = Field(default=0, description="The fewest replicas.")
    max_scale: Scale = Field(default=0, description="The most replicas; 0: any number.")
    initial_scale: Scale = Field(default=1, description="Not used: the pool has its replicas.")
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
    ) = Field(default=None, description="How the numbers of a window become one.")
    scale_to_zero_pod_retention_period: (
        Annotated[float, Like(PolicySettings, "zero_after_s")] | None
    ) = Field(default=None, description="How long the last replica stays after it could go.")

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
        """What the HPA averages."""
        if self.metric in (None, "cpu", "memory"):
            return names.resource(self.metric or "cpu")
        return names.metric(str(self.metric))


class RevisionMetadata(ApiSection):
    """What is said of each revision."""

    name: AnyText | None = Field(default=None, description="Not used.")
    labels: dict[str, AnyText] | None = Field(default=None, description="Not used.")
    annotations: dict[str, AnyText] = Field(
        default_factory=dict, description="Those of the autoscaler are read."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        yield from KnativeAnnotations.faults(self.annotations, where)


class RevisionForm(ApiSection):
    """What a revision is."""

    metadata: RevisionMetadata = Field(
        default_factory=RevisionMetadata, description="Its annotations."
    )
    spec: Opaque = Field(
        default_factory=dict, description="Only `containerConcurrency` of it is read."
    )


class KnativeServiceForm(ApiSection):
    """What a Service of Knative says."""

    template: RevisionForm = Field(description="What a revision is.")
    traffic: list[Opaque] | None = Field(default=None, description="Not used.")


class ServiceMetadata(ManifestMetadata):
    """Name of the service: that of its pool."""

    def check(self, where: Context) -> Iterator[Fault]:
        yield from refusals(where, "name", where.root.names.pool, self.name)


class KnativeService(ScalingManifest):
    """A Service of Knative."""

    metadata: ServiceMetadata = Field(description="Its name.")
    spec: KnativeServiceForm = Field(description="What it says.")

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
        # A hard limit is the target, too, where no lower one is written, and is filled to the brim.
        hard = self.spec.template.spec.get("containerConcurrency", 0)
        if isinstance(hard, int) and hard > 0 and metric == "concurrency":
            target = min(target, float(hard))
        more = settings_of(read)
        retained_s = read.scale_to_zero_pod_retention_period
        if retained_s:  # counted from the end of the window in which nothing came
            more["zero_after_s"] = retained_s + more.get("window_s", WINDOW_S)
        return KnativeSettings(
            policy="knative",
            interval_s=INTERVAL_S,
            pools=pools,
            metric=metric,
            **{**more, "target": target},
        )
