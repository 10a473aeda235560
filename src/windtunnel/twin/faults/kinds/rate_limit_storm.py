"""`rate-limit-storm`: servers answer 429."""

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.fields import Number
from windtunnel.twin.faults.context import FaultContext
from windtunnel.twin.faults.kind import Injection, LastingFault
from windtunnel.twin.faults.servers import ALL, ServerFault, ServerSelect, draw_select, names_of
from windtunnel.twin.faults.world import RateLimit, World


class RateLimitStorm(ServerFault, LastingFault):
    """Servers answer 429 to some of the requests that are sent to them.

    What becomes of those is said by `serving.retries`.
    """

    kind: Literal["rate-limit-storm"]
    select: ServerSelect = Field(
        default_factory=lambda: ServerSelect(count=ALL),
        description="Which servers; left out: all.",
    )
    share: Annotated[float, Number(0, 1, above=True)] = Field(
        default=1.0, description="The share of requests that they refuse, drawn for each."
    )

    @property
    def is_random(self) -> bool:
        return super().is_random or self.share < 1

    def prepare(self, world: World, stream: Stream) -> Injection:
        """Servers that start meanwhile do not refuse."""
        servers = self.select.choose(world, stream)
        limit = RateLimit([int(one.server.index) for one in servers], self.share, stream)
        return Injection(
            names_of(servers),
            begin=lambda _: world.rate_limits.add(limit),
            end=lambda _: world.rate_limits.remove(limit),
        )

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        lasts_s = context.span_s(dice)
        return {"for": lasts_s, "share": dice.span(0.05, 1.0), **draw_select(dice, context)}
