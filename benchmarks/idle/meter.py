"""The measurements: the use of slots between one change and the next, and how long work waited.

Busy is lease-held time, as in the other scheduler's suite; it grows with any time that a scheduler
itself takes. Effective use is the time that models served, over the capacity: that cannot be
inflated.
"""

from math import sqrt

import msgspec

from windtunnel.admission.events import EventKind
from windtunnel.admission.queues.groups import SharedResource
from windtunnel.core.telemetry import Event


class Measured(msgspec.Struct, frozen=True):
    """The figures of one run; shares of the capacity unless the name says otherwise."""

    wall_s: float
    generations: int
    slots: int
    utilisation: float
    effective: float
    idle: float
    starved: float
    horizon: float
    burstiness: float
    queue_age_s_mean: float
    queue_age_s_p50: float
    queue_age_s_p95: float
    queue_age_s_max: float
    leased_wait_s: float
    """Seconds that tasks with a lease waited for their model."""
    in_flight_most: int
    target_most: int
    """Highest target for concurrent row groups."""
    skips: int
    refused: int
    failed: int
    first_column: str
    left_over: int
    """Leases, waiters and queued tasks at the end; anything but 0 is a leak."""
    half_time_shares: tuple[float, ...]
    """Each tenant's share of the service while all tenants had work."""
    bare: float = 1.0
    """Share of the capacity that unscheduled sleepers on the same clock reach."""
    cpu_s: float = 0.0
    """CPU time of the whole run; measured in real time only, so that virtual runs are all equal."""

    @property
    def per_s(self) -> float:
        return self.generations / self.wall_s


class Meter:
    """Adds up the use of one resource; call `look` after every change."""

    def __init__(self, resource: SharedResource) -> None:
        self._resource = resource
        self._at_s = 0.0
        self._leased = self._queued = 0
        self._busy_s = self._idle_s = self._starved_s = self._squares_s = 0.0
        self.in_flight_most = 0

    def look(self, now: float) -> None:
        """Accounts the time since the last call to the state at that call."""
        span_s, leased = now - self._at_s, self._leased
        free = max(0, self._resource.limit - leased)
        self._busy_s += leased * span_s
        self._squares_s += leased * leased * span_s
        self._idle_s += free * span_s
        if self._queued > 0:
            self._starved_s += free * span_s
        self._at_s = now
        self._leased, self._queued = self._resource.leased, self._resource.queued
        self.in_flight_most = max(self.in_flight_most, self._leased)

    def shares(self) -> tuple[float, float, float]:
        """Shares of the capacity: busy, idle, and idle although work was ready."""
        capacity_s = self._resource.limit * self._at_s
        return self._busy_s / capacity_s, self._idle_s / capacity_s, self._starved_s / capacity_s

    def burstiness(self) -> float:
        """Standard deviation of the leases in use, over their mean."""
        mean = self._busy_s / self._at_s
        return sqrt(max(0.0, self._squares_s / self._at_s - mean * mean)) / mean


class Ages:
    """How long tasks were ready before they started: a sink for those two events."""

    def __init__(self) -> None:
        self.ages_s: list[float] = []
        self._since_s: dict[str, float] = {}

    def wants(self, kind: str) -> bool:
        return kind in (EventKind.TASK_ENQUEUED, EventKind.TASK_LEASE_ACQUIRED)

    def record(self, event: Event) -> None:
        if event.kind == EventKind.TASK_ENQUEUED:
            self._since_s[event.subject] = event.time
        else:
            self.ages_s.append(event.time - self._since_s.pop(event.subject))

    def summary(self) -> tuple[float, float, float, float]:
        """Mean, median, 95th percentile and maximum, by nearest rank."""
        ages = sorted(self.ages_s)
        last = len(ages) - 1
        return (
            sum(ages) / len(ages),
            ages[round(0.5 * last)],
            ages[round(0.95 * last)],
            ages[last],
        )
