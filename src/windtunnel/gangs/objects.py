"""The objects of the gang layer: pods, cliques, scaling groups, sets, gangs, nodes.

They hold the state of a cluster as a controller sees it. An object in the namespace `default` is
known by its name, any other by `namespace/name`. A controller reads objects and returns commands;
only the driver that fills the `View` changes them. `assign` copies the fields that an API server
may change from a newer copy, `snapshot` makes such a copy, as a watch sends it. Times are seconds
of the run; `NEVER` means that it has not happened.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from windtunnel.core.kubernetes import NEVER
from windtunnel.gangs.changes import Changes
from windtunnel.gangs.roster import NameRoster
from windtunnel.gangs.statuses import CliqueStatus, Condition, GroupStatus, SetStatus
from windtunnel.gangs.templates import (
    CliquePlace,
    CliqueTemplate,
    GroupTemplate,
    Pack,
    PackGroup,
    PodGroup,
    SetSpec,
)

GATE: Final = "grove.io/podgang-pending-creation"
"""The scheduling gate that every pod is created with, and that its controller removes."""

POD: Final = "Pod"
CLIQUE: Final = "PodClique"
GROUP: Final = "PodCliqueScalingGroup"
SET: Final = "PodCliqueSet"
GANG: Final = "PodGang"
NODE: Final = "Node"

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
UNKNOWN: Final = "Unknown"
STARTING: Final = "Starting"
_ENDED: Final = (FAILED, SUCCEEDED)

TRUE: Final = "True"
FALSE: Final = "False"

WARNING: Final = "Warning"
NORMAL: Final = "Normal"

_EVERY_KIND: Final = (
    "uid", "version", "owner_uid", "created_s", "deleted_s", "finalizers", "conditions",
)  # fmt: skip
_CHANGING: Final = {
    NODE: ("cordoned", "ready"),
    POD: (
        "gates", "node", "scheduled_s", "phase", "started", "ready", "ready_s", "erroneous",
    ),
    CLIQUE: ("template", "replicas", "status"),
    GROUP: ("replicas", "status"),
    GANG: (
        "groups", "pack", "pack_groups", "priority_class", "scheduler", "topology", "reuse",
        "phase", "placement_score", "why_pending",
    ),
    SET: ("spec", "replicas", "generation", "status"),
}  # fmt: skip
"""Fields that an API server may change, by kind."""


class Thing:
    """The fields of every object: name, unique id, owner, times."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind: Final = kind
        self.name: Final = name
        self.uid = ""
        """Opaque, issued by the API server and never reused; empty before that."""
        self.version = ""
        """The resource version: opaque, and different after each change."""
        self.owner_uid = ""
        """The owner, whose deletion deletes this object; empty if a user created it. A pod's owner
        is its clique."""
        self.created_s = NEVER
        self.deleted_s = NEVER
        """When its deletion began; the object remains while a finalizer or the like holds it."""
        self.finalizers: tuple[str, ...] = ()
        """Finalizers that must be removed before it is gone."""
        self.conditions: dict[str, Condition] = {}

    @property
    def terminating(self) -> bool:
        return self.deleted_s >= 0.0

    def assign(self, newer: "Thing") -> None:
        """Copies the mutable fields from a newer copy of the object, which must not be shared."""
        for name in _EVERY_KIND:
            setattr(self, name, getattr(newer, name))
        for name in _CHANGING.get(self.kind, ()):
            setattr(self, name, getattr(newer, name))

    def snapshot(self) -> "Thing":
        """Returns a copy that shares no mutable state and does not know what it owns."""
        made = self.anew()
        made.assign(self)
        made.conditions = dict(self.conditions)
        if isinstance(made, Pod):
            made.gates = list(made.gates)
        return made

    def anew(self) -> "Thing":
        """Returns a new object with the same construction arguments and no history."""
        raise NotImplementedError

    # Maintained by the view.

    def mark(self, changes: Changes) -> None:
        """Records what has to be checked after a change of this object."""

    def adopt(self, thing: "Owned") -> None:
        """Adds an object that it owns."""

    def release(self, thing: "Owned") -> None:
        """Drops an object that it owned, if it is the same instance."""

    def owned(self) -> "Sequence[Owned]":
        """Returns what it owns, without objects being deleted; for a clique, all pods."""
        return []


class Node(Thing):
    """A machine that pods are placed on."""

    def __init__(
        self,
        name: str,
        capacity: dict[str, float],
        labels: dict[str, str],
        taints: tuple[tuple[str, str, str], ...] = (),
    ) -> None:
        super().__init__(NODE, name)
        self.capacity: Final = capacity
        """Allocatable resources: `cpu`, `memory`, `nvidia.com/gpu`, `pods`."""
        self.labels: Final = labels
        self.taints: Final = taints
        """Keys, values and effects."""
        self.cordoned = False
        """Whether it is closed to new pods."""
        self.ready = True
        """False after a node failure: nothing runs here."""

    def anew(self) -> Thing:
        return Node(self.name, self.capacity, self.labels, self.taints)

    def mark(self, changes: Changes) -> None:
        changes.nodes[self.name] = None


class Owned(Thing):
    """An object that belongs to a set or to one of its replicas."""

    def __init__(self, kind: str, name: str, set_name: str, replica: int) -> None:
        super().__init__(kind, name)
        self.set_name: Final = set_name
        self.replica: Final = replica
        """The set replica it belongs to; -1 if it belongs to the set as a whole."""


class GangMember(Owned):
    """A clique or a pod, which has a place in a gang."""

    def __init__(self, kind: str, name: str, place: CliquePlace, template: CliqueTemplate) -> None:
        super().__init__(kind, name, place.set_name, place.replica)
        self.place: Final = place
        self.group: Final = place.group
        self.group_replica: Final = place.group_replica
        self.gang: Final = place.gang
        self.base_gang: Final = place.base_gang
        self.template = template
        """The template for pods; an update of a clique replaces it."""


# Marks under which a clique counts a pod.
_ACTIVE: Final = 1
_SCHEDULED: Final = 2
_GATED: Final = 4
_READY: Final = 8
_ERRONEOUS: Final = 16
_UNREADY: Final = 32
_UPDATED: Final = 64
_ENDED_MARK: Final = 128
_HELD: Final = 256


class Pod(GangMember):
    """One pod of a clique. Mutable cluster state comes first, then what it was created with."""

    def __init__(self, name: str, clique: "PodClique", index: int) -> None:
        super().__init__(POD, name, clique.place, clique.template)
        self.owner_uid = clique.uid
        self.counts = 0
        """The marks under which its clique counts it; maintained by the view."""
        self.turn = 0
        """Its rank in the order in which the clique got its pods; maintained by the view."""
        self.gates: list[str] = [GATE, *clique.template.gates]
        self.node = ""
        self.scheduled_s = NEVER
        """When it was bound to its node."""
        self.phase = PENDING
        self.started = False
        """Whether a container is started but not ready, or all are ready. A container with a
        startup probe counts as started once the probe has passed."""
        self.ready = False
        self.ready_s = NEVER
        """When it last became ready."""
        self.erroneous = False
        """Whether it is not ready and one of its containers last exited with a non-zero code."""
        self.index: Final = index
        """Its index in the clique: the lowest free one, so that a replacement keeps the host name.
        """
        self.clique: Final = clique.name
        self.clique_uid: Final = clique.uid
        self.template_hash: Final = clique.template.hash
        self.requests: Final = clique.template.requests
        self.scheduler: Final = clique.template.scheduler
        self.waits_for: Final = clique.starts_after
        """Its containers start only once each of these cliques has this number of pods ready."""

    @property
    def scheduled(self) -> bool:
        return self.node != ""

    @property
    def gated(self) -> bool:
        return len(self.gates) > 0

    @property
    def active(self) -> bool:
        """Whether it counts towards its clique: neither terminating nor finished."""
        return self.deleted_s < 0.0 and self.phase not in _ENDED

    def worth(self, template_hash: str) -> int:
        """Returns its marks in a clique with that template, as a sum."""
        if self.deleted_s >= 0.0:
            return 0
        if self.phase in _ENDED:
            return _ENDED_MARK
        marks = _ACTIVE
        if self.node:
            marks += _SCHEDULED
        elif self.gates:
            marks += _GATED
        if GATE in self.gates:
            marks += _HELD
        if self.ready:
            marks += _READY
        elif self.erroneous:
            marks += _ERRONEOUS
        elif self.started:
            marks += _UNREADY
        return marks + _UPDATED if self.template_hash == template_hash else marks

    def anew(self) -> Thing:
        clique = PodClique(self.clique, self.place, self.template, 0, self.waits_for)
        clique.uid = self.clique_uid
        return Pod(self.name, clique, self.index)

    def mark(self, changes: Changes) -> None:
        changes.pods[self.name] = None
        changes.cliques[self.clique] = None
        changes.gangs[self.gang] = None


class PodTally:
    """Counts of a clique's pods by state; maintained by the view."""

    def __init__(self) -> None:
        self.active = 0
        self.scheduled = 0
        self.gated = 0
        self.ready = 0
        self.erroneous = 0
        self.unready = 0
        self.updated = 0
        self.updated_ready = 0
        self.ended = 0

    def add(self, marks: int, by: int) -> None:
        if marks & _ENDED_MARK:
            self.ended += by
        if not marks & _ACTIVE:
            return
        self.active += by
        if marks & _SCHEDULED:
            self.scheduled += by
        if marks & _GATED:
            self.gated += by
        if marks & _READY:
            self.ready += by
        if marks & _ERRONEOUS:
            self.erroneous += by
        if marks & _UNREADY:
            self.unready += by
        if marks & _UPDATED:
            self.updated += by
            if marks & _READY:
                self.updated_ready += by


class PodIndex:
    """The pods of a clique by the action they need, so that none requires a search through all."""

    def __init__(self) -> None:
        self.ended: Final[dict[str, Pod]] = {}
        self.held: Final[dict[str, Pod]] = {}
        """Active pods that have our gate."""
        self.old_unready: Final[dict[str, Pod]] = {}
        """Active pods that are not ready and whose template differs from the clique's."""
        self.old_ready: Final[list[tuple[float, int, str]]] = []
        """Ready active pods whose template differs: creation time, index and name, oldest first."""
        self.indices: Final[list[tuple[int, int, str]]] = []
        """Index, turn and name of active pods, sorted."""
        self._taken: Final[dict[int, int]] = {}  # active pods by index
        self.roster = NameRoster()
        """The names of the active pods."""

    def move(self, pod: Pod, before: int, after: int) -> None:
        """Moves a pod between indexes after its marks changed."""
        changed = before ^ after
        if changed & _ENDED_MARK:
            _put(self.ended, pod, there=bool(after & _ENDED_MARK))
        if changed & _HELD:
            _put(self.held, pod, there=bool(after & _HELD))
        if changed & _ACTIVE:
            self._activate(pod, active=bool(after & _ACTIVE))
        if changed & (_ACTIVE | _READY | _UPDATED):
            _put(self.old_unready, pod, there=after & (_ACTIVE | _READY | _UPDATED) == _ACTIVE)
            old = before & (_ACTIVE | _READY | _UPDATED) == _ACTIVE | _READY
            if (after & (_ACTIVE | _READY | _UPDATED) == _ACTIVE | _READY) != old:
                _shelve(self.old_ready, (pod.created_s, pod.index, pod.name), there=not old)

    def _activate(self, pod: Pod, *, active: bool) -> None:
        index = pod.index
        count = self._taken.get(index, 0) + (1 if active else -1)
        place = (index, pod.turn, pod.name)
        at = bisect_left(self.indices, place)
        if active:
            self.indices.insert(at, place)
            self.roster = self.roster.plus(pod.name)
        else:
            del self.indices[at]
            self.roster = self.roster.minus(pod.name)
        if count:
            self._taken[index] = count
        else:
            del self._taken[index]

    def above(self, index: int) -> int:
        """Returns how many active pods have this index or a higher one."""
        return len(self.indices) - bisect_left(self.indices, (index, -1, ""))

    def free_indices(self, count: int, gone: Iterable[Pod]) -> list[int]:
        """Returns the lowest indices that no active pod has, treating `gone` pods as deleted."""
        leaving: dict[int, int] = {}
        for pod in gone:
            leaving[pod.index] = leaving.get(pod.index, 0) + 1
        found = [index for index, pods in leaving.items() if pods == self._taken.get(index)]
        if len(self._taken) == len(self.indices):
            found += [self._hole(number) for number in range(count)]
        else:  # two pods have the same index: another program created one
            most = len(self.indices) + count
            found += [index for index in range(most) if index not in self._taken]
        return sorted(found)[:count]

    def _hole(self, number: int) -> int:
        """Returns the free index with `number` free ones below it; requires that no index is taken
        twice."""
        low, high = 0, len(self.indices)
        while low < high:
            middle = (low + high) // 2
            if self.indices[middle][0] - middle > number:
                high = middle
            else:
                low = middle + 1
        return low + number


def _put(shelf: dict[str, Pod], pod: Pod, *, there: bool) -> None:
    if there:
        shelf[pod.name] = pod
    else:
        shelf.pop(pod.name, None)


def _shelve(
    shelf: list[tuple[float, int, str]], place: tuple[float, int, str], *, there: bool
) -> None:
    at = bisect_left(shelf, place)
    if there:
        shelf.insert(at, place)
    else:
        del shelf[at]


class PodClique(GangMember):
    """One role: pods of one template, of which `min_available` are placed together."""

    def __init__(
        self,
        name: str,
        place: CliquePlace,
        template: CliqueTemplate,
        replicas: int,
        starts_after: tuple[tuple[str, int], ...] = (),
        incarnation: int = 0,
    ) -> None:
        super().__init__(CLIQUE, name, place, template)
        self.role: Final = template.name
        self.replicas = replicas
        self.min_available: Final = template.min_available
        self.starts_after: Final = starts_after
        """Cliques that start before it, each with the number of its pods that must be ready."""
        self.incarnation: Final = incarnation
        """Terminations of its set replica and group replica before it was created."""
        self.status = CliqueStatus()
        self.pods: Final[dict[str, Pod]] = {}
        """Pods by name, including terminating ones; maintained by the view."""
        self.places: Final[dict[int, Pod]] = {}
        """The latest pod of each index; maintained by the view."""
        self.tally = PodTally()
        self.pod_index: Final = PodIndex()
        self._turns = 0  # pods that it got so far

    @property
    def needed(self) -> int:
        """Returns how many pods make it whole: its minimum, or 0 if it was scaled to zero."""
        return self.min_available if self.replicas else 0

    def anew(self) -> Thing:
        after, number = self.starts_after, self.incarnation
        return PodClique(self.name, self.place, self.template, self.replicas, after, number)

    def mark(self, changes: Changes) -> None:
        changes.cliques[self.name] = None
        changes.gangs[self.gang] = None
        changes.part(self.set_name, self.replica)
        if self.group:
            changes.groups[self.group] = None
            members = changes.members.get(self.group)
            if members is None:
                changes.members[self.group] = {self.group_replica: None}
            else:
                members[self.group_replica] = None

    def adopt(self, thing: Owned) -> None:
        assert isinstance(thing, Pod)
        self.pods[thing.name] = thing
        self.places[thing.index] = thing
        thing.counts = 0
        self._turns += 1
        thing.turn = self._turns
        self.count(thing)

    def release(self, thing: Owned) -> None:
        assert isinstance(thing, Pod)
        del self.pods[thing.name]
        self._mark(thing, 0)

    def owned(self) -> Sequence[Owned]:
        return list(self.pods.values())

    def count(self, pod: Pod) -> None:
        """Updates the counts after a change of one pod."""
        self._mark(pod, pod.worth(self.template.hash))

    def _mark(self, pod: Pod, marks: int) -> None:
        before = pod.counts
        if marks != before:
            self.tally.add(before, -1)
            self.tally.add(marks, 1)
            self.pod_index.move(pod, before, marks)
            pod.counts = marks

    def recount(self) -> None:
        """Updates the counts after a change of the template."""
        for pod in self.pods.values():
            self.count(pod)


class ScalingGroup(Owned):
    """Roles that scale together: each replica is one copy of every member clique."""

    def __init__(self, name: str, set_name: str, replica: int, template: GroupTemplate) -> None:
        super().__init__(GROUP, name, set_name, replica)
        self._made_of: Final = template
        self.short: Final = template.name
        self.replicas = template.replicas
        self.min_available: Final = template.min_available
        self.members: Final = template.roles
        self.status = GroupStatus()
        self.cliques: Final[dict[int, dict[str, PodClique]]] = {}
        """Cliques by replica and role; maintained by the view."""
        self.extent = 0
        """One more than the highest replica that has a clique; maintained by the view."""

    @property
    def needed(self) -> int:
        """Returns how many replicas make it whole: its minimum, or 0 if it was scaled to zero."""
        return self.min_available if self.replicas else 0

    def anew(self) -> Thing:
        return ScalingGroup(self.name, self.set_name, self.replica, self._made_of)

    def mark(self, changes: Changes) -> None:
        changes.groups[self.name] = None
        changes.part(self.set_name, self.replica)

    def adopt(self, thing: Owned) -> None:
        assert isinstance(thing, PodClique)
        self.cliques.setdefault(thing.group_replica, {})[thing.role] = thing
        self.extent = max(self.extent, thing.group_replica + 1)

    def release(self, thing: Owned) -> None:
        assert isinstance(thing, PodClique)
        members = self.cliques.get(thing.group_replica, {})
        if members.get(thing.role) is thing:
            del members[thing.role]
            if not members:
                del self.cliques[thing.group_replica]
                if thing.group_replica == self.extent - 1:
                    self.extent = max(self.cliques, default=-1) + 1

    def owned(self) -> Sequence[Owned]:
        return [one for members in self.cliques.values() for one in members.values()]


class PodGang(Owned):
    """A gang, which a scheduler admits whole or not at all."""

    def __init__(self, name: str, set_name: str, replica: int, base: str = "") -> None:
        super().__init__(GANG, name, set_name, replica)
        self.base: Final = base
        """The base gang, which must be placed first; empty if this is one."""
        self.groups: tuple[PodGroup, ...] = ()
        self.pack: Pack | None = None
        """Packs the whole gang."""
        self.pack_groups: tuple[PackGroup, ...] = ()
        self.priority_class = ""
        self.scheduler = ""
        self.topology = ""
        """The ClusterTopologyBinding that translated the constraints."""
        self.reuse = ""
        """An earlier gang whose placement is tried first."""
        self.phase = PENDING
        self.placement_score = 0.0
        """How close together it was placed, 0 to 1; written by the scheduler."""
        self.why_pending = ""
        """Why it waits, in one sentence; written by the scheduler."""

    def anew(self) -> Thing:
        return PodGang(self.name, self.set_name, self.replica, self.base)

    def mark(self, changes: Changes) -> None:
        changes.gangs[self.name] = None
        changes.part(self.set_name, self.replica)


class Attachment(Owned):
    """An object that a set needs besides pods: a service, resource claim, autoscaler or account."""

    def __init__(
        self, kind: str, name: str, set_name: str, replica: int, body: dict[str, object]
    ) -> None:
        super().__init__(kind, name, set_name, replica)
        self.body: Final = body
        """Its manifest without apiVersion, kind and the metadata that all objects have."""
        self.key: Final = f"{kind}/{name}"

    def anew(self) -> Thing:
        return Attachment(self.kind, self.name, self.set_name, self.replica, self.body)

    def mark(self, changes: Changes) -> None:
        changes.attachments[(self.kind, self.name)] = None
        if self.terminating:  # its name may be free now
            changes.part(self.set_name, self.replica)
            changes.sets[self.set_name] = None


class SetReplica:
    """The existing parts of one set replica; maintained by the view."""

    def __init__(self) -> None:
        self.turnover = 0
        """Counts additions and removals of gangs."""
        self.attachments: Final[dict[str, Attachment]] = {}
        """By kind and name: `Service/web-0`."""
        self.cliques: Final[dict[str, PodClique]] = {}
        """Standalone cliques by role."""
        self.groups: Final[dict[str, ScalingGroup]] = {}
        """By short name."""
        self.gangs: Final[dict[str, PodGang]] = {}
        """By full name."""

    def add(self, thing: Owned) -> None:
        if isinstance(thing, PodClique):
            self.cliques[thing.role] = thing
        elif isinstance(thing, ScalingGroup):
            self.groups[thing.short] = thing
        elif isinstance(thing, PodGang):
            self.gangs[thing.name] = thing
            self.turnover += 1
        elif isinstance(thing, Attachment):
            self.attachments[thing.key] = thing

    def discard(self, thing: Owned) -> None:
        """Removes an object, if it is the same instance."""
        if isinstance(thing, PodClique):
            if self.cliques.get(thing.role) is thing:
                del self.cliques[thing.role]
        elif isinstance(thing, ScalingGroup):
            if self.groups.get(thing.short) is thing:
                del self.groups[thing.short]
        elif isinstance(thing, PodGang):
            if self.gangs.get(thing.name) is thing:
                del self.gangs[thing.name]
                self.turnover += 1
        elif isinstance(thing, Attachment) and self.attachments.get(thing.key) is thing:
            del self.attachments[thing.key]


class PodCliqueSet(Thing):
    """N copies of a whole serving system, as declared by a user."""

    def __init__(self, name: str, spec: SetSpec) -> None:
        super().__init__(SET, name)
        self.spec = spec
        self.replicas = spec.replicas
        """Replicas wanted: those of `spec`, until the set is scaled."""
        self.generation = 1
        """Counts the changes of `spec`."""
        self.status = SetStatus()
        self.parts: Final[dict[int, SetReplica]] = {}
        """Existing parts by replica; maintained by the view. Objects of the set itself have the key
        -1."""

    def anew(self) -> Thing:
        return PodCliqueSet(self.name, self.spec)

    def mark(self, changes: Changes) -> None:
        changes.sets[self.name] = None

    def adopt(self, thing: Owned) -> None:
        part = self.parts.get(thing.replica)
        if part is None:
            part = self.parts[thing.replica] = SetReplica()
        part.add(thing)

    def release(self, thing: Owned) -> None:
        part = self.parts.get(thing.replica)
        if part is not None:
            part.discard(thing)

    def owned(self) -> Sequence[Owned]:
        found: list[Owned] = []
        for part in self.parts.values():
            found += [*part.cliques.values(), *part.groups.values()]
            found += [*part.gangs.values(), *part.attachments.values()]
        return found
