"""How well limits are found in simulated time: at least 0.90 of what each provider could serve.

Thirty-two callers, a cap of 32, a second of service, and a refusal that takes 50 ms; the provider
limits what it serves at once, or how much a minute, and says so only by refusing. Each case is held
to at least 0.90 of the ideal rate and at most 5 refusals per 100 answers. Exact and repeatable:
nothing here measures this machine.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from benchmarks.claim import Claim, report
from windtunnel.admission.reasons import Domain, Outcome
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import QueueTicket, RequestAsk, RequestLease
from windtunnel.admission.requests.limiter import NEVER
from windtunnel.core.random import Streams

REQUESTS = 320
CALLERS = 32
SERVICE_S = 1.0
REFUSAL_S = 0.05
EFFICIENCY_LEAST = 0.90
REFUSALS_PER_100_MOST = 5.0


class Provider(Protocol):
    """Takes a call or refuses it with a Retry-After (0 for none)."""

    def refuses(self, now: float) -> float | None: ...

    def finished(self) -> None: ...


class Concurrent:
    """Serves so many at once; how many changes at given times."""

    def __init__(self, *phases: tuple[float, int], retry_after_s: float = 0.0) -> None:
        self.phases = phases
        self.retry_after_s = retry_after_s
        self.serving = 0

    def refuses(self, now: float) -> float | None:
        capacity = next(capacity for until_s, capacity in self.phases if now < until_s)
        if self.serving >= capacity:
            return self.retry_after_s
        self.serving += 1
        return None

    def finished(self) -> None:
        self.serving -= 1


class PerMinute:
    """A bucket that holds a minute's requests and refills steadily; says exactly when to retry."""

    def __init__(self, limit: int) -> None:
        self.limit, self.left, self.at_s = float(limit), float(limit), 0.0

    def refuses(self, now: float) -> float | None:
        rate = self.limit / 60.0
        self.left = min(self.limit, self.left + (now - self.at_s) * rate)
        self.at_s = now
        if self.left < 1.0:
            return max(0.001, (1.0 - self.left) / rate - REFUSAL_S)
        self.left -= 1.0
        return None

    def finished(self) -> None:
        pass


class Window:
    """So many in each minute by the clock; says exactly when the next minute begins."""

    def __init__(self, limit: int) -> None:
        self.limit, self.minute, self.used = limit, -1, 0

    def refuses(self, now: float) -> float | None:
        if int(now // 60.0) != self.minute:
            self.minute, self.used = int(now // 60.0), 0
        if self.used >= self.limit:
            return 60.0 * (self.minute + 1) - now - REFUSAL_S
        self.used += 1
        return None

    def finished(self) -> None:
        pass


class Client:
    """Callers that make all requests through request admission, on a clock of its own."""

    def __init__(self, provider: Provider, cap: int = CALLERS, seed: int = 1) -> None:
        self.provider = provider
        self.admission = RequestAdmission("quality", Streams(seed))
        self.admission.register("p", "m", "m", cap, 0.0)
        self.ask = RequestAsk("p", "m", Domain.CHAT)
        self.events: list[tuple[float, int, RequestLease, Outcome, float]] = []
        self.sequence = self.answered = self.refused = self.started = 0
        self.limits: list[int] = []
        self.now = 0.0

    def run(self) -> "Client":
        for _ in range(CALLERS):
            self.call()
        while self.answered < REQUESTS:
            wake_s = self.admission.next_wake_s()
            if self.events and self.events[0][0] <= wake_s:
                self.now, _, lease, outcome, retry_after_s = heappop(self.events)
                self.end(lease, outcome, retry_after_s)
            else:
                assert wake_s < NEVER
                self.now = wake_s
                self.admission.advance(wake_s)
            self.send_resolved()
        return self

    def call(self) -> None:
        self.started += 1
        got = self.admission.acquire(self.ask, self.now)
        if isinstance(got, RequestLease):
            self.send(got)
        else:
            assert isinstance(got, QueueTicket)

    def end(self, lease: RequestLease, outcome: Outcome, retry_after_s: float) -> None:
        if outcome is Outcome.SUCCESS:
            self.answered += 1
            self.provider.finished()
        else:
            self.refused += 1
        self.admission.release(lease, outcome, self.now, retry_after_s=retry_after_s)
        self.limits.append(lease.domain.limiter.limit)
        if outcome is not Outcome.SUCCESS or self.started < REQUESTS + self.refused:
            self.call()

    def send_resolved(self) -> None:
        for ticket in self.admission.take_resolved():
            assert ticket.lease is not None
            self.send(ticket.lease)

    def send(self, lease: RequestLease) -> None:
        retry_after_s = self.provider.refuses(self.now)
        self.sequence += 1
        if retry_after_s is None:
            event = (self.now + SERVICE_S, self.sequence, lease, Outcome.SUCCESS, 0.0)
        else:
            ends_s = self.now + REFUSAL_S
            event = (ends_s, self.sequence, lease, Outcome.RATE_LIMITED, retry_after_s)
        heappush(self.events, event)


def window_ideal_s() -> float:
    """As fast as 32 callers can be who know the window: full speed, then sleep to the minute."""
    left, now = REQUESTS, 0.0
    free = deque([0.0] * CALLERS)
    window = Window(120)
    while left:
        now = max(now, free.popleft())
        wait_s = window.refuses(now)
        if wait_s is not None:
            now += wait_s + REFUSAL_S
            assert window.refuses(now) is None
        free.append(now + SERVICE_S)
        left -= 1
    return max(free)


CASES: list[tuple[str, Callable[[], Provider], float]] = [
    ("no limit", lambda: Concurrent((NEVER, 1000)), 10.0),
    ("serves 8", lambda: Concurrent((NEVER, 8)), 40.0),
    ("serves 8, Retry-After 5 s", lambda: Concurrent((NEVER, 8), retry_after_s=5.0), 40.0),
    ("serves 16, then 4", lambda: Concurrent((10.0, 16), (NEVER, 4)), 50.0),
    ("serves 4, then 16", lambda: Concurrent((40.0, 4), (NEVER, 16)), 50.0),
    ("120 requests/min, steady refill", lambda: PerMinute(120), 100.0),
    ("120 requests in each minute", lambda: Window(120), window_ideal_s()),
]


def main() -> None:
    for name, provider, ideal_s in CASES:
        client = Client(provider()).run()
        refusals = 100.0 * client.refused / client.answered
        report(
            Claim(
                f"limits, {name}: time to finish",
                ours=client.now,
                baseline=ideal_s,
                most=1.0 / EFFICIENCY_LEAST,
                unit="simulated s",
                against="ideal",
            )
        )
        report(
            Claim(
                f"limits, {name}: refusals",
                ours=refusals,
                baseline=REFUSALS_PER_100_MOST,
                most=1.0,
                unit="per 100 answers",
                against="the promise",
            )
        )


if __name__ == "__main__":
    main()
