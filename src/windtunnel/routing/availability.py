"""Server availability for routing: circuit breakers, ramp-up after a start, and a retry budget.

A server is left out while it is unhealthy, draining or ejected by its breaker, and while it has as
many requests as it is allowed: one while its breaker is in trial, a growing number after a start.
"""

import math
from typing import Final

CLOSED: Final = 0
OPEN: Final = 1
TRIAL: Final = 2

OUTCOMES_KEPT: Final = 40
"""Recent outcomes kept per server, to compute the share of failures."""


class BreakerLimits:
    """The thresholds at which a breaker opens, and how long it stays open."""

    def __init__(
        self, consecutive: int, share: float, open_s: float, longest_open_s: float
    ) -> None:
        self.consecutive: Final = consecutive  # failures in a row
        self.share: Final = share  # of the last requests, once there are `OUTCOMES_KEPT` of them
        self.open_s: Final = open_s  # at first; doubled each time a trial fails
        self.longest_open_s: Final = longest_open_s


class CircuitBreaker:
    """Closed: requests flow. Open: none until `until_s`. Trial: one at a time, until success."""

    def __init__(self, limits: BreakerLimits) -> None:
        self.state = CLOSED
        self.until_s = math.inf
        self.opened = 0  # how often so far
        self._limits: Final = limits
        self._in_a_row = 0
        self._outcomes: Final[list[int]] = []  # 1 for a failure; the oldest is overwritten
        self._oldest = 0
        self._failures = 0
        self._open_s = limits.open_s

    def failed(self, now_s: float) -> None:
        """Records a request that the server did not answer, or answered with a server error."""
        self._count(1)
        self._in_a_row += 1
        if self.state == TRIAL:
            self._open_s = min(2.0 * self._open_s, self._limits.longest_open_s)
            self._open(now_s)
        elif self.state == CLOSED and (
            self._in_a_row >= self._limits.consecutive or self._too_many()
        ):
            self._open(now_s)

    def succeeded(self) -> None:
        """Records a request that the server answered, even if the answer was a client error."""
        self._count(0)
        self._in_a_row = 0
        if self.state == TRIAL:
            self.state = CLOSED
            self.until_s = math.inf
            self._open_s = self._limits.open_s
            self._outcomes.clear()
            self._oldest = self._failures = 0

    def tick(self, now_s: float) -> None:
        """Moves an open breaker to trial once its time is up."""
        if self.state == OPEN and now_s >= self.until_s:
            self.state = TRIAL
            self.until_s = math.inf

    def _open(self, now_s: float) -> None:
        self.state = OPEN
        self.until_s = now_s + self._open_s
        self.opened += 1
        self._in_a_row = 0

    def _too_many(self) -> bool:
        kept = len(self._outcomes)
        return kept == OUTCOMES_KEPT and self._failures >= self._limits.share * kept

    def _count(self, failure: int) -> None:
        outcomes = self._outcomes
        self._failures += failure
        if len(outcomes) < OUTCOMES_KEPT:
            outcomes.append(failure)
            return
        self._failures -= outcomes[self._oldest]
        outcomes[self._oldest] = failure
        self._oldest = (self._oldest + 1) % OUTCOMES_KEPT


class Availability:
    """Whether one server may get another request, and when that may change."""

    def __init__(self, slots: int, limits: BreakerLimits, ramp_s: float) -> None:
        self.slots: Final = slots
        self.breaker: Final = CircuitBreaker(limits)
        self.healthy = False
        self.draining = False
        self._ramp_s: Final = ramp_s
        self._ramping_since_s = math.inf

    def became_healthy(self, now_s: float, *, ramp: bool) -> None:
        """Marks the server healthy; with `ramp`, it starts with few requests."""
        self.healthy = True
        self._ramping_since_s = now_s if ramp and self._ramp_s > 0.0 else math.inf

    def cap(self, now_s: float) -> float:
        """The most requests it may have at once, if it may be chosen at all."""
        if self.breaker.state == TRIAL:
            return 1.0
        passed_s = now_s - self._ramping_since_s
        if 0.0 <= passed_s < self._ramp_s:
            return max(1.0, self.slots * passed_s / self._ramp_s)
        return math.inf

    def allows(self, in_flight: int, now_s: float) -> bool:
        if not self.healthy or self.draining or self.breaker.state == OPEN:
            return False
        return in_flight < self.cap(now_s)

    def next_s(self, now_s: float) -> float:
        """When `allows` may change by time alone; infinity if only an event can change it."""
        if self.breaker.state == OPEN:
            return self.breaker.until_s
        passed_s = now_s - self._ramping_since_s
        if 0.0 <= passed_s < self._ramp_s:
            return now_s + max(self._ramp_s / self.slots, 0.05)
        return math.inf

    def why_not(self) -> str:
        """Why it may not be chosen: its state, or else its limit of requests."""
        if self.draining:
            return "draining"
        if not self.healthy:
            return "unhealthy"
        return "circuit breaker open" if self.breaker.state == OPEN else "at its limit"


class RetryBudget:
    """Limits retries to a share of requests, so that a failing fleet gets no retry storm.

    Each request adds the share to the balance, and a retry takes 1. The balance is capped, so that
    a quiet night does not pay for a storm in the morning.
    """

    def __init__(self, share: float, most: float = 10.0) -> None:
        self._share: Final = share
        self._most: Final = most
        self.balance = most if share > 0.0 else 0.0

    def arrived(self) -> None:
        self.balance = min(self._most, self.balance + self._share)

    def take(self) -> bool:
        """Takes one retry from the budget; False if it is exhausted."""
        if self.balance < 1.0:
            return False
        self.balance -= 1.0
        return True
