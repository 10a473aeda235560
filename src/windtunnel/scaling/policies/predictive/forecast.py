"""How much will arrive: methods that compete on what they foretold, and how wrong they were.

Three simple methods each foretell the rate some ticks ahead. When that moment comes, each is
charged its error, and the one with the smallest errors lately speaks. Its own errors are also what
its forecast is widened with: no distribution is assumed once there are enough of them. A surge
that chance does not explain is foretold by a line of its own: the methods are slow to believe it.
"""

import math
from collections import deque
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from windtunnel.core.distribution import quantile_of

KEPT_ERRORS: Final = 64
"""Errors that a method is judged by: the latest, since traffic changes its nature."""
ENOUGH_ERRORS: Final = 12
"""Fewer errors than this say less about the future than counting statistics do."""
_DISCOUNT: Final = 0.95
"""What an error counts for a tick later: a method that was right long ago may be wrong now."""
_BY_CHANCE: Final = 4.0
"""Deviations above what was expected: a tick further up than this is no accident."""
_DEVIATIONS_PER_MEDIAN: Final = 1.4826
"""Standard deviations of a normal distribution in the median of its absolute errors."""


class Method:
    """A way to foretell; each keeps what it needs of the past."""

    name = ""

    def see(self, rate: float) -> None:
        """The rate of the tick that has just ended."""
        raise NotImplementedError

    def foretell(self, ticks: int) -> float | None:
        """The rate so many ticks from now; None: it has not seen enough."""
        raise NotImplementedError


class Level(Method):
    """Things stay as they have been lately."""

    name = "level"

    def __init__(self, weight: float = 0.4) -> None:
        self._weight: Final = weight
        self._level: float | None = None

    def see(self, rate: float) -> None:
        level = self._level
        self._level = rate if level is None else level + self._weight * (rate - level)

    def foretell(self, ticks: int) -> float | None:
        return self._level


class Trend(Method):
    """Things go on as they go, for a while: a line whose slope is damped with every tick ahead."""

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

    def foretell(self, ticks: int) -> float | None:
        if self._level is None:
            return None
        damping = self._damping
        reach = damping * (1.0 - damping**ticks) / (1.0 - damping)
        return max(0.0, self._level + self._slope * reach)


class Season(Method):
    """Things go as they went a season ago, as much higher or lower as the last ticks were."""

    name = "season"
    _COMPARED: Final = 4  # ticks that tell how this season compares with the last

    def __init__(self, ticks: int) -> None:
        self._ticks: Final = ticks
        self._rates: Final[deque[float]] = deque(maxlen=ticks + self._COMPARED)

    def see(self, rate: float) -> None:
        self._rates.append(rate)

    def foretell(self, ticks: int) -> float | None:
        rates = self._rates
        if len(rates) < self._ticks + self._COMPARED:
            return None
        then = sum(rates[index] for index in range(self._COMPARED))
        now = sum(rates[-1 - index] for index in range(self._COMPARED))
        ahead = (ticks - 1) % self._ticks + 1
        # Smoothed over the neighbours: one tick is a count and noisy.
        first = self._COMPARED + ahead - 1
        near = [rates[index] for index in range(max(0, first - 1), min(len(rates), first + 2))]
        ratio = now / then if then > 0.0 else 1.0
        return sum(near) / len(near) * min(max(ratio, 0.25), 4.0)


@dataclass(frozen=True)
class Forecast:
    """The rate expected, the method that said so, and how far that may be off."""

    rate: float
    method: str
    errors: list[float]
    """Sorted; seen minus foretold."""
    counted: float
    """Standard deviation of a count's rate: no less is possible."""
    highest: float = math.inf
    """The highest rate that was seen lately."""
    surge: float = 0.0
    """The rate that a surge is heading for; 0: there is none."""

    @property
    def error(self) -> float:
        """The mean absolute error of the method lately; before there are enough, of counting."""
        if len(self.errors) < ENOUGH_ERRORS:
            return self.counted
        return sum(abs(error) for error in self.errors) / len(self.errors)

    def upper(self, probability: float) -> float:
        """The rate that is not exceeded with this probability, by the errors of the past.

        An error says how far a burst rose from where it began. In the middle of one the next is not
        expected on top of it: beyond the highest rate that was seen lately only chance adds.
        """
        share = min(max(probability, 0.001), 0.999)
        by_chance = NormalDist().inv_cdf(share) * self.counted
        errors = self.errors
        if len(errors) < ENOUGH_ERRORS:
            return max(0.0, self.rate + by_chance)
        quantile = quantile_of(errors, min(max(probability, 0.0), 1.0))
        most = max(self.highest - self.rate, by_chance)
        return max(0.0, self.rate + min(quantile, most))


class Surge:
    """A rise that chance does not explain: where it began, and for how many ticks it has lasted.

    It begins with a tick far above what was expected of it, by the errors that are usual, and ends
    with the first tick that rises no more.
    """

    def __init__(self) -> None:
        self.ticks = 0  # 0: there is none
        self._began = 0.0  # the rate that it rose from
        self._last = 0.0
        self._errors: Final[deque[float]] = deque(maxlen=KEPT_ERRORS)  # without their signs

    def see(self, rate: float, expected: float, counted: float) -> None:
        """`counted`: the standard deviation of a count's rate."""
        errors = sorted(self._errors)
        # The median does not mind the few ticks in which a surge began.
        usual = _DEVIATIONS_PER_MEDIAN * errors[len(errors) // 2] if errors else 0.0
        deviation = max(counted, usual)
        if self.ticks > 0 and rate > self._last + deviation:
            self.ticks += 1
        elif rate - expected > _BY_CHANCE * deviation:
            self._began = expected
            self.ticks = 1
        else:
            self.ticks = 0
        self._errors.append(abs(rate - expected))
        self._last = rate

    def foretell(self, ticks: int, highest: float) -> float:
        """Where its line leads, so many ticks from now; 0: there is no surge.

        Bursts often rise as high as one before: up to there (`highest`) it is expected to end so.
        """
        if self.ticks == 0:
            return 0.0
        line = self._last + (self._last - self._began) / self.ticks * ticks
        return min(line, highest) if self._last < highest else line


def pinball(error: float, probability: float) -> float:
    """What an error costs one who wants to be exceeded with the rest of the probability."""
    return probability * error if error >= 0.0 else (probability - 1.0) * error


class _Judged:
    """A method with what it foretold for ticks to come and how it was wrong so far."""

    def __init__(self, method: Method) -> None:
        self.method: Final = method
        self.foretold: Final[deque[float | None]] = deque()
        self.next: float | None = None  # foretold for the coming tick
        self.errors: Final[deque[float]] = deque(maxlen=KEPT_ERRORS)
        self.blame = 0.0
        self.weight = 0.0

    def see(self, rate: float, ahead: int, probability: float) -> None:
        """Charges it for what it foretold of this tick, and asks it anew.

        What it said of the very next tick is charged too: the other errors come late, and a ramp
        that has begun shows there first. Too little costs more than too much, as in a queue.
        """
        charged = 0.0
        if len(self.foretold) >= ahead:
            foretold = self.foretold.popleft()
            if foretold is not None:
                self.errors.append(rate - foretold)
                charged += pinball(rate - foretold, probability)
        if self.next is not None:
            charged += pinball(rate - self.next, probability)
            self.blame = _DISCOUNT * self.blame + charged
            self.weight = _DISCOUNT * self.weight + 1.0
        self.method.see(rate)
        self.foretold.append(self.method.foretell(ahead))
        self.next = self.method.foretell(1)

    @property
    def mean_blame(self) -> float:
        return self.blame / self.weight if self.weight > 0.0 else math.inf


class Forecaster:
    """Rates go in tick by tick; a forecast for `ahead` ticks later comes out."""

    def __init__(
        self, interval_s: float, ahead: int, season_s: float = 0.0, probability: float = 0.9
    ) -> None:
        self.interval_s: Final = interval_s
        self.probability: Final = probability  # that less arrives than its forecasts' upper rate
        self.ahead: Final = max(1, ahead)
        methods: list[Method] = [Level(), Trend()]
        season = round(season_s / interval_s)
        if season > self.ahead:
            methods.append(Season(season))
        # Ticks after which nothing of what it was told matters any more.
        self.memory: Final = season + self.ahead + 3 * KEPT_ERRORS
        self._judged: Final = [_Judged(method) for method in methods]
        self._surge: Final = Surge()
        self._lately: Final[deque[float]] = deque(maxlen=KEPT_ERRORS)
        self._seen = 0

    def see(self, arrived: float, interval_s: float) -> None:
        """So many arrived in the interval that has just ended."""
        rate = arrived / interval_s if interval_s > 0.0 else 0.0
        expected = min(self._judged, key=lambda judged: judged.mean_blame).next
        if expected is not None:
            self._surge.see(rate, expected, self._counted(expected))
        self._lately.append(rate)
        self._seen += 1
        for judged in self._judged:
            judged.see(rate, self.ahead, self.probability)

    @property
    def is_judged(self) -> bool:
        """Whether anything that it foretold has come true or not yet."""
        return self._seen > self.ahead

    def forecast(self) -> Forecast:
        """For `ahead` ticks from now; a rate of 0 before anything was seen.

        Before any method could be judged, the one that expects most speaks.
        """
        best: _Judged | None = None
        rate = 0.0
        for judged in self._judged:
            foretold = judged.method.foretell(self.ahead)
            if foretold is None:
                continue
            equal = best is not None and judged.mean_blame == best.mean_blame
            if best is None or judged.mean_blame < best.mean_blame or (equal and foretold > rate):
                best, rate = judged, foretold
        if best is None:
            return Forecast(0.0, "nothing seen yet", [], 0.0)
        lately = list(self._lately)
        before = max(lately[: len(lately) - self._surge.ticks], default=0.0)
        return Forecast(
            rate,
            best.method.name,
            sorted(best.errors),
            self._counted(max(rate, lately[-1])),
            highest=max(lately),
            surge=self._surge.foretell(self.ahead, before),
        )

    def _counted(self, rate: float) -> float:
        """The standard deviation of a rate that is counted in an interval, if it is chance."""
        return math.sqrt(max(rate, 1.0 / self.interval_s) / self.interval_s)
