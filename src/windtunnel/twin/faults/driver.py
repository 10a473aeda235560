"""Drives the faults of a run: each begins at its time, at random times or on its condition.

What begins and ends is logged, for the result and for event listeners.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from windtunnel.core.random import Stream, Streams
from windtunnel.core.telemetry import Event, Plain, Telemetry
from windtunnel.core.vocabulary import FAULT_BEGAN, FAULT_ENDED
from windtunnel.twin.faults.kind import InjectedFault
from windtunnel.twin.faults.schedule import FaultSchedule
from windtunnel.twin.faults.timing import (
    ARRIVALS,
    IN_FLIGHT,
    INSIDE,
    KV_USE,
    QUEUE,
    READY_SERVERS,
    FaultCondition,
    RandomTimes,
)
from windtunnel.twin.faults.world import World
from windtunnel.twin.infrastructure.faults import MachineFaults
from windtunnel.twin.infrastructure.infrastructure import Infrastructure
from windtunnel.twin.results.recorder import Recorder
from windtunnel.twin.servers.autoscaling import Autoscaling
from windtunnel.twin.servers.cluster import Cluster
from windtunnel.twin.servers.lifecycle import Lifecycle
from windtunnel.twin.servers.replicas import READY, Pool, Replica


class Gauge:
    """Reads a metric that a fault can wait for: the true state of the run, not what a control plane
    sees. Each reader of a rate has its own gauge."""

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


MOST_LISTED: Final = 1_000
"""The most faults that a result lists individually; all are counted, and emitted as events."""

MOST_SUBJECTS: Final = 100
"""The most subjects listed per fault."""


class LoggedFault:
    """A fault that has begun."""

    def __init__(self, name: str, kind: str, at_s: float, subjects: list[str], why: str) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.at_s: Final = at_s
        self.subjects: Final = subjects
        self.why: Final = why
        self.until_s: float | None = None  # None: it has not ended


class FaultLog:
    """Logs every fault that begins and ends."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry: Final = telemetry
        self.begun = 0
        self.listed: Final[list[LoggedFault]] = []

    def begin(self, entry: LoggedFault, until_s: float | None) -> None:
        """Logs a fault that begins; `until_s` is when it will end, if known."""
        self.begun += 1
        if len(self.listed) < MOST_LISTED:
            self.listed.append(entry)
        self._emit(entry.at_s, FAULT_BEGAN, entry, {"until": until_s})

    def end(self, entry: LoggedFault, now_s: float) -> None:
        entry.until_s = now_s
        self._emit(now_s, FAULT_ENDED, entry, {"at": entry.at_s})

    def _emit(self, now_s: float, kind: str, entry: LoggedFault, more: dict[str, Plain]) -> None:
        if self._telemetry.wants(kind):
            subjects: list[Plain] = list(entry.subjects[:MOST_SUBJECTS])
            data: dict[str, Plain] = {"kind": entry.kind, "subjects": subjects, **more}
            self._telemetry.emit(Event(now_s, kind, f"fault/{entry.name}", entry.why, data))

    def result(self) -> list[dict[str, Any]]:
        """The faults listed in `result.json`, in the order in which they began."""
        return [
            {
                "name": one.name,
                "kind": one.kind,
                "at": one.at_s,
                "until": one.until_s,
                "subjects": one.subjects[:MOST_SUBJECTS],
                "reason": one.why,
            }
            for one in self.listed
        ]


NOT_YET: Final = -1.0


class Faults(NamedTuple):
    """The faults of one run: their effects, their schedule and their log."""

    world: World
    schedule: FaultSchedule
    log: FaultLog


class FaultDriver:
    """Begins and ends a fault as often as its settings say."""

    def __init__(
        self, name: str, fault: InjectedFault, faults: Faults, gauge: Gauge, streams: Streams
    ) -> None:
        self._name: Final = name
        self._fault: Final = fault
        self._world: Final = faults.world
        self._schedule: Final = faults.schedule
        self._log: Final = faults.log
        self._gauge: Final = gauge
        self._times: Final[Stream] = streams[f"faults.{name}"]
        self._subjects: Final[Stream] = streams[f"faults.{name}.who"]
        self._begun = 0
        self._since_s = NOT_YET  # since when the condition holds
        self._fired = False  # whether the fault has begun since then

    def start(self) -> None:
        """Schedules the first occurrence, or the first evaluation of the condition, before a run
        begins."""
        fault = self._fault
        if fault.at_s is not None:
            self._schedule.plan(fault.at_s, self._at, helps=False)
        elif fault.every is not None:
            self._plan_next(fault.every, fault.every.from_s)
        elif fault.when is not None:
            self._look_later(fault.when, 0.0)

    def _at(self, now_s: float) -> None:
        self._begin(now_s, f"at {now_s:g} s")

    def _plan_next(self, every: RandomTimes, since_s: float) -> None:
        at_s = since_s + self._times.exponential(every.mean_s)
        over = every.until_s is not None and at_s > every.until_s
        if not over and (every.most is None or self._begun < every.most):
            self._schedule.plan(at_s, lambda now_s: self._by_chance(every, now_s), helps=False)

    def _by_chance(self, every: RandomTimes, now_s: float) -> None:
        self._begin(now_s, "by chance")
        self._plan_next(every, now_s)

    def _look_later(self, when: FaultCondition, now_s: float) -> None:
        look_s = now_s + when.interval_s
        self._schedule.plan(look_s, lambda at_s: self._look(when, at_s), helps=False)

    def _look(self, when: FaultCondition, now_s: float) -> None:
        if not when.holds(self._gauge.read(when.metric, when.pool, now_s)):
            self._since_s, self._fired = NOT_YET, False
        elif self._since_s == NOT_YET:
            self._since_s = now_s
        if self._since_s != NOT_YET and not self._fired and now_s - self._since_s >= when.for_s:
            self._fired = True
            self._begin(now_s, str(when))
        if self._begun < when.most:
            self._look_later(when, now_s)

    def _begin(self, now_s: float, why: str) -> None:
        self._begun += 1
        injection = self._fault.prepare(self._world, self._subjects)
        logged = LoggedFault(self._name, self._fault.word(), now_s, injection.subjects, why)
        length_s = self._fault.length_s
        until_s = None if length_s is None else now_s + length_s
        if injection.end is None:
            logged.until_s = until_s = now_s
        self._log.begin(logged, until_s)
        injection.begin(now_s)
        end = injection.end
        if end is not None and until_s is not None:

            def finish(end_s: float) -> None:
                end(end_s)
                self._log.end(logged, end_s)

            self._schedule.plan(until_s, finish, helps=True)


def build_faults(
    settings: Sequence[InjectedFault],
    cluster: Cluster,
    lifecycle: Lifecycle,
    autoscaling: Autoscaling | None,
    infrastructure: Infrastructure | None,
    recorder: Recorder,
    streams: Streams,
    telemetry: Telemetry,
) -> Faults:
    """Builds the faults of a run and schedules their first occurrences."""
    schedule = FaultSchedule()
    machines = None
    if infrastructure is not None and infrastructure.machines is not None:
        machines = MachineFaults(infrastructure)
    world = World(cluster, lifecycle, autoscaling, infrastructure, machines, schedule)
    faults = Faults(world, schedule, FaultLog(telemetry))
    for number, fault in enumerate(settings):
        gauge = Gauge(cluster, recorder)
        FaultDriver(fault.name_at(number), fault, faults, gauge, streams).start()
    return faults
