"""The controller of one gang: the pods it refers to, its phase and its conditions."""

from typing import Final

from windtunnel.gangs.commands import Command, PatchGang, PatchGangPhase
from windtunnel.gangs.controllers import conditions
from windtunnel.gangs.controllers.generation import Outline, in_base, pod_groups
from windtunnel.gangs.objects import (
    FALSE,
    PENDING,
    RUNNING,
    STARTING,
    TRUE,
    PodClique,
    PodCliqueSet,
    PodGang,
)
from windtunnel.gangs.templates import GroupTemplate
from windtunnel.gangs.view import View

INITIALIZED: Final = "Initialized"
SCHEDULED: Final = "Scheduled"
MINIMUM_SCHEDULED: Final = "MinimumScheduled"
BELOW_MINIMUM: Final = "BelowMinimum"
"""Reason of `Scheduled` for a gang that once had the minimum of every group and has it no longer.
"""
READY: Final = "Ready"
UNHEALTHY: Final = "Unhealthy"


def keep(
    view: View,
    owner: PodCliqueSet,
    outline: Outline,
    gang: PodGang,
    scaled: tuple[GroupTemplate, int] | None,
    now_s: float,
    commands: list[Command],
) -> None:
    """Adds the commands that update a gang.

    The gang refers to all of its pods at once, when all of them exist; later it is updated whenever
    all of them exist again.
    """
    complete = _refers_to_all(view, owner, outline, gang, scaled)
    if not complete:
        complete = True
        groups = pod_groups(view, owner, outline, scaled)
        for group in groups:
            clique = view.cliques.get(group.name)
            if clique is None or clique.set_name != gang.set_name or clique.terminating:
                complete = False
                break
            if not _has_all(clique):
                complete = False
                break
            group.pods = clique.pod_index.roster
        if complete and gang.groups != tuple(groups):
            commands.append(PatchGang(gang, tuple(groups)))
    _initialized(view, gang, now_s, commands, complete=complete)
    _progress(view, gang, now_s, commands)


def _has_all(clique: PodClique) -> bool:
    """Whether all pods of a clique exist; never true for one that is scaled below its minimum."""
    return clique.replicas <= clique.tally.active and clique.needed <= clique.replicas


def _refers_to_all(
    view: View,
    owner: PodCliqueSet,
    outline: Outline,
    gang: PodGang,
    scaled: tuple[GroupTemplate, int] | None,
) -> bool:
    """Whether all pods of a gang exist and it refers to them, without rebuilding its groups.

    False also where that cannot be told cheaply: a clique is missing or has its own packing.
    """
    found = _cliques_of(view, owner, outline, gang, scaled)
    groups, roles = gang.groups, owner.spec.roles
    if len(found) != len(groups):
        return False
    for at, clique in enumerate(found):
        known, newest = groups[at], roles[clique.role]
        minimum = 0 if clique.replicas == 0 and not clique.group else newest.min_available
        if not _has_all(clique) or known.min_replicas != minimum:
            return False
        if newest.pack is not None or known.pack is not None or known.name != clique.name:
            return False
        pods, roster = known.pods, clique.pod_index.roster
        if pods is not roster and pods != roster:
            return False
    return True


def _cliques_of(
    view: View,
    owner: PodCliqueSet,
    outline: Outline,
    gang: PodGang,
    scaled: tuple[GroupTemplate, int] | None,
) -> list[PodClique]:
    """Returns the cliques of a gang, in its order; [] if one is missing."""
    found: list[PodClique] = []
    if scaled is None:
        for _, name in outline.cliques:
            clique = view.cliques.get(name)
            if clique is None or clique.deleted_s >= 0.0 or clique.owner_uid != owner.uid:
                return []
            found.append(clique)
    for template, name in outline.groups:
        if scaled is not None and scaled[0] is not template:
            continue
        group = view.groups.get(name)
        if group is None or group.set_name != gang.set_name:
            return []
        first, end = 0, in_base(template, group.replicas)
        if scaled is not None:
            first, end = scaled[1], scaled[1] + 1
        for index in range(first, end):
            members = group.cliques.get(index, {})
            if len(members) < len(template.roles):
                return []
            found += [members[role] for role in template.roles if role in members]
    return found


def _initialized(
    view: View, gang: PodGang, now_s: float, commands: list[Command], *, complete: bool
) -> None:
    known = gang.conditions.get(INITIALIZED)
    was = known is not None and known.status == TRUE
    if complete and not was:
        says = (TRUE, "PodGangPodsCreated", "All of its pods exist")
        conditions.put(commands, gang, INITIALIZED, says, now_s)
    elif not complete and (known is None or (was and _emptied(view, gang))):
        says = (FALSE, "PodGangPodsCreationPending", "Some of its pods do not exist yet")
        conditions.put(commands, gang, INITIALIZED, says, now_s)


def _emptied(view: View, gang: PodGang) -> bool:
    """Whether one of its cliques lost every pod, as in a termination, and not just some."""
    for group in gang.groups:
        clique = view.cliques.get(group.name)
        if clique is None or (clique.replicas > 0 and clique.status.replicas == 0):
            return True
    return False


def _progress(view: View, gang: PodGang, now_s: float, commands: list[Command]) -> None:
    scheduled, ready, short, unready = True, True, "", ""
    for group in gang.groups:
        clique = view.cliques.get(group.name)
        ours = clique is not None and clique.set_name == gang.set_name
        have = clique.status.scheduled if clique is not None and ours else 0
        fit = clique.status.ready if clique is not None and ours else 0
        if have < group.min_replicas and scheduled:
            scheduled = False
            short = f"{group.name} has {have} of {group.min_replicas} pods scheduled"
        if fit < group.min_replicas and ready:
            ready = False
            unready = f"{group.name} has {fit} of {group.min_replicas} pods ready"
    phase = RUNNING if ready and scheduled else STARTING if scheduled else PENDING
    if gang.phase != phase:
        commands.append(PatchGangPhase(gang, phase))
    known = gang.conditions.get(SCHEDULED)
    was = known is not None and known.status == TRUE
    once = was or (known is not None and known.reason == BELOW_MINIMUM)
    says = (TRUE, MINIMUM_SCHEDULED, "Every pod group has its minimum scheduled")
    if not scheduled:
        says = (FALSE, BELOW_MINIMUM if once else "Pending", short)
    conditions.put(commands, gang, SCHEDULED, says, now_s)
    says = (TRUE, "MinimumReady", "Every pod group has its minimum ready")
    if not ready:
        says = (FALSE, "NotReady", unready)
    conditions.put(commands, gang, READY, says, now_s)
    if once and not scheduled:
        conditions.put(commands, gang, UNHEALTHY, (TRUE, BELOW_MINIMUM, short), now_s)
    else:
        conditions.clear(commands, gang, UNHEALTHY, now_s)
