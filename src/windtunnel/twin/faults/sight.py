"""Faults of what a control plane sees: servers that a router has lost sight of, metrics."""

from typing import Final

from windtunnel.core.random import Stream
from windtunnel.twin.autoscaling import Autoscaling
from windtunnel.twin.cluster import Cluster
from windtunnel.twin.faults.effects import Effect, Strike
from windtunnel.twin.faults.plan import (
    AUTOSCALER,
    READERS,
    ROUTERS,
    BlackoutPlan,
    LagPlan,
    PartitionPlan,
)
from windtunnel.twin.faults.select import chosen, names_of
from windtunnel.twin.lifecycle import Lifecycle
from windtunnel.twin.replicas import READY, Replica
from windtunnel.twin.signal_faults import SignalFaults


class RouterPartition(Effect):
    """Routers and gateways do not see some servers, which finish what they have."""

    def __init__(
        self, plan: PartitionPlan, cluster: Cluster, lifecycle: Lifecycle, stream: Stream
    ) -> None:
        self._select: Final = plan.select
        self._cluster: Final = cluster
        self._lifecycle: Final = lifecycle
        self._stream: Final = stream

    def choose(self) -> Strike:
        return Partition(
            chosen(self._select, self._cluster, self._stream, (READY,)), self._lifecycle
        )


class Partition(Strike):
    """Servers that are unseen for a while."""

    def __init__(self, replicas: list[Replica], lifecycle: Lifecycle) -> None:
        super().__init__(names_of(replicas))
        self._replicas: Final = replicas
        self._lifecycle: Final = lifecycle

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        for replica in self._replicas:
            self._lifecycle.hide(replica)

    def end(self, now_s: float) -> None:  # noqa: ARG002
        for replica in self._replicas:
            self._lifecycle.show(replica)


class Sight:
    """What routers, gateways and the autoscaler can see, as far as faults change it."""

    def __init__(self, cluster: Cluster, autoscaling: Autoscaling | None) -> None:
        self._cluster: Final = cluster
        self._autoscaling: Final = autoscaling
        self._lags: Final[dict[str, list[float]]] = {ROUTERS: [], AUTOSCALER: []}

    def readers(self, named: tuple[str, ...]) -> list[str]:
        """Those of them that there are."""
        there = (ROUTERS,) if self._autoscaling is None else READERS
        return [one for one in named if one in there]

    def darken(self, reader: str, by: int) -> None:
        """One fault more, or one fewer, that hides all metrics."""
        if reader == ROUTERS:
            for roster in self._cluster.rosters:
                if roster.signal_faults is None:
                    roster.signal_faults = SignalFaults()
                roster.signal_faults.dark += by
        elif self._autoscaling is not None:
            self._autoscaling.dark += by

    def delay(self, reader: str, lag_s: float, *, begins: bool) -> None:
        """One lag more, or one fewer; those that overlap add up."""
        lags = self._lags[reader]
        if begins:
            lags.append(lag_s)
        else:
            lags.remove(lag_s)
        if reader == ROUTERS:
            for roster in self._cluster.rosters:
                if roster.signal_faults is None:
                    roster.signal_faults = SignalFaults()
                roster.signal_faults.late_by(sum(lags), roster.signals)
        elif self._autoscaling is not None:
            self._autoscaling.lag_s = sum(lags)


class MetricBlackout(Effect):
    """Nobody learns anything new of servers."""

    def __init__(self, plan: BlackoutPlan, sight: Sight) -> None:
        self._plan: Final = plan
        self._sight: Final = sight

    def choose(self) -> Strike:
        return Darkness(self._sight.readers(self._plan.readers), self._sight)


class Darkness(Strike):
    """Readers that see nothing for a while."""

    def __init__(self, readers: list[str], sight: Sight) -> None:
        super().__init__(readers)
        self._sight: Final = sight

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        for reader in self.subjects:
            self._sight.darken(reader, 1)

    def end(self, now_s: float) -> None:  # noqa: ARG002
        for reader in self.subjects:
            self._sight.darken(reader, -1)


class MetricLag(Effect):
    """What servers say is known later."""

    def __init__(self, plan: LagPlan, sight: Sight) -> None:
        self._plan: Final = plan
        self._sight: Final = sight

    def choose(self) -> Strike:
        readers = self._sight.readers(self._plan.readers)
        return Lateness(readers, self._plan.lag_s, self._sight)


class Lateness(Strike):
    """Readers that learn late for a while."""

    def __init__(self, readers: list[str], lag_s: float, sight: Sight) -> None:
        super().__init__(readers)
        self._lag_s: Final = lag_s
        self._sight: Final = sight

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        for reader in self.subjects:
            self._sight.delay(reader, self._lag_s, begins=True)

    def end(self, now_s: float) -> None:  # noqa: ARG002
        for reader in self.subjects:
            self._sight.delay(reader, self._lag_s, begins=False)
