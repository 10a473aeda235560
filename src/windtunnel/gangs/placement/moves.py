"""The moves of a search: choose a domain for a unit, put a load of pods on nodes.

Each move goes through its alternatives in a fixed order, the most promising first.
"""

from typing import Final

from windtunnel.gangs.placement.requests import GangRequest, GroupRequest, PodShape, SpreadLimit
from windtunnel.gangs.placement.space import CHILDREN, NODES, NodeRoom, Place, Space, Tree
from windtunnel.gangs.placement.units import Taken, Unit, UnitLoad, could_hold, keys_of

Remembered = dict[str, list[str]]
"""An earlier placement: nodes by group."""


class Attempt:
    """The state that the moves for one gang share."""

    def __init__(
        self, space: Space, gang: GangRequest, siblings: dict[int, int], remembered: Remembered
    ) -> None:
        self.space: Final = space
        self.gang: Final = gang
        self.tree: Final[Tree] = space.tree(gang.topology, keys_of(gang))
        self.siblings: Final = siblings  # gangs of the family, by number of the domain
        self.remembered: Final = remembered
        self.shapes: list[PodShape] = []  # by which room is counted
        self.finest = -1  # the narrowest level that the gang names
        for key in keys_of(gang):
            self.finest = max(self.finest, self.tree.level(key))
        self.within: Place = self.tree.root  # where to place the gang
        self.confined: dict[str, Place] = {}  # where the domain of a unit has to be
        self.soft = True  # whether preferred spreads apply, too
        self.exhaustive = False
        self.work = 0
        self.moves: Final[list[Move]] = []


class Move:
    """A choice with alternatives. `advance` undoes the current one and tries the next."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt: Final = attempt
        self.taken: list[Taken] = []

    def start(self) -> None:
        """Restarts with the first alternative."""
        raise NotImplementedError

    def advance(self) -> bool:
        """Whether there was another alternative, which is now applied."""
        raise NotImplementedError

    def take_back(self) -> None:
        for taken in reversed(self.taken):
            self.attempt.space.shift(taken.node, taken.shape, len(taken.pods))
        self.taken = []

    def settle(self, node: NodeRoom) -> None:  # noqa: ARG002 - who counts pods overrides it
        """Fixes one pod to the node that the search chose, before the search for the next pod."""
        self.taken = []


class Enter(Move):
    """Chooses the domain of a unit: at the preferred level first, then broader, up to the required
    one."""

    def __init__(self, attempt: Attempt, unit: Unit) -> None:
        super().__init__(attempt)
        self.unit: Final = unit
        self._levels: Final = self._stages()
        self._pinned: Place | None = None
        self._pin_counts: Final[dict[int, dict[int, int]]] = {}  # by level, by domain: bound pods
        self._bound: Final[dict[str, int]] = {}  # pods of the unit by node, once they are counted
        self.stage = 0
        """Levels above the preferred one; 0 is the narrowest."""
        self._count = 0
        self._place = -1
        self._first: list[Place] = []  # where the earlier placement was

    def start(self) -> None:
        self.stage = 0
        self._restart()

    def _restart(self) -> None:
        lead = self.unit.loads[0] if self.unit.loads else None
        self._count = len(lead.pods) if lead is not None else 0
        self._place = -1
        self._first = []
        if self.stage < len(self._levels):
            self._pinned = self._pins(self._levels[self.stage])
        if self.stage < len(self._levels) and self.attempt.remembered:
            self._first = self._remembered(self._levels[self.stage])

    def _outer(self) -> Place:
        parent = self.unit.parent
        if parent is None or parent.domain is None:
            return self.attempt.within
        return parent.domain

    def advance(self) -> bool:
        while self.stage < len(self._levels):
            place = self._next(self._levels[self.stage])
            if place is None:
                self.stage += 1
                self._restart()
            elif self._allows(place):
                self.unit.domain = place
                return True
        return False

    def _next(self, level: int) -> Place | None:
        """Returns the next domain of a level: those of the earlier placement, then the tightest
        that fits."""
        outer = self._outer()
        if level == -1 or outer.level >= level:  # the outer domain is the only choice
            self._place += 1
            return outer if self._place == 0 else None
        if self._first:
            return self._first.pop()
        if not self.unit.loads:
            return None
        space = self.attempt.space
        room = space.room(self.attempt.tree, space.anywhere(self.unit.loads[0].counted))
        number = room.ring(outer, level).after(self._count, self._place)
        if number < 0:
            return None
        self._count, self._place = room.slots[number], number
        return self.attempt.tree.places[number]

    def _allows(self, place: Place) -> bool:
        if self._pinned is not None and not self._pinned.holds(place):
            return False
        confined = self.attempt.confined.get(self.unit.name)
        if confined is not None and not confined.holds(place):
            return False
        if self.unit.parent is None and not self._apart(place):
            return False
        return could_hold(self.attempt.space, self.attempt.tree, place, self.unit.loads)

    def _apart(self, place: Place) -> bool:
        """Whether the gang is as far from others of its family as its spread limit demands."""
        spread = self.attempt.gang.spread
        if spread is None or not (spread.required or self.attempt.soft):
            return True
        level = self.attempt.tree.level(spread.key)
        domain: Place | None = place
        while domain is not None and domain.level != level:
            domain = domain.parent
        if domain is None:
            return not spread.required
        return self.attempt.siblings.get(domain.number, 0) < spread.most

    def _stages(self) -> list[int]:
        """Returns the levels to try, narrowest first; -1 means the whole outer domain."""
        pack, tree, floor = self.unit.pack, self.attempt.tree, -1
        if pack is not None and pack.required is not None:
            floor = tree.level(pack.required)
        spread = self.attempt.gang.spread if self.unit.parent is None else None
        if spread is not None and spread.required:
            floor = max(floor, tree.level(spread.key))  # to be spread, each must be in one
        stages = list[int]()
        if pack is not None and pack.preferred is not None:
            stages = list(range(tree.level(pack.preferred), floor, -1))
        return [*stages, floor]

    def _pins(self, level: int) -> Place | None:
        """The domain of a level that has most of the unit's bound pods: others join them."""
        if level == -1:
            return None
        counts = self._pin_counts.get(level)
        if counts is None:
            counts = self._pin_counts[level] = {}
            if not self._bound:  # pods of a node are looked up together
                for nodes in self.unit.bound:
                    for name in nodes:
                        self._bound[name] = self._bound.get(name, 0) + 1
            for name, count in self._bound.items():
                node = self.attempt.space.by_name.get(name)
                if node is not None:
                    self._pin(counts, node, level, count)
        if not counts:
            return None
        return self.attempt.tree.places[min(counts, key=lambda number: (-counts[number], number))]

    def _pin(self, counts: dict[int, int], node: NodeRoom, level: int, pods: int = 1) -> None:
        domain = self.attempt.tree.domain_of(node, level)
        if domain is not None:
            counts[domain.number] = counts.get(domain.number, 0) + pods

    def settle(self, node: NodeRoom) -> None:
        super().settle(node)
        if self._bound:  # otherwise it is counted with the others
            self._bound[node.name] = self._bound.get(node.name, 0) + 1
        for level, counts in self._pin_counts.items():
            self._pin(counts, node, level)

    def _remembered(self, level: int) -> list[Place]:
        """The domains of the unit's earlier placement, the one with most of its pods last."""
        tree, counts = self.attempt.tree, dict[int, int]()
        groups = [load.group.name for load in self.unit.loads]
        for group in groups:
            for name in self.attempt.remembered.get(group, []):
                node = self.attempt.space.by_name.get(name)
                domain = None if node is None else tree.domain_of(node, level)
                if domain is not None and self._outer().holds(domain):
                    counts[domain.number] = counts.get(domain.number, 0) + 1
        ordered = sorted(counts, key=lambda number: (counts[number], -number))
        return [tree.places[number] for number in ordered]


class Fill(Move):
    """Puts the pods of a load on nodes of its unit's domain."""

    def __init__(self, attempt: Attempt, unit: Unit, load: UnitLoad) -> None:
        super().__init__(attempt)
        self._unit: Final = unit
        self._load: Final = load
        self._started = False
        self._left = 0
        self._done = 0  # pods in `taken`, while there are any
        self._nodes: list[Place] = []
        self._most: list[int] = []
        self._counts: list[int] = []

    def _domain(self) -> Place:
        unit: Unit | None = self._unit
        while unit is not None:
            if unit.domain is not None:
                return unit.domain
            unit = unit.parent
        return self.attempt.tree.root

    def start(self) -> None:
        self._started = False

    def advance(self) -> bool:
        first = not self._started
        self._started = True
        self.take_back()
        if not self.attempt.exhaustive:
            return first and self._greedy()
        if first:
            if not self._lay_out():
                return False
        elif not self._next_counts():
            return False
        while not (self._within_spread() and self._kept_apart() and self._kept_together()):
            if not self._next_counts():
                return False
        for place, count in zip(self._nodes, self._counts, strict=True):
            if count:
                self._put(place, count)
        return True

    def _put(self, place: Place, count: int) -> None:
        node = place.node
        assert node is not None
        done = self._done if self.taken else 0
        self.attempt.space.shift(node, self._load.shape, -count)
        pods = self._load.pods[done : done + count]
        self._done = done + len(pods)
        self.taken.append(Taken(node, self._load.shape, pods))

    # The filling that wastes least.

    def _greedy(self) -> bool:
        domain, load = self._domain(), self._load
        self._left = len(load.pods)
        slots = self.attempt.space.room(self.attempt.tree, load.counted).slots
        if slots[domain.number] < self._left:
            return False
        spread = self._spread()
        if spread is not None:
            return self._scatter(domain, spread)
        for name in self.attempt.remembered.get(load.group.name, []):
            node = self.attempt.space.by_name.get(name)
            if node is not None and self._left:
                leaf = self.attempt.tree.leaves[node.number]
                if domain.holds(leaf) and slots[leaf.number]:
                    self._put(leaf, 1)
                    self._left -= 1
        for shape in [load.counted] if self.attempt.soft else [*load.wishes, load.shape]:
            room = self.attempt.space.room(self.attempt.tree, shape)
            while self._left and room.slots[domain.number]:
                rules = shape.rules
                if any(rules.may_be_first(term) for term in rules.joins):
                    if not self._found(domain, shape):
                        break
                    continue
                most = 1 if rules.apart else room.slots[domain.number]
                part = min(self._left, most)
                self._pour(domain, part, shape)
                self._left -= part
        if self._left:  # counts are too high for (anti-)affinity in wide domains
            self.take_back()
        return self._left == 0

    def _pour(self, place: Place, count: int, shape: PodShape) -> None:
        if place.node is not None:
            if count:
                self._put(place, count)
            return
        room = self.attempt.space.room(self.attempt.tree, shape)
        ring = room.ring(place, CHILDREN)
        while count:
            number = ring.tightest(count)
            if number < 0:
                number = ring.widest()
            part = min(count, room.slots[number])
            self._pour(self.attempt.tree.places[number], part, shape)
            count -= part

    def _found(self, domain: Place, shape: PodShape) -> bool:
        """Puts the first of pods that must be near each other where all remaining ones fit."""
        keys = [term.key for term in shape.rules.joins if shape.rules.may_be_first(term)]
        slots = self.attempt.space.room(self.attempt.tree, shape).slots
        leaves: dict[tuple[str | None, ...], list[Place]] = {}
        for leaf in self.attempt.tree.within(domain, NODES) or [domain]:
            if slots[leaf.number] and leaf.node is not None:
                labels = leaf.node.labels
                leaves.setdefault(tuple([labels.get(key) for key in keys]), []).append(leaf)
        best: list[Place] = []
        fewest = 0
        for together in leaves.values():
            count = sum([slots[leaf.number] for leaf in together])
            if count >= self._left and (not best or count < fewest):
                best, fewest = together, count
        if best:
            self._put(min(best, key=lambda leaf: (slots[leaf.number], leaf.number)), 1)
            self._left -= 1
        return bool(best)

    def _spread(self) -> SpreadLimit | None:
        spread = self._load.group.spread
        return spread if spread is not None and (spread.required or self.attempt.soft) else None

    def _scatter(self, domain: Place, spread: SpreadLimit) -> bool:
        """Puts each pod into the domain with the fewest of the group, the one with most room on a
        tie."""
        tree = self.attempt.tree
        level = tree.level(spread.key)
        room = self.attempt.space.room(tree, self._load.counted)
        domains = [domain] if domain.level >= level else tree.within(domain, level)
        counts = self._group_counts(level)
        for _ in range(self._left):
            best: Place | None = None
            fewest = (0, 0)
            for place in domains:
                held = (counts.get(_above(place, level), 0), -room.slots[place.number])
                if held[0] < spread.most and held[1] and (best is None or held < fewest):
                    best, fewest = place, held
            if best is None:
                self.take_back()
                return False
            home = _above(best, level)
            counts[home] = counts.get(home, 0) + 1
            self._pour(best, 1, self._load.counted)
        return True

    def _group_counts(self, level: int) -> dict[int, int]:
        """Counts the group's pods by domain of a level: bound ones, and those of earlier loads."""
        tree, counts = self.attempt.tree, dict[int, int]()
        names = list(self._load.group.bound)
        for move in self.attempt.moves:
            if move is not self and isinstance(move, Fill) and move.is_of(self._load.group):
                names += [taken.node.name for taken in move.taken for _ in taken.pods]
        for name in names:
            node = self.attempt.space.by_name.get(name)
            domain = None if node is None else tree.domain_of(node, level)
            if domain is not None:
                counts[domain.number] = counts.get(domain.number, 0) + 1
        return counts

    def is_of(self, group: GroupRequest) -> bool:
        return self._load.group is group

    # All fillings: how many pods each node gets, counts descending from the first node on.

    def _lay_out(self) -> bool:
        tree = self.attempt.tree
        slots = self.attempt.space.room(tree, self._load.counted).slots
        leaves = tree.within(self._domain(), NODES) or [self._domain()]
        self._nodes = [leaf for leaf in leaves if leaf.node is not None and slots[leaf.number]]
        self._nodes.sort(key=self._likeness)
        self.attempt.work += len(self._nodes) // 8
        self._most = [slots[leaf.number] for leaf in self._nodes]
        self._counts = [0] * len(self._nodes)
        return self._deal(0, len(self._load.pods))

    def _likeness(self, leaf: Place) -> tuple[int, list[int], int]:
        assert leaf.node is not None
        return (self._home(leaf), leaf.node.free, leaf.number)

    def _home(self, leaf: Place) -> int:
        assert leaf.node is not None
        domain = self.attempt.tree.domain_of(leaf.node, self.attempt.finest)
        return -1 if domain is None else domain.number

    def _alike(self, one: Place, other: Place) -> bool:
        """Whether two nodes are interchangeable for this gang."""
        assert one.node is not None
        assert other.node is not None
        if one.node.free != other.node.free or self._home(one) != self._home(other):
            return False
        for shape in self.attempt.shapes:
            slots = self.attempt.space.room(self.attempt.tree, shape).slots
            if slots[one.number] != slots[other.number]:
                return False
            for term in (*shape.rules.avoids, *shape.rules.joins, *shape.rules.matches):
                if one.node.labels.get(term.key) != other.node.labels.get(term.key):
                    return False
        return True

    def _bound(self, at: int) -> int:
        """Limits a node to the count of an interchangeable one before it, as other orders are
        equivalent."""
        if at and self._alike(self._nodes[at], self._nodes[at - 1]):
            return min(self._most[at], self._counts[at - 1])
        return self._most[at]

    def _deal(self, start: int, count: int) -> bool:
        for at in range(start, len(self._counts)):
            self._counts[at] = min(self._bound(at), count)
            count -= self._counts[at]
        return count == 0

    def _next_counts(self) -> bool:
        self.attempt.work += len(self._counts) // 8
        rest = 0
        for at in range(len(self._counts) - 1, -1, -1):
            while self._counts[at]:
                self._counts[at] -= 1
                rest += 1
                if self._deal(at + 1, rest):
                    return True
        return False

    def _within_spread(self) -> bool:
        spread = self._spread()
        if spread is None:
            return True
        level = self.attempt.tree.level(spread.key)
        counts = self._group_counts(level)
        for place, count in zip(self._nodes, self._counts, strict=True):
            assert place.node is not None
            domain = self.attempt.tree.domain_of(place.node, level)
            if count and domain is None:
                return False
            if count and domain is not None:
                counts[domain.number] = counts.get(domain.number, 0) + count
                if counts[domain.number] > spread.most:
                    return False
        return True

    def _kept_apart(self) -> bool:
        """Whether pods that avoid each other are in different domains."""
        rules = self._load.counted.rules
        for term in rules.avoids if rules.apart else ():
            taken: set[str] = set()
            for place, count in zip(self._nodes, self._counts, strict=True):
                assert place.node is not None
                domain = place.node.labels.get(term.key, "")
                if count and domain and term in rules.matches:
                    if domain in taken:
                        return False
                    taken.add(domain)
        return True

    def _kept_together(self) -> bool:
        """Whether the first pods of a group that must be near each other are in one domain."""
        rules = self._load.counted.rules
        for term in rules.joins:
            if rules.may_be_first(term):
                used = zip(self._nodes, self._counts, strict=True)
                nodes = [place.node for place, count in used if count]
                if len({node.labels.get(term.key) for node in nodes if node is not None}) > 1:
                    return False
        return True


def _above(place: Place, level: int) -> int:
    """Returns the number of the domain of a level that contains a place."""
    domain: Place | None = place
    while domain is not None and domain.level != level:
        domain = domain.parent
    return -1 if domain is None else domain.number
