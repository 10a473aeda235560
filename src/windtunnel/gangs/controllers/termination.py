"""Gang termination: what cannot serve any more, and stays like that, is torn down and made anew.

There are two triggers, with the same delay. A breach: something fell below its minimum, as its
condition says. Stranding: a clique or a group lost everything, which is not a breach, while other
pods of its gang hold machines and serve no requests; `onStranded: Hold` switches this one off.

Level A: a replica of a scaling group of which a clique is breached or that is stranded, as long as
the others are enough for the group's minimum. Level B: a whole set replica, when a group of it is
breached or a clique that stands alone, or one of them lost everything. Whatever was never scheduled
is never terminated: that is remembered in its status, not guessed from times.

While a good part of all nodes is not ready (`holdAtNodesNotReady`), nothing is terminated: the
gangs are not at fault, and there is no room for them elsewhere. What is broken when the nodes are
back has its whole delay from then on.

A termination is written to the status before anything is deleted: it counts the incarnations of a
set replica or of a group replica, each clique carries the count at its creation, and a clique of an
earlier incarnation has to go. A controller that stops in between carries on from there, and no
clique that was created since is touched.
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
"""Fewer nodes that are not ready are no disruption, as in Kubernetes' node controller."""


class NodeCount:
    """The nodes that are not cordoned, and how many of them are not ready."""

    def __init__(self) -> None:
        self._ready: Final[dict[str, bool]] = {}
        self.down = 0

    @property
    def total(self) -> int:
        return len(self._ready)

    def follow(self, name: str, node: Node | None) -> bool:
        """A node as it is now, or that is gone; says whether it counts for something else."""
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
        """Whether so many are not ready that gangs of a set are not terminated."""
        limit = spec.hold_at
        count = limit.of(self.total, up=True)
        if limit.share > 0.0:
            count = max(count, FEWEST_NODES)
        return 0 < count <= self.down


def free_s(owner: PodCliqueSet, now_s: float, *, held: bool) -> float:
    """Since when its gangs may be terminated: delays count from then at the earliest."""
    if held:
        return NEVER_DUE
    condition = owner.conditions.get(conditions.HELD)
    if condition is None:
        return 0.0
    return now_s if condition.status == TRUE else condition.since_s


def incarnation_of(
    owner: PodCliqueSet, replica: int, group: ScalingGroup | None, index: int
) -> int:
    """What a clique that is created now gets: both counts only grow, and so does their sum."""
    whole = owner.status.incarnations.get(replica, 0)
    return whole if group is None else whole + group.status.incarnations.get(index, 0)


def is_condemned(owner: PodCliqueSet, group: ScalingGroup | None, clique: PodClique) -> bool:
    """Whether a clique is of an earlier incarnation, which was terminated."""
    current = incarnation_of(owner, clique.replica, group, clique.group_replica)
    return clique.incarnation < current


def template_of(owner: PodCliqueSet, group: ScalingGroup) -> GroupTemplate:
    """What the set says of a group now; the groups of a set never change, what is said may."""
    return owner.spec.group_of[group.members[0]]


@dataclass
class Broken:
    """A replica of a group, a group or a clique that cannot serve: when it is due, and why."""

    since_s: float
    delay_s: float
    why: str
    stranded: bool = False

    def due_s(self, free_s: float = 0.0) -> float:
        """When it has been broken for its delay, all of it after terminations were held back."""
        return max(self.since_s, free_s) + self.delay_s


@dataclass
class DueTermination:
    """What is to be terminated now, each with the reason, and when to look again."""

    replicas: dict[int, str]
    """By index of the group replica, or of the set replica."""
    again_s: float


# Breaches.


def breach_of(thing: PodClique | ScalingGroup, delay_s: float, why: str) -> Broken | None:
    """The breach of something that was scheduled once; `why` is said of its termination."""
    condition = thing.conditions.get(conditions.BREACHED)
    if condition is None or condition.status != TRUE or thing.status.first_scheduled_s < 0.0:
        return None
    return Broken(condition.since_s, delay_s, why)


# Stranding.


def has_lost_all(clique: PodClique) -> bool:
    """Whether it had pods on machines and has none any more; an update may do that for a while."""
    status = clique.status
    gone = clique.replicas > 0 and status.scheduled == 0 and status.first_scheduled_s >= 0.0
    return gone and not status.excused


def _stranding(
    name: str, lost: Iterable[PodClique], others: Iterable[PodClique], delay_s: float
) -> Broken | None:
    """Pods among `others` that hold machines in vain, since `lost` have none any more."""
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
    why = f"{name} lost all of its pods, and {held} in vain"
    return Broken(since_s, delay_s, why, stranded=True)


def stranded_replica(members: Mapping[str, PodClique], delay_s: float) -> Broken | None:
    """A replica of a scaling group that cannot serve, and holds machines."""
    lost = [clique for clique in members.values() if has_lost_all(clique)]
    return _stranding(lost[0].name, lost, members.values(), delay_s) if lost else None


def stranded_by(
    owner: PodCliqueSet, part: SetReplica, lost_groups: Iterable[ScalingGroup]
) -> dict[str, Broken]:
    """The cliques that stand alone and the groups that lost everything, while others hold machines.

    `lost_groups` are those of which no clique holds anything, and some clique did.
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
    """A replica of a scaling group that is breached or stranded: which of them is due first."""
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


# What is due.


def broken_group(
    group: ScalingGroup, delay_s: float, broken: Mapping[int, Broken]
) -> Broken | None:
    """A scaling group that cannot serve; not one whose set replica was just terminated.

    A group of which too few replicas are whole is due by its own condition. Where that says nothing
    because no replica at all is whole, the replicas that still hold something count themselves: the
    group fell below its minimum when the last of those broke that it could do without.
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
    """Level A. Nothing is due when the group would be left below its minimum: that is level B's."""
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
    """Level B: a set replica is due, or when it will be; `broken` are replicas by group, if any."""
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


# Terminations that lead to nothing.


def count_futile(
    known: dict[int, int], replica: int, cliques: Iterable[PodClique]
) -> dict[int, int]:
    """Counts the terminations in a row of what had not been ready; one that had ends the row."""
    futile = any(clique.status.first_ready_s < 0.0 for clique in cliques)
    return {**known, replica: known.get(replica, 0) + 1 if futile else 0}
