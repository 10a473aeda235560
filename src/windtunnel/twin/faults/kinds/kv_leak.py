"""`kv-leak`: engines lose KV blocks as they run."""

from typing import Annotated, Final, Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.fields import Rate
from windtunnel.twin.faults.context import FaultContext
from windtunnel.twin.faults.kind import Injection, LastingFault
from windtunnel.twin.faults.servers import ServerFault, draw_select, names_of
from windtunnel.twin.faults.world import World
from windtunnel.twin.servers.replicas import Replica

LOOK_S: Final = 1.0
"""Blocks that leaked since the last look are counted this often, or one by one if they are rare."""


class KvLeak(ServerFault, LastingFault):
    """KV blocks of some servers become unusable, for as long as their engines run."""

    kind: Literal["kv-leak"]
    rate_per_s: Annotated[float, Rate("0.001/s", "1000000/s")] = Field(
        description="Blocks of each of them."
    )

    def prepare(self, world: World, stream: Stream) -> Injection:
        servers = self.select.choose(world, stream)
        leak = Leak(self.rate_per_s, world, servers)
        return Injection(names_of(servers), begin=leak.begin, end=leak.end)

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        lasts_s = context.span_s(dice)
        return {"for": lasts_s, "rate": dice.span(0.1, 50.0), **draw_select(dice, context)}


class Leak:
    """Servers that leak for a while; what has leaked is lost for as long as they run."""

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
        """Lets blocks leak that should have by now; if none is free, they leak later."""
        due = int(self._blocks_per_s * (now_s - self._begun_s) + 1e-9)
        for place, server in enumerate(self._servers):
            self._leaked[place] += self._world.leak(server, due - self._leaked[place], now_s)
