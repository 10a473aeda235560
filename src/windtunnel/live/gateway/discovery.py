"""Watched sources of servers: a file, DNS names, the pods of a Service or an InferencePool."""

import asyncio
import functools
import ipaddress
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from windtunnel.core.errors import InputError
from windtunnel.core.system.files import read_bounded
from windtunnel.live.gateway.settings import DnsEntry, LiveSettings, ServerEntry

if TYPE_CHECKING:
    from windtunnel.live.kubernetes.config import ClusterConfig

MOST_LISTED: Final = 4096
LARGEST_LIST: Final = 1 << 20
FileStamp = tuple[int, int, int] | None
"""Changes when a file is written or replaced; None if there is no file."""
FILE_EVERY_S: Final = 0.2

_log = logging.getLogger("windtunnel.gateway")


def read_list(path: str, fault_of: Callable[[str], str]) -> list[str]:
    """The addresses in a file, one per line; `#` starts a comment."""
    try:
        data = read_bounded(Path(path), LARGEST_LIST, subject="the list of servers")
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise InputError("the list of servers is not UTF-8", where=path) from None
    found = []
    for number, line in enumerate(lines[:MOST_LISTED], 1):
        url = line.partition("#")[0].strip().rstrip("/")
        if not url:
            continue
        what = fault_of(url)
        if what:
            raise InputError(what, where=f"{path}:{number}")
        found.append(url)
    return found


async def resolve(entry: DnsEntry) -> list[str]:
    """The current addresses of a name, sorted; raises OSError if it cannot be resolved."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(entry.name, entry.port, type=socket.SOCK_STREAM)
    hosts = sorted({str(address[0]) for *_, address in found})
    urls = []
    for host in hosts[:MOST_LISTED]:
        if not ipaddress.ip_address(host.partition("%")[0]).is_link_local:
            shown = f"[{host}]" if ":" in host else host
            urls.append(f"http://{shown}:{entry.port}")
    return urls


class Discovery:
    """Lists of servers that change while the gateway runs; each keeps its last readable state."""

    def __init__(
        self,
        live: LiveSettings,
        environment: Mapping[str, str],
        fault_of: Callable[[str], str],
        changed: Callable[[], None],
    ) -> None:
        self._fault_of: Final = fault_of
        self._path: Final = live.servers_file
        self._names: Final = live.servers_dns
        self._kubernetes: Final = live.servers_kubernetes
        self._cluster: ClusterConfig | None = None
        if self._kubernetes:
            from windtunnel.live.kubernetes.config import load_config

            self._cluster = load_config(environment=environment)
        self._changed: Final = changed
        self._lists: Final[dict[str, list[ServerEntry]]] = {}
        self._stamp: FileStamp = None
        if self._path is not None:
            self._stamp = _stamp(self._path)
            self._lists[self._path] = _plain(read_list(self._path, self._fault_of))

    def servers(self) -> dict[str, ServerEntry]:
        """All servers by address; if an address is found twice, the first entry counts."""
        found: dict[str, ServerEntry] = {}
        for entries in self._lists.values():
            for entry in entries:
                found.setdefault(entry.url, entry)
        return found

    def watches(self) -> list[Coroutine[None, None, None]]:
        """The watching coroutines, which run until cancelled."""
        found = [self._watch_name(number) for number in range(len(self._names))]
        if self._path is not None:
            found.append(self._watch_file(self._path))
        if self._cluster is not None:
            found.append(self._watch_kubernetes(self._cluster))
        return found

    def _take(self, source: str, entries: list[ServerEntry]) -> None:
        if entries != self._lists.get(source):
            self._lists[source] = entries
            self._changed()

    async def _watch_file(self, path: str) -> None:
        """Reads the file again once it has changed and then stayed the same for one interval, since
        it may be half written. A file that cannot be read changes nothing."""
        taken = seen = self._stamp
        while True:
            await asyncio.sleep(FILE_EVERY_S)
            before, seen = seen, _stamp(path)
            if seen == taken or seen != before:
                continue
            taken = seen
            try:
                self._take(path, _plain(read_list(path, self._fault_of)))
            except InputError as error:
                _log.error("%s", error)

    async def _watch_name(self, number: int) -> None:
        """Resolves a name periodically; a failure changes nothing."""
        entry = self._names[number]
        while True:
            try:
                found = await resolve(entry)
            except (OSError, UnicodeError) as error:
                _log.error("%s cannot be resolved: %s", entry.name, error)
            else:
                if found:
                    self._take(f"name {number}", _plain(found))
            await asyncio.sleep(entry.interval_s)

    async def _watch_kubernetes(self, cluster: "ClusterConfig") -> None:
        from windtunnel.live.gateway.endpoint_slices import watch_service
        from windtunnel.live.gateway.inference_pools import watch_pool
        from windtunnel.live.gateway.kubernetes_source import KubernetesSource
        from windtunnel.live.kubernetes.client import open_client

        async with open_client(cluster, name="gateway") as client, asyncio.TaskGroup() as group:
            for number, entry in enumerate(self._kubernetes):
                changed = functools.partial(self._take, f"kubernetes {number}")
                source = KubernetesSource(entry, cluster.namespace, self._fault_of, changed)
                watch = watch_service if entry.pool is None else watch_pool
                group.create_task(watch(source, client))


def _plain(urls: Sequence[str]) -> list[ServerEntry]:
    return [ServerEntry(url=url) for url in urls]


def _stamp(path: str) -> FileStamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
