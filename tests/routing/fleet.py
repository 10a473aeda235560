"""A few servers whose signals and caches a test sets as it likes."""

from pathlib import Path

from tests.engine.limits import engine_limits
from windtunnel.core.random import Stream
from windtunnel.core.signals import Signals
from windtunnel.engine.server import Server
from windtunnel.engine.views import ServerCaches
from windtunnel.models.step_time.linear import Linear
from windtunnel.routing.build import RouterInputs, build_router
from windtunnel.routing.custom import RequestLabels
from windtunnel.routing.prefixes import CacheIndex, CacheJournal
from windtunnel.routing.router import Routed, Router
from windtunnel.routing.settings import RouterSettings
from windtunnel.workload.request import PrefixChain, Request

LINEAR = Linear(fixed_s=0.01, prefill_token_s=1e-4, decode_s=1e-4, context_token_s=0.0)


class Fleet:
    """Servers, their signals, and a journal of their caches."""

    def __init__(
        self, servers: int, *, kv_blocks: int = 100, block_sizes: tuple[int, ...] = (16,)
    ) -> None:
        self._kv_blocks = kv_blocks
        self._block_sizes = block_sizes
        self.servers = [self._server(number) for number in range(servers)]
        self.signals = Signals([8] * servers, 0.05)
        self.everyone = list(range(servers))
        self.journal = CacheJournal(ServerCaches(self.servers))

    def _server(self, number: int) -> Server:
        size = self._block_sizes[number % len(self._block_sizes)]
        limits = engine_limits(kv_blocks=self._kv_blocks, block_size=size, async_scheduling=False)
        return Server(number, limits, LINEAR)

    def grow(self) -> int:
        """A server more: its number."""
        number = self.signals.join(8)
        self.servers.append(self._server(number))
        return number

    def router(self, policy: str, candidates: list[int] | None = None, **options: float) -> Router:
        """A router of this policy; scorers are given by name with `_` for `-`."""
        scorers = {name.replace("_", "-"): weight for name, weight in options.items()}
        settings = RouterSettings(policy=policy, cache_delay_s=0.0)
        if scorers:
            settings = RouterSettings(policy=policy, cache_delay_s=0.0, scorers=scorers)
        return build_router(
            settings, candidates or self.everyone, self.inputs(), Stream(1, "router")
        )

    def inputs(self, labels: RequestLabels | None = None, folder: Path = Path()) -> RouterInputs:
        pools = ["main"] * len(self.servers)
        return RouterInputs(self.signals, self.journal, pools, labels or RequestLabels(), folder)

    def index(self, delay_s: float = 0.0) -> CacheIndex:
        return CacheIndex(self.journal, self.everyone, delay_s)

    def caches(self, server: int, key: int, tokens: int) -> None:
        """The server now has so much of a segment, counted from the start of the prompt."""
        self.journal.entries.extend((server, key, tokens))

    def see(
        self,
        now_s: float = 0.0,
        *,
        waiting: list[int] | None = None,
        running: list[int] | None = None,
        kv_used: list[float] | None = None,
    ) -> None:
        """The servers have been asked, and say this."""
        signals = self.signals
        waiting, running = waiting or signals.waiting, running or signals.running
        kv_used = kv_used or signals.kv_used
        for server in range(len(self.servers)):
            load = waiting[server], running[server], kv_used[server]
            signals.observe_load(server, *load, now_s)
        signals.refreshed(now_s)

    def send(self, *servers: int) -> None:
        for server in servers:
            self.signals.sent(server)


def chosen(router: Router, request: Request, now_s: float = 0.0) -> int:
    """The number of the server that a router chooses."""
    decision = router.choose(request, now_s)
    assert isinstance(decision, Routed)
    return int(decision.server)


def prompt(
    number: int = 0,
    *,
    tokens: int = 160,
    keys: list[int] | None = None,
    ends: list[int] | None = None,
    session: int = -1,
    adapter: int = -1,
) -> Request:
    """A request whose prompt starts with these segments."""
    prefix = PrefixChain(keys, ends or [tokens // 2]) if keys else None
    request = Request(number, 0.0, tokens, 4, prefix=prefix)
    request.session = session
    request.adapter = adapter
    return request
