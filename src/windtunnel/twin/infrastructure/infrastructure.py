"""The simulated clusters and machines of a run: gangs on clusters, clusters on machines.

Clusters settle before the run, in no time: pods that fit on the initial machines are ready when the
run begins.
"""

from collections.abc import Callable
from typing import Final

from windtunnel.core.errors import NoFixedPoint
from windtunnel.core.loop import SkewedClock
from windtunnel.twin.fleet.machines import Machines
from windtunnel.twin.fleet.unlimited import UnlimitedMachines
from windtunnel.twin.infrastructure.cluster import ServingCluster
from windtunnel.twin.infrastructure.replicas import PoolBacking
from windtunnel.twin.ports import ReplicaBacking
from windtunnel.twin.servers.replicas import Pool, Replica

MOST_ROUNDS: Final = 10_000
"""The most rounds at one instant: more means that controllers never settle."""
QUIET_CYCLES: Final = 3
MOST_CYCLES: Final = 10_000
"""The most fleet cycles before the run: a fleet that has not settled by then starts the run
unsettled."""


class Infrastructure(ReplicaBacking):
    """Clusters and their machines."""

    def __init__(
        self,
        serving_clusters: list[ServingCluster],
        backings: dict[str, tuple[ServingCluster, PoolBacking]],
        supply: Machines | UnlimitedMachines,
    ) -> None:
        self.serving_clusters: Final = serving_clusters
        self._backings: Final = backings  # by pool
        self._supply: Final = supply
        self.machines: Final = supply if isinstance(supply, Machines) else None
        self._planned_s = float("inf")  # when it acts next
        self._stirred = False  # changed from outside since the last pass
        self._gone: Final[list[int]] = []  # servers that ended since the last pass
        self.terminations = 0
        self.notes: Final[list[str]] = []
        """Possibly surprising facts about the manifests."""
        self.version = 0
        """Incremented whenever something here may have changed."""
        self.on_round: Callable[[float], None] = _nothing
        """Called after every round, to log its events."""

    # Before the run.

    def begin(self, wanted: list[tuple[Pool, int]]) -> None:
        """Settles with pools of these sizes before the run: what is ready then is ready at 0."""
        self._set_pace(0.0)
        for serving_cluster in self.serving_clusters:
            serving_cluster.driver.settle(0.0)
        for pool, replicas in wanted:
            pool.target = replicas
            serving_cluster, backing = self._backings[pool.name]
            serving_cluster.scale(backing, replicas, 0.0)
        self._settle(0.0)
        if self.machines is not None:
            self._settle_machines(self.machines)
            self.machines.begin(0.0)
        self._set_pace(1.0)
        for pool, _ in wanted:
            pool.started = pool.drained = pool.lost = 0
        self.terminations = 0
        self._replan(0.0)

    def _set_pace(self, pace: float) -> None:
        """Sets the factor on the duration of everything that pods and machines do."""
        for serving_cluster in self.serving_clusters:
            serving_cluster.cluster.dice.pace = pace
        if self.machines is not None:
            self.machines.set_pace(pace)

    def _settle_machines(self, machines: Machines) -> None:
        """Runs fleet cycles before the run until several in a row change nothing."""
        quiet = 0
        for _ in range(MOST_CYCLES):
            machines.driver.cycle(0.0)
            moved = self._settle(0.0)
            executor = machines.shard.executor
            quiet = 0 if moved or executor.running or executor.waiting else quiet + 1
            if quiet == QUIET_CYCLES:
                return

    # The run.

    def wish(self, pool: Pool, replicas: int, now_s: float, reason: str) -> None:
        serving_cluster, backing = self._backings[pool.name]
        before, pool.target = pool.target, serving_cluster.scale(backing, replicas, now_s)
        backing.resized(pool.target - before, reason)
        self.wake(now_s)

    def buried(self, replica: Replica, now_s: float) -> None:
        self._gone.append(int(replica.server.index))
        self.wake(now_s)

    def crash(self, replica: Replica, now_s: float) -> None:
        serving_cluster, _ = self._backings[replica.pool.name]
        serving_cluster.crash(int(replica.server.index), now_s)
        self.wake(now_s)

    def crash_loop(self, replica: Replica, now_s: float) -> str | None:
        serving_cluster, _ = self._backings[replica.pool.name]
        clique = serving_cluster.crash_loop(int(replica.server.index), now_s)
        self.wake(now_s)
        return clique

    def mend(self, pool: str, clique: str, now_s: float) -> None:
        self._backings[pool][0].cluster.mend(clique)
        self.wake(now_s)

    def restart_gangs(self, now_s: float) -> None:
        for serving_cluster in self.serving_clusters:
            serving_cluster.driver.restart()
        self.wake(now_s)

    def restart_fleet(self, now_s: float) -> None:
        if self.machines is not None:
            self.machines.restart(now_s)
        self.wake(now_s)

    def clocks(self, *, of_machines: bool) -> list[SkewedClock]:
        """The clocks of the fleet controller, or those of the gang controllers."""
        if of_machines:
            return [] if self.machines is None else [self.machines.driver.clock]
        return [one.driver.clock for one in self.serving_clusters]

    def wake(self, now_s: float) -> None:
        """Schedules a pass at this instant, after a change from outside."""
        self._stirred = True
        self._plan(now_s)

    @property
    def is_settled(self) -> bool:
        """Whether all changes have been processed."""
        return not self._gone and not self._stirred

    def pools(self) -> list[Pool]:
        return [backing.pool for _, backing in self._backings.values()]

    def next_s(self) -> float:
        return self._planned_s

    def advance(self, now_s: float) -> None:
        self._planned_s = float("inf")
        self._settle(now_s)
        self._replan(now_s)

    def _settle(self, now_s: float) -> bool:
        """Does everything that is due until all controllers have settled; returns whether pods
        moved."""
        self.version += 1
        self._stirred = False
        any_moved = False
        for _ in range(MOST_ROUNDS):
            gone = self._gone[:]
            self._gone.clear()
            for serving_cluster in self.serving_clusters:
                for server in gone:
                    serving_cluster.units.buried(server, now_s)
                serving_cluster.units.overdue(now_s)
                serving_cluster.advance(now_s)
            self._supply.advance(now_s)
            moved = False
            for serving_cluster in self.serving_clusters:
                serving_cluster.advance(now_s)
                moved = serving_cluster.units.look(now_s) or moved
            if isinstance(self._supply, Machines):
                self._supply.vacate(now_s)
            for serving_cluster in self.serving_clusters:
                serving_cluster.pods.look(now_s)
            self.on_round(now_s)
            any_moved = any_moved or moved
            if not moved and not self._gone and self._due_next_s() > now_s:
                return any_moved
        raise NoFixedPoint(f"{MOST_ROUNDS:,} rounds of clusters and machines")

    def _due_next_s(self) -> float:
        due_s = min(
            (serving_cluster.next_s() for serving_cluster in self.serving_clusters),
            default=float("inf"),
        )
        return due_s if self.machines is None else min(due_s, self.machines.next_s())

    def _replan(self, now_s: float) -> None:
        self._plan(max(now_s, self._due_next_s()))

    def _plan(self, at_s: float) -> None:
        self._planned_s = min(self._planned_s, at_s)

    @property
    def under_way(self) -> int:
        pods = sum(
            serving_cluster.cluster.next_s() != float("inf")
            for serving_cluster in self.serving_clusters
        )
        return pods + (self.machines.under_way if self.machines is not None else 0)


def _nothing(now_s: float) -> None:
    """Does nothing: there is no listener."""
