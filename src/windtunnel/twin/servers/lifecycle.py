"""The lifecycle of a replica: pending, starting, ready, draining, gone. One method per step.

Everything that must change with a step changes in its method and nowhere else: router candidates,
signals, cost, logs.
"""

from typing import Final

from windtunnel.core.loop import Component, EventQueue
from windtunnel.core.random import Streams
from windtunnel.core.vocabulary import RUN_BEGINS
from windtunnel.twin.ports import ReplicaBacking, RequestPort
from windtunnel.twin.progress import LOSSES, RESIZES, RunProgress
from windtunnel.twin.requests.service import Service
from windtunnel.twin.results.event_log import ReplicaLog
from windtunnel.twin.results.recorder import Recorder
from windtunnel.twin.servers.cluster import Cluster
from windtunnel.twin.servers.replicas import (
    DRAINING,
    GONE,
    PENDING,
    READY,
    STARTING,
    Pool,
    Replica,
)
from windtunnel.twin.settings import LoadTime

WAIT: Final = "wait"
IMMEDIATE: Final = "immediate"


class Lifecycle(Component):
    """Moves the replicas of a run from state to state."""

    def __init__(
        self,
        cluster: Cluster,
        recorder: Recorder,
        progress: RunProgress,
        services: list[Service],
        load: LoadTime,
        drain: str,
        streams: Streams,
        replica_log: ReplicaLog,
    ) -> None:
        self._cluster: Final = cluster
        self._recorder: Final = recorder
        self.progress: Final = progress
        self._services: Final = services
        self._load_mean_s: Final[float] = load.mean_s
        self._load_stddev_s: Final[float] = load.stddev_s
        self._drain: Final = drain  # its effect on requests
        self._streams: Final = streams
        self.replica_log: Final = replica_log
        self.startups: Final = EventQueue()
        self._settling = False  # before the run: nothing is routed yet
        self._changed: Final[dict[int, Pool]] = {}  # by model: a pool that changed while settling
        self.inside = RequestPort()  # set to the request lifecycle by the simulation
        self.infrastructure: ReplicaBacking | None = None  # the backing of replicas, if any
        for model, service in enumerate(services):
            answering = [one for one in cluster.pools if one.decodes and one.model == model]
            slots = [int(pool.limits.max_num_seqs) for pool in answering]
            service.signals.least_slots = min(slots, default=0)

    def next_s(self) -> float:
        """When the next start-up ends."""
        return self.startups.next_s

    def advance(self, now_s: float) -> None:
        entry = self.startups.pop()
        assert entry is not None
        replica = entry.payload
        assert isinstance(replica, Replica)
        self.ready(replica, now_s)

    @property
    def starting(self) -> int:
        return self._cluster.starting

    def open(self) -> None:
        """Logs the replicas that a run begins with."""
        for pool in self._cluster.pools:
            for replica in pool.replicas:
                self.replica_log.add(0.0, replica, RUN_BEGINS)

    def settle(self) -> None:
        """Starts settling before the run: until `begin`, routers do not learn of changes."""
        self._settling = True

    def begin(self) -> None:
        """Ends settling: the initial replicas are complete."""
        self._settling = False
        for changed in self._changed.values():
            self._choose_anew(changed)
        for pool in self._cluster.pools:
            pool.note_size(0.0)

    def set_target(self, pool: Pool, replicas: int, now_s: float, reason: str) -> None:
        """Starts or drains replicas until this many are ready or coming.

        Draining ones do not count, and are not recalled. Replicas that are not ready are removed
        first, newest first; then those with the fewest requests, the newest among equals.
        """
        before, pool.target = pool.target, replicas
        if self.infrastructure is not None:
            self.infrastructure.wish(pool, replicas, now_s, reason)
        if pool.target != before:  # a gang stays at its minimum
            self.progress.note(RESIZES, pool.name, reason, now_s)
        if self.infrastructure is not None:
            pool.note_size(now_s)
            return
        self.fill(pool, now_s, reason)
        more = pool.coming_or_ready - replicas
        if more > 0:
            in_flight = self._services[pool.model].signals.in_flight
            staying = [replica for replica in pool.here if replica.state != DRAINING]
            staying.sort(key=lambda replica: _rank(replica, in_flight))
            for replica in staying[:more]:
                self.drain(replica, now_s, reason)
        pool.note_size(now_s)

    def fill(self, pool: Pool, now_s: float, reason: str) -> None:
        """Adds replicas while fewer are ready or coming than the pool's target."""
        for _ in range(pool.target - pool.coming_or_ready):
            self.place(self.ask(pool, now_s, reason), now_s, reason)

    def ask(self, pool: Pool, now_s: float, reason: str) -> Replica:
        """Adds a pending replica, which has no machine yet."""
        replica = self._cluster.add(pool)
        self._recorder.join()
        self._tell(replica, now_s, reason)
        return replica

    def place(self, replica: Replica, now_s: float, reason: str) -> None:
        """Puts a replica on a machine, where it loads the model for a random time."""
        self.begin_loading(replica, now_s, reason)
        pool = replica.pool
        stream = self._streams[f"startup.{pool.name}.{replica.number}"]
        load_s = max(0.0, stream.normal(self._load_mean_s, self._load_stddev_s))
        replica.planned = self.startups.push(now_s + load_s, 0, replica)

    def begin_loading(self, replica: Replica, now_s: float, reason: str) -> None:
        """Starts loading the model on a machine: from here on the replica costs money."""
        assert replica.state == PENDING
        replica.pool.started += 1
        replica.pool.move(replica, STARTING, now_s)
        self._tell(replica, now_s, reason)

    def ready(self, replica: Replica, now_s: float) -> None:
        """Makes a replica that has loaded the model ready for requests."""
        assert replica.state == STARTING
        replica.planned = None
        replica.pool.move(replica, READY, now_s)
        self._services[replica.pool.model].roster.enter(replica.server)
        self._choose_anew(replica.pool)
        self._tell(replica, now_s, "loaded")
        self.inside.opened(replica.pool.model)

    def drain(self, replica: Replica, now_s: float, reason: str) -> None:
        """Drains a replica: it gets no more requests and is gone when it has none.

        One that was never ready is gone at once. Depending on the policy, requests that wait there,
        or all of them, go back to the router now.
        """
        assert replica.state in (PENDING, STARTING, READY)
        pool = replica.pool
        pool.drained += 1
        if replica.state != READY:
            if replica.planned is not None:
                self.startups.cancel(replica.planned)
                replica.planned = None
            self._bury(replica, now_s, reason)
            return
        pool.move(replica, DRAINING, now_s)
        self._cluster.draining += 1
        self._services[pool.model].roster.ready.remove(replica.server)
        self._choose_anew(pool)
        self._tell(replica, now_s, reason)
        if self._drain != WAIT:
            self.inside.send_back(replica.server, self._drain == IMMEDIATE)
        self._cluster.left(replica.server.index)
        self.retire(now_s)

    def lose(self, replica: Replica, now_s: float, reason: str) -> None:
        """Loses a replica at once, in any state, with everything on it.

        No replica is started in its place: that is up to whatever maintains the pool's size. Each
        of its requests starts over elsewhere, or ends.
        """
        assert replica.state != GONE
        cluster = self._cluster
        served = replica.state in (READY, DRAINING)
        replica.pool.lost += 1
        self.progress.note(LOSSES, replica.pool.name, reason, now_s)
        if replica.planned is not None:
            self.startups.cancel(replica.planned)
            replica.planned = None
        if replica.state == READY:
            self.shun([replica])
        elif replica.state == DRAINING:
            cluster.draining -= 1
        self._bury(replica, now_s, reason)
        if served:
            self.inside.lose(replica.server, reason)
            self.retire(now_s)

    def shun(self, replicas: list[Replica]) -> None:
        """Withdraws replicas that are all being lost, so that no request of one moves to
        another."""
        for replica in replicas:
            ready = self._services[replica.pool.model].roster.ready
            if replica.state == READY and replica.server in ready:
                ready.remove(replica.server)
                self._choose_anew(replica.pool)

    def hide(self, replica: Replica) -> None:
        """Hides a replica from routers; it finishes its requests."""
        hidden = self._services[replica.pool.model].roster.hidden
        number = int(replica.server.index)
        hidden[number] = hidden.get(number, 0) + 1
        self._choose_anew(replica.pool)

    def show(self, replica: Replica) -> None:
        """Removes one reason to hide a replica."""
        hidden = self._services[replica.pool.model].roster.hidden
        number = int(replica.server.index)
        hidden[number] -= 1
        if not hidden[number]:
            del hidden[number]
            self._choose_anew(replica.pool)
            self.inside.opened(replica.pool.model)

    def retire(self, now_s: float) -> None:
        """Removes draining replicas that have nothing left to do."""
        cluster = self._cluster
        while cluster.vacated:
            replica = cluster.replicas[cluster.vacated.pop()]
            if replica.state == DRAINING and self._is_done(replica):
                cluster.draining -= 1
                self._bury(replica, now_s, "drained")

    def _is_done(self, replica: Replica) -> bool:
        """Whether it has no requests, none on their way, and no blocks kept for others."""
        server = replica.server
        in_flight = self._services[replica.pool.model].signals.in_flight
        if in_flight[server.index] or server.load or server.holds_apart:
            return False
        return server.wake_s == float("inf")

    def _bury(self, replica: Replica, now_s: float, reason: str) -> None:
        """Marks a replica as gone, along with its cache."""
        served = replica.state in (READY, DRAINING)
        replica.pool.move(replica, GONE, now_s)
        if served:
            self._services[replica.pool.model].gone(int(replica.server.index))
        self._tell(replica, now_s, reason)
        if self.infrastructure is not None:
            self.infrastructure.buried(replica, now_s)

    def _choose_anew(self, pool: Pool) -> None:
        """Updates the candidates of the routers of the pool's model."""
        if self._settling:
            self._changed[pool.model] = pool
            return
        self._services[pool.model].servers_changed(self._cluster, pool.model)

    def _tell(self, replica: Replica, now_s: float, reason: str) -> None:
        replica.pool.note_size(now_s)
        self.replica_log.add(now_s, replica, reason)


def _rank(replica: Replica, in_flight: list[int]) -> tuple[int, int, int]:
    """The sort key for removal."""
    number = int(replica.server.index)
    if replica.state == READY:
        return (1, in_flight[number], -number)
    return (0, 0, -number)
