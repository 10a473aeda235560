"""Where servers are: a list in a file, or the addresses of a DNS name, both watched."""

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.core.files import read_bounded
from windtunnel.live.gateway.settings import DnsEntry

MOST_LISTED: Final = 4096
LARGEST_LIST: Final = 1 << 20
FILE_EVERY_S: Final = 1.0

_log = logging.getLogger("windtunnel.gateway")


def read_list(path: str, fault_of: Callable[[str], str]) -> list[str]:
    """The addresses in a file, one on each line; `#` starts a comment."""
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
    """The addresses of a name now, in order; an OSError where it cannot be resolved."""
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
    """Lists of servers that change while the gateway runs, the last that could be read of each."""

    def __init__(
        self,
        path: str | None,
        names: Sequence[DnsEntry],
        fault_of: Callable[[str], str],
        changed: Callable[[], None],
    ) -> None:
        self._fault_of: Final = fault_of
        self._path: Final = path
        self._names: Final = names
        self._changed: Final = changed
        self._listed: list[str] = [] if path is None else read_list(path, self._fault_of)
        self._resolved: Final[dict[int, list[str]]] = {}

    def urls(self) -> list[str]:
        """All of them, each once."""
        lists = [self._listed, *self._resolved.values()]
        return list(dict.fromkeys(url for urls in lists for url in urls))

    async def watch_file(self) -> None:
        """Reads the file again whenever it changes; one that cannot be read changes nothing."""
        path = self._path
        stamp = _stamp(path)
        while path is not None:
            await asyncio.sleep(FILE_EVERY_S)
            if _stamp(path) != stamp:
                stamp = _stamp(path)
                try:
                    self._listed = read_list(path, self._fault_of)
                except InputError as error:
                    _log.error("%s", error)
                else:
                    self._changed()

    async def watch_name(self, number: int) -> None:
        """Resolves a name again and again; a failure changes nothing."""
        entry = self._names[number]
        while True:
            try:
                found = await resolve(entry)
            except (OSError, UnicodeError) as error:
                _log.error("%s cannot be resolved: %s", entry.name, error)
            else:
                if found and found != self._resolved.get(number):
                    self._resolved[number] = found
                    self._changed()
            await asyncio.sleep(entry.interval_s)


def _stamp(path: str | None) -> tuple[int, int] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
