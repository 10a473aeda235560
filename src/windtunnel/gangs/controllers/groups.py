"""The controller of one scaling group: its status, and which cliques to create or delete."""

from bisect import bisect_left
from typing import Final

from windtunnel.gangs.commands import Command, Delete, PatchStatus
from windtunnel.gangs.controllers import conditions
from windtunnel.gangs.controllers.generation import create, new_member
from windtunnel.gangs.controllers.rollout import (
    allowance,
    has_turn,
    surge,
    takeable,
    target,
    unavailable,
)
from windtunnel.gangs.controllers.termination import (
    Broken,
    broken_replica,
    has_lost_all,
    incarnation_of,
    is_condemned,
    template_of,
)
from windtunnel.gangs.objects import FALSE, TRUE, PodClique, PodCliqueSet, ScalingGroup
from windtunnel.gangs.statuses import GroupStatus
from windtunnel.gangs.templates import COHERENT
from windtunnel.gangs.view import View


class _Counted:
    """The state of one replica of a group, as counted in its tally."""

    def __init__(self, owner: PodCliqueSet, group: ScalingGroup, index: int) -> None:
        members, roles = group.cliques.get(index, {}), owner.spec.roles
        incarnation = incarnation_of(owner, group.replica, group, index)
        old = holding = lost = breached = condemned = False
        scheduled = available = updated = True
        for role, clique in members.items():  # in one loop, since a restart counts everything
            status, minimum = clique.status, clique.min_available
            bound = status.scheduled
            if bound:
                holding = True
            elif has_lost_all(clique):
                lost = True
            if bound < minimum or not status.observed:
                scheduled = False
            if status.ready < minimum:
                available = False
            if status.updated_ready < minimum:
                updated = False
            newest = roles[role]
            if clique.template is not newest and clique.template.hash != newest.hash:
                old = True
            if conditions.breached(clique):
                breached = True
            if clique.incarnation < incarnation:
                condemned = True
        whole = len(members) >= len(group.members)
        wanted = index < group.replicas
        self.old: Final = old
        self.holding: Final = holding
        self.lost: Final = lost
        self.breached: Final = breached
        self.condemned: Final = condemned
        self.whole: Final = whole
        self.fit: Final = whole and available
        self.complete: Final = wanted and whole
        self.fresh: Final = self.complete and not old
        self.fresh_fit: Final = self.fresh and available
        self.scheduled: Final = self.complete and scheduled
        self.healthy: Final = self.scheduled and not breached
        self.available: Final = self.scheduled and available
        self.updated: Final = self.available and updated and not old


class GroupTally:
    """Counts of a group's replicas by state, updated at the cost of those that changed.

    The tally can be recomputed at any time, and is when the spec or the scale changes.
    """

    def __init__(self, owner: PodCliqueSet, group: ScalingGroup) -> None:
        self._owner: Final = owner
        self._group: Final = group
        self._generation: Final = owner.generation
        self._replicas: Final = group.replicas
        self._counted: Final[dict[int, _Counted]] = {}
        self.stale: Final[dict[int, None]] = dict.fromkeys(group.cliques)
        self.complete = 0
        self.scheduled = 0
        self.healthy = 0
        self.available = 0
        self.updated = 0
        self.old = 0
        self.holding = 0
        self.lost = 0
        self.fit = 0
        """Replicas whose cliques all have their minimum ready, surplus replicas included."""
        self.fresh = 0
        """Complete replicas with the newest templates."""
        self.fresh_fit = 0
        self.broken: Final[dict[int, Broken]] = {}
        """Breached or stranded replicas, each with when its termination is due and why."""
        self.serving: Final[list[int]] = []
        """Old replicas whose cliques all have their minimum ready, lowest first."""
        self.idle: Final[dict[int, None]] = {}
        """The other old replicas."""
        self.above: Final[list[int]] = []
        """Existing replicas above the scale, lowest first."""
        self.condemned: Final[dict[int, None]] = {}
        """Replicas with a clique of an earlier incarnation, as of each clique's last change."""
        self.incomplete: Final[dict[int, None]] = dict.fromkeys(range(group.replicas))
        """Replicas within the scale that lack cliques that may be created now."""
        self.refresh()

    def is_of(self, owner: PodCliqueSet, group: ScalingGroup) -> bool:
        return (
            self._group is group
            and self._owner is owner
            and self._generation == owner.generation
            and self._replicas == group.replicas
        )

    def lost_all(self) -> bool:
        """Whether no replica holds any machine, and at least one that still exists once did."""
        return self.lost > 0 and self.holding == 0

    def refresh(self) -> None:
        """Recounts the replicas that changed."""
        for index in self.stale:
            known = self._counted.pop(index, None)
            if known is not None:
                self._add(known, -1)
                self._unlist(index, known)
            if index < self._replicas:
                self.incomplete[index] = None
            members = self._group.cliques.get(index)
            if members is None:
                continue
            counted = self._counted[index] = _Counted(self._owner, self._group, index)
            self._add(counted, 1)
            self._list(index, counted)
            if counted.breached or counted.lost:
                broken = broken_replica(self._owner, self._group, members)
                if broken is not None:
                    self.broken[index] = broken
        self.stale.clear()

    def _list(self, index: int, counted: _Counted) -> None:
        if counted.whole:
            self.incomplete.pop(index, None)
        if counted.old and counted.fit:
            self.serving.insert(bisect_left(self.serving, index), index)
        elif counted.old:
            self.idle[index] = None
        if counted.condemned:
            self.condemned[index] = None
        if index >= self._replicas:
            self.above.insert(bisect_left(self.above, index), index)

    def _unlist(self, index: int, counted: _Counted) -> None:
        if counted.old and counted.fit:
            del self.serving[bisect_left(self.serving, index)]
        self.idle.pop(index, None)
        self.condemned.pop(index, None)
        self.broken.pop(index, None)
        if index >= self._replicas:
            del self.above[bisect_left(self.above, index)]

    def extent(self) -> int:
        """Returns the number of replicas to have: above the scale while old ones are being
        replaced."""
        replicas = self._replicas
        if replicas == 0 or not has_turn(self._owner, self._group.replica):
            return replicas
        extra = surge(self._owner, template_of(self._owner, self._group).rolling, replicas)
        old = self.complete - self.fresh
        if old:
            return replicas + min(extra, old)
        if self.fresh_fit == replicas or not self.above:
            return replicas
        # Surge replicas stay until the replicas below them are ready again.
        return max(replicas, min(replicas + extra, self.above[-1] + 1))

    def beyond(self, extent: int) -> list[int]:
        """Returns the surplus replicas."""
        return self.above[bisect_left(self.above, extent) :]

    def fit_within(self, extent: int) -> int:
        return self.fit - sum(self._counted[index].fit for index in self.beyond(extent))

    def missing(self, extent: int) -> list[int]:
        """Returns the replicas that lack cliques, as far as those may be created now."""
        found = sorted(self.incomplete)
        if extent > self._replicas:
            for index in range(self._replicas, extent):
                counted = self._counted.get(index)
                if counted is None or not counted.whole:
                    found.append(index)
        return found

    def _add(self, counted: _Counted, by: int) -> None:
        self.complete += by * counted.complete
        self.scheduled += by * counted.scheduled
        self.healthy += by * counted.healthy
        self.available += by * counted.available
        self.updated += by * counted.updated
        self.old += by * counted.old
        self.holding += by * counted.holding
        self.lost += by * counted.lost
        self.fit += by * counted.fit
        self.fresh += by * counted.fresh
        self.fresh_fit += by * counted.fresh_fit


def observe(
    owner: PodCliqueSet,
    group: ScalingGroup,
    tally: GroupTally,
    now_s: float,
    commands: list[Command],
) -> None:
    """Adds commands for the conditions and status of a group; the status comes last."""
    before = group.status
    if _is_written(owner, group, before, tally):
        if conditions.TERMINATING in group.conditions and not conditions.breached(group):
            conditions.clear(commands, group, conditions.TERMINATING, now_s)
        return
    status = GroupStatus(
        replicas=group.replicas,
        updated=tally.updated,
        scheduled=tally.scheduled,
        healthy=tally.healthy,
        available=tally.available,
        revision=before.revision,
        incarnations=before.incarnations,
        recycled=_still_recycled(owner, group),
        futile=before.futile,
    )
    lost = conditions.follow_parts(owner, group, status, now_s)
    complete, old = tally.complete == group.replicas, tally.old > 0
    enough = status.updated >= group.needed
    conditions.follow_update(
        owner,
        before,
        status,
        status.available,
        now_s,
        turn=has_turn(owner, group.replica),
        old=old,
        done=not old and complete and enough and len(group.cliques) == group.replicas,
    )
    if not status.updating and complete and not old:
        status.revision = owner.status.revision
    if before == status:
        if conditions.TERMINATING in group.conditions and not conditions.breached(group):
            conditions.clear(commands, group, conditions.TERMINATING, now_s)
        return
    if lost:
        conditions.report_loss(group, "replica", status.losses, now_s, commands)
    besides = "; a replica that still holds pods is judged by its cliques"
    says = conditions.breach(group, status, status.healthy, conditions.ENOUGH_AVAILABLE, besides)
    conditions.put(commands, group, conditions.BREACHED, says, now_s)
    if says[0] == FALSE:
        conditions.clear(commands, group, conditions.TERMINATING, now_s)
    commands.append(PatchStatus(group, status))


def _is_written(
    owner: PodCliqueSet, group: ScalingGroup, before: GroupStatus, tally: GroupTally
) -> bool:
    """Whether the status already matches what is observed, without building a new one."""
    return (
        tally.old == 0
        and before.replicas == group.replicas
        and before.updated == tally.updated
        and before.scheduled == tally.scheduled
        and before.healthy == tally.healthy
        and before.available == tally.available
        and not before.recycled
        and (tally.complete != group.replicas or before.revision == owner.status.revision)
        and conditions.is_followed(owner, group, before)
    )


def _still_recycled(owner: PodCliqueSet, group: ScalingGroup) -> dict[int, int]:
    """Returns the replicas that still have a clique to be deleted."""
    return {
        index: incarnation
        for index, incarnation in group.status.recycled.items()
        if any(is_condemned(owner, group, one) for one in group.cliques.get(index, {}).values())
    }


def flag_terminating(group: ScalingGroup, now_s: float, commands: list[Command]) -> None:
    """Marks a group because its enclosing set replica was terminated."""
    what = "The set replica was terminated and is being recreated"
    says = (TRUE, "GangTerminationActive", what)
    conditions.put(commands, group, conditions.TERMINATING, says, now_s)


def act(
    view: View,
    owner: PodCliqueSet,
    group: ScalingGroup,
    tally: GroupTally,
    commands: list[Command],
) -> str:
    """Adds commands to create and delete cliques; returns a clash with another owner's object, or
    ""."""
    extent = tally.extent()
    recycled = group.status.recycled or group.replica in owner.status.recycled
    if tally.complete == extent == len(group.cliques) and not recycled and not tally.old:
        return ""
    for index in tally.beyond(extent):
        _delete(group.cliques[index], "its scaling group has fewer replicas", commands)
    going = _recycle(owner, group, tally, commands)
    taken: set[int] = set()
    if group.status.updating and not owner.spec.update.paused:
        for index in _outdated(owner, group, tally, extent):
            taken.add(index)
            if index not in going:
                _replace(owner, group.cliques[index], commands)
    clash = ""
    for index in tally.missing(extent):
        if index in taken:
            continue  # until all of it is gone
        before = len(commands)
        whose = _complete(view, owner, group, index, commands)
        clash = clash or whose
        if len(commands) == before and not whose:
            # What it lacks is still being deleted, and is counted again once gone.
            tally.incomplete.pop(index, None)
    return clash


def _complete(
    view: View, owner: PodCliqueSet, group: ScalingGroup, index: int, commands: list[Command]
) -> str:
    """Adds the missing cliques of a replica; returns a clash with another owner's object, or ""."""
    found, clash = group.cliques.get(index), ""
    for role in group.members:
        if found is None or role not in found:
            made = new_member(owner, group, index, target(owner, group.replica, role))
            whose = create(view, owner, made, commands)
            clash = clash or whose
    return clash


def _delete(members: dict[str, PodClique], why: str, commands: list[Command]) -> None:
    commands += [Delete(clique, why) for clique in members.values()]


def _replace(owner: PodCliqueSet, members: dict[str, PodClique], commands: list[Command]) -> None:
    """Deletes an outdated replica, its cliques with an old template last.

    Those mark the replica as being replaced: if they went first and the delete of another clique
    failed, that clique and its pods would stay for good.
    """
    roles = owner.spec.roles
    newest = {role: one for role, one in members.items() if one.template.hash == roles[role].hash}
    _delete(newest or members, "its pod template is outdated", commands)


def _recycle(
    owner: PodCliqueSet, group: ScalingGroup, tally: GroupTally, commands: list[Command]
) -> set[int]:
    """Continues terminations that were decided on, by deleting what is left of them."""
    indices = [*group.cliques]
    if group.replica not in owner.status.recycled:
        indices = list({*group.status.recycled, *tally.condemned})
    going = set()
    for index in sorted(indices):
        for clique in group.cliques.get(index, {}).values():
            if is_condemned(owner, group, clique):
                commands.append(Delete(clique, "its gang is terminated"))
                going.add(index)
    return going


def _outdated(
    owner: PodCliqueSet, group: ScalingGroup, tally: GroupTally, extent: int
) -> list[int]:
    """Returns the replicas that an update replaces now: idle ones, then the lowest serving ones.

    An incomplete replica is being replaced already; its remaining old cliques are deleted.
    """
    down = unavailable(
        owner, template_of(owner, group).rolling, group.replicas, group.min_available
    )
    peak, available = group.status.update_peak, tally.fit_within(extent)
    count = takeable(available, peak, group.replicas, group.min_available, down)
    taken = [index for index in sorted(tally.idle) + tally.serving[:count] if index < extent]
    if owner.spec.update.type == COHERENT:  # a surplus replica does not count as moved
        return taken[: max(0, allowance(owner, group.replica, group.short) - tally.fresh)]
    return taken
