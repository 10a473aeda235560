"""Gang termination: a gang that stays unable to serve is deleted and recreated.

There are two triggers, with the same delay. Breach: a clique or group fell below its minimum, as
its condition says. Stranding: a clique or group lost all of its pods, which is not a breach, while
other pods of its gang hold machines without serving requests; `onStranded: Hold` disables this one.

Level A terminates a replica of a scaling group with a breached clique, or that is stranded, as long
as the other replicas suffice for the group's minimum. Level B terminates a whole set replica when
one of its groups or standalone cliques is breached or lost all of its pods. Gangs that were never
scheduled are never terminated: that is recorded in the status, not inferred from times.

While a large part of all nodes is not ready (`holdAtNodesNotReady`), nothing is terminated: the
gangs are not at fault, and there is no room for them elsewhere. A gang that is still broken when
the nodes are back gets its full delay from then on.

A termination is written to the status before anything is deleted. The status counts the
incarnations of a set replica or group replica, each clique carries the count at its creation, and
cliques of earlier incarnations are deleted. A controller that restarts in between continues from
there, and cliques created since are left alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from windtunnel.gangs.controllers import conditions
from windtunnel.gangs.objects import (
    TRUE,
    Node,
    PodClique,
    PodCliqueSet,
    ScalingGroup,
    SetReplica,
)
from windtunnel.gangs.templates import TERMINATE, GroupTemplate, SetSpec

NEVER_DUE: Final = float("inf")
FEWEST_NODES: Final = 3
"""Fewer unready nodes than this are not a disruption, as in Kubernetes' node controller."""


class NodeCount:
    """The number of nodes that are not cordoned, and how many of them are not ready."""

    def __init__(self) -> None:
        self._ready: Final[dict[str, bool]] = {}
        self.down = 0

    @property
    def total(self) -> int:
        return len(self._ready)

    def follow(self, name: str, node: Node | None) -> bool:
        """Records a node's state, None if it is gone; returns whether the counts changed."""
        before = self._ready.get(name)
        after = None if node is None or node.cordoned else node.ready
        if before is after:
            return False
        if after is None:
            del self._ready[name]
        else:
            self._ready[name] = after
        self.down += int(after is False) - int(before is False)
        return True

    def hold(self, spec: SetSpec) -> bool:
        """Whether so many nodes are not ready that the set's gangs are not terminated."""
        limit = spec.hold_at
        count = limit.of(self.total, up=True)
        if limit.share > 0.0:
            count = max(count, FEWEST_NODES)
        return 0 < count <= self.down


def free_s(owner: PodCliqueSet, now_s: float, *, held: bool) -> float:
    """Returns since when the set's gangs may be terminated; delays start no earlier."""
    if held:
        return NEVER_DUE
    condition = owner.conditions.get(conditions.HELD)
    if condition is None:
        return 0.0
    return now_s if condition.status == TRUE else condition.since_s


def incarnation_of(
    owner: PodCliqueSet, replica: int, group: ScalingGroup | None, index: int
) -> int:
    """Returns the incarnation of a clique created now: both counts only grow, and so does their
    sum."""
    whole = owner.status.incarnations.get(replica, 0)
    return whole if group is None else whole + group.status.incarnations.get(index, 0)


def is_condemned(owner: PodCliqueSet, group: ScalingGroup | None, clique: PodClique) -> bool:
    """Whether a clique belongs to an earlier incarnation, which was terminated."""
    current = incarnation_of(owner, clique.replica, group, clique.group_replica)
    return clique.incarnation < current


def template_of(owner: PodCliqueSet, group: ScalingGroup) -> GroupTemplate:
    """Returns a group's current template; the groups of a set never change, their settings may."""
    return owner.spec.group_of[group.members[0]]


@dataclass
class Broken:
    """A group replica, group or clique that cannot serve: since when, its delay, and why."""

    since_s: float
    delay_s: float
    why: str
    stranded: bool = False

    def due_s(self, free_s: float = 0.0) -> float:
        """Returns when its delay is over; time before `free_s` does not count."""
        return max(self.since_s, free_s) + self.delay_s


@dataclass
class DueTermination:
    """The terminations that are due, each with the reason, and when to check again."""

    replicas: dict[int, str]
    """Reasons by index of the group replica, or of the set replica."""
    again_s: float


# Breaches.


def breach_of(thing: PodClique | ScalingGroup, delay_s: float, why: str) -> Broken | None:
    """Returns the breach of a clique or group that was scheduled once; `why` explains its
    termination."""
    condition = thing.conditions.get(conditions.BREACHED)
    if condition is None or condition.status != TRUE or thing.status.first_scheduled_s < 0.0:
        return None
    return Broken(condition.since_s, delay_s, why)


# Stranding.


def has_lost_all(clique: PodClique) -> bool:
    """Whether a clique had scheduled pods and now has none, unless an update explains that."""
    status = clique.status
    gone = clique.replicas > 0 and status.scheduled == 0 and status.first_scheduled_s >= 0.0
    return gone and not status.excused


def _stranding(
    name: str, lost: Iterable[PodClique], others: Iterable[PodClique], delay_s: float
) -> Broken | None:
    """Returns the stranding of `others` that hold machines in vain, as `lost` have no pods."""
    holders = [clique for clique in others if clique.status.scheduled]
    pods = sum(clique.status.scheduled for clique in holders)
    if not pods:
        return None
    since_s = max(
        min(clique.status.turned_s for clique in lost),
        min(clique.status.turned_s for clique in holders),
    )
    held = "1 other pod of its gang holds a machine"
    if pods > 1:
        held = f"{pods} other pods of its gang hold machines"
    why = f"{name} lost all of its pods, while {held}"
    return Broken(since_s, delay_s, why, stranded=True)


def stranded_replica(members: Mapping[str, PodClique], delay_s: float) -> Broken | None:
    """Returns the stranding of a scaling group replica that cannot serve but holds machines."""
    lost = [clique for clique in members.values() if has_lost_all(clique)]
    return _stranding(lost[0].name, lost, members.values(), delay_s) if lost else None


def stranded_by(
    owner: PodCliqueSet, part: SetReplica, lost_groups: Iterable[ScalingGroup]
) -> dict[str, Broken]:
    """Returns the standalone cliques and groups that lost all pods while others hold machines.

    `lost_groups` are groups that hold no machine but once did.
    """
    found: dict[str, Broken] = {}
    if owner.spec.on_stranded != TERMINATE:
        return found
    lost = {
        clique.name: ([clique], owner.spec.delay_s(None))
        for clique in part.cliques.values()
        if has_lost_all(clique)
    }
    for group in lost_groups:
        gone = [one for members in group.cliques.values() for one in members.values()]
        delay_s = owner.spec.delay_s(template_of(owner, group))
        lost[group.name] = ([one for one in gone if has_lost_all(one)], delay_s)
    if lost:
        members_of_part = [*part.cliques.values()]
        for group in part.groups.values():
            for members in group.cliques.values():
                members_of_part += members.values()
        for name, (cliques, delay_s) in lost.items():
            stranding = _stranding(name, cliques, members_of_part, delay_s)
            if stranding is not None:
                found[name] = stranding
    return found


def broken_replica(
    owner: PodCliqueSet, group: ScalingGroup, members: Mapping[str, PodClique]
) -> Broken | None:
    """Returns the breach or stranding of a scaling group replica that is due first, if any."""
    delay_s = owner.spec.delay_s(template_of(owner, group))
    found = [
        breach_of(clique, delay_s, f"the clique {clique.name} is breached")
        for clique in members.values()
    ]
    if owner.spec.on_stranded == TERMINATE:
        found.append(stranded_replica(members, delay_s))
    return _first(found)


def _first(found: Iterable[Broken | None], free_s: float = 0.0) -> Broken | None:
    broken = [one for one in found if one is not None]
    return min(broken, key=lambda one: one.due_s(free_s)) if broken else None


# Due terminations.


def broken_group(
    group: ScalingGroup, delay_s: float, broken: Mapping[int, Broken]
) -> Broken | None:
    """Returns why a scaling group cannot serve; None if its set replica was just terminated.

    A group with too few whole replicas is due by its own condition. That condition says nothing
    while no replica is whole; then the replicas that still hold machines count: the group fell
    below its minimum when the last replica that it could spare broke.
    """
    if conditions.TERMINATING in group.conditions or group.status.excused:
        return None
    breach = breach_of(group, delay_s, f"the scaling group {group.name} is breached")
    if breach is not None:
        return breach
    found = [one for index, one in broken.items() if index < group.replicas]
    found.sort(key=lambda one: one.due_s())
    spare = max(0, group.replicas - group.min_available)
    return None if spare >= len(found) else found[spare]


def due_in_group(
    owner: PodCliqueSet,
    group: ScalingGroup,
    broken: Mapping[int, Broken],
    free_s: float,
    now_s: float,
) -> DueTermination:
    """Level A: the group replicas due; none if the group would fall below its minimum (level B)."""
    if not broken or group.status.excused or group.status.recycled:
        return DueTermination({}, NEVER_DUE)
    if broken_group(group, owner.spec.delay_s(template_of(owner, group)), broken) is not None:
        return DueTermination({}, NEVER_DUE)
    if group.replicas - len(broken) < group.min_available:
        return DueTermination({}, NEVER_DUE)
    due_s = {index: one.due_s(free_s) for index, one in sorted(broken.items())}
    due = {index: broken[index].why for index, at_s in due_s.items() if at_s <= now_s}
    again_s = min((at_s for at_s in due_s.values() if at_s > now_s), default=NEVER_DUE)
    return DueTermination(due, again_s)


def due_in_replica(
    owner: PodCliqueSet,
    replica: int,
    broken: Mapping[str, Mapping[int, Broken]],
    stranded: Mapping[str, Broken],
    free_s: float,
    now_s: float,
) -> DueTermination:
    """Level B: whether a set replica is due, or when it will be; `broken` has broken replicas by
    group."""
    part = owner.parts.get(replica)
    spec = owner.spec
    if part is None or len(part.cliques) < len(spec.alone) or len(part.groups) < len(spec.groups):
        return DueTermination({}, NEVER_DUE)
    found = [
        broken_group(group, spec.delay_s(template_of(owner, group)), broken.get(group.name, {}))
        for group in part.groups.values()
    ]
    found += [
        breach_of(clique, spec.delay_s(None), f"the clique {clique.name} is breached")
        for clique in part.cliques.values()
    ]
    first = _first([*found, *stranded.values()], free_s)
    if first is None or first.due_s(free_s) > now_s:
        return DueTermination({}, NEVER_DUE if first is None else first.due_s(free_s))
    return DueTermination({replica: first.why}, NEVER_DUE)


# Futile terminations.


def count_futile(
    known: dict[int, int], replica: int, cliques: Iterable[PodClique]
) -> dict[int, int]:
    """Counts consecutive terminations of a replica that had not become ready; one that had resets
    it."""
    futile = any(clique.status.first_ready_s < 0.0 for clique in cliques)
    return {**known, replica: known.get(replica, 0) + 1 if futile else 0}
