"""Nodes and kubelets simulated through the API: pods are bound, start, become ready and end."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from windtunnel.gangs.pod_manifest import WAITER, WAITS_FOR
from windtunnel.live.kubernetes.client import Client, ObjectSelection
from windtunnel.live.kubernetes.errors import AlreadyExists, Conflict, KubernetesError, NotFound
from windtunnel.live.kubernetes.reflector import Reflector
from windtunnel.live.kubernetes.resources import NODES, PODS, Meta, Plain, Unstructured

CLIQUE: Final = "grove.io/podclique"
AMOUNTS: Final = {"cpu": "64", "memory": "256Gi", "pods": "110"}
AWAY_S: Final = 0.2
"""The delay before an API server that does not answer is asked again."""
BACKOFF_S: Final = 10.0
LONGEST_BACKOFF_S: Final = 300.0
"""Between restarts of crashing containers: doubled each time, as the kubelet does."""

PULLING: Final = 0
STARTING: Final = 1
LOADING: Final = 2


async def add_node(
    client: Client,
    name: str,
    labels: dict[str, str] | None = None,
    amounts: Mapping[str, str] | None = None,
    taints: Iterable[tuple[str, str, str]] = (),
) -> None:
    """Adds a ready node with these resources."""
    meta = {"name": name, "labels": labels or {}}
    keys = ("key", "value", "effect")
    spec = {"taints": [dict(zip(keys, taint, strict=True)) for taint in taints]}
    room = {**AMOUNTS, **(amounts or {})}
    status = {
        "capacity": room,
        "allocatable": room,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    try:
        # As a kubelet registers itself: with its capacity, so that no scheduler sees it without.
        await client.create(NODES, {"metadata": meta, "spec": spec, "status": status}, Plain)
    except AlreadyExists:
        await client.patch(NODES, "", name, {"status": status}, Plain, subresource="status")


class PodPace(Protocol):
    """How long the stages of pods take, in seconds."""

    def draw_s(self, name: str) -> float:
        """The duration of `image_pull`, `startup` or `ending`."""

    def load_s(self, pod_spec: Mapping[str, Any]) -> float:
        """The time from the start of containers until the pod is ready."""


class _PodStages:
    """A kubelet's state for a pod."""

    __slots__ = ("crashes", "due_s", "ending", "held", "stage")

    def __init__(self, due_s: float) -> None:
        self.stage = PULLING
        self.due_s = due_s
        """When the stage is over."""
        self.ending = False
        self.held = False
        self.crashes = 0


class Kubelets:
    """All kubelets of a namespace."""

    def __init__(self, client: Client, namespace: str, pace: PodPace) -> None:
        self._client: Final = client
        self._pace: Final = pace
        self.address_of: Callable[[Meta], str] = _no_address
        self.holds: Callable[[Meta], bool] = _never
        """Whether a terminating pod still waits for its server."""
        self._pods: Final = Reflector(client, PODS, Unstructured, ObjectSelection(namespace))
        self._look: Final = asyncio.Event()
        self._pods.cache.subscribe(lambda *_: self._look.set())
        self._lives: Final[dict[str, _PodStages]] = {}  # by uid
        self._images: Final[dict[tuple[str, str], None]] = {}  # pulled images, by node
        self._dead: Final[dict[str, None]] = {}  # nodes that have failed
        self._next_s = math.inf

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
                self._next_s = math.inf
                for pod in self.pods:
                    try:
                        await self._move(pod)
                    except (NotFound, Conflict):
                        continue  # it was replaced or is gone
                    except KubernetesError:
                        self._look.set()  # the API server is away
                        await asyncio.sleep(AWAY_S)
                await self._wait()

    async def _wait(self) -> None:
        """Waits for a change, or until something is due."""
        at_s = None if self._next_s == math.inf else self._next_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(at_s):
                await self._look.wait()

    async def _move(self, pod: Unstructured) -> None:
        meta, spec = pod.metadata, pod.spec
        if spec.get("nodeName") in self._dead:
            return  # nothing starts there, and nothing ends in an orderly way
        if meta.deletion_timestamp is not None:
            if spec.get("nodeName") and self._may_end(pod):
                await self._client.delete(PODS, meta.namespace, meta.name, uid=meta.uid, grace_s=0)
                self._lives.pop(meta.uid, None)
        elif (
            spec.get("nodeName")
            and not _is_ready(pod)
            and pod.status.get("phase") != "Failed"
            and self._is_up(pod)
        ):
            await self._set_ready(pod)

    # Timing.

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _is_due(self, due_s: float) -> bool:
        if self._now_s() >= due_s:
            return True
        self._next_s = min(self._next_s, due_s)
        return False

    def _life(self, pod: Unstructured) -> _PodStages:
        """A pod's state since it was seen on its node; an image is pulled once per node."""
        life = self._lives.get(pod.metadata.uid)
        if life is None:
            images = " ".join(sorted(str(one.get("image")) for one in pod.spec["containers"]))
            key = (str(pod.spec["nodeName"]), images)
            pull_s = 0.0 if key in self._images else self._pace.draw_s("image_pull")
            self._images[key] = None
            life = self._lives[pod.metadata.uid] = _PodStages(self._now_s() + pull_s)
        return life

    def _is_up(self, pod: Unstructured) -> bool:
        """Advances a pod through stages that are due; returns whether its containers are ready."""
        life = self._life(pod)
        if life.stage == PULLING:
            if not self._is_due(life.due_s) or not self._may_start(pod):
                return False
            life.stage = STARTING
            life.due_s = self._now_s() + self._pace.draw_s("startup")
        if life.stage == STARTING:
            if not self._is_due(life.due_s):
                return False
            life.stage = LOADING
            life.due_s = self._now_s() + self._pace.load_s(pod.spec)
        return self._is_due(life.due_s)

    def _may_end(self, pod: Unstructured) -> bool:
        """Whether a terminating pod may end: its server is gone, or its containers have stopped."""
        life = self._life(pod)
        if self.holds(pod.metadata):
            life.held = True
            return False
        if not life.ending:
            life.ending = True
            grace_s = float(pod.spec.get("terminationGracePeriodSeconds") or 0.0)
            ending_s = 0.0 if life.held else min(self._pace.draw_s("ending"), grace_s)
            life.due_s = self._now_s() + ending_s
        return self._is_due(life.due_s)

    def _may_start(self, pod: Unstructured) -> bool:
        """Whether the conditions that its init container waits for are met."""
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
        """Sets the status of a pod: ready, or its containers have crashed."""
        meta = pod.metadata
        word = "True" if ready else "False"
        kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        conditions = [{"type": kind, "status": word} for kind in kinds]
        known = pod.status.get("conditions") or []
        bound = [one for one in known if one["type"] == kinds[0] and one["status"] == "True"]
        conditions[0] = bound[0] if bound else {"type": kinds[0], "status": "True"}
        state: dict[str, Any] = {"running": {}}
        if not ready:
            state = {"terminated": {"exitCode": 1, "reason": "Error"}}
        crashes = self._life(pod).crashes
        containers = [
            {
                "name": one["name"],
                "ready": ready,
                "started": ready,
                "image": one["image"],
                "imageID": "",
                "restartCount": crashes,
                "state": state,
            }
            for one in pod.spec["containers"]
        ]
        status = {"phase": "Running", "conditions": conditions, "containerStatuses": containers}
        address = self.address_of(meta)
        if address:
            status |= {"podIP": address, "podIPs": [{"ip": address}]}
        done = await self._client.patch(
            PODS,
            meta.namespace,
            meta.name,
            {"metadata": {"uid": meta.uid}, "status": status},
            Unstructured,
            subresource="status",
        )
        self._pods.cache.written(done)

    # Faults.

    async def _forget(self, pod: Unstructured) -> None:
        meta = pod.metadata
        with contextlib.suppress(KubernetesError):
            await self._client.delete(PODS, meta.namespace, meta.name, uid=meta.uid, grace_s=0)

    async def crash(self, namespace: str, name: str) -> None:
        """Crashes the containers of a pod once; they are restarted after a delay."""
        pod = self._pods.cache.get(namespace, name)
        if pod is None or not _is_ready(pod) or pod.metadata.deletion_timestamp is not None:
            return
        life = self._life(pod)
        life.stage = STARTING
        life.due_s = self._now_s() + min(LONGEST_BACKOFF_S, BACKOFF_S * 2.0**life.crashes)
        life.crashes = min(life.crashes + 1, 10)
        await self._set_ready(pod, ready=False)
        self._look.set()

    async def fail_node(self, name: str) -> None:
        """Stops a machine: its pods stay as they are until the node is deleted."""
        self._dead[name] = None
        status = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeLost"}]}
        await self._client.patch(NODES, "", name, {"status": status}, Plain, subresource="status")

    def revive(self, name: str) -> None:
        """Marks a machine of this name as running again."""
        self._dead.pop(name, None)

    async def remove_node(self, name: str) -> None:
        """Deletes a node together with its pods."""
        with contextlib.suppress(NotFound):
            await self._client.delete(NODES, "", name)
        for pod in self.pods:
            if pod.spec.get("nodeName") == name:
                await self._forget(pod)


def _is_ready(pod: Unstructured) -> bool:
    conditions = pod.status.get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _no_address(meta: Meta) -> str:  # noqa: ARG001
    return ""


def _never(meta: Meta) -> bool:  # noqa: ARG001
    return False
