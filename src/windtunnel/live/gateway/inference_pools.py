"""Servers of a Kubernetes InferencePool, from the watched pods that its selector matches.

A pod is a server at each of the pool's target ports while it is ready and not terminating. A
changed selector or port takes effect at once. If the pool is deleted, or its selector matches
everything, this is logged, and the last selector and ports stay in force.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from windtunnel.live.gateway.kubernetes_source import (
    FoundServers,
    KubernetesSource,
    found_of,
    pod_url,
)
from windtunnel.live.kubernetes.client import Client, ObjectSelection
from windtunnel.live.kubernetes.reflector import Reflector
from windtunnel.live.kubernetes.resources import INFERENCE_POOLS, PODS, Object, ServingPod

KINDS: Final = (INFERENCE_POOLS, PODS)


class TargetPort(msgspec.Struct, frozen=True):
    number: int


class PodSelector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] | None = None


class PoolSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The fields that are read from a pool; newer API versions may have more."""

    selector: PodSelector = PodSelector()
    target_ports: list[TargetPort] | None = None

    @property
    def labels(self) -> str:
        """The label selector as a query of the API."""
        return ",".join(f"{key}={value}" for key, value in sorted(self.matched.items()))

    @property
    def matched(self) -> dict[str, str]:
        return self.selector.match_labels or {}

    @property
    def ports(self) -> list[int]:
        return [one.number for one in self.target_ports or ()]


class InferencePool(Object, frozen=True, rename="camel", kw_only=True):
    spec: PoolSpec = PoolSpec()


def pool_fault(pool: InferencePool | None) -> str:
    """Why a pool cannot be followed; empty if it can."""
    if pool is None:
        return "it does not exist"
    if not pool.spec.matched:
        return "its selector has no matchLabels, and would match every pod of the namespace"
    return "" if pool.spec.ports else "it has no targetPorts"


def servers_of(
    pods: Iterable[ServingPod], ports: Iterable[int], fault_of: Callable[[str, int], str]
) -> FoundServers:
    """The servers at every port of each pod that takes requests."""
    urls, faults = [], []
    taking = [pod for pod in pods if pod.is_ready and not pod.is_terminating]
    places = [(pod.status.pod_ip, port) for pod in taking for port in ports]
    for address, port in sorted(places):
        what = fault_of(address, port)
        if what:
            faults.append(what)
        else:
            urls.append(pod_url(address, port))
    return found_of(urls, faults)


async def watch_pool(source: KubernetesSource, client: Client) -> None:
    """Watches an InferencePool until cancelled."""
    space, name = source.namespace, source.name
    selection = ObjectSelection(space, fields=f"metadata.name={name}")
    pools = Reflector(client, INFERENCE_POOLS, InferencePool, selection)
    source.follow(pools)
    pods: Reflector[ServingPod] | None = None
    following: asyncio.Task[None] | None = None
    spec = PoolSpec()
    async with asyncio.TaskGroup() as group:
        group.create_task(pools.run())
        while True:
            await source.look([pools] if pods is None else [pools, pods], KINDS)
            if not pools.synced.is_set():
                continue
            pool = pools.cache.get(space, name)
            fault = pool_fault(pool)
            said = list(pools.unreadable.values()) or ([fault] if fault else [])
            if pool is not None and not fault:
                if pool.spec.matched != spec.matched:
                    if following is not None:
                        following.cancel()
                    pods = Reflector(
                        client, PODS, ServingPod, ObjectSelection(space, pool.spec.labels)
                    )
                    source.follow(pods)
                    following = group.create_task(pods.run())
                spec = pool.spec
            if pods is None or not pods.synced.is_set():
                source.say(said)
                continue
            stays = "; its last selector and ports stay in force"
            urls, faults = servers_of(pods.cache, spec.ports, source.fault_of)
            faults += [f"{pod}: {why}" for (_, pod), why in pods.unreadable.items()]
            source.take(FoundServers(urls, [f"{why}{stays}" for why in said] + faults))
