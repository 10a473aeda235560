"""The objects of the gang layer: pods, cliques, scaling groups, sets, gangs, nodes.

They are the state of a cluster as a controller sees it, in one namespace of names: an object of the
namespace `default` is called by its name, one of another by `namespace/name`. A controller reads
them and returns commands; only the driver that fills the `View` changes them. `assign` copies what
an API server may change from a newer copy, `snapshot` makes such a copy, as a watch sends it.
Times are seconds of the run; `NEVER` stands for what has not happened.
"""

from typing import Final

from windtunnel.gangs.templates import CliqueTemplate, SetSpec

NEVER: Final = -1.0

GATE: Final = "grove.io/podgang-pending-creation"
"""The scheduling gate that every pod is born with, and that its gang takes off."""

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


class Condition:
    """One thing that is known of an object; its time moves only when the status changes."""

    __slots__ = ("message", "reason", "since_s", "status", "type")

    def __init__(self, type: str, status: str, reason: str, message: str, since_s: float) -> None:  # noqa: A002 - as Kubernetes calls it
        self.type: Final = type
        self.status: Final = status
        self.reason: Final = reason
        self.message: Final = message
        self.since_s: Final = since_s

    def says(self, status: str, reason: str, message: str) -> bool:
        """Whether it already says just this, since whenever."""
        return self.status == status and self.reason == reason and self.message == message


class ObjectEvent:
    """Something worth telling, once: a second event of the same `key` is the same event."""

    __slots__ = ("at_s", "key", "kind", "level", "message", "name", "reason")

    def __init__(
        self, key: str, level: str, kind: str, name: str, reason: str, message: str, at_s: float
    ) -> None:
        self.key: Final = key
        self.level: Final = level
        self.kind: Final = kind
        self.name: Final = name
        self.reason: Final = reason
        self.message: Final = message
        self.at_s: Final = at_s


class Thing:
    """What every object has: a name, an id that no other object ever had, an owner, its dates."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind: Final = kind
        self.name: Final = name
        self.uid = ""
        """Issued by the API server, opaque and never used again; empty before that."""
        self.version = ""
        """The resource version: opaque, another one after each change."""
        self.owner_uid = ""
        """Its owner goes with it; empty for what people create. A pod's is its clique's."""
        self.created_s = NEVER
        self.deleted_s = NEVER
        """Since when it is being deleted; it stays until nothing holds it back."""
        self.finalizers: tuple[str, ...] = ()
        """What must be taken off before it is gone."""
        self.conditions: Final[dict[str, Condition]] = {}

    @property
    def terminating(self) -> bool:
        return self.deleted_s >= 0.0

    def assign(self, newer: "Thing") -> None:
        """Becomes as a newer copy of the same object is."""
        self.uid, self.version, self.owner_uid = newer.uid, newer.version, newer.owner_uid
        self.created_s, self.deleted_s = newer.created_s, newer.deleted_s
        self.finalizers = newer.finalizers
        self.conditions.clear()
        self.conditions.update(newer.conditions)

    def snapshot(self) -> "Thing":
        """A copy that shares nothing that changes."""
        raise NotImplementedError


class Node(Thing):
    """A machine that pods are placed on."""

    def __init__(self, name: str, capacity: dict[str, float], labels: dict[str, str]) -> None:
        super().__init__(NODE, name)
        self.capacity: Final = capacity
        """What it has for pods, by resource: `cpu`, `memory`, `nvidia.com/gpu`, `pods`."""
        self.labels: Final = labels
        self.cordoned = False
        """No new pod is placed here."""
        self.ready = True
        """False while it has failed: nothing runs here."""

    def assign(self, newer: Thing) -> None:
        assert isinstance(newer, Node)
        super().assign(newer)
        self.cordoned, self.ready = newer.cordoned, newer.ready

    def snapshot(self) -> "Node":
        made = Node(self.name, self.capacity, self.labels)
        made.assign(self)
        return made


# What a pod counts for in its clique.
_ACTIVE: Final = 1
_SCHEDULED: Final = 2
_GATED: Final = 4
_READY: Final = 8
_ERRONEOUS: Final = 16
_UNREADY: Final = 32
_UPDATED: Final = 64
_ENDED_MARK: Final = 128


class Pod(Thing):
    """One pod of a clique. What the cluster does to it comes first, what it was made of after."""

    def __init__(self, name: str, clique: "PodClique", index: int) -> None:
        super().__init__(POD, name)
        self.owner_uid = clique.uid
        self.counts = 0
        """What its clique counts it for; kept by the view."""
        self.gates: list[str] = [GATE, *clique.template.gates]
        self.node = ""
        self.scheduled_s = NEVER
        """When it was bound to its node."""
        self.phase = PENDING
        self.started = False
        """Some container has started."""
        self.ready = False
        self.ready_s = NEVER
        """When it last became ready."""
        self.erroneous = False
        """It is not ready, and a container of it last ended with an exit code other than 0."""
        self.index: Final = index
        """Its place in the clique: lowest free first, so that host names survive it."""
        self.clique: Final = clique.name
        self.clique_uid: Final = clique.uid
        self.set_name: Final = clique.set_name
        self.replica: Final = clique.replica
        self.group: Final = clique.group
        self.group_replica: Final = clique.group_replica
        self.gang: Final = clique.gang
        self.base_gang: Final = clique.base_gang
        self.template: Final = clique.template
        self.template_hash: Final = clique.template.hash
        self.requests: Final = clique.template.requests
        self.scheduler: Final = clique.template.scheduler
        self.waits_for: Final = clique.starts_after
        """Its containers start only once each of these cliques has so many pods ready."""

    @property
    def scheduled(self) -> bool:
        return self.node != ""

    @property
    def gated(self) -> bool:
        return len(self.gates) > 0

    @property
    def active(self) -> bool:
        """It holds its place in the clique: neither leaving nor at its end."""
        return self.deleted_s < 0.0 and self.phase not in _ENDED

    def worth(self, template_hash: str) -> int:
        """What it counts for in a clique with that template, as a sum of marks."""
        if self.deleted_s >= 0.0:
            return 0
        if self.phase in _ENDED:
            return _ENDED_MARK
        marks = _ACTIVE
        if self.node:
            marks += _SCHEDULED
        elif self.gates:
            marks += _GATED
        if self.ready:
            marks += _READY
        elif self.erroneous:
            marks += _ERRONEOUS
        elif self.started:
            marks += _UNREADY
        return marks + _UPDATED if self.template_hash == template_hash else marks

    def assign(self, newer: Thing) -> None:
        assert isinstance(newer, Pod)
        super().assign(newer)
        self.gates = list(newer.gates)
        self.node, self.scheduled_s = newer.node, newer.scheduled_s
        self.phase, self.started = newer.phase, newer.started
        self.ready, self.ready_s = newer.ready, newer.ready_s
        self.erroneous = newer.erroneous

    def snapshot(self) -> "Pod":
        clique = PodClique(
            self.clique,
            self.set_name,
            self.replica,
            self.group,
            self.group_replica,
            self.gang,
            self.base_gang,
            self.template,
            0,
            self.waits_for,
        )
        clique.uid = self.clique_uid
        made = Pod(self.name, clique, self.index)
        made.assign(self)
        return made


class PodTally:
    """The pods of a clique by what they count for; kept by the view."""

    __slots__ = (
        "active",
        "ended",
        "erroneous",
        "gated",
        "ready",
        "scheduled",
        "unready",
        "updated",
        "updated_ready",
    )

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


class CliqueStatus:
    """What was last seen of a clique. A new one replaces it whole."""

    __slots__ = (
        "erroneous",
        "first_scheduled_s",
        "gated",
        "losses",
        "lost_rule",
        "observed",
        "ready",
        "replicas",
        "scheduled",
        "unready",
        "update_ended_s",
        "update_peak",
        "update_started_s",
        "updated",
        "updated_ready",
    )

    def __init__(self) -> None:
        self.observed = False
        """It has been looked at since it was created."""
        self.replicas = 0
        self.ready = 0
        self.updated = 0
        """Pods made from the template that the clique has now."""
        self.updated_ready = 0
        self.gated = 0
        self.erroneous = 0
        """Not ready, and a container last ended with an exit code other than 0."""
        self.unready = 0
        """Started, and not ready."""
        self.scheduled = 0
        self.first_scheduled_s = NEVER
        """When a pod of it was first bound: what was never scheduled is never terminated."""
        self.losses = 0
        """How often it went from some scheduled pods to none."""
        self.lost_rule = ""
        """What the set says of having lost all: see `conditions`."""
        self.update_started_s = NEVER
        self.update_ended_s = NEVER
        self.update_peak = 0
        """The most that were ready since the update started: what it has to come back to."""

    @property
    def updating(self) -> bool:
        return self.update_started_s >= 0.0 and self.update_ended_s < 0.0

    def same(self, other: "CliqueStatus") -> bool:
        return self is other or (
            self.observed == other.observed
            and self.replicas == other.replicas
            and self.ready == other.ready
            and self.scheduled == other.scheduled
            and self.gated == other.gated
            and self.updated == other.updated
            and self.updated_ready == other.updated_ready
            and self.erroneous == other.erroneous
            and self.unready == other.unready
            and self.first_scheduled_s == other.first_scheduled_s
            and self.update_started_s == other.update_started_s
            and self.update_ended_s == other.update_ended_s
            and self.update_peak == other.update_peak
            and self.lost_rule == other.lost_rule
        )


class PodClique(Thing):
    """One role: pods of one template, of which `min_available` are placed together."""

    def __init__(
        self,
        name: str,
        set_name: str,
        replica: int,
        group: str,
        group_replica: int,
        gang: str,
        base_gang: str,
        template: CliqueTemplate,
        replicas: int,
        starts_after: tuple[tuple[str, int], ...],
        incarnation: int = 0,
    ) -> None:
        super().__init__(CLIQUE, name)
        self.set_name: Final = set_name
        self.replica: Final = replica
        self.group: Final = group
        """The scaling group's full name; empty for a clique that stands alone."""
        self.group_replica: Final = group_replica
        """Which replica of the scaling group it belongs to; -1 for none."""
        self.gang: Final = gang
        self.base_gang: Final = base_gang
        """The gang that must be placed before this one; empty in a base gang."""
        self.template = template
        """Its pods are made from this; an update replaces it."""
        self.role: Final = template.name
        self.replicas = replicas
        self.min_available: Final = template.min_available
        self.starts_after: Final = starts_after
        """Cliques that come before it, each with how many of its pods must be ready."""
        self.incarnation: Final = incarnation
        """Terminations before it was created, of its set replica and of its group replica."""
        self.status = CliqueStatus()
        self.pods: Final[dict[str, Pod]] = {}
        """Its pods by name, those that are leaving included; kept by the view."""
        self.places: Final[dict[int, Pod]] = {}
        """The last pod that was given each index; kept by the view."""
        self.tally = PodTally()
        self._roster: tuple[str, ...] | None = None

    def assign(self, newer: Thing) -> None:
        assert isinstance(newer, PodClique)
        super().assign(newer)
        self.template, self.replicas, self.status = newer.template, newer.replicas, newer.status

    def snapshot(self) -> "PodClique":
        made = PodClique(
            self.name,
            self.set_name,
            self.replica,
            self.group,
            self.group_replica,
            self.gang,
            self.base_gang,
            self.template,
            self.replicas,
            self.starts_after,
            self.incarnation,
        )
        made.assign(self)
        return made

    # Kept by the view.

    def adopt(self, pod: Pod) -> None:
        self.pods[pod.name] = pod
        self.places[pod.index] = pod
        pod.counts = 0
        self.count(pod)

    def release(self, pod: Pod) -> None:
        del self.pods[pod.name]
        self._mark(pod, 0)

    def count(self, pod: Pod) -> None:
        """Follows a change of one pod."""
        self._mark(pod, pod.worth(self.template.hash))

    def _mark(self, pod: Pod, marks: int) -> None:
        before = pod.counts
        if marks != before:
            self.tally.add(before, -1)
            self.tally.add(marks, 1)
            pod.counts = marks
            if (marks ^ before) & _ACTIVE:
                self._roster = None

    def recount(self) -> None:
        """Follows a change of the template."""
        for pod in self.pods.values():
            self.count(pod)

    def roster(self) -> tuple[str, ...]:
        """The names of its active pods, sorted; the same object until they change."""
        known = self._roster
        if known is None:
            known = self._roster = tuple(
                sorted(pod.name for pod in self.pods.values() if pod.active)
            )
        return known


class GroupStatus:
    """What was last seen of a scaling group. A new one replaces it whole."""

    __slots__ = (
        "available",
        "first_scheduled_s",
        "healthy",
        "incarnations",
        "losses",
        "lost_rule",
        "observed",
        "recycled",
        "replicas",
        "revision",
        "scheduled",
        "update_ended_s",
        "update_peak",
        "update_started_s",
        "updated",
    )

    def __init__(self) -> None:
        self.observed = False
        self.replicas = 0
        self.scheduled = 0
        self.healthy = 0
        """Replicas that are scheduled and of which no clique is breached."""
        self.available = 0
        self.updated = 0
        self.first_scheduled_s = NEVER
        self.losses = 0
        self.lost_rule = ""
        self.update_started_s = NEVER
        self.update_ended_s = NEVER
        self.update_peak = 0
        """As of a clique, of replicas that were available."""
        self.revision = ""
        """The revision of the set that all of its replicas have."""
        self.incarnations: dict[int, int] = {}
        """By replica: how often it was terminated so far. See `termination`."""
        self.recycled: dict[int, int] = {}
        """Replicas whose termination is under way, each with the incarnation that comes next."""

    @property
    def updating(self) -> bool:
        return self.update_started_s >= 0.0 and self.update_ended_s < 0.0

    def same(self, other: "GroupStatus") -> bool:
        return self is other or (
            self.observed == other.observed
            and self.replicas == other.replicas
            and self.scheduled == other.scheduled
            and self.healthy == other.healthy
            and self.available == other.available
            and self.updated == other.updated
            and self.first_scheduled_s == other.first_scheduled_s
            and self.update_started_s == other.update_started_s
            and self.update_ended_s == other.update_ended_s
            and self.update_peak == other.update_peak
            and self.revision == other.revision
            and self.lost_rule == other.lost_rule
            and self.incarnations == other.incarnations
            and self.recycled == other.recycled
        )

    def copy(self) -> "GroupStatus":
        """The same, to be changed and written back."""
        made = GroupStatus()
        made.observed = self.observed
        made.replicas = self.replicas
        made.scheduled = self.scheduled
        made.healthy = self.healthy
        made.available = self.available
        made.updated = self.updated
        made.first_scheduled_s = self.first_scheduled_s
        made.losses = self.losses
        made.lost_rule = self.lost_rule
        made.update_started_s = self.update_started_s
        made.update_ended_s = self.update_ended_s
        made.update_peak = self.update_peak
        made.revision = self.revision
        made.incarnations = self.incarnations
        made.recycled = self.recycled
        return made


class ScalingGroup(Thing):
    """Roles that scale together: each replica is one copy of every member clique."""

    def __init__(
        self,
        name: str,
        short: str,
        set_name: str,
        replica: int,
        replicas: int,
        min_available: int,
        members: tuple[str, ...],
    ) -> None:
        super().__init__(GROUP, name)
        self.short: Final = short
        self.set_name: Final = set_name
        self.replica: Final = replica
        self.replicas = replicas
        self.min_available: Final = min_available
        self.members: Final = members
        self.status = GroupStatus()
        self.cliques: Final[dict[int, dict[str, PodClique]]] = {}
        """Its cliques by replica and role; kept by the view."""

    def assign(self, newer: Thing) -> None:
        assert isinstance(newer, ScalingGroup)
        super().assign(newer)
        self.replicas, self.status = newer.replicas, newer.status

    def snapshot(self) -> "ScalingGroup":
        made = ScalingGroup(
            self.name,
            self.short,
            self.set_name,
            self.replica,
            self.replicas,
            self.min_available,
            self.members,
        )
        made.assign(self)
        return made


class Pack:
    """A wish to be placed close together, as keys of node labels; an empty one is no wish."""

    __slots__ = ("preferred", "required")

    def __init__(self, required: str = "", preferred: str = "") -> None:
        self.required: Final = required
        self.preferred: Final = preferred

    def same(self, other: "Pack | None") -> bool:
        return (
            other is not None
            and self.required == other.required
            and self.preferred == other.preferred
        )


class PodGroup:
    """The pods of one clique within a gang: `min_replicas` of them count for admission."""

    __slots__ = ("min_replicas", "name", "pack", "pods")

    def __init__(self, name: str, min_replicas: int, pack: Pack | None = None) -> None:
        self.name: Final = name
        self.min_replicas: Final = min_replicas
        self.pack: Final = pack
        self.pods: tuple[str, ...] = ()
        """The names of its pods, sorted; empty until every pod of the gang exists."""


def same_groups(one: tuple[PodGroup, ...], other: tuple[PodGroup, ...]) -> bool:
    if len(one) != len(other):
        return False
    for have, want in zip(one, other, strict=True):
        if have.name != want.name or have.min_replicas != want.min_replicas:
            return False
        if have.pods is not want.pods and have.pods != want.pods:
            return False
        if have.pack is not want.pack and (have.pack is None or not have.pack.same(want.pack)):
            return False
    return True


class PackGroup:
    """Pod groups that are packed as one, such as the cliques of one scaling group replica."""

    __slots__ = ("name", "pack", "pod_groups")

    def __init__(self, name: str, pod_groups: tuple[str, ...], pack: Pack) -> None:
        self.name: Final = name
        self.pod_groups: Final = pod_groups
        self.pack: Final = pack


class PodGang(Thing):
    """What a scheduler admits whole or not at all."""

    def __init__(self, name: str, set_name: str, replica: int, base: str = "") -> None:
        super().__init__(GANG, name)
        self.set_name: Final = set_name
        self.replica: Final = replica
        self.base: Final = base
        """The gang that must be placed first; empty for a base gang."""
        self.groups: tuple[PodGroup, ...] = ()
        self.pack: Pack | None = None
        """Packs the whole gang."""
        self.pack_groups: tuple[PackGroup, ...] = ()
        self.priority_class = ""
        self.scheduler = ""
        self.topology = ""
        """The ClusterTopologyBinding whose levels the constraints were translated by."""
        self.reuse = ""
        """An earlier gang whose placement is to be tried first."""
        self.phase = PENDING
        self.placement_score = 0.0
        """How close together it was placed, 0 to 1; written by the scheduler."""
        self.why_pending = ""
        """Why it waits, in one sentence; written by the scheduler."""

    def assign(self, newer: Thing) -> None:
        assert isinstance(newer, PodGang)
        super().assign(newer)
        self.groups, self.pack, self.pack_groups = newer.groups, newer.pack, newer.pack_groups
        self.priority_class, self.scheduler = newer.priority_class, newer.scheduler
        self.topology, self.reuse, self.phase = newer.topology, newer.reuse, newer.phase
        self.placement_score, self.why_pending = newer.placement_score, newer.why_pending

    def snapshot(self) -> "PodGang":
        made = PodGang(self.name, self.set_name, self.replica, self.base)
        made.assign(self)
        return made


class Attachment(Thing):
    """What a set needs beside pods: services, resource claims, autoscalers, accounts."""

    def __init__(
        self, kind: str, name: str, set_name: str, replica: int, owner: str, spec: dict[str, object]
    ) -> None:
        super().__init__(kind, name)
        self.set_name: Final = set_name
        self.replica: Final = replica
        """The set replica that it goes with; -1 when it is the set's own."""
        self.owner: Final = owner
        self.spec: Final = spec
        self.key: Final = f"{kind}/{name}"

    def snapshot(self) -> "Attachment":
        made = Attachment(self.kind, self.name, self.set_name, self.replica, self.owner, self.spec)
        made.assign(self)
        return made


class SetReplica:
    """The parts of one set replica that exist; kept by the view."""

    __slots__ = ("attachments", "cliques", "gangs", "groups", "turnover")

    def __init__(self) -> None:
        self.turnover = 0
        """Counts the gangs that came and went."""
        self.attachments: Final[dict[str, Attachment]] = {}
        """By kind and name: `Service/web-0`."""
        self.cliques: Final[dict[str, PodClique]] = {}
        """The cliques that stand alone, by role."""
        self.groups: Final[dict[str, ScalingGroup]] = {}
        """By the short name."""
        self.gangs: Final[dict[str, PodGang]] = {}
        """By the full name."""

    def things(self) -> list[Thing]:
        return [
            *self.cliques.values(),
            *self.groups.values(),
            *self.gangs.values(),
            *self.attachments.values(),
        ]

    def discard(self, thing: Thing) -> None:
        """Takes an object out, if it is this very one."""
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


class Revision:
    """The pod templates of a set at one time, kept so that one can go back to them."""

    __slots__ = ("hash", "number", "priority_class", "templates")

    def __init__(
        self,
        number: int,
        hash: str,  # noqa: A002 - as Kubernetes calls it
        templates: dict[str, CliqueTemplate],
        priority_class: str,
    ) -> None:
        self.number: Final = number
        self.hash: Final = hash
        self.templates: Final = templates
        self.priority_class: Final = priority_class


class SetStatus:
    """What was last seen of a set. A new one replaces it whole."""

    def __init__(self) -> None:
        self.observed_generation = 0
        self.replicas = 0
        self.available = 0
        self.updated = 0
        self.revision = ""
        """The hash of the pod templates that the set is at, or on its way to."""
        self.revisions: tuple[Revision, ...] = ()
        """Oldest first; the last is the one that it is at."""
        self.update_started_s = NEVER
        self.update_ended_s = NEVER
        self.progressed_s = NEVER
        """When the update last came on."""
        self.progress = 0
        """How far it had come by then."""
        self.updating: tuple[int, ...] = ()
        """The replicas whose turn it is."""
        self.done: tuple[int, ...] = ()
        """The replicas that this update has behind them."""
        self.incarnations: dict[int, int] = {}
        """By replica: how often it was terminated so far. See `termination`."""
        self.recycled: dict[int, int] = {}
        """Replicas whose termination is under way, each with the incarnation that comes next."""
        self.scales: dict[str, int] = {}
        """Replicas of cliques that stand alone, as they were when a recycle took them away."""

    @property
    def rolling(self) -> bool:
        return self.update_started_s >= 0.0 and self.update_ended_s < 0.0

    def same(self, other: "SetStatus") -> bool:
        return self is other or (
            self.observed_generation == other.observed_generation
            and self.replicas == other.replicas
            and self.available == other.available
            and self.updated == other.updated
            and self.revision == other.revision
            and self.update_started_s == other.update_started_s
            and self.update_ended_s == other.update_ended_s
            and self.progressed_s == other.progressed_s
            and self.progress == other.progress
            and self.updating == other.updating
            and self.done == other.done
            and self.incarnations == other.incarnations
            and self.recycled == other.recycled
            and self.scales == other.scales
        )

    def copy(self) -> "SetStatus":
        """The same, to be changed and written back."""
        made = SetStatus()
        made.observed_generation = self.observed_generation
        made.replicas = self.replicas
        made.available = self.available
        made.updated = self.updated
        made.revision = self.revision
        made.revisions = self.revisions
        made.update_started_s = self.update_started_s
        made.update_ended_s = self.update_ended_s
        made.progressed_s = self.progressed_s
        made.progress = self.progress
        made.updating = self.updating
        made.done = self.done
        made.incarnations = self.incarnations
        made.recycled = self.recycled
        made.scales = self.scales
        return made


class PodCliqueSet(Thing):
    """N copies of a whole serving system; what a person writes."""

    def __init__(self, name: str, spec: SetSpec) -> None:
        super().__init__(SET, name)
        self.spec = spec
        self.replicas = spec.replicas
        """How many are wanted: what `spec` says, until it is scaled."""
        self.generation = 1
        """Counts the changes of `spec`."""
        self.status = SetStatus()
        self.parts: Final[dict[int, SetReplica]] = {}
        """What exists of each replica; kept by the view. What is the set's own has the key -1."""

    def assign(self, newer: Thing) -> None:
        assert isinstance(newer, PodCliqueSet)
        super().assign(newer)
        self.spec, self.replicas = newer.spec, newer.replicas
        self.generation, self.status = newer.generation, newer.status

    def snapshot(self) -> "PodCliqueSet":
        made = PodCliqueSet(self.name, self.spec)
        made.assign(self)
        return made
