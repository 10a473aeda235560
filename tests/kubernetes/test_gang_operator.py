"""The gang operator on a real API server: start, termination, scaling, updates, crashes."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pytest

from tests.gangs.manifests import clique, group, pod_clique_set, workload
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.kubelets import Kubelets, add_node
from windtunnel.core.clock import unix_s
from windtunnel.gangs.kubernetes.calls import ApiCall
from windtunnel.gangs.kubernetes.crds import crds
from windtunnel.live.kubernetes.client import Client, Selection
from windtunnel.live.kubernetes.errors import Invalid
from windtunnel.live.kubernetes.resources import CRDS, Plain, Unstructured
from windtunnel.live.operate.gangs import GangOperator
from windtunnel.live.operate.mirror import RESOURCES, Mirror
from windtunnel.live.operate.writer import Answer, Writer

SET: Final = "PodCliqueSet"
SETS: Final = RESOURCES[SET]
CLIQUES: Final = RESOURCES["PodClique"]
GROUPS: Final = RESOURCES["PodCliqueScalingGroup"]
GANGS: Final = RESOURCES["PodGang"]
INIT_IMAGE: Final = "initc:test"


async def install(client: Client) -> None:
    """Our CRDs, and until the API server serves them."""
    for crd in crds():
        body = {key: crd[key] for key in ("metadata", "spec")}
        await client.apply(CRDS, body, Plain, manager="windtunnel-tests", force=True)
    for crd in crds():
        name = crd["metadata"]["name"]
        async with asyncio.timeout(30):
            while True:
                found = await client.get(CRDS, "", name, Unstructured)
                conditions = found.status.get("conditions") or []
                if any(one["type"] == "Established" and one["status"] == "True"
                       for one in conditions):  # fmt: skip
                    break
                await asyncio.sleep(0.05)


class Killed(Exception):
    """The operator was killed."""


class MortalWriter(Writer):
    """Dies at a given call: before it is sent, or before its answer is heard."""

    def __init__(self, client: Client, mirror: Mirror, calls: int | None) -> None:
        super().__init__(client, mirror)
        self.left = calls
        self.log: list[ApiCall] = []

    async def carry_out(self, call: ApiCall) -> Answer:
        if self.left is not None and self.left <= 0:
            raise Killed
        self.log.append(call)
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                await super().carry_out(call)
                raise Killed  # it was done, and nobody heard of it
        return await super().carry_out(call)


class Operator:
    """An operator of one namespace, in this process."""

    def __init__(self, cluster: Cluster, calls: int | None = None) -> None:
        self.mirror = Mirror(cluster.client, unix_s, cluster.namespace, placing=False)
        self.writer = MortalWriter(cluster.client, self.mirror, calls)
        self.client = cluster.client

    async def run(self) -> None:
        """Until it is killed or cancelled."""
        async with asyncio.TaskGroup() as tasks:
            await self.mirror.leave_out_unserved(self.client)
            for one in self.mirror.reflectors.values():
                tasks.create_task(one.run())
            await self.mirror.wait_synced()
            loop = GangOperator(self.mirror, self.writer, None, unix_s, INIT_IMAGE)
            await loop.run()


class Stage:
    """A cluster with kubelets, and what tests look at."""

    def __init__(self, cluster: Cluster, kubelets: Kubelets, operator: Operator) -> None:
        self.cluster, self.client, self.space = cluster, cluster.client, cluster.namespace
        self.kubelets = kubelets
        self.operator = operator

    def calls(self, outcome: str) -> dict[str, int]:
        counts = self.operator.writer.counts
        return {f"{verb} {kind}": n for (verb, kind, end), n in counts.items() if end == outcome}

    async def apply(self, manifest: dict[str, Any]) -> None:
        meta = {"name": manifest["metadata"]["name"], "namespace": self.space}
        body = {"metadata": meta, "spec": manifest["spec"]}
        await self.client.apply(SETS, body, Plain, manager="people", force=True)

    async def until(self, holds: Callable[[], bool]) -> None:
        async def look() -> bool:
            return holds()

        try:
            await self.cluster.until(look)
        except TimeoutError:
            raise AssertionError(self.described()) from None

    def described(self) -> str:
        """What there is, for who reads a failure."""
        view = self.operator.mirror.view
        pods = [
            (pod.name, pod.gates, pod.node, pod.ready, pod.terminating)
            for pod in view.pods.values()
        ]
        cliques = [(one.name, one.replicas, one.status) for one in view.cliques.values()]
        gangs = [(one.name, one.conditions) for one in view.gangs.values()]
        seen = [pod.metadata.name for pod in self.kubelets.alive()]
        calls = self.operator.writer.counts
        return "\n".join(map(str, [*pods, *cliques, *gangs, seen, calls]))

    async def until_ready(self, pods: int) -> None:
        await self.until(
            lambda: self.kubelets.ready() == pods and len(self.kubelets.alive()) == pods
        )

    async def names(self, kind: str) -> list[str]:
        return sorted(one.metadata.name for one in await self.all(kind))

    async def all(self, kind: str) -> list[Unstructured]:
        listed = await self.client.list_all(RESOURCES[kind], Selection(self.space))
        return [msgspec.json.decode(one, type=Unstructured) for one in listed.items]

    async def get(self, kind: str, name: str) -> Unstructured:
        return await self.client.get(RESOURCES[kind], self.space, name, Unstructured)

    async def scale(self, kind: str, name: str, replicas: int) -> None:
        await self.client.set_replicas(RESOURCES[kind], self.space, name, replicas)


@asynccontextmanager
async def stage(
    cluster: Cluster, slots: int = 100, *, operator: bool = True
) -> AsyncIterator[Stage]:
    await install(cluster.client)
    node = f"node-{cluster.namespace}"
    await add_node(cluster.client, node)
    kubelets = Kubelets(cluster.client, cluster.namespace, node, slots)
    tasks = [asyncio.create_task(kubelets.run())]
    ours = Operator(cluster)
    if operator:
        tasks.append(asyncio.create_task(ours.run()))
    try:
        yield Stage(cluster, kubelets, ours)
    finally:
        for task in tasks:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [one for one in done if isinstance(one, Exception)]
        assert not failed, failed


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
        found = await on.get("PodClique", "web-0-pc-a")
        for key in ("replicas", "readyReplicas", "updatedReplicas", "scheduledReplicas"):
            assert found.status[key] == 2, key
        assert found.status["observedGeneration"] == found.metadata.generation
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
        assert await on.names("PodClique") == []
        await on.scale("PodCliqueSet", "web", 1)
        await on.until_ready(10)


async def test_below_its_minimum_there_is_no_gang(cluster: Cluster) -> None:
    async with stage(cluster) as on:
        await on.apply(workload(1))
        await on.until_ready(10)
        with pytest.raises(Invalid, match="whole gang"):
            await on.scale("PodClique", "web-0-pc-a", 1)


def pair(**template: Any) -> dict[str, Any]:
    """A router of two pods that are both needed, and two groups of a leader and three workers."""
    roles = [clique("a", 2), clique("b", 1), clique("c", 3)]
    return pod_clique_set(roles, [group("g", ["b", "c"], 2)], terminationDelay="4s", **template)


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
        await on.kubelets.lose(lost)
        kind, name = ("PodCliqueScalingGroup", "web-0-g") if "-g-" in lost else (SET, "web")

        async def terminated() -> bool:
            found = await on.get(kind, name)
            return bool(found.status.get("windtunnel", {}).get("incarnations"))

        await cluster.until(terminated)
        old = {pod for pod in before if pod.startswith(gone)}
        await on.until(lambda: not old & {pod.metadata.name for pod in on.kubelets.alive()})
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


@pytest.mark.parametrize("seed", range(3))
async def test_killed_between_any_two_calls_it_comes_to_the_same(
    cluster: Cluster, seed: int
) -> None:
    """Each operator makes a few calls and dies, perhaps before it hears the answer."""
    async with stage(cluster, operator=False) as on:
        await on.apply(workload(2))
        log: list[ApiCall] = []
        lives = 0
        while on.kubelets.ready() < 10:
            lives += 1
            operator = Operator(cluster, 1 + (seed * 7 + lives * 5) % 11)
            try:
                async with asyncio.timeout(5):
                    await operator.run()
            except* (Killed, TimeoutError):
                pass
            log += operator.writer.log
            assert lives < 200
        assert len(on.kubelets.alive()) == 10
        assert lives > 3
        created = {call.name for call in log if call.verb == "create" and call.kind == "Pod"}
        assert len(created) == 10, "a repeated create is for the same name"
        assert len(await on.names("PodClique")) == 5
