"""A cluster as tests see it: a client, a namespace of the test's own, and objects to create."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest

from tests.kubernetes.control_plane import StageControlPlane
from windtunnel.core.random import fresh_seed
from windtunnel.live.kubernetes.client import Client, open_client
from windtunnel.live.kubernetes.config import load_config
from windtunnel.live.kubernetes.errors import (
    AlreadyExists,
    KubernetesError,
    NotFound,
    TooManyRequests,
)
from windtunnel.live.kubernetes.resources import NAMESPACES, NODES, PODS, Meta, Object, Plain

UNTIL_S: Final = 60.0
EVICTED_S: Final = 150.0
"""A pod whose eviction was allowed and then failed counts against its budget for two minutes."""
LOOK_S: Final = 0.05


class Cluster:
    """The cluster and the namespace that a test runs in."""

    def __init__(self, plane: StageControlPlane | None, client: Client, space: str) -> None:
        self.client: Final = client
        self.namespace: Final = space
        self._plane = plane

    @property
    def plane(self) -> StageControlPlane:
        """The control plane, for tests that kill it; they are skipped on another cluster."""
        if self._plane is None:
            pytest.skip("this needs a control plane of the test's own, and KUBECONFIG is set")
        return self._plane

    @asynccontextmanager
    async def connect(self, user: str, group: str, url: str = "") -> AsyncIterator[Client]:
        """A client of another user, or through a proxy."""
        async with open_client(load_config(self.plane.kubeconfig_of(user, group, url))) as client:
            yield client

    async def until(
        self, holds: Callable[[], Awaitable[bool]], patience_s: float = UNTIL_S
    ) -> None:
        """Waits until a condition holds."""
        async with asyncio.timeout(patience_s):
            while not await holds():
                await asyncio.sleep(LOOK_S)

    async def until_evicted(self, pod: Meta) -> None:
        """Evicts a pod; the disruption controller takes a moment before it allows this."""

        async def evicted() -> bool:
            try:
                await self.client.evict(pod, grace_s=0)
            except TooManyRequests:
                return False
            return True

        await self.until(evicted, EVICTED_S)

        async def gone() -> bool:
            try:
                now = await self.client.get(PODS, pod.namespace, pod.name, Object)
            except NotFound:
                return True
            return now.metadata.uid != pod.uid

        await self.until(gone)


@asynccontextmanager
async def open_cluster(plane: StageControlPlane | None) -> AsyncIterator[Cluster]:
    """A client and a new namespace, which is deleted at the end."""
    config = load_config(plane.kubeconfig if plane is not None else None)
    async with open_client(config, name="tests") as client:
        space = f"windtunnel-{fresh_seed():016x}"
        await client.create(NAMESPACES, {"metadata": {"name": space}}, Plain)
        try:
            yield Cluster(plane, client, space)
        finally:
            with suppress(KubernetesError):
                await client.delete(NAMESPACES, "", space)


def labelled(namespace: str, name: str, **fields: Any) -> Plain:
    """An object of a test, without its kind."""
    meta = {"namespace": namespace, "name": name, "labels": {"windtunnel": "test"}}
    return {"metadata": meta, **fields}


def container() -> Plain:
    return {"name": "main", "image": "example.invalid/none"}


def new_pod(namespace: str, name: str) -> Plain:
    pod = labelled(namespace, name, spec={"containers": [container()], "schedulerName": "none"})
    pod["metadata"]["labels"]["app"] = "a"
    return pod


async def ready_node(cluster: Cluster) -> str:
    """Adds a node without a kubelet, on which nothing runs; skips the test on another cluster."""
    assert cluster.plane
    node = {"metadata": {"name": "test-node"}}
    try:
        await cluster.client.create(NODES, node, Plain)
    except AlreadyExists:
        return "test-node"
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
    status = {"capacity": amounts, "allocatable": amounts}
    status["conditions"] = [{"type": "Ready", "status": "True"}]  # type: ignore[assignment]
    await cluster.client.patch(
        NODES, "", "test-node", {"status": status}, Plain, subresource="status"
    )
    return "test-node"
