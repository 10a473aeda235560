"""Servers of a Kubernetes Service, from its watched EndpointSlices.

An endpoint is a server while it is ready and not terminating. An endpoint that terminates, fails
its readiness probe or disappears leaves the list and is drained, like any server that does.
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
from windtunnel.live.kubernetes.resources import ENDPOINT_SLICES, Object

SERVICE_LABEL: Final = "kubernetes.io/service-name"
FAMILIES: Final = ("IPv4", "IPv6")


class Conditions(msgspec.Struct, frozen=True):
    """Conditions of an endpoint; by default it is ready and not terminating, as in the API."""

    ready: bool | None = None
    terminating: bool | None = None


class PodReference(msgspec.Struct, frozen=True):
    """The pod behind an endpoint."""

    uid: str = ""


class SliceEndpoint(msgspec.Struct, frozen=True, rename="camel"):
    """An endpoint of a Service; only the first of its addresses is used."""

    addresses: list[str] = []
    conditions: Conditions = Conditions()
    target_ref: PodReference | None = None

    @property
    def takes_requests(self) -> bool:
        return self.conditions.ready is not False and not self.conditions.terminating


class EndpointPort(msgspec.Struct, frozen=True):
    """A port of all endpoints in a slice, as pods declare it."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class EndpointSlice(Object, frozen=True, rename="camel", kw_only=True):
    """Some of a Service's endpoints."""

    address_type: str = "IPv4"
    endpoints: list[SliceEndpoint] | None = None
    ports: list[EndpointPort] | None = None


def servers_in(
    slices: Iterable[EndpointSlice],
    port: int | str | None,
    fault_of: Callable[[str, int], str],
) -> FoundServers:
    """Each pod once, even if several slices list it; by IPv4 if it has both families."""
    found: dict[str, str] = {}  # by pod
    faults: dict[str, None] = {}
    in_order = sorted(slices, key=lambda one: (one.address_type, one.metadata.key))
    for one in in_order:
        taking = [each for each in one.endpoints or () if each.addresses and each.takes_requests]
        if not taking:
            continue
        number = _port_of(one, port)
        if one.address_type not in FAMILIES:
            faults[f"addresses of type {one.address_type} are not used"] = None
        elif isinstance(number, str):
            faults[number] = None
        else:
            for each in taking:
                what = fault_of(each.addresses[0], number)
                if what:
                    faults[what] = None
                    continue
                url = pod_url(each.addresses[0], number)
                found.setdefault(each.target_ref.uid if each.target_ref else url, url)
    return found_of(found.values(), faults)


def _port_of(one: EndpointSlice, port: int | str | None) -> int | str:
    """The port number, or what is wrong."""
    if isinstance(port, int):
        return port
    numbers = {
        each.name or "": each.port
        for each in one.ports or ()
        if each.port is not None and (each.protocol or "TCP") == "TCP"
    }
    names = ", ".join(sorted(numbers)) or "none"
    if port is not None:
        return numbers.get(port, f"there is no TCP port {port!r}; the Service has {names}")
    if len(numbers) == 1:
        return next(iter(numbers.values()))
    return f"`port` must name one; TCP ports of the Service: {names}"


async def watch_service(source: KubernetesSource, client: Client) -> None:
    """Watches a Service until cancelled."""
    selection = ObjectSelection(source.namespace, f"{SERVICE_LABEL}={source.name}")
    reflector = Reflector(client, ENDPOINT_SLICES, EndpointSlice, selection)
    source.follow(reflector)
    async with asyncio.TaskGroup() as group:
        group.create_task(reflector.run())
        while True:
            await source.look([reflector], [ENDPOINT_SLICES])
            if reflector.synced.is_set():
                urls, faults = servers_in(reflector.cache, source.port, source.fault_of)
                faults += [f"{name}: {why}" for (_, name), why in reflector.unreadable.items()]
                source.take(FoundServers(urls, faults))
