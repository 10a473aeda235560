"""Carries out the decisions of `gangs.servers` about pods for the replicas of a run."""

from collections.abc import Iterable
from typing import Final

from windtunnel.core.errors import InvariantBroken
from windtunnel.core.loop import EventQueue
from windtunnel.core.vocabulary import RUN_BEGINS
from windtunnel.gangs.objects import Pod
from windtunnel.gangs.servers import (
    ASK,
    DRAIN,
    DROP,
    FORGET,
    LOAD,
    LOSE,
    NO_GRACE_LEFT,
    NO_SERVER,
    PodUnit,
    PoolPods,
    ServerMove,
    ServerPods,
)
from windtunnel.twin.kubernetes.cluster import SimCluster
from windtunnel.twin.servers.lifecycle import Lifecycle
from windtunnel.twin.servers.replicas import DRAINING, GONE, READY, Pool, Replica

MOST_LOST: Final = 1_000


class PoolBacking:
    """The pods of a pool's replicas."""

    def __init__(self, pods: PoolPods, pool: Pool) -> None:
        self.pods: Final = pods
        self.pool: Final = pool
        self.reason = RUN_BEGINS
        """The reason of the last change of its size."""
        self.added = 0
        """Servers that it added and that have not been requested yet."""
        self.lost: Final[list[str]] = []
        """The last servers that ended by themselves, and why."""

    def resized(self, by: int, reason: str) -> None:
        self.reason = reason
        self.added = self.added + by if by > 0 else 0
        if by < 0:
            self.lost.clear()

    def why_asked(self) -> str:
        """The reason of the next server: the pool has another size, or it replaces another."""
        if self.added:
            self.added -= 1
        elif self.lost:
            return f"replaces {self.lost.pop()}"
        return self.reason


class BackedReplicas:
    """The pod units of one cluster, each with its replica."""

    def __init__(
        self, cluster: SimCluster, backings: list[PoolBacking], lifecycle: Lifecycle
    ) -> None:
        self._cluster: Final = cluster
        self.backings: Final = {backing.pool.name: backing for backing in backings}
        self._lifecycle: Final = lifecycle
        self.servers: Final = ServerPods(cluster.view, [one.pods for one in backings])
        self.replicas: Final[dict[str, Replica]] = {}  # by unit
        self.by_server: Final[dict[int, PodUnit]] = {}
        self._deadlines: Final = EventQueue()  # ends of grace periods of units
        self._asking: PodUnit | None = None  # whose replica is being requested
        cluster.holds = self._serves

    def next_s(self) -> float:
        """When the next grace period of a draining unit ends."""
        return self._deadlines.next_s

    def look(self, now_s: float) -> bool:
        """Follows changes of pods and machines; returns whether there were any."""
        touched = self.servers.changed()
        if touched is None:
            return False
        self._lifecycle.shun(self._doomed(touched.values()))
        for unit in touched.values():
            self._follow(unit, now_s)
        return True

    def _serves(self, pod: Pod) -> bool:
        """Whether a pod must wait for its server before it may end."""
        unit = self.servers.unit_of(pod.name)
        return unit is not None and self._state(unit) in (READY, DRAINING)

    def _state(self, unit: PodUnit) -> int:
        replica = self.replicas.get(unit.key)
        return NO_SERVER if replica is None else int(replica.state)

    def _follow(self, unit: PodUnit, now_s: float) -> None:
        """Brings a replica to the state of its pods."""
        move = unit.next_move(self._state(unit))
        while move is not None:
            self._carry_out(unit, move, now_s)
            if move.kind == DROP:
                return
            move = unit.next_move(self._state(unit))

    def _carry_out(self, unit: PodUnit, move: ServerMove, now_s: float) -> None:
        backing = self.backings[unit.of.pool]
        if move.kind == ASK:
            self._asking = unit
            asked = self._lifecycle.ask(backing.pool, now_s, backing.why_asked())
            self._asking = None
            self.replicas[unit.key] = asked
            self.by_server[int(asked.server.index)] = unit
            return
        if move.kind == DROP:
            self.servers.drop(unit)
            return
        replica = self.replicas[unit.key]
        if move.kind in (LOSE, DRAIN) and move.why:
            backing.lost.append(f"server {replica.number}: {move.why}")
            del backing.lost[:-MOST_LOST]
        if move.kind == FORGET:
            del self.by_server[int(replica.server.index)]
            del self.replicas[unit.key]
            for name in unit.released():
                self._cluster.unstick(name, now_s)
        elif move.kind == LOSE:
            self._lifecycle.lose(replica, now_s, move.why)
        elif move.kind == DRAIN:
            self._lifecycle.drain(replica, now_s, move.why or backing.reason)
            if replica.state == DRAINING:
                self._deadlines.push(max(now_s, unit.over_s()), 0, unit.key)
        elif move.kind == LOAD:
            self._lifecycle.begin_loading(replica, now_s, "placed")
        else:
            self._lifecycle.ready(replica, now_s)

    def _doomed(self, units: Iterable[PodUnit]) -> list[Replica]:
        """The ready servers that end now, with all their requests."""
        return [
            self.replicas[unit.key]
            for unit in units
            if self._state(unit) == READY and not unit.can_serve() and unit.is_lost()
        ]

    def buried(self, server: int, now_s: float) -> None:
        """Follows up on a server that is gone."""
        unit = self.by_server.get(server)
        if unit is not None:
            self._follow(unit, now_s)

    def overdue(self, now_s: float) -> None:
        """Kills servers whose grace period is over."""
        while self._deadlines.next_s <= now_s:
            entry = self._deadlines.pop()
            assert entry is not None
            unit = self.servers.units.get(str(entry.payload))
            if unit is None or self._state(unit) != DRAINING:
                continue
            self._lifecycle.lose(self.replicas[unit.key], now_s, NO_GRACE_LEFT)
            self._follow(unit, now_s)

    def unit_of(self, server: int) -> PodUnit | None:
        """The pods of a server; while a server is being requested, the pods that it will have."""
        return self.by_server.get(server, self._asking)

    def check(self) -> str | None:
        """Describes an inconsistency; None when there is none."""
        for key, replica in self.replicas.items():
            unit = self.servers.units.get(key)
            if unit is None:
                raise InvariantBroken(f"the unit {key} was dropped with its server")
            if replica.state == READY and not unit.can_serve():
                return f"{key} serves, and its pods are not all ready"
            if replica.state == GONE:
                return f"{key} is gone, and was not noticed"
        return None
