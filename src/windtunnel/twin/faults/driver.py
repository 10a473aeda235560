"""Drives the faults of a run: each begins at its time, at random times or on its condition."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from windtunnel.core.random import Stream, Streams
from windtunnel.core.telemetry import Telemetry
from windtunnel.twin.faults.conditions import Gauge
from windtunnel.twin.faults.kind import InjectedFault
from windtunnel.twin.faults.log import FaultLog, LoggedFault
from windtunnel.twin.faults.schedule import FaultSchedule
from windtunnel.twin.faults.timing import FaultCondition, RandomTimes
from windtunnel.twin.faults.world import World
from windtunnel.twin.infrastructure.faults import MachineFaults
from windtunnel.twin.infrastructure.infrastructure import Infrastructure
from windtunnel.twin.results.recorder import Recorder
from windtunnel.twin.servers.autoscaling import Autoscaling
from windtunnel.twin.servers.cluster import Cluster
from windtunnel.twin.servers.lifecycle import Lifecycle

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
