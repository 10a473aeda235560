"""The operator with exactly the declared rights: none is missing, and none is unused."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

from tests.gangs.manifests import clique, group, pod_clique_set
from tests.kubernetes.claims_stage import claims_played
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gang_stage import Stage, stage
from tests.kubernetes.test_operate_command import operate
from tests.kubernetes.test_webhooks import configured, until_ready
from windtunnel.gangs.kubernetes.takeover import FINALIZERS
from windtunnel.gangs.placement.claims import VOLUME_CLAIM
from windtunnel.live.kubernetes.client import Client
from windtunnel.live.kubernetes.resources import CRDS, NODES, Plain, Resource
from windtunnel.live.operate.mirror import CLAIMS, RESOURCES
from windtunnel.live.operate.rights import (
    CLUSTER,
    GANGS,
    HOME,
    HOOKS,
    OPERATOR,
    PLACE,
    RIGHTS,
    WATCHED,
    rules,
)
from windtunnel.live.operate.webhooks import SECRET
from windtunnel.live.rehearse.cluster import install_crds
from windtunnel.live.rehearse.control_plane import free_port
from windtunnel.live.rehearse.kubelets import add_node

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES = Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_BINDINGS = Resource(
    RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ACCOUNT = "windtunnel-operator"
GPU = "nvidia.com/gpu"


async def account(on: Stage, *features: str, one_namespace: bool = False) -> Path:
    """A kubeconfig of a service account with the rights of these features."""
    features = (OPERATOR, *features)
    space, client = on.space, on.client
    home = {"name": ACCOUNT, "namespace": space}
    await client.create(RESOURCES["ServiceAccount"], {"metadata": home}, Plain)
    subject = {"kind": "ServiceAccount", **home}
    everywhere, here = ([CLUSTER], [HOME, WATCHED])
    if not one_namespace:
        everywhere, here = [CLUSTER, WATCHED], [HOME]
    for role, binding, meta, scopes in (
        (CLUSTER_ROLES, CLUSTER_BINDINGS, {"name": space}, everywhere),
        (RESOURCES["Role"], RESOURCES["RoleBinding"], home, here),
    ):
        allowed = {"metadata": meta, "rules": rules(features, *scopes)}
        await client.create(role, allowed, Plain)
        ref = {"apiGroup": RBAC, "kind": role.kind, "name": meta["name"]}
        bound = {"metadata": meta, "roleRef": ref, "subjects": [subject]}
        await client.create(binding, bound, Plain)
    return await kubeconfig_of_account(on.cluster)


async def kubeconfig_of_account(cluster: Cluster, account: str = ACCOUNT) -> Path:
    """A kubeconfig of a service account in the namespace of the test."""
    space = cluster.namespace
    path = f"/api/v1/namespaces/{space}/serviceaccounts/{account}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await cluster.client.request("POST", path, asked))["status"]["token"]
    plane = cluster.plane
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    made = plane.folder / f"kubeconfig-{space}"
    made.write_text(yaml.safe_dump(config))
    return made


@contextlib.asynccontextmanager
async def stand_ins(client: Client, *resources: Resource) -> AsyncIterator[None]:
    """Installs kinds of other projects, with any content, as a cluster does not serve them."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    made: list[Plain] = []
    for one in resources:
        version = {"name": one.version, "served": True, "storage": True}
        names = {"plural": one.plural, "kind": one.kind}
        spec: Plain = {"group": one.group, "names": names, "scope": "Namespaced"}
        spec["versions"] = [{**version, "schema": {"openAPIV3Schema": schema}}]
        meta: Plain = {"name": f"{one.plural}.{one.group}"}
        meta["annotations"] = {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"}
        made.append({"metadata": meta, "spec": spec})
    await install_crds(client, made)
    try:
        yield
    finally:
        for crd in made:
            await client.delete(CRDS, "", crd["metadata"]["name"])


def everything(space: str) -> dict[str, Any]:
    """A set with all that an operator creates: two replicas, ordered, scaled, with claims."""
    usage = {"type": "Utilization", "averageUtilization": 80}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": usage}}]
    roles = [clique("a", 2, autoScalingConfig={"maxReplicas": 3, "metrics": metrics}), clique("b")]
    for one in roles:
        spec = one["spec"]["podSpec"]
        spec["schedulerName"] = "windtunnel"
        spec["nodeSelector"] = {"test": space}
        spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "limits": {GPU: 1}}
    data = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    roles[1]["spec"]["podSpec"]["volumes"] = [data]
    roles[0]["resourceSharing"] = [{"name": "t", "scope": "PerReplica"}]
    roles[0]["annotations"] = {"grove.io/mnnvl-group": "fast"}
    devices = {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu"}}]}}
    template = {"name": "t", "templateSpec": {"spec": devices}}
    return pod_clique_set(
        roles,
        [group("g", ["b"], 2)],
        replicas=2,
        cliqueStartupType="CliqueStartupTypeInOrder",
        resourceClaimTemplates=[template],
    )


async def leave_finalizers(on: Stage) -> None:
    """Adds the finalizers of Grove's own operator, which our operator removes."""
    for kind, name in (("PodCliqueSet", "web"), ("PodCliqueScalingGroup", "web-0-g")):
        change = {"metadata": {"finalizers": [FINALIZERS[kind]]}}
        await on.client.patch(RESOURCES[kind], on.space, name, change, Plain)

        async def gone(kind: str = kind, name: str = name) -> bool:
            return not (await on.get(kind, name)).metadata.finalizers

        await on.cluster.until(gone)


async def add_claim(on: Stage, storage: str) -> None:
    """The one whose volume is made for the first pod that uses it."""
    size = {"requests": {"storage": "1Gi"}}
    spec = {"storageClassName": storage, "accessModes": ["ReadWriteMany"], "resources": size}
    meta = {"name": "data", "namespace": on.space}
    await on.client.create(CLAIMS[VOLUME_CLAIM], {"metadata": meta, "spec": spec}, Plain)


async def live_a_life(on: Stage) -> None:
    """Does everything that needs a right: create, place, wait, preempt, scale down, update."""
    node = f"{on.space}-0"
    await add_node(on.client, node, {"test": on.space}, {"cpu": "8", GPU: "8"})
    await on.apply(everything(on.space))
    await on.until(lambda: on.kubelets.ready() == 8)
    await leave_finalizers(on)
    urgent = everything(on.space)
    urgent["metadata"]["name"] = "urgent"
    urgent["spec"]["template"]["priorityClassName"] = on.space
    await on.client.create(
        RESOURCES["PriorityClass"], {"metadata": {"name": on.space}, "value": 1000}, Plain
    )
    await on.apply(urgent)
    await on.until(
        lambda: sum(on.kubelets.ready(f"urgent-{n}-{c}") for n in (0, 1) for c in "a") == 4
    )
    await on.scale("PodCliqueSet", "urgent", 1)
    await on.scale("PodCliqueSet", "web", 1)
    await on.until_ready(8)
    changed = everything(on.space)
    changed["spec"]["replicas"] = 1
    changed["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]["image"] = "b:2"
    await on.apply(changed)
    await on.until(
        lambda: (
            {pod.spec["containers"][0]["image"] for pod in on.kubelets.alive("web-0-a")} == {"b:2"}
        )
    )
    await on.until_ready(8)


async def replace_certificate(on: Stage, process: asyncio.subprocess.Process) -> None:
    """A garbled certificate is issued again, at the latest when the operator starts."""
    secrets = RESOURCES["Secret"]
    await on.client.patch(secrets, on.space, SECRET, {"data": {"tls.key": ""}}, Plain)
    process.send_signal(signal.SIGHUP)

    async def minted() -> bool:
        return bool((await on.client.get(secrets, on.space, SECRET, Plain))["data"]["tls.key"])

    await on.cluster.until(minted)


async def test_every_right_is_needed_and_no_other_is(cluster: Cluster) -> None:
    computes = stand_ins(cluster.client, RESOURCES["ComputeDomain"])
    async with stage(cluster, slots=None, operator=False) as on, computes:
        file, port = await account(on, GANGS, PLACE, HOOKS), free_port()
        words = ["--kubeconfig", str(file), "--init-image", "x:1", "--place"]
        words += ["--webhook-port", str(port)]
        async with (
            configured(on.client, on.space, port),
            claims_played(on) as storage,
            operate(cluster, *words) as (process, url),
        ):
            await add_claim(on, storage)
            await until_ready(cluster, url)
            await live_a_life(on)
            await replace_certificate(on, process)
        asked = cluster.plane.requests_of(f"{on.space}:{ACCOUNT}")
        granted = await on.client.get(RESOURCES["Role"], on.space, "grove.io:pcs:web", Plain)
        await on.client.delete(NODES, "", f"{on.space}-0")
    refused = [one["requestURI"] for one in asked if one["responseStatus"]["code"] == 403]
    assert refused == []
    early = [one for one in asked if one["verb"] == "create" and asked_of(one)[1] == "rolebindings"]
    assert {one["responseStatus"]["code"] for one in early} == {201}, "after its role"
    used = {asked_of(one) for one in asked if "objectRef" in one}
    used |= {("", below, verb) for one in granted["rules"]
             for below in one["resources"] for verb in one["verbs"]}  # fmt: skip
    declared = {
        (one.resource.group, one.plural, verb)
        for one in RIGHTS
        for verb in one.verbs.split()
        if one.feature in (OPERATOR, GANGS, PLACE, HOOKS)
    }
    # An event is patched when it comes again while it is still remembered.
    assert used | {("events.k8s.io", "events", "patch")} == declared


async def test_for_one_namespace_the_rights_are_of_that_namespace(cluster: Cluster) -> None:
    async with stage(cluster, slots=None, operator=False) as on:
        file = await account(on, GANGS, PLACE, one_namespace=True)
        words = ["--kubeconfig", str(file), "--init-image", "x:1", "--place"]
        await add_node(on.client, f"{on.space}-0", {"test": on.space}, {"cpu": "8", GPU: "8"})
        async with (
            claims_played(on) as storage,
            operate(cluster, *words, "--namespace", on.space),
        ):
            await add_claim(on, storage)
            await on.apply(everything(on.space))
            await on.until(lambda: on.kubelets.ready() == 8)
        asked = cluster.plane.requests_of(f"{on.space}:{ACCOUNT}")
        await on.client.delete(NODES, "", f"{on.space}-0")
    assert [one["requestURI"] for one in asked if one["responseStatus"]["code"] == 403] == []


def asked_of(one: dict[str, Any]) -> tuple[str, str, str]:
    about = one["objectRef"]
    below = f"/{about['subresource']}" if about.get("subresource") else ""
    return about.get("apiGroup", ""), about["resource"] + below, one["verb"]
