"""Objects that a set needs besides its pods: services, autoscalers, shared claims, accounts."""

from collections.abc import Iterator, Mapping
from typing import Final

from windtunnel.gangs import names
from windtunnel.gangs.commands import Command, Delete
from windtunnel.gangs.controllers.generation import Outline, create, group_replicas
from windtunnel.gangs.objects import CLIQUE, GROUP, Attachment, Pod, PodCliqueSet
from windtunnel.gangs.templates import MNNVL, ClaimSharing, ScaleBounds, SetSpec
from windtunnel.gangs.view import View

SERVICE: Final = "Service"
CLAIM: Final = "ResourceClaim"
AUTOSCALER: Final = "HorizontalPodAutoscaler"
COMPUTE_DOMAIN: Final = "ComputeDomain"
GPU: Final = "nvidia.com/gpu"
MNNVL_CLAIM: Final = "mnnvl-claim"
GROVE: Final = "grove.io/v1alpha1"
ACCOUNT_SUFFIX: Final = "-ic-sat"
"""Suffix of the name of the secret that holds the token waiting pods use."""
FROM_TEMPLATE: Final = "windtunnel/resource-claim-template"
"""Annotation of a claim that takes its spec from this claim template in the cluster."""


def keep_set(view: View, owner: PodCliqueSet, commands: list[Command]) -> str:
    """Adds commands for the set-wide objects: the account of its waiting pods, and claims shared by
    all replicas.

    Returns a description of an object that cannot be created because another owner has it, or "".
    """
    wanted = {one.key: one for one in _of_set(owner)}
    return _keep(view, owner, -1, wanted, commands)


def keep_replica(view: View, owner: PodCliqueSet, outline: Outline, commands: list[Command]) -> str:
    """Adds commands for the attachments of one set replica; returns a clash as `keep_set` does."""
    spec = owner.spec
    part = owner.parts.get(outline.replica)
    if spec.needs_only_services:
        # The usual case, checked for every replica that changed.
        if part is not None and outline.service in part.attachments:
            return ""
        return create(view, owner, _service(owner, outline), commands)
    wanted = {one.key: one for one in _of_replica(view, owner, outline)}
    return _keep(view, owner, outline.replica, wanted, commands)


def drop_replica(view: View, owner: PodCliqueSet, replica: int, commands: list[Command]) -> None:
    _keep(view, owner, replica, {}, commands)


def _keep(
    view: View,
    owner: PodCliqueSet,
    replica: int,
    wanted: dict[str, Attachment],
    commands: list[Command],
) -> str:
    part = owner.parts.get(replica)
    there = {} if part is None else part.attachments
    for key, attached in there.items():
        if key not in wanted:
            why = "nothing needs it any more"
            commands.append(Delete(attached, why))
    clash = ""
    for key, one in wanted.items():
        if key in there:
            continue
        whose = create(view, owner, one, commands)
        clash = clash or whose
    return clash


def _of_set(owner: PodCliqueSet) -> Iterator[Attachment]:
    """Yields the account with which waiting pods watch others, and the claims for all replicas."""
    name = owner.name
    account, space = names.short(name), names.namespace(name)
    role = f"grove.io:pcs:{account}"
    full = name[: len(name) - len(account)] + role
    rule = {"apiGroups": [""], "resources": ["pods", "pods/status"]}
    yield _attached(owner, "ServiceAccount", name, -1, {})
    rules = [{**rule, "verbs": ["get", "list", "watch"]}]
    yield _attached(owner, "Role", full, -1, {"rules": rules})
    binding = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": space}],
    }
    yield _attached(owner, "RoleBinding", full, -1, binding)
    token = {
        "type": "kubernetes.io/service-account-token",
        "metadata": {"annotations": {"kubernetes.io/service-account.name": account}},
    }
    yield _attached(owner, "Secret", f"{name}{ACCOUNT_SUFFIX}", -1, token)
    for one in owner.spec.sharing:
        if not one.per_replica:
            yield _claim(owner, -1, name, "all", one)


def _attached(
    owner: PodCliqueSet, kind: str, name: str, replica: int, body: Mapping[str, object]
) -> Attachment:
    made = Attachment(kind, name, owner.name, replica, dict(body))
    made.owner_uid = owner.uid
    return made


def _service(owner: PodCliqueSet, outline: Outline) -> Attachment:
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": owner.spec.publish_not_ready,
        "selector": {
            "app.kubernetes.io/part-of": names.short(owner.name),
            "grove.io/podcliqueset-replica-index": str(outline.replica),
        },
    }
    return _attached(owner, SERVICE, outline.base, outline.replica, {"spec": spec})


def _of_replica(view: View, owner: PodCliqueSet, outline: Outline) -> Iterator[Attachment]:
    spec, replica = owner.spec, outline.replica
    yield _service(owner, outline)
    for one in spec.sharing:
        if one.per_replica:
            yield _claim(owner, replica, owner.name, str(replica), one)
    for role, name in outline.cliques:
        template = spec.roles[role]
        if template.scale is not None:
            yield _autoscaler(owner, replica, CLIQUE, name, template.scale)
        clique = view.cliques.get(name)
        count = template.replicas if clique is None else clique.replicas
        yield from _claims(owner, replica, name, template.sharing, count)
    for group, name in outline.groups:
        if group.scale is not None:
            yield _autoscaler(owner, replica, GROUP, name, group.scale)
        count = group_replicas(view, name, group)
        yield from _claims(owner, replica, name, group.sharing, count)
        for index in range(count):
            for role in group.roles:
                member = spec.roles[role]
                full = names.member(name, index, role)
                yield from _claims(owner, replica, full, member.sharing, member.replicas)
    for domain in sorted(_mnnvl_groups(spec)):
        name = f"{owner.name}-{replica}-{domain}"
        channel = {"resourceClaimTemplate": {"name": names.short(name)}}
        elastic = {"numNodes": 0, "channel": channel}
        yield _attached(owner, COMPUTE_DOMAIN, name, replica, {"spec": elastic})


def _autoscaler(
    owner: PodCliqueSet, replica: int, kind: str, name: str, bounds: ScaleBounds
) -> Attachment:
    target = {"apiVersion": GROVE, "kind": kind, "name": names.short(name)}
    spec = {
        "scaleTargetRef": target,
        "minReplicas": bounds.minimum,
        "maxReplicas": bounds.maximum,
        "metrics": list(bounds.metrics),
    }
    return _attached(owner, AUTOSCALER, name, replica, {"spec": spec})


def _claims(
    owner: PodCliqueSet, replica: int, name: str, sharing: tuple[ClaimSharing, ...], count: int
) -> Iterator[Attachment]:
    for one in sharing:
        if one.per_replica:
            for index in range(count):
                yield _claim(owner, replica, name, str(index), one)
        else:
            yield _claim(owner, replica, name, "all", one)


def _claim(
    owner: PodCliqueSet, replica: int, name: str, which: str, sharing: ClaimSharing
) -> Attachment:
    inline = owner.spec.claim_templates.get(sharing.name)
    if inline is None:  # it takes its spec from a template in the cluster
        where = f"{sharing.namespace or names.namespace(owner.name)}/{sharing.name}"
        body: Mapping[str, object] = {"metadata": {"annotations": {FROM_TEMPLATE: where}}}
    else:
        body = {"spec": inline.get("spec", {})}
    return _attached(owner, CLAIM, f"{name}-{which}-{sharing.name}", replica, body)


def claims_of(spec: SetSpec, pod: Pod) -> list[str]:
    """The names of the shared claims that a pod uses."""
    role = pod.template.name
    group = spec.group_of.get(role)
    around = (role,) if group is None else (role, group.name)
    found = []
    for one in spec.sharing:
        unfiltered = not one.roles and not one.groups
        if unfiltered or any(name in one.roles or name in one.groups for name in around):
            which = str(pod.replica) if one.per_replica else "all"
            found.append(f"{pod.set_name}-{which}-{one.name}")
    if group is not None:
        for one in group.sharing:
            if not one.roles or role in one.roles:
                which = str(pod.group_replica) if one.per_replica else "all"
                found.append(f"{pod.group}-{which}-{one.name}")
    for one in spec.roles[role].sharing:
        which = str(pod.index) if one.per_replica else "all"
        found.append(f"{pod.clique}-{which}-{one.name}")
    return found


def mnnvl_group(spec: SetSpec, role: str) -> str:
    """Returns the NVLink domain that the pods of a role join, by the most specific annotation."""
    template, group = spec.roles[role], spec.group_of.get(role)
    if GPU not in template.requests:
        return ""
    for annotations in (template.annotations, group.annotations if group else {}, spec.annotations):
        if MNNVL in annotations:
            return "" if annotations[MNNVL] == "none" else annotations[MNNVL]
    return ""


def _mnnvl_groups(spec: SetSpec) -> set[str]:
    return {mnnvl_group(spec, role) for role in spec.roles} - {""}
