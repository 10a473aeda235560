"""KEDA's ScaledObject, as its users write it; its triggers are queries of Prometheus."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

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
from windtunnel.scaling.manifests.pools import PoolNames
from windtunnel.scaling.manifests.queries import DESIRED, asked
from windtunnel.scaling.manifests.wva import (
    Variant,
    VariantAnnotations,
    VariantManifest,
    VariantMetadata,
)
from windtunnel.scaling.policies.hpa import TOTAL, VALUE, HpaDown, HpaPace, HpaUp
from windtunnel.scaling.policies.keda import KedaMetric, KedaSettings
from windtunnel.scaling.settings import PoolBounds, refusals
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Flag
from windtunnel.settings.manifests import AnyText, Count, Opaque
from windtunnel.settings.section import ApiSection, Context

PAUSES = (
    "autoscaling.keda.sh/paused",
    "autoscaling.keda.sh/paused-replicas",
    "autoscaling.keda.sh/paused-scale-in",
    "autoscaling.keda.sh/paused-scale-out",
)


class QueryForm(ApiSection, extra="ignore"):
    """`metadata` of a Prometheus trigger, without what says how the server is asked."""

    query: AnyText = Field(description="The query.")
    threshold: Annotated[float, Becomes(KedaMetric, "target", IN_TEXT)] = Field(
        description="Of one replica, or of all."
    )
    activation_threshold: Annotated[float, Like(KedaSettings, "activation", IN_TEXT)] = Field(
        default=0.0, description="It is active above this."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        yield from refusals(where, "query", asked, self.query)


class TriggerForm(ApiSection):
    """Something that asks for replicas."""

    type: Literal["prometheus"] = Field(description="No other is simulated.")
    name: AnyText | None = Field(default=None, description="Not used.")
    metric_type: Literal["AverageValue", "Value"] = Field(
        default="AverageValue", description="Whether `threshold` is of one replica or of all."
    )
    metadata: QueryForm = Field(description="query, threshold, activationThreshold.")
    use_cached_metrics: Annotated[bool, Flag()] = Field(default=False, description="Not used.")
    authentication_ref: Opaque | None = Field(default=None, description="Not used.")

    def metric(self) -> KedaMetric:
        found = asked(self.metadata.query)
        return KedaMetric(
            name=found.name,
            aggregate=found.aggregate,
            target=self.metadata.threshold,
            type=TOTAL if self.metric_type == "AverageValue" else VALUE,
            activation=self.metadata.activation_threshold,
        )


class HpaConfigForm(ApiSection):
    """What is said to the HPA."""

    name: AnyText | None = Field(default=None, description="Not used.")
    behavior: HpaBehaviorForm = Field(default_factory=HpaBehaviorForm, description="How fast.")


class AdvancedForm(ApiSection):
    """More of it."""

    to_come: ClassVar[tuple[str, ...]] = ("scalingModifiers",)

    restore_to_original_replica_count: Annotated[bool, Flag()] = Field(
        default=False, description="Not used: nothing is deleted."
    )
    horizontal_pod_autoscaler_config: HpaConfigForm = Field(
        default_factory=HpaConfigForm, description="What is said to the HPA."
    )


class ScaledReference(PoolReference):
    """What is scaled."""

    env_source_container_name: AnyText | None = Field(default=None, description="Not used.")


class ScaledObjectForm(ApiSection):
    """What a ScaledObject says."""

    scale_target_ref: ScaledReference = Field(description="What is scaled.")
    polling_interval: Seconds = Field(default=30, description="Not used: its HPA looks more often.")
    cooldown_period: Annotated[float, Becomes(KedaSettings, "cooldown_s", SECONDS)] | None = Field(
        default=None, description="How long it stays before zero."
    )
    initial_cooldown_period: Seconds = Field(default=0, description="Not used.")
    idle_replica_count: Annotated[int, Becomes(KedaSettings, "idle")] | None = Field(
        default=None, description="While nothing is active."
    )
    min_replica_count: Count = Field(default=0, description="The fewest replicas.")
    max_replica_count: Most = Field(default=100, description="The most replicas.")
    fallback: Opaque | None = Field(default=None, description="Not used: metrics never fail here.")
    advanced: AdvancedForm = Field(default_factory=AdvancedForm, description="More of it.")
    triggers: list[TriggerForm] = Field(min_length=1, max_length=32, description="What asks.")

    @property
    def by_wva(self) -> bool:
        """Whether WVA says how many."""
        return any(asked(one.metadata.query).name == DESIRED for one in self.triggers)

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


class PausableMetadata(VariantMetadata):
    """Who the object is, and whether it is paused."""

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        for name in self.annotations or {}:
            if name in PAUSES:
                what = "a paused object scales nothing"
                yield where.fault(("annotations", name), what, hint="leave it out")


class ScaledObject(ScalingManifest, VariantManifest):
    """A whole ScaledObject."""

    metadata: PausableMetadata = Field(description="Who it is.")
    spec: ScaledObjectForm = Field(description="What it says.")

    def notes(self) -> Iterator[str]:
        found = (asked(one.metadata.query).note for one in self.spec.triggers)
        return filter(None, found)

    def variant(self, pools: PoolNames) -> Variant | None:
        spec = self.spec
        if not spec.by_wva:
            return None
        pool = pools.find(spec.scale_target_ref.name)
        cost = VariantAnnotations.of(self.metadata.annotations).variant_cost
        return Variant(pool, spec.bounds, cost, HpaPace(**spec.directions()))

    def policy(self, pools: PoolNames) -> KedaSettings:
        spec = self.spec
        return KedaSettings(
            policy="keda",
            metrics=[one.metric() for one in spec.triggers],
            least=max(spec.min_replica_count, 1),
            pools={pools.find(spec.scale_target_ref.name): spec.bounds},
            **settings_of(spec),
            **spec.directions(),
        )
