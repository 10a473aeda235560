"""The controllers of the gang layer in one pass: from the state of a view to commands.

`reconcile` takes a view and the time and returns commands. It is level-triggered: the state may
have changed in any way since the last pass, and executing commands until none are left leads to the
same end, even if a new controller takes over in between.

Each level decides by the written status of the level below. While any status of a set replica is
still to be written, nothing is decided about it: one more pass costs nothing.
"""

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final

import msgspec

from windtunnel.core.vocabulary import GROUP_REPLICA_DELETED, SET_REPLICA_DELETED
from windtunnel.gangs.changes import Changes
from windtunnel.gangs.commands import Command, Delete, PatchStatus, emit
from windtunnel.gangs.controllers import (
    attachments,
    cliques,
    conditions,
    groups,
    pod_gangs,
    replicas,
    sets,
    termination,
)
from windtunnel.gangs.controllers.expectations import Expectations
from windtunnel.gangs.controllers.generation import Outline, scaled_of
from windtunnel.gangs.controllers.groups import GroupTally
from windtunnel.gangs.controllers.replicas import GangsKey, ReplicaState
from windtunnel.gangs.controllers.rollout import has_turn
from windtunnel.gangs.controllers.termination import Broken
from windtunnel.gangs.objects import (
    CLIQUE,
    GROUP,
    SET,
    WARNING,
    Owned,
    PodCliqueSet,
    ScalingGroup,
    SetReplica,
)
from windtunnel.gangs.view import View

NEVER_AGAIN: Final = float("inf")
DONE: Final = 1_000_000
"""Weight of a finished replica in the progress of an update: more than any unfinished one."""


class Known:
    """What a controller remembers of a set between passes; all of it can be recomputed."""

    def __init__(self, owner: PodCliqueSet) -> None:
        self.uid: Final = owner.uid
        self.generation = 0
        self.replicas = -1
        self.outlines: Final[dict[int, Outline]] = {}
        self.standings: Final[dict[int, ReplicaState]] = {}
        self.complete: Final[dict[int, GangsKey]] = {}
        self.clashes: Final[dict[str, str]] = {}
        """Objects that cannot be created because another owner has them, by where they were needed.
        """
        self.hurt: Final[dict[int, None]] = {}
        """Replicas with a broken part that are not being terminated."""
        self.held = False
        """Whether terminations were held back when the set's condition was last computed."""

    def clash(self, where: str, what: str) -> bool:
        """Records a clash, or that there is none; returns whether that is a change."""
        if self.clashes.get(where, "") == what:
            return False
        if what:
            self.clashes[where] = what
        else:
            del self.clashes[where]
        return True


class ControllerPass:
    """The findings of one pass so far, and its commands."""

    def __init__(self, changes: Changes, now_s: float) -> None:
        self.changes: Final = changes
        self.now_s: Final = now_s
        self.commands: Final[list[Command]] = []
        self.moved: Final[set[tuple[str, int]]] = set()
        """Set replicas with status to be written before anything is decided about them."""
        self.busy: Final[dict[str, None]] = {}
        """Cliques with pods to create, delete or ungate."""
        self.fires: Final[dict[str, dict[int, str]]] = {}
        """Set replicas to terminate, each with the reason."""
        self.waiting: Final[dict[str, None]] = {}
        """Groups deferred to the next pass."""
        self.later: Final[list[tuple[str, int]]] = []
        """Set replicas to check again in the next pass."""
        self.put_off: Final[list[tuple[str, int]]] = []
        """Set replicas deferred until the new revision of their set is recorded."""


class Controller:
    """Reconciles everything in a view, at a cost proportional to what changed."""

    def __init__(self, view: View) -> None:
        self._view: Final = view
        self._changes: Final = view.watch()
        self._known: Final[dict[str, Known]] = {}
        self._tallies: Final[dict[str, GroupTally]] = {}
        """Tallies by scaling group; these can be recomputed, too."""
        self._timers: Final[list[tuple[float, str, str, int]]] = []
        """(when, kind, name, replica): due times of checks."""
        self._expected: Final = Expectations(view)
        self._aside: Final[dict[str, Changes]] = {}
        """Deferred changes, by set with commands that the cache does not show yet."""
        self._planned: Final[dict[tuple[str, str, int], float]] = {}
        self._nodes: Final = termination.NodeCount()

    def next_s(self) -> float:
        """Returns when to call again even if nothing changes; infinity for never."""
        timers, planned = self._timers, self._planned
        while timers and planned.get((timers[0][1], timers[0][2], timers[0][3])) != timers[0][0]:
            heappop(timers)
        due_s = timers[0][0] if timers else NEVER_AGAIN
        return min(due_s, self._expected.next_s())

    def refused(self, command: Command) -> None:
        """Handles a command that was not executed: its set is checked again."""
        name = self._expected.refused(command)
        owner = self._view.sets.get(name)
        if owner is not None:
            replicas = {**dict.fromkeys(range(owner.replicas)), **owner.parts}
            self._look_at(self._changes, owner, list(replicas))

    def _look_at(self, changes: Changes, owner: PodCliqueSet, replicas: list[int]) -> None:
        """Marks a set and some of its replicas, with everything they contain, as changed."""
        changes.sets[owner.name] = None
        for replica in replicas:
            changes.part(owner.name, replica)
            part = owner.parts.get(replica)
            if part is not None:
                _mark(changes, part)

    def close(self) -> None:
        self._view.unwatch(self._changes)

    def reconcile(self, now_s: float) -> list[Command]:
        """Returns the commands to execute now; none if the state is as desired."""
        self._wake(now_s)
        changes = self._changes
        if changes.nodes:
            self._follow_nodes(changes)
        for name, indices in changes.members.items():
            tally = self._tallies.get(name)
            if tally is not None:
                tally.stale.update(indices)
        changes.members.clear()
        if len(self._expected):
            for name in self._expected.settle(self._changed_sets(changes), now_s):
                if name in self._aside:
                    changes.take_all(self._aside.pop(name))
            if len(self._expected):
                self._put_aside(changes)
        self._follow_sets(changes)
        if not (
            changes.cliques or changes.groups or changes.gangs or changes.parts or changes.sets
        ):
            changes.clear()
            return []
        this = ControllerPass(changes, now_s)
        self._observe_cliques(this)
        self._observe_groups(this)
        self._keep_gangs(this)
        self._keep_parts(this)
        self._keep_sets(this)
        self._act_groups(this)
        self._act_cliques(this)
        changes.clear()
        changes.groups.update(this.waiting)
        for name, replica in [*this.later, *this.put_off]:
            changes.part(name, replica)
            part = self._view.sets[name].parts.get(replica)
            if part is not None:
                _mark(changes, part)
        self._expected.add(this.commands, now_s)
        return this.commands

    def _changed_sets(self, changes: Changes) -> dict[str, None]:
        """Returns the sets with any change."""
        view = self._view
        found = {**changes.sets, **dict.fromkeys(changes.parts)}
        kinds: list[tuple[dict[str, None], Mapping[str, Owned]]] = [
            (changes.cliques, view.cliques),
            (changes.groups, view.groups),
            (changes.gangs, view.gangs),
        ]
        for names, known in kinds:
            for name in names:
                thing = known.get(name)
                if thing is not None:
                    found[thing.set_name] = None
        for kind, name in changes.attachments:
            other = view.find(kind, name)
            if isinstance(other, Owned):
                found[other.set_name] = None
        return found

    def _put_aside(self, changes: Changes) -> None:
        """Defers changes of sets with commands that the cache does not show yet."""
        view, expected = self._view, self._expected
        for name in [name for name in changes.parts if name in expected]:
            for replica in changes.parts.pop(name):
                self._aside_of(name).part(name, replica)
        for name in [name for name in changes.sets if name in expected]:
            self._aside_of(name).sets[name] = None
            del changes.sets[name]
        for clique in [view.cliques.get(name) for name in changes.cliques]:
            if clique is not None and clique.set_name in expected:
                self._aside_of(clique.set_name).cliques[clique.name] = None
                del changes.cliques[clique.name]
        for group in [view.groups.get(name) for name in changes.groups]:
            if group is not None and group.set_name in expected:
                self._aside_of(group.set_name).groups[group.name] = None
                del changes.groups[group.name]
        for gang in [view.gangs.get(name) for name in changes.gangs]:
            if gang is not None and gang.set_name in expected:
                self._aside_of(gang.set_name).gangs[gang.name] = None
                del changes.gangs[gang.name]

    def _aside_of(self, name: str) -> Changes:
        aside = self._aside.get(name)
        if aside is None:
            aside = self._aside[name] = Changes()
        return aside

    # Changes and timers.

    def _wake(self, now_s: float) -> None:
        changes = self._changes
        while self._timers and self._timers[0][0] <= now_s:
            when_s, kind, name, replica = heappop(self._timers)
            if self._planned.get((kind, name, replica)) != when_s:
                continue
            del self._planned[(kind, name, replica)]
            if kind == GROUP:
                changes.groups[name] = None
            elif replica < 0:
                changes.sets[name] = None
            else:
                changes.part(name, replica)

    def _plan(self, when_s: float, kind: str, name: str, replica: int) -> None:
        key = (kind, name, replica)
        if when_s == NEVER_AGAIN:
            self._planned.pop(key, None)
        elif self._planned.get(key) != when_s:
            self._planned[key] = when_s
            heappush(self._timers, (when_s, kind, name, replica))

    def _follow_nodes(self, changes: Changes) -> None:
        """Rechecks sets with broken parts if their terminations are newly held back, or no longer
        are."""
        known = self._view.nodes
        counted = [self._nodes.follow(name, known.get(name)) for name in changes.nodes]
        if not any(counted):
            return
        for name, one in self._known.items():
            owner = self._view.set_of(name) if one.hurt else None
            if owner is not None and one.held != self._nodes.hold(owner.spec):
                self._look_at(changes, owner, list(one.hurt))

    def _follow_sets(self, changes: Changes) -> None:
        """Marks all replicas of a set that was changed or scaled."""
        for name in list(changes.sets):
            owner = self._view.set_of(name)
            if owner is None:
                self._known.pop(name, None)
                continue
            known = self._known.get(name)
            if known is None or known.uid != owner.uid:
                known = self._known[name] = Known(owner)
            if known.generation == owner.generation and known.replicas == owner.replicas:
                continue
            if known.generation != owner.generation:
                known.outlines.clear()
                known.complete.clear()
                known.standings.clear()
            known.generation, known.replicas = owner.generation, owner.replicas
            for replica in range(owner.replicas):
                changes.part(name, replica)
            for replica, part in owner.parts.items():
                changes.part(name, replica)
                _mark(changes, part)

    def _outline(self, owner: PodCliqueSet, replica: int) -> Outline:
        outlines = self._known[owner.name].outlines
        outline = outlines.get(replica)
        if outline is None:
            outline = outlines[replica] = Outline(owner, replica)
        return outline

    def _tally(self, owner: PodCliqueSet, group: ScalingGroup) -> GroupTally:
        """Returns the up-to-date tally of a group."""
        tally = self._tallies.get(group.name)
        if tally is None or not tally.is_of(owner, group):
            tally = self._tallies[group.name] = GroupTally(owner, group)
        elif tally.stale:
            tally.refresh()
        return tally

    # Status of cliques and groups.

    def _observe_cliques(self, this: ControllerPass) -> None:
        """Adds status commands for changed cliques."""
        view, commands = self._view, this.commands
        for name in this.changes.cliques:
            clique = view.cliques.get(name)
            owner = view.keeper_of(clique)
            if clique is None or owner is None:
                continue
            before = len(commands)
            if cliques.observe(owner, clique, this.now_s, commands):
                this.busy[name] = None
            if len(commands) > before:
                this.moved.add((clique.set_name, clique.replica))

    def _observe_groups(self, this: ControllerPass) -> None:
        """Adds status commands for changed groups whose cliques' status is already written."""
        view, commands = self._view, this.commands
        for name in this.changes.groups:
            group = view.groups.get(name)
            owner = view.keeper_of(group)
            if group is None or owner is None:
                self._tallies.pop(name, None)
                continue
            if (group.set_name, group.replica) in this.moved:
                this.waiting[name] = None
                continue
            before = len(commands)
            groups.observe(owner, group, self._tally(owner, group), this.now_s, commands)
            if len(commands) > before:
                this.moved.add((group.set_name, group.replica))

    def _keep_gangs(self, this: ControllerPass) -> None:
        view, commands = self._view, this.commands
        for name in this.changes.gangs:
            gang = view.gangs.get(name)
            owner = view.keeper_of(gang)
            if gang is None or owner is None or gang.replica >= owner.replicas:
                continue
            outline = self._outline(owner, gang.replica)
            scaled = None
            if gang.base:
                scaled = scaled_of(view, outline, name)
                if scaled is None:
                    continue
            before = len(commands)
            pod_gangs.keep(view, owner, outline, gang, scaled, this.now_s, commands)
            if not gang.base and len(commands) > before:
                self._wake_scaled(this.busy, owner.parts[gang.replica])

    def _wake_scaled(self, busy: dict[str, None], part: SetReplica) -> None:
        """Marks gated cliques of scaled gangs, which may have waited for their base gang."""
        for group in part.groups.values():
            for index, members in group.cliques.items():
                if index >= group.min_available:
                    for clique in members.values():
                        if clique.status.gated:
                            busy[clique.name] = None

    # Set replicas, and sets.

    def _keep_parts(self, this: ControllerPass) -> None:
        """Maintains set replicas, and finds those to terminate."""
        changes, commands = this.changes, this.commands
        for name, numbers in changes.parts.items():
            owner = self._view.set_of(name)
            if owner is None:
                continue
            if not _is_noted(owner):
                changes.sets[name] = None  # its revision is recorded first
                this.put_off.extend((name, replica) for replica in numbers)
                continue
            known = self._known[name]
            held = self._nodes.hold(owner.spec)
            for replica in numbers:
                if replica < 0:
                    continue
                if replica >= owner.replicas:
                    if replica in owner.parts:
                        replicas.drop(self._view, owner, replica, commands)
                    known.hurt.pop(replica, None)
                    if known.standings.pop(replica, None) is not None:
                        changes.sets[name] = None
                    continue
                outline = self._outline(owner, replica)
                clash = replicas.keep(self._view, owner, outline, known.complete, commands)
                if known.clash(outline.base, clash):
                    changes.sets[name] = None
                if has_turn(owner, replica):
                    _mark_turn(this, owner, replica)
                if (name, replica) not in this.moved:
                    self._judge_part(owner, outline, known, this, held=held)

    def _judge_part(
        self,
        owner: PodCliqueSet,
        outline: Outline,
        known: Known,
        this: ControllerPass,
        *,
        held: bool,
    ) -> None:
        name, replica = owner.name, outline.replica
        part = owner.parts.get(replica)
        found = [] if part is None else list(part.groups.values())
        tallies = {group.name: self._tally(owner, group) for group in found}
        standing = replicas.standing(owner, outline, tallies)
        if standing != known.standings.get(replica):
            known.standings[replica] = standing
            this.changes.sets[name] = None
        stranded: dict[str, Broken] = {}
        if part is not None:
            lost = [one for one in found if tallies[one.name].lost_all()]
            stranded = termination.stranded_by(owner, part, lost)
            replicas.report_stranding(part, tallies, stranded, this.now_s, this.commands)
        if replica in owner.status.recycled:
            known.hurt.pop(replica, None)
            this.changes.sets[name] = None  # the termination may be over
            return
        broken = {group: tally.broken for group, tally in tallies.items() if tally.broken}
        if held or known.held or conditions.HELD in owner.conditions:
            this.changes.sets[name] = None
        if not (standing.breached or broken or stranded):
            known.hurt.pop(replica, None)
            self._plan(NEVER_AGAIN, SET, name, replica)
            return
        known.hurt[replica] = None
        free_s = termination.free_s(owner, this.now_s, held=held)
        due = termination.due_in_replica(owner, replica, broken, stranded, free_s, this.now_s)
        self._plan(due.again_s, SET, name, replica)
        if due.replicas:
            this.fires.setdefault(name, {}).update(due.replicas)
            this.changes.sets[name] = None

    def _keep_sets(self, this: ControllerPass) -> None:
        view, commands = self._view, this.commands
        for name in this.changes.sets:
            owner = view.set_of(name)
            if owner is None:
                continue
            known = self._known[name]
            known.clash("", attachments.keep_set(view, owner, commands))
            sets.report_clash(owner, known.clashes, this.now_s, commands)
            if len(known.standings) == owner.replicas:
                known.held = bool(known.hurt) and self._nodes.hold(owner.spec)
                nodes = self._nodes if known.held else None
                sets.report_held(owner, nodes, this.now_s, commands, hurt=bool(known.hurt))
            fired = this.fires.get(name, {})
            seen = sets.SetSummary(known.standings, _progress(owner), fired)
            after = sets.observe(view, owner, seen, this.now_s, commands)
            self._plan(after.again_s, SET, name, -1)
            this.later.extend((name, replica) for replica in after.turns)
            for replica, why in fired.items():
                self._report_fire(owner, replica, why, this.now_s, commands)

    def _report_fire(
        self, owner: PodCliqueSet, replica: int, why: str, now_s: float, commands: list[Command]
    ) -> None:
        """Adds a flag on every group of the replica and an event, after the decision itself."""
        for group in owner.parts[replica].groups.values():
            groups.flag_terminating(group, now_s, commands)
        what = f"Set replica {replica} is terminated: {why}"
        incarnation = termination.incarnation_of(owner, replica, None, -1) + 1
        about = f"{replica}/{incarnation}"
        emit(commands, owner, WARNING, SET_REPLICA_DELETED, what, now_s, about)

    # Actions.

    def _act_groups(self, this: ControllerPass) -> None:
        view, commands = self._view, this.commands
        for name in this.changes.groups:
            group = view.groups.get(name)
            owner = view.keeper_of(group)
            if group is None or owner is None:
                continue
            if group.replica >= owner.replicas or not _is_noted(owner):
                continue
            if group.replica in this.fires.get(owner.name, {}):
                continue  # missing parts are created after its termination is written
            settled = (group.set_name, group.replica) not in this.moved
            if settled and self._terminate_in_group(owner, group, this.now_s, commands):
                continue
            clash = groups.act(view, owner, group, self._tally(owner, group), commands)
            if self._known[owner.name].clash(name, clash):
                view.changed(owner)

    def _terminate_in_group(
        self, owner: PodCliqueSet, group: ScalingGroup, now_s: float, commands: list[Command]
    ) -> bool:
        """Records the termination of group replicas that are due; returns whether there is any."""
        if group.replica in owner.status.recycled:
            return False
        broken = self._tally(owner, group).broken
        if not broken:
            self._plan(NEVER_AGAIN, GROUP, group.name, -1)
            return False
        free_s = termination.free_s(owner, now_s, held=self._nodes.hold(owner.spec))
        due = termination.due_in_group(owner, group, broken, free_s, now_s)
        self._plan(due.again_s, GROUP, group.name, -1)
        if not due.replicas:
            return False
        known = group.status
        after = {index: known.incarnations.get(index, 0) + 1 for index in due.replicas}
        futile = known.futile
        for index in after:
            futile = termination.count_futile(futile, index, group.cliques[index].values())
        status = msgspec.structs.replace(
            known,
            futile=futile,
            incarnations={**known.incarnations, **after},
            recycled={**known.recycled, **after},
        )
        commands.append(PatchStatus(group, status))
        for index, incarnation in after.items():
            what = f"Replica {index} of {group.name} is terminated: {due.replicas[index]}"
            about = f"{index}/{incarnation}"
            emit(commands, group, WARNING, GROUP_REPLICA_DELETED, what, now_s, about)
        return True

    def _act_cliques(self, this: ControllerPass) -> None:
        """Acts on busy cliques, except those deleted in this pass: their pods may be gone."""
        view = self._view
        deleted = {(one.kind, one.name) for one in this.commands if isinstance(one, Delete)}
        for name in this.busy:
            clique = view.cliques.get(name)
            owner = view.keeper_of(clique)
            if clique is None or owner is None:
                continue
            if (CLIQUE, name) not in deleted and (GROUP, clique.group) not in deleted:
                cliques.act(view, owner, clique, this.commands)


def _is_noted(owner: PodCliqueSet) -> bool:
    """Whether the set's spec is recorded as its current revision.

    Nothing is created before that, so that every object was made from a known revision.
    """
    return owner.status.revision == owner.spec.hash


def _mark(changes: Changes, part: SetReplica) -> None:
    """Marks everything in a set replica as changed."""
    for clique in part.cliques.values():
        changes.cliques[clique.name] = None
    for gang in part.gangs.values():
        changes.gangs[gang.name] = None
    for group in part.groups.values():
        changes.groups[group.name] = None
        for members in group.cliques.values():
            for clique in members.values():
                changes.cliques[clique.name] = None


def _mark_turn(this: ControllerPass, owner: PodCliqueSet, replica: int) -> None:
    """Marks the parts of a replica under update, as one part may wait for another."""
    if conditions.is_stuck(owner):
        this.changes.sets[owner.name] = None  # it may progress again
    part = owner.parts.get(replica)
    if part is None:
        return
    for clique in part.cliques.values():
        if clique.status.updating:
            this.busy[clique.name] = None
    for group in part.groups.values():
        this.changes.groups[group.name] = None


def _progress(owner: PodCliqueSet) -> int:
    """Measures the progress of an update: finished replicas, and what others have ready."""
    status = owner.status
    count = DONE * len(status.done)
    for replica in status.turns:
        part = owner.parts.get(replica)
        if part is not None:
            count += sum(clique.status.updated_ready for clique in part.cliques.values())
            count += sum(group.status.updated for group in part.groups.values())
    return count


def reconcile(view: View, now_s: float) -> list[Command]:
    """Reconciles a whole view once, as a controller that has just started does."""
    controller = Controller(view)
    commands = controller.reconcile(now_s)
    controller.close()
    return commands
