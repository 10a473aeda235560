"""Request admission, compiled: a call that need not wait, and a hand-over among many waiters.

The target for a call through asyncio is 8 us; the controller may take half of it. A release that
serves a waiter must cost the same however many wait.
"""

from benchmarks.claim import Claim, insist_on_compiled, least_cpu_s, report
from windtunnel.admission.reasons import Domain, Outcome
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import QueueTicket, RequestAsk, RequestLease
from windtunnel.admission.requests.limiter import AimdSettings
from windtunnel.core.random import Streams

CALLS = 50_000
CAP = 32


def admission() -> RequestAdmission:
    made = RequestAdmission("bench", Streams(1), AimdSettings(startup_ramp_s=0.0))
    made.register("p", "m", "alias", CAP, 0.0)
    return made


def uncontended() -> None:
    """One caller, one call after another."""
    requests, ask = admission(), RequestAsk("p", "m", Domain.CHAT)
    for number in range(CALLS):
        lease = requests.acquire(ask, float(number))
        assert isinstance(lease, RequestLease)
        requests.release(lease, Outcome.SUCCESS, number + 0.5)


class Crowd:
    """A full endpoint with a number of waiters; a call that was served queues again."""

    def __init__(self, waiters: int) -> None:
        self.requests, self.now = admission(), 0.0
        self.asks = [RequestAsk("p", "m", Domain.CHAT, group=f"g{group}") for group in range(8)]
        self.running: list[RequestLease] = []
        for number in range(CAP + waiters):
            lease = self.requests.acquire(self.asks[number % 8], 0.0)
            if isinstance(lease, RequestLease):
                self.running.append(lease)

    def hand_over(self) -> None:
        for number in range(CALLS):
            self.now += 0.001
            self.requests.release(self.running[number % CAP], Outcome.SUCCESS, self.now)
            (ticket,) = self.requests.take_resolved()
            assert ticket.lease is not None
            self.running[number % CAP] = ticket.lease
            assert isinstance(self.requests.acquire(self.asks[number % 8], self.now), QueueTicket)


def main() -> None:
    insist_on_compiled()
    report(
        Claim(
            "request acquire and release, nothing queued",
            ours=least_cpu_s(uncontended) / CALLS * 1e6,
            baseline=4.0,
            most=1.0,
            unit="CPU us",
            against="half of the target through asyncio",
        )
    )
    few, many = Crowd(10), Crowd(10_000)
    report(
        Claim(
            "request hand-over, 10,000 wait",
            ours=least_cpu_s(many.hand_over) / CALLS * 1e6,
            baseline=least_cpu_s(few.hand_over) / CALLS * 1e6,
            most=1.5,
            unit="CPU us",
            against="10 wait",
        )
    )


if __name__ == "__main__":
    main()
