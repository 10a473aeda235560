"""Gang termination: what fell below its minimum, and stayed there, is torn down and made anew.

Level A: a replica of a scaling group of which a clique is breached, as long as the others are
enough for the group's minimum. Level B: a whole set replica, when a group of it is breached or a
clique that stands alone. Whatever was never scheduled is never terminated: that is remembered in
its status, not guessed from times.

A termination is written to the status before anything is deleted: it counts the incarnations of a
set replica or of a group replica, each clique carries the count at its creation, and a clique of an
earlier incarnation has to go. A controller that stops in between carries on from there, and no
clique that was created since is touched.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from windtunnel.gangs.controllers import conditions
from windtunnel.gangs.objects import PodClique, PodCliqueSet, ScalingGroup, Thing
from windtunnel.gangs.templates import GroupTemplate

NEVER_DUE: Final = float("inf")


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


@dataclass
class DueTermination:
    """What is to be terminated now, and when to look again."""

    replicas: list[int]
    """Indices of group replicas."""
    again_s: float
    why: str = ""


def _deadline_s(thing: Thing, delay_s: float) -> float:
    condition = thing.conditions[conditions.BREACHED]
    return condition.since_s + delay_s


def clique_deadline_s(clique: PodClique, delay_s: float) -> float:
    """When a breached clique is due; never for one that is not, or never was scheduled."""
    if not conditions.breached(clique) or clique.status.first_scheduled_s < 0.0:
        return NEVER_DUE
    return _deadline_s(clique, delay_s)


def group_deadline_s(
    group: ScalingGroup, delay_s: float, breached: Mapping[int, float] | None = None
) -> float:
    """The same of a scaling group; one whose set replica was just terminated is not due again.

    A group of which too few replicas are whole is due by its own condition. Where that says nothing
    because no replica at all is whole, the replicas that still hold something count themselves: the
    group fell below its minimum when the last of those broke that it could do without. `breached`
    are the replicas of which a clique is breached, each with when it is due.
    """
    if conditions.TERMINATING in group.conditions or group.status.updating:
        return NEVER_DUE
    if conditions.breached(group) and group.status.first_scheduled_s >= 0.0:
        return _deadline_s(group, delay_s)
    due = breached_in(group, delay_s) if breached is None else breached
    broken = sorted(due_s for index, due_s in due.items() if index < group.replicas)
    spare = max(0, group.replicas - group.min_available)
    return broken[spare] if spare < len(broken) else NEVER_DUE


def breached_in(group: ScalingGroup, delay_s: float) -> dict[int, float]:
    """The replicas of a group of which a clique is breached, each with when it is due."""
    return {
        index: min(clique_deadline_s(clique, delay_s) for clique in members.values())
        for index, members in group.cliques.items()
        if any(clique_breached(clique) for clique in members.values())
    }


def due_in_group(
    owner: PodCliqueSet,
    group: ScalingGroup,
    template: GroupTemplate,
    now_s: float,
    breached: Mapping[int, float] | None = None,
) -> DueTermination:
    """Level A. Nothing is due when the group would be left below its minimum: that is level B's."""
    if group.status.updating or group.status.recycled:
        return DueTermination([], NEVER_DUE)
    delay_s = owner.spec.delay_s(template)
    found = breached_in(group, delay_s) if breached is None else breached
    if group_deadline_s(group, delay_s, found) < NEVER_DUE:
        return DueTermination([], NEVER_DUE)
    if group.replicas - len(found) < group.min_available:
        return DueTermination([], NEVER_DUE)
    due = [index for index, due_s in found.items() if due_s <= now_s]
    again_s = min((due_s for due_s in found.values() if due_s > now_s), default=NEVER_DUE)
    return DueTermination(sorted(due), again_s, f"breached for {delay_s:g} s")


def clique_breached(clique: PodClique) -> bool:
    """Breached, and once scheduled."""
    return conditions.breached(clique) and clique.status.first_scheduled_s >= 0.0


def due_in_replica(
    owner: PodCliqueSet,
    replica: int,
    now_s: float,
    breached: Mapping[str, Mapping[int, float]] | None = None,
) -> DueTermination:
    """Level B: a set replica is due, or when it will be; `breached` is by group."""
    part = owner.parts.get(replica)
    spec = owner.spec
    if part is None or len(part.cliques) < len(spec.alone) or len(part.groups) < len(spec.groups):
        return DueTermination([], NEVER_DUE)
    first_s, why = NEVER_DUE, ""
    for group in part.groups.values():
        delay_s = spec.delay_s(spec.group_of[group.members[0]])
        found = None if breached is None else breached[group.name]
        deadline_s = group_deadline_s(group, delay_s, found)
        if deadline_s < first_s:
            first_s, why = deadline_s, f"the scaling group {group.name} is breached"
    for clique in part.cliques.values():
        deadline_s = clique_deadline_s(clique, spec.delay_s(None))
        if deadline_s < first_s:
            first_s, why = deadline_s, f"the clique {clique.name} is breached"
    return (
        DueTermination([replica], NEVER_DUE, why)
        if first_s <= now_s
        else DueTermination([], first_s, why)
    )
