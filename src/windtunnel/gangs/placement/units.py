"""A gang as the search sees it: units that are packed, and loads of similar pods."""

from dataclasses import dataclass, field

from windtunnel.gangs.placement.requests import (
    GangRequest,
    GroupRequest,
    PackConstraint,
    PodShape,
    UnboundPod,
)
from windtunnel.gangs.placement.space import NodeRoom, Place, Space, Tree


@dataclass(eq=False)
class UnitLoad:
    """Pods of one shape and group that are placed by one move."""

    group: GroupRequest
    shape: PodShape
    pods: list[UnboundPod]
    counted: PodShape
    """The shape by which room is counted: the pods' own, or its variant on preferred nodes only."""
    wishes: list[PodShape]


@dataclass(eq=False)
class Unit:
    """A gang, a part or a group that is packed: its loads, and the unit that contains it."""

    name: str
    pack: PackConstraint | None
    parent: "Unit | None"
    is_group: bool = False
    loads: list[UnitLoad] = field(default_factory=list)
    """Its own loads and those of the units within."""
    bound: list[list[str]] = field(default_factory=list)
    """The nodes of its bound pods, by group."""
    domain: Place | None = None

    def pods(self) -> int:
        return sum([len(load.pods) for load in self.loads])

    def is_required(self) -> bool:
        """Whether its pods, or those of an enclosing unit, must be in one domain of a level."""
        own = self.pack is not None and self.pack.required is not None
        return own or (self.parent is not None and self.parent.is_required())


@dataclass(eq=False)
class Taken:
    """Pods that a move put on a node."""

    node: NodeRoom
    shape: PodShape
    pods: list[UnboundPod]


@dataclass(eq=False)
class FoundPlace:
    """A placement: which pods go where. The space already counts them."""

    taken: list[Taken]

    def undo(self, space: Space) -> None:
        for taken in reversed(self.taken):
            space.shift(taken.node, taken.shape, len(taken.pods))

    def redo(self, space: Space) -> None:
        for taken in self.taken:
            space.shift(taken.node, taken.shape, -len(taken.pods))

    def keep(self, names: set[str], space: Space) -> None:
        """Frees the room of all other pods."""
        for taken in self.taken:
            kept = [pod for pod in taken.pods if pod.name in names]
            if len(kept) < len(taken.pods):
                space.shift(taken.node, taken.shape, len(taken.pods) - len(kept))
                taken.pods = kept
        self.taken = [taken for taken in self.taken if taken.pods]


def could_hold(space: Space, tree: Tree, place: Place, loads: list[UnitLoad]) -> bool:
    """Whether a place has the room by count: for each shape alone, and for the sum of all."""
    if len(loads) == 1:
        room = space.room(tree, space.anywhere(loads[0].counted))
        return room.slots[place.number] >= len(loads[0].pods)
    counts: dict[int, int] = {}
    sums: dict[int, int] = {}
    for load in loads:
        shape = space.anywhere(load.counted)
        counts[shape.number] = counts.get(shape.number, 0) + len(load.pods)
        for resource, amount in load.shape.needs:
            sums[resource] = sums.get(resource, 0) + amount * len(load.pods)
    for number, count in counts.items():
        if space.room(tree, space.shapes[number]).slots[place.number] < count:
            return False
    if len(counts) > 1:
        for resource, amount in sums.items():
            if place.total[resource] < amount:
                return False
    return True


def keys_of(gang: GangRequest) -> list[str]:
    """Returns all labels that a gang's constraints name."""
    packs = [gang.pack, *[part.pack for part in gang.parts], *[g.pack for g in gang.groups]]
    keys = [key for pack in packs if pack is not None for key in (pack.required, pack.preferred)]
    spreads = [gang.spread, *[group.spread for group in gang.groups]]
    keys += [spread.key for spread in spreads if spread is not None]
    return [key for key in keys if key is not None]


def units_of(gang: GangRequest, wanted: dict[str, list[UnboundPod]], space: Space) -> list[Unit]:
    """Returns the units of a gang, each after its parent, the most demanding first."""
    whole = Unit(gang.name, gang.pack, None)
    parts = [Unit(part.name, part.pack, whole) for part in gang.parts]
    part_of = {name: number for number, part in enumerate(gang.parts) for name in part.groups}
    units: list[Unit] = [*parts]
    for group in gang.groups:
        pods = wanted.get(group.name, [])
        parent = parts[part_of[group.name]] if group.name in part_of else whole
        unit = Unit(group.name, group.pack, parent, is_group=True)
        unit.loads.extend(_loads(group, pods, space))
        above: Unit | None = unit
        while above is not None:
            above.bound.append(group.bound)
            if above is not unit:
                above.loads.extend(unit.loads)
            above = above.parent
        units.append(unit)
    for unit in [whole, *units]:
        unit.loads.sort(
            key=lambda load: (-weight(space, load.shape), -len(load.pods), load.group.name)
        )
    ordered = [whole]
    _put_within(whole, units, ordered, space, _turns(whole.loads))
    return [unit for unit in ordered if unit.loads or unit.parent is None]


def _turns(loads: list[UnitLoad]) -> dict[str, int]:
    """Ranks groups with pods that must be near pods of other groups: they come after those."""
    turns: dict[str, int] = {}
    late = [load for load in loads if load.shape.rules.joins]
    for _ in late:
        for load in late:
            rules = load.shape.rules
            terms = [term for term in rules.joins if term not in rules.matches]
            for other in loads:
                if any(term in other.shape.rules.matches for term in terms):
                    turn = min(len(late), turns.get(other.group.name, 0) + 1)
                    turns[load.group.name] = max(turns.get(load.group.name, 0), turn)
    return turns


def _put_within(
    parent: Unit, units: list[Unit], ordered: list[Unit], space: Space, turns: dict[str, int]
) -> None:
    inside = [unit for unit in units if unit.parent is parent and unit.loads]
    inside.sort(
        key=lambda unit: (
            max([turns.get(load.group.name, 0) for load in unit.loads]),
            any(load.shape.rules.joins for load in unit.loads),
            unit.pack is None,
            -weight(space, unit.loads[0].shape),
            -unit.pods(),
            unit.name,
        )
    )
    for unit in inside:
        ordered.append(unit)
        _put_within(unit, units, ordered, space, turns)


def _loads(group: GroupRequest, pods: list[UnboundPod], space: Space) -> list[UnitLoad]:
    by_shape: dict[int, list[UnboundPod]] = {}
    for pod in pods:
        by_shape.setdefault(pod.shape.number, []).append(pod)
    return [
        UnitLoad(group, alike[0].shape, alike, alike[0].shape, space.wishes(alike[0].shape))
        for alike in by_shape.values()
    ]


def weight(space: Space, shape: PodShape) -> int:
    """The largest share of all machines that one pod needs of any resource, in billionths."""
    largest = 0
    for resource, amount in shape.needs:
        largest = max(largest, amount * 1_000_000_000 // max(1, space.capacity[resource]))
    return largest
