"""llm-d's workload variant autoscaler (WVA): its VariantAutoscaling, and the annotations for it.

WVA decides and publishes the desired number of replicas; an HPA or a ScaledObject with that metric
carries it out. All manifests about one pool make one variant, and all variants share one policy.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Final, NamedTuple

from pydantic import Field

from windtunnel.scaling.manifests.fields import (
    IN_TEXT,
    AnnotationForm,
    Like,
    Most,
    PoolReference,
)
from windtunnel.scaling.manifests.names import ScenarioNames
from windtunnel.scaling.policies.hpa import HpaPace
from windtunnel.scaling.policies.spare_capacity import SpareCapacitySettings
from windtunnel.scaling.settings import PoolBounds, refusals
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Number
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.manifests import AnyText, Count, Manifest, ManifestMetadata
from windtunnel.settings.section import ApiSection, Context

DEFAULT_COST: Final = 10.0
VariantCost = Annotated[float, Like(Number(0, 10**9), read=IN_TEXT)]


class VariantAnnotations(AnnotationForm):
    """The annotations that WVA reads from an HPA or a ScaledObject."""

    prefix: ClassVar[str] = "llm-d.ai/"

    variant_cost: VariantCost | None = Field(default=None, description="Cost of one replica.")


class VariantMetadata(ManifestMetadata):
    """Name, and the cost of a replica."""

    def check(self, where: Context) -> Iterator[Fault]:
        yield from VariantAnnotations.faults(self.annotations, where)


class WvaVariant(NamedTuple):
    """A pool that WVA scales, as described by a manifest."""

    pool: str
    bounds: PoolBounds
    cost: float | None = None
    hpa: HpaPace | None = None
    """The HPA that carries out decisions; None: this is WVA's own object."""


class VariantForm(ApiSection, extra="ignore"):
    """The spec of a VariantAutoscaling; models, classes and profiles come from the scenario."""

    scale_target_ref: PoolReference | None = Field(
        default=None, description="The object to scale; default: the one with this object's name."
    )
    model_id: AnyText = Field(default="", alias="modelID", description="Not used.")
    variant_cost: VariantCost = Field(
        default=DEFAULT_COST, description="Cost of one replica, in any unit."
    )
    min_replicas: Count = Field(default=1, description="Fewest replicas.")
    max_replicas: Most = Field(default=MOST_REPLICAS, description="Most replicas.")

    def check(self, where: Context) -> Iterator[Fault]:
        if self.min_replicas > self.max_replicas:
            what = "maxReplicas must be greater than or equal to minReplicas"
            yield where.fault("maxReplicas", what)


class VariantManifest(Manifest):
    """A manifest that may describe a pool scaled by WVA."""

    def variant(self, names: ScenarioNames) -> WvaVariant | None:
        """The variant that it describes; None: it scales by itself."""
        raise NotImplementedError


class VariantAutoscaling(VariantManifest):
    """A VariantAutoscaling."""

    spec: VariantForm = Field(description="The spec.")

    @property
    def target(self) -> str:
        reference = self.spec.scale_target_ref
        return self.metadata.name if reference is None else reference.name

    def check(self, where: Context) -> Iterator[Fault]:
        if self.spec.scale_target_ref is None:
            yield from refusals(where, ("metadata", "name"), where.root.names.pool, self.target)

    def variant(self, names: ScenarioNames) -> WvaVariant:
        spec = self.spec
        bounds = PoolBounds(min=spec.min_replicas, max=spec.max_replicas)
        return WvaVariant(names.pool(self.target), bounds, spec.variant_cost)


def joined(first: WvaVariant, second: WvaVariant) -> WvaVariant:
    """Merges two manifests about one pool: the HPA has the bounds, WVA's own object the cost."""
    hpa, own = (first, second) if first.hpa is not None else (second, first)
    cost = own.cost if hpa.cost is None else hpa.cost
    return hpa._replace(cost=cost)


def wva_policy(variants: Mapping[str, WvaVariant]) -> SpareCapacitySettings:
    """The policy for all variants, by pool."""
    return SpareCapacitySettings(
        policy="wva-v1",
        pools={pool: one.bounds for pool, one in variants.items()},
        costs={
            pool: DEFAULT_COST if one.cost is None else one.cost for pool, one in variants.items()
        },
        hpas={pool: one.hpa for pool, one in variants.items() if one.hpa is not None},
    )
