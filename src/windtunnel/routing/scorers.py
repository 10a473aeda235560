"""What makes a server good for a request: opinions from 0 to 1 that the weighted router adds up.

Each scorer has one plain method, `scores`, that says what it thinks of every candidate. How often
an opinion can change decides how the router keeps it: some change only when servers are asked
again, some with every request that is sent or ends, some with the prompt.
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.signals import Signals
from windtunnel.workload.request import Request

POINTS: Final[i64] = 1 << 32
"""A score of 1 in whole numbers, in which sums are exact and equal is equal."""

LATENCY_SHARE: Final = 0.5  # of TTFT in least-latency; the rest is TPOT's
LOAD_AWARE_QUEUE: Final = 128
VLLM_DP_WAITING: Final[i64] = 4
UNSERVED: Final[i64] = 100  # how much worse a request that does not run is to least-request


class Scorer:
    """An opinion on servers, and its share of the whole."""

    def __init__(self, signals: Signals) -> None:
        self.signals: Final = signals
        self.share = 1.0
        self.candidates: list[int] = []

    def set_candidates(self, candidates: list[int]) -> None:
        self.candidates = candidates

    def reads_signals(self) -> bool:
        """Whether servers must be asked for it."""
        return True

    def scores(self, request: Request) -> list[float]:
        """What it thinks of each candidate, in their order."""
        raise NotImplementedError

    def points(self, score: float) -> i64:
        """A score times its share, in points."""
        return i64(self.share * min(max(score, 0.0), 1.0) * float(POINTS) + 0.5)


def best_lowest(value: float, low: float, high: float) -> float:
    """1 for the lowest, 0 for the highest, a straight line between; 1 where all are equal."""
    return (high - value) / (high - low) if high > low else 1.0


class SignalScorer(Scorer):
    """Looks at what servers say when they are asked; nothing else changes its opinion."""


class KvUtilization(SignalScorer):
    """The share of KV blocks that is free."""

    def scores(self, request: Request) -> list[float]:  # noqa: ARG002
        return [1.0 - self.signals.kv_used[server] for server in self.candidates]


class RunningRequests(SignalScorer):
    """The smallest batch is best."""

    def scores(self, request: Request) -> list[float]:  # noqa: ARG002
        running = [self.signals.running[server] for server in self.candidates]
        low, high = min(running), max(running)
        return [best_lowest(count, low, high) for count in running]


class LeastLatency(SignalScorer):
    """The shortest mean times to first and per token; who has reported none is in the middle."""

    def scores(self, request: Request) -> list[float]:  # noqa: ARG002
        ttft = self._one(self.signals.ttft_s)
        tpot = self._one(self.signals.tpot_s)
        rest = 1.0 - LATENCY_SHARE
        return [LATENCY_SHARE * ttft[n] + rest * tpot[n] for n in range(len(ttft))]

    def _one(self, by_server: list[float]) -> list[float]:
        times = [by_server[server] for server in self.candidates]
        known = [time for time in times if time > 0.0]
        if not known:
            return [0.5] * len(times)
        low, high = min(known), max(known)
        return [best_lowest(time, low, high) if time > 0.0 else 0.5 for time in times]


class LiveScorer(Scorer):
    """Looks at a count that changes with every request that is sent or ends."""

    def measure(self, server: i64) -> i64:
        raise NotImplementedError

    def score(self, count: i64, low: i64, high: i64) -> float:
        """What it thinks of this count; `low` and `high` are the extremes of all candidates."""
        raise NotImplementedError

    def scores(self, request: Request) -> list[float]:  # noqa: ARG002
        counts = [int(self.measure(server)) for server in self.candidates]
        low, high = min(counts), max(counts)
        return [self.score(count, low, high) for count in counts]

    def queue(self, server: i64) -> i64:
        """Requests in flight there that were not seen running: the queue, as far as one can know.

        What was sent since the last look counts at once, or every request until the next look
        would go where the queue was shortest.
        """
        waiting: i64 = self.signals.in_flight[server] - self.signals.running[server]
        return max(waiting, 0)


class QueueDepth(LiveScorer):
    """The shortest queue is best."""

    def measure(self, server: i64) -> i64:
        return self.queue(server)

    def score(self, count: i64, low: i64, high: i64) -> float:
        return best_lowest(float(count), float(low), float(high))


class LoadAware(LiveScorer):
    """A half for an empty queue, less with every request in it, nothing from 128 on."""

    def measure(self, server: i64) -> i64:
        return min(self.queue(server), LOAD_AWARE_QUEUE)

    def score(self, count: i64, low: i64, high: i64) -> float:  # noqa: ARG002
        return 0.5 * (1.0 - float(count) / float(LOAD_AWARE_QUEUE))


class VllmDp(LiveScorer):
    """vLLM's own measure between its data-parallel engines: who waits counts four times."""

    def measure(self, server: i64) -> i64:
        running: i64 = self.signals.running[server]
        return VLLM_DP_WAITING * self.queue(server) + running

    def score(self, count: i64, low: i64, high: i64) -> float:
        return best_lowest(float(count), float(low), float(high))


class LoadBalance(LiveScorer):
    """One over one more than the requests in flight."""

    def reads_signals(self) -> bool:
        return False

    def measure(self, server: i64) -> i64:
        return self.signals.in_flight[server]

    def score(self, count: i64, low: i64, high: i64) -> float:  # noqa: ARG002
        return 1.0 / (1.0 + float(count))


class ActiveRequests(LiveScorer):
    """How far the requests in flight are below those of the busiest server."""

    def reads_signals(self) -> bool:
        return False

    def measure(self, server: i64) -> i64:
        return self.signals.in_flight[server]

    def score(self, count: i64, low: i64, high: i64) -> float:  # noqa: ARG002
        return float(high - count) / float(high) if high > 0 else 1.0


class LeastRequest(LiveScorer):
    """The same, where a request that does not run yet weighs a hundred more."""

    def measure(self, server: i64) -> i64:
        in_flight: i64 = self.signals.in_flight[server]
        return in_flight + UNSERVED * self.queue(server)

    def score(self, count: i64, low: i64, high: i64) -> float:  # noqa: ARG002
        return float(high - count) / float(high) if high > 0 else 1.0
