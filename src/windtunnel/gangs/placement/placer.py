"""Places gangs on machines, each whole or not at all, in order of priority.

One pass considers every gang that lacks pods. First the minima: all groups of a gang reach theirs
together, or nothing changes for it. A gang that would fit but for terminating pods holds their
room; one that would fit without gangs of lower priority has those evicted. Then pods above the
minima are placed one by one in the room that is left. A gang that waits gets the reason as a
sentence.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from windtunnel.gangs.placement.moves import Remembered
from windtunnel.gangs.placement.requests import (
    NO_TIE,
    GangRequest,
    GroupRequest,
    PackConstraint,
    PodShape,
    Tie,
    UnboundPod,
)
from windtunnel.gangs.placement.search import Search
from windtunnel.gangs.placement.space import NodeRoom, Space
from windtunnel.gangs.placement.units import FoundPlace, keys_of
from windtunnel.gangs.placement.why import Waiting, why_extras, why_not

MOST_REMEMBERED: Final = 100_000
"""The number of latest placements kept for reuse."""


@dataclass
class Binding:
    """The assignment of a pod to a node."""

    gang: str
    group: str
    pod: str
    node: str


@dataclass
class Eviction:
    """A pod to evict in favour of a gang."""

    gang: str
    pod: str
    node: str
    in_favour_of: str


@dataclass
class Member:
    """A pod of a gang that could be evicted; `extra`: it is above the minimum of its group."""

    pod: str
    node: str
    shape: PodShape
    extra: bool


@dataclass(eq=False)
class Victim:
    """A gang that could be preempted: its pods, and its rank."""

    name: str
    priority: int
    order: float
    members: list[Member]
    tie: Tie = NO_TIE


@dataclass
class PlacementVerdict:
    """The result of a pass for a gang that lacks pods: a reason, and a sentence."""

    gang: str
    waiting: Waiting
    says: str
    stands: bool = False
    """Whether it holds until room is freed, or the gang's request changes."""


@dataclass
class Pass:
    """The decisions of a pass. The space already has the bindings; evicted pods count until they
    end."""

    bindings: list[Binding] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    verdicts: list[PlacementVerdict] = field(default_factory=list)


Packed = tuple[str, str]
"""The required and the preferred packing label of a unit."""
GroupKind = tuple[tuple[int, ...], Packed]
GangKind = tuple[tuple[GroupKind, ...], tuple[tuple[str, ...], ...], Packed, int, bool, str]
"""A key shared by gangs that differ only in names. See `kind_of`."""
FULL: Final = (Waiting.NO_ROOM, Waiting.NO_DOMAIN)
"""Reasons found by counting alone: if they hold for a gang, they hold for all of its kind."""

VictimsBelow = Callable[[int], list[Victim]]
"""Returns the gangs below a priority that hold room."""


def no_victims(below: int) -> list[Victim]:  # noqa: ARG001 - whatever the priority
    """Returns no victims, to disable preemption."""
    return []


class GangPlacer:
    """Places gangs whole or not at all, and remembers placements for spreading and reuse."""

    def __init__(self, space: Space) -> None:
        self.space: Final = space
        self._homes: Final[dict[str, dict[str, str]]] = {}  # by family and gang: one of its nodes
        self._placements: Final[dict[str, Remembered]] = {}
        self._held: Final[list[FoundPlace]] = []  # room held for gangs in this pass
        self._full: Final[dict[GangKind, PlacementVerdict]] = {}  # kinds without room this pass

    def plan(self, requests: list[GangRequest], victims: VictimsBelow = no_victims) -> Pass:
        """Runs one pass over the gangs that lack pods."""
        return self.plan_in_order(sorted(requests, key=lambda gang: gang.rank()), victims)

    def plan_in_order(self, requests: Iterable[GangRequest], victims: VictimsBelow) -> Pass:
        """Runs one pass over gangs in order of rank, each request being built when it is due."""
        done = Pass()
        self._full.clear()
        whole = [
            gang for gang in requests if gang.missing() == 0 or self._admit(gang, victims, done)
        ]
        placed = {binding.pod: binding.node for binding in done.bindings}
        for gang in whole:
            self._place_extras(gang, placed, done)
        for found in reversed(self._held):
            found.undo(self.space)
        self._held.clear()
        return done

    def gone(self, gang: str, family: str = "") -> None:
        """Records that a gang has no pod on any node. Its placement is kept for reuse."""
        self._homes.get(family, {}).pop(gang, None)

    def full(self, kind: GangKind) -> PlacementVerdict | None:
        """Returns this pass's verdict on an earlier gang of that kind that did not fit, if any.

        Room is only taken and held during a pass, never freed, so no gang of that kind fits any
        more.
        """
        return self._full.get(kind)

    # Minima.

    def _admit(self, gang: GangRequest, victims: VictimsBelow, done: Pass) -> bool:
        lacking = _lacking(gang)
        if lacking is not None:
            done.verdicts.append(lacking)
            return False
        if gang.patient and self._waits_for_its_nodes(gang, done):
            return False
        kind = kind_of(gang)
        alike = None if kind is None else self._full.get(kind)
        if alike is not None:
            done.verdicts.append(replace(alike, gang=gang.name))
            return False
        search = self._search(gang, _minima(gang))
        found = self._run(gang, search)
        if found is not None:
            self._commit(gang, found, done)
            return True
        verdict = self._wait_for_endings(gang) or self._preempt(gang, victims, done)
        if verdict is None:
            verdict = PlacementVerdict(gang.name, *why_not(self.space, search), not self._held)
            if kind is not None and verdict.waiting in FULL and _is_nameless(gang, verdict.says):
                self._full[kind] = verdict
        done.verdicts.append(verdict)
        return False

    def _search(self, gang: GangRequest, wanted: dict[str, list[UnboundPod]]) -> Search:
        remembered = self._placements.get(gang.reuse, {}) if gang.reuse else {}
        if gang.reuse and gang.reuse != gang.name:
            remembered = _renamed(remembered, gang.reuse, gang.name)
        return Search(self.space, gang, self._siblings(gang), remembered, wanted)

    def _run(self, gang: GangRequest, least: Search) -> FoundPlace | None:
        """Finds a place for the minimum of a gang; if it is packed, one with room for the rest,
        too.

        It looks for room for as much of the rest as possible: in preferred domains without making
        them wider than the minimum alone needs, in required domains as much as fits. The room of
        the rest is then freed, as minima of other gangs come first.
        """
        rest = [(one.name, pod) for one in gang.groups for pod in one.pods[one.missing() :]]
        rest += [(one.name, pod) for one in gang.groups for pod in one.blocked]
        if not rest or not _is_packed(gang):
            return least.run()
        whole = self._search(gang, _minima_and(gang, rest))
        best = whole.run()
        if best is None or any(whole.widening().values()):
            if best is not None:
                best.undo(self.space)
            best = least.run()
            if best is not None:
                best = self._most_beside(gang, rest, least, best)
        if best is not None:
            best.keep({pod.name for pods in _minima(gang).values() for pod in pods}, self.space)
        return best

    def _most_beside(
        self, gang: GangRequest, rest: list[tuple[str, UnboundPod]], least: Search, best: FoundPlace
    ) -> FoundPlace:
        """Finds by bisection the place of a minimum that has room for most of the rest."""
        low, high, chosen = 0, len(rest), least
        while low < high:
            middle = (low + high + 1) // 2
            best.undo(self.space)
            search = self._search(gang, _minima_and(gang, rest[:middle]))
            found = search.run()
            if found is not None and search.as_close_as(least):
                best, low, chosen = found, middle, search
            else:
                if found is not None:
                    found.undo(self.space)
                best.redo(self.space)
                high = middle - 1
        return self._drawn_closer(gang, rest[:low], chosen, best)

    def _drawn_closer(
        self,
        gang: GangRequest,
        rest: list[tuple[str, UnboundPod]],
        chosen: Search,
        best: FoundPlace,
    ) -> FoundPlace:
        """Places the minimum as close together as possible within the required domains chosen for
        more.

        The rest must still have room there.
        """
        confined = chosen.required_domains()
        if not confined or not any(chosen.widening().values()):
            return best
        best.undo(self.space)
        closer = self._search(gang, _minima(gang))
        closer.attempt.confined = confined
        found = closer.run()
        if found is not None:
            later = self._rest_beside(gang, rest, found)
            if later is not None:
                later.undo(self.space)
                return found
            found.undo(self.space)
        best.redo(self.space)
        return best

    def _rest_beside(
        self, gang: GangRequest, rest: list[tuple[str, UnboundPod]], found: FoundPlace
    ) -> FoundPlace | None:
        """Finds a place for further pods of a gang, given the places found for others."""
        nodes = {pod.name: taken.node.name for taken in found.taken for pod in taken.pods}
        groups = [
            replace(
                one,
                minimum=0,
                bound=one.bound + [nodes[pod.name] for pod in one.pods if pod.name in nodes],
            )
            for one in gang.groups
        ]
        wanted = {one.name: [pod for name, pod in rest if name == one.name] for one in groups}
        return self._search(replace(gang, groups=groups, spread=None, near=[]), wanted).run()

    def _siblings(self, gang: GangRequest) -> dict[int, int]:
        counts: dict[int, int] = {}
        if gang.spread is None:
            return counts
        tree = self.space.tree(gang.topology, keys_of(gang))
        level = tree.level(gang.spread.key)
        for name, node_name in self._homes.get(gang.family, {}).items():
            node = self.space.by_name.get(node_name)
            domain = None if node is None or name == gang.name else tree.domain_of(node, level)
            if domain is not None:
                counts[domain.number] = counts.get(domain.number, 0) + 1
        return counts

    def _commit(self, gang: GangRequest, found: FoundPlace, done: Pass) -> None:
        groups = {pod.name: group for group in gang.groups for pod in group.pods}
        nodes: dict[str, str] = {}
        for taken in found.taken:
            for pod in taken.pods:
                nodes[pod.name] = taken.node.name
                group = groups[pod.name].name
                done.bindings.append(Binding(gang.name, group, pod.name, taken.node.name))
        if found.taken:
            self._homes.setdefault(gang.family, {})[gang.name] = found.taken[0].node.name
        self._placements.pop(gang.name, None)
        self._placements[gang.name] = {
            group.name: [
                *group.bound,
                *[nodes[pod.name] for pod in group.pods if pod.name in nodes],
            ]
            for group in gang.groups
        }
        if len(self._placements) > MOST_REMEMBERED:
            del self._placements[next(iter(self._placements))]

    # Room of terminating pods.

    def _waits_for_its_nodes(self, gang: GangRequest, done: Pass) -> bool:
        """Holds a gang's previous nodes if they are about to be free and it cannot be placed on
        them yet."""
        had = [node for nodes in self._placements.get(gang.reuse, {}).values() for node in nodes]
        found = self._search(gang, _minima(gang)).run()
        if found is not None:
            found.undo(self.space)
            if _all_in(found, had):
                return False
        ending = self._let_end()
        later = self._search(gang, _minima(gang)).run() if ending else None
        for node, shape, count in reversed(ending):
            self.space.shift(node, shape, -count)
        if later is None:
            return False
        if not _all_in(later, had):
            later.undo(self.space)
            return False
        self._held.append(later)
        says = "the nodes that it had are held until its pods there end"
        done.verdicts.append(PlacementVerdict(gang.name, Waiting.ENDINGS, says))
        return True

    def _wait_for_endings(self, gang: GangRequest) -> PlacementVerdict | None:
        """Holds the room of terminating pods if a gang fits with it."""
        ending = self._let_end()
        if not ending:
            return None
        found = self._search(gang, _minima(gang)).run()
        for node, shape, count in reversed(ending):
            self.space.shift(node, shape, -count)
        if found is None:
            return None
        self._held.append(found)
        used = _nodes_of(found)
        count = sum([amount for node, _, amount in ending if node.name in used])
        pods = "1 pod ends" if count == 1 else f"{count} pods end"
        return PlacementVerdict(gang.name, Waiting.ENDINGS, f"its room is held until {pods}")

    def _let_end(self) -> list[tuple[NodeRoom, PodShape, int]]:
        ending = [
            (node, self.space.shapes[number], count)
            for node in self.space.releasing_nodes()
            for number, count in sorted(node.releasing.items())
        ]
        for node, shape, count in ending:
            self.space.shift(node, shape, count)
        return ending

    # Preemption.

    def _preempt(
        self, gang: GangRequest, victims: VictimsBelow, done: Pass
    ) -> PlacementVerdict | None:
        """Finds as few gangs of lower priority as possible whose eviction makes room, and evicts
        them."""
        if not gang.preempts:
            return None
        already = {eviction.pod for eviction in done.evictions}
        steps = _in_order(victims(gang.priority), already)
        if not steps:
            return None
        ending = self._let_end()
        chosen, found = self._fewest(gang, steps)
        if found is not None:
            found = self._spare(gang, chosen, found)
        for step in chosen:
            step.hold(self.space)
        for node, shape, count in reversed(ending):
            self.space.shift(node, shape, -count)
        if found is None:
            return None
        self._held.append(found)
        return self._evict(gang, chosen, done)

    def _fewest(
        self, gang: GangRequest, steps: list["_Step"]
    ) -> tuple[list["_Step"], FoundPlace | None]:
        """Finds by bisection the shortest prefix of `steps` that makes room; its room is free on
        return."""
        for step in steps:
            step.free(self.space)
        found = self._search(gang, _minima(gang)).run()
        if found is None:
            return steps, None
        low, high, gone = 1, len(steps), len(steps)
        while low < high:
            middle = (low + high) // 2
            found.undo(self.space)
            gone = _set_free(self.space, steps, gone, middle)
            fewer = self._search(gang, _minima(gang)).run()
            if fewer is None:
                low = middle + 1
                gone = _set_free(self.space, steps, gone, high)
                found.redo(self.space)
            else:
                high, found = middle, fewer
        return steps[:high], found

    def _spare(self, gang: GangRequest, chosen: list["_Step"], found: FoundPlace) -> FoundPlace:
        """Spares victims without whose eviction the gang still fits, the most valuable first."""
        used = _nodes_of(found)
        for step in _cheapest_first(chosen)[::-1]:
            if step.extra and any(other.is_rest_of(step.victim) for other in chosen):
                continue  # pods above the minimum do not outlive their gang
            if not step.is_on(used):  # its room was not needed
                step.hold(self.space)
                chosen.remove(step)
                continue
            found.undo(self.space)
            step.hold(self.space)
            without = self._search(gang, _minima(gang)).run()
            if without is None:
                step.free(self.space)
                found.redo(self.space)
            else:
                chosen.remove(step)
                found = without
                used = _nodes_of(found)
        return found

    def _evict(self, gang: GangRequest, chosen: list["_Step"], done: Pass) -> PlacementVerdict:
        names: list[str] = []
        pods = 0
        for step in chosen:
            if step.victim.name not in names:
                names.append(step.victim.name)
            for member in step.members:
                pods += 1
                done.evictions.append(
                    Eviction(step.victim.name, member.pod, member.node, gang.name)
                )
        count = "1 pod of lower priority is" if pods == 1 else f"{pods} pods of lower priority are"
        says = f"{count} evicted for it, of {', '.join(names)}"
        return PlacementVerdict(gang.name, Waiting.PREEMPTING, says)

    # Above the minima.

    def _place_extras(self, gang: GangRequest, placed: dict[str, str], done: Pass) -> None:
        blocked = [pod for group in gang.groups for pod in group.blocked]
        if not blocked and all(pod.name in placed for one in gang.groups for pod in one.pods):
            return
        why: list[str] = []
        had = [node for nodes in self._placements.get(gang.reuse, {}).values() for node in nodes]
        bound = {
            group.name: [
                *group.bound,
                *[placed[pod.name] for pod in group.pods if pod.name in placed],
            ]
            for group in gang.groups
        }
        remembered = self._placements.setdefault(gang.name, {})
        for group in gang.groups:
            full: dict[int, list[UnboundPod]] = {}  # pods by shape that no longer fits
            search: Search | None = None
            for pod in group.pods:
                if pod.name in placed:
                    continue
                if pod.shape.number in full:
                    full[pod.shape.number].append(pod)
                    continue
                if search is None or search.units[0].loads[0].shape is not pod.shape:
                    search = self._search(_more(gang, group, [pod], bound), {group.name: [pod]})
                else:
                    search.go_on(self.space.by_name[bound[group.name][-1]], pod)
                found = search.run()
                if found is not None and gang.patient and not _all_in(found, had):
                    found.undo(self.space)
                    found = None
                if found is None:
                    full[pod.shape.number] = [pod]
                    search = None
                    continue
                node = found.taken[0].node.name
                placed[pod.name] = node
                bound[group.name].append(node)
                remembered[group.name] = bound[group.name]
                done.bindings.append(Binding(gang.name, group.name, pod.name, node))
            for pods in full.values():
                more = self._search(_more(gang, group, pods, bound), {group.name: pods})
                why.append(why_extras(pods, "" if gang.patient else why_not(self.space, more)[1]))
        if blocked:
            why.append(why_extras(blocked, blocked[0].blocked))
        if why:
            stands = not self._held and not gang.patient and not blocked
            says = "; ".join(why)
            done.verdicts.append(PlacementVerdict(gang.name, Waiting.EXTRAS, says, stands))


@dataclass(eq=False)
class _Step:
    """Pods that are evicted together: those of a gang above its minimum, or the rest of it."""

    victim: Victim
    members: list[Member]
    extra: bool

    def free(self, space: Space) -> None:
        for member in self.members:
            space.shift(space.by_name[member.node], member.shape, 1)

    def hold(self, space: Space) -> None:
        for member in self.members:
            space.shift(space.by_name[member.node], member.shape, -1)

    def is_on(self, nodes: list[str]) -> bool:
        return any(member.node in nodes for member in self.members)

    def is_rest_of(self, victim: Victim) -> bool:
        return self.victim is victim and not self.extra

    def worth(self) -> tuple[bool, int, float]:
        """Sort key of what to keep: whole gangs over extra pods, then by priority and age."""
        return (not self.extra, self.victim.priority, -self.victim.order)


def _in_order(victims: list[Victim], already: set[str]) -> list[_Step]:
    """Orders victims: extra pods, then gangs; lowest priority, then newest, then last by name."""
    steps: list[_Step] = []
    for victim in victims:
        if any(member.pod in already for member in victim.members if not member.extra):
            continue  # it is already being evicted
        extras = [m for m in victim.members if m.extra and m.pod not in already]
        rest = [m for m in victim.members if not m.extra]
        if extras:
            steps.append(_Step(victim, extras, extra=True))
        if rest:
            steps.append(_Step(victim, rest, extra=False))
    return _cheapest_first(steps)


def _cheapest_first(steps: list[_Step]) -> list[_Step]:
    last = sorted(steps, key=lambda step: (step.victim.tie, step.victim.name), reverse=True)
    return sorted(last, key=lambda step: step.worth())


def _set_free(space: Space, steps: list[_Step], now: int, wanted: int) -> int:
    for step in steps[wanted:now]:
        step.hold(space)
    for step in steps[now:wanted]:
        step.free(space)
    return wanted


def kind_of(gang: GangRequest) -> GangKind | None:
    """Returns a key shared by gangs of which none fits if one does not; None: try each gang.

    Only gangs without bound pods, whose places do not depend on those of other gangs, have one.
    """
    if gang.spread is not None or gang.reuse:
        return None
    groups: list[GroupKind] = []
    for group in gang.groups:
        if group.bound or group.blocked or group.spread is not None:
            return None
        pods = group.pods[: group.minimum]
        if any(pod.shape.rules.joins for pod in pods):
            return None
        groups.append((tuple([pod.shape.number for pod in pods]), _packed_by(group.pack)))
    numbers = {group.name: str(number) for number, group in enumerate(gang.groups)}
    parts = [
        (*_packed_by(part.pack), *[numbers.get(name, "") for name in part.groups])
        for part in gang.parts
    ]
    whole = _packed_by(gang.pack)
    return (tuple(groups), tuple(parts), whole, gang.priority, gang.preempts, gang.topology)


def _packed_by(pack: PackConstraint | None) -> Packed:
    return ("", "") if pack is None else (pack.required or "", pack.preferred or "")


def _is_nameless(gang: GangRequest, says: str) -> bool:
    """Whether a sentence names no part of the gang and so holds for all gangs of its kind."""
    named = [gang.name in says, *[group.name in says for group in gang.groups]]
    return not any(named) and not any(part.name in says for part in gang.parts)


def _lacking(gang: GangRequest) -> PlacementVerdict | None:
    """Returns a verdict for a gang that has too few pods for its minimum, which is not tried."""
    for group in gang.groups:
        waiting = len(group.pods) + len(group.blocked)
        if waiting < group.missing():
            have = waiting + len(group.bound)
            says = f"{have} of at least {group.minimum} pods of {group.name} may be scheduled"
            return PlacementVerdict(gang.name, Waiting.PODS, says)
    for group in gang.groups:
        if len(group.pods) < group.missing():
            return PlacementVerdict(gang.name, Waiting.CLAIMS, group.blocked[0].blocked)
    return None


def _minima(gang: GangRequest) -> dict[str, list[UnboundPod]]:
    return {group.name: group.pods[: group.missing()] for group in gang.groups}


def _minima_and(
    gang: GangRequest, rest: list[tuple[str, UnboundPod]]
) -> dict[str, list[UnboundPod]]:
    """Returns the pods that each group lacks to reach its minimum, and some more."""
    wanted = _minima(gang)
    for group, pod in rest:
        wanted[group].append(pod)
    return wanted


def _is_packed(gang: GangRequest) -> bool:
    return gang.pack is not None or bool(gang.parts) or any(one.pack for one in gang.groups)


def _more(
    gang: GangRequest, group: GroupRequest, pods: list[UnboundPod], bound: dict[str, list[str]]
) -> GangRequest:
    """Returns a request for some pods of one group, with the gang's other pods as bound."""
    groups = [
        replace(other, minimum=0, pods=pods if other is group else [], bound=bound[other.name])
        for other in gang.groups
    ]
    return replace(gang, groups=groups, spread=None, near=[])


def _renamed(remembered: Remembered, old: str, new: str) -> Remembered:
    """Returns an earlier gang's groups under the names that they have in the new one."""
    return {new + name.removeprefix(old): nodes for name, nodes in remembered.items()}


def _all_in(found: FoundPlace, nodes: list[str]) -> bool:
    return all(taken.node.name in nodes for taken in found.taken)


def _nodes_of(found: FoundPlace) -> list[str]:
    return [taken.node.name for taken in found.taken]
