"""Prefers tasks whose model is free over tasks whose model is busy; it never stops the work.

It only reads request admission. If a task's endpoint is under pressure, and another group's task
may go whose endpoint is not, the first is skipped this time. If all are under pressure, the first
in fair order goes: it then waits at the endpoint, and nothing can deadlock.
"""

from enum import StrEnum
from typing import Final

from windtunnel.admission.events import Correlation, EventKind, EventReporter
from windtunnel.admission.queues.fair_queue import Selection
from windtunnel.admission.queues.groups import DemandLane
from windtunnel.admission.reasons import Domain
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.tasks.admission import TaskAdmission

LOOKS_MAX: Final = 16
"""Most lanes under pressure that are skipped in one selection."""


class Pressure(StrEnum):
    """Why an endpoint counts as under pressure, in the order of the checks."""

    AGGREGATE_CAP = "provider_model_aggregate_cap"
    COOLDOWN = "cooldown"
    WAITERS = "waiters"
    RESOURCE_LIMIT = "resource_limit"


class PressureAdvisory:
    """Chooses among the tasks that may go by the pressure on their endpoints."""

    def __init__(
        self,
        tasks: TaskAdmission,
        requests: RequestAdmission,
        reporter: EventReporter | None = None,
    ) -> None:
        self._tasks: Final = tasks
        self.requests: Final = requests
        self._reporter: Final = reporter if reporter is not None else EventReporter()
        self._keys: Final[dict[DemandLane, list[tuple[str, str, Domain]]]] = {}
        self.skips = 0

    def watch(self, lane: DemandLane, provider: str, model: str, domain: Domain) -> None:
        """Registers an endpoint that tasks of this lane will call; a lane may have several."""
        keys = self._keys.setdefault(lane, [])
        if (provider, model, domain) not in keys:
            keys.append((provider, model, domain))

    def pressure(self, lane: DemandLane, now: float) -> Pressure | None:
        """Returns why the first of a lane's endpoints is under pressure, if all of them are."""
        first: Pressure | None = None
        for provider, model, domain in self._keys.get(lane, ()):
            pressure = self._pressure_on(provider, model, domain, now)
            if pressure is None:
                return None
            if first is None:
                first = pressure
        return first

    def _pressure_on(
        self, provider: str, model: str, domain: Domain, now: float
    ) -> Pressure | None:
        endpoint = self.requests.endpoint(provider, model)
        if endpoint is None:
            return None
        if endpoint.in_flight >= endpoint.cap:
            return Pressure.AGGREGATE_CAP
        state = endpoint.domains.get(domain)
        if state is None:
            return None
        if now < state.limiter.blocked_until_s:
            return Pressure.COOLDOWN
        if state.lane.queued > 0:
            return Pressure.WAITERS
        if state.limiter.room(state.in_flight, now) <= 0:
            return Pressure.RESOURCE_LIMIT
        return None

    def select(self, now: float) -> Selection | None:
        """The first task in fair order whose endpoint is free; the very first if none is."""
        queue = self._tasks.queue
        first = self._tasks.select()
        chosen, passed = first, list[Selection]()
        while chosen is not None and len(passed) < LOOKS_MAX:
            if self.pressure(chosen.item.lane, now) is None:
                break
            passed.append(chosen)
            queue.block(chosen.item.lane)
            chosen = self._tasks.select()
        if chosen is not None and self.pressure(chosen.item.lane, now) is not None:
            chosen = None
        for selection in passed:
            queue.unblock(selection.item.lane)
        if chosen is None:
            return self._tasks.select()
        for selection in passed:
            self._passed_over(selection, chosen, now)
        return chosen

    def _passed_over(self, selection: Selection, chosen: Selection, now: float) -> None:
        self.skips += 1
        kind, item = EventKind.PRESSURE_ADVISORY_SKIPPED, selection.item
        if self._reporter.wants(kind):
            reason = self.pressure(item.lane, now)
            assert reason is not None
            self._reporter.report(
                now,
                kind,
                item.id,
                reason=reason.value,
                correlation=Correlation(selection.group.spec.key, item.id),
                numbers={"chosen": chosen.item.id, "lane": item.lane.name},
            )
