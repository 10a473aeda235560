"""The traffic of a run: every source draws from its own streams, and all are merged by arrival.

Requests are made when they are taken, so ten million of them never sit in memory.
"""

import math
from heapq import heapify, heapreplace
from typing import Final

from windtunnel.core.random import Stream, Streams
from windtunnel.workload.plan import Arrivals, Lengths, Source
from windtunnel.workload.request import PrefixChain, Request


class LengthDraw:
    """Draws token counts from one distribution."""

    def __init__(self, plan: Lengths, stream: Stream) -> None:
        self._kind: Final[str] = plan.distribution
        self._low: Final[int] = plan.low
        self._high: Final[int] = plan.high
        self._mean: Final[float] = plan.mean
        self._spread: Final[float] = plan.mean * plan.cv
        variance = math.log1p(plan.cv * plan.cv)
        self._log_mean: Final = math.log(plan.mean) - variance / 2 if plan.mean > 0 else 0.0
        self._log_spread: Final = math.sqrt(variance)
        self._stream: Final = stream

    def next(self) -> int:
        kind = self._kind
        if kind == "constant":
            return self._low
        if kind == "uniform":
            return self._stream.integer(self._low, self._high)
        if kind == "lognormal":
            drawn = math.exp(self._stream.normal(self._log_mean, self._log_spread))
        elif kind == "normal":
            drawn = self._stream.normal(self._mean, self._spread)
        else:
            assert kind == "exponential"
            drawn = self._stream.exponential(self._mean)
        return min(max(math.floor(drawn + 0.5), self._low), self._high)


class GapDraw:
    """Draws the times between arrivals of one process."""

    def __init__(self, plan: Arrivals, stream: Stream) -> None:
        self._kind: Final[str] = plan.process
        self._mean: Final[float] = 1.0 / plan.rate_per_s
        self._cv: Final[float] = plan.cv
        self._stream: Final = stream
        shape = weibull_shape(plan.cv) if plan.process == "weibull" else 1.0
        self._shape: Final = shape
        self._scale: Final = self._mean / math.gamma(1.0 + 1.0 / shape)

    def next(self) -> float:
        kind = self._kind
        if kind == "poisson":
            return self._stream.exponential(self._mean)
        if kind == "constant" or self._cv == 0.0:
            return self._mean
        if kind == "weibull":
            return self._stream.weibull(self._shape, self._scale)
        assert kind == "gamma"
        shape = 1.0 / (self._cv * self._cv)
        return self._stream.gamma(shape, self._mean / shape)


def weibull_shape(cv: float) -> float:
    """The shape whose coefficient of variation is `cv`, by bisection."""
    if cv <= 0.0:
        return 1.0
    low, high = 0.05, 1000.0
    for _ in range(200):
        middle = math.sqrt(low * high)
        log_ratio = math.lgamma(1.0 + 2.0 / middle) - 2.0 * math.lgamma(1.0 + 1.0 / middle)
        if math.expm1(log_ratio) > cv * cv:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


class SourceDraw:
    """Makes the requests of one source, one after the other."""

    def __init__(self, index: int, plan: Source, streams: Streams, first_prefix: int) -> None:
        name: str = plan.name
        self.index: Final = index
        self._priority: Final[int] = plan.priority
        self._left: int = plan.count if plan.count is not None else -1
        self._gaps: Final = GapDraw(plan.arrivals, streams[f"workload.{name}.arrivals"])
        self._prompts: Final = LengthDraw(plan.prompt, streams[f"workload.{name}.prompt"])
        self._outputs: Final = LengthDraw(plan.output, streams[f"workload.{name}.output"])
        self._groups: Final = streams[f"workload.{name}.prefix"]
        prefix = plan.prefix
        tokens: int = prefix.tokens if prefix is not None else 0
        groups: int = prefix.groups if prefix is not None else 0
        self._prefix_tokens: Final = tokens
        self._prefixes: Final = [
            PrefixChain([first_prefix + group], [tokens]) for group in range(groups)
        ]
        self.next_s = 0.0
        self._step()

    def _step(self) -> None:
        if self._left == 0:
            self.next_s = math.inf
            return
        self._left -= 1
        self.next_s += self._gaps.next()

    def take(self, number: int) -> Request:
        """The request that arrives at `next_s`."""
        prefix: PrefixChain | None = None
        prompt = self._prompts.next() + self._prefix_tokens
        if self._prefixes:
            prefix = self._prefixes[self._groups.integer(0, len(self._prefixes) - 1)]
        arrived_s = self.next_s
        output = self._outputs.next()
        self._step()
        return Request(number, arrived_s, prompt, output, self._priority, self.index, prefix)


class Traffic:
    """All sources of a run as one sequence of requests in order of arrival."""

    def __init__(self, sources: tuple[Source, ...], streams: Streams, end_s: float) -> None:
        self._end_s: Final = end_s
        self._heap: list[tuple[float, int]] = []
        self._sources: Final[list[SourceDraw]] = []
        prefixes = 0
        for index, plan in enumerate(sources):
            draw = SourceDraw(index, plan, streams, prefixes)
            prefixes += plan.prefix.groups if plan.prefix is not None else 0
            self._sources.append(draw)
            self._heap.append((draw.next_s, index))
        heapify(self._heap)
        self.taken = 0
        self.next_s = self._next()

    def _next(self) -> float:
        """When the next request arrives; infinity when no more will."""
        next_s = self._heap[0][0]
        return next_s if next_s < self._end_s else math.inf

    def take(self) -> Request:
        """The request that arrives at `next_s`."""
        source = self._sources[self._heap[0][1]]
        request = source.take(self.taken)
        self.taken += 1
        heapreplace(self._heap, (source.next_s, source.index))
        self.next_s = self._next()
        return request
