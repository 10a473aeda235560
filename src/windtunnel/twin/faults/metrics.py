"""Faults of metrics, by their readers: routers and the autoscaler."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.section import Context
from windtunnel.twin.faults.context import FaultContext, context_of
from windtunnel.twin.faults.kind import LastingFault
from windtunnel.twin.faults.world import AUTOSCALER, ROUTERS, World

NO_AUTOSCALER = "there is no autoscaler: the scenario has no `scaling`"


class MetricFault(LastingFault):
    """A fault of metrics."""

    readers: (
        Annotated[list[Literal["routers", "autoscaler"]], Field(min_length=1, max_length=2)] | None
    ) = Field(
        default=None,
        description="Who reads metrics: `routers`, with the gateway, or the `autoscaler`; left "
        "out: all that there are.",
    )

    def hit_readers(self, world: World) -> list[str]:
        """The readers that are named and exist."""
        return world.readers((ROUTERS, AUTOSCALER) if self.readers is None else self.readers)

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        readers = self.readers or []
        if len(set(readers)) < len(readers):
            yield where.fault("readers", "one of them is there twice")
        if AUTOSCALER in readers and not context_of(where.root).scales:
            yield where.fault("readers", NO_AUTOSCALER)

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        drawn = super().draw(dice, context)
        if dice.chance(0.5):
            drawn["readers"] = dice.some(context.readers)
        return drawn
