"""Nodes and kubelets that exist through the API alone: pods are bound, start, get ready and end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from windtunnel.gangs.pod_manifest import WAITER, WAITS_FOR
from windtunnel.live.kubernetes.client import Client, Selection
from windtunnel.live.kubernetes.errors import AlreadyExists, Conflict, KubernetesError, NotFound
from windtunnel.live.kubernetes.reflector import Reflector
from windtunnel.live.kubernetes.resources import NODES, PODS, Plain, Unstructured

CLIQUE: Final = "grove.io/podclique"
AMOUNTS: Final = {"cpu": "64", "memory": "256Gi", "pods": "110"}


async def add_node(
    client: Client, name: str, labels: dict[str, str] | None = None, **amounts: str
) -> None:
    """A node that is ready, with so much room."""
    meta = {"name": name, "labels": labels or {}}
    with contextlib.suppress(AlreadyExists):
        await client.create(NODES, {"metadata": meta}, Plain)
    room = {**AMOUNTS, **amounts}
    status = {
        "capacity": room,
        "allocatable": room,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await client.patch(NODES, "", name, {"status": status}, Plain, subresource="status")


class Kubelets:
    """All kubelets of a namespace; with `slots`, also a scheduler that binds one pod to a slot."""

    def __init__(self, client: Client, namespace: str, node: str, slots: int | None = None) -> None:
        self._client: Final = client
        self._node: Final = node
        self.slots = slots
        """Pods that find room; None: somebody else binds them."""
        self.address = ""
        """Of all pods, where they have one."""
        self.ready_order: Final[list[str]] = []
        """Cliques, in the order in which their pods got ready."""
        self._pods: Final = Reflector(client, PODS, Unstructured, Selection(namespace))
        self._look: Final = asyncio.Event()
        self._pods.cache.subscribe(lambda before, after: self._look.set())

    @property
    def pods(self) -> list[Unstructured]:
        return sorted(self._pods.cache, key=lambda pod: pod.metadata.name)

    def look(self) -> None:
        self._look.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            await self._pods.synced.wait()
            while True:
                self._look.clear()
                for pod in self.pods:
                    try:
                        await self._move(pod)
                    except (NotFound, Conflict):
                        continue  # it is another pod by now, or gone
                    except KubernetesError:
                        self._look.set()  # the API server is away
                        await asyncio.sleep(0.2)
                await self._look.wait()

    async def _move(self, pod: Unstructured) -> None:
        meta, spec = pod.metadata, pod.spec
        if meta.deletion_timestamp is not None:
            if spec.get("nodeName"):
                await self._client.delete(PODS, meta.namespace, meta.name, uid=meta.uid, grace_s=0)
        elif not spec.get("nodeName"):
            if self.slots is not None and not spec.get("schedulingGates"):
                bound = sum(1 for one in self.pods if one.spec.get("nodeName"))
                if bound < self.slots:
                    await self._client.bind(meta, self._node)
                    await asyncio.sleep(0)
                    fresh = await self._client.get(PODS, meta.namespace, meta.name, Unstructured)
                    self._pods.cache.written(fresh)
        elif not _is_ready(pod) and pod.status.get("phase") != "Failed" and self._may_start(pod):
            await self._set_ready(pod)

    def _may_start(self, pod: Unstructured) -> bool:
        """What its init container waits for."""
        for container in pod.spec.get("initContainers") or []:
            if container["name"] == WAITER:
                waits = container["args"][0].removeprefix(WAITS_FOR)
                for one in waits.split(","):
                    clique, _, count = one.partition(":")
                    if self.ready(clique) < int(count):
                        return False
        return True

    def ready(self, clique: str = "") -> int:
        return sum(_is_ready(pod) for pod in self.alive(clique))

    def alive(self, clique: str = "") -> list[Unstructured]:
        """Pods that are not being deleted: of one clique, or all."""
        return [
            pod
            for pod in self.pods
            if pod.metadata.deletion_timestamp is None
            and (not clique or pod.metadata.labels.get(CLIQUE) == clique)
        ]

    async def _set_ready(self, pod: Unstructured, *, ready: bool = True) -> None:
        meta = pod.metadata
        word = "True" if ready else "False"
        kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        conditions = [{"type": kind, "status": word} for kind in kinds]
        conditions[0]["status"] = "True"
        running: dict[str, Any] = {"running": {}}
        containers = [
            {
                "name": one["name"],
                "ready": ready,
                "started": ready,
                "image": one["image"],
                "imageID": "",
                "restartCount": 0,
                "state": running,
            }
            for one in pod.spec["containers"]
        ]
        status = {"phase": "Running", "conditions": conditions, "containerStatuses": containers}
        if self.address:
            status |= {"podIP": self.address, "podIPs": [{"ip": self.address}]}
        done = await self._client.patch(
            PODS,
            meta.namespace,
            meta.name,
            {"metadata": {"uid": meta.uid}, "status": status},
            Unstructured,
            subresource="status",
        )
        self.ready_order.append(meta.labels.get(CLIQUE, ""))
        self._pods.cache.written(done)

    async def lose(self, clique: str, count: int = 1) -> None:
        """Pods end without a word, as on a machine that fails."""
        for pod in self.alive(clique)[:count]:
            meta = pod.metadata
            try:
                await self._client.delete(PODS, meta.namespace, meta.name, uid=meta.uid, grace_s=0)
            except KubernetesError:
                continue


def _is_ready(pod: Unstructured) -> bool:
    conditions = pod.status.get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
