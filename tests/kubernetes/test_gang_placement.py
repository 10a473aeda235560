"""Gang placement on a real API server: whole gangs are bound, and those that wait say why."""

from __future__ import annotations

from typing import Any

from tests.gangs.manifests import clique, pod_clique_set
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gang_stage import Stage, stage
from windtunnel.live.kubernetes.resources import NODES, PODS, Plain, Resource, Unstructured
from windtunnel.live.operate.mirror import RESOURCES
from windtunnel.live.rehearse.kubelets import add_node

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
CPUS = "4"


async def add(on: Stage, number: int) -> str:
    """A node for the pods of this test alone, with room for four of them."""
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


async def test_a_gang_makes_way_as_far_as_its_disruption_budget_allows(cluster: Cluster) -> None:
    async with stage(cluster, slots=None) as on:
        name = await add(on, 0)
        urgent = {"metadata": {"name": on.space}, "value": 1000}
        await on.client.create(RESOURCES["PriorityClass"], urgent, Plain)
        await on.apply(placed(on, 4, "low"))
        await on.until(lambda: on.kubelets.ready("low-0-a") == 4)
        chosen = {"matchLabels": {"app.kubernetes.io/part-of": "low"}}
        meta = {"name": "keep", "namespace": on.space}
        budget = {"metadata": meta, "spec": {"minAvailable": 4, "selector": chosen}}
        await on.client.create(BUDGETS, budget, Plain)

        async def counted() -> bool:
            return (await on.client.get(BUDGETS, on.space, "keep", Unstructured)).status.get(
                "currentHealthy"
            ) == 4

        await cluster.until(counted)
        manifest = placed(on, 4, "high")
        manifest["spec"]["template"]["priorityClassName"] = on.space
        await on.apply(manifest)

        async def refused() -> bool:
            gang = await on.status("PodGang", "high-0")
            return bool(gang.get("whyPending")) and on.placement.refused > 0

        await cluster.until(refused)
        assert on.kubelets.ready("low-0-a") == 4
        await on.client.delete(BUDGETS, on.space, "keep")
        await on.until(lambda: on.kubelets.ready("high-0-a") == 4)
        assert on.kubelets.ready("low-0-a") == 0
        await on.client.delete(RESOURCES["PriorityClass"], "", on.space)
        await on.client.delete(NODES, "", name)
