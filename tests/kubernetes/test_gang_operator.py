"""The gang operator on a real API server: start, termination, scaling, updates, crashes."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gangs.manifests import clique, group, pod_clique_set, workload
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gang_stage import (
    INIT_IMAGE,
    SET,
    SETS,
    Killed,
    Operator,
    stage,
)
from windtunnel.gangs.kubernetes.calls import ApiCall, merge_patch
from windtunnel.live.kubernetes.errors import Invalid
from windtunnel.live.kubernetes.resources import Plain, Resource, Unstructured
from windtunnel.live.operate.mirror import RESOURCES
from windtunnel.live.rehearse.cluster import install

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
GANG = "grove.io/podgang"
EXAMPLES = Path(__file__).parents[2] / "examples" / "gangs"


async def test_a_set_comes_up_in_order_with_all_that_grove_would_create(cluster: Cluster) -> None:
    async with stage(cluster) as on:
        await on.apply(workload(4))
        await on.until_ready(10)
        order = on.kubelets.ready_order
        assert order[0].endswith("pc-a")
        assert order.index("web-0-sg-x-0-pc-c") > order.index("web-0-sg-x-0-pc-b")
        assert await on.names("PodGang") == ["web-0", "web-0-sg-x-0"]
        assert await on.names("PodCliqueScalingGroup") == ["web-0-sg-x"]
        assert await on.names("Service") == ["web-0"]
        pod = on.kubelets.alive("web-0-sg-x-0-pc-b")[0]
        assert pod.spec["initContainers"][-1]["image"] == INIT_IMAGE
        assert "schedulingGates" not in pod.spec
        generation = (await on.get("PodClique", "web-0-pc-a")).metadata.generation
        keys = ("replicas", "readyReplicas", "updatedReplicas", "scheduledReplicas")
        counts = dict.fromkeys(keys, 2)
        await on.until_status("PodClique", "web-0-pc-a", **counts, observedGeneration=generation)
        gang = await on.get("PodGang", "web-0")
        assert {one["name"] for one in gang.spec["podgroups"]} == {
            "web-0-pc-a",
            "web-0-sg-x-0-pc-b",
            "web-0-sg-x-0-pc-c",
        }
        names = {kind: await on.names(kind) for kind in ("Role", "RoleBinding", "Secret")}
        assert names["Role"] == names["RoleBinding"] == ["grove.io:pcs:web"]
        assert names["Secret"] == ["web-ic-sat"]
        assert on.calls("failed") == {}
        assert on.calls("stale") == {}


async def test_scaled_by_the_subresource_up_down_and_to_zero(cluster: Cluster) -> None:
    async with stage(cluster) as on:
        await on.apply(workload(2))
        await on.until_ready(10)
        await on.scale("PodCliqueScalingGroup", "web-0-sg-x", 3)
        await on.until_ready(14)
        await on.scale("PodClique", "web-0-pc-a", 1)
        await on.until_ready(13)
        full = await on.get("PodClique", "web-0-sg-x-0-pc-c")
        assert full.spec["replicas"] == 3
        with pytest.raises(Invalid):
            await on.scale("PodClique", "web-0-sg-x-0-pc-c", -1)
        await on.scale("PodCliqueSet", "web", 0)
        await on.until_ready(0)

        async def no_cliques() -> bool:
            return not await on.names("PodClique")

        await cluster.until(no_cliques)
        await on.scale("PodCliqueSet", "web", 1)
        await on.until_ready(10)


async def test_below_its_minimum_there_is_no_gang(cluster: Cluster) -> None:
    async with stage(cluster) as on:
        await on.apply(workload(1))
        await on.until_ready(10)
        with pytest.raises(Invalid, match="whole gang"):
            await on.scale("PodClique", "web-0-pc-a", 1)


def pair(delay: str = "1h") -> dict[str, Any]:
    """A router of two pods that are both required, and two groups of a leader and three workers.

    A short delay may expire before a busy machine has started all pods.
    """
    roles = [clique("a", 2), clique("b", 1), clique("c", 3)]
    return pod_clique_set(roles, [group("g", ["b", "c"], 2)], terminationDelay=delay)


@pytest.mark.parametrize(
    ("lost", "gone", "kept"),
    [("web-0-g-1-c", "web-0-g-1", "web-0-g-0"), ("web-0-a", "web-0", "other")],
    ids=["a group replica", "a set replica"],
)
async def test_a_breach_that_lasts_ends_the_gang_once(
    cluster: Cluster, lost: str, gone: str, kept: str
) -> None:
    async with stage(cluster, slots=10) as on:
        await on.apply(pair())
        await on.until_ready(10)
        before = {pod.metadata.name for pod in on.kubelets.alive()}
        on.kubelets.slots = 0
        await on.apply(pair("2s"))
        await on.kubelets.lose(lost)
        kind, name = ("PodCliqueScalingGroup", "web-0-g") if "-g-" in lost else (SET, "web")

        async def terminated() -> bool:
            found = await on.get(kind, name)
            return bool(found.status.get("windtunnel", {}).get("incarnations"))

        await cluster.until(terminated)
        old = {pod for pod in before if pod.startswith(gone)}
        await on.until(lambda: not old & {pod.metadata.name for pod in on.kubelets.alive()})
        await on.apply(pair())
        on.kubelets.slots = 10
        on.kubelets.look()
        await on.until_ready(10)
        after = {pod.metadata.name for pod in on.kubelets.alive()}
        assert {pod for pod in before if pod.startswith(kept)} <= after
        found = await on.get(kind, name)
        assert list(found.status["windtunnel"]["incarnations"].values()) == [1]


async def test_a_changed_template_reaches_every_pod(cluster: Cluster) -> None:
    async with stage(cluster) as on:
        manifest = workload(2)
        await on.apply(manifest)
        await on.until_ready(10)
        before = {pod.metadata.uid for pod in on.kubelets.alive()}
        changed = copy.deepcopy(manifest)
        for one in changed["spec"]["template"]["cliques"]:
            one["spec"]["podSpec"]["containers"][0]["image"] = "busybox:2"
        await on.apply(changed)

        def all_new() -> bool:
            alive = on.kubelets.alive()
            images = {pod.spec["containers"][0]["image"] for pod in alive}
            return images == {"busybox:2"} and on.kubelets.ready() == len(alive) == 10

        await on.until(all_new)
        assert not before & {pod.metadata.uid for pod in on.kubelets.alive()}

        async def updated() -> bool:
            found = await on.get("PodCliqueSet", "web")
            progress = found.status.get("updateProgress") or {}
            return found.status["updatedReplicas"] == 1 and "updateEndedAt" in progress

        await cluster.until(updated)


async def test_a_wrong_set_says_what_is_wrong_and_is_taken_when_it_is_right(
    cluster: Cluster,
) -> None:
    async with stage(cluster) as on:
        manifest = pod_clique_set([clique("a"), clique("b")], [group("g", ["a", "x"])])
        await on.apply(manifest)

        async def said() -> bool:
            found = await on.get("PodCliqueSet", "web")
            conditions = found.status.get("conditions") or []
            return any("there is no clique 'x'" in one["message"] for one in conditions)

        await cluster.until(said)
        assert on.kubelets.alive() == []
        await on.client.delete(SETS, on.space, "web")
        await on.apply(pod_clique_set([clique("a"), clique("b")], [group("g", ["a", "b"])]))
        await on.until_ready(2)


async def test_a_deleted_set_leaves_nothing(cluster: Cluster) -> None:
    async with stage(cluster) as on:
        await on.apply(workload(2))
        await on.until_ready(10)
        await on.client.delete(SETS, on.space, "web")
        await on.until_ready(0)

        async def empty() -> bool:
            kinds = ("PodClique", "PodCliqueScalingGroup", "PodGang", "Service", "Role")
            return not [name for kind in kinds for name in await on.names(kind)]

        await cluster.until(empty)


async def test_a_quota_that_refuses_pods_holds_the_gang_and_nothing_else(cluster: Cluster) -> None:
    async with stage(cluster) as on:
        meta = {"name": "few", "namespace": on.space}
        quota = {"metadata": meta, "spec": {"hard": {"pods": "7"}}}
        await on.client.create(QUOTAS, quota, Plain)

        async def counted() -> bool:
            return bool((await on.client.get(QUOTAS, on.space, "few", Unstructured)).status)

        await cluster.until(counted)
        await on.apply(pair())
        await on.until(lambda: len(on.kubelets.alive()) == 7 and bool(on.calls("failed")))

        def is_whole_or_gated() -> bool:
            base = [pod for pod in on.kubelets.alive() if pod.metadata.labels[GANG] == "web-0"]
            complete = len(base) == 6
            return all(bool(pod.spec.get("schedulingGates")) != complete for pod in base)

        await on.until(is_whole_or_gated)
        assert not [call for call in on.operator.writer.log if call.verb == "delete"]
        tries = on.calls("failed")["create Pod"]
        assert tries < 30, "it is tried again more and more seldom"
        await on.client.delete(QUOTAS, on.space, "few")
        await on.until_ready(10)


async def test_two_operators_that_both_believe_to_lead_do_no_harm(cluster: Cluster) -> None:
    async with stage(cluster, slots=10) as on:
        second = Operator(cluster)
        other = asyncio.create_task(second.run())
        await on.until(lambda: second.mirror.synced and on.operator.mirror.synced)
        await on.apply(pair())
        await on.until_ready(10)
        assert second.writer.log, "both have acted"
        log = [*on.operator.writer.log, *second.writer.log]
        assert (
            len({call.name for call in log if call.verb == "create" and call.kind == "Pod"}) == 10
        )
        assert not [call for call in log if call.verb == "delete"]
        before = {pod.metadata.uid for pod in on.kubelets.alive()}
        await on.kubelets.lose("web-0-g-0-c")
        await on.until(
            lambda: (
                on.kubelets.ready() == 10
                and len({pod.metadata.uid for pod in on.kubelets.alive()} - before) == 1
            )
        )
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)


async def test_cliques_and_groups_are_scaled_by_the_autoscalers_that_they_ask_for(
    cluster: Cluster,
) -> None:
    usage = {"type": "Utilization", "averageUtilization": 80}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": usage}}]
    manifest = pair()
    template = manifest["spec"]["template"]
    bounds = {"maxReplicas": 5, "metrics": metrics}
    template["cliques"][0]["spec"]["autoScalingConfig"] = bounds
    template["podCliqueScalingGroups"][0]["scaleConfig"] = {**bounds, "minReplicas": 2}
    async with stage(cluster) as on:
        await on.apply(manifest)
        await on.until_ready(10)
        found = {one.metadata.name: one.spec for one in await on.all("HorizontalPodAutoscaler")}
        assert found["web-0-a"]["scaleTargetRef"]["kind"] == "PodClique"
        assert (found["web-0-a"]["minReplicas"], found["web-0-a"]["maxReplicas"]) == (2, 5)
        assert found["web-0-g"]["scaleTargetRef"]["kind"] == "PodCliqueScalingGroup"
        for kind, name, label in (
            ("PodClique", "web-0-a", "grove.io/podclique=web-0-a"),
            ("PodCliqueScalingGroup", "web-0-g", "grove.io/podcliquescalinggroup=web-0-g"),
        ):
            await on.until_status(kind, name, replicas=2)
            scale = await on.client.get_scale(RESOURCES[kind], on.space, name)
            assert scale["status"]["replicas"] == 2
            assert label in scale["status"]["selector"], "an HPA refuses an empty one"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
async def test_examples_apply_unchanged(cluster: Cluster, path: Path) -> None:
    """An unknown field is an error of server-side apply."""
    await install(cluster.client)
    for one in yaml.safe_load_all(path.read_text()):
        if not one or one.get("kind") not in RESOURCES:
            continue
        resource = RESOURCES[one["kind"]]
        meta = dict(one["metadata"])
        if resource.namespaced:
            meta["namespace"] = cluster.namespace
        made = await cluster.client.apply(
            resource, {"metadata": meta, "spec": one["spec"]}, Unstructured, manager="people"
        )
        assert merge_patch(made.spec, {**made.spec, **one["spec"]}) == {}


async def live_and_die(
    cluster: Cluster, seed: int, holds: Callable[[], Awaitable[bool]]
) -> list[ApiCall]:
    """Runs one operator after the other, each for at most eleven calls, until a condition holds."""
    log: list[ApiCall] = []
    for life in range(200):
        operator = Operator(cluster, 1 + (seed * 7 + life * 5) % 11)
        try:
            async with asyncio.timeout(6):
                await operator.run()
        except* (Killed, TimeoutError):
            pass
        log += operator.writer.log
        if await holds():
            return log
    raise AssertionError("it does not get there")


@pytest.mark.parametrize("seed", range(2))
async def test_killed_between_any_two_calls_it_comes_to_the_same(
    cluster: Cluster, seed: int
) -> None:
    """Also if a call was executed, and the operator died before the answer arrived."""
    async with stage(cluster, slots=10, operator=False) as on:
        await on.apply(pair())

        async def all_ready() -> bool:
            return on.kubelets.ready() == 10

        log = await live_and_die(cluster, seed, all_ready)
        assert len(log) > 33, "more than three operators were killed"
        created = {call.name for call in log if call.verb == "create" and call.kind == "Pod"}
        assert len(created) == 10, "a repeated create is for the same name"
        assert len(await on.names("PodClique")) == 5
        on.kubelets.slots = 0
        await on.apply(pair("2s"))
        await on.kubelets.lose("web-0-g-1-c")
        old = {pod.metadata.name for pod in on.kubelets.alive() if "-g-1-" in pod.metadata.name}

        async def terminated() -> bool:
            return not old & {pod.metadata.name for pod in on.kubelets.alive()}

        await live_and_die(cluster, seed, terminated)
        await on.apply(pair())
        on.kubelets.slots = 10
        on.kubelets.look()
        await live_and_die(cluster, seed + 1, all_ready)

        async def settled() -> bool:
            memory = (await on.status("PodCliqueScalingGroup", "web-0-g"))["windtunnel"]
            assert memory["incarnations"] == {"1": 1}, "one termination for one episode"
            return not memory.get("recycled") and len(on.kubelets.alive()) == 10

        if not await settled():
            await live_and_die(cluster, seed + 2, settled)
