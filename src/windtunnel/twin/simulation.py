"""The loop of a simulation: one clock, and components that act in time until no work remains."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from windtunnel.core.errors import NoFixedPoint
from windtunnel.core.loop import INFINITY, Clock, Component
from windtunnel.twin.progress import NO_PROGRESS, RunProgress
from windtunnel.twin.requests.lifecycle import (
    RequestLifecycle,
    RequestTimers,
    ServerSteps,
    TrafficArrivals,
)
from windtunnel.twin.results.timeline import Timeline
from windtunnel.twin.servers.lifecycle import Lifecycle

if TYPE_CHECKING:  # imported only by scenarios that need them, for a faster start
    from windtunnel.twin.faults.driver import Faults
    from windtunnel.twin.servers.autoscaling import Autoscaling

EVENTS_PER_LOOK: Final = 1_024
"""Events of requests and servers between looks; a single control-plane event may take long."""


class ControlPlane:
    """The components that act on servers from outside: autoscaler, gangs and machines, faults.

    At one instant it acts last, in this order. It never keeps a run alive by itself.
    """

    def __init__(
        self, lifecycle: Lifecycle, autoscaling: "Autoscaling | None", faults: "Faults | None"
    ) -> None:
        self.lifecycle: Final = lifecycle
        self.autoscaling: Final = autoscaling
        self.faults: Final = faults
        self.next_s = math.inf  # when the first of them acts
        self.components: Final[list[Component]] = [lifecycle]
        if autoscaling is not None:
            self.components.append(autoscaling)
        if lifecycle.infrastructure is not None:
            self.components.append(lifecycle.infrastructure)
        if faults is not None:
            self.components.append(faults.schedule)

    def settle(self, now_s: float) -> None:
        """Removes replicas with nothing left to do, after they or a component may have changed.

        Nothing else changes when components act, and most events of a run are of requests: so the
        first of these times is noted here, and not looked up at every event.
        """
        self.lifecycle.retire(now_s)
        self.next_s = self._first_s()

    def _first_s(self) -> float:
        return min([one.next_s() for one in self.components])

    def fault(self) -> str | None:
        """Describes a component that would act at another time than noted; None without one."""
        first_s = self._first_s()
        if self.next_s == first_s:
            return None
        return f"the control plane acts at {first_s} s, noted is {self.next_s} s"

    @property
    def helps(self) -> bool:
        """Whether anything is scheduled that may serve waiting requests, other than harmful
        faults."""
        schedule = self.faults.schedule if self.faults is not None else None
        if schedule is not None and schedule.helps:
            return True
        return any(one is not schedule and one.next_s() != math.inf for one in self.components)

    def will_see(self, since_s: float) -> bool:
        """Whether the autoscaler has not seen the state since then, and still may."""
        autoscaling = self.autoscaling
        if autoscaling is None or autoscaling.loop.seen_s >= since_s:
            return False
        restored = self.faults is not None and self.faults.schedule.helps
        return not autoscaling.is_blind or restored

    @property
    def under_way(self) -> int:
        """The number of changes in progress: start-ups, orders, pods, machines."""
        count = self.lifecycle.starting
        if self.autoscaling is not None:
            count += self.autoscaling.is_under_way
        if self.lifecycle.infrastructure is not None:
            count += self.lifecycle.infrastructure.under_way
        return count


class Patience:
    """How long a run waits for the control plane to start a server when nothing else can happen."""

    def __init__(self, control: ControlPlane, progress: RunProgress) -> None:
        self._control: Final = control
        self._progress: Final = progress
        self._latest = -1  # the control plane's latest event in the run
        self._quiet_s = 0.0  # since when all events are of the control plane
        self._idle = 0  # the number of those events
        self._settled = 0  # and of those with nothing in progress

    def ends(self, events: int, now_s: float) -> bool:
        """Whether the next event, again one of the control plane, is one too many.

        A decision based on an older snapshot says nothing about the next decision, unless there
        will be none.
        """
        control = self._control
        if not control.helps:
            return True
        if self._latest != events:
            self._quiet_s = now_s
            self._idle = self._settled = 0
        self._latest = events + 1
        self._idle += 1
        unsettled = control.under_way > 0 or control.will_see(self._quiet_s)
        self._settled = 0 if unsettled else self._settled + 1
        most = self._progress.idle
        if self._settled > max(1, most // 10):
            return True
        if self._idle > most:
            self._progress.control_only(self._idle, now_s)
            return True
        return False


class EarlyEnd:
    """Why a run ended early: the cause in a word or two, and a sentence for people."""

    def __init__(self, by: str, sentence: str) -> None:
        self.by: Final = by
        self.sentence: Final = sentence


class Simulation:
    """Servers under traffic. One run each: `run` takes it from the first arrival to the end."""

    def __init__(
        self,
        requests: RequestLifecycle,
        control: ControlPlane,
        timeline: Timeline,
        horizon_s: float,
    ) -> None:
        self.requests: Final = requests
        self.control: Final = control
        self.timeline: Final = timeline
        self.horizon_s: Final = horizon_s
        self.clock: Final[Clock] = requests.clock
        self.events = 0
        self.early: EarlyEnd | None = None
        self.is_torn = False  # it ended within an instant: totals need not add up
        self.in_haste = False  # it must end at once: remaining requests are counted, without rows
        self.traffic: Final = requests.traffic
        self.services: Final = requests.services
        self.cluster: Final = requests.cluster
        self.servers: Final = requests.servers
        self.recorder: Final = requests.recorder
        self.lifecycle: Final = control.lifecycle
        self.autoscaling: Final = control.autoscaling
        self.faults: Final = control.faults
        self.progress: Final = requests.progress
        self.progress.end_run = self.end_early
        self.progress.reached = requests.reached
        self._patience: Final = Patience(control, self.progress)
        # An arrival at the instant a step ends is seen by the next step: it goes first.
        self._arrivals: Final = TrafficArrivals(requests)
        self._timers: Final = RequestTimers(requests)
        self._steps: Final = ServerSteps(requests)
        control.lifecycle.inside = requests
        if self.faults is not None:
            requests.rate_limits = self.faults.world.rate_limits

    @property
    def now_s(self) -> float:
        return self.clock.now_s

    def end_early(self, by: str, sentence: str) -> None:
        """Ends the run after this event; its results so far are marked partial."""
        if self.early is None:
            self.early = EarlyEnd(by, sentence)

    def run(
        self,
        look: Callable[["Simulation"], None],
        check: Callable[["Simulation"], None] | None = None,
        ended: Callable[["Simulation"], None] | None = None,
    ) -> None:
        """Runs to the end. `look` is called from time to time, `check` after every event, and
        `ended` after the last one, before unfinished requests are counted.

        Signals are handled in `look`, which is a plain Python function.
        """
        try:
            self._run(look, check)
        except NoFixedPoint as endless:
            self.is_torn = True
            self.end_early(NO_PROGRESS, self.progress.standstill(endless.what, self.now_s))
        if self.early is not None and self.early.by == NO_PROGRESS:
            sentence = self.progress.sentence()  # the last event may have added to its counts
            self.early = EarlyEnd(NO_PROGRESS, sentence or self.early.sentence)
        if ended is not None and not self.is_torn:
            ended(self)
        self._finish()

    def _run(
        self,
        look: Callable[["Simulation"], None],
        check: Callable[["Simulation"], None] | None,
    ) -> None:
        self.control.settle(self.now_s)
        while self.early is None and self._run_on(check):
            look(self)
            self.progress.look(self.events, len(self.servers), self.now_s)

    def _run_on(self, check: Callable[["Simulation"], None] | None) -> bool:
        """Runs until it is time to look; returns False when nothing else will happen."""
        clock = self.clock
        timeline = self.timeline
        vacated = self.cluster.vacated
        granting = self.cluster.granting
        # The times of requests and servers are read directly: most events are theirs.
        traffic, timers, agenda = self.traffic, self.requests.timers, self.cluster.agenda
        arrivals, due, steps = self._arrivals, self._timers, self._steps
        control = self.control
        horizon_s = self.horizon_s
        while True:  # Python 3.11 does not specialize the body of a loop with a condition here
            component: Component = arrivals
            now_s = traffic.next_s
            if timers.next_s < now_s:
                component, now_s = due, timers.next_s
            if agenda.next_s < now_s:
                component, now_s = steps, agenda.next_s
            first: Component | None = None
            if control.next_s < now_s:
                first = self._first_of_control(now_s)
                if first is not None:
                    component, now_s = first, first.next_s()
            if now_s > horizon_s or now_s == INFINITY:
                return False
            if now_s > timeline.next_s:
                timeline.take(now_s, self.recorder, self.cluster, self.services)
            clock.now_s = now_s
            self.events += 1
            component.advance(now_s)
            if granting:
                self.requests.use_room()
            if vacated or first is not None:
                control.settle(now_s)
            if check is not None:
                check(self)
            if (
                self.events % EVENTS_PER_LOOK == 0
                or first is not None
                or self.early is not None  # known since this event
            ):
                return True

    def _first_of_control(self, work_s: float) -> Component | None:
        """The control-plane component that acts next, before `work_s`; None when there is none."""
        first: Component | None = None
        next_s = work_s
        for one in self.control.components:
            one_s = one.next_s()
            if one_s < next_s:
                first, next_s = one, one_s
        if first is None or self._is_over(work_s):
            return None
        return first

    def _is_over(self, work_s: float) -> bool:
        """Whether a run ends here although the control plane has plans before `work_s`.

        Without a duration it ends with its last request, or when nothing will start a server for
        the remaining ones.
        """
        if self.horizon_s != math.inf:
            return False
        if not self.requests.work_remains:
            return True
        return work_s == math.inf and self._patience.ends(self.events, self.now_s)

    def _finish(self) -> None:
        if self.horizon_s != math.inf and self.early is None:
            self.clock.now_s = self.horizon_s
        self.timeline.finish(self.now_s, self.recorder, self.cluster, self.services)
        self.requests.finish(one_by_one=not self.in_haste)
        self.recorder.flush()
