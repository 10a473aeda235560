"""AIBrix' PodAutoscaler: its KPA and APA strategies, and its cooldown."""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from windtunnel.scaling.analyzers import Analyzer, Finding, Group, replicas_wanted, unknown
from windtunnel.scaling.history import History
from windtunnel.scaling.limiters import LimitContext, Limiter
from windtunnel.scaling.metrics import draw_targets, metric, with_missing
from windtunnel.scaling.policies.hpa import HpaWindow, MetricName, MetricTarget
from windtunnel.scaling.policy import BY_VARIANT, PolicyParts
from windtunnel.scaling.settings import PolicySettings, refusals
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Number, Share
from windtunnel.settings.section import Added, Context

Span = Annotated[float, Duration("1s", "1h"), Added()]
Tolerance = Annotated[float, Share(), Added()]
Factor = Annotated[float, Number(1, 10**6), Added()]


class AibrixSettings(PolicySettings):
    """AIBrix' PodAutoscaler: means over three minutes, at most doubling or halving at a time."""

    policy: Literal["aibrix"]
    metrics: dict[MetricName, MetricTarget] = Field(
        description="Target of each metric's mean over replicas; the highest recommendation wins."
    )
    strategy: Literal["APA", "KPA"] = Field(
        default="APA",
        description="`APA`: the size times the ratio; `KPA`: the mean over the target, which only "
        "fits totals.",
    )
    external: Annotated[list[MetricName], Added()] = Field(
        default_factory=list,
        description="Metrics that are one number for the pool.",
    )
    window_s: Span = Field(default=180.0, description="Window of the means.")
    panic_window_s: Span = Field(default=60.0, description="Window of panic means, for `KPA`.")
    panic_threshold: Factor = Field(
        default=2.0, description="Ratio of the two means that starts a panic, for `KPA`."
    )
    up_tolerance: Tolerance = Field(
        default=0.1, description="Tolerated relative deviation above a target."
    )
    down_tolerance: Tolerance = Field(default=0.1, description="The same below a target.")
    max_up_rate: Factor = Field(default=2.0, description="Largest growth factor.")
    max_down_rate: Factor = Field(default=2.0, description="Largest shrink factor.")
    up_cooldown_s: HpaWindow = Field(
        default=0.0, description="Window of recommendations; it grows to the highest of them."
    )
    down_cooldown_s: HpaWindow = Field(
        default=300.0,
        description="Window of recommendations; it shrinks to the lowest of them, as shipped.",
    )

    def parts(self) -> PolicyParts:
        cooldown = AibrixCooldown(self.up_cooldown_s, self.down_cooldown_s)
        return PolicyParts([Aibrix(self)], limiters=[cooldown], grouping=BY_VARIANT)

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        metrics = draw_targets(dice)
        return {
            "metrics": metrics,
            "external": dice.some(list(metrics)) if dice.chance(0.3) else [],
            "strategy": dice.pick("APA", "KPA"),
            "window": dice.pick(1.0, 30.0, 180.0),
            "up_tolerance": dice.pick(0, 0.1, 1),
            "max_down_rate": dice.pick(1, 2, 100),
            "up_cooldown": dice.pick(0, 2.0),
            "down_cooldown": dice.pick(0, 1.0, 20.0),
        }

    def faults(self, where: Context, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().faults(where, pools)
        if not self.metrics:
            yield where.fault("metrics", "there is no metric", "at least one")
        for name in self.metrics:
            yield from refusals(where, ("metrics", name), metric, name)
        for number, name in enumerate(self.external):
            if name not in self.metrics:
                allowed = ", ".join(self.metrics)
                yield where.fault(("external", number), "there is no such metric", allowed)


class Aibrix(Analyzer):
    """Compares the smoothed mean over pods of each metric with its target; the largest size wins.

    APA multiplies the size by the ratio; KPA takes the mean over the target as the size, which is
    right only for a metric that is a total of the fleet. That is how AIBrix ships it.
    """

    def __init__(self, settings: AibrixSettings) -> None:
        super().__init__("aibrix")
        self._targets: Final = [
            (metric(name, "metrics"), target) for name, target in settings.metrics.items()
        ]
        self._settings: Final = settings
        self._means: Final = History(settings.window_s, self.remember("means"))

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        if group.ready == 0:
            return unknown(group, "No pod is ready, so nothing can be measured.")
        best, settings = 0, self._settings
        evidence: dict[str, float] = {}
        for measured, target in self._targets:
            if not measured.is_known(group):
                return unknown(group, f"{measured.name} is unknown.", evidence)
            missing = measured.missing(group)
            if measured.name in settings.external:
                seen = measured.of_group(group, measured.natural)
                seen = max(seen, target) if missing else seen
            else:
                total = sum(measured.of_replicas(group), 0.0)
                seen = with_missing(total, missing, target, group.ready) / group.ready
            key = f"{group.key}/{measured.name}"
            self._means.add(key, now_s, seen)
            stable = self._means.mean(key, now_s - settings.window_s)
            evidence[measured.name] = stable
            if settings.strategy == "APA":
                best = max(best, self._apa_size(stable, target, group.current))
            else:
                panic = self._means.mean(key, now_s - settings.panic_window_s)
                best = max(best, self._kpa_size(stable, panic, target, group.current))
        said = f"{best} replicas bring the means to their targets."
        return replicas_wanted(group, best, evidence, said)

    def _apa_size(self, mean: float, target: float, current: int) -> int:
        settings, ratio = self._settings, mean / target
        if ratio > 1.0 + settings.up_tolerance:
            return min(math.ceil(current * ratio), math.ceil(settings.max_up_rate * current))
        if ratio < 1.0 - settings.down_tolerance:
            return max(math.ceil(current * ratio), math.floor(current / settings.max_down_rate))
        return current

    def _kpa_size(self, stable: float, panic: float, target: float, current: int) -> int:
        by_stable = self._kpa_of(stable, target, current)
        if stable <= 0.0 or panic / stable > self._settings.panic_threshold:
            return max(by_stable, self._kpa_of(panic, target, current))
        return by_stable

    def _kpa_of(self, mean: float, target: float, current: int) -> int:
        settings = self._settings
        low, high = target * (1.0 - settings.down_tolerance), target * (1.0 + settings.up_tolerance)
        wanted = current if low <= mean <= high else math.ceil(mean / target)
        least = math.floor(current / settings.max_down_rate)
        return min(max(wanted, least), max(1, math.ceil(settings.max_up_rate * current)))


class AibrixCooldown(Limiter):
    """Grows to the highest of the up window; shrinks to the *lowest* of the down window, at once.

    As AIBrix ships it: its 300 s do not delay scaling down, they let it go further.
    """

    def __init__(self, up_s: float, down_s: float) -> None:
        super().__init__("cooldown")
        self._up_s: Final = up_s
        self._down_s: Final = down_s
        self._seen: Final = History(max(up_s, down_s), self.remember("recommended"))

    def limit_group(self, total: int, number: int, context: LimitContext) -> int:
        group, now_s = context.groups[number], context.now_s
        if total > group.current:
            return max([total, *self._seen.since(group.key, now_s - self._up_s)])
        if total < group.current:
            return min([total, *self._seen.since(group.key, now_s - self._down_s)])
        return total

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        if after > before:
            return f"{after} is the highest recommendation of the last {self._up_s:g} s."
        return f"{after} is the lowest recommendation of the last {self._down_s:g} s."

    def record_group(
        self, recommended: int, decided: int, number: int, context: LimitContext
    ) -> None:
        self._seen.note(context.groups[number].key, context.now_s, recommended)
