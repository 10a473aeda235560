"""Knative's pod autoscaler (KPA): mean concurrency over a stable and a panic window."""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from windtunnel.scaling.analyzers import Analyzer, Finding, Group, replicas_wanted, unknown
from windtunnel.scaling.history import History
from windtunnel.scaling.metrics import DRAWN, metric, with_missing
from windtunnel.scaling.policies.hpa import HpaWindow, MetricName
from windtunnel.scaling.policy import BY_VARIANT, PolicyParts
from windtunnel.scaling.settings import PolicySettings, Step, refusals
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Number
from windtunnel.settings.section import Added, Context

Factor = Annotated[float, Number(1.001, 10**6)]
_OUTSIDE: Final = 1e-4


class KnativeSettings(PolicySettings):
    """Knative's pod autoscaler: means over a minute, in a panic six seconds. Set `interval: 2s`."""

    policy: Literal["knative"]
    metric: MetricName = Field(default="concurrency", description="The metric that is averaged.")
    target: Annotated[float, Number(0.01, 10**9)] = Field(
        default=100.0, description="Target of the metric per replica."
    )
    utilization_percent: Annotated[float, Number(1, 100)] = Field(
        default=70.0, description="Percentage of the target to aim at."
    )
    window_s: Annotated[float, Duration("6s", "1h")] = Field(
        default=60.0, description="The stable window."
    )
    panic_window_percent: Annotated[float, Number(1, 100)] = Field(
        default=10.0, description="The panic window, as a percentage of the stable one."
    )
    panic_threshold_percent: Annotated[float, Number(110, 1000)] = Field(
        default=200.0,
        description="Load that starts a panic, in percent of ready capacity.",
    )
    aggregation: Annotated[Literal["linear", "weighted-exponential"], Added()] = Field(
        default="linear",
        description="Whether all seconds of a window count equally, or later ones more.",
    )
    max_scale_up_rate: Factor = Field(default=1000.0, description="Largest growth factor.")
    max_scale_down_rate: Factor = Field(default=2.0, description="Largest shrink factor.")
    scale_down_delay_s: HpaWindow = Field(
        default=0.0, description="Window of recommendations; it shrinks to the highest of them."
    )
    activation_scale: Step = Field(default=1, description="Fewest replicas under load.")

    def parts(self) -> PolicyParts:
        return PolicyParts([Knative(self)], grouping=BY_VARIANT)

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        return {
            "metric": dice.pick(*DRAWN),
            "target": dice.span(1.0, 20.0),
            "utilization_percent": dice.pick(1, 70, 100),
            "window": dice.span(6.0, 100.0),
            "scale_down_delay": dice.pick(0, 5.0),
            "aggregation": dice.pick("linear", "weighted-exponential"),
            "activation_scale": dice.few(1, 3),
        }

    def faults(self, where: Context, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().faults(where, pools)
        yield from refusals(where, "metric", metric, self.metric)


class Knative(Analyzer):
    """Sizes for the mean over a minute; in a panic, over six seconds, without shrinking."""

    def __init__(self, settings: KnativeSettings) -> None:
        super().__init__("knative")
        self._metric: Final = metric(settings.metric)
        self._settings: Final = settings
        self._target: Final = settings.target * settings.utilization_percent / 100.0
        self._panic_window_s: Final = settings.window_s * settings.panic_window_percent / 100.0
        self._panic_threshold: Final = settings.panic_threshold_percent / 100.0
        weighted = settings.aggregation != "linear"
        self._kept_stable: Final = _kept(settings.window_s) if weighted else 1.0
        self._kept_panic: Final = _kept(self._panic_window_s) if weighted else 1.0
        self._means: Final = History(settings.window_s, self.remember("means"))
        # By group: when a panic was last renewed.
        self._panic_s: Final[dict[str, float]] = self.remember("panic")
        self._panic_size: Final[dict[str, int]] = self.remember("panic_size")
        self._delayed: Final = History(settings.scale_down_delay_s, self.remember("delayed"))

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        settings, key = self._settings, group.key
        if not self._metric.is_known(group):
            return unknown(group, "No replica answered: no change.")
        if key not in self._means and group.ready > 1:
            # An autoscaler that starts beside running pods keeps them for a while.
            self._panic_s[key] = now_s
            self._panic_size[key] = group.ready
        ready = max(1, group.ready)
        missing, total = self._metric.missing(group), self._metric.of_group(group)
        self._means.add(key, now_s, with_missing(total, missing, self._target, ready))
        stable = self._means.mean(key, now_s - settings.window_s, self._kept_stable)
        panic = self._means.mean(key, now_s - self._panic_window_s, self._kept_panic)
        over = math.ceil(panic / self._target) / ready >= self._panic_threshold
        by_stable = self._within(stable, ready)
        by_panic = self._within(panic, ready)
        if over:
            self._panic_s[key] = now_s
        elif key in self._panic_s and self._panic_s[key] + settings.window_s < now_s:
            del self._panic_s[key]
            self._panic_size.pop(key, None)
        evidence = {"mean_stable": stable, "mean_panic": panic, "target": self._target}
        if key in self._panic_s:
            wanted = max(by_stable, by_panic, self._panic_size.get(key, 0))
            self._panic_size[key] = wanted
            wanted = self._delay(key, wanted, now_s)
            said = f"Panic: {panic:.4g} over {self._panic_window_s:g} s, {wanted} replicas."
            return replicas_wanted(group, wanted, evidence, said)
        wanted = self._delay(key, by_stable, now_s)
        said = f"{stable:.4g} over {settings.window_s:g} s, {wanted} replicas."
        return replicas_wanted(group, wanted, evidence, said)

    def _within(self, mean: float, ready: int) -> int:
        settings = self._settings
        wanted = math.ceil(mean / self._target)
        up = math.ceil(settings.max_scale_up_rate * ready)
        down = math.floor(ready / settings.max_scale_down_rate)
        size = min(max(wanted, down), up)
        return max(size, settings.activation_scale) if wanted > 0 else size

    def _delay(self, key: str, wanted: int, now_s: float) -> int:
        """The largest recent recommendation, if scaling down is delayed."""
        if self._settings.scale_down_delay_s <= 0.0:
            return wanted
        self._delayed.note(key, now_s, wanted)
        return max(self._delayed.since(key, now_s - self._settings.scale_down_delay_s))


def _kept(window_s: float) -> float:
    """The weight of a number in a weighted window one second later.

    Only a ten-thousandth of the weight lies outside the window; the result is at most 0.8.
    """
    return min(0.8, math.pow(_OUTSIDE, 1.0 / max(1.0, window_s)))
