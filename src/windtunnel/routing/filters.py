"""Filters of the weighted router: they select the servers that are scored, as in llm-d and Kthena.

A filter that would leave no server is skipped, so a filter never leaves a request without one.
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.signals import Signals
from windtunnel.routing.prefixes import CacheIndex
from windtunnel.workload.request import Request


class ServerFilter:
    """Selects servers for a request."""

    def __init__(self, signals: Signals) -> None:
        self.signals: Final = signals

    def reads_signals(self) -> bool:
        """Whether it reads the load that servers report when probed."""
        return True

    def keeps(self, request: Request, server: int) -> bool:
        raise NotImplementedError

    def kept(self, request: Request, servers: list[int]) -> list[int]:
        """The servers that pass, or all if none does."""
        found = [server for server in servers if self.keeps(request, server)]
        return found or servers


class ActiveRequestsFilter(ServerFilter):
    """Servers with at most this many requests in flight."""

    def __init__(self, signals: Signals, most: int) -> None:
        super().__init__(signals)
        self._most: Final[i64] = most

    def reads_signals(self) -> bool:
        return False

    def keeps(self, request: Request, server: int) -> bool:  # noqa: ARG002
        return self.signals.in_flight[server] <= self._most


class QueueDepthFilter(ServerFilter):
    """Servers that reported at most this many queued requests."""

    def __init__(self, signals: Signals, most: int) -> None:
        super().__init__(signals)
        self._most: Final[i64] = most

    def keeps(self, request: Request, server: int) -> bool:  # noqa: ARG002
        return self.signals.waiting[server] <= self._most


class KvUtilizationFilter(ServerFilter):
    """Servers that reported at most this share of their KV blocks in use."""

    def __init__(self, signals: Signals, most: float) -> None:
        super().__init__(signals)
        self._most: Final = most

    def keeps(self, request: Request, server: int) -> bool:  # noqa: ARG002
        return self.signals.kv_used[server] <= self._most


class LoraFilter(ServerFilter):
    """Servers that have loaded the request's adapter; all servers for a request without one."""

    def keeps(self, request: Request, server: int) -> bool:
        return request.adapter < 0 or int(request.adapter) in self.signals.adapters[server]


class PrefixCacheFilter(ServerFilter):
    """Servers that have cached most of a prompt, unless they are much busier than others.

    Waiting times are estimated from the prompt tokens in flight. If even the least busy server with
    the prefix would make the request wait more than `penalty_s` longer than the least busy of the
    others, all servers are kept.
    """

    def __init__(
        self,
        signals: Signals,
        index: CacheIndex,
        share: float,
        penalty_s: float,
        tokens_per_s: float,
    ) -> None:
        super().__init__(signals)
        self._index: Final = index
        self._share: Final = share
        self._penalty_tokens: Final = penalty_s * tokens_per_s

    def reads_signals(self) -> bool:
        return False

    def keeps(self, request: Request, server: int) -> bool:
        return self._index.tokens(request, server) >= self._share * float(request.prompt_tokens)

    def kept(self, request: Request, servers: list[int]) -> list[int]:
        found = [server for server in servers if self.keeps(request, server)]
        if not found or len(found) == len(servers):
            return servers
        sticky = set(found)
        tokens = self.signals.tokens_in_flight
        least = min([tokens[server] for server in found])
        elsewhere = min([tokens[server] for server in servers if server not in sticky])
        return servers if float(least - elsewhere) > self._penalty_tokens else found
