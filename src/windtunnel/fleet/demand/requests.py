"""What a pod requests of its machine, and rows: requests for machines."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from windtunnel.core.taints import PREFER_NO_SCHEDULE, Taint, Toleration, tolerates
from windtunnel.fleet.need import Need, need, profile
from windtunnel.fleet.requirements import IN, SAME, MachineRequirement, accepts_all, requirement

GPU: Final = "nvidia.com/gpu"
CPU: Final = "cpu"
MEMORY: Final = "memory"
ACCELERATOR: Final = "windtunnel.dev/accelerator"
"""The node label that names the accelerators of a machine."""
TAINTS: Final = "windtunnel.dev/taints"
"""The attribute of a machine with its taints, as written by `taints_text`."""
APART: Final = "windtunnel.dev/apart:"
"""Prefix of a resource that pods with host anti-affinity take; every machine has one of each."""
PodOrder = tuple[float, str, float, str, int]
NodeTerm = tuple[MachineRequirement, ...]
"""Requirements on the labels of a node, all of which must hold."""


def taints_text(taints: Iterable[Taint]) -> str:
    """Writes the taints that keep pods off a machine as one attribute; empty: there are none."""
    hard = {one for one in taints if one[2] != PREFER_NO_SCHEDULE}
    return " ".join(f"{effect}@{key}={value}" for key, value, effect in sorted(hard))


def taints_in(text: str) -> list[Taint]:
    """Parses the text of `taints_text`."""
    found: list[Taint] = []
    for one in text.split():
        effect, _, rest = one.partition("@")
        key, _, value = rest.partition("=")
        found.append((key, value, effect))
    return found


@dataclass
class MachineKind:
    """A kind of machine that can be requested."""

    capacity: dict[str, float]
    labels: dict[str, str]
    """Including its taints, if any, under `TAINTS`."""


@dataclass
class PodRequest:
    """The requirements of one pod on its machine."""

    name: str
    uid: str
    requests: dict[str, float]
    selector: dict[str, str]
    """Labels that its node must have."""
    gang: str = ""
    owner: str = ""
    """The owner that sets its priority; see `Demand.prioritize`."""
    created_s: float = 0.0
    place: tuple[str, int] = ("", 0)
    """Its clique and its index there, which order equal pods of a gang."""
    affinity: tuple[NodeTerm, ...] = ()
    """Required node affinity: one of these terms must hold; empty: any node."""
    tolerations: tuple[Toleration, ...] = ()
    apart: tuple[str, ...] = ()
    """Names of anti-affinity groups that it belongs to; no two pods of a group may share a machine.
    """

    def __post_init__(self) -> None:
        self.takes = self.requests
        """The resources that it takes: its requests, and its places in anti-affinity groups."""
        if self.apart:
            self.takes = {**self.requests, **{f"{APART}{one}": 1.0 for one in self.apart}}

    def may_use(self, labels: Mapping[str, str]) -> bool:
        """Whether it may run on a machine with these labels, which include its taints."""
        if TAINTS in labels and not tolerates(self.tolerations, taints_in(labels[TAINTS])):
            return False
        if any(labels.get(key) != value for key, value in self.selector.items()):
            return False
        return not self.affinity or any(accepts_all(term, labels) for term in self.affinity)

    def order(self) -> PodOrder:
        """The order of pods: gangs by age, the large pods of each first."""
        return (self.created_s, self.gang, -self.requests.get(GPU, 0.0), *self.place)


@dataclass
class DemandRow:
    """A request for machines, kept as long as a pod is on one of them or waits for one."""

    name: str
    selector: dict[str, str]
    accelerators: int
    """Per machine; 0: any machine will do."""
    machines: int
    same: str = ""
    """The label whose value all its machines must share; empty: none."""
    priority: int = 0
    since_s: float = 0.0
    pod: PodRequest | None = None
    """The first pod that it was requested for; None if a restart lost it."""
    affinity: NodeTerm = ()
    """Further requirements on its machines."""

    def need(self, cluster: str) -> Need:
        """Converts the row to a need for whole machines."""
        wanted = [requirement(key, IN, [value]) for key, value in self.selector.items()]
        wanted += self.affinity
        if self.same:
            wanted.append(requirement(self.same, SAME))
        name, size = (GPU, self.accelerators) if self.accelerators else (CPU, 1)
        return need(
            cluster,
            profile(wanted, priority=self.priority),
            {name: size * self.machines},
            {name: size},
            group=self.name,
            arrival_s=self.since_s,
        )
