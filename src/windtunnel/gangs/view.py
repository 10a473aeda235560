"""The objects of a cluster by name and owner, and who is told what changed.

One store serves everybody: controllers read it and return commands, `apply` carries commands out,
and the cluster moves pods (it sets their fields and says `pod_changed`). Every change is noted for
each `Changes` that was asked for with `watch`, so a pass costs what changed, not what exists.
"""

from typing import Final

from windtunnel.core.errors import InvariantBroken
from windtunnel.gangs.changes import Changes, Feed
from windtunnel.gangs.commands import (
    Command,
    Create,
    CreatePod,
    Delete,
    Emit,
    PatchClique,
    PatchCliqueStatus,
    PatchGang,
    PatchGangPhase,
    PatchGroupStatus,
    PatchSetStatus,
    PatchSpec,
    Scale,
    SetCondition,
    Ungate,
)
from windtunnel.gangs.objects import (
    CLIQUE,
    GANG,
    GATE,
    GROUP,
    POD,
    SET,
    Attachment,
    Event,
    Node,
    Pod,
    PodClique,
    PodCliqueSet,
    PodGang,
    Replica,
    ScalingGroup,
    Thing,
)
from windtunnel.gangs.templates import SetSpec

__all__ = ["Changes", "View"]

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX: Final = len(_LETTERS) ** 5
_STRIDE: Final = 7_654_321
"""Shares no factor with `_SUFFIX`: neighbours get names that a person can tell apart."""

MOST_EVENTS: Final = 10_000
"""The newest are kept."""


class View(Feed):
    """A cluster as a controller sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.sets: Final[dict[str, PodCliqueSet]] = {}
        self.groups: Final[dict[str, ScalingGroup]] = {}
        self.cliques: Final[dict[str, PodClique]] = {}
        self.gangs: Final[dict[str, PodGang]] = {}
        self.pods: Final[dict[str, Pod]] = {}
        self.nodes: Final[dict[str, Node]] = {}
        self.attachments: Final[dict[str, dict[str, Attachment]]] = {}
        """By kind and name."""
        self.levels: Final[dict[str, dict[str, str]]] = {}
        """Topologies by name: from domain to the key of the node label, broadest first."""
        self.priorities: Final[dict[str, int]] = {}
        """Priority classes; one that is not here counts 0."""
        self.events: Final[dict[str, Event]] = {}
        """By key, oldest first."""
        self._issued = 0  # ids given out so far

    def watch(self) -> Changes:
        """A record of changes that begins with everything there is."""
        changes = Changes()
        self.mark_all(changes)
        self.add_watcher(changes)
        return changes

    def mark_all(self, changes: Changes) -> None:
        """Everything is to be looked at again, as after a restart."""
        changes.sets.update(dict.fromkeys(self.sets))
        changes.groups.update(dict.fromkeys(self.groups))
        changes.cliques.update(dict.fromkeys(self.cliques))
        changes.gangs.update(dict.fromkeys(self.gangs))
        changes.pods.update(dict.fromkeys(self.pods))
        changes.nodes.update(dict.fromkeys(self.nodes))

    def issue(self, thing: Thing, now_s: float) -> None:
        self._issued += 1
        thing.uid = f"uid-{self._issued}"
        thing.created_s = now_s

    # What people and the cluster do.

    def add_set(self, name: str, spec: SetSpec, now_s: float) -> PodCliqueSet:
        """A set that a person applied for the first time."""
        added = PodCliqueSet(name, spec)
        self.issue(added, now_s)
        self.sets[name] = added
        self.set_changed(name)
        return added

    def add_node(self, node: Node, now_s: float) -> None:
        self.issue(node, now_s)
        self.nodes[node.name] = node
        self.node_changed(node)

    def remove_pod(self, pod: Pod) -> None:
        """The pod is gone: it has ended, and its node knows."""
        if self.pods.pop(pod.name, None) is None:
            raise InvariantBroken(f"the pod {pod.name} is removed twice")
        clique = self.cliques.get(pod.clique)
        if clique is not None and clique.uid == pod.clique_uid:
            del clique.pods[pod.name]
        self.pod_changed(pod)

    def delete_pod(self, pod: Pod, now_s: float) -> None:
        """The pod is to go: at once when it is on no node, else when the cluster has ended it."""
        if pod.terminating:
            return
        pod.deleted_s = now_s
        if pod.node:
            self.pod_changed(pod)
        else:
            self.remove_pod(pod)

    # Carrying out what controllers want.

    def apply(self, command: Command, now_s: float) -> None:
        """Carries out one command; one that no longer fits what is there does nothing."""
        if isinstance(command, CreatePod):
            self._create_pod(command, now_s)
        elif isinstance(command, Create):
            self._create(command, now_s)
        elif isinstance(command, Delete):
            self._delete(command, now_s)
        elif isinstance(command, SetCondition):
            self._condition(command)
        elif isinstance(command, Emit):
            self._emit(command.event)
        else:
            self._patch(command)

    def _create_pod(self, command: CreatePod, now_s: float) -> None:
        clique = self.cliques.get(command.clique.name)
        if clique is not command.clique:
            return
        before = clique.places.get(command.index)
        if before is not None and before.active and before.name in clique.pods:
            return
        pod = Pod(f"{clique.name}-{_suffix(self._issued + 1)}", clique, command.index)
        self.issue(pod, now_s)
        self.pods[pod.name] = pod
        clique.pods[pod.name] = pod
        clique.places[pod.index] = pod
        self.pod_changed(pod)

    def _create(self, command: Create, now_s: float) -> None:
        thing = command.thing
        if isinstance(thing, PodClique):
            self._create_clique(thing, now_s)
        elif isinstance(thing, ScalingGroup):
            owner = self.sets.get(thing.set_name)
            if owner is not None and thing.name not in self.groups:
                self.issue(thing, now_s)
                self.groups[thing.name] = thing
                _part(owner, thing.replica).groups[thing.short] = thing
                self.group_changed(thing)
        elif isinstance(thing, PodGang):
            owner = self.sets.get(thing.set_name)
            if owner is not None and thing.name not in self.gangs:
                self.issue(thing, now_s)
                self.gangs[thing.name] = thing
                _part(owner, thing.replica).gangs[thing.name] = thing
                self.gang_changed(thing)
        elif isinstance(thing, Attachment):
            known = self.attachments.setdefault(thing.kind, {})
            owner = self.sets.get(thing.set_name)
            if owner is not None and thing.name not in known:
                self.issue(thing, now_s)
                known[thing.name] = thing
                _part(owner, thing.replica).attachments[thing.key] = thing
        else:
            raise InvariantBroken(f"nobody can create a {command.kind}")

    def _create_clique(self, clique: PodClique, now_s: float) -> None:
        owner = self.sets.get(clique.set_name)
        if owner is None or clique.name in self.cliques:
            return
        if not clique.group:
            _part(owner, clique.replica).cliques[clique.role] = clique
        else:
            group = self.groups.get(clique.group)
            if group is None:
                return
            group.cliques.setdefault(clique.group_replica, {})[clique.role] = clique
        self.issue(clique, now_s)
        self.cliques[clique.name] = clique
        self.clique_changed(clique)

    def _delete(self, command: Delete, now_s: float) -> None:
        thing = self.find(command.kind, command.name)
        if thing is None or thing.uid != command.uid:
            return
        if isinstance(thing, Pod):
            self.delete_pod(thing, now_s)
        elif isinstance(thing, PodClique):
            self._remove_clique(thing, now_s)
        elif isinstance(thing, ScalingGroup):
            self._remove_group(thing, now_s)
        elif isinstance(thing, PodGang):
            self._remove_gang(thing)
        elif isinstance(thing, PodCliqueSet):
            self.remove_set(thing.name, now_s)
        elif isinstance(thing, Attachment):
            del self.attachments[thing.kind][thing.name]
            owner = self.sets.get(thing.set_name)
            if owner is not None:
                del owner.parts[thing.replica].attachments[thing.key]

    def _remove_gang(self, gang: PodGang) -> None:
        del self.gangs[gang.name]
        owner = self.sets.get(gang.set_name)
        if owner is not None:
            del owner.parts[gang.replica].gangs[gang.name]
        self.gang_changed(gang)

    def _remove_clique(self, clique: PodClique, now_s: float) -> None:
        del self.cliques[clique.name]
        clique.deleted_s = now_s
        owner = self.sets.get(clique.set_name)
        if not clique.group:
            if owner is not None:
                del owner.parts[clique.replica].cliques[clique.role]
        else:
            group = self.groups.get(clique.group)
            if group is not None:
                members = group.cliques[clique.group_replica]
                del members[clique.role]
                if not members:
                    del group.cliques[clique.group_replica]
        for pod in list(clique.pods.values()):
            self.delete_pod(pod, now_s)
        self.clique_changed(clique)

    def _remove_group(self, group: ScalingGroup, now_s: float) -> None:
        for members in list(group.cliques.values()):
            for clique in list(members.values()):
                self._remove_clique(clique, now_s)
        del self.groups[group.name]
        owner = self.sets.get(group.set_name)
        if owner is not None:
            del owner.parts[group.replica].groups[group.short]
        self.group_changed(group)

    def remove_set(self, name: str, now_s: float) -> None:
        """The set goes, and with it everything that it owns."""
        owner = self.sets.get(name)
        if owner is None:
            return
        for part in list(owner.parts.values()):
            for clique in list(part.cliques.values()):
                self._remove_clique(clique, now_s)
            for group in list(part.groups.values()):
                self._remove_group(group, now_s)
            for gang in list(part.gangs.values()):
                del self.gangs[gang.name]
                self.gang_changed(gang)
            for attached in part.attachments.values():
                del self.attachments[attached.kind][attached.name]
        del self.sets[name]
        self.set_changed(name)

    def _patch(self, command: Command) -> None:
        if isinstance(command, Ungate):
            pod = self.pods.get(command.name)
            if pod is not None and GATE in pod.gates:
                pod.gates.remove(GATE)
                self.pod_changed(pod)
        elif isinstance(command, PatchGang):
            gang = self.gangs.get(command.name)
            if gang is not None:
                gang.groups = command.groups
                self.gang_patched(gang)
        elif isinstance(command, PatchGangPhase):
            gang = self.gangs.get(command.name)
            if gang is not None:
                gang.phase = command.phase
                self.gang_changed(gang)
        elif isinstance(command, PatchSpec):
            self.change_spec(command.name, command.spec)
        elif isinstance(command, PatchSetStatus):
            owner = self.sets.get(command.name)
            if owner is not None:
                owner.status = command.status
                self.set_changed(owner.name)
        elif isinstance(command, PatchGroupStatus):
            group = self.groups.get(command.name)
            if group is not None:
                group.status = command.status
                self.group_changed(group)
        else:
            self._patch_clique(command)

    def _patch_clique(self, command: Command) -> None:
        if isinstance(command, Scale) and command.kind != CLIQUE:
            self._scale(command)
            return
        clique = self.cliques.get(command.name)
        if clique is None:
            return
        if isinstance(command, PatchCliqueStatus):
            clique.status = command.status
        elif isinstance(command, PatchClique):
            clique.template = command.template
        elif isinstance(command, Scale):
            clique.replicas = command.replicas
        else:
            raise InvariantBroken(f"nobody can {command.verb} a {command.kind}")
        self.clique_changed(clique)

    def _scale(self, command: Scale) -> None:
        if command.kind == GROUP:
            group = self.groups.get(command.name)
            if group is not None:
                group.replicas = command.replicas
                self.group_changed(group)
        else:
            scaled = self.sets.get(command.name)
            if scaled is not None:
                scaled.replicas = command.replicas
                self.set_changed(scaled.name)

    def change_spec(self, name: str, spec: SetSpec) -> None:
        """A set is asked to be otherwise; what may change is for `gangs.api` to say."""
        changed = self.sets.get(name)
        if changed is not None:
            changed.spec = spec
            changed.replicas = spec.replicas
            changed.generation += 1
            self.set_changed(name)

    def _condition(self, command: SetCondition) -> None:
        condition = command.condition
        thing = self.find(command.kind, command.name)
        if thing is None:
            return
        if condition.status:
            thing.conditions[condition.type] = condition
        else:
            thing.conditions.pop(condition.type, None)
        if isinstance(thing, PodClique):
            self.clique_changed(thing)
        elif isinstance(thing, ScalingGroup):
            self.group_changed(thing)
        elif isinstance(thing, PodGang):
            self.gang_changed(thing)

    def find(self, kind: str, name: str) -> Thing | None:
        """The object of a kind and a name."""
        if kind == POD:
            return self.pods.get(name)
        if kind == CLIQUE:
            return self.cliques.get(name)
        if kind == GROUP:
            return self.groups.get(name)
        if kind == GANG:
            return self.gangs.get(name)
        if kind == SET:
            return self.sets.get(name)
        known = self.attachments.get(kind)
        return None if known is None else known.get(name)

    def _emit(self, event: Event) -> None:
        if event.key in self.events:
            return
        self.events[event.key] = event
        if len(self.events) > MOST_EVENTS:
            del self.events[next(iter(self.events))]


def _part(owner: PodCliqueSet, replica: int) -> Replica:
    part = owner.parts.get(replica)
    if part is None:
        part = owner.parts[replica] = Replica()
    return part


def _suffix(number: int) -> str:
    """Five letters and digits that spell no words."""
    number = number * _STRIDE % _SUFFIX
    text = ""
    for _ in range(5):
        number, digit = divmod(number, len(_LETTERS))
        text += _LETTERS[digit]
    return text
