"""Draws token counts and durations from the random stream that the caller passes."""

import math
from bisect import bisect_right
from itertools import accumulate
from typing import Final

from windtunnel.core.random import Stream
from windtunnel.workload.distributions import Lengths, Times

CONSTANT: Final = 0
UNIFORM: Final = 1
NORMAL: Final = 2
LOGNORMAL: Final = 3
EXPONENTIAL: Final = 4
PARETO_LOGNORMAL: Final = 5
EMPIRICAL: Final = 6
KINDS: Final = {
    "constant": CONSTANT,
    "uniform": UNIFORM,
    "normal": NORMAL,
    "lognormal": LOGNORMAL,
    "exponential": EXPONENTIAL,
    "pareto-lognormal": PARETO_LOGNORMAL,
    "empirical": EMPIRICAL,
}


class LengthDraw:
    """Draws token counts from one distribution."""

    def __init__(self, plan: Lengths) -> None:
        self._kind: Final = KINDS[plan.distribution]
        self._low: Final[int] = plan.low
        self._high: Final[int] = plan.high
        self._mean: Final[float] = plan.mean
        self._spread: Final[float] = plan.mean * plan.cv
        variance = math.log1p(plan.cv * plan.cv)
        self._log_mean: Final[float] = math.log(plan.mean) - variance / 2 if plan.mean > 0 else 0.0
        self._log_spread: Final = math.sqrt(variance)
        self._tail_share: Final[float] = plan.tail_share
        self._tail_start: Final[float] = plan.tail_start
        self._tail_power: Final[float] = -1.0 / plan.tail_alpha if plan.tail_alpha else 0.0
        values: list[int] = [*plan.values]
        weights: list[float] = [*plan.weights]
        if plan.path is not None:
            from windtunnel.workload.empirical import read_lengths

            values, weights = read_lengths(plan.path)
        self._values: Final = values
        self._upto: Final[list[float]] = list(accumulate(weights))

    def draw(self, stream: Stream) -> int:
        kind = self._kind
        if kind == CONSTANT:
            return self._low
        if kind == UNIFORM:
            return stream.integer(self._low, self._high)
        if kind == LOGNORMAL:
            drawn = math.exp(stream.normal(self._log_mean, self._log_spread))
        elif kind == NORMAL:
            drawn = stream.normal(self._mean, self._spread)
        elif kind == EXPONENTIAL:
            drawn = stream.exponential(self._mean)
        elif kind == EMPIRICAL:
            drawn = float(self._values[pick(self._upto, stream)])
        else:
            drawn = self._mixed(stream)
        if drawn >= self._high:
            return self._high
        tokens = math.floor(drawn + 0.5)
        return tokens if tokens > self._low else self._low

    def _mixed(self, stream: Stream) -> float:
        if stream.uniform() < self._tail_share:
            return self._tail_start * math.pow(1.0 - stream.uniform(), self._tail_power)
        return math.exp(stream.normal(self._log_mean, self._log_spread))


def pick(upto: list[float], stream: Stream) -> int:
    """Draws an index into a list of cumulative weights, proportionally to its weight."""
    return min(bisect_right(upto, stream.uniform() * upto[-1]), len(upto) - 1)


class TimeDraw:
    """Draws durations from one distribution."""

    def __init__(self, plan: Times) -> None:
        self._kind: Final = KINDS[plan.distribution]
        self._low_s: Final[float] = plan.low_s
        self._high_s: Final[float] = plan.high_s
        self.mean_s: Final[float] = plan.mean_s
        variance = math.log1p(plan.cv * plan.cv)
        logs = math.log(plan.mean_s) - variance / 2 if plan.mean_s > 0 else 0.0
        self._log_mean: Final[float] = logs
        self._log_spread: Final = math.sqrt(variance)

    def draw(self, stream: Stream) -> float:
        kind = self._kind
        if kind == CONSTANT:
            return self.mean_s
        if kind == UNIFORM:
            return stream.between(self._low_s, self._high_s)
        if kind == LOGNORMAL:
            drawn_s = math.exp(stream.normal(self._log_mean, self._log_spread))
        else:
            drawn_s = stream.exponential(self.mean_s)
        return min(max(drawn_s, self._low_s), self._high_s)
