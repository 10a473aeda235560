"""Forecasts of arrivals: several methods, ranked by what their past forecasts would have cost.

Simple methods each forecast the rate some bins ahead, and plan for a margin on top: the one that
would have been cheapest for the method's past errors, given the prices of replicas and misses. When
a bin ends, each method is charged what its plan would have cost, and the one with the lowest recent
cost is used. No distribution is assumed once there are enough errors. A surge that has not been
seen counts as a part of an error: it matters while few errors are known and misses are expensive.

Counts vary even at a constant rate. What a replica carries allows for that already, so an error
counts only as far as it is larger than by chance.
"""

import math
from collections import deque
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist
from typing import Final

from windtunnel.core.statistics.distribution import quantile_of

KEPT_ERRORS: Final = 240
"""Errors that a method is judged by: about an hour of them, since traffic changes."""
ENOUGH_ERRORS: Final = 12
"""With fewer errors than this, counting statistics predict better."""
_UNSEEN: Final = 0.1
"""Weight of the unseen surge among the errors: none by default, where 20 requests are the price of
a miss, and for a quarter of an hour where 200 are."""
_GROWS: Final = 2.0
"""Height of the unseen surge over the mean rate."""
_DISCOUNT: Final = 0.97
"""Weight of a loss one bin later: a method that was right long ago may be wrong now."""
_QUEUED: Final = 3.0
"""Requests that miss per arrival beyond the plan: those queued behind it wait too."""
_RISING_S: Final = 120.0
"""Time that a rise may have taken: rates before it are where it is expected to end."""
_TRIED: Final = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.94, 0.97, 0.99, 1.0)
"""Shares of past errors that a plan may cover."""


def loss(planned: float, rate: float, miss_price: float) -> float:
    """The cost of a plan at this rate: its capacity and the misses, in requests served.

    `miss_price`: the price of a miss over that of serving a request.
    """
    return planned + miss_price * _missed(rate, planned)


def _missed(rate: float, planned: float) -> float:
    return min(rate, _QUEUED * max(0.0, rate - planned))


class Method:
    """A forecasting method, which keeps what it needs of the past."""

    name = ""

    def see(self, rate: float) -> None:
        """Takes the rate of the bin that has just ended."""
        raise NotImplementedError

    def foretell(self, bins: int) -> float | None:
        """The rate this many bins from now; None: too few bins so far."""
        raise NotImplementedError


class Level(Method):
    """An exponentially weighted mean; `weight` is that of the latest bin."""

    def __init__(self, name: str, weight: float) -> None:
        self.name = name
        self._weight: Final = weight
        self._level: float | None = None
        self._seen = 0

    def see(self, rate: float) -> None:
        self._seen += 1
        weight = max(self._weight, 1.0 / self._seen)  # initially a plain mean
        level = self._level
        self._level = rate if level is None else level + weight * (rate - level)

    def foretell(self, bins: int) -> float | None:
        return self._level


class Trend(Method):
    """A linear trend whose slope is damped with every bin ahead."""

    name = "trend"

    def __init__(self, level: float = 0.5, slope: float = 0.3, damping: float = 0.92) -> None:
        self._level_weight: Final = level
        self._slope_weight: Final = slope
        self._damping: Final = damping
        self._level: float | None = None
        self._slope = 0.0

    def see(self, rate: float) -> None:
        last = self._level
        if last is None:
            self._level = rate
            return
        expected = last + self._damping * self._slope
        level = expected + self._level_weight * (rate - expected)
        self._slope = self._damping * self._slope + self._slope_weight * (
            level - last - self._damping * self._slope
        )
        self._level = level

    def foretell(self, bins: int) -> float | None:
        if self._level is None:
            return None
        damping = self._damping
        reach = damping * (1.0 - damping**bins) / (1.0 - damping)
        return max(0.0, self._level + self._slope * reach)


class Season(Method):
    """The rate one season ago, scaled by how the latest bins compare with those of that time."""

    name = "season"
    _COMPARED: Final = 4  # bins for comparing this season with the last

    def __init__(self, bins: int) -> None:
        self._bins: Final = bins
        self._rates: Final[deque[float]] = deque(maxlen=bins + self._COMPARED)

    def see(self, rate: float) -> None:
        self._rates.append(rate)

    def foretell(self, bins: int) -> float | None:
        rates = self._rates
        if len(rates) < self._bins + self._COMPARED:
            return None
        then = sum(rates[index] for index in range(self._COMPARED))
        now = sum(rates[-1 - index] for index in range(self._COMPARED))
        ahead = (bins - 1) % self._bins + 1
        # Smoothed over the neighbours: one bin is a count and noisy.
        first = self._COMPARED + ahead - 1
        near = [rates[index] for index in range(max(0, first - 1), min(len(rates), first + 2))]
        ratio = now / then if then > 0.0 else 1.0
        return sum(near) / len(near) * min(max(ratio, 0.25), 4.0)


@dataclass(frozen=True)
class Forecast:
    """The expected rate, the method behind it, its errors, and the rate to plan for."""

    rate: float
    method: str
    errors: list[float]
    """Sorted differences of observed and forecast rates, beyond chance and as far as they may
    recur."""
    counted: float
    """Standard deviation of a rate from a count: the least possible error."""
    miss_price: float
    unseen: float
    """Rate of a surge that has not been seen, or only once."""
    planned: float = 0.0

    @property
    def error(self) -> float:
        """The recent mean absolute error beyond chance; with too few errors, that of counting."""
        if len(self.errors) < ENOUGH_ERRORS:
            return self.counted
        return sum(abs(error) for error in self.errors) / len(self.errors)

    def mean_loss(self, planned: float) -> float:
        """The mean cost of a plan over past errors and the unseen surge."""
        missed = _UNSEEN * _missed(self.unseen, planned)
        for error in reversed(self.errors):
            if self.rate + error <= planned:
                break
            missed += _missed(self.rate + error, planned)
        return planned + self.miss_price * missed / (len(self.errors) + _UNSEEN)


def seen_twice(rates: list[float]) -> float:
    """The height that two bursts reached: the maximum without the highest burst.

    A burst is a contiguous range nearer to its peak than to the median.
    """
    top = max(rates)
    at = rates.index(top)
    middle = (sorted(rates)[len(rates) // 2] + top) / 2.0
    first = last = at
    while first > 0 and rates[first - 1] >= middle:
        first -= 1
    while last + 1 < len(rates) and rates[last + 1] >= middle:
        last += 1
    return max([*rates[: max(0, first - 1)], *rates[last + 2 :]], default=0.0)


class _Judged:
    """A method with its plans for bins to come, and their cost so far."""

    def __init__(self, method: Method) -> None:
        self.method: Final = method
        self.next: float | None = None  # forecast for the coming bin
        self._foretold: Final[deque[Forecast | None]] = deque()
        self.errors: Final[deque[float]] = deque(maxlen=KEPT_ERRORS)
        self._blame = 0.0
        self._weight = 0.0

    def see(self, rate: float, ahead: int) -> None:
        """Charges the method for its plan for this bin, and lets it learn."""
        if len(self._foretold) >= ahead:
            then = self._foretold.popleft()
            if then is not None:
                error = rate - then.rate
                self.errors.append(error)
                real = then.rate + error * self._beyond_chance(then.counted)
                self._blame = _DISCOUNT * self._blame + loss(then.planned, real, then.miss_price)
                self._weight = _DISCOUNT * self._weight + 1.0
        self.method.see(rate)
        self.next = self.method.foretell(1)

    def ask(self, ahead: int, usual: Forecast, highest: float, most: float) -> Forecast | None:
        """Makes a plan for this many bins from now, by which the method will be judged.

        `usual`: what all methods have in common; `most`: where the rate is expected to end.
        """
        rate = self.method.foretell(ahead)
        made = None if rate is None else self._forecast(min(rate, most), usual, highest)
        self._foretold.append(made)
        return made

    def _forecast(self, rate: float, usual: Forecast, highest: float) -> Forecast:
        """Makes a forecast with the plan that would have been cheapest.

        An error is the height of a burst above its beginning. During a burst, another one on top
        of it is not expected, and a height reached only once need not recur: beyond the height of
        two recent bursts (`highest`), only noise is added.
        """
        counted, price = usual.counted, usual.miss_price
        made = replace(usual, rate=rate, method=self.method.name)
        if len(self.errors) < ENOUGH_ERRORS:
            by_chance = NormalDist().inv_cdf(min(max(1.0 - 1.0 / price, 0.5), 0.999)) * counted
            return replace(made, planned=rate + by_chance)
        most = max(highest - rate, counted)
        beyond = self._beyond_chance(counted)
        known = sorted(min(beyond * error, most) for error in self.errors)
        made = replace(made, errors=known)
        plans = [max(0.0, rate + quantile_of(known, share)) for share in _TRIED]
        return replace(made, planned=min([*plans, made.unseen], key=made.mean_loss))

    def _beyond_chance(self, counted: float) -> float:
        """The standard deviation of the rate around its forecasts, over that of the errors.

        The variance of the errors is that of the rate and of counting, `counted` squared.
        """
        if len(self.errors) < ENOUGH_ERRORS:
            return 1.0
        variance = sum(error**2 for error in self.errors) / len(self.errors)
        return math.sqrt(max(0.0, 1.0 - counted**2 / variance)) if variance > 0.0 else 0.0

    @property
    def mean_blame(self) -> float:
        return self._blame / self._weight if self._weight > 0.0 else math.inf


class RateForecaster:
    """Takes rates bin by bin, and plans for `ahead` bins later."""

    def __init__(
        self, bin_s: float, ahead: int, season_s: float = 0.0, miss_price: float = 20.0
    ) -> None:
        self.bin_s: Final = bin_s
        self.ahead: Final = max(1, ahead)
        self.miss_price = miss_price
        self._mean: Final = Level("mean", 0.03)
        methods: list[Method] = [Level("level", 0.4), self._mean, Trend()]
        season = round(season_s / bin_s)
        if season > self.ahead:
            methods.append(Season(season))
        # Bins after which earlier rates no longer matter.
        self.memory: Final = season + self.ahead + 3 * KEPT_ERRORS
        self.known_height = 0.0  # height of a burst in the similar period that was given
        self._judged: Final = [_Judged(method) for method in methods]
        self._lately: Final[deque[float]] = deque(maxlen=KEPT_ERRORS)
        self._best: Forecast | None = None

    def see(self, rate: float) -> None:
        """Takes the rate of the bin that has just ended.

        Until a method has been judged, the one with the highest plan is used.
        """
        self._lately.append(rate)
        highest = max(self.known_height, seen_twice(list(self._lately)))
        mean = self._mean.foretell(1)
        unseen = max(_GROWS * (rate if mean is None else mean), self.highest)
        before = self.highest_before(_RISING_S)
        most = before if rate < before else math.inf
        best, least = None, math.inf
        for judged in self._judged:
            judged.see(rate, self.ahead)
            counted = self.counted(max(judged.next or 0.0, rate))
            usual = Forecast(rate, "", [], counted, self.miss_price, unseen)
            made = judged.ask(self.ahead, usual, highest, most)
            if made is None:
                continue
            blame = judged.mean_blame
            equal = best is not None and blame == least
            if best is None or blame < least or (equal and made.planned > best.planned):
                best, least = made, blame
        self._best = best

    @property
    def highest(self) -> float:
        """The highest recent rate."""
        return max(self._lately, default=0.0)

    def highest_before(self, seconds: float) -> float:
        """The highest recent rate up to so many seconds ago."""
        return max(list(self._lately)[: -math.ceil(seconds / self.bin_s)], default=0.0)

    def next_rate(self) -> float:
        """The expected rate of the coming bin."""
        known = [judged for judged in self._judged if judged.next is not None]
        best = min(known, key=lambda judged: judged.mean_blame, default=None)
        return 0.0 if best is None or best.next is None else best.next

    def usual_error(self) -> float:
        """The median difference of consecutive bins, which bursts hardly affect."""
        rates = list(self._lately)
        steps = sorted(abs(after - before) for before, after in pairwise(rates))
        return steps[len(steps) // 2] if steps else 0.0

    def forecast(self) -> Forecast:
        """The forecast for `ahead` bins from now; a rate of 0 before the first bin."""
        if self._best is None:
            return Forecast(0.0, "nothing seen yet", [], 0.0, self.miss_price, 0.0)
        return self._best

    def counted(self, rate: float, window_s: float | None = None) -> float:
        """The standard deviation of a rate counted in a window, from Poisson noise alone."""
        counted_s = self.bin_s if window_s is None else window_s
        return math.sqrt(max(rate, 1.0 / counted_s) / counted_s)
