"""How well limits are found on a wide random grid of providers, in simulated time.

Each case is drawn from its seed: a token bucket or a window of a second or a minute, fixed or
sliding; 1 to 500 requests a second, bursts from 1 to a second's worth; answers in 0.05 to 5 s,
constant or scattered; in every third case up to 15 % of calls also refused at random; a Retry-After
that is absent, true, a tenth, three times as long or a date of whole seconds; and in some cases a
limit that changes half-way. There is always another call to make, and the cap is 1.5 times what the
limit needs. The learning time is not counted: three windows, 300 requests at the limit, 20 answers
and 20 s, at the start and after a change.
"""

import math
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from windtunnel.admission.reasons import Outcome
from windtunnel.admission.requests.limiter import (
    Admission,
    AimdLimiter,
    AimdSettings,
    RequestLimiter,
)
from windtunnel.core.random import Stream

REFUSAL_S: Final = 0.05
RETRY_AFTER: Final = ("absent", "true", "short", "long", "date")
KINDS: Final = ("bucket", "spacing", "fixed 1 s", "fixed 60 s", "sliding 1 s", "sliding 60 s")
MEASURED_REQUESTS: Final = 1500
MEASURED_S: Final = 120.0
PART_LEAST: Final = 0.95
REFUSALS_MOST: Final = 5.0


class Case(NamedTuple):
    """One provider of the grid, and how it is called."""

    kind: str
    per_s: float
    burst: float
    chance: float
    service_s: float
    scatter: float
    retry_after: str
    then: float
    """Factor on the limit in the second half."""
    cap: int
    seed: int

    @property
    def window_s(self) -> float:
        return 60.0 if self.kind.endswith("60 s") else 1.0

    @property
    def learning_s(self) -> float:
        slowest = self.per_s * min(1.0, self.then)
        return 3.0 * self.window_s + 300.0 / slowest + 20.0 * self.service_s + 20.0

    @property
    def measured_s(self) -> float:
        """Measured time, in whole windows."""
        least_s = max(MEASURED_S, min(MEASURED_REQUESTS / self.per_s, 600.0))
        return math.ceil(least_s / self.window_s) * self.window_s


def draw(seed: int) -> Case:
    """Draws a case from its seed."""
    stream = Stream(seed, "admission grid")
    kind = KINDS[int(stream.uniform() * len(KINDS))]
    per_s = math.exp(stream.between(0.0, math.log(500.0)))
    if kind.startswith(("fixed", "sliding")):
        per_s = float(max(1, round(per_s)))
    burst = 1.0 if kind == "spacing" else max(1.0, per_s ** stream.uniform())
    chance = 0.0 if seed % 3 else 0.15 * stream.uniform()
    service_s = math.exp(stream.between(math.log(0.05), math.log(5.0)))
    scatter = 0.0 if stream.uniform() < 0.5 else 0.5
    retry_after = RETRY_AFTER[int(stream.uniform() * len(RETRY_AFTER))]
    then = 1.0
    if stream.uniform() < 0.3:
        then = math.exp(stream.between(math.log(0.3), math.log(3.0)))
    cap = max(4, math.ceil(1.5 * per_s * max(1.0, then) * service_s))
    return Case(kind, per_s, burst, chance, service_s, scatter, retry_after, then, cap, seed)


class Limited:
    """A provider with a hard rate limit, and random refusals besides."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.per_s = case.per_s
        self.stream = Stream(case.seed, "provider")
        self.left, self.at_s = case.burst, 0.0
        self.used: deque[float] = deque()
        self.window = -1
        self.asked = self.by_chance = 0

    def refuses(self, now: float) -> float | None:
        self.asked += 1
        if self.stream.uniform() < self.case.chance:
            self.by_chance += 1
            return self._said(self.stream.between(0.0, 2.0), now)
        wait_s = self._limited(now)
        return None if wait_s <= 0.0 else self._said(wait_s, now)

    def _said(self, wait_s: float, now: float) -> float:
        how = self.case.retry_after
        if how == "absent":
            return 0.0
        if how == "date":
            return max(1e-3, math.ceil(now + wait_s) - now - REFUSAL_S)
        return max(1e-3, wait_s * {"true": 1.0, "short": 0.1, "long": 3.0}[how] - REFUSAL_S)

    def _limited(self, now: float) -> float:
        """Seconds until a call may start; 0 if it starts now."""
        case = self.case
        if case.kind in ("bucket", "spacing"):
            self.left = min(case.burst, self.left + (now - self.at_s) * self.per_s)
            self.at_s = now
            if self.left < 1.0 - 1e-9:
                return (1.0 - self.left) / self.per_s
            self.left -= 1.0
            return 0.0
        most = max(1, round(self.per_s * case.window_s))
        if case.kind.startswith("fixed"):
            window = int(now // case.window_s)
            if window != self.window:
                self.window = window
                self.used.clear()
            if len(self.used) >= most:
                return (window + 1) * case.window_s - now
        else:
            while self.used and self.used[0] <= now - case.window_s:
                self.used.popleft()
            if len(self.used) >= most:
                return self.used[len(self.used) - most] + case.window_s - now
        self.used.append(now)
        return 0.0


class Client:
    """Makes calls for as long as a limiter lets it, on its own clock."""

    def __init__(self, case: Case, provider: Limited, limiter: RequestLimiter) -> None:
        self.case, self.provider, self.limiter = case, provider, limiter
        self.stream = Stream(case.seed, "answers")
        self.refusal_s = min(REFUSAL_S, case.service_s / 2.0)
        self.ends: list[tuple[float, int, Admission, Outcome, float]] = []
        self.now = 0.0
        self.sequence = self.in_flight = self.accepted = self.refused = 0

    def run(self, until_s: float) -> None:
        limiter = self.limiter
        while True:
            while limiter.room(self.in_flight, self.now) > 0:
                self._start()
            next_s = max(self.now, limiter.next_change_s(self.in_flight, self.now))
            if self.ends and self.ends[0][0] <= next_s:
                next_s = self.ends[0][0]
            if next_s >= until_s:
                self.now = until_s
                return
            self.now = next_s
            while self.ends and self.ends[0][0] <= self.now:
                _, _, admission, outcome, retry_after_s = heappop(self.ends)
                self.in_flight -= 1
                limiter.end(admission, outcome, -1, retry_after_s, self.now)

    def _start(self) -> None:
        self.in_flight += 1
        self.sequence += 1
        admission = self.limiter.admit(self.in_flight, self.now)
        wait_s = self.provider.refuses(self.now)
        if wait_s is None:
            self.accepted += 1
            took_s, outcome = self.case.service_s, Outcome.SUCCESS
            if self.case.scatter > 0.0:
                took_s = self.stream.lognormal(took_s, self.case.scatter)
        else:
            self.refused += 1
            took_s, outcome = self.refusal_s, Outcome.RATE_LIMITED
        end = (self.now + took_s, self.sequence, admission, outcome, wait_s or 0.0)
        heappush(self.ends, end)


class Found(NamedTuple):
    """The result of a case, without the learning times."""

    case: Case
    part: float
    """Share of the rate that the limit allows."""
    refused: float
    """Calls per 100 answers that the limit refused, without random refusals."""


def run(case: Case) -> Found:
    """Runs a case to its end."""
    provider = Limited(case)
    limiter = AimdLimiter(case.cap, AimdSettings(), Stream(case.seed, "limiter"), 0.0)
    client = Client(case, provider, limiter)
    answered = refused = by_chance = 0
    allowed = 0.0
    for factor in (1.0,) if case.then == 1.0 else (1.0, case.then):
        provider.per_s = case.per_s * factor
        client.run(math.ceil((client.now + case.learning_s) / case.window_s) * case.window_s)
        before = client.accepted, client.refused, provider.by_chance
        client.run(client.now + case.measured_s)
        answered += client.accepted - before[0]
        refused += client.refused - before[1]
        by_chance += provider.by_chance - before[2]
        allowed += provider.per_s * case.measured_s
    excess = max(0, refused - by_chance)
    return Found(case, answered / allowed, 100.0 * excess / max(1, answered))


SEEDS: Final = range(90_000, 90_120)
"""Seeds that were not used while the limiter was built."""


def alone(found: Found) -> bool:
    return found.case.chance == 0.0


ROWS: Final[tuple[tuple[str, Callable[[Found], bool]], ...]] = (
    ("a limit alone", alone),
    ("of these, a token bucket", lambda one: alone(one) and one.case.kind == "bucket"),
    ("strict spacing (no burst)", lambda one: alone(one) and one.case.kind == "spacing"),
    ("windows of a second", lambda one: alone(one) and one.case.kind.endswith(" 1 s")),
    ("windows of a minute", lambda one: alone(one) and one.case.kind.endswith("60 s")),
    ("a limit that changes half-way", lambda one: alone(one) and one.case.then != 1.0),
    (
        "without a Retry-After that is three times too long",
        lambda one: alone(one) and one.case.retry_after != "long",
    ),
    ("a limit, and up to 15 % refused by chance", lambda one: not alone(one)),
)


def main() -> None:
    """Prints the table of docs/benchmarks.md."""
    found = [run(draw(seed)) for seed in SEEDS]
    print("providers | cases | part: p10, p50 | at least 0.95 | refusals: p50, p90 | at most 5")
    for name, belongs in ROWS:
        cases = [one for one in found if belongs(one)]
        parts = sorted(one.part for one in cases)
        refused = sorted(one.refused for one in cases)
        few = sum(one.refused <= REFUSALS_MOST for one in cases)
        close = sum(one.part >= PART_LEAST for one in cases)
        tenth, half = len(cases) // 10, len(cases) // 2
        print(
            f"| {name} | {len(cases)} | {parts[tenth]:.2f}, {parts[half]:.2f} | {close} | "
            f"{refused[half]:.1f}, {refused[-tenth - 1]:.1f} | {few} |"
        )


if __name__ == "__main__":
    main()
