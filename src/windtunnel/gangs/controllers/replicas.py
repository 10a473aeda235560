"""The controller of one set replica: its cliques, scaling groups and gangs, and its state."""

from dataclasses import dataclass

from windtunnel.gangs.commands import Command, Delete, PatchClique
from windtunnel.gangs.controllers import attachments, conditions
from windtunnel.gangs.controllers.generation import (
    Outline,
    create,
    extent,
    new_clique,
    new_gang,
    new_group,
)
from windtunnel.gangs.controllers.groups import GroupTally
from windtunnel.gangs.controllers.rollout import has_turn, target
from windtunnel.gangs.controllers.termination import Broken, is_condemned
from windtunnel.gangs.objects import TRUE, PodClique, PodCliqueSet, ScalingGroup, SetReplica
from windtunnel.gangs.templates import ON_DELETE, GroupTemplate
from windtunnel.gangs.view import View

GangsKey = tuple[int, list[int]]
"""A change marker of a set replica: its gang turnover, and the extent of each scaling group."""


@dataclass
class ReplicaState:
    """The state of a set replica, for the roll-ups of its set."""

    available: bool
    updated: bool
    """Everything in it has the newest template, and its minimum of that is ready."""
    breached: bool
    idle: bool
    """None of its pods is scheduled."""


def drop(view: View, owner: PodCliqueSet, replica: int, commands: list[Command]) -> None:
    """Deletes a replica above the set's scale."""
    part, why = owner.parts[replica], "its set has fewer replicas"
    commands += [Delete(group, why) for group in part.groups.values()]
    commands += [Delete(one, why) for one in part.cliques.values()]
    # Gangs go last, so that no pod is eligible for scheduling without one.
    commands += [Delete(gang, why) for gang in part.gangs.values()]
    attachments.drop_replica(view, owner, replica, commands)


def keep(
    view: View,
    owner: PodCliqueSet,
    outline: Outline,
    complete: dict[int, GangsKey],
    commands: list[Command],
) -> str:
    """Adds commands to create what a replica lacks and to delete what it has too much of.

    `complete` records at which key all gangs of a replica last existed. Returns a clash with
    another owner's object; mostly "".
    """
    replica = outline.replica
    part = owner.parts.get(replica)
    there = SetReplica() if part is None else part
    clash = attachments.keep_replica(view, owner, outline, commands)
    for role, name in outline.cliques:
        clique = there.cliques.get(role)
        if clique is None:
            template = target(owner, replica, role)
            replicas = owner.status.scales.get(name, template.replicas)
            made = new_clique(owner, outline, name, template, replicas)
            whose = create(view, owner, made, commands)
            clash = clash or whose
        elif is_condemned(owner, None, clique):
            commands.append(Delete(clique, "its gang is terminated"))
    for group, _ in outline.groups:
        if group.name not in there.groups:
            whose = create(view, owner, new_group(owner, replica, group), commands)
            clash = clash or whose
    _renew(owner, there, replica, commands)
    extents = [extent(view, name, template) for template, name in outline.groups]
    key = (there.turnover, extents)
    if complete.get(replica) == key:
        return clash
    before = len(commands)
    whose, whole = _keep_gangs(view, owner, outline, there, extents, commands)
    if whole and len(commands) == before:
        complete[replica] = key
    return whose or clash


def _renew(owner: PodCliqueSet, part: SetReplica, replica: int, commands: list[Command]) -> None:
    """Gives cliques the newest template: with OnDelete all cliques, otherwise at the replica's
    turn."""
    on_delete = owner.spec.update.type == ON_DELETE
    if not on_delete and not has_turn(owner, replica):
        return
    found: list[PodClique] = list(part.cliques.values())
    if on_delete:
        for group in part.groups.values():
            for members in group.cliques.values():
                found += members.values()
    for clique in found:
        newest = owner.spec.roles[clique.role]
        if clique.template.hash != newest.hash:
            commands.append(PatchClique(clique, newest))


def _keep_gangs(
    view: View,
    owner: PodCliqueSet,
    outline: Outline,
    part: SetReplica,
    extents: list[int],
    commands: list[Command],
) -> tuple[str, bool]:
    """Returns a clash with another owner's object, and whether no gang is missing.

    A missing gang that is not created waits until its name is free.
    """
    gangs, expected = part.gangs, [outline.base]
    missing: list[tuple[str, tuple[GroupTemplate, int] | None]] = []
    if outline.base not in gangs:
        missing.append((outline.base, None))
    for (template, group), reach in zip(outline.groups, extents, strict=True):
        scaled = outline.scaled_gangs(template, group, reach)
        expected += scaled
        for index, name in enumerate(scaled, template.min_available):
            if name not in gangs:
                missing.append((name, (template, index)))
    if len(gangs) + len(missing) > len(expected):
        known, why = set(expected), "its scaling group has fewer replicas"
        commands += [Delete(gang, why) for name, gang in gangs.items() if name not in known]
    clash = ""
    for name, of in missing:
        made = new_gang(view, owner, outline, name, of)
        whose = create(view, owner, made, commands)
        clash = clash or whose
    return clash, not missing


def standing(owner: PodCliqueSet, outline: Outline, tallies: dict[str, GroupTally]) -> ReplicaState:
    """Returns the state of a replica, from the last status of its parts."""
    part = owner.parts.get(outline.replica)
    spec = owner.spec
    if part is None or len(part.cliques) < len(spec.alone) or len(part.groups) < len(spec.groups):
        return ReplicaState(available=False, updated=False, breached=False, idle=True)
    available, updated, breached, idle = True, True, False, True
    for clique in part.cliques.values():
        status, minimum = clique.status, clique.needed
        idle = idle and status.scheduled == 0
        breached = breached or conditions.breached(clique)
        if not status.observed or status.ready < minimum:
            available = updated = False
        newest = spec.roles[clique.role]
        if (
            (clique.template is not newest and clique.template.hash != newest.hash)
            or status.updating
            or status.updated < status.replicas
            or status.updated_ready < minimum
        ):
            updated = False
    for group in part.groups.values():
        state, minimum = group.status, group.needed
        idle = idle and state.scheduled == 0
        breached = breached or conditions.breached(group)
        if not state.observed or state.available < minimum:
            available = updated = False
        if state.updating or state.updated < minimum or tallies[group.name].old > 0:
            updated = False
    return ReplicaState(available=available, updated=updated, breached=breached, idle=idle)


def report_stranding(
    part: SetReplica,
    tallies: dict[str, GroupTally],
    stranded: dict[str, Broken],
    now_s: float,
    commands: list[Command],
) -> None:
    """Sets the `GangStranded` condition of cliques and groups that lost all or some of their parts
    while other pods hold machines in vain, and clears it elsewhere."""
    things: list[PodClique | ScalingGroup] = [*part.cliques.values(), *part.groups.values()]
    for thing in things:
        found = stranded.get(thing.name)
        tally = tallies.get(thing.name)
        if found is None and tally is not None and tally.broken:
            found = next((one for one in tally.broken.values() if one.stranded), None)
        if found is None:
            conditions.clear(commands, thing, conditions.STRANDED, now_s)
        else:
            says = (TRUE, "PartLost", found.why)
            conditions.put(commands, thing, conditions.STRANDED, says, now_s)


def is_settled(owner: PodCliqueSet, replica: int) -> bool:
    """Whether no termination of this replica is still under way."""
    part = owner.parts.get(replica)
    if replica not in owner.status.recycled or part is None:
        return True
    if any(is_condemned(owner, None, clique) for clique in part.cliques.values()):
        return False
    return not any(
        is_condemned(owner, group, clique)
        for group in part.groups.values()
        for members in group.cliques.values()
        for clique in members.values()
    )
