"""The kinds that controllers write, and the topology that an administrator writes."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from windtunnel.core.errors import nearest
from windtunnel.gangs.api.fields import Domain
from windtunnel.gangs.api.pod_spec import pod_spec_faults
from windtunnel.gangs.api.set_spec import CliqueSpec, GroveManifest
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Text
from windtunnel.settings.manifests import AnyText, Count, DnsName
from windtunnel.settings.section import ApiSection

MOST_LEVELS = 32
TOPOLOGY_SCHEDULERS = ("kai-scheduler",)
"""The known schedulers that support topologies."""

SCHEDULERS = ("default-scheduler", "kai-scheduler", "lpx-scheduler", "volcano")


class LevelSpec(ApiSection):
    """One level of a topology."""

    domain: Domain = Field(description="Its name in sets: zone, block, rack, host.")
    key: Annotated[str, Text("the key of a node label")] = Field(
        description="The node label whose value identifies the domain."
    )


class SchedulerBindingSpec(ApiSection):
    """A topology object of another scheduler."""

    scheduler_name: AnyText = Field(description="The scheduler.")
    topology_reference: AnyText = Field(description="The name of its topology object.")


class BindingSpec(ApiSection):
    """The levels of a cluster."""

    levels: list[LevelSpec] = Field(
        min_length=1, max_length=MOST_LEVELS, description="Broadest first."
    )
    scheduler_topology_bindings: list[SchedulerBindingSpec] | None = Field(
        default=None, description="Default: a scheduler's topology is created from the levels."
    )


class OtherManifest(GroveManifest):
    """A manifest of a kind that is not a set."""

    def rule_faults(self) -> Iterator[Fault]:
        """Yields the faults that involve more than one value."""
        raise NotImplementedError


class TopologyManifest(OtherManifest):
    """The topology of a cluster."""

    spec: BindingSpec = Field(description="The levels.")

    def levels(self) -> dict[str, str]:
        """Maps each domain to the key of its node label, broadest first."""
        return {level.domain: level.key for level in self.spec.levels}

    def rule_faults(self) -> Iterator[Fault]:
        """Checks that domains, keys and schedulers are unique, and that schedulers are known and
        support topologies."""
        for key in ("domain", "key"):
            seen: set[str] = set()
            for number, level in enumerate(self.spec.levels):
                value = level.domain if key == "domain" else level.key
                if value in seen:
                    path = ("spec", "levels", number, key)
                    yield Fault(path, f"there is another level with the {key} {value!r}")
                seen.add(value)
        seen = set()
        for number, binding in enumerate(self.spec.scheduler_topology_bindings or []):
            name = binding.scheduler_name
            path = ("spec", "schedulerTopologyBindings", number, "schedulerName")
            if name not in SCHEDULERS:
                what, hint = f"there is no scheduler {name!r}", nearest(name, SCHEDULERS)
                yield Fault(path, what, ", ".join(TOPOLOGY_SCHEDULERS), hint)
            elif name not in TOPOLOGY_SCHEDULERS:
                what = f"the scheduler {name!r} does not support topologies"
                yield Fault(path, what, ", ".join(TOPOLOGY_SCHEDULERS))
            elif name in seen:
                yield Fault(path, f"the scheduler {name!r} is there twice")
            seen.add(name)


class PodCliqueManifest(OtherManifest):
    """A clique as a controller creates it."""

    spec: CliqueSpec = Field(description="The clique.")

    def rule_faults(self) -> Iterator[Fault]:
        spec = self.spec
        replicas = 1 if spec.replicas is None else spec.replicas
        minimum = replicas if spec.min_available is None else spec.min_available
        yield from pod_spec_faults(spec.pod_spec, ("spec", "podSpec"), new=False)
        yield from _minimum_faults(replicas, minimum)


class GroupSpec(ApiSection):
    """The spec of a scaling group."""

    replicas: Count = Field(default=1, description="Copies of its cliques.")
    min_available: Count = Field(default=1, description="Replicas in the base gang.")
    clique_names: list[AnyText] = Field(min_length=1, description="Its roles.")


class GroupManifest(OtherManifest):
    """A scaling group as a controller creates it."""

    spec: GroupSpec = Field(description="The group.")

    def rule_faults(self) -> Iterator[Fault]:
        yield from _minimum_faults(self.spec.replicas, self.spec.min_available)


class ReferenceSpec(ApiSection):
    """A name in a namespace."""

    namespace: AnyText = Field(description="The namespace.")
    name: AnyText = Field(description="The name.")


class PackKeys(ApiSection):
    """Keys of node labels whose domains the pods share."""

    required: AnyText | None = Field(
        default=None, description="All pods on nodes with one value of this label."
    )
    preferred: AnyText | None = Field(default=None, description="The same, if possible.")


class GangTopologySpec(ApiSection):
    """A topology constraint, translated into keys of node labels."""

    pack_constraint: PackKeys | None = Field(default=None, description="The packing constraint.")


class PodGroupSpec(ApiSection):
    """The pods of one clique."""

    name: DnsName = Field(description="The clique.")
    pod_references: list[ReferenceSpec] | None = Field(default=None, description="Its pods.")
    min_replicas: Count = Field(description="Pods that are placed together.")
    topology_constraint: GangTopologySpec | None = Field(
        default=None, description="Packs its pods."
    )


class PackGroupSpec(ApiSection):
    """Pod groups that are packed together."""

    name: AnyText = Field(description="The replica of a scaling group.")
    pod_group_names: list[AnyText] = Field(min_length=1, description="Its pod groups.")
    topology_constraint: GangTopologySpec | None = Field(
        default=None, description="Packs its pod groups."
    )


class GangSpec(ApiSection):
    """The spec of a gang, which is placed whole or not at all."""

    podgroups: list[PodGroupSpec] = Field(min_length=1, description="Its pod groups.")
    topology_constraint: GangTopologySpec | None = Field(
        default=None, description="Packs the whole gang."
    )
    topology_constraint_group_configs: list[PackGroupSpec] | None = Field(
        default=None, description="Pod groups that are packed together."
    )
    priority_class_name: AnyText | None = Field(default=None, description="Its priority class.")
    reuse_reservation_ref: ReferenceSpec | None = Field(
        default=None, description="An earlier gang whose nodes are tried first."
    )


class GangManifest(OtherManifest):
    """A gang as a scheduler receives it."""

    spec: GangSpec = Field(description="The gang.")

    def rule_faults(self) -> Iterator[Fault]:
        """Checks that pod group names are unique, and that packing constraints name existing
        groups."""
        names: set[str] = set()
        for number, group in enumerate(self.spec.podgroups):
            if group.name in names:
                path = ("spec", "podgroups", number, "name")
                yield Fault(path, f"there is another pod group {group.name!r}")
            names.add(group.name)
        for number, config in enumerate(self.spec.topology_constraint_group_configs or []):
            within = ("spec", "topologyConstraintGroupConfigs", number, "podGroupNames")
            for place, name in enumerate(config.pod_group_names):
                if name not in names:
                    what = f"there is no pod group {name!r}"
                    yield Fault((*within, place), what, hint=nearest(name, names))


def _minimum_faults(replicas: int, minimum: int) -> Iterator[Fault]:
    """Checks `minAvailable`; replicas may be 0, as cliques and groups can be scaled to zero."""
    if minimum > replicas > 0:
        what = f"minAvailable {minimum} is above replicas {replicas}"
        yield Fault(("spec", "minAvailable"), what, f"1 to {replicas}")
