"""The view that control planes have of servers: load when probed, and prefix caches."""

from typing import Final

from windtunnel.core.signals import Signals
from windtunnel.engine.server import Server


def probe(servers: list[Server], signals: Signals, now_s: float) -> None:
    """Fills the signals with the current load of these servers, except those that do not answer."""
    missed = signals.missed
    if missed:
        servers = [server for server in servers if int(server.index) not in missed]
    for server in servers:
        number = server.index
        kv_used = server.kv_used(now_s)
        signals.observe_load(number, server.queued, server.running.count, kv_used, now_s)
        if server.slots is not None:
            loaded, queued = server.slots.loaded(), server.waiting.adapters()
            signals.observe_adapters(number, loaded, now_s, queued, server.slots.room())
    signals.refreshed(now_s)


class ServerCaches:
    """The prefix caches of servers as a feed of changes, for the cache index of a router."""

    def __init__(self, servers: list[Server]) -> None:
        self._servers: Final = servers  # the driver appends to it

    def servers(self) -> int:
        return len(self._servers)

    def block_size(self, server: int) -> int:
        return self._servers[server].limits.block_size

    def subscribe(self, server: int, changes: list[int]) -> None:
        pool = self._servers[server].pool
        if pool.journal is None:
            pool.listen(changes, server)

    def unsubscribe(self, server: int) -> None:
        self._servers[server].pool.journal = None
