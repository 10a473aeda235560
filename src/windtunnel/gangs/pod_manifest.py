"""Objects of the gang layer as Kubernetes would hold them: labels, environment, gates."""

import copy
from typing import Any, Final

from windtunnel.gangs import names
from windtunnel.gangs.controllers.attachments import MNNVL_CLAIM, claims_of, mnnvl_group
from windtunnel.gangs.objects import Pod, PodClique, PodCliqueSet, PodGang, ScalingGroup
from windtunnel.gangs.templates import Pack, SetSpec

GROVE: Final = "grove.io/v1alpha1"
SCHEDULER_GROVE: Final = "scheduler.grove.io/v1alpha1"
WAITER: Final = "grove-initc"
"""The init container that waits for the cliques that come before."""

Json = dict[str, Any]


def pod_manifest(owner: PodCliqueSet, pod: Pod) -> Json:
    """A pod as it would be created."""
    clique, spec = names.short(pod.clique), copy.deepcopy(pod.template.pod_spec)
    made: Json = dict(spec)
    made["schedulerName"] = pod.scheduler
    made["schedulingGates"] = [{"name": gate} for gate in pod.gates]
    made["hostname"] = names.host(pod.clique, pod.index)
    made["subdomain"] = names.short(names.base_gang(owner.name, pod.replica))
    if owner.spec.priority_class:
        made["priorityClassName"] = owner.spec.priority_class
    for container in _containers(made):
        container["env"] = _environment(owner, pod, container.get("env") or [])
    if pod.waits_for:
        waits = ",".join(f"{names.short(name)}:{count}" for name, count in pod.waits_for)
        waiter = {"name": WAITER, "args": [f"--podcliques={waits}"]}
        made["initContainers"] = [*(made.get("initContainers") or []), waiter]
    _claim(owner.spec, pod, made)
    metadata = _metadata(owner, pod.name, pod_labels(pod))
    if pod.template.annotations:
        metadata["annotations"] = dict(pod.template.annotations)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "ownerReferences": [{"kind": "PodClique", "name": clique}]},
        "spec": made,
    }


def _containers(spec: Json) -> list[Json]:
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def _metadata(owner: PodCliqueSet, name: str, labels: dict[str, str]) -> Json:
    common = {
        "app.kubernetes.io/managed-by": "grove-operator",
        "app.kubernetes.io/part-of": names.short(owner.name),
        "app.kubernetes.io/name": names.short(name),
    }
    return {
        "name": names.short(name),
        "namespace": names.namespace(owner.name),
        "labels": {**labels, **common},
    }


def _place_labels(
    replica: int, group: str, group_replica: int, gang: str, base_gang: str
) -> dict[str, str]:
    found = {
        "grove.io/podgang": names.short(gang),
        "grove.io/podcliqueset-replica-index": str(replica),
    }
    if group:
        found["grove.io/podcliquescalinggroup"] = names.short(group)
        found["grove.io/podcliquescalinggroup-replica-index"] = str(group_replica)
    if base_gang:
        found["grove.io/base-podgang"] = names.short(base_gang)
    return found


def pod_labels(pod: Pod) -> dict[str, str]:
    """The labels of a pod that tell it from others: of its template, and Grove's."""
    return {
        **pod.template.labels,
        "app.kubernetes.io/part-of": names.short(pod.set_name),
        "app.kubernetes.io/component": "pcs-pod",
        "grove.io/podclique": names.short(pod.clique),
        **_place_labels(pod.replica, pod.group, pod.group_replica, pod.gang, pod.base_gang),
        "grove.io/podclique-pod-index": str(pod.index),
        "grove.io/pod-template-hash": pod.template_hash,
    }


def _environment(owner: PodCliqueSet, pod: Pod, own: list[Json]) -> list[Json]:
    """Ours first; what a container says under one of our names gives way."""
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
    index = {"fieldPath": "metadata.labels['grove.io/podclique-pod-index']"}
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


def clique_manifest(owner: PodCliqueSet, clique: PodClique) -> Json:
    labels = _place_labels(
        clique.replica, clique.group, clique.group_replica, clique.gang, clique.base_gang
    )
    labels["grove.io/pod-template-hash"] = clique.template.hash
    spec: Json = {
        "roleName": clique.template.role_name,
        "replicas": clique.replicas,
        "minAvailable": clique.min_available,
        "podSpec": copy.deepcopy(clique.template.pod_spec),
    }
    if clique.starts_after:
        spec["startsAfter"] = [names.short(name) for name, _ in clique.starts_after]
    metadata = _metadata(owner, clique.name, labels)
    return {"apiVersion": GROVE, "kind": "PodClique", "metadata": metadata, "spec": spec}


def group_manifest(owner: PodCliqueSet, group: ScalingGroup) -> Json:
    labels = {"grove.io/podcliqueset-replica-index": str(group.replica)}
    spec = {
        "replicas": group.replicas,
        "minAvailable": group.min_available,
        "cliqueNames": list(group.members),
    }
    metadata = _metadata(owner, group.name, labels)
    return {
        "apiVersion": GROVE,
        "kind": "PodCliqueScalingGroup",
        "metadata": metadata,
        "spec": spec,
    }


def gang_manifest(owner: PodCliqueSet, gang: PodGang) -> Json:
    """A gang as a scheduler gets it."""
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
    labels["grove.io/scheduler-name"] = gang.scheduler
    metadata = _metadata(owner, gang.name, labels)
    annotations = {key: text for key, text in owner.spec.annotations.items() if not _is_ours(key)}
    if gang.topology:
        annotations["grove.io/topology-name"] = gang.topology
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": SCHEDULER_GROVE, "kind": "PodGang", "metadata": metadata, "spec": spec}


def _is_ours(key: str) -> bool:
    return key.startswith("grove.io/")


def _packed(pack: Pack | None) -> Json:
    if pack is None:
        return {}
    wishes = (("required", pack.required), ("preferred", pack.preferred))
    return {"topologyConstraint": {"packConstraint": {word: key for word, key in wishes if key}}}
