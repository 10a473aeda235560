"""The traffic of a run: every source draws from its own streams, and all are merged by arrival.

Requests are made when they are taken, so ten million of them never sit in memory.
"""

import math
from typing import Final

from windtunnel.core.agenda import Actor, Agenda
from windtunnel.core.random import Stream, Streams
from windtunnel.workload.plan import Arrivals, Lengths, Source
from windtunnel.workload.request import PrefixChain, Request

CONSTANT: Final = 0
UNIFORM: Final = 1
NORMAL: Final = 2
LOGNORMAL: Final = 3
EXPONENTIAL: Final = 4
LENGTHS: Final = {
    "constant": CONSTANT,
    "uniform": UNIFORM,
    "normal": NORMAL,
    "lognormal": LOGNORMAL,
    "exponential": EXPONENTIAL,
}

EVENLY: Final = 0
POISSON: Final = 1
GAMMA: Final = 2
WEIBULL: Final = 3
PROCESSES: Final = {"constant": EVENLY, "poisson": POISSON, "gamma": GAMMA, "weibull": WEIBULL}


class LengthDraw:
    """Draws token counts from one distribution."""

    def __init__(self, plan: Lengths, stream: Stream) -> None:
        self._kind: Final = LENGTHS[plan.distribution]
        self._low: Final[int] = plan.low
        self._high: Final[int] = plan.high
        self._mean: Final[float] = plan.mean
        self._spread: Final[float] = plan.mean * plan.cv
        variance = math.log1p(plan.cv * plan.cv)
        self._log_mean: Final[float] = math.log(plan.mean) - variance / 2 if plan.mean > 0 else 0.0
        self._log_spread: Final = math.sqrt(variance)
        self._stream: Final = stream

    def next(self) -> int:
        kind = self._kind
        if kind == CONSTANT:
            return self._low
        if kind == UNIFORM:
            return self._stream.integer(self._low, self._high)
        if kind == LOGNORMAL:
            drawn = math.exp(self._stream.normal(self._log_mean, self._log_spread))
        elif kind == NORMAL:
            drawn = self._stream.normal(self._mean, self._spread)
        else:
            drawn = self._stream.exponential(self._mean)
        if drawn >= self._high:
            return self._high
        return max(math.floor(drawn + 0.5), self._low)


class GapDraw:
    """Draws the times between arrivals of one process."""

    def __init__(self, plan: Arrivals, stream: Stream) -> None:
        cv: float = plan.cv
        self._kind: Final = EVENLY if cv == 0.0 else PROCESSES[plan.process]
        self._mean: Final = 1.0 / plan.rate_per_s
        self._stream: Final = stream
        shape = 1.0
        scale = self._mean
        if self._kind == WEIBULL:
            shape = weibull_shape(cv)
            scale = self._mean / math.gamma(1.0 + 1.0 / shape)
        elif self._kind == GAMMA:
            shape = 1.0 / (cv * cv)
            scale = self._mean / shape
        self._shape: Final = shape
        self._scale: Final = scale

    def next(self) -> float:
        kind = self._kind
        if kind == POISSON:
            return self._stream.exponential(self._mean)
        if kind == EVENLY:
            return self._mean
        if kind == WEIBULL:
            return self._stream.weibull(self._shape, self._scale)
        return self._stream.gamma(self._shape, self._scale)


def weibull_shape(cv: float) -> float:
    """The shape whose coefficient of variation is `cv`, by bisection."""
    low, high = 0.05, 1000.0
    for _ in range(200):
        middle = math.sqrt(low * high)
        log_ratio = math.lgamma(1.0 + 2.0 / middle) - 2.0 * math.lgamma(1.0 + 1.0 / middle)
        if math.expm1(log_ratio) > cv * cv:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


class SourceDraw(Actor):
    """Makes the requests of one source, one after the other; `wake_s` is when the next arrives."""

    def __init__(self, index: int, plan: Source, streams: Streams, first_prefix: int) -> None:
        super().__init__(index)
        name: str = plan.name
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
        self.wake_s = 0.0
        self._step()

    def _step(self) -> None:
        if self._left == 0:
            self.wake_s = math.inf
            return
        self._left -= 1
        self.wake_s += self._gaps.next()

    def take(self, number: int) -> Request:
        """The request that arrives at `wake_s`."""
        prefix: PrefixChain | None = None
        prompt = self._prompts.next() + self._prefix_tokens
        if self._prefixes:
            prefix = self._prefixes[self._groups.integer(0, len(self._prefixes) - 1)]
        arrived_s = self.wake_s
        output = self._outputs.next()
        self._step()
        return Request(number, arrived_s, prompt, output, self._priority, self.turn, prefix)


class Traffic:
    """All sources of a run as one sequence of requests in order of arrival."""

    def __init__(self, sources: tuple[Source, ...], streams: Streams, end_s: float) -> None:
        self._end_s: Final = end_s
        draws: list[Actor] = []
        prefixes = 0
        for index, plan in enumerate(sources):
            draws.append(SourceDraw(index, plan, streams, prefixes))
            prefixes += plan.prefix.groups if plan.prefix is not None else 0
        self._agenda: Final = Agenda(draws)
        self.taken = 0
        self.next_s = self._next()

    def _next(self) -> float:
        """When the next request arrives; infinity when no more will."""
        next_s = self._agenda.first().wake_s
        return next_s if next_s < self._end_s else math.inf

    def take(self) -> Request:
        """The request that arrives at `next_s`."""
        source = self._agenda.first()
        assert isinstance(source, SourceDraw)
        request = source.take(self.taken)
        self.taken += 1
        self._agenda.moved(source)
        self.next_s = self._next()
        return request
