"""Arrival times: gaps drawn from a process, and a rate that may change over time.

A changing rate is applied by time rescaling: the process runs at a constant rate in a time of its
own, and the integral of the curve maps that time to the time of the run. Gaps keep their
distribution under any curve, without thinning and without stepping through time.
"""

import math
from bisect import bisect_right
from typing import Final

from windtunnel.core.random import Stream
from windtunnel.workload.distributions import Arrivals, Curve

EVENLY: Final = 0
POISSON: Final = 1
GAMMA: Final = 2
WEIBULL: Final = 3
PROCESSES: Final = {"constant": EVENLY, "poisson": POISSON, "gamma": GAMMA, "weibull": WEIBULL}

NEWTON_STEPS: Final = 100


class GapDraw:
    """Draws the gaps between arrivals of one process."""

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
    """The Weibull shape whose coefficient of variation is `cv`, found by bisection."""
    low, high = 0.05, 1000.0
    for _ in range(200):
        middle = math.sqrt(low * high)
        log_ratio = math.lgamma(1.0 + 2.0 / middle) - 2.0 * math.lgamma(1.0 + 1.0 / middle)
        if math.expm1(log_ratio) > cv * cv:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def weibull_cv(shape: float) -> float:
    """The coefficient of variation of a Weibull distribution with this shape."""
    return math.sqrt(
        math.expm1(math.lgamma(1.0 + 2.0 / shape) - 2.0 * math.lgamma(1.0 + 1.0 / shape))
    )


class RateCurve:
    """The factor on the rate over time, and the inverse of its integral."""

    def factor(self, time_s: float) -> float:
        raise NotImplementedError

    def time_of(self, integral: float) -> float:
        """The time at which the integral from 0 reaches a value; infinity if it never does."""
        raise NotImplementedError

    def total(self) -> float:
        """The integral over all time: infinity unless the curve falls to 0 and stays there."""
        return math.inf


class LineCurve(RateCurve):
    """Straight lines between points; the first and last factors hold before and after them."""

    def __init__(self, points: list[tuple[float, float]]) -> None:
        self._times: Final[list[float]] = []
        self._factors: Final[list[float]] = []
        self._integrals: Final[list[float]] = []
        integral = 0.0
        last_s = 0.0
        last = points[0][1]
        if points[0][0] > 0.0:
            self._add(0.0, last, 0.0)
        for time_s, factor in points:
            integral += (time_s - last_s) * (last + factor) / 2
            self._add(time_s, factor, integral)
            last_s = time_s
            last = factor

    def _add(self, time_s: float, factor: float, integral: float) -> None:
        self._times.append(time_s)
        self._factors.append(factor)
        self._integrals.append(integral)

    def factor(self, time_s: float) -> float:
        at = bisect_right(self._times, time_s) - 1
        if at == len(self._times) - 1:
            return self._factors[at]
        share = (time_s - self._times[at]) / (self._times[at + 1] - self._times[at])
        return self._factors[at] + share * (self._factors[at + 1] - self._factors[at])

    def time_of(self, integral: float) -> float:
        at = bisect_right(self._integrals, integral) - 1
        start_s = self._times[at]
        factor = self._factors[at]
        rest = integral - self._integrals[at]
        if at == len(self._times) - 1:
            if factor == 0.0:
                return math.inf
            return start_s + rest / factor
        end_s = self._times[at + 1]
        slope = (self._factors[at + 1] - factor) / (end_s - start_s)
        # The form of the quadratic's root that stays accurate when the slope is near 0.
        root = math.sqrt(max(factor * factor + 2.0 * slope * rest, 0.0))
        if factor + root == 0.0:
            return start_s  # so close to the point that the square underflows to 0
        return min(start_s + 2.0 * rest / (factor + root), end_s)

    def total(self) -> float:
        return math.inf if self._factors[-1] > 0.0 else self._integrals[-1]


class WaveCurve(RateCurve):
    """A cosine with mean 1: a day with its peak and trough."""

    def __init__(self, period_s: float, peak_s: float, ratio: float) -> None:
        self._period_s: Final = period_s
        self._turn: Final = 2.0 * math.pi / period_s
        self._peak_s: Final = peak_s
        self._swing: Final = (ratio - 1.0) / (ratio + 1.0)

    def factor(self, time_s: float) -> float:
        return 1.0 + self._swing * math.cos(self._turn * (time_s - self._peak_s))

    def _integral(self, time_s: float) -> float:
        turned = math.sin(self._turn * (time_s - self._peak_s))
        return time_s + self._swing / self._turn * (turned + math.sin(self._turn * self._peak_s))

    def time_of(self, integral: float) -> float:
        """Solved by Newton's method, bisecting where a step would leave the root's bracket."""
        periods = math.floor(integral / self._period_s)
        rest = integral - periods * self._period_s
        low = 0.0
        high = self._period_s
        time_s = rest
        for _ in range(NEWTON_STEPS):
            over = self._integral(time_s) - rest
            if over > 0.0:
                high = time_s
            else:
                low = time_s
            step_s = over / self.factor(time_s)
            guess_s = time_s - step_s
            if not low <= guess_s <= high:
                guess_s = (low + high) / 2
            if abs(guess_s - time_s) <= 1e-15 * self._period_s:
                break
            time_s = guess_s
        return periods * self._period_s + time_s


def curve_of(plan: Curve) -> RateCurve:
    """The curve that a declaration describes."""
    if plan.period_s > 0.0:
        return WaveCurve(plan.period_s, plan.peak_s, plan.ratio)
    return LineCurve([*plan.points])


class ArrivalTimes:
    """The arrival times of a source, in order."""

    def __init__(self, plan: Arrivals, curve: Curve | None, stream: Stream) -> None:
        self._gaps: Final = GapDraw(plan, stream)
        self._curve: Final = curve_of(curve) if curve is not None else None
        self._even_s = 0.0  # in the time in which the rate is constant

    def next(self) -> float:
        self._even_s += self._gaps.next()
        if self._curve is None:
            return self._even_s
        return self._curve.time_of(self._even_s)
