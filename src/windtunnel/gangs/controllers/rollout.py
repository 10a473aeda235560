"""Rollout of an update through a set: whose turn it is, and how many units to replace at once.

A unit is a pod of a standalone clique, or a replica of a scaling group. Old units that are not
ready are replaced at once. Ready units are replaced only as long as availability stays within
`maxUnavailable` of its peak since the update began, capped at the wanted replicas. A clique that
the cluster has too little room for is thus updated in the room it has, and one that lost its room
waits.
"""

from windtunnel.gangs.objects import PodClique, PodCliqueSet
from windtunnel.gangs.templates import COHERENT, ON_DELETE, CliqueTemplate, Rolling


def has_turn(owner: PodCliqueSet, replica: int) -> bool:
    """Whether a set replica is being updated now."""
    status = owner.status
    return status.updating and owner.spec.update.type != ON_DELETE and replica in status.turns


def target(owner: PodCliqueSet, replica: int, role: str) -> CliqueTemplate:
    """Returns the template from which new pods of a role are made.

    That is the newest one, except that a coherent update keeps a set replica at the previous
    revision until its turn comes.
    """
    status = owner.status
    waits = owner.spec.update.type == COHERENT and status.updating and len(status.revisions) > 1
    if waits and replica not in status.turns and replica not in status.done:
        return status.revisions[-2].templates[role]
    return owner.spec.roles[role]


def rolling_of(owner: PodCliqueSet, own: Rolling | None) -> Rolling:
    return owner.spec.update.rolling if own is None else own


def surge(owner: PodCliqueSet, own: Rolling | None, replicas: int) -> int:
    """Returns how many units may exist above the wanted replicas."""
    return rolling_of(owner, own).max_surge.of(replicas, up=True)


def unavailable(owner: PodCliqueSet, own: Rolling | None, replicas: int, minimum: int) -> int:
    """Returns how many units may be down; at least 1 if otherwise nothing could be updated."""
    limit = rolling_of(owner, own).max_unavailable
    if limit is None:
        return minimum if owner.spec.update.type == COHERENT else 1
    count = limit.of(replicas, up=False)
    return 1 if count == 0 and surge(owner, own, replicas) == 0 else count


def takeable(available: int, peak: int, replicas: int, minimum: int, down: int) -> int:
    """Returns how many available units may be taken down now."""
    if available < min(minimum, replicas):
        return 0
    return max(0, available - max(0, min(replicas, peak) - down))


def coherent_steps(components: list[tuple[int, int]]) -> list[list[int]]:
    """Returns the cumulative new units of each component, given as (replicas, minimum), per step.

    Every step moves at least the minimum of every component, so that old and new are each complete.
    The scarcest component sets the number of steps; surplus units are spread evenly over them, and
    any remainder comes last.
    """
    if not components:
        return []
    steps = max(1, min(replicas // max(1, minimum) for replicas, minimum in components))
    each = []
    for replicas, minimum in components:
        tail = max(0, replicas - steps * minimum) // steps
        each.append(minimum + tail)
    found = [
        [min(replicas, size * step) for size, (replicas, _) in zip(each, components, strict=True)]
        for step in range(1, steps + 1)
    ]
    everything = [replicas for replicas, _ in components]
    if found[-1] != everything:
        found.append(everything)
    return found


def allowance(owner: PodCliqueSet, replica: int, component: str) -> int:
    """Returns how many units of a clique or group may be new so far in a coherent update.

    The next step opens once all components have the new units of the previous steps ready.
    """
    sizes: list[tuple[int, int]] = []
    ready: list[int] = []
    place = -1
    part = owner.parts.get(replica)
    if part is None:
        return 0
    for clique in part.cliques.values():
        if _changed(owner, clique.role) or clique.status.updated < clique.status.replicas:
            if clique.role == component:
                place = len(sizes)
            sizes.append((clique.replicas, clique.min_available))
            ready.append(clique.status.updated_ready)
    for group in part.groups.values():
        if any(_changed(owner, role) for role in group.members) or any(
            is_old(owner, members) for members in group.cliques.values()
        ):
            if group.short == component:
                place = len(sizes)
            sizes.append((group.replicas, group.min_available))
            ready.append(group.status.updated)
    if place < 0:
        return 0
    for step in coherent_steps(sizes):
        if any(have < need for have, need in zip(ready, step, strict=True)):
            return step[place]
    return sizes[place][0]


def _changed(owner: PodCliqueSet, role: str) -> bool:
    revisions = owner.status.revisions
    if len(revisions) < 2:
        return False
    before = revisions[-2].templates.get(role)
    return before is None or before.hash != owner.spec.roles[role].hash


def is_old(owner: PodCliqueSet, members: dict[str, PodClique]) -> bool:
    """Whether a scaling group replica has a clique whose template is not the newest."""
    roles = owner.spec.roles
    return any(clique.template.hash != roles[role].hash for role, clique in members.items())
