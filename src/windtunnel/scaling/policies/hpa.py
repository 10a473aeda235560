"""Kubernetes' HorizontalPodAutoscaler, `autoscaling/v2`: ratios, tolerance, windows, behavior.

Numbers are compared in thousandths, as Kubernetes does with quantities: ten pods at 0.12 for a
target of 0.1 make 12 replicas, where floating point would make 13.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, FieldSerializationInfo, field_serializer

from windtunnel.scaling.analyzers import Analyzer, Finding, Group, replicas_wanted, unknown
from windtunnel.scaling.history import History
from windtunnel.scaling.limiters import LimitContext, Limiter
from windtunnel.scaling.metrics import SUM, Metric, draw_targets, metric, with_missing
from windtunnel.scaling.policy import BY_VARIANT, PolicyParts
from windtunnel.scaling.settings import PolicySettings, refusals
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Number, Share, Text, Whole
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.section import Added, Context, Section

AVERAGE: Final = "average"
TOTAL: Final = "total"
VALUE: Final = "value"

MetricName = Annotated[str, Text("the name of a metric")]
MetricTarget = Annotated[float, Number(0, 10**18, above=True)]
HpaWindow = Annotated[float, Duration("0s", "1h")]
Tolerance = Annotated[float, Share()]


class HpaRule(Section):
    """Pods that may be added or removed per period."""

    pods: Annotated[int, Whole(1, MOST_REPLICAS)] | None = Field(
        default=None, description="Number of pods; this or `percent`."
    )
    percent: Annotated[int, Whole(1, 10**6)] | None = Field(
        default=None, description="Percent of the size at the start of the period; this or `pods`."
    )
    period_s: Annotated[float, Duration("0s", "30m", above=True)] = Field(
        default=15.0, description="The period."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if (self.pods is None) == (self.percent is None):
            yield where.fault((), "a rule has either pods or percent")


class HpaDirection(Section):
    """`behavior` of an HPA in one direction."""

    window_s: HpaWindow
    rules: list[HpaRule]
    select: Literal["Max", "Min", "Disabled"] = Field(
        default="Max", description="Which rule applies; Disabled: no change in this direction."
    )
    tolerance: Tolerance | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Default: the policy's `tolerance`.",
    )

    @field_serializer("window_s", "rules", check_fields=False)
    def _as_written(self, value: Any, info: FieldSerializationInfo) -> Any:
        """Serializes omitted values as null, so that digests do not depend on defaults."""
        return value if self.written(info.field_name) else None

    @classmethod
    def draw(cls, dice: Dice) -> Values:
        drawn: Values = {"window": dice.pick(0, 0.5, 20.0)}
        if dice.chance(0.5):
            rules = [{"pods": dice.few(1, 4)}, {"percent": dice.pick(10, 100, 400)}]
            drawn["rules"] = [{**rule, "period": dice.span(0.5, 30.0)} for rule in dice.some(rules)]
            drawn["select"] = dice.pick("Max", "Min", "Disabled")
        return drawn

    def check(self, where: Context) -> Iterator[Fault]:
        if not self.rules:
            yield where.fault("rules", "there is no rule", hint="leave it out, or give one")


class HpaUp(HpaDirection):
    """`behavior.scaleUp` of an HPA."""

    window_s: HpaWindow = Field(default=0.0, description="`stabilizationWindowSeconds`.")
    rules: list[HpaRule] = Field(
        default_factory=lambda: [HpaRule(pods=4), HpaRule(percent=100)],
        description="Its `policies`. Default: 4 or 100% per 15s.",
    )


class HpaDown(HpaDirection):
    """`behavior.scaleDown` of an HPA."""

    window_s: HpaWindow = Field(default=300.0, description="`stabilizationWindowSeconds`.")
    rules: list[HpaRule] = Field(
        default_factory=lambda: [HpaRule(percent=100)],
        description="Its `policies`. Default: 100% per 15s.",
    )


class HpaMetric(Section):
    """A metric of an HPA."""

    name: MetricName = Field(description="Such as `vllm:num_requests_waiting`.")
    target: MetricTarget = Field(description="Its target.")
    type: Literal["average", "total", "value"] = Field(
        default="average",
        description="`average`: mean of ready replicas (Pods, Resource); `total`: a total per "
        "replica (External, AverageValue); `value`: the total.",
    )

    aggregate: Annotated[Literal["sum", "avg", "max"], Added()] = Field(
        default=SUM,
        description="How `total` and `value` aggregate replicas.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        yield from refusals(where, "name", metric, self.name)

    def measured(self) -> Metric:
        """The metric that is compared with the target."""
        return metric(self.name, "metrics")


class HpaPace(Section):
    """An HPA that carries out the decisions of another autoscaler."""

    tolerance: Tolerance = Field(default=0.1, description="Tolerated relative difference in size.")
    up: HpaUp = Field(default_factory=HpaUp, description="`scaleUp`.")
    down: HpaDown = Field(default_factory=HpaDown, description="`scaleDown`.")

    def limiters(self, pool: str) -> list[Limiter]:
        """The limiters for groups led by this pool."""
        up, down = (
            self.tolerance if way.tolerance is None else way.tolerance
            for way in (self.up, self.down)
        )
        return [HpaTolerance(up, down, pool), *pace_limiters(self.up, self.down, pool)]


class HpaSettings(PolicySettings):
    """Kubernetes' HorizontalPodAutoscaler: each pool is scaled by its own metrics."""

    unused: ClassVar[dict[str, str]] = {
        "stabilization": "leave it out; `up.window` and `down.window` are its windows"
    }

    policy: Literal["hpa"]
    metrics: list[HpaMetric] = Field(
        description="Metrics with targets; the largest size wins.",
        examples=[[{"name": "vllm:num_requests_waiting", "target": 10}]],
    )
    tolerance: Tolerance = Field(default=0.1, description="Tolerated relative deviation.")
    up: HpaUp = Field(default_factory=HpaUp, description="`scaleUp`.")
    down: HpaDown = Field(default_factory=HpaDown, description="`scaleDown`.")

    def parts(self) -> PolicyParts:
        limiters = pace_limiters(self.up, self.down)
        return PolicyParts([Hpa(self)], limiters=limiters, grouping=BY_VARIANT)

    def faults(self, where: Context, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().faults(where, pools)
        if not self.metrics:
            yield where.fault("metrics", "there is no metric", "at least one")

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        metrics = [
            {
                "name": name,
                "target": target,
                "type": dice.pick("average", "total", "value"),
                "aggregate": dice.pick("sum", "sum", "avg", "max"),
            }
            for name, target in draw_targets(dice).items()
        ]
        return {
            "metrics": metrics,
            "up": HpaUp.draw(dice),
            "down": HpaDown.draw(dice),
            "tolerance": dice.pick(0, 0.1, 1),
        }

    def window_down(self) -> tuple[str, float | None]:
        return "down.window", self.down.window_s


class Hpa(Analyzer):
    """Asks for the replicas that bring each metric to its target; the largest number wins."""

    def __init__(self, settings: HpaSettings) -> None:
        super().__init__("hpa")
        up, down = settings.up.tolerance, settings.down.tolerance
        self._metrics: Final = [(one.measured(), one) for one in settings.metrics]
        self._up: Final = settings.tolerance if up is None else up
        self._down: Final = settings.tolerance if down is None else down

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        if group.current == 0:
            return unknown(group, "The target has 0 replicas: the HPA is paused.")
        best = -1
        failed = ""
        evidence: dict[str, float] = {}
        said = ""
        for measured, one in self._metrics:
            wanted, seen = self._wanted(measured, one, group)
            name = one.name
            if wanted < 0:
                failed = name
                continue
            evidence[name] = seen
            if wanted > best:
                best = wanted
                said = f"{name} is {seen:.4g} of {one.target:.4g}: {wanted} replicas."
        if best < 0:
            return unknown(group, f"{failed} is unknown.", evidence)
        if failed and best < group.current:
            return unknown(group, f"{failed} is unknown, so no replica is removed.", evidence)
        return replicas_wanted(group, best, evidence, said)

    def _wanted(self, measured: Metric, one: HpaMetric, group: Group) -> tuple[int, float]:
        """Replicas for a metric, and its value; -1 if it is unknown."""
        if not measured.is_known(group):
            return -1, 0.0
        if one.type == AVERAGE:
            return self._by_mean(measured, milli(one.target), group)
        seen, missing = measured.of_group(group, one.aggregate), measured.missing(group)
        total, goal = milli(seen), milli(one.target)
        if one.type == VALUE:
            ratio, wanted = total / goal, ceil_of(total * group.ready, goal)
        else:
            if one.aggregate == SUM:
                total = int(with_missing(total, missing, goal, group.current))
                missing = 0
            ratio, wanted = total / (goal * group.current), ceil_of(total, goal)
        if self._tolerated(ratio) or (missing and ratio < 1.0):
            return group.current, seen
        return wanted, seen

    def _by_mean(self, measured: Metric, goal: int, group: Group) -> tuple[int, float]:
        """Replicas by the mean over ready pods; starting pods count as idle if it would grow."""
        if group.ready == 0:
            return -1, 0.0
        total = sum(milli(value) for value in measured.of_replicas(group))
        total = int(with_missing(total, measured.missing(group), goal, group.ready))
        ratio = total / (goal * group.ready)
        mean = total / 1000.0 / group.ready
        unready = sum(variant.coming for variant in group.variants)
        if unready == 0 or ratio <= 1.0:
            if self._tolerated(ratio):
                return group.current, mean
            return ceil_of(total, goal), mean
        pods = group.ready + unready
        again = total / (goal * pods)
        if self._tolerated(again) or again < 1.0:
            return group.current, mean
        return max(group.current, ceil_of(total, goal)), mean

    def _tolerated(self, ratio: float) -> bool:
        return 1.0 - self._down <= ratio + 1e-12 and ratio - 1e-12 <= 1.0 + self._up


class HpaTolerance(Limiter):
    """Keeps the current size if the new one differs by no more than the tolerance."""

    def __init__(self, up: float, down: float, pool: str = "") -> None:
        super().__init__("tolerance", pool)
        self._up: Final = up
        self._down: Final = down

    def limit_group(self, total: int, number: int, context: LimitContext) -> int:
        current = context.groups[number].current
        ratio = total / current if current else math.inf
        tolerated = 1.0 - self._down <= ratio + 1e-12 and ratio - 1e-12 <= 1.0 + self._up
        return current if tolerated else total

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        return f"{before} is within the tolerance of the HPA around {after}."


class HpaWindows(Limiter):
    """At most the up window's lowest recommendation; at least the down window's highest."""

    def __init__(self, up_s: float, down_s: float, pool: str = "") -> None:
        super().__init__("stabilization window", pool)
        self._up_s: Final = up_s
        self._down_s: Final = down_s
        self._seen: Final = History(max(up_s, down_s), self.remember("recommended"))

    def limit_group(self, total: int, number: int, context: LimitContext) -> int:
        group, now_s = context.groups[number], context.now_s
        # A controller that has just started has no recommendations: it uses the current size.
        first = [] if group.key in self._seen else [group.current]
        lowest = highest = total
        if self._up_s > 0.0:
            lowest = min([total, *first, *self._seen.since(group.key, now_s - self._up_s)])
        if self._down_s > 0.0:
            highest = max([total, *first, *self._seen.since(group.key, now_s - self._down_s)])
        if group.current < lowest:
            return lowest
        return highest if group.current > highest else group.current

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        window_s = self._up_s if after < before else self._down_s
        return f"{after} was recommended within the last {window_s:g} s; now it is {before}."

    def record_group(
        self, recommended: int, decided: int, number: int, context: LimitContext
    ) -> None:
        group = context.groups[number]
        if group.key not in self._seen:
            self._seen.note(group.key, context.now_s, group.current)
        self._seen.note(group.key, context.now_s, recommended)


class HpaBehavior(Limiter):
    """Limits the rate by the most (Max) or least (Min) permissive rule; Disabled: no change."""

    def __init__(self, up: HpaUp, down: HpaDown, pool: str = "") -> None:
        super().__init__("behavior", pool)
        self._up: Final = up
        self._down: Final = down
        periods = [rule.period_s for rule in (*up.rules, *down.rules)]
        self._changes: Final = History(max(periods, default=0.0), self.remember("changes"))

    def limit_group(self, total: int, number: int, context: LimitContext) -> int:
        current = context.groups[number].current
        if total > current:
            return max(current, min(total, self._reach(1, number, context)))
        if total < current:
            return min(current, max(total, self._reach(-1, number, context)))
        return total

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        word = "up" if before > after else "down"
        return f"The limit on scaling {word} allows {after} now; {before} were recommended."

    def record_group(
        self, recommended: int, decided: int, number: int, context: LimitContext
    ) -> None:
        group = context.groups[number]
        if decided != group.current:
            self._changes.add(group.key, context.now_s, decided - group.current)

    def _reach(self, sign: int, number: int, context: LimitContext) -> int:
        """The farthest size that the rules allow now, upwards (`sign` is 1) or downwards (-1)."""
        direction = self._up if sign > 0 else self._down
        if direction.select == "Disabled":
            return context.groups[number].current
        allowed = []
        for rule in direction.rules:
            start = self._start(rule, number, context)
            share = rule.percent
            change = (rule.pods or 0) if share is None else ceil_of(start * share, 100)
            allowed.append(sign * start + change)
        return sign * (max(allowed) if direction.select == "Max" else min(allowed))

    def _start(self, rule: HpaRule, number: int, context: LimitContext) -> int:
        """The size at the start of the rule's period."""
        group = context.groups[number]
        return group.current - sum(self._changes.since(group.key, context.now_s - rule.period_s))


def pace_limiters(up: HpaUp, down: HpaDown, pool: str = "") -> list[Limiter]:
    """The stabilization windows of an HPA, then its rules."""
    return [HpaWindows(up.window_s, down.window_s, pool), HpaBehavior(up, down, pool)]


def milli(value: float) -> int:
    """Converts to thousandths, rounded up, as in Kubernetes quantities."""
    return math.ceil(value * 1000.0 - 1e-6)


def ceil_of(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
