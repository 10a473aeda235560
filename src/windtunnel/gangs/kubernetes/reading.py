"""Reads objects as an API server sends them into those that controllers work on.

An object's place in a set is in its labels; what a clique was made of besides its pod spec is in
the annotation `CLIQUE_NOTE`; what a controller remembers is in the status, under `windtunnel`. An
object of Grove's kinds without any of this was made by another program: it only occupies its name.
Objects of Grove's own operator are given it first (`takeover`).
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.kubernetes import NEVER, Metadata, Received, seconds_of
from windtunnel.gangs.api.load import GROVE, KINDS
from windtunnel.gangs.api.pod_spec import requests_of, scheduler_of
from windtunnel.gangs.api.resolve import full_name, set_spec_of
from windtunnel.gangs.api.set_rules import set_faults
from windtunnel.gangs.api.set_spec import SetManifest
from windtunnel.gangs.kubernetes.status_fields import MEMORY
from windtunnel.gangs.objects import (
    CLIQUE,
    FAILED,
    GANG,
    GROUP,
    NODE,
    PENDING,
    POD,
    SET,
    TRUE,
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
from windtunnel.gangs.pod_manifest import (
    BASE_GANG,
    CLIQUE_NOTE,
    GANG_LABEL,
    GROUP_INDEX,
    GROUP_LABEL,
    PART_OF,
    SCHEDULER,
    SET_INDEX,
    TEMPLATE_HASH,
    TOPOLOGY_NOTE,
    WAITER,
    WAITS_FOR,
    CliqueNote,
)
from windtunnel.gangs.roster import roster_of
from windtunnel.gangs.statuses import CliqueStatus, Condition, GroupStatus, SetStatus, Status
from windtunnel.gangs.templates import (
    CliquePlace,
    CliqueTemplate,
    GroupTemplate,
    Pack,
    PackGroup,
    PodGroup,
    SetSpec,
)
from windtunnel.gangs.view import View
from windtunnel.settings.document import Document
from windtunnel.settings.faults import input_error
from windtunnel.settings.manifests import manifest_of, quantity

Fields = Mapping[str, Any]
AnyStatus = TypeVar("AnyStatus", bound=Status)
SAID_OTHERWISE: Final = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)
"""Taints that Kubernetes adds to cordoned or unready nodes; the node's own fields say the same."""
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
CLOCKS_S: Final = 5.0
"""Allowed clock skew between API servers."""
SET_METADATA: Final = ("name", "namespace", "labels", "annotations")
"""Metadata of a set that a file may have besides its spec."""
NOWHERE: Final = CliquePlace("", -1, "")
NOTHING: Final = CliqueTemplate("", 0, 0, {}, {}, "")


def read(kind: str, raw: Received, view: View, now_s: float) -> Thing:
    """Converts a received object; raises an InputError with all faults of an unchecked set."""
    if kind == SET:
        thing: Thing = _set(raw, view)
    elif kind == CLIQUE:
        thing = _clique(raw)
    elif kind == GROUP:
        thing = _group(raw)
    elif kind == GANG:
        thing = _gang(raw, view)
    elif kind == POD:
        thing = _pod(raw, view, now_s)
    elif kind == NODE:
        thing = _node(raw)
    else:
        thing = _attachment(kind, raw)
    meta = raw.metadata
    thing.uid = meta.uid
    thing.version = meta.resource_version
    # An object whose labels name no set belongs to nothing, whatever owns it.
    placed = not isinstance(thing, Owned) or thing.set_name
    thing.owner_uid = meta.controller.uid if placed and meta.controller is not None else ""
    thing.created_s = max(seconds_of(meta.creation_timestamp, now_s), 0.0)
    if meta.deletion_timestamp:
        grace_s = raw.spec.get("terminationGracePeriodSeconds") or 0 if kind == POD else 0
        ends_s = seconds_of(meta.deletion_timestamp)
        thing.deleted_s = min(max(ends_s - float(grace_s), 0.0), now_s)
    thing.finalizers = tuple(meta.finalizers)
    if kind not in (POD, NODE):
        thing.conditions = _conditions(raw.status, now_s)
    return thing


def _full(meta: Metadata, short: str) -> str:
    return full_name(short, meta.namespace) if short else ""


def name_of(meta: Metadata) -> str:
    """Returns the internal name of an object."""
    return full_name(meta.name, meta.namespace)


def _number(text: str | None) -> int:
    """Parses a number in a label; -1 if there is none."""
    return int(text) if text is not None and text.isdigit() and len(text) < 10 else -1


def _conditions(written: Fields, now_s: float) -> dict[str, Condition]:
    found = {}
    for one in written.get("conditions") or []:
        since_s = max(seconds_of(one.get("lastTransitionTime"), now_s), 0.0)
        kind, status, reason, message = (
            str(one.get(key) or "") for key in ("type", "status", "reason", "message")
        )
        found[kind] = Condition(kind, status, reason, message, since_s)
    return found


def _memory(status: Fields, kind: type[AnyStatus]) -> AnyStatus:
    """Decodes a controller's memory. An invalid one is dropped and recomputed."""
    try:
        return msgspec.convert(status.get(MEMORY) or {}, kind, str_keys=True)
    except msgspec.ValidationError:
        return kind()


# Sets.


def _set(raw: Received, view: View) -> PodCliqueSet:
    meta = raw.metadata
    name = name_of(meta)
    known = view.sets.get(name)
    status = _memory(raw.status, SetStatus)
    same = known is not None and known.uid == meta.uid and known.generation == meta.generation
    if known is not None and same and _same_notes(known.spec, meta):
        spec = known.spec
    else:
        accepted = status.observed_generation == meta.generation > 0
        new = MEMORY not in raw.status and not raw.status.get("currentGenerationHash")
        spec = set_of(raw, view.levels or None, new=new, pods_checked=accepted)
        spec = _with_adopted(spec, status.adopted)
    made = PodCliqueSet(name, spec)
    made.generation = meta.generation
    made.status = status
    return made


def _with_adopted(spec: SetSpec, adopted: Mapping[str, str]) -> SetSpec:
    """Returns a set whose pod templates keep the hashes that Grove's operator assigned."""
    if not adopted:
        return spec
    cliques = tuple(
        msgspec.structs.replace(one, hash=adopted.get(one.hash, one.hash)) for one in spec.cliques
    )
    return msgspec.structs.replace(spec, cliques=cliques, hash=adopted.get(spec.hash, spec.hash))


def _same_notes(spec: SetSpec, meta: Metadata) -> bool:
    return spec.labels == meta.labels and spec.annotations == meta.annotations


def set_of(
    raw: Received, levels: dict[str, dict[str, str]] | None, *, new: bool, pods_checked: bool
) -> SetSpec:
    """Returns the set that an object declares; the error lists all of its faults.

    `pods_checked`: a controller has already worked with these pod specs.
    """
    meta = raw.metadata
    labels, annotations = dict(meta.labels), dict(meta.annotations)
    known = {"name": meta.name, "namespace": meta.namespace}
    document, manifest = set_manifest(
        {**known, "labels": labels, "annotations": annotations}, raw.spec
    )
    faults = set_faults(manifest, levels, new=new, pods_checked=pods_checked)
    if faults:
        raise input_error(document, faults)
    return set_spec_of(manifest)


def set_manifest(metadata: Mapping[str, Any], spec: object) -> tuple[Document, SetManifest]:
    """Checks the form of a set from an API server as that of a file is checked."""
    kept = {key: metadata[key] for key in SET_METADATA if metadata.get(key) is not None}
    data: dict[str, Any] = {"apiVersion": GROVE, "kind": SET, "metadata": kept, "spec": spec}
    document = Document("", data, {})
    name = full_name(str(kept.get("name", "")), str(kept.get("namespace", "")))
    document.put_place((), f"{SET} {name}")
    manifest = manifest_of(document, KINDS)
    assert isinstance(manifest, SetManifest)
    return document, manifest


# Objects of a set.


def place_of(meta: Metadata) -> CliquePlace:
    """Returns the place of a clique or pod, as given by its labels."""
    labels = meta.labels
    replica = _number(labels.get(SET_INDEX))
    if replica < 0 or not labels.get(PART_OF) or not labels.get(GANG_LABEL):
        return NOWHERE
    return CliquePlace(
        _full(meta, labels[PART_OF]),
        replica,
        _full(meta, labels[GANG_LABEL]),
        _full(meta, labels.get(BASE_GANG, "")),
        _full(meta, labels.get(GROUP_LABEL, "")),
        _number(labels.get(GROUP_INDEX)),
    )


def _clique(raw: Received) -> PodClique:
    meta, spec = raw.metadata, raw.spec
    place = place_of(meta)
    replicas = spec.get("replicas", 1)
    try:
        note = msgspec.json.decode(meta.annotations.get(CLIQUE_NOTE, ""), type=CliqueNote)
        data = {**note.template, "podSpec": spec["podSpec"]}
        template = msgspec.convert(data, CliqueTemplate)
    except (msgspec.DecodeError, KeyError):
        return PodClique(name_of(meta), NOWHERE, NOTHING, replicas)
    after = tuple((_full(meta, name), count) for name, count in note.starts_after.items())
    made = PodClique(name_of(meta), place, template, replicas, after, note.incarnation)
    made.status = _memory(raw.status, CliqueStatus)
    return made


def _replica_of(meta: Metadata, owner: str) -> int:
    """Returns the set replica that an object belongs to; Grove's gangs and autoscalers carry it
    only in their names."""
    label = meta.labels.get(SET_INDEX)
    if label is not None or not owner:
        return _number(label)
    rest = name_of(meta).removeprefix(f"{owner}-")
    return _number(rest.partition("-")[0]) if rest != name_of(meta) else -1


def _group(raw: Received) -> ScalingGroup:
    meta, spec = raw.metadata, raw.spec
    name, owner = name_of(meta), _full(meta, meta.labels.get(PART_OF, ""))
    replica = _number(meta.labels.get(SET_INDEX))
    short = name.removeprefix(f"{owner}-{replica}-")
    counts = spec.get("replicas", 1), spec.get("minAvailable", 1)
    template = GroupTemplate(short, tuple(spec.get("cliqueNames") or ()), *counts)
    made = ScalingGroup(name, owner if replica >= 0 else "", replica, template)
    made.status = _memory(raw.status, GroupStatus)
    return made


def _gang(raw: Received, view: View) -> PodGang:
    meta, spec = raw.metadata, raw.spec
    name, owner = name_of(meta), _full(meta, meta.labels.get(PART_OF, ""))
    replica = _replica_of(meta, owner)
    base = f"{owner}-{replica}"
    made = PodGang(name, owner if replica >= 0 else "", replica, "" if name == base else base)
    groups = tuple(_pod_group(meta, one) for one in spec.get("podgroups") or [])
    known = view.gangs.get(name)
    # The same instance as long as nothing has changed: others compare by it.
    made.groups = known.groups if known is not None and known.groups == groups else groups
    made.pack = _pack(spec)
    made.pack_groups = tuple(
        PackGroup(
            _full(meta, one["name"]),
            tuple(_full(meta, member) for member in one.get("podGroupNames") or []),
            _pack(one) or Pack(),
        )
        for one in spec.get("topologyConstraintGroupConfigs") or []
    )
    made.priority_class = spec.get("priorityClassName", "")
    reuse = spec.get("reuseReservationRef") or {}
    made.reuse = full_name(reuse["name"], reuse.get("namespace")) if reuse.get("name") else ""
    made.scheduler = meta.labels.get(SCHEDULER, "")
    made.topology = meta.annotations.get(TOPOLOGY_NOTE, "")
    made.phase = raw.status.get("phase") or PENDING
    made.placement_score = float(raw.status.get("placementScore") or 0.0)
    made.why_pending = raw.status.get("whyPending") or ""
    return made


def _pod_group(meta: Metadata, written: Fields) -> PodGroup:
    pods = [
        full_name(one["name"], one.get("namespace")) for one in written.get("podReferences", [])
    ]
    return PodGroup(
        _full(meta, written["name"]), written["minReplicas"], _pack(written), roster_of(set(pods))
    )


def _pack(written: Fields) -> Pack | None:
    found = (written.get("topologyConstraint") or {}).get("packConstraint")
    if not found:
        return None
    return Pack(found.get("required") or "", found.get("preferred") or "")


def _attachment(kind: str, raw: Received) -> Attachment:
    """Reads an attachment without its content, which the set determines."""
    meta = raw.metadata
    owner = _full(meta, meta.labels.get(PART_OF, ""))
    return Attachment(kind, name_of(meta), owner, _replica_of(meta, owner), {})


# Pods and nodes.


def _pod(raw: Received, view: View, now_s: float) -> Pod:
    meta, spec, status = raw.metadata, raw.spec, raw.status
    place, controller = place_of(meta), meta.controller
    uid, name = "", ""
    if controller is not None and controller.kind == CLIQUE:
        uid, name = controller.uid, _full(meta, controller.name)
    hashed = meta.labels.get(TEMPLATE_HASH, "")
    owner = view.cliques.get(name)
    if owner is not None and owner.uid != uid:
        owner = None
    if owner is not None and place == NOWHERE:  # it lost its labels
        place = owner.place
    waits_for = _waits_for(meta, spec)
    if owner is not None and owner.template.hash == hashed:
        template = owner.template
    else:
        template = _template_of(raw, place, name, hashed)
    if (
        owner is not None
        and owner.template is template
        and owner.place == place
        and owner.starts_after == waits_for
    ):
        clique = owner
    else:
        clique = PodClique(name, place, template, 0, waits_for)
        clique.uid = uid
    hostname = str(spec.get("hostname") or "").rpartition("-")[2]  # cannot be changed
    pod = Pod(name_of(meta), clique, _number(hostname))
    pod.gates = [gate["name"] for gate in spec.get("schedulingGates") or []]
    pod.node = spec.get("nodeName") or ""
    pod.phase = status.get("phase") or PENDING
    conditions = {one.get("type"): one for one in status.get("conditions") or []}
    bound, ready = conditions.get("PodScheduled", {}), conditions.get("Ready", {})
    node = view.nodes.get(pod.node)
    if pod.node:
        since_s = seconds_of(bound.get("lastTransitionTime"), now_s)
        pod.scheduled_s = since_s if since_s >= 0.0 else now_s
        if node is not None and (is_older(pod, node) or is_out_of_service(node)):
            pod.phase = FAILED  # its node is dead, or is another one of that name
    # Kubernetes writes the same into the status of each pod of a node that is not ready.
    pod.ready = ready.get("status") == TRUE and (node is None or node.ready)
    pod.ready_s = seconds_of(ready.get("lastTransitionTime"), now_s) if pod.ready else NEVER
    containers = status.get("containerStatuses") or []
    all_ready = bool(containers) and all(one.get("ready") for one in containers)
    pod.started = all_ready or any(
        one.get("started") and not one.get("ready") for one in containers
    )
    pod.erroneous = not pod.ready and any(_failed(one) for one in containers)
    return pod


def is_older(pod: Pod, node: Thing) -> bool:
    """Whether a pod was bound before the node of that name was created."""
    return pod.scheduled_s + CLOCKS_S < node.created_s


def is_out_of_service(node: Node) -> bool:
    """Whether people say that a node is dead: Kubernetes then drops its pods without asking it."""
    return any(key == OUT_OF_SERVICE for key, _, _ in node.taints)


def _template_of(raw: Received, place: CliquePlace, clique: str, hashed: str) -> CliqueTemplate:
    """Reconstructs the template of an older pod, as far as the pod shows it."""
    around = f"{place.group}-{place.group_replica}-" if place.group else ""
    around = around or f"{place.set_name}-{place.replica}-"
    spec, meta = raw.spec, raw.metadata
    return CliqueTemplate(
        clique.removeprefix(around),
        0,
        0,
        spec,
        requests_of(spec),
        hashed,
        labels=dict(meta.labels),
        annotations=dict(meta.annotations),
        scheduler=scheduler_of(spec),
    )


def _waits_for(meta: Metadata, spec: Fields) -> tuple[tuple[str, int], ...]:
    for container in spec.get("initContainers") or []:
        for word in container.get("args") or () if container.get("name") == WAITER else ():
            if word.startswith(WAITS_FOR):
                pairs = [one.rpartition(":") for one in word.removeprefix(WAITS_FOR).split(",")]
                return tuple((_full(meta, name), _number(count)) for name, _, count in pairs)
    return ()


def _failed(container: Fields) -> bool:
    ends = [(container.get(key) or {}).get("terminated") for key in ("state", "lastState")]
    return any(end and end.get("exitCode") for end in ends)


def _node(raw: Received) -> Node:
    meta, spec, status = raw.metadata, raw.spec, raw.status
    capacity = {}
    for resource, amount in (status.get("allocatable") or {}).items():
        try:
            capacity[resource] = quantity(amount)
        except InputError:
            continue
    taints = [
        (str(one.get("key") or ""), str(one.get("value") or ""), str(one.get("effect") or ""))
        for one in spec.get("taints") or []
        if one.get("key") not in SAID_OTHERWISE
    ]
    made = Node(meta.name, capacity, dict(meta.labels), tuple(taints))
    made.cordoned = bool(spec.get("unschedulable"))
    ready = [one for one in status.get("conditions") or [] if one.get("type") == "Ready"]
    made.ready = any(one.get("status") == TRUE for one in ready)
    return made
