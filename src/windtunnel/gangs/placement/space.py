"""The room on machines, indexed so that finding a place does not scan the fleet.

For every pod shape the space knows how many fit on each node and in each domain of each topology,
and keeps the domains of a level sorted by that count. Adding or removing a pod changes the counts
on one path from a node to the root.
"""

import re
from bisect import bisect_left, insort
from dataclasses import replace
from typing import Final

from windtunnel.core.taints import PREFER_NO_SCHEDULE, Taint
from windtunnel.core.units import format_size
from windtunnel.gangs.placement.requests import (
    PodRules,
    PodShape,
    PodTerm,
)

PODS: Final = "pods"
"""Every pod needs one of these, so that a node has a limit whatever pods request."""
MOST_PODS_PER_NODE: Final = 110.0  # the kubelet's default
PARTS: Final = 1000
"""Amounts are counted in thousandths, as Kubernetes counts cores."""
MOST_SCORES: Final = 8
"""The most preference scores by which nodes are distinguished; all lower ones count as equal."""
CHILDREN: Final = -1
NODES: Final = 1000
"""Used in place of a level: CHILDREN for whatever is directly below, NODES for the leaves."""

APART: Final = 1 << 32
NEXT: Final = 1 << 12
"""Gaps between the numbers of places: APART when a tree is built or grows at its end, NEXT between
two places, as long as there is room."""

_DIGITS: Final = re.compile(r"(\d+)")


def amount(resource: str, parts: int) -> str:
    """Formats an amount: `2 nvidia.com/gpu`, `80 MiB memory`."""
    if resource == "memory" or resource.endswith("storage"):
        return f"{format_size(parts / PARTS)} {resource}"
    return f"{parts / PARTS:g} {resource}"


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts node-2 before node-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(name)]


class NodeRoom:
    """A machine: labels, taints, capacity, free resources, and whether it takes pods."""

    def __init__(
        self, number: int, name: str, labels: dict[str, str], taints: tuple[Taint, ...]
    ) -> None:
        self.number: Final = number
        self.name: Final = name
        self.labels: Final = labels
        self.taints: Final = taints
        self.usable = True
        self.capacity: Final[list[int]] = []
        self.free: Final[list[int]] = []
        self.releasing: dict[int, int] = {}  # terminating pods, by shape


Order = tuple[list[tuple[int, str]], str, int]
"""Sort key of places within a place: by name, then by level."""


class Place:
    """A domain of a topology, its root, or (as a leaf) a node."""

    def __init__(
        self, name: str, level: int, parent: "Place | None", node: NodeRoom | None
    ) -> None:
        self.name: Final = name
        self.level: Final = level  # -1: the root; NODES: a node
        self.parent: Final = parent
        self.node: Final = node
        self.children: Final[list[Place]] = []  # by `order`
        self.order: Final[Order] = (natural(name), name, level)
        self.number = 0
        self.last = 0  # the highest number within
        self.total: list[int] = []  # free on the usable nodes within, by resource

    def holds(self, other: "Place") -> bool:
        return self.number <= other.number <= self.last


class Ring:
    """Places of one level within a place, sorted by how many pods of a shape they hold."""

    def __init__(self) -> None:
        self.counts: Final[list[int]] = []  # ascending, each once, none of them 0
        self.members: Final[dict[int, list[int]]] = {}

    def move(self, place: int, before: int, after: int) -> None:
        if before:
            members = self.members[before]
            if len(members) == 1:
                del self.members[before]
                del self.counts[bisect_left(self.counts, before)]
            else:
                del members[bisect_left(members, place)]
        if after:
            there = self.members.get(after)
            if there is None:
                self.members[after] = [place]
                insort(self.counts, after)
            else:
                insort(there, place)

    def tightest(self, count: int) -> int:
        """The place that holds the fewest, but at least `count`; the first on a tie; or -1."""
        at = bisect_left(self.counts, count)
        return self.members[self.counts[at]][0] if at < len(self.counts) else -1

    def widest(self) -> int:
        return self.members[self.counts[-1]][0] if self.counts else -1

    def after(self, count: int, place: int) -> int:
        """Returns the next place in ascending order after (count, place); -1 at the end."""
        at = bisect_left(self.counts, count)
        if at < len(self.counts) and self.counts[at] == count:
            members = self.members[count]
            within = bisect_left(members, place + 1)
            if within < len(members):
                return members[within]
            at += 1
        return self.members[self.counts[at]][0] if at < len(self.counts) else -1


class Room:
    """How many pods of one shape fit in each place of a topology."""

    def __init__(self, tree: "Tree", shape: PodShape) -> None:
        self.shape: Final = shape
        self._tree: Final = tree
        self.slots: Final[dict[int, int]] = dict.fromkeys(tree.places, 0)  # by number of the place
        self._rings: Final[dict[int, Ring]] = {}
        self._admits: Final[list[bool]] = []  # by number of the node
        for leaf in tree.leaves:
            node = leaf.node
            assert node is not None
            slots = self._slots_on(node)
            place: Place | None = leaf
            while place is not None and slots:
                self.slots[place.number] += slots
                place = place.parent

    def ring(self, place: Place, level: int) -> Ring:
        """Returns the places of a level within a place, built on first use."""
        key = place.number * 2048 + level + 1
        ring = self._rings.get(key)
        if ring is None:
            ring = Ring()
            for other in self._tree.within(place, level):
                if self.slots[other.number]:
                    ring.move(other.number, 0, self.slots[other.number])
            self._rings[key] = ring
        return ring

    def add(self, place: Place) -> None:
        """Adds a new place of the tree, which has no nodes yet."""
        self.slots[place.number] = 0

    def _slots_on(self, node: NodeRoom) -> int:
        if node.number == len(self._admits):
            self._admits.append(self.shape.rules.admits(node.labels, node.taints))
        return free_slots(node, self.shape) if self._admits[node.number] else 0

    def refresh(self, leaf: Place) -> None:
        """Updates the counts after the node of `leaf` changed."""
        node = leaf.node
        assert node is not None
        change = self._slots_on(node) - self.slots[leaf.number]
        if change == 0:
            return
        rings = self._rings
        place: Place | None = leaf
        while place is not None:
            before = self.slots[place.number]
            after = before + change
            self.slots[place.number] = after
            parent = place.parent
            if parent is not None:
                ring = rings.get(parent.number * 2048)
                if ring is not None:
                    ring.move(place.number, before, after)
            while parent is not None:
                ring = rings.get(parent.number * 2048 + place.level + 1)
                if ring is not None:
                    ring.move(place.number, before, after)
                parent = parent.parent
            place = place.parent


def free_slots(node: NodeRoom, shape: PodShape) -> int:
    """Returns how many more pods of a shape fit on a node that admits them."""
    if not node.usable or _is_kept_away(node, shape.rules):
        return 0
    free = node.free
    fewest = 1 if shape.rules.alone else -1
    for resource, parts in shape.needs:
        slots = free[resource] // parts
        if slots <= 0:
            return 0
        if fewest < 0 or slots < fewest:
            fewest = slots
    return fewest


def _is_kept_away(node: NodeRoom, rules: PodRules) -> bool:
    """Whether anti-affinity, of such pods or of pods in a domain of the node, keeps them away; or
    whether pods that they must be near are not there."""
    for term in rules.avoids:
        if term.matching.get(node.labels.get(term.key, "")):
            return True
    for term in rules.joins:
        domain = node.labels.get(term.key, "")
        if not (domain and (term.matching.get(domain) or rules.may_be_first(term))):
            return True
    return any(term.holding.get(node.labels.get(term.key, "")) for term in rules.matches)


class Tree:
    """The domains of one topology: levels of labels, the broadest first, over all nodes.

    A node belongs to a domain if it has the labels of that level and of every broader one; the same
    rack name in two zones means two racks.
    """

    def __init__(self, keys: list[str], nodes: list[NodeRoom], resources: int) -> None:
        self.keys: Final = keys
        self.root: Final = Place("the cluster", -1, None, None)
        self.leaves: Final[list[Place]] = []  # by number of the node
        self.places: Final[dict[int, Place]] = {}  # by number
        self.rooms: Final[list[Room | None]] = []  # by number of the shape
        self._there: Final[list[bool]] = [False] * len(keys)
        self._domains: Final[dict[tuple[int, str, str], Place]] = {}
        for node in nodes:
            for place in self._new_places(node):
                assert place.parent is not None
                place.parent.children.append(place)
        self._number(self.root, 0)
        for place in self.places.values():
            place.total = [0] * resources
        for leaf in self.leaves:
            self._count(leaf)

    def _new_places(self, node: NodeRoom) -> list[Place]:
        """Returns the domains that a node is the first in, the broadest first, and its leaf."""
        new: list[Place] = []
        parent, path = self.root, ""
        for level, key in enumerate(self.keys):
            value = node.labels.get(key)
            if value is None:
                break
            domain = self._domains.get((level, path, value))
            if domain is None:
                domain = Place(value, level, parent, None)
                self._domains[(level, path, value)] = domain
                self._there[level] = True
                new.append(domain)
            parent, path = domain, f"{path}/{value}"
        leaf = Place(node.name, NODES, parent, node)
        self.leaves.append(leaf)
        return [*new, leaf]

    def _number(self, place: Place, number: int) -> int:
        """Numbers places so that those within one are a range; returns the highest number."""
        place.number = place.last = number
        self.places[number] = place
        place.children.sort(key=lambda child: child.order)
        for child in place.children:
            place.last = self._number(child, place.last + APART)
        return place.last

    def _count(self, leaf: Place) -> None:
        """Adds a node's free resources to the totals of its places."""
        node = leaf.node
        assert node is not None
        if node.usable:
            for resource, parts in enumerate(node.free):
                self.add_to_totals(leaf, resource, parts)

    def add(self, node: NodeRoom, resources: int) -> bool:
        """Adds a node where a newly built tree would have it; False if no number is left for it.

        After False, the tree must be discarded.
        """
        for place in self._new_places(node):
            if not self._insert(place):
                return False
            place.total = [0] * resources
            for room in self.rooms:
                if room is not None:
                    room.add(place)
        self._count(self.leaves[-1])
        self.refresh(node)
        return True

    def _insert(self, place: Place) -> bool:
        """Inserts a place among its parent's children, with a number between its neighbours'."""
        parent = place.parent
        assert parent is not None
        children = parent.children
        at = bisect_left(children, place.order, key=lambda child: child.order)
        before = children[at - 1].last if at else parent.number
        after = children[at].number if at < len(children) else _following(parent)
        place.number = before + (min(NEXT, (after - before) // 2) if after >= 0 else APART)
        if place.number == before:
            return False
        place.last = place.number
        children.insert(at, place)
        self.places[place.number] = place
        above: Place | None = parent
        while above is not None and above.last < place.number:
            above.last = place.number
            above = above.parent
        return True

    def has_level(self, level: int) -> bool:
        """Whether any node has the labels of a level."""
        return self._there[level]

    def level(self, key: str) -> int:
        return self.keys.index(key) if key in self.keys else -1

    def within(self, place: Place, level: int) -> list[Place]:
        """Returns the places of a level inside a place."""
        if level == CHILDREN:
            return place.children
        found: list[Place] = []
        for child in place.children:
            if child.level == level:
                found.append(child)
            elif child.level < level:
                found += self.within(child, level)
        return found

    def domain_of(self, node: NodeRoom, level: int) -> Place | None:
        """Returns the domain of a level that a node is in; None if it lacks the label."""
        place: Place | None = self.leaves[node.number]
        while place is not None and place.level != level:
            place = place.parent
        return place

    def add_to_totals(self, leaf: Place, resource: int, parts: int) -> None:
        place: Place | None = leaf
        while place is not None:
            place.total[resource] += parts
            place = place.parent

    def refresh(self, node: NodeRoom) -> None:
        leaf = self.leaves[node.number]
        for room in self.rooms:
            if room is not None:
                room.refresh(leaf)


def _fits_empty(node: NodeRoom, shape: PodShape) -> bool:
    if not shape.rules.admits(node.labels, node.taints):
        return False
    return all(node.capacity[at] >= parts for at, parts in shape.needs)


def _following(place: Place) -> int:
    """Returns the number of the first place after those within a place; -1 if there is none."""
    inside, parent = place, place.parent
    while parent is not None:
        if parent.children[-1] is not inside:
            at = bisect_left(parent.children, inside.order, key=lambda child: child.order)
            return parent.children[at + 1].number
        inside, parent = parent, parent.parent
    return -1


class Space:
    """All nodes and the room on them."""

    def __init__(self) -> None:
        self.nodes: Final[list[NodeRoom]] = []
        self.by_name: Final[dict[str, NodeRoom]] = {}
        self.resources: Final[dict[str, int]] = {PODS: 0}
        self.resource_names: Final[list[str]] = [PODS]
        self.capacity: Final[list[int]] = [0]  # of all nodes together, by resource
        self.shapes: Final[list[PodShape]] = []
        self._by_needs: Final[dict[str, PodShape]] = {}
        self._levels: Final[dict[str, list[str]]] = {"": []}
        self._trees: Final[dict[str, Tree]] = {}
        self._ending: Final[dict[int, NodeRoom]] = {}  # nodes with terminating pods
        self._fits: Final[dict[int, bool]] = {}  # by shape: whether it fits on an empty node
        self._admitted: Final[dict[int, int]] = {}  # number of admissible nodes, by shape
        self._by_label: Final[dict[str, dict[str, list[NodeRoom]]]] = {}  # for keys of terms
        self._terms = 0
        self._has_soft_taints = False
        self._wishes: Final[dict[int, tuple[int, list[PodShape]]]] = {}
        """By shape, the number of nodes and the result of `wishes` at that time."""
        self.usable = 0
        """The number of nodes that take pods."""
        self.called: Final[dict[str, str]] = {}
        """The user's names of levels, by label."""
        self.freed = 0
        """Increases whenever there may be more room than before."""

    # Nodes, topologies, shapes.

    def add_topology(self, name: str, keys: list[str], domains: list[str] | None = None) -> None:
        """Adds a topology: levels of labels, the broadest first. The first topology is the default.

        `domains` are the users' names of the levels, if they differ from the labels.
        """
        for key, domain in zip(keys, domains or keys, strict=True):
            self.called[key] = domain
        if self._levels.get(name) == keys:
            return
        self._levels[name] = list(keys)
        if len(self._levels) == 2:  # the first named one is also the default
            self._levels[""] = list(keys)
        self._trees.clear()
        self.freed += 1

    def remove_topology(self, name: str) -> None:
        if name and self._levels.pop(name, None) is not None:
            self._trees.clear()

    def add_node(
        self,
        name: str,
        capacity: dict[str, float],
        labels: dict[str, str],
        taints: tuple[Taint, ...] = (),
    ) -> NodeRoom:
        assert name not in self.by_name, name
        node = NodeRoom(len(self.nodes), name, labels, taints)
        self.nodes.append(node)
        for key, named in self._by_label.items():
            named.setdefault(labels.get(key, ""), []).append(node)
        if any(taint[2] == PREFER_NO_SCHEDULE for taint in taints):
            self._has_soft_taints = True
        self.by_name[name] = node
        self._grow(node)
        for resource, wanted in {PODS: MOST_PODS_PER_NODE, **capacity}.items():
            number = self._resource(resource)
            have = round(wanted * PARTS)
            node.capacity[number] = node.free[number] = have
            self.capacity[number] += have
        for key, tree in list(self._trees.items()):
            if not tree.add(node, len(self.resource_names)):
                del self._trees[key]  # it is rebuilt on its next use
        for number, fits in self._fits.items():
            self._fits[number] = fits or _fits_empty(node, self.shapes[number])
        for number, count in self._admitted.items():
            self._admitted[number] = count + self.shapes[number].rules.admits(labels, taints)
        self.usable += 1
        self.freed += 1
        return node

    def _resource(self, name: str) -> int:
        number = self.resources.get(name)
        if number is None:
            number = len(self.resources)
            self.resources[name] = number
            self.resource_names.append(name)
            self.capacity.append(0)
            for node in self.nodes:
                self._grow(node)
            self._trees.clear()
        return number

    def _grow(self, node: NodeRoom) -> None:
        while len(node.free) < len(self.resource_names):
            node.free.append(0)
            node.capacity.append(0)

    def term(self, key: str, *, near: bool = False, says: str = "") -> PodTerm:
        """Creates a term for pods to avoid (or be near) by a node label; it has no pods yet."""
        self._terms += 1
        if key not in self._by_label:
            named = self._by_label[key] = {}
            for node in self.nodes:
                named.setdefault(node.labels.get(key, ""), []).append(node)
        return PodTerm(self._terms, key, near, says)

    def shape(self, needs: dict[str, float], rules: PodRules | None = None) -> PodShape:
        """Returns the shared shape of these needs; a need of 0 is ignored."""
        rules = rules or PodRules()
        wanted = {PODS: PARTS}
        for name, needed in needs.items():
            if needed > 0:
                wanted[name] = max(1, round(needed * PARTS))
        numbers = sorted([(self._resource(name), parts) for name, parts in wanted.items()])
        key = f"{numbers}{rules.key()}"
        shape = self._by_needs.get(key)
        if shape is None:
            named = [amount(name, wanted[name]) for name in sorted(wanted) if name != PODS]
            says = ", ".join(named[:-1]) + " and " * (len(named) > 1) + "".join(named[-1:])
            shape = PodShape(len(self.shapes), numbers, says, rules)
            self.shapes.append(shape)
            self._by_needs[key] = shape
        return shape

    def wishes(self, shape: PodShape) -> list[PodShape]:
        """Returns variants of the shape: on its most preferred nodes, then on more and more of
        them.

        Preferences for or against other pods count more than those for nodes.
        """
        rules = shape.rules
        if not (rules.preferences or rules.shuns or rules.likes or self._has_soft_taints):
            return []
        known = self._wishes.get(shape.number)
        if known is not None and known[0] == len(self.nodes):
            return known[1]
        scores = {
            rules.score(node.labels, node.taints)
            for node in self.nodes
            if rules.admits(node.labels, node.taints)
        }
        best = sorted(scores, reverse=True)[:MOST_SCORES]
        leasts = [*best[: len(scores) - 1], None]
        made = []
        if rules.shuns or rules.likes:
            avoids, joins = (*rules.avoids, *rules.shuns), (*rules.joins, *rules.likes)
            kept = replace(rules, avoids=avoids, joins=joins)
            made = [self._variant(shape, replace(kept, least=least)) for least in leasts]
        made += [self._variant(shape, replace(rules, least=least)) for least in leasts[:-1]]
        self._wishes[shape.number] = (len(self.nodes), made)
        return made

    def _variant(self, shape: PodShape, rules: PodRules) -> PodShape:
        """Returns the shape with other rules, for counting only; no pod is stored under it."""
        key = f"{shape.number}?{rules.key()}"
        found = self._by_needs.get(key)
        if found is None:
            found = PodShape(len(self.shapes), shape.needs, shape.says, rules)
            self.shapes.append(found)
            self._by_needs[key] = found
        return found

    def anywhere(self, shape: PodShape) -> PodShape:
        """Returns the shape without required affinity, as the pods to be near may be in the same
        placement."""
        rules = shape.rules
        return self._variant(shape, replace(rules, joins=())) if rules.joins else shape

    def fits_empty(self, shape: PodShape) -> bool:
        """Whether a pod of a shape would fit on some node, if that were empty and usable."""
        fits = self._fits.get(shape.number)
        if fits is None:
            fits = any(_fits_empty(node, shape) for node in self.nodes)
            self._fits[shape.number] = fits
        return fits

    def admitted(self, shape: PodShape) -> int:
        """Returns how many nodes a pod's selector, affinity and tolerations admit."""
        count = self._admitted.get(shape.number)
        if count is None:
            rules = shape.rules
            count = sum([rules.admits(node.labels, node.taints) for node in self.nodes])
            self._admitted[shape.number] = count
        return count

    # Trees and rooms.

    def tree(self, topology: str, keys: list[str]) -> Tree:
        """Returns the topology of that name; unknown keys become further, narrower levels."""
        name, levels = topology, self._levels.get(topology)
        if levels is None:
            name, levels = "", self._levels[""]
        strange = list(dict.fromkeys([key for key in keys if key not in levels]))
        if strange:
            # If a gang uses none of the levels, its labels are levels on their own.
            known = [] if len(strange) == len(set(keys)) else levels
            levels = known + strange
            name = "\n".join(levels)
        tree = self._trees.get(name)
        if tree is None:
            tree = Tree(levels, self.nodes, len(self.resource_names))
            self._trees[name] = tree
        return tree

    def room(self, tree: Tree, shape: PodShape) -> Room:
        while len(tree.rooms) <= shape.number:
            tree.rooms.append(None)
        room = tree.rooms[shape.number]
        if room is None:
            room = Room(tree, shape)
            tree.rooms[shape.number] = room
        return room

    # Changes.

    def give(self, node: NodeRoom, shape: PodShape) -> None:
        """Frees the part of a node that a pod of a shape occupied."""
        self.shift(node, shape, 1)
        self.freed += 1

    def shift(self, node: NodeRoom, shape: PodShape, count: int) -> None:
        """Adds room for `count` pods, or takes it if negative; also for moves that are undone."""
        for resource, parts in shape.needs:
            node.free[resource] += parts * count
        if shape.rules.avoids or shape.rules.matches:
            self.count_terms(node, shape.rules, -count)
        for tree in self._trees.values():
            if node.usable:
                leaf = tree.leaves[node.number]
                for resource, parts in shape.needs:
                    tree.add_to_totals(leaf, resource, parts * count)
            tree.refresh(node)

    def count_terms(self, node: NodeRoom, rules: PodRules, pods: int) -> None:
        """Counts `pods` more pods on a node, or fewer if negative, for (anti-)affinity terms."""
        counted = [(term, term.matching) for term in rules.matches]
        counted += [(term, term.holding) for term in rules.avoids]
        for term, counts in counted:
            domain = node.labels.get(term.key, "")
            before = counts.get(domain, 0)
            counts[domain] = before + pods if domain else 0
            if (before > 0) == (counts[domain] > 0):
                continue
            named = self._by_label[term.key]
            affected = named[domain]
            if counts is term.matching:
                few = term.domains
                term.domains += 1 if pods > 0 else -1
                if term.near and 0 in (few, term.domains):  # the first may be anywhere
                    affected = [other for nodes in named.values() for other in nodes]
            for other in affected:
                for tree in self._trees.values():
                    tree.refresh(other)

    def set_usable(self, node: NodeRoom, *, usable: bool) -> None:
        """Sets whether a node takes pods; it does not while cordoned or failed."""
        if node.usable == usable:
            return
        node.usable = usable
        self.usable += 1 if usable else -1
        for tree in self._trees.values():
            leaf = tree.leaves[node.number]
            for resource, parts in enumerate(node.free):
                tree.add_to_totals(leaf, resource, parts if usable else -parts)
            tree.refresh(node)
        if usable:
            self.freed += 1

    def releasing(self, node: NodeRoom, shape: PodShape, count: int = 1) -> None:
        """Records `count` terminating pods of a shape; negative if they ended or are no longer
        counted."""
        left = node.releasing.get(shape.number, 0) + count
        assert left >= 0
        if left:
            node.releasing[shape.number] = left
            self._ending[node.number] = node
        else:
            del node.releasing[shape.number]
            if not node.releasing:
                del self._ending[node.number]
        self.freed += 1

    def releasing_nodes(self) -> list[NodeRoom]:
        """Returns the usable nodes with terminating pods."""
        return [node for _, node in sorted(self._ending.items()) if node.usable]
