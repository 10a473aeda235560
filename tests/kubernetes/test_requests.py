"""Requests to a real API server: writes and their guards, server-side apply, scale, bind, evict."""

import pytest

from tests.kubernetes.cluster import (
    Cluster,
    container,
    labelled,
    new_pod,
    ready_node,
)
from windtunnel.live.kubernetes.client import ObjectSelection
from windtunnel.live.kubernetes.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    NotFound,
    TooManyRequests,
)
from windtunnel.live.kubernetes.resources import (
    CONFIG_MAPS,
    PODS,
    Meta,
    Object,
    Plain,
    Resource,
    Unstructured,
    owner_reference,
)
from windtunnel.live.rehearse.cluster import set_replicas

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")


async def test_writes_are_guarded_by_version_and_uid(cluster: Cluster) -> None:
    client, space = cluster.client, cluster.namespace
    made = await client.create(CONFIG_MAPS, labelled(space, "a", data={"x": "1"}), Unstructured)
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, labelled(space, "a"), Plain)
    changed = await client.patch(CONFIG_MAPS, space, "a", {"data": {"y": "2"}}, Unstructured)
    assert changed.data == {"x": "1", "y": "2"}
    stale = {"namespace": space, "name": "a", "resourceVersion": made.metadata.resource_version}
    with pytest.raises(Conflict) as refused:
        await client.replace(CONFIG_MAPS, {"metadata": stale}, Plain)
    assert not isinstance(refused.value, AlreadyExists)
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, space, "a", uid="another")
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, space, "a", version=made.metadata.resource_version)
    await client.delete(CONFIG_MAPS, space, "a", uid=made.metadata.uid)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, space, "a", Object)


async def test_apply_owns_fields_by_manager_and_names_who_has_them(cluster: Cluster) -> None:
    client, space = cluster.client, cluster.namespace
    body = labelled(space, "a", data={"x": "1", "y": "1"})
    await client.apply(CONFIG_MAPS, body, Plain, manager="windtunnel-gangs")
    with pytest.raises(Conflict) as refused:
        await client.apply(
            CONFIG_MAPS, labelled(space, "a", data={"x": "2"}), Plain, manager="other"
        )
    (cause,) = refused.value.causes
    assert cause.reason == "FieldManagerConflict"
    assert "windtunnel-gangs" in cause.message
    forced = await client.apply(
        CONFIG_MAPS,
        labelled(space, "a", data={"x": "2"}),
        Unstructured,
        manager="other",
        force=True,
    )
    assert forced.data == {"x": "2", "y": "1"}
    left_out = await client.apply(
        CONFIG_MAPS, labelled(space, "a"), Unstructured, manager="windtunnel-gangs"
    )
    assert left_out.data == {"x": "2"}


async def test_scale_changes_replicas_alone(cluster: Cluster) -> None:
    client, space = cluster.client, cluster.namespace
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container()]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    await client.create(DEPLOYMENTS, labelled(space, "a", spec=spec), Plain)
    await set_replicas(client, DEPLOYMENTS, space, "a", 3)
    assert (await client.get_scale(DEPLOYMENTS, space, "a"))["spec"]["replicas"] == 3
    status = {"status": {"replicas": 3}}
    patched = await client.patch(
        DEPLOYMENTS, space, "a", status, Unstructured, subresource="status"
    )
    assert (patched.status["replicas"], patched.spec["replicas"]) == (3, 3)


async def test_a_pod_is_bound_once_and_by_its_uid(cluster: Cluster) -> None:
    client, space = cluster.client, cluster.namespace
    node = await ready_node(cluster)
    pod = await client.create(PODS, new_pod(space, "p"), Unstructured)
    with pytest.raises(Conflict):
        await client.bind(Meta(name="p", namespace=space, uid="another"), node)
    await client.bind(pod.metadata, node)
    with pytest.raises(Conflict):
        await client.bind(pod.metadata, node)
    bound = await client.get(PODS, space, "p", Unstructured)
    assert bound.spec["nodeName"] == node


async def test_an_eviction_that_a_budget_refuses_is_said_at_once(cluster: Cluster) -> None:
    client, space = cluster.client, cluster.namespace
    node = await ready_node(cluster)
    selector = {"matchLabels": {"app": "a"}}
    budget = labelled(space, "b", spec={"minAvailable": 1, "selector": selector})
    await client.create(BUDGETS, budget, Plain)
    pods = []
    for name in ("p", "q"):
        pod = await client.create(PODS, new_pod(space, name), Object)
        await client.bind(pod.metadata, node)
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await client.patch(PODS, space, name, {"status": ready}, Plain, subresource="status")
        pods.append(pod.metadata)
    await cluster.until_evicted(pods[0])
    before = client.requests_sent
    with pytest.raises(TooManyRequests):
        await client.evict(pods[1])
    assert client.requests_sent == before + 1
    free = new_pod(space, "free")
    free["metadata"]["labels"]["app"] = "b"
    await client.create(PODS, free, Plain)
    with pytest.raises(Conflict):
        await client.evict(Meta(name="free", namespace=space, uid="another"))


async def test_children_go_with_their_owner(cluster: Cluster) -> None:
    """The garbage collector runs."""
    client, space = cluster.client, cluster.namespace
    owner = await client.create(CONFIG_MAPS, labelled(space, "owner"), Object)
    child = labelled(space, "child")
    child["metadata"]["ownerReferences"] = [owner_reference(CONFIG_MAPS, owner.metadata)]
    await client.create(CONFIG_MAPS, child, Plain)
    await client.delete(CONFIG_MAPS, space, "owner", uid=owner.metadata.uid)

    async def gone() -> bool:
        listed = await client.list_all(CONFIG_MAPS, ObjectSelection(space, "windtunnel=test"))
        return not listed.items

    await cluster.until(gone)


async def test_what_may_not_be_done_says_so(cluster: Cluster) -> None:
    async with cluster.connect("nobody", "windtunnel:nothing") as stranger:
        with pytest.raises(Forbidden, match='User "nobody" cannot list resource "pods"'):
            await stranger.list_all(PODS, ObjectSelection(cluster.namespace))
