"""Filters of the weighted router: which servers are scored at all, as in llm-d and Kthena.

A filter that would leave no server is passed over: a request is never without one because of it.
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.signals import Signals
from windtunnel.routing.prefixes import CacheIndex
from windtunnel.workload.request import Request


class ServerFilter:
    """Keeps some of the servers for a request."""

    def __init__(self, signals: Signals) -> None:
        self.signals: Final = signals

    def reads_signals(self) -> bool:
        """Whether it reads the load that servers report when they are probed."""
        return True

    def keeps(self, request: Request, server: int) -> bool:
        raise NotImplementedError

    def kept(self, request: Request, servers: list[int]) -> list[int]:
        """Those that pass, or all where none does."""
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
    """Servers that have loaded the request's adapter; a request without one may go anywhere."""

    def keeps(self, request: Request, server: int) -> bool:
        return request.adapter < 0 or int(request.adapter) in self.signals.adapters[server]


class PrefixCacheFilter(ServerFilter):
    """Servers that have cached most of a prompt, unless they are much busier than others.

    How long a request would wait is estimated from the prompt tokens in flight. When the least busy
    of those with the prefix would make it wait for longer than the least busy of the others by more
    than `penalty_s`, all servers are kept.
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
