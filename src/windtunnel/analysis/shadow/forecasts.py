"""Forecasts with intervals, and their accuracy once the forecast time has passed.

Intervals come from the shadow's own errors: the middle nine tenths of the ratios of observed to
simulated values, over the last hour's forecasts of the same figure and span; the forecast itself is
the twin's value times their median. While the twin is saturated, only arrivals are forecast, and no
forecast is scored.
"""

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from windtunnel.analysis.shadow.window import FIGURES, UNITS, TrafficWindow
from windtunnel.core.statistics.distribution import quantile_of

SHARE: Final = 0.9
"""The share of outcomes that an interval should cover."""
FEWEST_ERRORS: Final = 20
MOST_ERRORS: Final = 1_000
REMEMBERED_S: Final = 3600.0
"""Older errors belong to other traffic; for long spans, the last ten spans count."""
REMEMBERED: Final = 10.0
OVERLAPS: Final = 3.0
"""Errors of overlapping intervals are not independent: at most this many count per disjoint
interval. Found on simulated traffic, where 90 % intervals then cover 90 %."""
MOST_MEASURED: Final = 200
MOST_PENDING: Final = 1_000
AS_IT_IS: Final = "as it is"
"""The name of the scenario's own settings, beside others."""
SMALLEST: Final = {"s": 1e-3, "requests": 0.1, "requests/s": 0.01}
"""Differences below these are negligible: they are added to both sides of a ratio."""


class PolicyDecision(NamedTuple):
    """A decision of the control plane in a twin."""

    at_s: float
    """Relative to now; negative if it would already have been made."""
    subject: str
    decided: str
    reason: str


class DecisionCount(NamedTuple):
    """Decisions of one kind up to now, and how many would have been different."""

    decided: int
    differ: int
    first: str
    """The first that differs; empty if none does."""

    @property
    def share(self) -> float:
        return self.differ / self.decided if self.decided else 0.0


class TwinForecast(NamedTuple):
    """The expectations of the twin."""

    figures: dict[str, dict[str, float | None]]
    """By span, such as `5m`: figures of the requests that arrive within it."""
    is_saturated: bool
    """Requests arrive faster than they are served, so their waits cannot be forecast."""
    step_ratio: float | None
    """Observed time per token divided by the twin's, for the same requests."""
    replicas: int
    """The most that the twin's autoscaler asks for; without one, the current number."""
    replicas_now: int
    """The number it asks for now."""
    machines: int | None
    """The most machines at any time; None: the scenario has no fleet."""
    attained: float | None
    """SLO attainment over all classes."""
    cost: float
    """Dollars, from now to the horizon."""
    attained_lately: float | None
    """The same for the requests that brought the twin to the present."""
    cost_lately: float
    """Dollars in that time."""
    control: list[PolicyDecision]
    """Decisions of autoscaler, gangs and fleet: the latest up to now, and the first after it."""


class PolicyRegret(NamedTuple):
    """Attainment and cost of settings on recent traffic, compared with foresight."""

    attained: float
    cost: float
    """Cost of the replicas in dollars, or in replica hours if they have no price."""
    ratio: float
    """Cost divided by that of the cheapest schedule with all arrivals known, at equal
    attainment."""


class TwinForecasts(NamedTuple):
    """The expectations of the twin with the current and with other settings."""

    now: TwinForecast
    others: dict[str, TwinForecast]
    decisions: dict[str, dict[str, DecisionCount]]
    """By name and kind: decisions up to now that would have been different."""


class ForecastFigure(NamedTuple):
    """A figure of a span; without ends if too few errors are known."""

    value: float | None
    """The twin's value, corrected for its usual error; None: it cannot be forecast."""
    low: float | None
    high: float | None
    twin: float | None
    """The twin's value."""


class _Pending(NamedTuple):
    stretch: str
    from_s: float
    to_s: float
    figures: dict[str, ForecastFigure]


class _Error(NamedTuple):
    """The log ratio of the observed to the twin's value, for an interval that began at `from_s`."""

    from_s: float
    log_ratio: float


class FigureAccuracy(NamedTuple):
    """The accuracy of the forecasts of a figure."""

    measured: int
    median_error: float | None
    """Median relative error."""
    covered: float | None
    """The share of intervals that contained the observed value."""


class ForecastLog:
    """Keeps forecasts until they can be measured, and their errors."""

    def __init__(self, spans_s: Mapping[str, float]) -> None:
        self._spans_s: Final = dict(spans_s)
        self._pending: Final[deque[_Pending]] = deque(maxlen=MOST_PENDING)
        self._issued_s = -math.inf
        """The time of the last forecast that counts: a second one for the same time adds
        nothing."""
        keys = [(stretch, name) for stretch in spans_s for name in FIGURES]
        self._errors: Final = {key: deque[_Error](maxlen=MOST_ERRORS) for key in keys}
        self._off: Final = {key: deque[float](maxlen=MOST_MEASURED) for key in keys}
        self._held: Final = {key: deque[bool](maxlen=MOST_MEASURED) for key in keys}

    def issue(self, forecast: TwinForecast, now_s: float) -> dict[str, dict[str, ForecastFigure]]:
        """Returns the forecast with intervals, and keeps it; a saturated twin only forecasts
        arrivals."""
        found = {
            stretch: {
                name: ForecastFigure(None, None, None, value)
                if forecast.is_saturated and name != "rate"
                else self._with_ends(stretch, name, value)
                for name, value in figures.items()
            }
            for stretch, figures in forecast.figures.items()
        }
        if not forecast.is_saturated and now_s > self._issued_s:
            self._issued_s = now_s
            for stretch, figures in found.items():
                to_s = now_s + self._spans_s[stretch]
                self._pending.append(_Pending(stretch, now_s, to_s, figures))
        return found

    def _with_ends(self, stretch: str, name: str, value: float | None) -> ForecastFigure:
        known = self._errors[stretch, name]
        errors = sorted(one.log_ratio for one in known)
        if value is None or len(errors) < FEWEST_ERRORS:
            return ForecastFigure(value, None, None, value)
        least = SMALLEST[UNITS[name]]
        # The ranks between which the next of `count` independent errors is with probability SHARE.
        apart = 1.0 + (known[-1].from_s - known[0].from_s) / self._spans_s[stretch]
        count = min(float(len(errors)), OVERLAPS * apart)
        tail = max(0.0, ((1.0 - SHARE) / 2.0 * (count + 1.0) - 1.0) / (count - 1.0))
        middle, low, high = (
            max(0.0, (value + least) * math.exp(quantile_of(errors, at)) - least)
            for at in (0.5, tail, 1.0 - tail)
        )
        if count < FEWEST_ERRORS:
            return ForecastFigure(middle, None, None, value)
        return ForecastFigure(middle, low, high, value)

    def measure(self, window: TrafficWindow) -> None:
        """Compares pending forecasts with what was observed, as far as it has been."""
        for _ in range(len(self._pending)):
            one = self._pending.popleft()
            measured = window.measured(one.from_s, one.to_s)
            if measured is None:
                self._pending.append(one)
                continue
            for name, forecast in one.figures.items():
                self._note(one, name, forecast, measured[name])

    def _note(self, one: _Pending, name: str, forecast: ForecastFigure, came: float | None) -> None:
        if forecast.value is None or forecast.twin is None or came is None:
            return
        least, stretch = SMALLEST[UNITS[name]], one.stretch
        ratio = (came + least) / (forecast.twin + least)
        errors = self._errors[stretch, name]
        errors.append(_Error(one.from_s, math.log(ratio)))
        oldest_s = one.from_s - max(REMEMBERED_S, REMEMBERED * self._spans_s[stretch])
        while errors[0].from_s < oldest_s:
            errors.popleft()
        self._off[stretch, name].append(abs(forecast.value - came) / (came + least))
        if forecast.low is not None and forecast.high is not None:
            self._held[stretch, name].append(forecast.low <= came <= forecast.high)

    def restart(self) -> None:
        """Drops pending forecasts after a restart of the gateway, whose clock starts anew."""
        self._pending.clear()
        self._issued_s = -math.inf
        for errors in self._errors.values():
            known = [*errors]
            errors.clear()
            errors.extend(one._replace(from_s=one.from_s - known[-1].from_s) for one in known)

    def accuracy(self) -> dict[str, dict[str, FigureAccuracy]]:
        """Accuracy by span and figure."""
        return {
            stretch: {name: self._accuracy(stretch, name) for name in FIGURES}
            for stretch in self._spans_s
        }

    def _accuracy(self, stretch: str, name: str) -> FigureAccuracy:
        off = sorted(self._off[stretch, name])
        held = self._held[stretch, name]
        return FigureAccuracy(
            len(off),
            quantile_of(off, 0.5) if off else None,
            sum(held) / len(held) if held else None,
        )


def plain(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Named tuples by span and figure, as plain data."""
    return {
        stretch: {name: one._asdict() for name, one in by_name.items()}
        for stretch, by_name in figures.items()
    }
