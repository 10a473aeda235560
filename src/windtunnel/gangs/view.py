"""The read cache: the objects of a cluster as controllers see them, and their ownership.

A driver fills it: live from list-watches, the twin from its simulated API server. It may lag behind
the API server, an object may appear before its owner, and an object that is being deleted stays
visible until it is gone. Controllers read it and return commands; nothing here executes them.

Every change is recorded in each `Changes` handed out by `watch`, so that a pass costs what changed,
not what exists.
"""

from typing import Final, cast

from windtunnel.core.errors import InvariantBroken
from windtunnel.gangs.changes import Changes
from windtunnel.gangs.objects import (
    CLIQUE,
    GANG,
    GROUP,
    NODE,
    POD,
    SET,
    Attachment,
    Node,
    Owned,
    Pod,
    PodClique,
    PodCliqueSet,
    PodGang,
    ScalingGroup,
    Thing,
)
from windtunnel.gangs.statuses import ObjectEvent

MOST_EVENTS: Final = 10_000
"""The newest events are kept."""


class View:
    """A cluster as a controller sees it."""

    def __init__(self) -> None:
        self.sets: Final[dict[str, PodCliqueSet]] = {}
        self.groups: Final[dict[str, ScalingGroup]] = {}
        self.cliques: Final[dict[str, PodClique]] = {}
        self.gangs: Final[dict[str, PodGang]] = {}
        self.pods: Final[dict[str, Pod]] = {}
        self.nodes: Final[dict[str, Node]] = {}
        self.attachments: Final[dict[str, dict[str, Attachment]]] = {}
        """By kind and name."""
        self._kinds: Final[dict[str, dict[str, Thing]]] = {
            SET: cast("dict[str, Thing]", self.sets),
            GROUP: cast("dict[str, Thing]", self.groups),
            CLIQUE: cast("dict[str, Thing]", self.cliques),
            GANG: cast("dict[str, Thing]", self.gangs),
            POD: cast("dict[str, Thing]", self.pods),
            NODE: cast("dict[str, Thing]", self.nodes),
        }
        """Objects by kind and name; a kind of attachment is added with its first object."""
        self.levels: Final[dict[str, dict[str, str]]] = {}
        """Topologies by name, each mapping a domain to its node label key, broadest first."""
        self.priorities: Final[dict[str, int]] = {}
        """Priority classes; an unknown class counts as 0."""
        self.events: Final[dict[str, ObjectEvent]] = {}
        """By key, oldest first."""
        self._watchers: Final[list[Changes]] = []
        self.ownerless: Final[dict[str, dict[str, Owned]]] = {}
        """Objects whose owner is not in the cache yet: by the owner's uid, then by kind and name.
        """

    def watch(self) -> Changes:
        """Returns a record of changes that starts with all existing objects."""
        changes = Changes()
        changes.sets.update(dict.fromkeys(self.sets))
        changes.groups.update(dict.fromkeys(self.groups))
        changes.cliques.update(dict.fromkeys(self.cliques))
        changes.gangs.update(dict.fromkeys(self.gangs))
        changes.pods.update(dict.fromkeys(self.pods))
        changes.nodes.update(dict.fromkeys(self.nodes))
        for kind, known in self.attachments.items():
            for name in known:
                changes.attachments[(kind, name)] = None
        self._watchers.append(changes)
        return changes

    def unwatch(self, changes: Changes) -> None:
        self._watchers.remove(changes)

    # Reading.

    def find(self, kind: str, name: str) -> Thing | None:
        """Returns the object of a kind and a name, even if it is being deleted."""
        known = self._kinds.get(kind)
        return None if known is None else known.get(name)

    def set_of(self, name: str) -> PodCliqueSet | None:
        """Returns the set of a name, unless it is being deleted."""
        owner = self.sets.get(name)
        return None if owner is None or owner.deleted_s >= 0.0 else owner

    def owner_of(self, thing: Thing) -> Thing | None:
        """Returns the object that owns another, matched by uid, if it is in the cache."""
        owner: Thing | None = None
        if isinstance(thing, Pod):
            owner = self.cliques.get(thing.clique)
        elif isinstance(thing, PodClique) and thing.group:
            owner = self.groups.get(thing.group)
        elif isinstance(thing, Owned):
            owner = self.sets.get(thing.set_name)
        return owner if owner is not None and owner.uid == thing.owner_uid else None

    def keeper_of(self, thing: Owned | None) -> PodCliqueSet | None:
        """Returns the set that an object belongs to; None if the object or one of its owners is
        being deleted."""
        if thing is None or thing.deleted_s >= 0.0:
            return None
        owner = self.owner_of(thing)
        if isinstance(owner, ScalingGroup):
            return self.keeper_of(owner)
        return owner if isinstance(owner, PodCliqueSet) and owner.deleted_s < 0.0 else None

    # Filling.

    def put(self, thing: Thing) -> None:
        """Adds or updates an object as the API server has it, however it changed.

        The cache keeps one instance per uid; mutable fields are copied into it.
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
        groups = known.groups if isinstance(known, PodGang) else ()
        template = known.template if isinstance(known, PodClique) else None
        known.assign(thing)
        if known.terminating and not was_leaving and not isinstance(known, Pod):
            self._unlink(known)
        if isinstance(known, PodClique) and known.template is not template:
            known.recount()
        if isinstance(known, PodGang) and known.groups is not groups:
            self.gang_patched(known)
        self.changed(known)

    def _add(self, thing: Thing) -> None:
        if isinstance(thing, Attachment) and thing.kind not in self._kinds:
            known = self.attachments[thing.kind] = {}
            self._kinds[thing.kind] = cast("dict[str, Thing]", known)
        self._kinds[thing.kind][thing.name] = thing
        if isinstance(thing, Owned):
            self._link(thing)
        for owned in self.ownerless.pop(thing.uid, {}).values():
            thing.adopt(owned)
        self.changed(thing)

    def remove(self, thing: Thing) -> None:
        """Removes an object that is gone."""
        if self._kinds[thing.kind].pop(thing.name, None) is None:
            raise InvariantBroken(f"the {thing.kind} {thing.name} is removed twice")
        self._unlink(thing)
        for owned in thing.owned():  # stays until that is gone, too
            if self.find(owned.kind, owned.name) is owned:
                self._wait_for_owner(owned)
        self._mark(thing)
        if isinstance(thing, Attachment):  # its name is free now
            for watcher in self._watchers:
                watcher.part(thing.set_name, thing.replica)
                watcher.sets[thing.set_name] = None

    def changed(self, thing: Thing) -> None:
        """Records that an object changed; to be called after each change of its fields in place."""
        if isinstance(thing, Pod):
            clique = self.cliques.get(thing.clique)
            if clique is not None and clique.uid == thing.clique_uid:
                clique.count(thing)
        self._mark(thing)

    def _mark(self, thing: Thing) -> None:
        for watcher in self._watchers:
            thing.mark(watcher)

    def gang_patched(self, gang: PodGang) -> None:
        """Records that a gang refers to other pods."""
        for watcher in self._watchers:
            watcher.gangs[gang.name] = None
            for pod_group in gang.groups:
                watcher.cliques[pod_group.name] = None

    def emit(self, event: ObjectEvent) -> None:
        """Stores an event, unless one with the same key is stored."""
        if event.key in self.events:
            return
        self.events[event.key] = event
        if len(self.events) > MOST_EVENTS:
            del self.events[next(iter(self.events))]

    # Ownership. An object that is being deleted loses its owner at once, and its name once it is
    # gone; a pod keeps its owner until the end.

    def _link(self, thing: Owned) -> None:
        if thing.terminating and not isinstance(thing, Pod):
            return
        owner = self.owner_of(thing)
        if owner is None:
            self._wait_for_owner(thing)
        else:
            owner.adopt(thing)

    def _unlink(self, thing: Thing) -> None:
        if not isinstance(thing, Owned):
            return
        owner = self.owner_of(thing)
        if owner is not None:
            owner.release(thing)
        waiting = self.ownerless.get(thing.owner_uid)
        if waiting is not None:
            waiting.pop(f"{thing.kind}/{thing.name}", None)
            if not waiting:
                del self.ownerless[thing.owner_uid]

    def _wait_for_owner(self, thing: Owned) -> None:
        waiting = self.ownerless.setdefault(thing.owner_uid, {})
        waiting[f"{thing.kind}/{thing.name}"] = thing
