"""Servers behind a Service of Kubernetes: its EndpointSlices, watched.

An endpoint is a server while it is ready and not terminating. One that terminates, fails its
readiness probe or is gone leaves the list, and so is drained like any server that does. An empty
list is taken at its word: requests then wait for a server. While the API server cannot be read,
the last list stays, and health checks find the servers that have gone meanwhile.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from windtunnel.live.gateway.settings import KubernetesEntry, ServerEntry
from windtunnel.live.kubernetes.client import Client, Selection
from windtunnel.live.kubernetes.errors import Forbidden, KubernetesError, Unauthorized
from windtunnel.live.kubernetes.reflector import Reflector
from windtunnel.live.kubernetes.resources import ENDPOINT_SLICES, Object

SERVICE_LABEL: Final = "kubernetes.io/service-name"
MOST_ENDPOINTS: Final = 4096
MOST_FAULTS: Final = 16
LOOK_S: Final = 1.0
"""How often it is looked whether the API server still answers."""
SETTLED_LOOKS: Final = 60
"""An API server that has just come back refuses everything for some seconds, and is asked again
within half a minute: that alone is not said."""
FAMILIES: Final = ("IPv4", "IPv6")

_log = logging.getLogger("windtunnel.gateway")


class Conditions(msgspec.Struct, frozen=True):
    """What is not said is as the API has it: ready unless false, terminating only if true."""

    ready: bool | None = None
    terminating: bool | None = None


class PodReference(msgspec.Struct, frozen=True):
    """The pod of an endpoint."""

    uid: str = ""


class Endpoint(msgspec.Struct, frozen=True, rename="camel"):
    """An address of a Service; of several only the first counts."""

    addresses: list[str] = []
    conditions: Conditions = Conditions()
    target_ref: PodReference | None = None

    @property
    def takes_requests(self) -> bool:
        return self.conditions.ready is not False and not self.conditions.terminating


class EndpointPort(msgspec.Struct, frozen=True):
    """A port of all endpoints of a slice, as pods have it."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class EndpointSlice(Object, frozen=True, rename="camel", kw_only=True):
    """Some of the endpoints of a Service."""

    address_type: str = "IPv4"
    endpoints: list[Endpoint] | None = None
    ports: list[EndpointPort] | None = None


class Found(NamedTuple):
    """The servers in slices, and sentences about what was left out."""

    urls: list[str]
    faults: list[str]


def servers_in(
    slices: Iterable[EndpointSlice],
    port: int | str | None,
    fault_of: Callable[[str], str],
) -> Found:
    """Each pod once, though several slices may list it, by IPv4 where it has both families."""
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
                url = _url(each.addresses[0], number)
                what = fault_of(url) if url else f"{each.addresses[0][:80]!r} is not an IP address"
                if what:
                    faults[what] = None
                else:
                    found.setdefault(each.target_ref.uid if each.target_ref else url, url)
    urls = list(dict.fromkeys(found.values()))
    if len(urls) > MOST_ENDPOINTS:
        faults[f"of {len(urls)} endpoints only {MOST_ENDPOINTS} are used"] = None
    return Found(sorted(urls)[:MOST_ENDPOINTS], list(faults)[:MOST_FAULTS])


def _port_of(one: EndpointSlice, port: int | str | None) -> int | str:
    """The number of the port, or what is wrong."""
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
    return f"`port` has to say which; TCP ports of the Service: {names}"


def _url(address: str, port: int) -> str:
    """Empty where it is not an IP address."""
    try:
        version = ipaddress.ip_address(address).version
    except ValueError:
        return ""
    return f"http://[{address}]:{port}" if version == 6 else f"http://{address}:{port}"


class ServiceWatch:
    """The servers of one Service, as its EndpointSlices last had them."""

    def __init__(
        self,
        entry: KubernetesEntry,
        namespace: str,
        fault_of: Callable[[str], str],
        changed: Callable[[list[ServerEntry]], None],
    ) -> None:
        space, _, self._name = entry.service.rpartition("/")
        self._namespace: Final = space or namespace
        self._entry: Final = entry
        self._fault_of: Final = fault_of
        self._changed: Final = changed
        self._shown: Final = f"Service {self._namespace}/{self._name}"
        self._urls: list[str] | None = None
        self._faults: list[str] = []
        self._failing = ""
        self._changing = 0  # looks for which it failed in another way

    async def watch(self, client: Client) -> None:
        """Until it is cancelled."""
        selection = Selection(self._namespace, f"{SERVICE_LABEL}={self._name}")
        reflector = Reflector(client, ENDPOINT_SLICES, EndpointSlice, selection)
        look = asyncio.Event()
        reflector.cache.subscribe(lambda _, __: look.set())
        async with asyncio.TaskGroup() as group:
            group.create_task(reflector.run())
            while True:
                try:
                    async with asyncio.timeout(LOOK_S):
                        await look.wait()
                except TimeoutError:
                    pass
                look.clear()
                self._heard(reflector.last_error)
                if reflector.synced.is_set():
                    self._take(reflector)

    def _take(self, reflector: Reflector[EndpointSlice]) -> None:
        urls, faults = servers_in(reflector.cache, self._entry.port, self._fault_of)
        faults += [f"{name}: {why}" for (_, name), why in reflector.unreadable.items()]
        if faults != self._faults:
            for what in faults:
                _log.error("%s: %s", self._shown, what)
            self._faults = faults
        if urls != self._urls:
            if not urls:
                _log.warning("%s has no ready endpoint", self._shown)
            self._urls = urls
            self._changed([self._entry.server(url) for url in urls])

    def _heard(self, error: KubernetesError | None) -> None:
        """Says once that the API server cannot be read, and once that it can again."""
        refused = isinstance(error, Forbidden | Unauthorized)
        failing = "" if error is None else "refused" if refused else "away"
        if failing == self._failing:
            self._changing = 0
            return
        self._changing += 1
        if failing and self._failing and self._changing < SETTLED_LOOKS:
            return
        self._failing, self._changing = failing, 0
        if error is None:
            _log.warning("%s: its EndpointSlices are read again", self._shown)
            return
        hint = ""
        if refused:
            hint = (
                f"; the gateway needs the rights to list and watch {ENDPOINT_SLICES.plural}."
                f"{ENDPOINT_SLICES.group} in the namespace {self._namespace}"
            )
        known = f"known servers stay ({len(self._urls)})" if self._urls else "no server is known"
        _log.error(
            "%s: its EndpointSlices cannot be read, %s: %s%s", self._shown, known, error, hint
        )
