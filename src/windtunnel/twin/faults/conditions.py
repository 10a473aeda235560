"""Metrics that a fault can wait for: the true state of the run, not what a control plane sees."""

from collections.abc import Callable
from typing import Final

from windtunnel.twin.faults.timing import ARRIVALS, IN_FLIGHT, INSIDE, KV_USE, QUEUE, READY_SERVERS
from windtunnel.twin.results.recorder import Recorder
from windtunnel.twin.servers.cluster import Cluster
from windtunnel.twin.servers.replicas import READY, Pool, Replica


class Gauge:
    """Reads a metric at one instant; each reader of a rate has its own gauge."""

    def __init__(self, cluster: Cluster, recorder: Recorder) -> None:
        self._cluster: Final = cluster
        self._recorder: Final = recorder
        self._looked_s = 0.0
        self._arrived = 0
        self._reads: Final[dict[str, Callable[[list[Replica], float], float]]] = {
            QUEUE: self._queue,
            IN_FLIGHT: self._in_flight,
            READY_SERVERS: self._ready,
            KV_USE: self._kv_use,
        }

    def read(self, metric: str, pool: str | None, now_s: float) -> float:
        if metric == ARRIVALS:
            return self._arrivals(now_s)
        if metric == INSIDE:
            return float(self._recorder.arrived - self._recorder.ended)
        pools: list[Pool] = [one for one in self._cluster.pools if pool in (None, one.name)]
        here = [one for own in pools for one in own.here]
        return self._reads[metric](here, now_s)

    def _arrivals(self, now_s: float) -> float:
        """Arrivals per second since the last reading."""
        arrived, since_s = self._recorder.arrived - self._arrived, now_s - self._looked_s
        self._arrived, self._looked_s = self._recorder.arrived, now_s
        return arrived / since_s if since_s > 0 else 0.0

    def _queue(self, here: list[Replica], _: float) -> float:
        return float(sum(int(one.server.queued) for one in here))

    def _in_flight(self, here: list[Replica], _: float) -> float:
        rosters = self._cluster.rosters
        return float(
            sum(rosters[one.pool.model].signals.in_flight[one.server.index] for one in here)
        )

    def _ready(self, here: list[Replica], _: float) -> float:
        return float(sum(one.state == READY for one in here))

    def _kv_use(self, here: list[Replica], now_s: float) -> float:
        """The mean over ready servers; 0 when none is ready."""
        ready = [one for one in here if one.state == READY]
        used = sum(one.server.kv_used(now_s) for one in ready)
        return used / len(ready) if ready else 0.0
