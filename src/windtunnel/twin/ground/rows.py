"""What a cluster asks its fleet for: a row for every machine that has pods, or will have some.

A row is kept while a machine that it holds has a pod on it, so the fleet never takes away a machine
that is in use in place of one that is empty. Pods that wait are put where there is room, then on
machines that are on their way, and only then is another asked for. Room that a pod has not got in a
minute is no room for it, whatever the reason: racks, spreads, neighbours.
"""

from collections.abc import Iterable
from typing import Final

from windtunnel.gangs.objects import Node, Pod
from windtunnel.gangs.view import View
from windtunnel.twin.ground.asks import ACCELERATOR, GPU, selector_of

PATIENCE_S: Final = 60.0
"""How long room on a machine that is there counts for a pod that does not get it."""


class Row:
    """So many machines, for as long as something is on one of them or waits for one."""

    def __init__(
        self,
        name: str,
        selector: dict[str, str],
        accelerators: int,
        machines: int,
        same: str,
        priority: int,
        since_s: float,
        pod: str = "",
        gang: str = "",
    ) -> None:
        self.name: Final = name
        self.pod: Final = pod
        """The first that it was asked for; empty when nobody remembers."""
        self.gang: Final = gang
        self.selector: Final = selector
        self.accelerators: Final = accelerators
        """Of each machine; 0: any machine will do."""
        self.machines: Final = machines
        self.same: Final = same
        """The label that all of its machines must share; empty: none."""
        self.priority: Final = priority
        self.since_s: Final = since_s


class Bin:
    """Room on a machine that is there, or on its way."""

    __slots__ = ("free", "labels", "row", "since_s")

    def __init__(
        self, free: dict[str, float], labels: dict[str, str], row: str, since_s: float
    ) -> None:
        self.free: Final = free
        self.labels: Final = labels
        self.row: Final = row
        self.since_s: Final = since_s
        """Since when the machine is there; infinity: it is not."""

    def takes(self, pod: Pod, selector: dict[str, str]) -> bool:
        """Takes a pod, if there is room for it."""
        if any(self.labels.get(key) != value for key, value in selector.items()):
            return False
        if any(self.free.get(name, 0.0) < amount for name, amount in pod.requests.items()):
            return False
        for name, amount in pod.requests.items():
            self.free[name] -= amount
        return True


class Kind:
    """Machines that a row could be of."""

    def __init__(self, capacity: dict[str, float], labels: dict[str, str]) -> None:
        self.capacity: Final = capacity
        self.labels: Final = labels

    def hosts(self, pod: Pod, selector: dict[str, str]) -> bool:
        return all(self.labels.get(key) == value for key, value in selector.items()) and all(
            self.capacity.get(name, 0.0) >= amount for name, amount in pod.requests.items()
        )


class Rows:
    """The rows of one cluster."""

    def __init__(self, view: View, kinds: list[Kind], cluster: str) -> None:
        self._view: Final = view
        self._kinds: Final = kinds
        self._cluster: Final = cluster
        self._issued = 0
        self._since: dict[str, float] = {}  # by machine: when it was first seen here
        self._extra: Final[dict[str, str]] = {}  # by pod: the row that it was given out of turn
        self.rows: Final[dict[str, Row]] = {}
        self.homeless: Final[dict[str, None]] = {}
        """Pods that no kind of machine could ever hold."""

    def look(self, holders: dict[str, str], now_s: float) -> Iterable[Row]:
        """What to ask for now. `holders` is the row of every machine that is in the cluster."""
        self._since = {name: self._since.get(name, now_s) for name in holders}
        bins, used = self._room(holders)
        there: dict[str, int] = {}
        for machine, name in holders.items():
            there[name] = there.get(name, 0) + 1
            if name not in self.rows:
                self._recall(name, machine, now_s)
        for name, row in self.rows.items():
            kind = self._smallest(row.selector, row.accelerators)
            if kind is not None:
                missing = row.machines - there.get(name, 0)
                bins += [_coming(kind, name) for _ in range(missing)]
        self._settle(bins, used, now_s)
        for name in [name for name in self.rows if name not in used]:
            del self.rows[name]
        return self.rows.values()

    def _room(self, holders: dict[str, str]) -> tuple[list[Bin], dict[str, None]]:
        """What is free on each node, and the rows of those that are not empty."""
        free = {name: dict(self._view.nodes[name].capacity) for name in holders}
        used: dict[str, None] = {}
        for pod in self._view.pods.values():
            room = free.get(pod.node)
            if room is not None:
                used[holders[pod.node]] = None
                for name, amount in pod.requests.items():
                    room[name] = room.get(name, 0.0) - amount
        bins = []
        for name, room in free.items():
            node = self._view.nodes[name]
            if usable(node):
                bins.append(Bin(room, node.labels, holders[name], self._since[name]))
            elif (
                node.cordoned
            ):  # it is going, and would be given to the next row if this were dropped
                used[holders[name]] = None
        return bins, used

    def _recall(self, name: str, machine: str, now_s: float) -> None:
        """A machine is held for a row that nobody here remembers: what there is tells of it."""
        node = self._view.nodes[machine]
        selector = {ACCELERATOR: node.labels[ACCELERATOR]}
        size = int(node.capacity.get(GPU, 0.0))
        self.rows[name] = Row(name, selector, size, 1, "", 0, now_s)

    def _settle(self, bins: list[Bin], used: dict[str, None], now_s: float) -> None:
        """Finds a place for every pod that waits; asks for machines for the rest."""
        waiting = [pod for pod in self._view.pods.values() if pod.active and not pod.node]
        waiting.sort(key=_order)
        for pod in waiting:
            selector, extra = selector_of(pod), self._extra.get(pod.name)
            if extra in self.rows:
                used[extra] = None
                next((one for one in bins if one.row == extra and one.takes(pod, selector)), None)
                continue
            vain = [one for one in bins if _in_vain(pod, one, now_s)]
            places = [one for one in bins if one not in vain] if vain else bins
            place = next((one for one in places if one.takes(pod, selector)), None)
            if place is None:
                place = self._ask(pod, selector, waiting, bins, now_s)
                if place is not None and vain:
                    self._extra[pod.name] = place.row
            if place is not None:
                used[place.row] = None
        for name in [name for name in self._extra if name not in self._view.pods]:
            del self._extra[name]

    def _ask(
        self,
        pod: Pod,
        selector: dict[str, str],
        waiting: list[Pod],
        bins: list[Bin],
        now_s: float,
    ) -> Bin | None:
        """Another machine, of the smallest kind that can hold the pod.

        The machines of a gang that must be close together are asked for as one.
        """
        asked = int(pod.requests.get(GPU, 0.0))
        kind = self._smallest(selector, asked, pod)
        if kind is None:
            self.homeless[pod.name] = None
            return None
        size = int(kind.capacity.get(GPU, 0.0)) if asked else 0
        machines, same = 1, self._same(pod)
        if same:
            pods = [one for one in waiting if one.gang == pod.gang]
            total = sum(one.requests.get(GPU, 0.0) for one in pods)
            machines = max(1, -int(-total // max(1.0, kind.capacity.get(GPU, 0.0))))
        self._issued += 1
        name = f"{self._cluster}.{self._issued}"
        labels = {key: value for key, value in selector.items() if key in kind.labels}
        priority = self._priority(pod)
        close = same if machines > 1 else ""
        self.rows[name] = Row(
            name, labels, size, machines, close, priority, now_s, pod.name, pod.gang
        )
        fresh = [_coming(kind, name) for _ in range(machines)]
        bins += fresh
        taken = fresh[0].takes(pod, selector)
        assert taken
        return fresh[0]

    def _smallest(
        self, selector: dict[str, str], accelerators: int, pod: Pod | None = None
    ) -> Kind | None:
        """The smallest kind of machine that matches, so that any that does will do."""
        found = [
            kind
            for kind in self._kinds
            if all(kind.labels.get(key) == value for key, value in selector.items())
            and kind.capacity.get(GPU, 0.0) >= accelerators
            and (pod is None or kind.hosts(pod, selector))
        ]
        return min(found, key=lambda kind: kind.capacity.get(GPU, 0.0), default=None)

    def _same(self, pod: Pod) -> str:
        """The label that the machines of the pod's gang must share."""
        gang = self._view.gangs.get(pod.gang)
        if gang is None:
            return ""
        packs = [gang.pack, *(group.pack for group in gang.pack_groups)]
        packs += [group.pack for group in gang.groups]
        return next((pack.required for pack in packs if pack is not None and pack.required), "")

    def _priority(self, pod: Pod) -> int:
        owner = self._view.sets.get(pod.set_name)
        if owner is None:
            return 0
        return self._view.priorities.get(owner.spec.priority_class, 0)


def _coming(kind: Kind, row: str) -> Bin:
    return Bin(dict(kind.capacity), kind.labels, row, float("inf"))


def _in_vain(pod: Pod, place: Bin, now_s: float) -> bool:
    """Whether a pod could have had its place for long, and has not got it."""
    return not pod.gated and now_s - max(pod.created_s, place.since_s) >= PATIENCE_S


def usable(node: Node) -> bool:
    return node.ready and not node.cordoned


def _order(pod: Pod) -> tuple[float, str, float, str, int]:
    """Gangs by age, the large pods of each first."""
    return (pod.created_s, pod.gang, -pod.requests.get(GPU, 0.0), pod.clique, pod.index)
