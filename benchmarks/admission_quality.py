"""How well limits are found in simulated time: at least 0.90 of what each provider could serve.

Thirty-two callers, a cap of 32, a second of service, and a refusal that takes 50 ms; the provider
limits what it serves at once, or per minute, and shows that only by refusing. Each case must reach
a share of the ideal rate within a number of refusals, counted from its first request. Exact and
repeatable: nothing here measures this machine.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from benchmarks.claim import Claim, report
from windtunnel.admission.reasons import Domain, Outcome
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import QueueTicket, RequestAsk, RequestLease
from windtunnel.admission.requests.headers import refusal_delay_s
from windtunnel.admission.requests.limiter import NEVER
from windtunnel.core.random import Stream, Streams

REQUESTS = 320
CALLERS = 32
SERVICE_S = 1.0
REFUSAL_S = 0.05
EFFICIENCY_LEAST = 0.90
REFUSALS_PER_100_MOST = 5.0
REFUSALS_AFTER_A_FALL_MOST = 6.0


class Provider(Protocol):
    """Takes a call or refuses it with a Retry-After (0 for none)."""

    def refuses(self, now: float) -> float | None: ...

    def finished(self) -> None: ...


class Concurrent:
    """Serves a limited number of calls at once; the limit changes at given times."""

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
    """A token bucket of a minute's requests, refilled steadily; its Retry-After is exact."""

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
    """A limit for each clock minute; its Retry-After is the exact start of the next minute."""

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


class Chance:
    """Refuses some calls at random, whatever the load, with or without a Retry-After."""

    def __init__(self, share: float, retry_after_s: float = 0.0, seed: int = 1) -> None:
        self.share, self.retry_after_s = share, retry_after_s
        self.stream = Stream(seed, "chance")

    def refuses(self, now: float) -> float | None:  # noqa: ARG002 - at any time
        return self.retry_after_s if self.stream.uniform() < self.share else None

    def finished(self) -> None:
        pass


class PerSecond(PerMinute):
    """A token bucket of a second's requests, refilled steadily; it sends no Retry-After."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.rate = float(limit)

    def refuses(self, now: float) -> float | None:
        self.left = min(self.limit, self.left + (now - self.at_s) * self.rate)
        self.at_s = now
        if self.left < 1.0:
            return 0.0
        self.left -= 1.0
        return None


class Times(NamedTuple):
    """Durations of answers and refusals, and the number of requests."""

    service_s: float = SERVICE_S
    refusal_s: float = REFUSAL_S
    requests: int = REQUESTS


def semaphore_s(provider: Provider, times: Times, slots: int = CALLERS, seed: int = 1) -> float:
    """When a plain client is done: it has a fixed number of slots, held while a call backs off.

    A refused call sleeps for its Retry-After, or else half a second, doubled each time, with up to
    half of it random.
    """
    stream = Stream(seed, "back-off")
    agenda: list[tuple[float, int, bool, int]] = []  # time, sequence, whether it answers, tries
    now, left, answered, sequence = 0.0, times.requests, 0, 0

    def send(tries: int) -> None:
        nonlocal sequence
        sequence += 1
        wait_s = provider.refuses(now)
        if wait_s is None:
            heappush(agenda, (now + times.service_s, sequence, True, 0))
        else:
            back_off_s = wait_s or 0.5 * 2.0**tries * stream.between(0.5, 1.0)
            heappush(agenda, (now + times.refusal_s + back_off_s, sequence, False, tries + 1))

    for _ in range(min(slots, left)):
        left -= 1
        send(0)
    while answered < times.requests:
        now, _, is_answer, tries = heappop(agenda)
        if not is_answer:
            send(tries)
            continue
        provider.finished()
        answered += 1
        if left:
            left -= 1
            send(0)
    return now


class Client:
    """Callers that make all requests through request admission, on their own clock."""

    def __init__(
        self,
        provider: Provider,
        cap: int = CALLERS,
        seed: int = 1,
        times: Times = Times(),  # noqa: B008 - a constant
        callers: int = CALLERS,
    ) -> None:
        self.provider = provider
        self.callers = callers
        self.times = times
        self.admission = RequestAdmission("quality", Streams(seed))
        self.admission.register("p", "m", "m", cap, 0.0)
        self.ask = RequestAsk("p", "m", Domain.CHAT)
        self.again = RequestAsk("p", "m", Domain.CHAT, is_again=True)
        self.events: list[tuple[float, int, RequestLease, Outcome, float]] = []
        self.sequence = self.answered = self.refused = self.started = 0
        self.waits: list[tuple[float, int, int]] = []
        """When refused calls are retried, and how often they were refused."""
        self.refusals: dict[str, int] = {}
        self.stream = Stream(seed, "retries")
        self.limits: list[int] = []
        self.answered_s: list[float] = []
        self.now = 0.0

    def run(self) -> "Client":
        for _ in range(min(self.callers, self.times.requests)):
            self.call()
        while self.answered < self.times.requests:
            wake_s = self.admission.next_wake_s()
            if self.waits and self.waits[0][0] <= min(wake_s, self.next_event_s()):
                self.now, _, refusals = heappop(self.waits)
                self.call(refusals)
            elif self.events and self.events[0][0] <= wake_s:
                self.now, _, lease, outcome, retry_after_s = heappop(self.events)
                self.end(lease, outcome, retry_after_s)
            else:
                assert wake_s < NEVER
                self.now = wake_s
                self.admission.advance(wake_s)
            self.send_resolved()
        return self

    def next_event_s(self) -> float:
        return self.events[0][0] if self.events else NEVER

    def call(self, refusals: int = 0) -> None:
        if refusals == 0:
            self.started += 1
        ask = self.ask if refusals == 0 else self.again
        got = self.admission.acquire(ask, self.now)
        if isinstance(got, RequestLease):
            self.refusals[got.work_id] = refusals
            self.send(got)
        else:
            assert isinstance(got, QueueTicket)
            self.refusals[got.id] = refusals

    def end(self, lease: RequestLease, outcome: Outcome, retry_after_s: float) -> None:
        refusals = self.refusals.pop(lease.work_id)
        self.admission.release(lease, outcome, self.now, retry_after_s=retry_after_s)
        limiter = lease.domain.limiter
        self.limits.append(limiter.limit)
        if outcome is Outcome.SUCCESS:
            self.answered += 1
            self.answered_s.append(self.now)
            self.provider.finished()
            if self.started < self.times.requests:
                self.call()
            return
        self.refused += 1
        own_s = refusal_delay_s(refusals + 1, limiter.pace.share, self.stream)
        self.sequence += 1
        heappush(self.waits, (self.now + max(retry_after_s, own_s), self.sequence, refusals + 1))

    def send_resolved(self) -> None:
        for ticket in self.admission.take_resolved():
            assert ticket.lease is not None
            self.send(ticket.lease)

    def send(self, lease: RequestLease) -> None:
        retry_after_s = self.provider.refuses(self.now)
        self.sequence += 1
        if retry_after_s is None:
            event = (self.now + self.times.service_s, self.sequence, lease, Outcome.SUCCESS, 0.0)
        else:
            ends_s = self.now + self.times.refusal_s
            event = (ends_s, self.sequence, lease, Outcome.RATE_LIMITED, retry_after_s)
        heappush(self.events, event)


def window_ideal_s() -> float:
    """The best time of 32 callers who know the window: full speed, then sleep to the minute."""
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


def refusals_most(name: str) -> float:
    """How many of 100 answers may be refusals."""
    return REFUSALS_AFTER_A_FALL_MOST if name.endswith("then 4") else REFUSALS_PER_100_MOST


CHANCE_LEAST = 0.90
"""Share of what a semaphore with back-off reaches if 3 % of calls are refused at random."""


def chance_cases() -> list[tuple[Times, float]]:
    """Answers in 20 ms, 100 ms and 1 s; without Retry-After, with 1 s and with 5 s."""
    every = [Times(s, 0.005, requests) for s, requests in ((0.02, 6000), (0.1, 3000), (1.0, 1500))]
    return [(times, wait_s) for times in every for wait_s in (0.0, 1.0, 5.0)]


def main() -> None:
    for times, wait_s in chance_cases():
        ours = Client(Chance(0.03, wait_s), times=times).run().now
        plain = semaphore_s(Chance(0.03, wait_s, seed=2), times)
        report(
            Claim(
                f"3 % refused by chance, answers in {times.service_s:g} s, "
                f"Retry-After {wait_s:g} s: time to finish",
                ours=ours,
                baseline=plain,
                most=1.0 / CHANCE_LEAST,
                unit="simulated s",
                against="a semaphore with back-off",
            )
        )
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
                baseline=refusals_most(name),
                most=1.0,
                unit="per 100 answers",
                against="the target",
            )
        )


if __name__ == "__main__":
    main()
