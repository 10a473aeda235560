"""The file that describes a simulated cluster: its machines, its durations and its events."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from windtunnel.core.errors import InputError
from windtunnel.settings.checking import section_of
from windtunnel.settings.document import parse_document, read_text
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Leaf, Name, TaintForm, Text, Whole, is_not
from windtunnel.settings.manifests import quantity
from windtunnel.settings.section import Context, Section
from windtunnel.twin.kubernetes.times import Moment, PodTimes

NOUN = "cluster"
MOST_NODES = 100_000
MOST_HAPPENINGS = 10_000
BLOCK_RACKS = 4
NODE_DEEDS = ("cordon", "uncordon", "drain", "fail", "recover")
DEEDS = (*NODE_DEEDS, "crash", "mend", "delete", "scale")


class Amount(Leaf):
    """A quantity of a resource, as Kubernetes writes it."""

    allowed = "a quantity, such as 8, 500m, 80Mi, 16Gi"
    schema = {"type": ["string", "number"]}  # noqa: RUF012 - a constant that no instance changes

    def check(self, value: object) -> float:
        try:
            amount = quantity(value)
        except InputError:
            self.fail(is_not(value, "a quantity"))
        if amount < 0:
            self.fail(is_not(value, "a quantity of 0 or more"))
        return amount


NameText = Annotated[str, Name()]
Label = Annotated[str, Text("the key or the value of a label")]
Count = Annotated[int, Whole(1, MOST_NODES)]


class NodeGroup(Section):
    """A group of identical machines."""

    name: NameText = Field(
        description="Prefix of the machines' names: `gpu` makes gpu-0, gpu-1, ..."
    )
    count: Count = Field(description="Number of machines.")
    capacity: dict[Label, Annotated[float, Amount()]] = Field(
        description="Capacity of each for pods, by resource; `pods` defaults to 110."
    )
    labels: dict[Label, Label] = Field(
        default_factory=dict, description="Labels of each, besides its host name."
    )
    per: dict[NameText, Count] = Field(
        default_factory=dict,
        description="Machines in one domain of a level: `rack: 4` fills racks with four each.",
    )
    taints: list[Annotated[str, TaintForm()]] = Field(
        default_factory=list,
        description="Taints of each, as kubectl writes them: `nvidia.com/gpu=present:NoSchedule`.",
    )


class Deleting(Section):
    """Pods that a user deletes."""

    clique: NameText = Field(description="The clique, by its full name: `web-0-decode`.")
    count: Count = Field(default=1, description="How many pods, lowest index first.")


class Scaling(Section):
    """A change of the number of replicas."""

    of: NameText = Field(description="A set, a scaling group or a clique, by its full name.")
    to: Annotated[int, Whole(0, MOST_NODES)] = Field(description="New number of replicas.")


class Happening(Section):
    """An event of the cluster: a time, and one change."""

    at: Moment = Field(description="Time from the start.")
    cordon: NameText | None = Field(
        default=None, description="Cordons a node: it gets no more pods."
    )
    uncordon: NameText | None = Field(default=None, description="Uncordons a node.")
    drain: NameText | None = Field(
        default=None, description="Drains a node: it gets no more pods, and its pods are deleted."
    )
    fail: NameText | None = Field(default=None, description="Stops a node, with all its pods.")
    recover: NameText | None = Field(default=None, description="Brings back a failed node.")
    crash: NameText | None = Field(
        default=None, description="Makes containers of a clique crash after every start."
    )
    mend: NameText | None = Field(default=None, description="Ends the crashes of a clique.")
    delete: Deleting | None = Field(default=None, description="Deletes pods.")
    scale: Scaling | None = Field(
        default=None, description="Scales a set, a scaling group or a clique."
    )


class SimClusterSettings(Section):
    """A simulated cluster of machines."""

    nodes: Annotated[list[NodeGroup], Field(min_length=1)] = Field(description="Its machines.")
    topologies: dict[NameText, dict[NameText, Label]] = Field(
        default_factory=dict,
        description="Levels by topology, from broad to narrow: each a domain and its label key. "
        "A ClusterTopologyBinding in the manifests takes precedence.",
    )
    priorities: dict[NameText, Annotated[int, Whole(-(2**31), 2**31 - 1)]] = Field(
        default_factory=dict, description="Values of priority classes; 0 for others."
    )
    scheduler: Literal["gang", "one-by-one"] = Field(
        default="gang", description="Places whole gangs, or pods one at a time."
    )
    times: PodTimes = Field(default=PodTimes(), description="Durations of pod operations.")
    happens: Annotated[list[Happening], Field(max_length=MOST_HAPPENINGS)] = Field(
        default_factory=list, description="Events, in any order."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        """Reports duplicate names, too many machines, and events without a valid subject."""
        names = set[str]()
        for number, nodes in enumerate(self.nodes):
            if nodes.name in names:
                yield where.fault(("nodes", number, "name"), f"{nodes.name!r} is there twice")
            names.add(nodes.name)
        total = sum(nodes.count for nodes in self.nodes)
        if total > MOST_NODES:
            yield where.fault("nodes", f"there are {total} nodes", f"up to {MOST_NODES}")
        machines = {f"{nodes.name}-{n}" for nodes in self.nodes for n in range(nodes.count)}
        for number, happening in enumerate(self.happens):
            done = [deed for deed in DEEDS if getattr(happening, deed) is not None]
            if len(done) != 1:
                what = "nothing happens"
                if done:
                    what = f"{' and '.join(done)} happen in one entry"
                yield where.fault(("happens", number), what, f"one of {', '.join(DEEDS)}")
            for deed in NODE_DEEDS:
                node = getattr(happening, deed)
                if node is not None and node not in machines:
                    first = self.nodes[0]
                    allowed = f"nodes such as {first.name}-0 to {first.name}-{first.count - 1}"
                    path = ("happens", number, deed)
                    yield where.fault(path, f"there is no node {node!r}", allowed)


def plain_cluster(nodes: int = 16, gpus: int = 8, rack: int = 4) -> SimClusterSettings:
    """Identical machines in racks, with four racks per block, all in one zone."""
    capacity = {"nvidia.com/gpu": gpus, "cpu": 128, "memory": "2Ti"}
    per = {"zone": nodes, "block": rack * BLOCK_RACKS, "rack": rack}
    row = {"name": "node", "count": nodes, "capacity": capacity, "per": per}
    return SimClusterSettings.read({"nodes": [row]})


def load_cluster(path: str | Path) -> SimClusterSettings:
    """Loads the cluster that a file describes; raises InputError for any fault in it."""
    return load_cluster_text(read_text(path, NOUN), str(path))


def load_cluster_text(text: str, file: str = "cluster.yaml") -> SimClusterSettings:
    document = parse_document(text, file, NOUN, "nodes, times and others")
    return section_of(document, SimClusterSettings, Path(file).parent)
