"""A cluster with our CRDs, kubelets and a gang operator, and helpers that tests look with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import msgspec

from tests.kubernetes.cluster import Cluster
from windtunnel.core.clock import unix_s
from windtunnel.gangs.kubernetes.calls import ApiCall
from windtunnel.live.kubernetes.cache import Handler
from windtunnel.live.kubernetes.client import Client, ObjectSelection
from windtunnel.live.kubernetes.errors import NotFound
from windtunnel.live.kubernetes.events import EventRecorder, Subject
from windtunnel.live.kubernetes.resources import (
    PODS,
    Plain,
    Resource,
    Unstructured,
)
from windtunnel.live.operate.gangs import GangOperator
from windtunnel.live.operate.mirror import RESOURCES, Mirror
from windtunnel.live.operate.placement import Placement
from windtunnel.live.operate.writer import CallAnswer, Versions, Writer
from windtunnel.live.rehearse.cluster import install, set_replicas
from windtunnel.live.rehearse.kubelets import CLIQUE, Kubelets, add_node

SET: Final = "PodCliqueSet"
SETS: Final = RESOURCES[SET]
INIT_IMAGE: Final = "initc:test"


class Killed(Exception):
    """The operator was killed."""


class MortalWriter(Writer):
    """Dies at a given call: before it is sent, or before its answer is received."""

    def __init__(self, client: Client, mirror: Mirror, calls: int | None) -> None:
        super().__init__(client, mirror)
        self.left = calls
        self.log: list[ApiCall] = []

    async def carry_out(self, call: ApiCall, versions: Versions) -> CallAnswer:
        if self.left is not None and self.left <= 0:
            raise Killed
        self.log.append(call)
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                await super().carry_out(call, versions)
                raise Killed  # it was done, and nobody heard of it
        return await super().carry_out(call, versions)


class Operator:
    """An operator of one namespace, in this process."""

    def __init__(
        self,
        cluster: Cluster,
        calls: int | None = None,
        *,
        placing: bool = False,
        client: Client | None = None,
    ) -> None:
        self.placing = placing
        self.placement: Placement | None = None
        self.client = cluster.client if client is None else client
        self.mirror = Mirror(
            self.client, unix_s, cluster.namespace, placing=placing, claims=placing
        )
        self.writer = MortalWriter(self.client, self.mirror, calls)
        self.events: list[str] = []

    def record(self, about: Subject, level: str, reason: str, action: str, note: str) -> None:
        """Takes the place of an event recorder."""
        self.events.append(f"{reason} {note}")

    async def run(self) -> None:
        """Runs until it is killed or cancelled."""
        async with asyncio.TaskGroup() as tasks:
            await self.mirror.leave_out_unserved(self.client)
            for one in self.mirror.reflectors.values():
                tasks.create_task(one.run())
            await self.mirror.wait_synced()
            if self.placing:
                self.placement = Placement(self.mirror, self.client, unix_s)
            told = cast("EventRecorder", self)
            loop = GangOperator(self.mirror, self.writer, told, unix_s, INIT_IMAGE, self.placement)
            await loop.run()


class AtOnce:
    """Pods that take no time."""

    def draw_s(self, name: str) -> float:
        return 0.0

    def load_s(self, pod_spec: Mapping[str, Any]) -> float:
        return 0.0


class StageKubelets(Kubelets):
    """Kubelets of a test; with `slots`, also a scheduler that binds a pod to each slot."""

    def __init__(
        self, client: Client, namespace: str, node: str = "", slots: int | None = None
    ) -> None:
        super().__init__(client, namespace, AtOnce())
        self._node = node
        self.slots = slots
        """The number of pods that find room; None if another scheduler binds them."""
        self.ready_order: list[str] = []
        """Cliques, in the order in which their pods became ready."""

    def subscribe(self, handler: Handler[Unstructured]) -> None:
        """Calls the handler for every change of a pod."""
        self._pods.cache.subscribe(handler)

    async def _move(self, pod: Unstructured) -> None:
        meta, spec = pod.metadata, pod.spec
        if spec.get("nodeName") or meta.deletion_timestamp is not None:
            await super()._move(pod)
        elif self.slots is not None and not spec.get("schedulingGates"):
            bound = sum(1 for one in self.pods if one.spec.get("nodeName"))
            if bound < self.slots:
                await self._client.bind(meta, self._node)
                await asyncio.sleep(0)
                fresh = await self._client.get(PODS, meta.namespace, meta.name, Unstructured)
                self._pods.cache.written(fresh)

    async def _set_ready(self, pod: Unstructured, *, ready: bool = True) -> None:
        await super()._set_ready(pod, ready=ready)
        if ready:
            self.ready_order.append(pod.metadata.labels.get(CLIQUE, ""))

    async def lose(self, clique: str, count: int = 1) -> None:
        """Ends pods abruptly, as on a machine that fails."""
        for pod in self.alive(clique)[:count]:
            await self._forget(pod)


class Stage:
    """A cluster with kubelets, and helpers for tests."""

    def __init__(self, cluster: Cluster, kubelets: StageKubelets, operator: Operator) -> None:
        self.cluster, self.client, self.space = cluster, cluster.client, cluster.namespace
        self.kubelets = kubelets
        self.operator = operator
        self.ever: set[str] = set()
        """The uid of every pod that ever existed."""
        kubelets.subscribe(self._changed)

    def _changed(self, before: Unstructured | None, after: Unstructured | None) -> None:
        if after is not None:
            self.ever.add(after.metadata.uid)

    async def fail(self, pod: Unstructured, reason: str) -> None:
        """Lets a kubelet reject a pod."""
        meta, status = pod.metadata, {"phase": "Failed", "reason": reason}
        change = {"metadata": {"uid": meta.uid}, "status": status}
        await self.client.patch(
            PODS, meta.namespace, meta.name, change, Plain, subresource="status"
        )

    def operator_without_placement(self) -> Operator:
        return Operator(self.cluster)

    @property
    def placement(self) -> Placement:
        assert self.operator.placement is not None
        return self.operator.placement

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
        """The state of the cluster, for the message of a failed test."""
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
        return await self.listed(RESOURCES[kind])

    async def listed(self, resource: Resource) -> list[Unstructured]:
        listed = await self.client.list_all(resource, ObjectSelection(self.space))
        return [msgspec.json.decode(one, type=Unstructured) for one in listed.items]

    async def get(self, kind: str, name: str) -> Unstructured:
        return await self.client.get(RESOURCES[kind], self.space, name, Unstructured)

    async def status(self, kind: str, name: str) -> dict[str, Any]:
        """The status of an object; empty as long as it does not exist."""
        try:
            return (await self.get(kind, name)).status
        except NotFound:
            return {}

    async def conditions(self, kind: str, name: str) -> dict[str, str]:
        """The messages of the conditions that are true, by type."""
        found = (await self.status(kind, name)).get("conditions") or []
        return {one["type"]: one["message"] for one in found if one["status"] == "True"}

    async def until_status(self, kind: str, name: str, **fields: Any) -> None:
        """Waits for fields of a status, which the operator writes a moment after the change."""
        found: dict[str, Any] = {}

        async def holds() -> bool:
            nonlocal found
            found = await self.status(kind, name)
            return all(found.get(key) == value for key, value in fields.items())

        try:
            await self.cluster.until(holds)
        except TimeoutError:
            raise AssertionError(f"{found} and not {fields}") from None

    async def scale(self, kind: str, name: str, replicas: int) -> None:
        await set_replicas(self.client, RESOURCES[kind], self.space, name, replicas)


@asynccontextmanager
async def stage(
    cluster: Cluster,
    slots: int | None = 100,
    *,
    operator: bool = True,
    client: Client | None = None,
) -> AsyncIterator[Stage]:
    """With `slots`, a simple scheduler binds that many pods; without, our placement does.

    `client` is used by the operator only.
    """
    await install(cluster.client)
    node = f"node-{cluster.namespace}"
    if slots is not None:
        await add_node(cluster.client, node)
    kubelets = StageKubelets(cluster.client, cluster.namespace, node, slots)
    tasks = [asyncio.create_task(kubelets.run())]
    ours = Operator(cluster, placing=slots is None, client=client)
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
