"""Kubernetes' HorizontalPodAutoscaler, `autoscaling/v2`: ratios, tolerance, windows, behaviours.

Numbers are compared in thousandths, as Kubernetes does with quantities: ten pods at 0.12 of 0.1 are
12 replicas, where floating point would say 13.
"""

import math
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.scaling.history import History
from windtunnel.scaling.limits import Context, Limiter
from windtunnel.scaling.metrics import Metric
from windtunnel.scaling.parts import Analyzer, Finding, Group, replicas_wanted, unknown

AVERAGE: Final = "average"
TOTAL: Final = "total"
VALUE: Final = "value"
TYPES: Final = (AVERAGE, TOTAL, VALUE)
"""Of a target: the mean of pods, a total divided by it, a ratio to the whole."""


class HpaTarget:
    """A metric and what it should be.

    `average`: Pods and Resource metrics, the mean over ready pods. `total`: External and Object
    metrics with an AverageValue, a total that so much of belongs to each replica. `value`: those
    with a Value, a number of the whole that should be this.
    """

    def __init__(self, metric: Metric, target: float, kind: str = AVERAGE) -> None:
        if not (math.isfinite(target) and target > 0.0):
            what = f"{target!r} is no target for {metric.name}"
            raise InputError(what, where="target", allowed="a finite number above 0")
        if kind not in TYPES:
            raise InputError(f"{kind!r} is no such type", where="type", allowed=", ".join(TYPES))
        self.metric: Final = metric
        self.target: Final = target
        self.kind: Final = kind


class Hpa(Analyzer):
    """Asks for as many replicas as bring each metric to its target; the largest answer counts."""

    def __init__(
        self,
        targets: list[HpaTarget],
        *,
        tolerance: float = 0.1,
        tolerance_down: float | None = None,
    ) -> None:
        super().__init__("hpa")
        if not targets:
            raise InputError("an HPA without metrics decides nothing", where="metrics")
        self._targets: Final = targets
        self._up: Final = tolerance
        self._down: Final = tolerance if tolerance_down is None else tolerance_down

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        if group.current == 0:
            return unknown(group, "No replica is asked for: the HPA is paused.")
        best = -1
        failed = ""
        evidence: dict[str, float] = {}
        said = ""
        for target in self._targets:
            wanted, seen = self._wanted(target, group)
            name = target.metric.name
            if wanted < 0:
                failed = name
                continue
            evidence[name] = seen
            if wanted > best:
                best = wanted
                said = f"{name} is {seen:.4g} of {target.target:.4g}: {wanted} replicas."
        if best < 0:
            return unknown(group, f"There is nothing known of {failed}.", evidence)
        if failed and best < group.current:
            return unknown(group, f"{failed} is not known, so nothing is taken away.", evidence)
        return replicas_wanted(group, best, evidence, said)

    def _wanted(self, target: HpaTarget, group: Group) -> tuple[int, float]:
        """Replicas for a metric, and its value; -1 where it is not known."""
        if target.kind == TOTAL:
            total = target.metric.of_group(group)
            ratio = milli(total) / (milli(target.target) * group.current)
            if self._tolerated(ratio):
                return group.current, total
            return ceil_of(milli(total), milli(target.target)), total
        if target.kind == VALUE:
            seen = target.metric.of_group(group)
            ratio = milli(seen) / milli(target.target)
            if self._tolerated(ratio):
                return group.current, seen
            return ceil_of(milli(seen) * group.ready, milli(target.target)), seen
        return self._by_mean(target, group)

    def _by_mean(self, target: HpaTarget, group: Group) -> tuple[int, float]:
        """The mean of ready pods; those that start count as idle when it would grow."""
        total = 0
        for variant in group.variants:
            for replica in variant.replicas:
                total += milli(target.metric.of_replica(replica, group))
        if group.ready == 0:
            return -1, 0.0
        goal = milli(target.target)
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


class HpaWindows(Limiter):
    """Not above the lowest recommendation of the up window, not below the highest of the other."""

    def __init__(self, up_s: float = 0.0, down_s: float = 300.0) -> None:
        super().__init__("stabilization window")
        self._up_s: Final = _checked("scaleUp.stabilizationWindowSeconds", up_s)
        self._down_s: Final = _checked("scaleDown.stabilizationWindowSeconds", down_s)
        self._seen: Final = History(max(up_s, down_s))

    def limit_group(self, total: int, number: int, context: Context) -> int:
        group, now_s = context.groups[number], context.now_s
        # A controller that has just come up has recommended nothing: the present size stands in.
        first = [] if group.key in self._seen else [group.current]
        lowest = highest = total
        if self._up_s > 0.0:
            lowest = min([total, *first, *self._seen.since(group.key, now_s - self._up_s)])
        if self._down_s > 0.0:
            highest = max([total, *first, *self._seen.since(group.key, now_s - self._down_s)])
        if group.current < lowest:
            return lowest
        return highest if group.current > highest else group.current

    def why(self, before: int, after: int, number: int, context: Context) -> str:
        window_s = self._up_s if after < before else self._down_s
        return f"{after} was recommended within the last {window_s:g} s, now {before}."

    def record_group(self, recommended: int, decided: int, number: int, context: Context) -> None:
        group = context.groups[number]
        if group.key not in self._seen:
            self._seen.add(group.key, context.now_s, group.current)
        self._seen.add(group.key, context.now_s, recommended)

    def state(self) -> dict[str, object]:
        return self._seen.state()

    def restore(self, state: dict[str, object]) -> None:
        self._seen.restore(state)


class Rule:
    """At most so many pods, or so many percent, within a period."""

    def __init__(self, amount: int, period_s: float, *, percent: bool) -> None:
        if amount <= 0:
            raise InputError(f"{amount} is no such step", where="value", allowed="1 or more")
        if not 0.0 < period_s <= 1800.0:
            what = f"{period_s!r} is no such period"
            raise InputError(what, where="periodSeconds", allowed="above 0 and at most 1800")
        self.amount: Final = amount
        self.period_s: Final = period_s
        self.percent: Final = percent


class HpaBehavior(Limiter):
    """How fast: the most (Max) or least (Min) permissive of the rules; Disabled: not at all."""

    def __init__(
        self,
        up: list[Rule] | None = None,
        down: list[Rule] | None = None,
        *,
        select_up: str = "Max",
        select_down: str = "Max",
    ) -> None:
        super().__init__("behavior")
        for where, select in (("scaleUp", select_up), ("scaleDown", select_down)):
            if select not in ("Max", "Min", "Disabled"):
                raise InputError(
                    f"{select!r} is no such policy",
                    where=f"{where}.selectPolicy",
                    allowed="Max, Min, Disabled",
                )
        default_up = [Rule(4, 15.0, percent=False), Rule(100, 15.0, percent=True)]
        self._up: Final = default_up if up is None else up
        self._down: Final = [Rule(100, 15.0, percent=True)] if down is None else down
        self._select_up: Final = select_up
        self._select_down: Final = select_down
        rules = [*self._up, *self._down]
        self._changes: Final = History(max([rule.period_s for rule in rules], default=0.0))

    def limit_group(self, total: int, number: int, context: Context) -> int:
        current = context.groups[number].current
        if total > current:
            return max(current, min(total, self._ceiling(number, context)))
        if total < current:
            return min(current, max(total, self._floor(number, context)))
        return total

    def why(self, before: int, after: int, number: int, context: Context) -> str:
        word = "up" if before > after else "down"
        return f"No faster {word}: {after} within the period, {before} were wanted."

    def record_group(self, recommended: int, decided: int, number: int, context: Context) -> None:
        group = context.groups[number]
        if decided != group.current:
            self._changes.add(group.key, context.now_s, decided - group.current)

    def state(self) -> dict[str, object]:
        return self._changes.state()

    def restore(self, state: dict[str, object]) -> None:
        self._changes.restore(state)

    def _ceiling(self, number: int, context: Context) -> int:
        current = context.groups[number].current
        if self._select_up == "Disabled":
            return current
        allowed = []
        for rule in self._up:
            start = self._start(rule, number, context)
            if rule.percent:
                allowed.append(ceil_of(start * (100 + rule.amount), 100))
            else:
                allowed.append(start + rule.amount)
        return max(allowed) if self._select_up == "Max" else min(allowed)

    def _floor(self, number: int, context: Context) -> int:
        current = context.groups[number].current
        if self._select_down == "Disabled":
            return current
        allowed = []
        for rule in self._down:
            start = self._start(rule, number, context)
            if rule.percent:
                allowed.append(start * max(0, 100 - rule.amount) // 100)
            else:
                allowed.append(start - rule.amount)
        return min(allowed) if self._select_down == "Max" else max(allowed)

    def _start(self, rule: Rule, number: int, context: Context) -> int:
        """The size at the start of the rule's period."""
        group = context.groups[number]
        return group.current - sum(self._changes.since(group.key, context.now_s - rule.period_s))


def milli(value: float) -> int:
    """In thousandths, rounded up, as Kubernetes reads quantities."""
    return math.ceil(value * 1000.0 - 1e-6)


def ceil_of(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def _checked(where: str, value: float) -> float:
    if not 0.0 <= value <= 3600.0:
        raise InputError(f"{value!r} is no such window", where=where, allowed="0 to 3600 s")
    return value
