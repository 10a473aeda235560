"""Knative's pod autoscaler (KPA): mean concurrency over a stable and a panic window."""

import math
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.scaling.history import History
from windtunnel.scaling.metrics import Metric
from windtunnel.scaling.parts import Analyzer, Finding, Group, replicas_wanted
from windtunnel.scaling.peers.means import Means


class KnativeSettings:
    """What the annotations of a service say; the defaults are Knative's."""

    def __init__(
        self,
        *,
        target: float = 70.0,
        stable_window_s: float = 60.0,
        panic_window_percent: float = 10.0,
        panic_threshold_percent: float = 200.0,
        max_scale_up_rate: float = 1000.0,
        max_scale_down_rate: float = 2.0,
        scale_down_delay_s: float = 0.0,
        activation_scale: int = 1,
    ) -> None:
        _between("target", target, 0.01, math.inf)
        _between("window", stable_window_s, 6.0, 3600.0)
        _between("panic-window-percentage", panic_window_percent, 1.0, 100.0)
        _between("panic-threshold-percentage", panic_threshold_percent, 110.0, 1000.0)
        _between("max-scale-up-rate", max_scale_up_rate, 1.001, math.inf)
        _between("max-scale-down-rate", max_scale_down_rate, 1.001, math.inf)
        _between("scale-down-delay", scale_down_delay_s, 0.0, 3600.0)
        _between("activation-scale", activation_scale, 1, 1_000_000)
        self.target: Final = target  # of a replica, the utilisation percentage already applied
        self.stable_window_s: Final = stable_window_s
        self.panic_window_s: Final = stable_window_s * panic_window_percent / 100.0
        self.panic_threshold: Final = panic_threshold_percent / 100.0
        self.max_scale_up_rate: Final = max_scale_up_rate
        self.max_scale_down_rate: Final = max_scale_down_rate
        self.scale_down_delay_s: Final = scale_down_delay_s
        self.activation_scale: Final = activation_scale


class Knative(Analyzer):
    """Enough replicas for the mean of a minute; in a panic, of six seconds, and never fewer."""

    def __init__(self, metric: Metric, settings: KnativeSettings) -> None:
        super().__init__("knative")
        self._metric: Final = metric
        self._settings: Final = settings
        self._means: Final = Means(settings.stable_window_s)
        self._panic_s: Final[dict[str, float]] = {}  # when a panic was last renewed
        self._panic_size: Final[dict[str, int]] = {}
        self._delayed: Final = History(settings.scale_down_delay_s)
        self._known: Final[dict[str, bool]] = {}

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        settings, key = self._settings, group.key
        self._means.add(key, now_s, self._metric.of_group(group))
        stable = self._means.mean(key, now_s, settings.stable_window_s)
        panic = self._means.mean(key, now_s, settings.panic_window_s)
        ready = max(1, group.ready)
        over = math.ceil(panic / settings.target) / ready >= settings.panic_threshold
        by_stable = self._within(stable, ready)
        by_panic = self._within(panic, ready)
        if key not in self._known:  # one that comes up beside running pods holds them for a while
            self._known[key] = True
            if group.ready > 1:
                self._panic_s[key] = now_s
                self._panic_size[key] = group.ready
        if over:
            self._panic_s[key] = now_s
        elif key in self._panic_s and self._panic_s[key] + settings.stable_window_s < now_s:
            del self._panic_s[key]
            self._panic_size.pop(key, None)
        evidence = {"mean_stable": stable, "mean_panic": panic, "target": settings.target}
        if key in self._panic_s:
            wanted = max(by_stable, by_panic, self._panic_size.get(key, 0))
            self._panic_size[key] = wanted
            wanted = self._delay(key, wanted, now_s)
            said = f"Panic: {panic:.4g} over {settings.panic_window_s:g} s, {wanted} replicas."
            return replicas_wanted(group, wanted, evidence, said)
        wanted = self._delay(key, by_stable, now_s)
        said = f"{stable:.4g} over {settings.stable_window_s:g} s, {wanted} replicas."
        return replicas_wanted(group, wanted, evidence, said)

    def state(self) -> dict[str, object]:
        return {
            "means": self._means.state(),
            "panic": dict(self._panic_s),
            "panic_size": dict(self._panic_size),
            "delayed": self._delayed.state(),
            "known": list(self._known),
        }

    def restore(self, state: dict[str, object]) -> None:
        for name, restore in (
            ("means", self._means.restore),
            ("panic", self._panic_s.update),
            ("panic_size", self._panic_size.update),
            ("delayed", self._delayed.restore),
        ):
            saved = state.get(name)
            if isinstance(saved, dict):
                restore(saved)
        known = state.get("known")
        if isinstance(known, list):
            self._known.update((str(key), True) for key in known)

    def _within(self, mean: float, ready: int) -> int:
        settings = self._settings
        wanted = math.ceil(mean / settings.target)
        up = math.ceil(settings.max_scale_up_rate * ready)
        down = math.floor(ready / settings.max_scale_down_rate)
        size = min(max(wanted, down), up)
        return max(size, settings.activation_scale) if wanted > 0 else size

    def _delay(self, key: str, wanted: int, now_s: float) -> int:
        """The largest of the last seconds, where going down is to be delayed."""
        if self._settings.scale_down_delay_s <= 0.0:
            return wanted
        self._delayed.add(key, now_s, wanted)
        return max(self._delayed.since(key, now_s - self._settings.scale_down_delay_s))


def _between(where: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        allowed = f"{low:g} or more" if high == math.inf else f"{low:g} to {high:g}"
        raise InputError(f"{value!r} is out of range", where=where, allowed=allowed)
