"""The autoscaler with exactly the rights that are declared for it."""

from __future__ import annotations

from tests.gangs.manifests import clique, pod_clique_set
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gang_stage import stage
from tests.kubernetes.scaling_stage import (
    DEPLOYMENTS,
    autoscaler,
    deployment,
    ready_pods,
    served,
    until_condition,
    until_event,
    until_size,
)
from tests.kubernetes.test_operate_command import operate
from tests.kubernetes.test_rights import ACCOUNT, account, asked_of
from windtunnel.live.operate.mirror import RESOURCES
from windtunnel.live.operate.rights import AUTOSCALE, GANGS, RIGHTS, SCALABLE
from windtunnel.live.rehearse.cluster import set_replicas


async def test_scaling_needs_what_is_declared_for_it(cluster: Cluster) -> None:
    async with stage(cluster, operator=False) as on, served() as metrics:
        on.kubelets.address_of = lambda _: "127.0.0.1"
        file = await account(on, GANGS, AUTOSCALE)
        await deployment(cluster)
        await ready_pods(cluster)
        await autoscaler(cluster, metrics.port)
        async with operate(cluster, "--kubeconfig", str(file), "--autoscale"):
            await until_size(cluster, 6)
            await until_condition(cluster, "AbleToScale", "True", "ReadyForNewScale")
            await set_replicas(cluster.client, DEPLOYMENTS, cluster.namespace, "chat", 3)
            await until_condition(cluster, "Contested", "True", "ForeignChange")
            await until_event(cluster, "ForeignChange")
            await on.apply(pod_clique_set([clique("a", 2, 1)], [], 1))
            await on.until(lambda: on.kubelets.ready("web-0-a") == 2)
            one = {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "name": "web-0-a"}
            await autoscaler(cluster, metrics.port, "gangs", target=one)
            await until_size(cluster, 6, RESOURCES["PodClique"], "web-0-a")
        asked = cluster.plane.requests_of(f"{on.space}:{ACCOUNT}")
    assert [one["requestURI"] for one in asked if one["responseStatus"]["code"] == 403] == []
    used = {asked_of(one) for one in asked if "objectRef" in one}
    kinds = {one[:2] for one in used}
    declared = {
        (one.resource.group, one.plural, verb)
        for one in RIGHTS
        for verb in one.verbs.split()
        if one.feature == AUTOSCALE
    }
    unused = {one for one in declared if one[:2] in kinds} - used
    # Of the Deployment alone somebody else has changed the scale; no event has come twice.
    asks_who = {(one.group, one.plural, "get") for one in SCALABLE}
    assert unused <= asks_who | {("events.k8s.io", "events", "patch")}
    assert ("apps", "deployments", "get") in used


async def test_without_gangs_nothing_of_grove_is_asked_for(cluster: Cluster) -> None:
    async with stage(cluster, operator=False) as on, served() as metrics:
        on.kubelets.address_of = lambda _: "127.0.0.1"
        file = await account(on, AUTOSCALE)
        await deployment(cluster)
        await ready_pods(cluster)
        await autoscaler(cluster, metrics.port)
        async with operate(cluster, "--kubeconfig", str(file), "--autoscale", "--no-gangs"):
            await until_size(cluster, 6)
        asked = cluster.plane.requests_of(f"{on.space}:{ACCOUNT}")
    assert [one["requestURI"] for one in asked if one["responseStatus"]["code"] == 403] == []
    assert not any("grove.io" in one["requestURI"] for one in asked)
