"""Dynamo's load predictors: the next value of a series, one value per adjustment.

Each works as in the planner. Values before the first traffic are ignored, and with fewer than five
values the last one is the prediction. ARIMA and Prophet need the extra `planner`.
"""

import math
import warnings
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from windtunnel.core.errors import InputError
from windtunnel.core.system.extras import need
from windtunnel.settings.faults import Fault
from windtunnel.settings.section import Context

PACKAGES: Final = {"arima": "pmdarima", "prophet": "prophet"}
"""Packages that a predictor needs."""
_ENOUGH: Final = 5
_WINDOW: Final = 50
"""Number of values that Prophet is fitted to."""
_BEGINNING: Final = datetime(2024, 1, 1)  # noqa: DTZ001 - Prophet takes no time zones
"""Prophet needs dates; daily and weekly seasons count from this one."""


class LoadPredictor:
    """Predicts that the next value equals the last."""

    def __init__(self) -> None:
        self._values: Final[list[float]] = []

    def see(self, value: float) -> None:
        if value != 0.0 or self._values:  # leading zeros: no traffic yet
            self._values.append(value)
            self._learn(value)

    def next(self) -> float:
        if len(self._values) < _ENOUGH:
            return self._values[-1] if self._values else 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the libraries warn about their own internals
            return max(0.0, self._predict())

    def _learn(self, value: float) -> None:
        """Learns from a value, leading zeros excepted."""

    def _predict(self) -> float:
        return self._values[-1]


class Kalman(LoadPredictor):
    """A Kalman filter of level and trend."""

    def __init__(self) -> None:
        super().__init__()
        self._level = 0.0
        self._trend = 0.0
        self._cover = [10.0, 0.0, 10.0]  # variance of level, covariance, variance of trend

    def _learn(self, value: float) -> None:
        if len(self._values) == 1:
            self._level = value
            return
        self._level += self._trend
        level, both, trend = self._cover
        level, both, trend = level + 2 * both + trend + 1.0, both + trend, trend + 0.1
        gain_level, gain_trend = level / (level + 10.0), both / (level + 10.0)
        error = value - self._level
        self._level += gain_level * error
        self._trend += gain_trend * error
        self._cover = [
            (1.0 - gain_level) * level,
            (1.0 - gain_level) * both,
            trend - gain_trend * both,
        ]

    def _predict(self) -> float:
        return self._level + self._trend


class Arima(LoadPredictor):
    """An ARIMA model whose order is chosen once, from the first values; later values update it.

    A model without any autoregressive or moving-average term is fitted to logarithms instead.
    """

    def __init__(self) -> None:
        super().__init__()
        self._model: Any = None
        self._log = False
        self._fitted = 0  # values that the model has seen

    def _predict(self) -> float:
        if len(set(self._values)) == 1:
            return self._values[0]  # auto_arima would predict 0
        try:
            found = self._estimate()
        except Exception:  # noqa: BLE001 - as in the planner: no model fits, or an update fails
            found = math.nan
        self._fitted = len(self._values)
        return found if math.isfinite(found) else self._values[-1]

    def _estimate(self) -> float:
        if self._model is None:
            self._choose()
        elif self._fitted < len(self._values):
            self._model.update(_scaled(self._values[self._fitted :], log=self._log))
        found = float(self._model.predict(n_periods=1)[0])
        return math.expm1(min(found, 700.0)) if self._log else found

    def _choose(self) -> None:
        import pmdarima

        for log in (False, True):
            values = _scaled(self._values, log=log)
            self._model = pmdarima.auto_arima(values, suppress_warnings=True, error_action="ignore")
            self._log = log
            if self._model.order[0] or self._model.order[2]:
                return


def _scaled(values: list[float], *, log: bool) -> list[float]:
    return [math.log1p(value) for value in values] if log else values


class Prophet(LoadPredictor):
    """Meta's Prophet, refitted to the latest values at every prediction."""

    def __init__(self, step_s: float) -> None:
        super().__init__()
        self._step: Final = timedelta(seconds=step_s)

    def _predict(self) -> float:
        import logging

        # cmdstanpy sets its own level at its first use, and Prophet reports a missing plotly.
        logging.getLogger("cmdstanpy").disabled = True
        logging.getLogger("prophet.plot").disabled = True
        import pandas
        import prophet

        values = self._values[-_WINDOW:]
        first = len(self._values) - len(values)
        times = [_BEGINNING + (first + number) * self._step for number in range(len(values))]
        model = prophet.Prophet(uncertainty_samples=0)  # no sampling: deterministic
        model.fit(pandas.DataFrame({"ds": times, "y": values}))
        future = pandas.DataFrame({"ds": [times[-1] + self._step]})
        return float(model.predict(future)["yhat"].iloc[0])


def predictor_of(kind: str, step_s: float) -> LoadPredictor:
    if kind == "arima":
        return Arima()
    if kind == "prophet":
        return Prophet(step_s)
    return Kalman() if kind == "kalman" else LoadPredictor()


def missing(where: Context, kind: str) -> Iterator[Fault]:
    """Yields a fault if the package of a predictor is not installed."""
    package = PACKAGES.get(kind)
    if package is None:
        return
    try:
        need(package, None, "planner")
    except InputError as error:
        yield where.fault("predictor", error.what, "constant, kalman", error.hint)
