"""Scorers: rate servers from 0 to 1 by load; the weighted router adds up the scores.

Each scorer has one plain method, `scores`, which gives the score of every candidate. The router
maintains a score according to how often it can change: only when servers are probed, with every
request that is sent or ends, or with every prompt.
"""

import math
from typing import Final

from mypy_extensions import i64

from windtunnel.core.signals import Signals
from windtunnel.workload.request import Request

POINTS: Final[i64] = 1 << 32
"""A score of 1 as a whole number: sums of integers are exact, so that ties are real ties."""

LATENCY_SHARE: Final = 0.5  # of TTFT in least-latency; the rest is TPOT's
LATENCY_MEMORY_S: Final = 10.0  # older means are ignored
LATENCY_NEWS: Final = 0.3  # weight of a new mean in the average of predicted-latency
LOAD_AWARE_QUEUE: Final = 128
TOKEN_LOAD: Final = 4_194_304  # 128 requests of 32 Ki tokens, as in llm-d
VLLM_DP_WAITING: Final[i64] = 4
UNSERVED: Final[i64] = 100  # extra weight of a queued request in least-request


class Scorer:
    """Scores servers; `share` is its weight over the sum of all weights."""

    def __init__(self, signals: Signals) -> None:
        self.signals: Final = signals
        self.share = 1.0
        self.candidates: list[int] = []

    def set_candidates(self, candidates: list[int]) -> None:
        self.candidates = candidates

    def reads_signals(self) -> bool:
        """Whether it reads the load that servers report when probed."""
        return True

    def scores(self, request: Request) -> list[float]:
        """The score of each candidate, in the order of `candidates`."""
        raise NotImplementedError

    def points(self, score: float) -> i64:
        """A score times the scorer's share, in points."""
        return i64(self.share * min(max(score, 0.0), 1.0) * float(POINTS) + 0.5)


def best_lowest(value: float, low: float, high: float) -> float:
    """1 for the lowest, 0 for the highest, linear in between; 1 if all are equal."""
    return (high - value) / (high - low) if high > low else 1.0


class SignalScorer(Scorer):
    """Scores that change only when servers are probed."""

    def observed_load(self, server: int) -> float:
        """Requests that a server had when it was last probed, queued plus running."""
        return float(self.signals.waiting[server] + self.signals.running[server])


class KvUtilization(SignalScorer):
    """The share of KV blocks that are free."""

    def scores(self, request: Request) -> list[float]:  # noqa: ARG002
        return [1.0 - self.signals.kv_used[server] for server in self.candidates]


class RunningRequests(SignalScorer):
    """The smallest running batch scores best."""

    def scores(self, request: Request) -> list[float]:  # noqa: ARG002
        running = [self.signals.running[server] for server in self.candidates]
        low, high = min(running), max(running)
        return [best_lowest(count, low, high) for count in running]


class LeastLatency(SignalScorer):
    """The shortest mean TTFT and TPOT, of requests that ended in the last ten seconds.

    A server without any scores best while it has no requests, so that it gets one and reports
    again, and worst while it has some.
    """

    def scores(self, request: Request) -> list[float]:  # noqa: ARG002
        ttft = self._one(self.signals.ttft_s)
        tpot = self._one(self.signals.tpot_s)
        rest = 1.0 - LATENCY_SHARE
        return [LATENCY_SHARE * ttft[n] + rest * tpot[n] for n in range(len(ttft))]

    def _one(self, by_server: list[float]) -> list[float]:
        signals = self.signals
        oldest_s = signals.taken_s - LATENCY_MEMORY_S
        times = [
            by_server[server] if signals.latency_seen_s[server] >= oldest_s else 0.0
            for server in self.candidates
        ]
        known = [time for time in times if time > 0.0]
        low, high = (min(known), max(known)) if known else (0.0, 0.0)
        return [
            best_lowest(time, low, high)
            if time > 0.0
            else (0.0 if self.observed_load(self.candidates[n]) else 1.0)
            for n, time in enumerate(times)
        ]


class LatencyCurve:
    """How the TTFT of one server grows with its load, as far as observed."""

    def __init__(self) -> None:
        self.seen_s = -math.inf  # of the latest mean that it has
        self.floor_s = 0.0  # the shortest of the means
        self.typical_s = 0.0
        self.load = 0.0  # requests that it has when its TTFT is typical

    def observe(self, ttft_s: float, load: float, now_s: float) -> None:
        fresh = self.seen_s == -math.inf or now_s - self.seen_s > LATENCY_MEMORY_S
        news = 1.0 if fresh else LATENCY_NEWS
        self.floor_s = ttft_s if fresh else min(self.floor_s, ttft_s)
        self.typical_s += news * (ttft_s - self.typical_s)
        self.load += news * (load - self.load)
        self.seen_s = now_s

    def ttft_s(self, load: float) -> float:
        """Interpolates between the lowest TTFT at no load and the typical TTFT at typical load."""
        if self.load <= 0.0:
            return self.typical_s
        return self.floor_s + load * (self.typical_s - self.floor_s) / self.load


class PredictedLatency(SignalScorer):
    """The shortest TTFT at the current load, as predicted from a server's own history.

    As in llm-d, it is predicted from observations at other loads. A server without recent
    observations scores best while it has no requests, and worst while it has some.
    """

    def __init__(self, signals: Signals) -> None:
        super().__init__(signals)
        self._curves: Final[dict[int, LatencyCurve]] = {}

    def scores(self, request: Request) -> list[float]:  # noqa: ARG002
        times = [self._predicted_s(server) for server in self.candidates]
        known = [time for time in times if time >= 0.0]
        low, high = (min(known), max(known)) if known else (0.0, 0.0)
        return [
            best_lowest(time, low, high)
            if time >= 0.0
            else (0.0 if self.observed_load(self.candidates[n]) else 1.0)
            for n, time in enumerate(times)
        ]

    def _predicted_s(self, server: int) -> float:
        """The predicted TTFT; -1 without recent observations."""
        signals = self.signals
        curve = self._curves.get(server)
        if curve is None:
            curve = self._curves[server] = LatencyCurve()
        load = self.observed_load(server)
        seen_s = signals.latency_seen_s[server]
        if seen_s > curve.seen_s:
            curve.observe(signals.ttft_s[server], load, seen_s)
        if signals.taken_s - curve.seen_s > LATENCY_MEMORY_S:
            return -1.0
        return curve.ttft_s(load)


class LiveScorer(Scorer):
    """Scores a count that changes with every request that is sent or ends."""

    def measure(self, server: i64) -> i64:
        raise NotImplementedError

    def score(self, count: i64, low: i64, high: i64) -> float:
        """The score of a count; `low` and `high` are the extremes over all candidates."""
        raise NotImplementedError

    def scores(self, request: Request) -> list[float]:  # noqa: ARG002
        counts = [int(self.measure(server)) for server in self.candidates]
        low, high = min(counts), max(counts)
        return [self.score(count, low, high) for count in counts]

    def queue(self, server: i64) -> i64:
        """Requests in flight that were not observed running: an estimate of a server's queue.

        Requests sent since the last probe count at once; otherwise every request until the next
        probe would go to the server with the shortest queue.
        """
        waiting: i64 = self.signals.in_flight[server] - self.signals.running[server]
        return max(waiting, 0)


class QueueDepth(LiveScorer):
    """The shortest queue scores best."""

    def measure(self, server: i64) -> i64:
        return self.queue(server)

    def score(self, count: i64, low: i64, high: i64) -> float:
        return best_lowest(float(count), float(low), float(high))


class LoadAware(LiveScorer):
    """0.5 for an empty queue, falling with every queued request to 0 at 128."""

    def measure(self, server: i64) -> i64:
        return min(self.queue(server), LOAD_AWARE_QUEUE)

    def score(self, count: i64, low: i64, high: i64) -> float:  # noqa: ARG002
        return 0.5 * (1.0 - float(count) / float(LOAD_AWARE_QUEUE))


class VllmDp(LiveScorer):
    """vLLM's load measure between data-parallel engines: a queued request counts four times."""

    def measure(self, server: i64) -> i64:
        running: i64 = self.signals.running[server]
        return VLLM_DP_WAITING * self.queue(server) + running

    def score(self, count: i64, low: i64, high: i64) -> float:
        return best_lowest(float(count), float(low), float(high))


class LoadBalance(LiveScorer):
    """1 / (1 + requests in flight)."""

    def reads_signals(self) -> bool:
        return False

    def measure(self, server: i64) -> i64:
        return self.signals.in_flight[server]

    def score(self, count: i64, low: i64, high: i64) -> float:  # noqa: ARG002
        return 1.0 / (1.0 + float(count))


class ActiveRequests(LiveScorer):
    """How far the requests in flight are below the busiest server's, as a share of the latter."""

    def reads_signals(self) -> bool:
        return False

    def measure(self, server: i64) -> i64:
        return self.signals.in_flight[server]

    def score(self, count: i64, low: i64, high: i64) -> float:  # noqa: ARG002
        return float(high - count) / float(high) if high > 0 else 1.0


class TokenLoad(LiveScorer):
    """Prompt tokens of the requests in flight: 1 for none, 0 from 4 Mi tokens on."""

    def reads_signals(self) -> bool:
        return False

    def measure(self, server: i64) -> i64:
        return min(self.signals.tokens_in_flight[server], TOKEN_LOAD)

    def score(self, count: i64, low: i64, high: i64) -> float:  # noqa: ARG002
        return 1.0 - float(count) / float(TOKEN_LOAD)


class LeastRequest(LiveScorer):
    """Like ActiveRequests, but a request that is not running yet counts a hundred more."""

    def measure(self, server: i64) -> i64:
        in_flight: i64 = self.signals.in_flight[server]
        return in_flight + UNSERVED * self.queue(server)

    def score(self, count: i64, low: i64, high: i64) -> float:  # noqa: ARG002
        return float(high - count) / float(high) if high > 0 else 1.0
