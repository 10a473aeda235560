"""`slow-machine`: steps of some servers take longer."""

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.fields import Number
from windtunnel.twin.faults.context import FaultContext
from windtunnel.twin.faults.kind import Injection, LastingFault
from windtunnel.twin.faults.servers import ServerFault, draw_select, names_of
from windtunnel.twin.faults.world import SLOWEST, World


class SlowMachine(ServerFault, LastingFault):
    """Steps of some servers take longer, from the next that they plan on."""

    kind: Literal["slow-machine"]
    factor: Annotated[float, Number(1, SLOWEST, above=True)] = Field(
        default=2.0, description="How many times longer a step takes than its model says."
    )

    def prepare(self, world: World, stream: Stream) -> Injection:
        servers = self.select.choose(world, stream)
        return Injection(
            names_of(servers),
            begin=lambda now_s: world.slow(servers, self.factor, now_s),
            end=lambda now_s: world.unslow(servers, self.factor, now_s),
        )

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        lasts = {"for": context.span_s(dice)} if dice.chance(0.6) else {}
        return {"factor": dice.span(1.1, 20.0), **lasts, **draw_select(dice, context)}
