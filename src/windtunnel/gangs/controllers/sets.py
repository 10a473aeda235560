"""The controller of one set: its revisions, the replicas under update, and its roll-ups."""

from typing import NamedTuple

import msgspec

from windtunnel.core.kubernetes import NEVER
from windtunnel.gangs.commands import Command, PatchStatus, emit
from windtunnel.gangs.controllers import conditions
from windtunnel.gangs.controllers.replicas import ReplicaState, is_settled
from windtunnel.gangs.controllers.rollout import rolling_of
from windtunnel.gangs.controllers.termination import (
    NodeCount,
    count_futile,
    incarnation_of,
    is_condemned,
)
from windtunnel.gangs.objects import FALSE, NORMAL, TRUE, UNKNOWN, WARNING, PodCliqueSet
from windtunnel.gangs.statuses import Revision, SetStatus
from windtunnel.gangs.templates import OFF, ON_DELETE
from windtunnel.gangs.view import View

DEADLINE = "ProgressDeadlineExceeded"
LEVELS_UNAVAILABLE = "TopologyLevelsUnavailable"
NAMES_TAKEN = "NamesTaken"


class SetSummary(NamedTuple):
    """The input for the decisions about a set."""

    standings: dict[int, ReplicaState]
    progress: int
    """A progress count of the update; the update advances as long as this changes."""
    fired: dict[int, str]
    """The replicas to terminate, each with the reason."""


class FollowUp(NamedTuple):
    """When to check a set again, and which of its replicas to check at once."""

    again_s: float
    turns: list[int]


def observe(
    view: View, owner: PodCliqueSet, seen: SetSummary, now_s: float, commands: list[Command]
) -> FollowUp:
    """Adds the commands that update the status and conditions of a set."""
    status = msgspec.structs.replace(owner.status)
    status.observed_generation = owner.generation
    status.replicas = owner.replicas
    standings = seen.standings
    if len(standings) == owner.replicas:
        status.available = sum(1 for one in standings.values() if one.available)
        status.updated = sum(1 for one in standings.values() if one.updated)
    status.recycled = {
        replica: incarnation
        for replica, incarnation in status.recycled.items()
        if replica < owner.replicas and not is_settled(owner, replica)
    }
    _drop_scales(view, owner, status)
    for replica in seen.fired:
        _fire(owner, status, replica)
    _follow_revision(owner, status, now_s, commands)
    if status.updating:
        _roll(owner, status, standings, now_s, commands)
    again_s = _deadline(owner, status, seen.progress, now_s, commands)
    _topology(view, owner, now_s, commands)
    if status != owner.status:
        commands.append(PatchStatus(owner, status))
    # Replicas whose turn or termination begins or ends have something to do.
    turns = [index for index in status.turns if index not in owner.status.turns]
    turns += [index for index in owner.status.turns if index not in status.turns]
    stuck = again_s <= now_s
    if stuck != conditions.is_stuck(owner):
        turns += [index for index in status.turns if index not in turns]
    turns += [index for index in status.recycled if index not in owner.status.recycled]
    turns += [index for index in owner.status.recycled if index not in status.recycled]
    if status.updating != owner.status.updating or status.revision != owner.status.revision:
        turns += range(owner.replicas)
    return FollowUp(OFF if stuck else again_s, turns)


def _fire(owner: PodCliqueSet, status: SetStatus, replica: int) -> None:
    """Records the termination of a replica, and the scale of its cliques."""
    incarnation = incarnation_of(owner, replica, None, -1) + 1
    status.incarnations = {**status.incarnations, replica: incarnation}
    status.recycled = {**status.recycled, replica: incarnation}
    part = owner.parts[replica]
    guaranteed = [*part.cliques.values()]
    for group in part.groups.values():
        for index in range(group.min_available):
            guaranteed += group.cliques.get(index, {}).values()
    status.futile = count_futile(status.futile, replica, guaranteed)
    status.scales = dict(status.scales)
    for clique in part.cliques.values():
        if clique.replicas != clique.template.replicas:
            status.scales[clique.name] = clique.replicas


def report_clash(
    owner: PodCliqueSet, clashes: dict[str, str], now_s: float, commands: list[Command]
) -> None:
    """Sets the condition that a name which the set needs is taken, and by which owner."""
    if not clashes:
        conditions.clear(commands, owner, NAMES_TAKEN, now_s)
        return
    what = clashes[min(clashes)]
    conditions.put(commands, owner, NAMES_TAKEN, (TRUE, "NameTaken", what), now_s)


def report_held(
    owner: PodCliqueSet,
    nodes: NodeCount | None,
    now_s: float,
    commands: list[Command],
    *,
    hurt: bool,
) -> None:
    """Sets the condition that terminations of a set with broken parts are held back by `nodes`, or
    since when they no longer are."""
    before = owner.conditions.get(conditions.HELD)
    if nodes is not None:
        what = "Too many nodes are not ready: no gang is terminated until they are back"
        if before is None or before.status != TRUE:
            count = f"{nodes.down} of {nodes.total} nodes are not ready: no gang is terminated"
            emit(commands, owner, WARNING, conditions.HELD, count, now_s, f"{now_s:.3f}")
        conditions.put(commands, owner, conditions.HELD, (TRUE, "NodesNotReady", what), now_s)
    elif not hurt:
        conditions.clear(commands, owner, conditions.HELD, now_s)
    elif before is not None:
        what = "Enough nodes are ready again; delays of terminations count from then on"
        conditions.put(commands, owner, conditions.HELD, (FALSE, "NodesReady", what), now_s)


def _drop_scales(view: View, owner: PodCliqueSet, status: SetStatus) -> None:
    """Forgets a remembered scale once its clique exists again."""
    if not status.scales:
        return
    kept = {}
    for name, replicas in status.scales.items():
        clique = view.cliques.get(name)
        if clique is None or is_condemned(owner, None, clique):
            kept[name] = replicas
    status.scales = kept


def _follow_revision(
    owner: PodCliqueSet, status: SetStatus, now_s: float, commands: list[Command]
) -> None:
    """Records a changed pod template as a new revision and starts an update; the first revision
    starts none."""
    spec = owner.spec
    on_delete = spec.update.type == ON_DELETE
    if status.revision != spec.hash:
        first = not status.revision
        number = status.revisions[-1].number + 1 if status.revisions else 1
        kept = [one for one in status.revisions if one.hash != spec.hash]
        kept = kept[max(0, len(kept) + 1 - spec.revision_limit) :]
        revision = Revision(number, spec.hash, dict(spec.roles), spec.priority_class)
        status.revisions = (*kept, revision)
        status.revision = spec.hash
        if first:
            return
        status.update_started_s, status.progressed_s = now_s, now_s
        status.update_ended_s = now_s if on_delete else NEVER
        status.turns, status.turned_s, status.done, status.progress = (), {}, (), 0
        how = "goes to pods as they are deleted" if on_delete else "is being rolled out"
        what = f"Revision {number} {how}"
        emit(commands, owner, NORMAL, "UpdateStarted", what, now_s, str(number))
    elif status.updating and on_delete:
        status.update_ended_s, status.turns, status.turned_s = now_s, (), {}


def _roll(
    owner: PodCliqueSet,
    status: SetStatus,
    standings: dict[int, ReplicaState],
    now_s: float,
    commands: list[Command],
) -> None:
    """Ends the turns of finished replicas, and gives the next ones theirs."""
    done = [index for index in status.done if index < owner.replicas]
    updating = [index for index in status.turns if index < owner.replicas]
    behind = set(done)
    if owner.status.revision == status.revision:
        # Only replicas checked against the newest revision can have finished it.
        finished = [
            index
            for index, standing in standings.items()
            if standing.updated and index not in behind and index < owner.replicas
        ]
        done += sorted(finished)
        behind.update(finished)
        updating = [index for index in updating if index not in behind]
    room = owner.spec.update.parallel_replicas - len(updating)
    if room > 0 and len(behind) < owner.replicas and not owner.spec.update.paused:
        waiting = [
            index
            for index in range(owner.replicas)
            if index not in behind and index not in updating and is_settled(owner, index)
        ]
        waiting.sort(key=lambda index: turn_order(standings.get(index), index))
        updating += waiting[:room]
    status.done, status.turns = tuple(done), tuple(updating)
    status.turned_s = {index: status.turned_s.get(index, now_s) for index in updating}
    if len(behind) >= owner.replicas and not updating:
        status.update_ended_s, status.progressed_s = now_s, now_s
        number = status.revisions[-1].number
        what = f"Revision {number} is everywhere"
        emit(commands, owner, NORMAL, "UpdateCompleted", what, now_s, str(number))


def turn_order(standing: ReplicaState | None, index: int) -> tuple[bool, bool, int]:
    """Sort key of turns: idle replicas first, then breached ones, then by index."""
    if standing is None:
        return (False, False, index)
    return (not standing.idle, not standing.breached, index)


def _deadline(
    owner: PodCliqueSet, status: SetStatus, progress: int, now_s: float, commands: list[Command]
) -> float:
    """Sets the `Progressing` condition of an update; returns its deadline, maybe in the past."""
    if status.update_started_s < 0.0 or owner.spec.update.type == ON_DELETE:
        return OFF
    if not status.updating:
        what = f"Revision {status.revisions[-1].number} is everywhere"
        says = (TRUE, "UpdateCompleted", what)
        conditions.put(commands, owner, conditions.PROGRESSING, says, now_s)
        return OFF
    number, paused = status.revisions[-1].number, owner.spec.update.paused
    known = owner.conditions.get(conditions.PROGRESSING)
    rested = known is not None and known.reason in conditions.PAUSES
    if progress != status.progress or (rested and not paused):
        status.progress, status.progressed_s = progress, now_s
    limit_s = _limit_s(owner)
    due_s = status.progressed_s + limit_s
    stood = f"made no progress for {limit_s:g} s"
    if now_s < due_s:
        says = (TRUE, "UpdateInProgress", f"Revision {number} is rolled out")
        if paused:
            says = (UNKNOWN, conditions.PAUSED, f"Revision {number} is paused")
    elif paused:
        what = f"Revision {number} is paused and {stood}: breaches count again"
        says = (UNKNOWN, conditions.PAUSED_PAST_DEADLINE, what)
    else:
        what = f"Revision {number} {stood}"
        says = (FALSE, DEADLINE, what)
        emit(commands, owner, WARNING, DEADLINE, what, now_s, f"{number}/{status.progress}")
    conditions.put(commands, owner, conditions.PROGRESSING, says, now_s)
    return due_s


def _limit_s(owner: PodCliqueSet) -> float:
    """Returns the shortest progress deadline of any part of the set."""
    spec = owner.spec
    limits = [rolling_of(owner, group.rolling).progress_deadline_s for group in spec.groups]
    limits += [rolling_of(owner, clique.rolling).progress_deadline_s for clique in spec.alone]
    return min(limits, default=OFF)


def _topology(view: View, owner: PodCliqueSet, now_s: float, commands: list[Command]) -> None:
    """Sets the condition that says whether the cluster has the levels named in the constraints."""
    found = owner.spec.packs
    if not found:
        conditions.clear(commands, owner, LEVELS_UNAVAILABLE, now_s)
        return
    name = found[0].topology
    levels = view.levels.get(name)
    wanted = {domain for pack in found for domain in (pack.required, pack.preferred) if domain}
    gone = [] if levels is None else sorted(wanted.difference(levels))
    if not name:
        says = (UNKNOWN, "TopologyNameMissing", "No topology is named")
    elif levels is None:
        what = f"There is no ClusterTopologyBinding {name}"
        says = (UNKNOWN, "ClusterTopologyNotFound", what)
    elif gone:
        what = f"The topology {name} has no level {', '.join(gone)}: not constrained by it"
        says = (TRUE, "ClusterTopologyLevelsUnavailable", what)
    else:
        says = (FALSE, "AllClusterTopologyLevelsAvailable", f"The topology {name} has all levels")
    conditions.put(commands, owner, LEVELS_UNAVAILABLE, says, now_s)
