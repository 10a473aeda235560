"""The packing of pods into rows of machines, slowly and obviously: what `Demand` is held equal to.

Everything is computed from all nodes and pods, each time anew.
"""

from dataclasses import replace

from windtunnel.core.taints import ALL_TAINTS, tolerates
from windtunnel.fleet.demand.demand import PATIENCE_S
from windtunnel.fleet.demand.requests import (
    ACCELERATOR,
    GPU,
    TAINTS,
    DemandRow,
    MachineKind,
    NodeTerm,
    PodRequest,
    taints_in,
)
from windtunnel.fleet.requirements import accepts_all, requirement

EXPECTED = float("inf")


class SlowNode:
    """A node as it is."""

    def __init__(self, capacity: dict[str, float], labels: dict[str, str]) -> None:
        self.capacity, self.labels = capacity, labels
        self.ready, self.cordoned = True, False


class SlowPod:
    """A pod as it is."""

    def __init__(self, request: PodRequest) -> None:
        self.request = request
        self.node = ""
        self.active = self.gated = True


class Bin:
    """Room on a machine that is there, or on its way."""

    def __init__(
        self, free: dict[str, float], labels: dict[str, str], row: str, since_s: float
    ) -> None:
        self.free, self.labels, self.row, self.since_s = free, labels, row, since_s
        self.apart: list[str] = []
        """What the pods here keep their kind away by."""

    def takes(self, pod: PodRequest) -> bool:
        """Takes a pod, if there is room for it."""
        if any(self.labels.get(key) != value for key, value in pod.selector.items()):
            return False
        if not tolerates(pod.tolerations, taints_in(self.labels.get(TAINTS, ""))):
            return False
        if pod.affinity and not any(accepts_all(term, self.labels) for term in pod.affinity):
            return False
        if any(self.free.get(name, 0.0) < amount for name, amount in pod.requests.items()):
            return False
        if any(name in self.apart for name in pod.apart):
            return False
        for name, amount in pod.requests.items():
            self.free[name] = self.free.get(name, 0.0) - amount
        self.apart += pod.apart
        return True


class ReferenceDemand:
    """The rows of one cluster; nodes, pods and holders are set from outside."""

    def __init__(self, cluster: str, kinds: list[MachineKind]) -> None:
        self._cluster, self._kinds = cluster, kinds
        self.nodes: dict[str, SlowNode] = {}
        self.pods: dict[str, SlowPod] = {}
        self.holders: dict[str, tuple[str, int]] = {}
        """By machine in the cluster: its row and its rank."""
        self.together: dict[str, str] = {}
        self.priorities: dict[str, int] = {}
        self._issued = 0
        self._since: dict[str, float] = {}
        self._extra: dict[str, str] = {}
        self._kind_of: dict[str, MachineKind | None] = {}
        self.rows: dict[str, DemandRow] = {}
        self.unplaceable: dict[str, bool] = {}

    def look(self, now_s: float) -> None:
        machines = sorted(self.holders, key=lambda name: self.holders[name][1])
        self._since = {name: self._since.get(name, now_s) for name in machines}
        bins, used = self._room(machines)
        there: dict[str, int] = {}
        for machine in machines:
            name = self.holders[machine][0]
            there[name] = there.get(name, 0) + 1
            if name not in self.rows:
                self._recall(name, machine, now_s)
        for name, row in self.rows.items():
            kind = self._kind_of[name]
            if kind is not None:
                missing = row.machines - there.get(name, 0)
                bins += [_coming(kind, name) for _ in range(missing)]
        self._settle(bins, used, now_s)
        for name in [name for name in self.rows if name not in used]:
            del self.rows[name]

    def _room(self, machines: list[str]) -> tuple[list[Bin], dict[str, None]]:
        bins: list[Bin] = []
        used: dict[str, None] = {}
        for name in machines:
            node, row = self.nodes[name], self.holders[name][0]
            here = [pod.request for pod in self.pods.values() if pod.node == name]
            free = dict(node.capacity)
            for pod in sorted(here, key=PodRequest.order):
                for resource, amount in pod.requests.items():
                    free[resource] = free.get(resource, 0.0) - amount
            if here or node.cordoned:
                used[row] = None
            if node.ready and not node.cordoned:
                bins.append(Bin(free, node.labels, row, self._since[name]))
                bins[-1].apart = [one for pod in here for one in pod.apart]
        return bins, used

    def _recall(self, name: str, machine: str, now_s: float) -> None:
        node = self.nodes[machine]
        selector = {ACCELERATOR: node.labels[ACCELERATOR]}
        if TAINTS in node.labels:
            selector[TAINTS] = node.labels[TAINTS]
        size = int(node.capacity.get(GPU, 0.0))
        self.rows[name] = DemandRow(name, selector, size, 1, since_s=now_s)
        self._kind_of[name] = self._smallest(
            PodRequest("", "", {GPU: float(size)}, selector, tolerations=(ALL_TAINTS,))
        )

    def _settle(self, bins: list[Bin], used: dict[str, None], now_s: float) -> None:
        waiting = [pod for pod in self.pods.values() if pod.active and not pod.node]
        waiting.sort(key=lambda pod: pod.request.order())
        for pod in waiting:
            request = pod.request
            extra = self._extra.get(request.name)
            if extra in self.rows:
                used[extra] = None
                next((one for one in bins if one.row == extra and one.takes(request)), None)
                continue
            vain = [one for one in bins if _in_vain(pod, one, now_s)]
            places = [one for one in bins if one not in vain]
            place = next((one for one in places if one.takes(request)), None)
            if place is None:
                place = self._ask(request, [one.request for one in waiting], bins, now_s)
                if place is not None and vain:
                    self._extra[request.name] = place.row
            if place is not None:
                used[place.row] = None
        for name in [name for name in self._extra if name not in self.pods]:
            del self._extra[name]

    def _ask(
        self, pod: PodRequest, waiting: list[PodRequest], bins: list[Bin], now_s: float
    ) -> Bin | None:
        kind = self._smallest(pod)
        if kind is None:
            anyone = replace(pod, tolerations=(ALL_TAINTS,))
            self.unplaceable[pod.name] = self._smallest(anyone) is not None
            return None
        size = int(kind.capacity[GPU]) if int(pod.requests.get(GPU, 0.0)) else 0
        machines, same = 1, self.together.get(pod.gang, "")
        if same:
            total = sum(one.requests.get(GPU, 0.0) for one in waiting if one.gang == pod.gang)
            machines = max(1, -int(-total // max(1.0, kind.capacity[GPU])))
            for name in pod.apart:
                alike = [one for one in waiting if one.gang == pod.gang and name in one.apart]
                machines = max(machines, len(alike))
        self._issued += 1
        name = f"{self._cluster}.{self._issued}"
        labels = {key: value for key, value in pod.selector.items() if key in kind.labels}
        self.rows[name] = DemandRow(
            name,
            labels,
            size,
            machines,
            same if machines > 1 else "",
            self.priorities.get(pod.owner, 0),
            now_s,
            pod,
            next((term for term in pod.affinity if accepts_all(term, kind.labels)), ())
            + self._kept_away(pod),
        )
        self._kind_of[name] = kind
        fresh = [_coming(kind, name) for _ in range(machines)]
        bins += fresh
        assert fresh[0].takes(pod)
        return fresh[0]

    def _kept_away(self, pod: PodRequest) -> NodeTerm:
        texts = [kind.labels.get(TAINTS, "") for kind in self._kinds]
        refused = [text for text in texts if not tolerates(pod.tolerations, taints_in(text))]
        return (requirement(TAINTS, "NotIn", refused),) if refused else ()

    def _smallest(self, pod: PodRequest) -> MachineKind | None:
        found = [kind for kind in self._kinds if _coming(kind, "").takes(pod)]
        return min(found, key=lambda kind: kind.capacity[GPU], default=None)


def _coming(kind: MachineKind, row: str) -> Bin:
    return Bin(dict(kind.capacity), kind.labels, row, EXPECTED)


def _in_vain(pod: SlowPod, place: Bin, now_s: float) -> bool:
    """Whether a pod could have had its place for long, and has not got it."""
    since_s = max(pod.request.created_s, place.since_s)
    return not pod.gated and now_s - since_s >= PATIENCE_S
