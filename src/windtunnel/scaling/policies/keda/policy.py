"""KEDA's ScaledObject: an HPA, and KEDA's own scaling between zero and one."""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from windtunnel.core.errors import InputError
from windtunnel.scaling.analyzers import Finding, Group
from windtunnel.scaling.limiters import LimitContext, Limiter
from windtunnel.scaling.metrics import MEAN, REQUESTS, SUM, Metric, metric
from windtunnel.scaling.policies.hpa import (
    TOTAL,
    Hpa,
    HpaMetric,
    HpaSettings,
    MetricName,
    MetricTarget,
)
from windtunnel.scaling.policies.keda.cron import (
    ALLOWED,
    CronSchedule,
    CronTimes,
    begin_of,
    zone_of,
)
from windtunnel.scaling.policies.keda.formula import Formula
from windtunnel.scaling.policy import BY_VARIANT, PolicyParts
from windtunnel.scaling.settings import Replicas, Step, refusals
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Number, Text
from windtunnel.settings.limits import LONGEST_RUN
from windtunnel.settings.section import Added, Context, Section

FIRST_DAY = "2026-01-05T00:00"
"""A Monday, in UTC."""
Begins = Annotated[str, Text("a date and time")]
BEGINS = "Date and time at the start of the run, in UTC unless it has an offset."
Activation = Annotated[float, Number(-(10**9), 10**9)]
Above = Annotated[float, Number(-(10**9), 10**9)]
ABOVE = "Its value is 1 while the metric is above this and 0 otherwise, as with PromQL's `> bool`."


class KedaMetric(HpaMetric):
    """A trigger of KEDA."""

    activation: Annotated[Activation | None, Added()] = Field(
        default=None,
        description="Also active while above this. Default: only the first metric counts, "
        "against the policy's `activation`.",
    )
    above: Annotated[Above | None, Added()] = Field(default=None, description=ABOVE)

    def measured(self) -> Metric:
        return compared(super().measured(), self.above)


class KedaSchedule(Section):
    """A `cron` trigger of KEDA: a number of replicas between two times."""

    start: Annotated[str, Text("a cron expression")] = Field(
        description="When it starts, as in `30 9 * * 1-5`."
    )
    end: Annotated[str, Text("a cron expression")] = Field(description="When it ends.")
    timezone: Annotated[str, Text("a time zone")] = Field(
        default="UTC", description="Time zone, such as `Europe/Berlin`."
    )
    replicas: Step = Field(description="Fewest replicas in between.")

    def check(self, where: Context) -> Iterator[Fault]:
        zone = zone_of("UTC")
        yield from refusals(where, "timezone", zone_of, self.timezone)
        for key, text in (("start", self.start), ("end", self.end)):
            yield from refusals(where, key, CronTimes, text, zone)
        if self.start.split() == self.end.split():
            yield where.fault("end", "it ends when it starts", ALLOWED)


class FormulaOperand(Section):
    """A metric with a name in a formula."""

    metric: MetricName = Field(description="Such as `vllm:num_requests_waiting`.")
    aggregate: Literal["sum", "avg", "max"] = Field(
        default=SUM, description="How replicas are aggregated."
    )
    above: Annotated[Above | None, Added()] = Field(default=None, description=ABOVE)

    def check(self, where: Context) -> Iterator[Fault]:
        yield from refusals(where, "metric", metric, self.metric)

    def measured(self) -> Metric:
        return compared(metric(self.metric), self.above)


class KedaFormula(Section):
    """`scalingModifiers` of KEDA: one metric computed from others."""

    formula: Annotated[str, Text("a formula")] = Field(
        description="Such as `max(queue, kv * 10)`, of the names in `of`."
    )
    of: dict[str, FormulaOperand] = Field(description="The metric of each name.")
    target: MetricTarget = Field(description="Its target.")
    type: Literal["total", "value"] = Field(
        default=TOTAL, description="Whether the target is per replica or total."
    )
    activation: Activation = Field(
        default=0.0, description="The computed metric is active above this."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        yield from refusals(where, "formula", formula_of, self.formula, list(self.of))


def formula_of(text: str, known: Sequence[str]) -> Formula:
    """Parses a formula over these names."""
    found = Formula(text)
    for name in found.names:
        if name not in known:
            what = f"the formula has the name {name!r}, and no metric is called so"
            raise InputError(what, allowed=", ".join(known) or "numbers alone")
    return found


class KedaSettings(HpaSettings):
    """KEDA's ScaledObject: an HPA, and scaling between zero and one by its metrics."""

    policy: Literal["keda"]  # type: ignore[assignment]  # the word that chooses it
    metrics: list[KedaMetric] = Field(  # type: ignore[assignment]  # the list is never changed
        default_factory=list,
        description="Metrics with targets; the largest size wins. This, schedules or a formula "
        "is required.",
        examples=[[{"name": "vllm:num_requests_waiting", "target": 10}]],
    )
    activation: Activation = Field(
        default=0.0, description="It is active while its first metric is above this."
    )
    cooldown_s: Annotated[float, Duration("0s", LONGEST_RUN)] = Field(
        default=300.0,
        description="Inactive time before it scales to zero, or to `idle`.",
    )
    idle: Replicas | None = Field(
        default=None, description="Replicas while inactive. Default: the pool's `min`."
    )
    least: Step = Field(
        default=1,
        exclude_if=lambda value: value == 1,
        description="Fewest replicas while active.",
    )

    schedules: Annotated[list[KedaSchedule], Added()] = Field(
        default_factory=list, max_length=32, description="`cron` triggers: replicas by the clock."
    )
    formula: Annotated[KedaFormula | None, Added()] = Field(
        default=None, description="`scalingModifiers`: a metric computed from others."
    )
    begins: Annotated[Begins, Added()] = Field(default=FIRST_DAY, description=BEGINS)

    def faults(self, where: Context, pools: Sequence[str]) -> Iterator[Fault]:
        if self.metrics or not (self.schedules or self.formula):
            yield from super().faults(where, pools)
        yield from refusals(where, "begins", begin_of, self.begins)

    def parts(self) -> PolicyParts:
        own = super().parts()
        return PolicyParts(
            [KedaHpa(self)], limiters=[*own.limiters, KedaActivation(self)], grouping=BY_VARIANT
        )

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        drawn = {**super().draw(dice, pools), "cooldown": dice.pick(0, 1.0, 30.0)}
        if dice.chance(0.5):
            drawn["activation"] = dice.pick(0, 1, 5)
        if dice.chance(0.5):
            drawn["metrics"][-1]["activation"] = dice.pick(0, 1, 5)
        if dice.chance(0.2):
            drawn["schedules"] = [
                {"start": "*/2 * * * *", "end": "1-59/2 * * * *", "replicas": dice.few(1, 4)}
            ]
        if dice.chance(0.2):
            of = {"a": {"metric": "waiting"}, "b": {"metric": "kv_used", "aggregate": "avg"}}
            text = dice.pick("max(a, b * 10)", "a / b", "b > 0.5 ? a + 1 : 0")
            drawn["formula"] = {"formula": text, "of": of, "target": dice.span(0.5, 5.0)}
        return drawn


class ComparedMetric(Metric):
    """1 while a metric is above a limit, else 0."""

    def __init__(self, of: Metric, above: float) -> None:
        super().__init__(of.name, of.quantity)
        self._of: Final = of
        self._above: Final = above

    def of_replicas(self, group: Group) -> list[float]:
        return [self._compared(value) for value in self._of.of_replicas(group)]

    def of_group(self, group: Group, aggregate: str = SUM) -> float:
        return self._compared(self._of.of_group(group, aggregate))

    def _compared(self, value: float) -> float:
        return 1.0 if value > self._above else 0.0


def compared(of: Metric, above: float | None) -> Metric:
    """The metric itself or, with a limit, whether it is above it."""
    return of if above is None else ComparedMetric(of, above)


class ScheduleMetric(Metric):
    """A value by the time of day: one while a schedule is active, another otherwise."""

    def __init__(self, schedule: CronSchedule, on: float, off: float) -> None:
        super().__init__("schedule", REQUESTS)
        self._schedule: Final = schedule
        self._on: Final = on
        self._off: Final = off
        self.now_s = 0.0

    def of_group(self, group: Group, aggregate: str = SUM) -> float:
        return self._on if self._schedule.is_on(self.now_s) else self._off

    def missing(self, group: Group) -> int:
        return 0

    def is_known(self, group: Group) -> bool:
        return True


class FormulaMetric(Metric):
    """A value computed from metrics."""

    def __init__(self, settings: KedaFormula) -> None:
        super().__init__("formula", REQUESTS)
        self._formula: Final = formula_of(settings.formula, list(settings.of))
        self._of: Final = [
            (name, one.measured(), one.aggregate) for name, one in settings.of.items()
        ]

    def of_group(self, group: Group, aggregate: str = SUM) -> float:
        values = {name: one.of_group(group, how) for name, one, how in self._of}
        found = self._formula.value(values)
        return found if math.isfinite(found) else 0.0

    def missing(self, group: Group) -> int:
        return max((one.missing(group) for _, one, _ in self._of), default=0)

    def is_known(self, group: Group) -> bool:
        if not all(one.is_known(group) for _, one, _ in self._of):
            return False
        values = {name: one.of_group(group, how) for name, one, how in self._of}
        return math.isfinite(self._formula.value(values))


def _scheduled(settings: KedaSettings, *, is_switch: bool) -> list[ScheduleMetric]:
    """The schedules as metrics: of the replicas that they ask for, or as switches (1 or 0)."""
    begins = begin_of(settings.begins)
    return [
        ScheduleMetric(
            CronSchedule(one.start, one.end, one.timezone, begins),
            1.0 if is_switch else float(one.replicas),
            0.0 if is_switch else 1.0,  # KEDA asks for one replica then
        )
        for one in settings.schedules
    ]


class KedaHpa(Hpa):
    """An HPA that also has schedules and a formula as metrics."""

    def __init__(self, settings: KedaSettings) -> None:
        super().__init__(settings)
        self._schedules: Final = _scheduled(settings, is_switch=False)
        for one in self._schedules:
            told = HpaMetric(name=one.name, target=1.0, type=TOTAL, aggregate=MEAN)
            self._metrics.append((one, told))
        formula = settings.formula
        if formula is not None:
            told = HpaMetric(
                name="formula", target=formula.target, type=formula.type, aggregate=MEAN
            )
            self._metrics.append((FormulaMetric(formula), told))

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        for one in self._schedules:
            one.now_s = now_s
        return super().analyze_group(group, now_s)


class KedaActivation(Limiter):
    """Scales to zero while all triggers are inactive; keeps at least `least` while one is active.

    A trigger is active while its metric is above its activation. Scaling to zero requires that none
    has been active for `cooldown_s` and that all replicas answer; sizes above `least` are up to the
    HPA.
    """

    def __init__(self, settings: KedaSettings) -> None:
        super().__init__("activation")
        self._triggers: Final[list[tuple[Metric, str, float]]] = []
        for number, one in enumerate(settings.metrics):
            above = one.activation
            if above is None and number == 0:
                above = settings.activation
            if above is not None:
                self._triggers.append((one.measured(), one.aggregate, above))
        if settings.formula is not None:
            computed = FormulaMetric(settings.formula)
            self._triggers.append((computed, MEAN, settings.formula.activation))
        self._schedules: Final = _scheduled(settings, is_switch=True)
        self._triggers.extend((one, MEAN, 0.0) for one in self._schedules)
        self._cooldown_s: Final = settings.cooldown_s
        self._idle: Final = settings.idle
        self._least: Final = settings.least
        self._active_s: Final[dict[str, float]] = self.remember("active")

    def limit(self, totals: list[int], context: LimitContext) -> list[int]:
        """Also limits groups without a finding, since the HPA is paused at zero."""
        return [self.limit_group(total, number, context) for number, total in enumerate(totals)]

    def limit_group(self, total: int, number: int, context: LimitContext) -> int:
        group = context.groups[number]
        if self._is_active(number, context):
            return max(total, self._least)
        if self._is_silent(group):
            return max(total, self._least) if group.current > 0 else total
        since_s = self._active_s.get(group.key, context.now_s)
        if context.now_s - since_s >= self._cooldown_s:
            return group.minimum if self._idle is None else self._idle
        return max(total, self._least) if group.current > 0 else total

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        names = " or ".join(one.name for one, _, _ in self._triggers)
        if self._is_active(number, context):
            return f"{names} is active: at least {self._least}."
        if self._is_silent(context.groups[number]):
            return f"{names} is unknown for some replicas: {self._least} are kept."
        if after < before:
            return f"{names} has not been active for {self._cooldown_s:g} s."
        return f"{names} was active within the last {self._cooldown_s:g} s: {self._least} are kept."

    def record(self, recommended: list[int], decided: list[int], context: LimitContext) -> None:
        for number, group in enumerate(context.groups):
            if self._is_active(number, context) or group.key not in self._active_s:
                self._active_s[group.key] = context.now_s

    def _is_silent(self, group: Group) -> bool:
        """Whether data is missing, so that it may be active."""
        return any(
            measured.missing(group) or not measured.is_known(group)
            for measured, _, _ in self._triggers
        )

    def _is_active(self, number: int, context: LimitContext) -> bool:
        group = context.groups[number]
        for schedule in self._schedules:
            schedule.now_s = context.now_s
        return any(
            measured.of_group(group, aggregate) > above
            for measured, aggregate, above in self._triggers
        )
