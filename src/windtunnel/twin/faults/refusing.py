"""Servers that answer 429 for a while."""

from typing import Final

from windtunnel.core.random import Stream
from windtunnel.twin.cluster import Cluster
from windtunnel.twin.faults.effects import Effect, Strike
from windtunnel.twin.faults.plan import StormPlan
from windtunnel.twin.faults.select import chosen, names_of
from windtunnel.twin.replicas import Replica
from windtunnel.twin.storms import Storm, Storms


class RateLimitStorm(Effect):
    """Some requests are turned back by the servers that they are sent to."""

    def __init__(self, plan: StormPlan, cluster: Cluster, storms: Storms, stream: Stream) -> None:
        self._plan: Final = plan
        self._cluster: Final = cluster
        self._storms: Final = storms
        self._stream: Final = stream
        storms.expected = True

    def choose(self) -> Strike:
        found = chosen(self._plan.select, self._cluster, self._stream)
        return Refusal(found, self._plan.share, self._storms, self._stream)


class Refusal(Strike):
    """Servers that refuse some requests for a while; who starts meanwhile does not."""

    def __init__(
        self, replicas: list[Replica], share: float, storms: Storms, stream: Stream
    ) -> None:
        super().__init__(names_of(replicas))
        self._storm: Final = Storm([int(one.server.index) for one in replicas], share, stream)
        self._storms: Final = storms

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        self._storms.begin(self._storm)

    def end(self, now_s: float) -> None:  # noqa: ARG002
        self._storms.end(self._storm)
