"""The pods of a gang as its scheduler last saw them: waiting or bound, and to which node."""

from bisect import bisect_left, insort
from typing import Final

from windtunnel.core.loop import INFINITY
from windtunnel.gangs.objects import Pod
from windtunnel.gangs.placement.placer import GangKind
from windtunnel.gangs.placement.requests import UnboundPod
from windtunnel.gangs.placement.space import Space, Tree
from windtunnel.gangs.roster import NameRoster
from windtunnel.gangs.templates import PodGroup

Place = tuple[int, float, str]
"""Sort key of pods in a group: index, creation time, name."""


class GroupPods:
    """The waiting and the bound pods of a group, both sorted."""

    __slots__ = ("blocked", "bound", "listed", "nodes", "unbound", "waiting")

    def __init__(self) -> None:
        self.listed = NameRoster()
        """The pods that the gang refers to."""
        self.waiting: Final[list[Place]] = []
        self.unbound: list[UnboundPod] | None = None
        """The requests of the waiting pods, in their order; None if not looked up yet."""
        self.blocked: list[UnboundPod] = []
        """Those that wait for something other than room, as of then; they are not in `unbound`."""
        self.bound: Final[list[Place]] = []
        self.nodes: Final[list[str]] = []  # of the pods that are bound, in their order

    def add(self, place: Place, node: str) -> None:
        """Adds a pod that is bound to a node, or that waits (`node` is empty)."""
        if node:
            at = bisect_left(self.bound, place)
            self.bound.insert(at, place)
            self.nodes.insert(at, node)
        else:
            insort(self.waiting, place)
            self.unbound = None

    def remove(self, place: Place, *, bound: bool) -> None:
        if bound:
            at = bisect_left(self.bound, place)
            del self.bound[at]
            del self.nodes[at]
        else:
            at = bisect_left(self.waiting, place)
            del self.waiting[at]
            if self.blocked:
                self.unbound = None
            elif self.unbound is not None:
                del self.unbound[at]


class Closeness:
    """The topology domains of a gang's bound pods, as of the last score."""

    __slots__ = ("_counts", "_pods", "moved", "tree")

    def __init__(self, tree: Tree, nodes: list[str]) -> None:
        self.tree: Final = tree
        self._counts: Final[list[dict[int, int]]] = [{} for _ in tree.keys]
        """Number of pods by level and domain number."""
        self._pods = 0
        self.moved: Final = [(node, 1) for node in nodes]
        """Nodes of pods that were bound since (1), and of pods that left (-1)."""

    def level(self, space: Space) -> int:
        """Returns the narrowest level of which one domain holds all pods; -1 if there is none."""
        for name, by in self.moved:
            self._pods += by
            place = self.tree.leaves[space.by_name[name].number].parent
            while place is not None and place.level >= 0:
                counts = self._counts[place.level]
                counts[place.number] = counts.get(place.number, 0) + by
                if not counts[place.number]:
                    del counts[place.number]
                place = place.parent
        self.moved.clear()
        for level in range(len(self._counts) - 1, -1, -1):
            if list(self._counts[level].values()) == [self._pods]:
                return level
        return -1


class GangPods:
    """The pods that a gang refers to, as last seen."""

    __slots__ = (
        "by_group",
        "closeness",
        "group_of",
        "groups",
        "kind",
        "kind_of",
        "places",
        "priority",
        "said_s",
        "stands_for",
        "version",
    )

    def __init__(self, priority: int) -> None:
        self.groups: tuple[PodGroup, ...] = ()
        self.priority: Final = priority
        self.by_group: Final[dict[str, GroupPods]] = {}
        self.group_of: Final[dict[str, str]] = {}  # by pod
        self.places: Final[dict[str, tuple[Place, str]]] = {}
        """By waiting or bound pod, its sort key and its node (empty if it waits)."""
        self.closeness: Closeness | None = None
        self.version = 0  # counts the changes of this object
        self.kind: GangKind | None = None
        self.kind_of = -1
        """The version that `kind` was computed for."""
        self.said_s = -INFINITY
        """When its reason for waiting was last reported."""
        self.stands_for = -1
        """The version that the last decision holds for, as long as no capacity is freed."""

    def regroup(self, groups: tuple[PodGroup, ...]) -> tuple[list[str], list[str], bool]:
        """Replaces the groups of the gang. Returns the pods that it no longer refers to, the new
        pods, which have to be followed, and whether a waiting pod left."""
        self.groups = groups
        self.version += 1
        names = [group.name for group in groups]
        left: list[str] = []
        for name in [name for name in self.by_group if name not in names]:
            left += self.by_group[name].listed
        new: list[tuple[str, str]] = []
        for group in groups:
            known = self.by_group.setdefault(group.name, GroupPods())
            if known.listed is not group.pods:
                gone, come = known.listed.until(group.pods)
                left += gone
                new += [(pod, group.name) for pod in come]
                known.listed = group.pods
        moved = False
        for pod in left:
            moved = self.follow(pod, None) or moved
            del self.group_of[pod]
        for name in [name for name in self.by_group if name not in names]:
            del self.by_group[name]
        self.group_of.update(new)
        return left, [pod for pod, _ in new], moved

    def follow(self, name: str, pod: Pod | None) -> bool:
        """Updates one pod; returns whether it started or stopped waiting."""
        group = self.by_group.get(self.group_of.get(name, ""))
        if group is None:
            return False
        known = self.places.get(name)
        now: tuple[Place, str] | None = None
        if pod is not None and pod.active and (pod.node or not pod.gates):
            now = ((pod.index, pod.created_s, name), pod.node)
        if known == now:
            return False
        self.version += 1
        if known is not None:
            del self.places[name]
            group.remove(known[0], bound=known[1] != "")
            if known[1] and self.closeness is not None:
                self.closeness.moved.append((known[1], -1))
        if now is not None:
            self.places[name] = now
            group.add(now[0], now[1])
            if now[1] and self.closeness is not None:
                self.closeness.moved.append((now[1], 1))
        waited = known is not None and not known[1]
        waits = now is not None and not now[1]
        return waited != waits

    def nodes(self) -> list[str]:
        """Returns the nodes of its bound pods."""
        return [node for group in self.by_group.values() for node in group.nodes]
