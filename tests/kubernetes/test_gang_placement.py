"""Gang placement on a real API server: whole gangs are bound, and waiting ones say why."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.gangs.manifests import clique, pod_clique_set
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gang_stage import Stage, stage
from windtunnel.gangs.placement.claims import (
    SELECTED_NODE,
    STORAGE_CLASS,
    VOLUME,
    VOLUME_CLAIM,
)
from windtunnel.live.kubernetes.resources import NODES, PODS, Plain, Unstructured
from windtunnel.live.operate.evictions import BUDGETS
from windtunnel.live.operate.mirror import CLAIMS, RESOURCES, TOPOLOGY
from windtunnel.live.rehearse.kubelets import add_node

CPUS = "4"


async def add(on: Stage, number: int) -> str:
    """A node for the pods of this test only, with room for four of them."""
    name = f"{on.space}-{number}"
    await add_node(on.client, name, {"test": on.space}, {"cpu": CPUS})
    return name


def placed(on: Stage, pods: int, name: str = "web") -> dict[str, Any]:
    role = clique("a", pods)
    spec = role["spec"]["podSpec"]
    spec["schedulerName"] = "windtunnel"
    spec["nodeSelector"] = {"test": on.space}
    spec["containers"][0]["resources"]["requests"]["cpu"] = "1"
    return pod_clique_set([role], name=name)


async def test_a_gang_is_bound_whole_or_not_at_all_and_says_why(cluster: Cluster) -> None:
    async with stage(cluster, slots=None) as on:
        nodes = [await add(on, 0)]
        other = {"nodeName": nodes[0], "containers": [{"name": "m", "image": "x"}]}
        other["containers"][0]["resources"] = {"requests": {"cpu": "1"}}  # type: ignore[index]
        taken = {"metadata": {"name": "other", "namespace": on.space}, "spec": other}
        await on.client.create(PODS, taken, Plain)
        await on.apply(placed(on, 4))

        async def says_why() -> bool:
            pods = on.kubelets.alive("web-0-a")
            conditions = [one for pod in pods for one in pod.status.get("conditions") or []]
            said = (await on.status("PodGang", "web-0")).get("whyPending", "")
            told = [one for one in conditions if one.get("reason") == "Unschedulable"]
            return len(told) == 4 and bool(said) and said == told[0]["message"]

        await cluster.until(says_why)
        gang = await on.get("PodGang", "web-0")
        assert "cpu" in gang.status["whyPending"]
        assert {pod.spec.get("nodeName") for pod in on.kubelets.alive("web-0-a")} == {None}
        nodes.append(await add(on, 1))
        await on.until(lambda: on.kubelets.ready("web-0-a") == 4)

        async def scheduled() -> bool:
            found = await on.status("PodGang", "web-0")
            return found["phase"] == "Running" and "whyPending" not in found

        await cluster.until(scheduled)
        assert on.calls("failed") == {}
        for name in nodes:
            await on.client.delete(NODES, "", name)


async def test_another_operator_counts_what_was_bound_before_it(cluster: Cluster) -> None:
    async with stage(cluster, slots=None) as on:
        name = await add(on, 0)
        await on.apply(placed(on, 3))
        await on.until(lambda: on.kubelets.ready("web-0-a") == 3)
    async with stage(cluster, slots=None) as on:
        await on.apply(placed(on, 2, "late"))

        async def waits() -> bool:
            return bool((await on.status("PodGang", "late-0")).get("whyPending"))

        await cluster.until(waits)
        bound = [pod for pod in on.kubelets.alive("late-0-a") if pod.spec.get("nodeName")]
        assert bound == []
        await on.scale("PodCliqueSet", "web", 0)
        await on.until(lambda: on.kubelets.ready("late-0-a") == 2)
        await on.client.delete(NODES, "", name)


@pytest.mark.parametrize("kept", ["all", "one", "some"])
async def test_a_gang_makes_way_when_its_disruption_budgets_allow_it(
    cluster: Cluster, kept: str
) -> None:
    """No pod of a gang is evicted as long as one of them may not be."""
    async with stage(cluster, slots=None) as on:
        name = await add(on, 0)
        urgent = {"metadata": {"name": on.space}, "value": 1000}
        await on.client.create(RESOURCES["PriorityClass"], urgent, Plain)
        await on.apply(placed(on, 4, "low"))
        await on.until(lambda: on.kubelets.ready("low-0-a") == 4)
        pods, least = {"all": (4, 4), "one": (1, 1), "some": (4, 3)}[kept]
        labels = {"app.kubernetes.io/part-of": "low"}
        if kept == "one":
            labels["grove.io/podclique-pod-index"] = "2"
        meta = {"name": "keep", "namespace": on.space}
        chosen = {"matchLabels": labels}
        budget = {"metadata": meta, "spec": {"minAvailable": least, "selector": chosen}}
        await on.client.create(BUDGETS, budget, Plain)

        async def counted() -> bool:
            return (await on.client.get(BUDGETS, on.space, "keep", Unstructured)).status.get(
                "currentHealthy"
            ) == pods

        await cluster.until(counted)
        manifest = placed(on, 4, "high")
        manifest["spec"]["template"]["priorityClassName"] = on.space
        await on.apply(manifest)

        async def refused() -> bool:
            gang = await on.status("PodGang", "high-0")
            why = f"pods of {on.space}/low-0 would make way, and may not be evicted"
            return why in gang.get("whyPending", "") and on.placement.refused > 0

        await cluster.until(refused)
        said = (await on.status("PodGang", "high-0"))["whyPending"]
        assert "disruption budget" in said
        assert on.kubelets.ready("low-0-a") == 4
        assert "DisruptionTarget" not in await on.conditions("PodGang", "low-0")
        assert len(on.ever) == 8, "none was evicted and replaced"
        await on.client.delete(BUDGETS, on.space, "keep")
        await on.until(lambda: on.kubelets.ready("high-0-a") == 4)
        assert on.kubelets.ready("low-0-a") == 0
        await on.client.delete(RESOURCES["PriorityClass"], "", on.space)
        await on.client.delete(NODES, "", name)


async def test_racks_taints_and_affinities_of_the_cluster_count(cluster: Cluster) -> None:
    """Two racks have room for half of the gang each; a third has room for all of it, on nodes that
    only tolerating pods may use and of which an affinity excludes one. The third is taken."""
    key = f"{cluster.namespace}/rack"
    topology = RESOURCES[TOPOLOGY]
    async with stage(cluster, slots=None) as on:
        levels = {"levels": [{"domain": "rack", "key": key}]}
        made = {"metadata": {"name": on.space}, "spec": levels}
        await on.client.create(topology, made, Plain)
        nodes = []
        for number, rack in enumerate(["a", "b", "c", "c", "c"]):
            nodes.append(f"{on.space}-{number}")
            labels = {"test": on.space, key: rack, "slow": "yes" if number == 2 else "no"}
            taints = [("dedicated", on.space, "NoSchedule")] if rack == "c" else []
            await add_node(on.client, nodes[-1], labels, {"cpu": CPUS}, taints)
        packed = placed(on, 8)
        template = packed["spec"]["template"]
        constraint = {"topologyName": on.space, "pack": {"required": "rack"}}
        template["topologyConstraint"] = constraint
        spec = template["cliques"][0]["spec"]["podSpec"]
        avoided = {"key": "slow", "operator": "NotIn", "values": ["yes"]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [avoided]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec["affinity"] = {"nodeAffinity": required}
        await on.apply(packed)

        async def says_why() -> bool:
            said = (await on.status("PodGang", "web-0")).get("whyPending", "")
            return "in one rack; 4 fit in a" in said

        await cluster.until(says_why)
        assert {pod.spec.get("nodeName") for pod in on.kubelets.alive()} == {None}
        tolerated = {"key": "dedicated", "operator": "Equal", "value": on.space}
        spec["tolerations"] = [{**tolerated, "effect": "NoSchedule"}]
        await on.apply(packed)
        await on.until(lambda: on.kubelets.ready("web-0-a") == 8)
        used = Counter(pod.spec["nodeName"] for pod in on.kubelets.alive("web-0-a"))
        assert used == {nodes[3]: 4, nodes[4]: 4}
        await on.client.delete(topology, "", on.space)
        for name in nodes:
            await on.client.delete(NODES, "", name)


def container_port(number: int) -> dict[str, Any]:
    return {"name": "m", "image": "x", "ports": [{"containerPort": number, "hostPort": number}]}


async def why_waiting(on: Stage, says: str, reason: str) -> None:
    """Until the gang, and its pod, say this."""

    async def holds() -> bool:
        gang = await on.status("PodGang", "web-0")
        conditions = [
            one
            for pod in on.kubelets.alive("web-0-a")
            for one in pod.status.get("conditions") or []
            if one.get("type") == "PodScheduled"
        ]
        told = [one for one in conditions if says in one.get("message", "")]
        is_event = any(one.startswith("Unschedulable ") for one in on.operator.events)
        is_told = any(one["reason"] == reason for one in told)
        return says in gang.get("whyPending", "") and is_told and is_event

    await on.cluster.until(holds)
    assert {pod.spec.get("nodeName") for pod in on.kubelets.alive("web-0-a")} == {None}


async def test_pods_with_one_host_port_are_never_on_one_node(cluster: Cluster) -> None:
    async with stage(cluster, slots=None) as on:
        nodes = [await add(on, number) for number in range(2)]
        other = {"nodeName": nodes[0], "containers": [container_port(8080)]}
        taken = {"metadata": {"name": "other", "namespace": on.space}, "spec": other}
        await on.client.create(PODS, taken, Plain)
        manifest = placed(on, 2)
        spec = manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]
        spec["containers"][0]["ports"] = container_port(8080)["ports"]
        await on.apply(manifest)
        await why_waiting(on, "on which its host port 8080/TCP is free", "Unschedulable")
        await on.client.delete(PODS, on.space, "other", grace_s=0)
        await on.until_ready(2)
        assert {pod.spec["nodeName"] for pod in on.kubelets.alive()} == set(nodes)
        for name in nodes:
            await on.client.delete(NODES, "", name)


async def test_a_volume_is_made_for_the_node_of_its_first_pod(cluster: Cluster) -> None:
    """The test plays what provisions volumes: its first try fails, the second is in a zone."""
    claims, volumes = CLAIMS[VOLUME_CLAIM], CLAIMS[VOLUME]
    async with stage(cluster, slots=None) as on:
        nodes = [await add(on, number) for number in range(2)]
        manifest = placed(on, 1)
        spec = manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        await on.apply(manifest)
        missing = f"its PersistentVolumeClaim {on.space}/data does not exist"
        await why_waiting(on, missing, "WaitsForClaims")
        size = {"requests": {"storage": "1Gi"}}
        wanted = {"storageClassName": on.space, "accessModes": ["ReadWriteOnce"], "resources": size}
        meta = {"name": "data", "namespace": on.space}
        await on.client.create(claims, {"metadata": meta, "spec": wanted}, Plain)
        await why_waiting(on, f"is of StorageClass {on.space}, which", "WaitsForClaims")
        made = {"metadata": {"name": on.space}, "provisioner": "tests"}
        late = {**made, "volumeBindingMode": "WaitForFirstConsumer"}
        await on.client.create(CLAIMS[STORAGE_CLASS], late, Plain)
        await why_waiting(on, "is being made for node", "WaitsForClaims")

        async def selected() -> str:
            found = await on.client.get(claims, on.space, "data", Unstructured)
            return found.metadata.annotations.get(SELECTED_NODE, "")

        assert await selected() in nodes
        change: Plain = {"metadata": {"annotations": {SELECTED_NODE: None}}}
        await on.client.patch(claims, on.space, "data", change, Plain)

        async def selected_again() -> bool:
            return bool(await selected())

        await cluster.until(selected_again)
        away = {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes[1:]}
        reach = {"required": {"nodeSelectorTerms": [{"matchExpressions": [away]}]}}
        volume: Plain = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
        volume |= {"hostPath": {"path": "/x"}, "nodeAffinity": reach}
        await on.client.create(volumes, {"metadata": {"name": on.space}, "spec": volume}, Plain)
        await on.client.patch(claims, on.space, "data", {"spec": {"volumeName": on.space}}, Plain)
        bound = {"status": {"phase": "Bound"}}
        await on.client.patch(claims, on.space, "data", bound, Plain, subresource="status")
        await on.until_ready(1)
        assert [pod.spec["nodeName"] for pod in on.kubelets.alive()] == nodes[1:]
        await on.client.delete(volumes, "", on.space)
        await on.client.delete(CLAIMS[STORAGE_CLASS], "", on.space)
        for name in nodes:
            await on.client.delete(NODES, "", name)


async def test_pods_wait_for_devices_that_nothing_allocates(cluster: Cluster) -> None:
    devices = RESOURCES["ResourceClaim"]
    async with stage(cluster, slots=None) as on:
        node = await add(on, 0)
        request = {"name": "g", "exactly": {"deviceClassName": "gpu"}}
        meta = {"name": "mine", "namespace": on.space}
        body = {"metadata": meta, "spec": {"devices": {"requests": [request]}}}
        await on.client.create(devices, body, Plain)
        manifest = placed(on, 1)
        spec = manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "mine"}]
        await on.apply(manifest)
        await why_waiting(on, f"{on.space}/mine is not allocated", "WaitsForClaims")
        status: Plain = {"status": {"allocation": {"devices": {}}}}
        await on.client.patch(devices, on.space, "mine", status, Plain, subresource="status")
        await on.until_ready(1)
        await on.client.delete(NODES, "", node)


async def test_a_pod_above_the_minimum_that_waits_for_its_volume_holds_back_no_other(
    cluster: Cluster,
) -> None:
    async with stage(cluster, slots=None) as on:
        node = await add(on, 0)
        manifest = placed(on, 2)
        role = manifest["spec"]["template"]["cliques"][0]["spec"]
        role["minAvailable"] = 1
        size: Plain = {"requests": {"storage": "1Gi"}}
        wanted: Plain = {"accessModes": ["ReadWriteOnce"], "resources": size}
        own = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": wanted}}}
        role["podSpec"]["volumes"] = [own]
        await on.apply(manifest)
        await why_waiting(on, "does not exist", "WaitsForClaims")
        first, second = (pod.metadata.name for pod in on.kubelets.alive("web-0-a"))
        volume: Plain = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
        volume |= {"hostPath": {"path": "/x"}}
        meta = {"name": f"{second}-v", "namespace": on.space}
        body = {"metadata": meta, "spec": {**wanted, "volumeName": on.space}}
        await on.client.create(
            CLAIMS[VOLUME], {"metadata": {"name": on.space}, "spec": volume}, Plain
        )
        await on.client.create(CLAIMS[VOLUME_CLAIM], body, Plain)
        bound: Plain = {"status": {"phase": "Bound"}}
        await on.client.patch(
            CLAIMS[VOLUME_CLAIM], on.space, meta["name"], bound, Plain, subresource="status"
        )
        await on.until(lambda: on.kubelets.ready("web-0-a") == 1)
        nodes = {pod.metadata.name: pod.spec.get("nodeName") for pod in on.kubelets.alive()}
        assert nodes == {first: None, second: node}

        async def said() -> bool:
            why = (await on.status("PodGang", "web-0")).get("whyPending", "")
            return f"1 pod above the minimum waits ({on.space}/{first}): its Persistent" in why

        await cluster.until(said)
        await on.client.delete(CLAIMS[VOLUME], "", on.space)
        await on.client.delete(NODES, "", node)
