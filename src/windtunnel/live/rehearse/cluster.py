"""The cluster of a scenario as objects of an API server: kinds, nodes, sets, policies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from windtunnel.core.telemetry import Plain as PlainData
from windtunnel.gangs.kubernetes.crds import crds
from windtunnel.gangs.objects import SET, Node
from windtunnel.gangs.servers import PoolPods
from windtunnel.live.kubernetes.client import Client
from windtunnel.live.kubernetes.errors import NotFound
from windtunnel.live.kubernetes.resources import CRDS, NAMESPACES, Plain, Resource, Unstructured
from windtunnel.live.operate.mirror import PRIORITY, RESOURCES, TOPOLOGY
from windtunnel.live.operate.scaling.caches import AUTOSCALERS
from windtunnel.live.rehearse.kubelets import add_node
from windtunnel.scaling.kubernetes.crds import crds as scaling_crds

MANAGER: Final = "windtunnel-rehearsal"
LOOK_S: Final = 0.05
ESTABLISHED_S: Final = 30.0

Manifest = dict[str, Any]


class RehearsedObject(NamedTuple):
    """An object of a set, and its initial number of replicas."""

    kind: str
    name: str
    replicas: int


class RehearsalObjects(NamedTuple):
    """Everything that is on the cluster when a rehearsal begins."""

    sets: Sequence[Manifest]
    nodes: Sequence[Node]
    pools: Sequence[PoolPods]
    sizes: Sequence[RehearsedObject] = ()
    levels: Mapping[str, Mapping[str, str]] = {}
    """By topology: the node label of each level."""
    priorities: Mapping[str, int] = {}
    autoscalers: Mapping[str, Mapping[str, PlainData]] = {}
    """By name: specs of Autoscalers. If there are none, sizes stay as they are."""


async def install(client: Client) -> None:
    """Installs our kinds, and waits until the API server serves them."""
    await install_crds(client, [*crds(), *scaling_crds()])


async def install_crds(client: Client, wanted: Sequence[Manifest]) -> None:
    for crd in wanted:
        body = {key: crd[key] for key in ("metadata", "spec")}
        await client.apply(CRDS, body, Plain, manager=MANAGER, force=True)
    for crd in wanted:
        name = crd["metadata"]["name"]
        async with asyncio.timeout(ESTABLISHED_S):
            while not _is_established(await client.get(CRDS, "", name, Unstructured)):
                await asyncio.sleep(LOOK_S)


def _is_established(crd: Unstructured) -> bool:
    conditions = crd.status.get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


async def create(client: Client, namespace: str, objects: RehearsalObjects) -> None:
    """Creates everything but the Autoscalers, which decide from the start of the run on."""
    await install(client)
    space = {"metadata": {"name": namespace}}
    await client.apply(NAMESPACES, space, Plain, manager=MANAGER, force=True)
    for name, value in objects.priorities.items():
        body: Manifest = {"metadata": {"name": name}, "value": value}
        await client.apply(RESOURCES[PRIORITY], body, Plain, manager=MANAGER, force=True)
    for name, keys in objects.levels.items():
        levels = [{"domain": domain, "key": key} for domain, key in keys.items()]
        body = {"metadata": {"name": name}, "spec": {"levels": levels}}
        await client.apply(RESOURCES[TOPOLOGY], body, Plain, manager=MANAGER, force=True)
    await add_nodes(client, objects.nodes)
    for manifest in objects.sets:
        meta = {**manifest["metadata"], "namespace": namespace}
        body = {"metadata": meta, "spec": manifest["spec"]}
        await client.apply(RESOURCES[SET], body, Plain, manager=MANAGER, force=True)


async def add_nodes(client: Client, nodes: Iterable[Node]) -> None:
    for node in nodes:
        amounts = {name: str(int(amount)) for name, amount in node.capacity.items()}
        await add_node(client, node.name, dict(node.labels), amounts, node.taints)


async def scale(client: Client, namespace: str, sizes: Sequence[RehearsedObject]) -> None:
    """Scales objects to their sizes, once the operator has created them."""
    for one in sizes:
        while True:
            try:
                found = await client.get_scale(RESOURCES[one.kind], namespace, one.name)
            except NotFound:
                await asyncio.sleep(LOOK_S)
                continue
            if found["spec"].get("replicas", 0) != one.replicas:
                await set_replicas(client, RESOURCES[one.kind], namespace, one.name, one.replicas)
            break


async def set_replicas(
    client: Client, resource: Resource, namespace: str, name: str, replicas: int
) -> None:
    """Sets replicas as `kubectl scale` does."""
    change = {"spec": {"replicas": replicas}}
    await client.patch(resource, namespace, name, change, Plain, subresource="scale")


async def autoscale(
    client: Client, namespace: str, name: str, spec: Mapping[str, PlainData]
) -> None:
    body: Manifest = {"metadata": {"name": name, "namespace": namespace}, "spec": dict(spec)}
    await client.apply(AUTOSCALERS, body, Plain, manager=MANAGER, force=True)
