"""The section `live.fleet`: the source of each pool's machines on a Kubernetes cluster."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from windtunnel.fleet.settings import FleetPool, FleetSettings, Label
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Text
from windtunnel.settings.manifests import DNS_LABEL
from windtunnel.settings.section import Context, Section

LONGEST_PREFIX = 56
"""Longest fleet and pool prefix of machine names, which with a number are label values."""
MOST_SHARDS = 100

LabelName = Annotated[str, Text("small letters, digits and '-'")]
Word = Annotated[str, Text("a word")]


class NodeClassRef(Section):
    """The node class of Karpenter's cloud provider."""

    group: Word = Field(description="Its API group, such as `karpenter.k8s.aws`.")
    kind: Word = Field(description="Its kind, such as `EC2NodeClass`.")
    name: Word = Field(description="Its name.")


class ClaimRequirement(Section):
    """A requirement added to every NodeClaim of a pool."""

    key: Label = Field(description="A well-known label of Karpenter or of its cloud provider.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        default="In", description="How the values are compared."
    )
    values: list[Label] = Field(default_factory=list, description="The values.")


class LivePool(Section):
    """Machines of one pool: Karpenter's NodeClaims, or existing nodes."""

    name: Word = Field(description="A pool of `fleet.pools`.")
    node_class: NodeClassRef | None = Field(
        default=None, description="Machines are NodeClaims of this node class."
    )
    instance_types: list[Word] = Field(
        default_factory=list,
        description="Allowed instance types; default: any with the pool's accelerators, `cpu` "
        "and `memory`.",
    )
    requirements: list[ClaimRequirement] = Field(
        default_factory=list, description="Additional requirements of its NodeClaims."
    )
    nodes: dict[Label, Label] = Field(
        default_factory=dict,
        description="Machines are the nodes with these labels, which are never deleted.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if (self.node_class is None) == (not self.nodes):
            what = "both are given" if self.nodes else "neither is given"
            allowed = "node_class for NodeClaims, or nodes for nodes that exist"
            yield where.fault("node_class", what, allowed, beside=("nodes",))
        if self.nodes:
            for key in ("instance_types", "requirements"):
                if self.written(key):
                    yield where.fault(key, "nodes that exist have none", beside=("nodes",))
        for number, one in enumerate(self.requirements):
            if bool(one.values) == (one.operator in ("Exists", "DoesNotExist")):
                what = f"{one.operator} has {'values' if one.values else 'no values'}"
                yield where.fault(("requirements", number, "values"), what)


class LiveShard(Section):
    """A part of the fleet that is decided separately."""

    name: LabelName = Field(description="Its name, part of the names of its Lease and ConfigMap.")
    zones: list[Word] = Field(
        min_length=1, description="The zones of its machines, until some are moved."
    )
    namespaces: list[Word] = Field(min_length=1, description="The namespaces of its pods.")


class LiveFleet(Section):
    """The fleet on one cluster."""

    name: LabelName = Field(
        default="main",
        description="The label `windtunnel.dev/fleet` of its NodeClaims, and part of the "
        "name of everything that it creates.",
    )
    pools: list[LivePool] = Field(
        min_length=1, description="The source of machines for each pool of `fleet.pools`."
    )
    shards: list[LiveShard] = Field(
        default_factory=list,
        max_length=MOST_SHARDS,
        description="The shards; default: one for the whole fleet.",
    )
    lost_after_s: Annotated[float, Duration("10s", "24h")] = Field(
        default=600.0,
        description="How long a node may be not ready before it counts as lost, unless "
        "over half of the fleet's nodes are not ready.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        yield from _label_faults(where, ("name",), self.name)
        for key, seen in (
            ("zones", [zone for one in self.shards for zone in one.zones]),
            ("namespaces", [space for one in self.shards for space in one.namespaces]),
            ("name", [one.name for one in self.shards]),
        ):
            twice = sorted({one for one in seen if seen.count(one) > 1})
            if twice:
                what = f"{', '.join(map(repr, twice))}: more than one shard has it as {key}"
                yield where.fault("shards", what)
        for number, one in enumerate(self.shards):
            yield from _label_faults(where, ("shards", number, "name"), one.name)
            if one.name == "coordinator":
                yield where.fault(("shards", number, "name"), "the coordinator has this name")


class FleetLiveSettings(Section):
    """Settings that apply only to a live fleet."""

    fleet: LiveFleet = Field(description="The source of machines.")


class FleetFile(Section):
    """The file read by `windtunnel operate --fleet`."""

    fleet: FleetSettings = Field(description="The `fleet` section, as in a scenario.")
    live: FleetLiveSettings = Field(description="Settings that apply only to a live fleet.")

    def check(self, where: Context) -> Iterator[Fault]:
        pools = {pool.name: pool for pool in self.fleet.pools}
        live = [one.name for one in self.live.fleet.pools]
        path = ("live", "fleet", "pools")
        for number, one in enumerate(self.live.fleet.pools):
            if one.name not in pools:
                what = f"there is no pool {one.name!r}"
                yield where.fault((*path, number, "name"), what, ", ".join(pools))
            elif live.index(one.name) != number:
                yield where.fault((*path, number, "name"), f"{one.name!r} is there twice")
            elif one.node_class is not None:
                prefix = f"{self.live.fleet.name}-{one.name}"
                yield from _label_faults(where, (*path, number, "name"), prefix)
        shards = self.live.fleet.shards
        zones = [zone for one in shards for zone in one.zones]
        for number, pool in enumerate(self.fleet.pools):
            if shards and pool.zone not in zones:
                what = f"no shard has the zone {pool.zone!r}"
                yield where.fault(("fleet", "pools", number, "zone"), what, ", ".join(zones))
        for name in pools:
            if name not in live:
                yield where.fault(path, f"the pool {name!r} is missing", "one for each pool")

    def pool(self, name: str) -> FleetPool:
        return next(pool for pool in self.fleet.pools if pool.name == name)


def _label_faults(where: Context, path: tuple[str | int, ...], text: str) -> Iterator[Fault]:
    if not DNS_LABEL.fullmatch(text) or len(text) > LONGEST_PREFIX:
        allowed = f"small letters, digits and '-', at most {LONGEST_PREFIX}"
        yield where.fault(path, f"{text!r} cannot be part of the name of an object", allowed)
