"""`kv-leak`, `rate-limit-storm`, `router-partition`, `slow-machine`: faults of servers."""

from typing import Annotated, Final, Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.fields import Number, Rate, Share
from windtunnel.twin.faults.context import FaultContext
from windtunnel.twin.faults.kind import Injection, LastingFault, lasting
from windtunnel.twin.faults.servers import ALL, ServerFault, ServerSelect, names_of
from windtunnel.twin.faults.world import SLOWEST, RateLimit, World
from windtunnel.twin.servers.replicas import Replica

LOOK_S: Final = 1.0
"""How often leaked blocks are counted, or one by one if they leak more slowly."""


class KvLeak(ServerFault, LastingFault):
    """KV blocks become unusable until the engine restarts."""

    kind: Literal["kv-leak"]
    rate_per_s: Annotated[float, Rate("0.001/s", "1000000/s")] = Field(
        description="Blocks per server."
    )

    def prepare(self, world: World, stream: Stream) -> Injection:
        servers = self.select.choose(world, stream)
        leak = Leak(self.rate_per_s, world, servers)
        return Injection(names_of(servers), begin=leak.begin, end=leak.end)

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        return {**super().draw(dice, context), "rate": dice.span(0.1, 50.0)}


class Leak:
    """The leak of some servers; leaked blocks stay lost for as long as a server runs."""

    def __init__(self, blocks_per_s: float, world: World, servers: list[Replica]) -> None:
        self._blocks_per_s: Final = blocks_per_s
        self._world: Final = world
        self._servers: Final = servers
        self._leaked: Final = [0] * len(servers)
        self._begun_s = 0.0
        self._over = False

    def begin(self, now_s: float) -> None:
        self._begun_s = now_s
        self._look_later(now_s)

    def end(self, now_s: float) -> None:
        self._over = True
        self._leak(now_s)

    def _look_later(self, now_s: float) -> None:
        wait_s = max(LOOK_S, 1.0 / self._blocks_per_s)
        self._world.later(now_s + wait_s, self._look, helps=False)

    def _look(self, now_s: float) -> None:
        if not self._over:
            self._leak(now_s)
            if any(self._world.can_leak(one) for one in self._servers):
                self._look_later(now_s)

    def _leak(self, now_s: float) -> None:
        """Leaks the blocks that are due; without enough free blocks, the rest leaks later."""
        due = int(self._blocks_per_s * (now_s - self._begun_s) + 1e-9)
        for place, server in enumerate(self._servers):
            self._leaked[place] += self._world.leak(server, due - self._leaked[place], now_s)


class RateLimitStorm(ServerFault, LastingFault):
    """Servers answer 429 to some requests."""

    kind: Literal["rate-limit-storm"]
    select: ServerSelect = Field(
        default_factory=lambda: ServerSelect(count=ALL),
        description="Which servers; default: all.",
    )
    share: Annotated[float, Share(above=True)] = Field(
        default=1.0, description="Share of requests refused, drawn for each."
    )

    @property
    def is_random(self) -> bool:
        return super().is_random or self.share < 1

    def prepare(self, world: World, stream: Stream) -> Injection:
        """Chooses the servers; those that start during the fault do not refuse requests."""
        servers = self.select.choose(world, stream)
        limit = RateLimit([int(one.server.index) for one in servers], self.share, stream)
        return lasting(names_of(servers), lambda on, _: world.rate_limits.set(limit, on=on))

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        return {**super().draw(dice, context), "share": dice.span(0.05, 1.0)}


class RouterPartition(ServerFault, LastingFault):
    """Routers and gateways do not see some ready servers."""

    kind: Literal["router-partition"]

    def prepare(self, world: World, stream: Stream) -> Injection:
        servers = self.select.choose(world, stream, ready_only=True)
        return lasting(names_of(servers), lambda on, _: world.hide(servers, on=on))


class SlowMachine(ServerFault, LastingFault):
    """Steps of some servers take longer."""

    kind: Literal["slow-machine"]
    factor: Annotated[float, Number(1, SLOWEST, above=True)] = Field(
        default=2.0, description="Factor on step times."
    )

    def prepare(self, world: World, stream: Stream) -> Injection:
        servers = self.select.choose(world, stream)
        return lasting(
            names_of(servers), lambda on, now_s: world.slow(servers, self.factor, now_s, on=on)
        )

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        drawn = super().draw(dice, context)
        if dice.chance(0.4):  # slowdowns without an end multiply where the fault is repeated
            del drawn["for"]
            return {**drawn, "factor": dice.span(1.1, 3.0)}
        return {**drawn, "factor": dice.span(1.1, 20.0)}
