"""`metric-blackout`: readers get no metrics."""

from typing import Literal

from windtunnel.core.random import Stream
from windtunnel.twin.faults.kind import Injection
from windtunnel.twin.faults.metrics import MetricFault
from windtunnel.twin.faults.world import World


class MetricBlackout(MetricFault):
    """Nobody gets metrics: what is known of servers becomes older, and no snapshot is taken.

    How many requests a router has sent to each server it counts itself, and knows.
    """

    kind: Literal["metric-blackout"]

    def prepare(self, world: World, stream: Stream) -> Injection:  # noqa: ARG002
        readers = self.hit_readers(world)
        return Injection(
            readers,
            begin=lambda _: world.blank_metrics(readers, 1),
            end=lambda _: world.blank_metrics(readers, -1),
        )
