"""The file that describes a simulated cluster: its machines, its times, what happens to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from windtunnel.core.errors import InputError
from windtunnel.settings.document import parse_document, read_text
from windtunnel.settings.faults import Fault, checker_faults, input_error
from windtunnel.settings.fields import Leaf, Name, TaintForm, Text, Whole, is_not
from windtunnel.settings.manifests import quantity
from windtunnel.settings.section import Context, Section, faults_of
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
    """Machines that are alike."""

    name: NameText = Field(description="Machines are called by it: `gpu` makes gpu-0, gpu-1, ...")
    count: Count = Field(description="How many.")
    capacity: dict[Label, Annotated[float, Amount()]] = Field(
        description="What each has for pods, by resource. 110 `pods` where that is left out."
    )
    labels: dict[Label, Label] = Field(
        default_factory=dict, description="Of each, besides its host name."
    )
    per: dict[NameText, Count] = Field(
        default_factory=dict,
        description="Machines in one domain of a level: `rack: 4` fills racks with four each.",
    )
    taints: list[Annotated[str, TaintForm()]] = Field(
        default_factory=list,
        description="Of each, as kubectl writes them: `nvidia.com/gpu=present:NoSchedule`.",
    )


class Deleting(Section):
    """Pods that a user deletes."""

    clique: NameText = Field(description="Whose pods, by its full name: `web-0-decode`.")
    count: Count = Field(default=1, description="How many, the lowest index first.")


class Scaling(Section):
    """A change of the number of replicas."""

    of: NameText = Field(description="A set, a scaling group or a clique, by its full name.")
    to: Annotated[int, Whole(0, MOST_NODES)] = Field(description="How many it shall have.")


class Happening(Section):
    """Something that happens to the cluster: a time, and one thing."""

    at: Moment = Field(description="When, from the start.")
    cordon: NameText | None = Field(default=None, description="A node gets no more pods.")
    uncordon: NameText | None = Field(default=None, description="It gets pods again.")
    drain: NameText | None = Field(
        default=None, description="It gets no more, and its pods are deleted."
    )
    fail: NameText | None = Field(default=None, description="It stops, and all that is on it.")
    recover: NameText | None = Field(default=None, description="It is back.")
    crash: NameText | None = Field(
        default=None, description="Containers of a clique crash from now on."
    )
    mend: NameText | None = Field(default=None, description="They no longer do.")
    delete: Deleting | None = Field(default=None, description="Pods are deleted.")
    scale: Scaling | None = Field(default=None, description="Something is scaled.")


class SimClusterSettings(Section):
    """A cluster of machines, in virtual time."""

    nodes: Annotated[list[NodeGroup], Field(min_length=1)] = Field(description="Its machines.")
    topologies: dict[NameText, dict[NameText, Label]] = Field(
        default_factory=dict,
        description="By name: levels from broad to narrow, each a domain and the key of its label. "
        "A ClusterTopologyBinding of the manifests takes its place.",
    )
    priorities: dict[NameText, Annotated[int, Whole(-(2**31), 2**31 - 1)]] = Field(
        default_factory=dict, description="Priority classes; others count 0."
    )
    scheduler: Literal["gang", "one-by-one"] = Field(
        default="gang", description="Whether gangs are placed whole, or pods one at a time."
    )
    times: PodTimes = Field(default=PodTimes(), description="How long things take.")
    happens: Annotated[list[Happening], Field(max_length=MOST_HAPPENINGS)] = Field(
        default_factory=list, description="What happens to it, in any order."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        """Names twice, too many machines, happenings of nothing."""
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
    """Machines that are alike, in racks, four of which are a block; all in one zone."""
    capacity = {"nvidia.com/gpu": gpus, "cpu": 128, "memory": "2Ti"}
    per = {"zone": nodes, "block": rack * BLOCK_RACKS, "rack": rack}
    row = {"name": "node", "count": nodes, "capacity": capacity, "per": per}
    return SimClusterSettings.read({"nodes": [row]})


def load_cluster(path: str | Path) -> SimClusterSettings:
    """The cluster that a file describes; whatever is wrong with it is an InputError."""
    return load_cluster_text(read_text(path, NOUN), str(path))


def load_cluster_text(text: str, file: str = "cluster.yaml") -> SimClusterSettings:
    document = parse_document(text, file, NOUN, "nodes, times and others")
    try:
        cluster = SimClusterSettings.read(document.data)
    except ValidationError as error:
        raise input_error(document, checker_faults(error, SimClusterSettings)) from None
    faults = list(faults_of(cluster, Context(cluster, Path(file).parent)))
    if faults:
        raise input_error(document, faults)
    return cluster
