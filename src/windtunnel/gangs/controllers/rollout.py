"""How an update goes through a set: whose turn it is, and how much may be taken at once.

A unit is a pod of a clique that stands alone, or a replica of a scaling group. Old units that serve
no requests go at once. Of those that serve, so many are taken that what is available stays within
`maxUnavailable` of what it was: of the most that were available since the update began, and at most
of what is wanted. An update of a clique for which the cluster lacks room thus goes on with the room
that there is, and one that lost its room waits.
"""

from windtunnel.gangs.objects import PodClique, PodCliqueSet
from windtunnel.gangs.templates import COHERENT, ON_DELETE, CliqueTemplate, Rolling


def has_turn(owner: PodCliqueSet, replica: int) -> bool:
    """Whether a set replica is being updated."""
    status = owner.status
    return status.updating and owner.spec.update.type != ON_DELETE and replica in status.turns


def target(owner: PodCliqueSet, replica: int, role: str) -> CliqueTemplate:
    """What new pods of a role are made from.

    Whatever comes into being is made from the newest template. Only a coherent update keeps a set
    replica at the revision before until its turn has come.
    """
    status = owner.status
    waits = owner.spec.update.type == COHERENT and status.updating and len(status.revisions) > 1
    if waits and replica not in status.turns and replica not in status.done:
        return status.revisions[-2].templates[role]
    return owner.spec.roles[role]


def rolling_of(owner: PodCliqueSet, own: Rolling | None) -> Rolling:
    return owner.spec.update.rolling if own is None else own


def surge(owner: PodCliqueSet, own: Rolling | None, replicas: int) -> int:
    """How many units there may be above the wanted ones."""
    return rolling_of(owner, own).max_surge.of(replicas, up=True)


def unavailable(owner: PodCliqueSet, own: Rolling | None, replicas: int, minimum: int) -> int:
    """How many units may be down; at least one where nothing could be updated otherwise."""
    limit = rolling_of(owner, own).max_unavailable
    if limit is None:
        return minimum if owner.spec.update.type == COHERENT else 1
    count = limit.of(replicas, up=False)
    return 1 if count == 0 and surge(owner, own, replicas) == 0 else count


def takeable(available: int, peak: int, replicas: int, minimum: int, down: int) -> int:
    """How many available units may be taken now."""
    if available < min(minimum, replicas):
        return 0
    return max(0, available - max(0, min(replicas, peak) - down))


def coherent_steps(components: list[tuple[int, int]]) -> list[list[int]]:
    """How far each component, given as (replicas, minimum), has come after each step.

    Every step moves at least the minimum of every component, so that old and new are each complete:
    as many steps as the scarcest component allows, what is left over spread evenly, the rest last.
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
    """How many units of a clique or group may be new by now in a coherent update.

    The next step opens when all components have the new units of the steps before it ready.
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
    """Whether a replica of a scaling group has a clique of another template than the newest."""
    roles = owner.spec.roles
    return any(clique.template.hash != roles[role].hash for role, clique in members.items())
