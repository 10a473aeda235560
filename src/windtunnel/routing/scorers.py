"""Scorers: rate servers from 0 to 1 by their load; the weighted router adds the scores up.

Each scorer has one plain method, `scores`, with the score of every candidate. How often a score can
change decides how the router keeps it: some change only when servers are probed, some with every
request that is sent or ends, some with the prompt.
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.signals import Signals
from windtunnel.workload.request import Request

POINTS: Final[i64] = 1 << 32
"""A score of 1 as a whole number: sums of whole numbers are exact, so that equal is equal."""

LATENCY_SHARE: Final = 0.5  # of TTFT in least-latency; the rest is TPOT's
LOAD_AWARE_QUEUE: Final = 128
VLLM_DP_WAITING: Final[i64] = 4
UNSERVED: Final[i64] = 100  # how much worse a request that does not run is to least-request


class Scorer:
    """Scores servers; `share` is its weight over the sum of all weights."""

    def __init__(self, signals: Signals) -> None:
        self.signals: Final = signals
        self.share = 1.0
        self.candidates: list[int] = []

    def set_candidates(self, candidates: list[int]) -> None:
        self.candidates = candidates

    def reads_signals(self) -> bool:
        """Whether it reads the load that servers report when they are probed."""
        return True

    def scores(self, request: Request) -> list[float]:
        """The score of each candidate, in their order."""
        raise NotImplementedError

    def points(self, score: float) -> i64:
        """A score times its share, in points."""
        return i64(self.share * min(max(score, 0.0), 1.0) * float(POINTS) + 0.5)


def best_lowest(value: float, low: float, high: float) -> float:
    """1 for the lowest, 0 for the highest, a straight line between; 1 where all are equal."""
    return (high - value) / (high - low) if high > low else 1.0


class SignalScorer(Scorer):
    """Scores that change only when servers are probed."""


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
    """The shortest mean TTFT and TPOT; a server that has reported none is in the middle."""

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
    """Scores a count that changes with every request that is sent or ends."""

    def measure(self, server: i64) -> i64:
        raise NotImplementedError

    def score(self, count: i64, low: i64, high: i64) -> float:
        """The score of a count; `low` and `high` are the extremes of all candidates."""
        raise NotImplementedError

    def scores(self, request: Request) -> list[float]:  # noqa: ARG002
        counts = [int(self.measure(server)) for server in self.candidates]
        low, high = min(counts), max(counts)
        return [self.score(count, low, high) for count in counts]

    def queue(self, server: i64) -> i64:
        """Requests in flight there that were not observed running: an estimate of its queue.

        What was sent since the last probe counts at once; otherwise every request until the next
        probe would go to the server with the shortest queue.
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
    """0.5 for an empty queue, less with every queued request, 0 from 128 on."""

    def measure(self, server: i64) -> i64:
        return min(self.queue(server), LOAD_AWARE_QUEUE)

    def score(self, count: i64, low: i64, high: i64) -> float:  # noqa: ARG002
        return 0.5 * (1.0 - float(count) / float(LOAD_AWARE_QUEUE))


class VllmDp(LiveScorer):
    """vLLM's measure between its data-parallel engines: a queued request counts four times."""

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
    """The same, where a request that does not run yet counts a hundred more."""

    def measure(self, server: i64) -> i64:
        in_flight: i64 = self.signals.in_flight[server]
        return in_flight + UNSERVED * self.queue(server)

    def score(self, count: i64, low: i64, high: i64) -> float:  # noqa: ARG002
        return float(high - count) / float(high) if high > 0 else 1.0
