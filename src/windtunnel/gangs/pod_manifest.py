"""Kubernetes manifests of the objects of the gang layer: labels, environment, gates."""

import copy
from typing import Any, Final

import msgspec

from windtunnel.gangs import names
from windtunnel.gangs.controllers.attachments import (
    ACCOUNT_SUFFIX,
    GROVE,
    MNNVL_CLAIM,
    claims_of,
    mnnvl_group,
)
from windtunnel.gangs.objects import (
    GATE,
    Attachment,
    GangMember,
    Owned,
    Pod,
    PodClique,
    PodCliqueSet,
    PodGang,
    ScalingGroup,
    Thing,
)
from windtunnel.gangs.templates import Pack, SetSpec

SCHEDULER_GROVE: Final = "scheduler.grove.io/v1alpha1"
WAITER: Final = "grove-initc"
"""The init container that waits for the cliques that start first."""
WAITER_IMAGE: Final = "$(GROVE_INIT_CONTAINER_IMAGE)"
"""Replaced by the operator, which gets the image from its environment."""
ACCOUNT_VOLUME: Final = "sa-token-secret-vol"
INFO_VOLUME: Final = "pod-info-vol"
WAITS_FOR: Final = "--podcliques="

PART_OF: Final = "app.kubernetes.io/part-of"
POD_CLIQUE: Final = "grove.io/podclique"
POD_INDEX: Final = "grove.io/podclique-pod-index"
TEMPLATE_HASH: Final = "grove.io/pod-template-hash"
GANG_LABEL: Final = "grove.io/podgang"
BASE_GANG: Final = "grove.io/base-podgang"
SET_INDEX: Final = "grove.io/podcliqueset-replica-index"
GROUP_LABEL: Final = "grove.io/podcliquescalinggroup"
GROUP_INDEX: Final = "grove.io/podcliquescalinggroup-replica-index"
SCHEDULER: Final = "grove.io/scheduler-name"
TOPOLOGY_NOTE: Final = "grove.io/topology-name"
CLIQUE_NOTE: Final = "windtunnel.dev/clique"
"""Annotation with what a clique was made of besides its pod spec, as JSON."""

KINDS: Final = {
    "PodCliqueSet": (GROVE, ""),
    "PodCliqueScalingGroup": (GROVE, "pcs-podcliquescalinggroup"),
    "PodClique": (GROVE, "pcs-podclique"),
    "PodGang": (SCHEDULER_GROVE, "podgang"),
    "Pod": ("v1", "pcs-pod"),
    "Service": ("v1", "pcs-headless-service"),
    "ServiceAccount": ("v1", "pod-service-account"),
    "Secret": ("v1", "pod-sa-token-secret"),
    "Role": ("rbac.authorization.k8s.io/v1", "pod-role"),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "pod-role-binding"),
    "HorizontalPodAutoscaler": ("autoscaling/v2", "pcs-hpa"),
    "ResourceClaim": ("resource.k8s.io/v1", "resource-claim"),
    "ComputeDomain": ("resource.nvidia.com/v1beta1", ""),
}
"""By kind, the apiVersion and the component label of its objects."""

Json = dict[str, Any]


def _manifest(owner: PodCliqueSet, above: Thing, thing: Owned, labels: dict[str, str]) -> Json:
    """Returns the common part of a manifest: names, labels and owner reference."""
    version, component = KINDS[thing.kind]
    if isinstance(thing, PodClique) and thing.group:
        component = "pcsg-podclique"
    common = {
        "app.kubernetes.io/managed-by": "grove-operator",
        PART_OF: names.short(owner.name),
        "app.kubernetes.io/name": names.short(thing.name).replace(":", "-"),  # as labels must be
    }
    if component:
        common["app.kubernetes.io/component"] = component
    reference = {
        "apiVersion": KINDS[above.kind][0],
        "kind": above.kind,
        "name": names.short(above.name),
        "uid": above.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata: Json = {
        "name": names.short(thing.name),
        "namespace": names.namespace(owner.name),
        "uid": thing.uid,
        "labels": {**labels, **common},
        "ownerReferences": [reference],
    }
    return {"apiVersion": version, "kind": thing.kind, "metadata": metadata}


def attachment_manifest(owner: PodCliqueSet, attached: Attachment) -> Json:
    """Returns the manifest of a service, an autoscaler, a claim or a part of an account."""
    labels = {}
    if attached.replica >= 0:
        labels[SET_INDEX] = str(attached.replica)
    made = _manifest(owner, owner, attached, labels)
    body = copy.deepcopy(attached.body)
    more = body.pop("metadata", {})
    assert isinstance(more, dict)
    made["metadata"].update(more)
    return {**made, **body}


def pod_manifest(owner: PodCliqueSet, clique: PodClique, pod: Pod) -> Json:
    """Returns a pod as it would be created: gated, regardless of its current state."""
    made: Json = copy.deepcopy(pod.template.pod_spec)
    made["schedulerName"] = pod.scheduler
    made["schedulingGates"] = [{"name": gate} for gate in (GATE, *pod.template.gates)]
    made["hostname"] = names.host(pod.clique, pod.index)
    made["subdomain"] = names.short(names.base_gang(owner.name, pod.replica))
    if owner.spec.priority_class:
        made["priorityClassName"] = owner.spec.priority_class
    if pod.waits_for:
        _add_waiter(owner, pod, made)
    for container in _containers(made):
        container["env"] = _environment(owner, pod, container.get("env") or [])
    _claim(owner.spec, pod, made)
    manifest = _manifest(owner, clique, pod, pod_labels(pod))
    if pod.template.annotations:
        manifest["metadata"]["annotations"] = dict(pod.template.annotations)
    return {**manifest, "spec": made}


def _add_waiter(owner: PodCliqueSet, pod: Pod, made: Json) -> None:
    """Adds a last init container that waits until the pods of the cliques that start first are
    ready."""
    waits = ",".join(f"{names.short(name)}:{count}" for name, count in pod.waits_for)
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    waiter = {
        "name": WAITER,
        "image": WAITER_IMAGE,
        "args": [f"{WAITS_FOR}{waits}"],
        "volumeMounts": [
            {"name": ACCOUNT_VOLUME, "mountPath": account, "readOnly": True},
            {"name": INFO_VOLUME, "mountPath": "/var/grove/pod-info", "readOnly": True},
        ],
    }
    gang = {"fieldPath": f"metadata.labels['{GANG_LABEL}']"}
    space = {"fieldPath": "metadata.namespace"}
    items = [{"path": "namespace", "fieldRef": space}, {"path": "podgang", "fieldRef": gang}]
    volumes = [
        {
            "name": ACCOUNT_VOLUME,
            "secret": {"secretName": f"{names.short(owner.name)}{ACCOUNT_SUFFIX}"},
        },
        {"name": INFO_VOLUME, "downwardAPI": {"items": items}},
    ]
    made["initContainers"] = [*(made.get("initContainers") or []), waiter]
    made["volumes"] = [*(made.get("volumes") or []), *volumes]


def _containers(spec: Json) -> list[Json]:
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def _place_labels(thing: GangMember) -> dict[str, str]:
    found = {
        GANG_LABEL: names.short(thing.gang),
        SET_INDEX: str(thing.replica),
    }
    if thing.group:
        found[GROUP_LABEL] = names.short(thing.group)
        found[GROUP_INDEX] = str(thing.group_replica)
    if thing.base_gang:
        found[BASE_GANG] = names.short(thing.base_gang)
    return found


def pod_labels(pod: Pod) -> dict[str, str]:
    """Returns the identifying labels of a pod: its template's, and Grove's."""
    return {
        **pod.template.labels,
        PART_OF: names.short(pod.set_name),
        "app.kubernetes.io/component": KINDS[pod.kind][1],
        POD_CLIQUE: names.short(pod.clique),
        **_place_labels(pod),
        POD_INDEX: str(pod.index),
        TEMPLATE_HASH: pod.template_hash,
    }


def _environment(owner: PodCliqueSet, pod: Pod, own: list[Json]) -> list[Json]:
    """Returns our variables, then a container's own; ours win on equal names."""
    service = names.short(names.base_gang(owner.name, pod.replica))
    values = {
        "GROVE_PCS_NAME": names.short(owner.name),
        "GROVE_PCS_INDEX": str(pod.replica),
        "GROVE_PCLQ_NAME": names.short(pod.clique),
        "GROVE_HEADLESS_SERVICE": f"{service}.{names.namespace(owner.name)}.svc.cluster.local",
    }
    group = owner.spec.group_of.get(pod.template.name)
    if group is not None:
        total = sum(owner.spec.roles[role].replicas for role in group.roles)
        values["GROVE_PCSG_NAME"] = names.short(pod.group)
        values["GROVE_PCSG_INDEX"] = str(pod.group_replica)
        values["GROVE_PCSG_TEMPLATE_NUM_PODS"] = str(total)
    index = {"fieldPath": f"metadata.labels['{POD_INDEX}']"}
    found: list[Json] = [{"name": name, "value": value} for name, value in values.items()]
    found.append({"name": "GROVE_PCLQ_POD_INDEX", "valueFrom": {"fieldRef": index}})
    ours = {entry["name"] for entry in found}
    return found + [entry for entry in own if entry.get("name") not in ours]


def _claim(spec: SetSpec, pod: Pod, made: Json) -> None:
    claims: list[Json] = [
        {"name": names.short(claim), "resourceClaimName": names.short(claim)}
        for claim in claims_of(spec, pod)
    ]
    domain = mnnvl_group(spec, pod.template.name)
    if domain:
        template = f"{names.short(pod.set_name)}-{pod.replica}-{domain}"
        claims.append({"name": MNNVL_CLAIM, "resourceClaimTemplateName": template})
    if not claims:
        return
    made["resourceClaims"] = [*(made.get("resourceClaims") or []), *claims]
    for container in made["containers"]:
        resources = container.setdefault("resources", {})
        used = [{"name": claim["name"]} for claim in claims]
        resources["claims"] = [*(resources.get("claims") or []), *used]


def clique_manifest(owner: PodCliqueSet, above: Thing, clique: PodClique) -> Json:
    """Returns the manifest of a clique; `above` is its scaling group, or the set."""
    labels = {**_place_labels(clique), TEMPLATE_HASH: clique.template.hash}
    spec: Json = {
        "roleName": clique.template.role_name,
        "replicas": clique.replicas,
        "minAvailable": clique.min_available,
        "podSpec": copy.deepcopy(clique.template.pod_spec),
    }
    if clique.starts_after:
        spec["startsAfter"] = [names.short(name) for name, _ in clique.starts_after]
    made = _manifest(owner, above, clique, labels)
    made["metadata"]["annotations"] = {CLIQUE_NOTE: clique_note(clique)}
    return {**made, "spec": spec}


class CliqueNote(msgspec.Struct, omit_defaults=True, rename="camel"):
    """What a clique was made of, besides its pod spec."""

    template: dict[str, Any]
    incarnation: int = 0
    starts_after: dict[str, int] = {}


def clique_note(clique: PodClique) -> str:
    """Returns the value of a clique's annotation `CLIQUE_NOTE`."""
    template = msgspec.to_builtins(clique.template)
    del template["podSpec"]
    after = {names.short(name): count for name, count in clique.starts_after}
    return msgspec.json.encode(CliqueNote(template, clique.incarnation, after)).decode()


def group_manifest(owner: PodCliqueSet, group: ScalingGroup) -> Json:
    labels = {SET_INDEX: str(group.replica)}
    spec = {
        "replicas": group.replicas,
        "minAvailable": group.min_available,
        "cliqueNames": list(group.members),
    }
    return {**_manifest(owner, owner, group, labels), "spec": spec}


def gang_manifest(owner: PodCliqueSet, gang: PodGang) -> Json:
    """Returns a gang as a scheduler receives it."""
    space = names.namespace(owner.name)
    podgroups = []
    for group in gang.groups:
        pods = [{"namespace": space, "name": names.short(pod)} for pod in group.pods]
        entry: Json = {"name": names.short(group.name), "podReferences": pods}
        podgroups.append({**entry, "minReplicas": group.min_replicas, **_packed(group.pack)})
    spec: Json = {"podgroups": podgroups, **_packed(gang.pack)}
    if gang.pack_groups:
        spec["topologyConstraintGroupConfigs"] = [
            {
                "name": names.short(one.name),
                "podGroupNames": [names.short(name) for name in one.pod_groups],
                **_packed(one.pack),
            }
            for one in gang.pack_groups
        ]
    if gang.priority_class:
        spec["priorityClassName"] = gang.priority_class
    labels = {key: text for key, text in owner.spec.labels.items() if not _is_ours(key)}
    labels[SCHEDULER] = gang.scheduler
    labels[SET_INDEX] = str(gang.replica)
    made = _manifest(owner, owner, gang, labels)
    annotations = {key: text for key, text in owner.spec.annotations.items() if not _is_ours(key)}
    if gang.topology:
        annotations[TOPOLOGY_NOTE] = gang.topology
    if annotations:
        made["metadata"]["annotations"] = annotations
    return {**made, "spec": spec}


def _is_ours(key: str) -> bool:
    return key.startswith("grove.io/")


def _packed(pack: Pack | None) -> Json:
    if pack is None:
        return {}
    wishes = (("required", pack.required), ("preferred", pack.preferred))
    return {"topologyConstraint": {"packConstraint": {word: key for word, key in wishes if key}}}
