"""The PodCliqueSet manifest as users write it."""

from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from windtunnel.gangs.api.fields import LONGEST_DELAY, CountOrShare, Delay, Domain, LabelMap
from windtunnel.settings.document import KeyPath
from windtunnel.settings.fields import Duration, Flag, Whole
from windtunnel.settings.manifests import (
    AnyText,
    Count,
    DnsLabel,
    DnsName,
    Manifest,
    ManifestMetadata,
    Opaque,
)
from windtunnel.settings.section import ApiSection

MOST_CLIQUES = 100
TEMPLATE: KeyPath = ("spec", "template")


class SetMetadata(ManifestMetadata):
    """Name and namespace, validated as DNS names. Labels and annotations are copied to the set's
    gangs."""

    name: DnsName = Field(description="The name of the object.")
    namespace: DnsLabel | None = Field(default=None, description="Default: `default`.")


class NotOfGrove:
    """Marks a field that Grove does not have."""


class Counts(NamedTuple):
    """Replicas and their minimum, with defaults."""

    replicas: int
    minimum: int


class PackSpec(ApiSection):
    """Which domain the pods must, or should, share."""

    required: Domain | None = Field(
        default=None, description="All pods in one domain of this level."
    )
    preferred: Domain | None = Field(default=None, description="The same, if possible.")


class TopologySpec(ApiSection):
    """A constraint that places pods close together."""

    topology_name: DnsName | None = Field(
        default=None, description="The ClusterTopologyBinding; default: that of the level above."
    )
    pack: PackSpec | None = Field(default=None, description="The packing constraint.")
    pack_domain: Domain | None = Field(
        default=None, description="The old form of `pack.required`, refused for new sets."
    )

    @property
    def required(self) -> str:
        return (self.pack and self.pack.required) or self.pack_domain or ""

    @property
    def preferred(self) -> str:
        return (self.pack and self.pack.preferred) or ""


class ScaleSpec(ApiSection):
    """Creates an autoscaler for a clique or a scaling group."""

    min_replicas: Count | None = Field(
        default=None, description="Default: `replicas`, or `maxReplicas` if that is less."
    )
    max_replicas: Count = Field(description="Most replicas.")
    metrics: list[Opaque] | None = Field(default=None, description="Metrics of autoscaling/v2.")


class SharingFilter(ApiSection):
    """The pods that receive the claim."""

    child_clique_names: list[AnyText] | None = Field(
        default=None, description="Only these cliques."
    )
    child_scaling_group_names: list[AnyText] | None = Field(
        default=None, description="Only these scaling groups; in the list of a set only."
    )


class SharingSpec(ApiSection):
    """A resource claim that pods share."""

    name: AnyText = Field(description="A template in `resourceClaimTemplates`, or in the cluster.")
    namespace: AnyText | None = Field(
        default=None, description="Namespace of a template in the cluster; default: the set's."
    )
    scope: Literal["AllReplicas", "PerReplica"] = Field(
        description="One claim for all replicas of the owner, or one for each."
    )
    filter: SharingFilter | None = Field(
        default=None, description="The pods that receive it; default: all."
    )


class RollingSpec(ApiSection):
    """How much of a clique or scaling group an update may replace at once."""

    max_unavailable: Annotated[tuple[int, float], CountOrShare()] | None = Field(
        default=None,
        description="Pods of the clique, or replicas of the group, that may be down; default: 1, "
        "or with `Coherent` its minAvailable.",
    )
    max_surge: Annotated[tuple[int, float], CountOrShare()] | None = Field(
        default=None,
        description="Pods or replicas above `replicas` during an update; default: 0. "
        "Not a field of Grove.",
    )
    progress_deadline: Annotated[float, Duration("0s", LONGEST_DELAY, above=True)] | None = Field(
        default=None,
        description="How long an update may make no progress before this is reported and breaches "
        "count again; default: 10m. Not a field of Grove.",
    )


class CliqueSpec(ApiSection):
    """The spec of a clique."""

    role_name: AnyText | None = Field(default=None, description="Must be unique; default: `name`.")
    pod_spec: Opaque = Field(description="A pod spec, as in every Kubernetes workload.")
    replicas: Count | None = Field(default=None, description="Pods; default: 1.")
    min_available: Count | None = Field(
        default=None,
        description="Pods that are placed together; fewer are a breach; default: `replicas`.",
    )
    starts_after: list[AnyText] | None = Field(
        default=None, description="Cliques that must be ready first; with explicit startup only."
    )
    auto_scaling_config: ScaleSpec | None = Field(default=None, description="An autoscaler.")


class CliqueTemplateSpec(ApiSection):
    """One role."""

    name: DnsLabel = Field(description="Part of the names of its pods.")
    labels: LabelMap | None = Field(default=None, description="For its pods.")
    annotations: LabelMap | None = Field(default=None, description="For its pods.")
    topology_constraint: TopologySpec | None = Field(default=None, description="Packs its pods.")
    resource_sharing: list[SharingSpec] | None = Field(
        default=None, description="Claims that its pods share."
    )
    rolling_update: Annotated[RollingSpec | None, NotOfGrove()] = Field(
        default=None, description="Default: the set's. Not for a member of a scaling group."
    )
    spec: CliqueSpec = Field(description="The clique.")

    @property
    def counts(self) -> Counts:
        """Counts with defaults: replicas that are missing or 0 mean 1, and a missing minimum means
        all."""
        replicas, minimum = self.spec.replicas or 1, self.spec.min_available
        return Counts(replicas, replicas if minimum is None else minimum)


class GroupTemplateSpec(ApiSection):
    """Roles that scale together."""

    name: DnsLabel = Field(description="Part of the names of its cliques.")
    clique_names: list[AnyText] = Field(description="Its roles.")
    annotations: LabelMap | None = Field(default=None, description="For the group.")
    replicas: Count | None = Field(default=None, description="Copies of the roles; default: 1.")
    min_available: Count | None = Field(
        default=None, description="Replicas that belong to the base gang; default: 1."
    )
    scale_config: ScaleSpec | None = Field(default=None, description="An autoscaler.")
    resource_sharing: list[SharingSpec] | None = Field(
        default=None, description="Claims that its pods share."
    )
    topology_constraint: TopologySpec | None = Field(
        default=None, description="Packs each replica of the group."
    )
    rolling_update: Annotated[RollingSpec | None, NotOfGrove()] = Field(
        default=None, description="Default: the set's."
    )
    termination_delay: Annotated[Annotated[float, Delay()] | None, NotOfGrove()] = Field(
        default=None,
        description="How long a breach of a replica, or of the group, may last; `Never` "
        "disables termination; default: the set's. Not a field of Grove.",
    )

    @property
    def counts(self) -> Counts:
        replicas = 1 if self.replicas is None else self.replicas
        return Counts(replicas, 1 if self.min_available is None else self.min_available)


class ServiceSpec(ApiSection):
    """The headless service of a set replica."""

    publish_not_ready_addresses: Annotated[bool, Flag()] = Field(
        default=True, description="Whether pods are found by name before they are ready."
    )


class ClaimTemplateSpec(ApiSection):
    """A resource claim template that belongs to the set."""

    name: AnyText = Field(description="Its name in `resourceSharing`.")
    template_spec: Opaque = Field(description="A ResourceClaimTemplateSpec.")


class SetTemplateSpec(ApiSection):
    """One replica of a set."""

    cliques: list[CliqueTemplateSpec] = Field(
        min_length=1, max_length=MOST_CLIQUES, description="The roles."
    )
    clique_startup_type: (
        Literal[
            "CliqueStartupTypeAnyOrder", "CliqueStartupTypeInOrder", "CliqueStartupTypeExplicit"
        ]
        | None
    ) = Field(default=None, description="The startup order of cliques; default: any.")
    priority_class_name: AnyText | None = Field(default=None, description="For pods and gangs.")
    headless_service_config: ServiceSpec | None = Field(default=None, description="The service.")
    topology_constraint: TopologySpec | None = Field(
        default=None, description="Packs a whole set replica."
    )
    termination_delay: Annotated[float, Delay()] | None = Field(
        default=None,
        description="How long a breach may last before the gang is terminated; default: 4h. "
        "`Never` (not a value of Grove) disables it.",
    )
    on_all_scheduled_lost: Annotated[Literal["Hold", "Terminate"] | None, NotOfGrove()] = Field(
        default=None,
        description="Whether a clique that was scheduled and has no scheduled pod left counts as "
        "breached (`Terminate`) or waits (`Hold`, the default). Not a field of Grove.",
    )
    on_stranded: Annotated[Literal["Hold", "Terminate"] | None, NotOfGrove()] = Field(
        default=None,
        description="Whether pods that hold machines, while a clique or a group of their gang has "
        "lost all of its pods, are terminated after the delay (`Terminate`, the default) or "
        "kept (`Hold`). Not a field of Grove.",
    )
    hold_at_nodes_not_ready: Annotated[
        Annotated[tuple[int, float], CountOrShare()] | None, NotOfGrove()
    ] = Field(
        default=None,
        description="While this many nodes of the cluster are not ready, no gang is terminated: a "
        "number, or a percentage, which counts from 3 nodes on; default: 50%; 0: off. "
        "Not a field of Grove.",
    )
    resource_claim_templates: list[ClaimTemplateSpec] | None = Field(
        default=None, description="Templates that `resourceSharing` may name."
    )
    resource_sharing: list[SharingSpec] | None = Field(
        default=None, description="Claims that its pods share."
    )
    pod_clique_scaling_groups: list[GroupTemplateSpec] | None = Field(
        default=None, max_length=MOST_CLIQUES, description="Scaling groups."
    )

    @property
    def groups(self) -> list[GroupTemplateSpec]:
        return self.pod_clique_scaling_groups or []

    def parts(self) -> Iterator[tuple[KeyPath, "GroupTemplateSpec | CliqueTemplateSpec"]]:
        """Yields the scaling groups, then the cliques, each with its path."""
        for number, group in enumerate(self.groups):
            yield (*TEMPLATE, "podCliqueScalingGroups", number), group
        for number, clique in enumerate(self.cliques):
            yield (*TEMPLATE, "cliques", number), clique


class UpdateSpec(ApiSection):
    """How a changed pod template is rolled out to the pods."""

    type: Literal["RollingRecreate", "OnDelete", "Coherent"] | None = Field(
        default=None,
        description="Replace pods step by step (`RollingRecreate`, the default); only those that "
        "the user deletes (`OnDelete`); or all roles of a set replica in step (`Coherent`).",
    )
    rolling_update: Annotated[RollingSpec | None, NotOfGrove()] = Field(
        default=None, description="Used where no more specific one is set. Not a field of Grove."
    )
    parallel_replicas: Annotated[Annotated[int, Whole(1, 100_000)] | None, NotOfGrove()] = Field(
        default=None,
        description="Set replicas that are updated at the same time; default: 1. "
        "Not a field of Grove.",
    )
    paused: Annotated[Annotated[bool, Flag()] | None, NotOfGrove()] = Field(
        default=None,
        description="Whether to replace no further pods; breaches are excused until "
        "progressDeadline. Not a field of Grove.",
    )


class SetSection(ApiSection):
    """The desired state."""

    replicas: Count = Field(default=0, description="Copies of the whole system.")
    update_strategy: UpdateSpec | None = Field(
        default=None, description="How changes are rolled out."
    )
    revision_history_limit: Annotated[Annotated[int, Whole(1, 1000)] | None, NotOfGrove()] = Field(
        default=None, description="Revisions to keep; default: 10. Not a field of Grove."
    )
    template: SetTemplateSpec = Field(description="One copy.")


class GroveManifest(Manifest):
    """The fields that all of Grove's manifests share; each kind adds its spec."""

    metadata: SetMetadata = Field(description="Its name.")


class SetManifest(GroveManifest):
    """A set as its owner writes it."""

    spec: SetSection = Field(description="The desired state.")
