"""The read cache of the gang controllers: objects by name, who owns whom, and what changed.

A driver fills it: live from list-watches, the twin from its simulated API server. It may lag behind
the API server, an object may show up before its owner, and an object that is being deleted stays
visible until it is gone. Controllers read it and return commands; nothing here carries them out.

Every change is noted for each `Changes` that was asked for with `watch`, so that a pass costs what
changed and not what exists.
"""

from typing import Final

from windtunnel.core.errors import InvariantBroken
from windtunnel.gangs.changes import Changes, Feed
from windtunnel.gangs.objects import (
    CLIQUE,
    GANG,
    GROUP,
    NODE,
    POD,
    SET,
    Attachment,
    Node,
    ObjectEvent,
    Pod,
    PodClique,
    PodCliqueSet,
    PodGang,
    ScalingGroup,
    SetReplica,
    Thing,
)

__all__ = ["Changes", "View"]

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
        self.events: Final[dict[str, ObjectEvent]] = {}
        """By key, oldest first."""
        self._ownerless: Final[dict[str, dict[str, Thing]]] = {}
        """Objects whose owner is not here yet: by its uid, then by kind and name."""

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
        for known in self.attachments.values():
            for attached in known.values():
                changes.attachments[(attached.kind, attached.name)] = None

    # Reading.

    def find(self, kind: str, name: str) -> Thing | None:
        """The object of a kind and a name, one that is being deleted included."""
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
        if kind == NODE:
            return self.nodes.get(name)
        known = self.attachments.get(kind)
        return None if known is None else known.get(name)

    def set_of(self, name: str) -> PodCliqueSet | None:
        """The set of a name, if it is to be kept: not one that is being deleted."""
        owner = self.sets.get(name)
        return None if owner is None or owner.deleted_s >= 0.0 else owner

    def set_of_group(self, group: ScalingGroup) -> PodCliqueSet | None:
        """The set that keeps a group; None for one that goes, alone or with its set."""
        owner = self.set_of(group.set_name)
        if owner is None or owner.uid != group.owner_uid or group.deleted_s >= 0.0:
            return None
        return owner

    def set_of_clique(self, clique: PodClique) -> PodCliqueSet | None:
        """The set that keeps a clique; None for one that goes, alone or with an owner."""
        if clique.deleted_s >= 0.0:
            return None
        if clique.group:
            group = self.groups.get(clique.group)
            if group is None or group.uid != clique.owner_uid:
                return None
            return self.set_of_group(group)
        owner = self.set_of(clique.set_name)
        return owner if owner is not None and owner.uid == clique.owner_uid else None

    def set_of_gang(self, gang: PodGang) -> PodCliqueSet | None:
        """The set that keeps a gang; None for one that goes, alone or with its set."""
        owner = self.set_of(gang.set_name)
        if owner is None or owner.uid != gang.owner_uid or gang.deleted_s >= 0.0:
            return None
        return owner

    # Filling.

    def put(self, thing: Thing) -> None:
        """An object as the API server has it: added, or changed in any way since the last time.

        The cache keeps one instance for each uid; what may change is copied into it.
        """
        known = self.find(thing.kind, thing.name)
        if known is not None and known.uid != thing.uid:
            self.remove(known)
            known = None
        if known is None:
            self._add(thing)
        elif known is not thing:
            self._merge(known, thing)
        else:
            self.changed(thing)

    def _merge(self, known: Thing, thing: Thing) -> None:
        was_leaving = known.terminating
        patched = isinstance(known, PodGang) and isinstance(thing, PodGang)
        before = known.groups if isinstance(known, PodGang) else ()
        template = known.template if isinstance(known, PodClique) else None
        known.assign(thing)
        if known.terminating and not was_leaving:
            self._unlink(known)
        if isinstance(known, PodClique) and known.template is not template:
            known.recount()
        if patched and isinstance(known, PodGang) and known.groups is not before:
            self.gang_patched(known)
        self.changed(known)

    def _add(self, thing: Thing) -> None:
        if isinstance(thing, Pod):
            self._add_pod(thing)
        elif isinstance(thing, PodClique):
            self.cliques[thing.name] = thing
            self._link(thing)
            for pod in self._waiting_for(thing.uid):
                if isinstance(pod, Pod):
                    thing.adopt(pod)
        elif isinstance(thing, ScalingGroup):
            self.groups[thing.name] = thing
            self._link(thing)
            for member in self._waiting_for(thing.uid):
                self._link(member)
        elif isinstance(thing, PodGang):
            self.gangs[thing.name] = thing
            self._link(thing)
        elif isinstance(thing, Attachment):
            self.attachments.setdefault(thing.kind, {})[thing.name] = thing
            self._link(thing)
        elif isinstance(thing, PodCliqueSet):
            self.sets[thing.name] = thing
            for part in self._waiting_for(thing.uid):
                self._link(part)
        elif isinstance(thing, Node):
            self.nodes[thing.name] = thing
        else:
            raise InvariantBroken(f"a {thing.kind} has no place in the cache")
        self.changed(thing)

    def _add_pod(self, pod: Pod) -> None:
        self.pods[pod.name] = pod
        clique = self.cliques.get(pod.clique)
        if clique is not None and clique.uid == pod.clique_uid:
            clique.adopt(pod)
        else:
            self._wait_for_owner(pod.clique_uid, pod)

    def remove(self, thing: Thing) -> None:
        """The object is gone."""
        if isinstance(thing, Pod):
            if self.pods.pop(thing.name, None) is None:
                raise InvariantBroken(f"the pod {thing.name} is removed twice")
            clique = self.cliques.get(thing.clique)
            if clique is not None and clique.uid == thing.clique_uid:
                clique.release(thing)
            else:
                self._forget_waiting(thing.clique_uid, thing)
            self.note_pod(thing)
            return
        self._unlink(thing)
        if isinstance(thing, PodClique):
            del self.cliques[thing.name]
            self._orphan(thing.uid, list(thing.pods.values()))
        elif isinstance(thing, ScalingGroup):
            del self.groups[thing.name]
            self._orphan(
                thing.uid, [one for members in thing.cliques.values() for one in members.values()]
            )
        elif isinstance(thing, PodGang):
            del self.gangs[thing.name]
        elif isinstance(thing, Attachment):
            del self.attachments[thing.kind][thing.name]
        elif isinstance(thing, PodCliqueSet):
            del self.sets[thing.name]
            parts = thing.parts.values()
            self._orphan(thing.uid, [one for part in parts for one in part.things()])
        elif isinstance(thing, Node):
            del self.nodes[thing.name]
        self.changed(thing)

    def changed(self, thing: Thing) -> None:
        """Notes that an object changed; to be called by who changed it in place."""
        if isinstance(thing, Pod):
            self.pod_changed(thing)
        elif isinstance(thing, PodClique):
            self.clique_changed(thing)
        elif isinstance(thing, ScalingGroup):
            self.group_changed(thing)
        elif isinstance(thing, PodGang):
            self.gang_changed(thing)
        elif isinstance(thing, PodCliqueSet):
            self.set_changed(thing.name)
        elif isinstance(thing, Attachment):
            self.attachment_changed(thing)
        elif isinstance(thing, Node):
            self.node_changed(thing)

    def leaving(self, thing: Thing) -> None:
        """An object in the cache was marked as being deleted, in place: no owner counts on it."""
        if not isinstance(thing, Pod):
            self._unlink(thing)
        self.changed(thing)

    def pod_changed(self, pod: Pod) -> None:
        """To be called after each change of a pod's fields."""
        clique = self.cliques.get(pod.clique)
        if clique is not None and clique.uid == pod.clique_uid:
            clique.count(pod)
        self.note_pod(pod)

    def emit(self, event: ObjectEvent) -> None:
        """Keeps an event; a second one of the same key is the same event."""
        if event.key in self.events:
            return
        self.events[event.key] = event
        if len(self.events) > MOST_EVENTS:
            del self.events[next(iter(self.events))]

    # Who owns whom. An object that is being deleted has no owner, and its name until it is gone.

    def _link(self, thing: Thing) -> None:
        if thing.terminating:
            return
        if isinstance(thing, PodClique) and thing.group:
            group = self.groups.get(thing.group)
            if group is None or group.uid != thing.owner_uid:
                self._wait_for_owner(thing.owner_uid, thing)
            else:
                group.cliques.setdefault(thing.group_replica, {})[thing.role] = thing
            return
        if not isinstance(thing, PodClique | ScalingGroup | PodGang | Attachment):
            return
        owner = self.sets.get(thing.set_name)
        if owner is None or owner.uid != thing.owner_uid:
            self._wait_for_owner(thing.owner_uid, thing)
            return
        part = owner.parts.get(thing.replica)
        if part is None:
            part = owner.parts[thing.replica] = SetReplica()
        if isinstance(thing, PodClique):
            part.cliques[thing.role] = thing
        elif isinstance(thing, ScalingGroup):
            part.groups[thing.short] = thing
        elif isinstance(thing, PodGang):
            part.gangs[thing.name] = thing
            part.turnover += 1
        else:
            part.attachments[thing.key] = thing

    def _unlink(self, thing: Thing) -> None:
        if isinstance(thing, PodClique) and thing.group:
            group = self.groups.get(thing.group)
            if group is not None and group.uid == thing.owner_uid:
                members = group.cliques.get(thing.group_replica, {})
                if members.get(thing.role) is thing:
                    del members[thing.role]
                    if not members:
                        del group.cliques[thing.group_replica]
        elif isinstance(thing, PodClique | ScalingGroup | PodGang | Attachment):
            owner = self.sets.get(thing.set_name)
            if owner is not None and owner.uid == thing.owner_uid:
                part = owner.parts.get(thing.replica)
                if part is not None:
                    part.discard(thing)
        else:
            return
        self._forget_waiting(thing.owner_uid, thing)

    def _wait_for_owner(self, uid: str, thing: Thing) -> None:
        self._ownerless.setdefault(uid, {})[f"{thing.kind}/{thing.name}"] = thing

    def _waiting_for(self, uid: str) -> list[Thing]:
        return list(self._ownerless.pop(uid, {}).values())

    def _forget_waiting(self, uid: str, thing: Thing) -> None:
        waiting = self._ownerless.get(uid)
        if waiting is not None:
            waiting.pop(f"{thing.kind}/{thing.name}", None)
            if not waiting:
                del self._ownerless[uid]

    def _orphan(self, uid: str, things: list[Thing] | list[Pod] | list[PodClique]) -> None:
        """The owner is gone; what it owned stays until that is gone, too."""
        for thing in things:
            if self.find(thing.kind, thing.name) is thing:
                self._wait_for_owner(uid, thing)
