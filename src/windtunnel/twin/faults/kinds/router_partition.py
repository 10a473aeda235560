"""`router-partition`: routers and gateways lose sight of some servers."""

from typing import Literal

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values
from windtunnel.twin.faults.context import FaultContext
from windtunnel.twin.faults.kind import Injection, LastingFault
from windtunnel.twin.faults.servers import ServerFault, draw_select, names_of
from windtunnel.twin.faults.world import World


class RouterPartition(ServerFault, LastingFault):
    """Routers and gateways do not see some ready servers, which finish what they have."""

    kind: Literal["router-partition"]

    def prepare(self, world: World, stream: Stream) -> Injection:
        servers = self.select.choose(world, stream, ready_only=True)
        return Injection(
            names_of(servers),
            begin=lambda _: world.hide(servers),
            end=lambda _: world.unhide(servers),
        )

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        return {"for": context.span_s(dice), **draw_select(dice, context)}
