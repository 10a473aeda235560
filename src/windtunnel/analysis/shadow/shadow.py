"""The shadow: one tick after another, on any clock."""

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from windtunnel.analysis.shadow.forecasts import (
    ForecastFigure,
    ForecastLog,
    PolicyRegret,
    TwinForecasts,
    plain,
)
from windtunnel.analysis.shadow.window import Present, TrafficWindow
from windtunnel.core.errors import InputError, WindtunnelError
from windtunnel.core.units import format_duration

Forecast = Callable[[Present, float], TwinForecasts]
"""Runs the twin from the present state, with step times scaled by a factor."""
Regret = Callable[[Present, float], dict[str, PolicyRegret]]
"""The same for regret: the cost of the settings on recent traffic, compared with foresight."""

LEARNING: Final = 0.3
"""How far a tick moves the scale of step times towards the observed value."""
MOST_SCALE: Final = 10.0
DRIFTED: Final = 1.2
"""Steps that take this many times longer or shorter than in the scenario count as drift."""
OF_THE_RUN: Final = ("replicas", "replicas_now", "machines", "attained", "cost", "attained_lately",
                     "cost_lately")  # fmt: skip
SATURATED: Final = "saturated, cannot tell"


class ShadowTick(NamedTuple):
    """The result of a tick."""

    now_s: float
    says: str
    """Why there is no forecast, or how far to trust it; empty if there is nothing to say."""
    forecast: TwinForecasts | None
    figures: dict[str, dict[str, ForecastFigure]]
    in_flight: int
    servers: int | None


class Shadow:
    """Forecasts from a window of traffic, and learns from the outcomes."""

    def __init__(
        self,
        window: TrafficWindow,
        forecast: Forecast,
        spans_s: dict[str, float],
        regret: Regret | None = None,
        regret_span_s: float = 0.0,
    ) -> None:
        self.window: Final = window
        self.log: Final = ForecastLog(spans_s)
        self.step_scale = 1.0
        self.ticks = 0
        self.last: ShadowTick | None = None
        self.regrets: dict[str, PolicyRegret] = {}
        self.regret_says = ""
        """Why there is no regret."""
        self._forecast: Final = forecast
        self._regret: Final = regret
        self._regret_span_s: Final = regret_span_s
        self._present: Present | None = None
        self._restarts = 0

    def tick(self) -> ShadowTick:
        """Measures earlier forecasts, and makes a new one from the present state."""
        self.ticks += 1
        if self.window.restarts != self._restarts:
            self._restarts = self.window.restarts
            self.log.restart()
        self.log.measure(self.window)
        present = self._present = self.window.present()
        about = len(present.in_flight), present.servers
        try:
            forecasts = self._forecast(present, self.step_scale)
        except InputError as error:
            self.last = ShadowTick(present.now_s, str(error), None, {}, *about)
            return self.last
        found = forecasts.now
        figures = self.log.issue(found, present.now_s)
        self._learn(found.step_ratio)
        says = SATURATED if found.is_saturated else self.drift() or _gap(present)
        self.last = ShadowTick(present.now_s, says, forecasts, figures, *about)
        return self.last

    def measure_regret(self) -> None:
        """Compares the settings with foresight on the traffic before the last tick.

        It takes many runs, and reads nothing that a tick changes: another thread may continue to
        tick.
        """
        present = self._present
        if self._regret is None or present is None:
            return
        try:
            self.regrets, self.regret_says = self._regret(present, self.step_scale), ""
        except WindtunnelError as error:
            self.regrets, self.regret_says = {}, str(error)

    def _learn(self, ratio: float | None) -> None:
        """Adjusts the scale of step times by part of the last run's error."""
        if ratio is None or ratio <= 0.0:
            return
        scale = self.step_scale * ratio**LEARNING
        self.step_scale = min(max(scale, 1.0 / MOST_SCALE), MOST_SCALE)

    def drift(self) -> str:
        """A sentence if steps take longer or shorter than the scenario says; empty if not."""
        if abs(math.log(self.step_scale)) <= math.log(DRIFTED):
            return ""
        return f"drift: steps take {self.step_scale:.2f} times as long as the scenario says"

    def _cluster(self) -> dict[str, Any] | None:
        known = self.window.cluster
        if known is None:
            return None
        machines = known.machines
        return {
            "replicas": {name: one._asdict() for name, one in sorted(known.replicas.items())},
            "pods": None if known.pods is None else known.pods._asdict(),
            "gangs": None if known.gangs is None else known.gangs._asdict(),
            "machines": None
            if machines is None
            else {name: one._asdict() for name, one in machines.items()},
        }

    def data(self) -> dict[str, Any]:
        """The last tick and everything learned, as plain data."""
        last = self.last
        known = None if last is None else last.forecast
        now = None if known is None else known.now
        return {
            "now_s": self.window.now_s,
            "ticks": self.ticks,
            "says": "no tick yet" if last is None else last.says,
            "saturated": None if now is None else int(now.is_saturated),
            "in_flight": None if last is None else last.in_flight,
            "servers": None if last is None else last.servers,
            "forecast": {} if last is None else plain(last.figures),
            **{name: None if now is None else getattr(now, name) for name in OF_THE_RUN},
            "control": [] if now is None else [one._asdict() for one in now.control],
            "others": {}
            if known is None
            else {
                name: {
                    **one._asdict(),
                    "control": [decision._asdict() for decision in one.control],
                    "decisions": {
                        kind: {**count._asdict(), "share": count.share}
                        for kind, count in known.decisions[name].items()
                    },
                }
                for name, one in known.others.items()
            },
            "regret": {name: one._asdict() for name, one in self.regrets.items()},
            "regret_says": self.regret_says,
            "regret_span": format_duration(self._regret_span_s),
            "accuracy": plain(self.log.accuracy()),
            "step_scale": self.step_scale,
            "cluster": self._cluster(),
            "restarts": self.window.restarts,
            "gaps": self.window.gaps,
            "lost_requests": self.window.lost,
            "late_records": self.window.late,
        }


def _gap(present: Present) -> str:
    """A sentence if records within the window are missing."""
    if not present.gaps:
        return ""
    gap = present.gaps[-1]
    return f"gap: there are no records from {gap.from_s:.0f} s to {gap.to_s:.0f} s"
