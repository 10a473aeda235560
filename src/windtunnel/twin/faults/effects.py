"""What a fault does when it begins and when it ends: a class for each kind, and one for each time.

An effect is an entry of the list; it looks for those whom it befalls. A strike is one time that it
does: it begins, and ends if it lasts.
"""

from typing import Final

from windtunnel.core.random import Stream
from windtunnel.twin.cluster import Cluster
from windtunnel.twin.faults.plan import SLOWEST, CrashPlan, SlowPlan
from windtunnel.twin.faults.select import chosen, names_of
from windtunnel.twin.lifecycle import Lifecycle
from windtunnel.twin.replicas import GONE, Replica

ENGINE_CRASHED: Final = "its engine crashed"


class Strike:
    """One time that a fault happens, to those who were chosen."""

    lasts = True  # False: it is over as soon as it has begun

    def __init__(self, subjects: list[str]) -> None:
        self.subjects: Final = subjects

    def begin(self, now_s: float, until_s: float) -> None:
        """`until_s`: when it will end; infinity: not before the run."""
        raise NotImplementedError

    def end(self, now_s: float) -> None:
        raise NotImplementedError


class Effect:
    """A kind of fault, as one entry of the list has it."""

    def choose(self) -> Strike:
        """Whom it befalls now; nothing has changed yet."""
        raise NotImplementedError


class EngineCrash(Effect):
    """Servers are lost with everything on them; others start in their place."""

    def __init__(
        self, plan: CrashPlan, cluster: Cluster, lifecycle: Lifecycle, stream: Stream
    ) -> None:
        self._select: Final = plan.select
        self._cluster: Final = cluster
        self._lifecycle: Final = lifecycle
        self._stream: Final = stream

    def choose(self) -> Strike:
        return Crash(chosen(self._select, self._cluster, self._stream), self._lifecycle)


class Crash(Strike):
    """Engines that crash now."""

    lasts = False

    def __init__(self, replicas: list[Replica], lifecycle: Lifecycle) -> None:
        super().__init__(names_of(replicas))
        self._replicas: Final = replicas
        self._lifecycle: Final = lifecycle

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        ground = self._lifecycle.ground
        if ground is not None:  # the pods of a server are started again, and tell the rest
            for replica in self._replicas:
                ground.crash(replica, now_s)
            return
        self._lifecycle.shun(self._replicas)
        for replica in self._replicas:
            if replica.state != GONE:  # one that drained had nothing more to do but with another
                self._lifecycle.lose(replica, now_s, ENGINE_CRASHED)
        for replica in self._replicas:
            self._lifecycle.fill(replica.pool, now_s, ENGINE_CRASHED)


class Pace:
    """How slow each server is: the product of all that slows it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster: Final = cluster
        self._factors: Final[dict[int, list[float]]] = {}

    def add(self, replica: Replica, factor: float, now_s: float) -> None:
        self._factors.setdefault(int(replica.server.index), []).append(factor)
        self._settle(replica, now_s)

    def remove(self, replica: Replica, factor: float, now_s: float) -> None:
        self._factors[int(replica.server.index)].remove(factor)
        self._settle(replica, now_s)

    def _settle(self, replica: Replica, now_s: float) -> None:
        slowness = 1.0
        for factor in self._factors[int(replica.server.index)]:
            slowness = min(slowness * factor, SLOWEST)
        if replica.state != GONE:
            self._cluster.slow_down(replica.server, slowness, now_s)


class SlowMachine(Effect):
    """Steps of some servers take so many times longer, from the next that is planned on."""

    def __init__(self, plan: SlowPlan, cluster: Cluster, pace: Pace, stream: Stream) -> None:
        self._plan: Final = plan
        self._cluster: Final = cluster
        self._pace: Final = pace
        self._stream: Final = stream

    def choose(self) -> Strike:
        slow = chosen(self._plan.select, self._cluster, self._stream)
        return Slowness(slow, self._pace, self._plan.factor)


class Slowness(Strike):
    """Servers that are slow for a while."""

    def __init__(self, replicas: list[Replica], pace: Pace, factor: float) -> None:
        super().__init__(names_of(replicas))
        self._replicas: Final = replicas
        self._pace: Final = pace
        self._factor: Final = factor

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        for replica in self._replicas:
            self._pace.add(replica, self._factor, now_s)

    def end(self, now_s: float) -> None:
        for replica in self._replicas:
            self._pace.remove(replica, self._factor, now_s)
