"""Servers listed by Kubernetes, and warnings while they cannot be read.

While the API server cannot be read, the last list stays in force, and health checks detect servers
that have gone.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from windtunnel.live.gateway.settings import KubernetesEntry, ServerEntry
from windtunnel.live.kubernetes.errors import Forbidden, NotFound, Unauthorized
from windtunnel.live.kubernetes.reflector import Reflector
from windtunnel.live.kubernetes.resources import Resource

MOST_ENDPOINTS: Final = 4096
MOST_FAULTS: Final = 16
LOOK_S: Final = 1.0
"""How often to check whether the API server still answers."""
SETTLED_LOOKS: Final = 60
"""Checks before another kind of failure is logged: an API server that has just returned refuses
everything for some seconds and is read again within half a minute."""

_log = logging.getLogger("windtunnel.gateway")


class FoundServers(NamedTuple):
    """The servers in a list, and messages about what was left out."""

    urls: list[str]
    faults: list[str]


def found_of(urls: Iterable[str], faults: Iterable[str]) -> FoundServers:
    """The servers without duplicates, sorted, within the limits."""
    ordered, said = sorted(set(urls)), list(dict.fromkeys(faults))
    if len(ordered) > MOST_ENDPOINTS:
        said.append(f"of {len(ordered)} endpoints only {MOST_ENDPOINTS} are used")
    return FoundServers(ordered[:MOST_ENDPOINTS], said[:MOST_FAULTS])


def pod_url(address: str, port: int) -> str:
    """The URL of a pod; empty if the address is not an IP address."""
    try:
        version = ipaddress.ip_address(address).version
    except ValueError:
        return ""
    return f"http://[{address}]:{port}" if version == 6 else f"http://{address}:{port}"


class KubernetesSource:
    """One entry of `live.servers_kubernetes`: its servers as last read from the API server."""

    def __init__(
        self,
        entry: KubernetesEntry,
        namespace: str,
        fault_of: Callable[[str], str],
        changed: Callable[[list[ServerEntry]], None],
    ) -> None:
        space, _, self.name = entry.place.rpartition("/")
        self.namespace: Final = space or namespace
        self.port: Final = entry.port
        self._entry: Final = entry
        self._fault_of: Final = fault_of
        self._changed: Final = changed
        self._shown: Final = f"{entry.kind} {self.namespace}/{self.name}"
        self._look: Final = asyncio.Event()
        self._urls: list[str] | None = None
        self._faults: list[str] = []
        self._failing: tuple[str, bool] | None = None  # the kind, and whether access is denied
        self._changing = 0  # checks in a row with another failure

    def fault_of(self, address: str, port: int) -> str:
        """What is wrong with a server's address; empty if nothing."""
        url = pod_url(address, port)
        return self._fault_of(url) if url else f"{address[:80]!r} is not an IP address"

    def follow(self, reflector: Reflector[Any]) -> None:
        """Checks the list whenever one of the reflector's objects changes."""
        reflector.cache.subscribe(lambda _, __: self._look.set())

    async def look(self, reflectors: Sequence[Reflector[Any]], kinds: Sequence[Resource]) -> None:
        """Waits for a change or a short time; logs which of the needed `kinds` cannot be read."""
        try:
            async with asyncio.timeout(LOOK_S):
                await self._look.wait()
        except TimeoutError:
            pass
        self._look.clear()
        self._log_readable(reflectors, kinds)

    def take(self, found: FoundServers) -> None:
        """Takes over a complete list. An empty one is accepted: requests then wait for a server."""
        self.say(found.faults)
        if found.urls != self._urls:
            if not found.urls:
                _log.warning("%s has no ready endpoint", self._shown)
            self._urls = found.urls
            self._changed([self._entry.server(url) for url in found.urls])

    def say(self, faults: list[str]) -> None:
        """Logs the faults of the list, once."""
        if faults != self._faults:
            for what in faults:
                _log.error("%s: %s", self._shown, what)
            self._faults = faults

    def _log_readable(
        self, reflectors: Sequence[Reflector[Any]], kinds: Sequence[Resource]
    ) -> None:
        """Logs once that the API server cannot be read, and once that it can again."""
        failed = next((one for one in reflectors if one.last_error is not None), None)
        error = failed.last_error if failed is not None else None
        refused = isinstance(error, Forbidden | Unauthorized)
        failing = None if failed is None else (failed.resource.kind, refused)
        if failing == self._failing:
            self._changing = 0
            return
        self._changing += 1
        before = self._failing
        if failing and before and self._changing < SETTLED_LOOKS:
            return
        self._failing, self._changing = failing, 0
        if failing is None:
            assert before is not None
            _log.warning("%s: %ss are read again", self._shown, before[0])
            return
        hint = ""
        if refused:
            named = ", ".join(f"{one.plural}.{one.group}".rstrip(".") for one in kinds)
            hint = (
                f"; the gateway needs the rights to list and watch {named} in the namespace "
                f"{self.namespace}"
            )
        elif isinstance(error, NotFound):
            hint = f"; is the kind {failing[0]} installed on this cluster?"
        known = f"known servers stay ({len(self._urls)})" if self._urls else "no server is known"
        what = f"{failing[0]}s cannot be read, {known}"
        _log.error("%s: %s: %s%s", self._shown, what, error, hint)
