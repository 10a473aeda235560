"""Finds a place for one gang: a depth-first search that tries the obvious first.

The tree of a gang becomes a list of moves, largest first: choose a domain for a packed unit, then
fill it. The first try goes through all choices of domains and fills each in the way that wastes
least (the tightest place that holds the rest, otherwise the widest). Only if that fails, and
counting alone does not explain why, a second try goes through all fillings, too. Each try ends
after PATIENCE moves; within that limit a gang is placed if and only if it can be.
"""

from typing import Final

from windtunnel.gangs.placement.moves import Attempt, Enter, Fill, Remembered
from windtunnel.gangs.placement.requests import GangRequest, UnboundPod
from windtunnel.gangs.placement.space import NodeRoom, Place, Space
from windtunnel.gangs.placement.units import FoundPlace, Unit, units_of

PATIENCE: Final = 2_000
"""Moves in one try for one gang: about 20 ms, interpreted."""


class Search:
    """The search for one gang's place. A failed try leaves no changes."""

    def __init__(
        self,
        space: Space,
        gang: GangRequest,
        siblings: dict[int, int],
        remembered: Remembered,
        wanted: dict[str, list[UnboundPod]],
    ) -> None:
        self.attempt: Final = Attempt(space, gang, siblings, remembered)
        self.units: Final[list[Unit]] = units_of(gang, wanted, space)
        self.cut = False  # whether a try ran out of PATIENCE
        self.deepest = 0  # how many moves the last try got past
        for unit in self.units:
            if unit.parent is None or unit.pack is not None:
                self.attempt.moves.append(Enter(self.attempt, unit))
            for load in unit.loads if unit.is_group else []:
                self.attempt.moves.append(Fill(self.attempt, unit, load))

    def run(self) -> FoundPlace | None:
        """Returns the first placement found; None, with nothing changed, if there is none.

        A gang that should be near given nodes is tried there first, then in ever wider domains.
        """
        for place in self._near():
            self.attempt.within = place
            found = self._run()
            if found is not None:
                return found
        return None

    def as_close_as(self, other: "Search") -> bool:
        """Whether every unit is in a domain as narrow as in another search for the same gang.

        Units in a required domain are ignored: later pods must be in it, too, so room for them
        there counts more than a preferred domain for the first pods.
        """
        ours, free = self.widening(), [unit for unit in other.units if not unit.is_required()]
        theirs = other.widening()
        return all(ours.get(unit.name, 0) <= theirs.get(unit.name, 0) for unit in free)

    def required_domains(self) -> dict[str, Place]:
        """Returns, after a successful run, the domain of each unit with a required level."""
        found: dict[str, Place] = {}
        for unit in self.units:
            place = unit.domain
            if unit.pack is None or unit.pack.required is None:
                continue
            level = self.attempt.tree.level(unit.pack.required)
            while place is not None and place.level > level:
                place = place.parent
            if place is not None:
                found[unit.name] = place
        return found

    def widening(self) -> dict[str, int]:
        """Returns, after a successful run, how many levels above its preferred one each packed unit
        is."""
        enters = [move for move in self.attempt.moves if isinstance(move, Enter)]
        return {move.unit.name: move.stage for move in enters}

    def go_on(self, node: NodeRoom, pod: UnboundPod) -> None:
        """Leaves the pod just placed on its node, and continues with a similar one."""
        for move in self.attempt.moves:
            move.settle(node)
        self.units[0].loads[0].pods = [pod]

    def _near(self) -> list[Place]:
        """Returns the domains that hold all nodes in `near`, narrowest first, up to the whole
        cluster."""
        tree, space = self.attempt.tree, self.attempt.space
        near = [space.by_name[name] for name in self.attempt.gang.near if name in space.by_name]
        place: Place | None = tree.leaves[near[0].number].parent if near else tree.root
        found: list[Place] = []
        while place is not None:
            if all(place.holds(tree.leaves[node.number]) for node in near):
                found.append(place)
            place = place.parent
        return found

    def _run(self) -> FoundPlace | None:
        wishes = self.attempt.gang.spread is not None and not self.attempt.gang.spread.required
        for group in self.attempt.gang.groups:
            wishes = wishes or (group.spread is not None and not group.spread.required)
        loads = self.units[0].loads
        wishes = wishes or any(load.wishes for load in loads)
        for soft in [True, False] if wishes else [True]:
            self.attempt.soft = soft
            for load in loads:
                load.counted = load.wishes[0] if soft and load.wishes else load.shape
            self.attempt.shapes = list(dict.fromkeys([load.counted for load in loads]))
            for exhaustive in (False, True):
                self.attempt.exhaustive = exhaustive
                if self._try():
                    return FoundPlace(
                        [taken for move in self.attempt.moves for taken in move.taken]
                    )
                if self.deepest == 0 and not self.cut:
                    break  # no domain has the room, and no filling changes that
        return None

    def _try(self) -> bool:
        at = 0
        self.deepest = self.attempt.work = 0
        if not self.attempt.moves:
            return True
        self.attempt.moves[0].start()
        while True:
            if self.attempt.moves[at].advance():
                at += 1
                if at == len(self.attempt.moves):
                    return True
                self.deepest = max(self.deepest, at)
                self.attempt.moves[at].start()
            else:
                at -= 1
                if at < 0:
                    return False
            self.attempt.work += 1
            if self.attempt.work > PATIENCE:
                self.cut = True
                for move in reversed(self.attempt.moves[: at + 1]):
                    move.take_back()
                return False
