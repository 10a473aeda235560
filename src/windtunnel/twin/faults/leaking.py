"""Engines that lose KV blocks as they run."""

from typing import Final

from windtunnel.core.random import Stream
from windtunnel.twin.cluster import Cluster
from windtunnel.twin.faults.effects import Effect, Strike
from windtunnel.twin.faults.plan import LeakPlan
from windtunnel.twin.faults.schedule import Schedule
from windtunnel.twin.faults.select import chosen, names_of
from windtunnel.twin.lifecycle import Lifecycle
from windtunnel.twin.replicas import DRAINING, READY, Replica

LOOK_S: Final = 1.0
"""Blocks that leaked since the last look are counted this often, or one by one if they are rare."""


class KvLeak(Effect):
    """KV blocks of some servers become unusable, one after another."""

    def __init__(
        self,
        plan: LeakPlan,
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
        return Leak(found, self._plan.blocks_per_s, self._cluster, self._lifecycle, self._schedule)


class Leak(Strike):
    """Servers that leak for a while; what has leaked is lost for as long as they run."""

    def __init__(
        self,
        replicas: list[Replica],
        blocks_per_s: float,
        cluster: Cluster,
        lifecycle: Lifecycle,
        schedule: Schedule,
    ) -> None:
        super().__init__(names_of(replicas))
        self._replicas: Final = replicas
        self._blocks_per_s: Final = blocks_per_s
        self._cluster: Final = cluster
        self._lifecycle: Final = lifecycle
        self._schedule: Final = schedule
        self._begun_s = 0.0
        self._leaked: Final = [0] * len(replicas)
        self._over = False

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        self._begun_s = now_s
        self._plan(now_s)

    def end(self, now_s: float) -> None:
        self._over = True
        self._leak(now_s)

    def _plan(self, now_s: float) -> None:
        wait_s = max(LOOK_S, 1.0 / self._blocks_per_s)
        self._schedule.plan(now_s + wait_s, self._look, helps=False)

    def _look(self, now_s: float) -> None:
        if not self._over and self._leak(now_s):
            self._plan(now_s)

    def _leak(self, now_s: float) -> bool:
        """Lets blocks leak that should have by now; whether any of the servers has some left."""
        due = int(self._blocks_per_s * (now_s - self._begun_s) + 1e-9)
        left = False
        for place, replica in enumerate(self._replicas):
            if replica.state not in (READY, DRAINING):
                continue
            server = replica.server
            # What no block was free for leaks when one is.
            leaked = self._cluster.leak(server, due - self._leaked[place], now_s)
            self._leaked[place] += leaked
            if leaked:
                self._lifecycle.inside.shed(server)
            left = left or server.pool.leaked < server.pool.blocks
        return left
