"""A storm of 429s: callers that retry every 50 ms, and callers that are notified.

Run it with `python examples/incidents/storm.py`. 256 callers share an endpoint that serves 8
calls at once, a second each, and refuses the rest with a 429; their limit of 64 was guessed. By
the old rule a caller that is refused, or finds the limit reached, looks again 50 ms later. Ours
hands a free slot to the next caller in the queue, learns from refusals that there are eight slots,
and wakes no caller for nothing. Both run on a simulated clock: nothing waits or is measured.
"""

from heapq import heappop, heappush

from windtunnel.admission.reasons import Domain, Outcome
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import RequestAsk, RequestLease
from windtunnel.core.random import Streams

CALLERS = 256
CALLS = 800
LIMIT = 64
SERVES = 8
SERVICE_S = 1.0
REFUSAL_S = 0.05
POLL_S = 0.05


class Endpoint:
    """Serves eight calls at once and refuses the rest; counts outcomes."""

    def __init__(self) -> None:
        self.serving = self.answered = self.refused = 0

    def call(self, now_s: float) -> tuple[float, Outcome]:
        """When the answer comes, and its outcome."""
        if self.serving == SERVES:
            return now_s + REFUSAL_S, Outcome.RATE_LIMITED
        self.serving += 1
        return now_s + SERVICE_S, Outcome.SUCCESS

    def hears(self, outcome: Outcome) -> None:
        if outcome is Outcome.SUCCESS:
            self.serving -= 1
            self.answered += 1
        else:
            self.refused += 1


class Polling:
    """The old rule: a free slot, or another look in 50 ms."""

    def __init__(self) -> None:
        self.endpoint, self.now_s = Endpoint(), 0.0
        self.looks = self.in_flight = 0

    def run(self) -> None:
        """Entries are a time, a caller, and its outcome; None when it only looks again."""
        agenda: list[tuple[float, int, Outcome | None]] = [
            (0.0, who, None) for who in range(CALLERS)
        ]
        while self.endpoint.answered < CALLS:
            self.now_s, who, outcome = heappop(agenda)
            if outcome is not None:
                self.endpoint.hears(outcome)
                self.in_flight -= 1
            if outcome is Outcome.RATE_LIMITED:
                heappush(agenda, (self.now_s + POLL_S, who, None))
                continue
            self.looks += 1
            if self.in_flight == LIMIT:
                heappush(agenda, (self.now_s + POLL_S, who, None))
                continue
            self.in_flight += 1
            at_s, outcome = self.endpoint.call(self.now_s)
            heappush(agenda, (at_s, who, outcome))


class Told:
    """Ours: request admission keeps a queue, learns the limit, and wakes each call once."""

    def __init__(self) -> None:
        self.endpoint, self.now_s = Endpoint(), 0.0
        self.looks = 0
        self._admission = RequestAdmission("storm", Streams(1))
        self._admission.register("provider", "model", "model", LIMIT, 0.0)
        self._ask = RequestAsk("provider", "model", Domain.CHAT)
        self._agenda: list[tuple[float, int, RequestLease, Outcome]] = []
        self._calls = 0

    def run(self) -> None:
        for _ in range(CALLERS):
            self._acquire()
        while self.endpoint.answered < CALLS:
            wake_s = self._admission.next_wake_s()
            if self._agenda and self._agenda[0][0] <= wake_s:
                self.now_s, _, lease, outcome = heappop(self._agenda)
                self.endpoint.hears(outcome)
                self._admission.release(lease, outcome, self.now_s)
                self._acquire()
            else:
                self.now_s = wake_s
                self.looks += 1
                self._admission.advance(wake_s)
            for ticket in self._admission.take_resolved():
                assert ticket.lease is not None
                self._call(ticket.lease)

    def _acquire(self) -> None:
        self.looks += 1
        got = self._admission.acquire(self._ask, self.now_s)
        if isinstance(got, RequestLease):
            self._call(got)

    def _call(self, lease: RequestLease) -> None:
        self._calls += 1
        at_s, outcome = self.endpoint.call(self.now_s)
        heappush(self._agenda, (at_s, self._calls, lease, outcome))


def outcome_of(world: Polling | Told) -> dict[str, float]:
    """Seconds until all calls were answered, refusals heard, and how many probes were sent."""
    return {
        "seconds": round(world.now_s, 1),
        "refusals": world.endpoint.refused,
        "polls": world.looks,
    }


NAMES = ("polls every 50 ms", "is notified")


def both() -> tuple[dict[str, float], dict[str, float]]:
    old, ours = Polling(), Told()
    old.run()
    ours.run()
    return outcome_of(old), outcome_of(ours)


if __name__ == "__main__":
    for name, figures in zip(NAMES, both(), strict=True):
        print(f"{name:18}", "  ".join(f"{key} {value:9,}" for key, value in figures.items()))
