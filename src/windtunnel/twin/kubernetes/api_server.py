"""The simulated API server: stores objects, issues uids and versions, carries out commands.

Its store is a `View`, which readers without a delay use directly. A `Watch` fills another one some
time later, as the list-watches of a real controller do.

A command that no longer fits the stored objects is refused: one with another object's uid, one that
creates an existing object, one whose owner is gone. Deleting an owner deletes what it owns.
"""

from collections import deque
from typing import Final

from windtunnel.core.loop import INFINITY
from windtunnel.gangs.changes import Changes
from windtunnel.gangs.commands import (
    Command,
    Create,
    CreatePod,
    Delete,
    Emit,
    PatchClique,
    PatchGang,
    PatchGangPhase,
    PatchGangPlacement,
    PatchSpec,
    PatchStatus,
    Scale,
    SetCondition,
    Ungate,
)
from windtunnel.gangs.objects import (
    GATE,
    NODE,
    Node,
    Owned,
    Pod,
    PodClique,
    PodCliqueSet,
    PodGang,
    ScalingGroup,
    Thing,
)
from windtunnel.gangs.statuses import read_back
from windtunnel.gangs.templates import SetSpec
from windtunnel.gangs.view import View

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX: Final = len(_LETTERS) ** 5
_STRIDE: Final = 7_654_321
"""Shares no factor with `_SUFFIX`, so that consecutive objects get clearly different names."""


class ApiServer:
    """The objects of one cluster, and the only place where they change."""

    def __init__(self, view: View | None = None) -> None:
        self.view: Final = View() if view is None else view
        self._issued = 0  # the number of uids issued
        self._writes = 0

    # Changes by users and the cluster.

    def add_set(self, name: str, spec: SetSpec, now_s: float) -> PodCliqueSet:
        """Adds a set that a user applied for the first time."""
        added = PodCliqueSet(name, spec)
        self._store(added, now_s)
        return added

    def add_node(self, node: Node, now_s: float) -> None:
        self._store(node, now_s)

    def change_spec(self, name: str, spec: SetSpec) -> bool:
        """Replaces the spec of a set; `gangs.api` decides which changes are allowed."""
        changed = self.view.sets.get(name)
        if changed is None:
            return False
        changed.spec = spec
        changed.replicas = spec.replicas
        changed.generation += 1
        self.wrote(changed)
        return True

    def delete_pod(self, pod: Pod, now_s: float) -> None:
        """Deletes a pod: at once when it is on no node, otherwise when its kubelet has ended it."""
        if pod.terminating:
            return
        pod.deleted_s = now_s
        if pod.node:
            self.wrote(pod)
        else:
            self.remove_pod(pod)

    def remove_pod(self, pod: Pod) -> None:
        """Removes a pod that has ended on its node."""
        self.view.remove(pod)

    def read_statuses_back(self) -> None:
        """Round-trips every status through its stored JSON, which is all that a new controller
        has."""
        for owner in self.view.sets.values():
            owner.status = read_back(owner.status)
        for group in self.view.groups.values():
            group.status = read_back(group.status)
        for clique in self.view.cliques.values():
            clique.status = read_back(clique.status)

    def wrote(self, thing: Thing) -> None:
        """Publishes a change made to an object in place."""
        self._writes += 1
        thing.version = str(self._writes)
        self.view.changed(thing)

    def _store(self, thing: Thing, now_s: float) -> None:
        self._issued += 1
        thing.uid = f"uid-{self._issued}"
        thing.created_s = now_s
        self._writes += 1
        thing.version = str(self._writes)
        self.view.put(thing)

    # Commands of controllers.

    def apply(self, command: Command, now_s: float) -> bool:
        """Carries out a command, or refuses it when it no longer fits the stored objects."""
        if isinstance(command, CreatePod):
            return self._create_pod(command, now_s)
        if isinstance(command, Create):
            return self._create(command.thing, now_s)
        if isinstance(command, Emit):
            self.view.emit(command.event)
            return True
        thing = self.view.find(command.kind, command.name)
        if thing is None or (command.uid and thing.uid != command.uid):
            return False
        if isinstance(command, Delete):
            self.delete(thing, now_s)
            return True
        if isinstance(command, SetCondition):
            condition = command.condition
            if condition.status:
                thing.conditions[condition.type] = condition
            else:
                thing.conditions.pop(condition.type, None)
            if not isinstance(thing, Pod | PodCliqueSet):
                self.wrote(thing)
            return True
        return self._patch(command, thing)

    def _create_pod(self, command: CreatePod, now_s: float) -> bool:
        clique = self.view.cliques.get(command.clique.name)
        if clique is None or clique.uid != command.clique.uid or clique.terminating:
            return False
        before = clique.places.get(command.index)
        if before is not None and before.active and before.name in clique.pods:
            return False
        self._store(Pod(f"{clique.name}-{_suffix(self._issued + 1)}", clique, command.index), now_s)
        return True

    def _create(self, thing: Thing, now_s: float) -> bool:
        assert isinstance(thing, Owned), thing.kind
        if self.view.find(thing.kind, thing.name) is not None:
            return False
        owner: Thing | None = self.view.sets.get(thing.set_name)
        if owner is not None and isinstance(thing, PodClique) and thing.group:
            owner = self.view.groups.get(thing.group)
        if owner is None or owner.terminating:
            return False
        if not thing.owner_uid:
            thing.owner_uid = owner.uid
        if thing.owner_uid != owner.uid:
            return False
        self._store(thing.snapshot() if thing.uid else thing, now_s)
        return True

    def _patch(self, command: Command, thing: Thing) -> bool:
        if isinstance(command, Scale):
            assert isinstance(thing, PodCliqueSet | ScalingGroup | PodClique)
            thing.replicas = command.replicas
        elif isinstance(command, PatchSpec):
            return self.change_spec(command.name, command.spec)
        elif isinstance(thing, Pod):
            assert isinstance(command, Ungate)
            if GATE not in thing.gates:
                return True
            thing.gates.remove(GATE)
        elif isinstance(thing, PodGang):
            if isinstance(command, PatchGang):
                thing.groups = command.groups
                self._writes += 1
                thing.version = str(self._writes)
                self.view.gang_patched(thing)
                return True
            if isinstance(command, PatchGangPlacement):
                thing.why_pending, thing.placement_score = command.why_pending, command.score
            else:
                assert isinstance(command, PatchGangPhase)
                thing.phase = command.phase
        elif isinstance(command, PatchStatus):
            assert isinstance(thing, PodCliqueSet | ScalingGroup | PodClique)
            thing.status = command.status
        else:
            assert isinstance(command, PatchClique)
            assert isinstance(thing, PodClique)
            thing.template = command.template
            thing.recount()
        self.wrote(thing)
        return True

    # Deletion.

    def delete(self, thing: Thing, now_s: float) -> None:
        """Deletes an object, after the objects that it owns."""
        if isinstance(thing, Pod):
            self.delete_pod(thing, now_s)
        elif not thing.terminating:
            thing.deleted_s = now_s
            for owned in thing.owned():
                self.delete(owned, now_s)
            self.view.remove(thing)


class Watch:
    """Fills a read cache from the API server, each change after a delay."""

    def __init__(self, server: ApiServer, cache: View, delay_s: float) -> None:
        self._server: Final = server
        self._changes: Final[Changes] = server.view.watch()
        self.cache: Final = cache
        self._delay_s: Final = delay_s
        self._due: Final[deque[tuple[float, str, str, Thing | None]]] = deque()
        cache.levels.update(server.view.levels)
        cache.priorities.update(server.view.priorities)
        self._show(0.0, 0.0)  # the list; the watch begins after it

    def next_s(self) -> float:
        return self._due[0][0] if self._due else INFINITY

    def advance(self, now_s: float) -> None:
        """Records what changed, and shows what is due."""
        self._show(now_s, self._delay_s)

    def _show(self, now_s: float, delay_s: float) -> None:
        changes = self._changes
        names: list[tuple[str, str]] = []
        names += [(NODE, name) for name in changes.nodes]
        kinds = (
            ("PodCliqueSet", changes.sets),
            ("PodCliqueScalingGroup", changes.groups),
            ("PodClique", changes.cliques),
            ("PodGang", changes.gangs),
            ("Pod", changes.pods),
        )
        for kind, changed in kinds:
            names += [(kind, name) for name in changed]
        names += list(changes.attachments)
        changes.clear()
        for kind, name in names:
            thing = self._server.view.find(kind, name)
            copy = None if thing is None else thing.snapshot()
            self._due.append((now_s + delay_s, kind, name, copy))
        while self._due and self._due[0][0] <= now_s:
            _, kind, name, copy = self._due.popleft()
            if copy is not None:
                self.cache.put(copy)
                continue
            gone = self.cache.find(kind, name)
            if gone is not None:
                self.cache.remove(gone)

    def close(self) -> None:
        self._server.view.unwatch(self._changes)


def _suffix(number: int) -> str:
    """Five letters and digits that spell no words."""
    number = number * _STRIDE % _SUFFIX
    text = ""
    for _ in range(5):
        number, digit = divmod(number, len(_LETTERS))
        text += _LETTERS[digit]
    return text
