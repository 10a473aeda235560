"""`metric-lag`: metrics reach their readers later."""

from typing import Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values
from windtunnel.twin.faults.context import FaultContext
from windtunnel.twin.faults.kind import Injection
from windtunnel.twin.faults.metrics import MetricFault
from windtunnel.twin.faults.timing import Length
from windtunnel.twin.faults.world import World


class MetricLag(MetricFault):
    """Metrics come later. Lags that overlap add up."""

    kind: Literal["metric-lag"]
    by_s: Length = Field(description="How much later.")

    def prepare(self, world: World, stream: Stream) -> Injection:  # noqa: ARG002
        readers = self.hit_readers(world)
        return Injection(
            readers,
            begin=lambda _: world.delay_metrics(readers, self.by_s),
            end=lambda _: world.undelay_metrics(readers, self.by_s),
        )

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        return {**super().draw(dice, context), "by": context.span_s(dice)}
