"""Engines that crash soon after every start, until whatever is wrong is mended."""

from typing import Final

from windtunnel.core.random import Stream
from windtunnel.twin.cluster import Cluster
from windtunnel.twin.faults.effects import ENGINE_CRASHED, Effect, Strike
from windtunnel.twin.faults.plan import LoopPlan
from windtunnel.twin.faults.schedule import Schedule
from windtunnel.twin.faults.select import chosen, names_of
from windtunnel.twin.lifecycle import Lifecycle
from windtunnel.twin.replicas import GONE, PENDING, Replica


class CrashLoop(Effect):
    """Servers crash; those in their place crash after each start, and wait longer every time."""

    def __init__(
        self,
        plan: LoopPlan,
        cluster: Cluster,
        lifecycle: Lifecycle,
        schedule: Schedule,
        stream: Stream,
    ) -> None:
        self._plan: Final = plan
        self._cluster: Final = cluster
        self._lifecycle: Final = lifecycle
        self._schedule: Final = schedule
        self._stream: Final = stream

    def choose(self) -> Strike:
        found = chosen(self._plan.select, self._cluster, self._stream)
        if self._lifecycle.ground is not None:
            return PodLoop(found, self._lifecycle)
        return Loop(found, self._plan, self._lifecycle, self._schedule)


class Loop(Strike):
    """Lines of servers, each of which takes the place of the one that crashed before it."""

    def __init__(
        self, replicas: list[Replica], plan: LoopPlan, lifecycle: Lifecycle, schedule: Schedule
    ) -> None:
        super().__init__(names_of(replicas))
        self._replicas: Final = replicas
        self._plan: Final = plan
        self._lifecycle: Final = lifecycle
        self._schedule: Final = schedule
        self._until_s = 0.0

    def begin(self, now_s: float, until_s: float) -> None:
        self._until_s = until_s
        for replica in self._replicas:
            self._crash(replica, 0, now_s)

    def end(self, now_s: float) -> None:
        """Whoever starts from now on starts well."""

    def _crash(self, replica: Replica, crashes: int, now_s: float) -> None:
        """`crashes`: how many there were before in its line."""
        if replica.state == GONE:
            return
        lifecycle, pool = self._lifecycle, replica.pool
        lifecycle.lose(replica, now_s, ENGINE_CRASHED)
        if pool.coming_or_ready >= pool.target:
            return
        heir = lifecycle.ask(pool, now_s, ENGINE_CRASHED)
        wait_s = min(self._plan.backoff_s * 2.0 ** min(crashes, 60), self._plan.longest_s)
        self._schedule.plan(
            now_s + wait_s, lambda at_s: self._start(heir, crashes + 1, at_s), helps=True
        )

    def _start(self, replica: Replica, crashes: int, now_s: float) -> None:
        if replica.state != PENDING:
            return  # it is no longer wanted
        self._lifecycle.place(replica, now_s, ENGINE_CRASHED)
        assert replica.planned is not None
        crash_s = replica.planned[0] + self._plan.after_s
        if crash_s <= self._until_s:
            self._schedule.plan(
                crash_s, lambda at_s: self._crash(replica, crashes, at_s), helps=False
            )


class PodLoop(Strike):
    """The same of pods: their cluster starts them again, with its own back-off."""

    def __init__(self, replicas: list[Replica], lifecycle: Lifecycle) -> None:
        super().__init__(names_of(replicas))
        self._replicas: Final = replicas
        self._lifecycle: Final = lifecycle
        self._cliques: Final[list[tuple[str, str]]] = []

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        ground = self._lifecycle.ground
        assert ground is not None
        for replica in self._replicas:
            clique = ground.crash_loop(replica, now_s)
            if clique is not None:
                self._cliques.append((replica.pool.name, clique))

    def end(self, now_s: float) -> None:
        ground = self._lifecycle.ground
        assert ground is not None
        for pool, clique in self._cliques:
            ground.mend(pool, clique, now_s)
