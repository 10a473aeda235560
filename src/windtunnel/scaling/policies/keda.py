"""KEDA's ScaledObject: a queue target through an HPA, and its own switch between zero and one."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from windtunnel.scaling.analyzers import Group
from windtunnel.scaling.limiters import LimitContext, Limiter
from windtunnel.scaling.metrics import Metric, metric
from windtunnel.scaling.policies.hpa import HpaMetric, HpaSettings
from windtunnel.scaling.policy import BY_VARIANT, PolicyParts
from windtunnel.scaling.settings import Replicas, Step
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.fields import Duration, Number
from windtunnel.settings.limits import LONGEST_RUN
from windtunnel.settings.section import Added

Activation = Annotated[float, Number(-(10**9), 10**9)]


class KedaMetric(HpaMetric):
    """A trigger of KEDA."""

    activation: Annotated[Activation | None, Added()] = Field(
        default=None,
        description="It is active while this metric is above this, too; left out: only the first "
        "metric makes it active, above `activation` of the policy.",
    )


class KedaSettings(HpaSettings):
    """KEDA's ScaledObject: an HPA, and a switch between zero and one by its metrics."""

    policy: Literal["keda"]  # type: ignore[assignment]  # the word that chooses it
    metrics: list[KedaMetric] = Field(  # type: ignore[assignment]  # nobody changes the list
        description="Metrics and their targets; the one that asks for most replicas wins.",
        examples=[[{"name": "vllm:num_requests_waiting", "target": 10}]],
    )
    activation: Activation = Field(
        default=0.0, description="It is active while its first metric is above this."
    )
    cooldown_s: Annotated[float, Duration("0s", LONGEST_RUN)] = Field(
        default=300.0,
        description="How long it must have been inactive before it scales to zero, or to `idle`.",
    )
    idle: Replicas | None = Field(
        default=None, description="Replicas while it is inactive; left out: the `min` of the pool."
    )
    least: Step = Field(
        default=1,
        exclude_if=lambda value: value == 1,
        description="The fewest replicas while it is active.",
    )

    def parts(self) -> PolicyParts:
        own = super().parts()
        return PolicyParts(
            own.analyzers, limiters=[*own.limiters, KedaActivation(self)], grouping=BY_VARIANT
        )

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        drawn = {**super().draw(dice, pools), "cooldown": dice.pick(0, 1.0, 30.0)}
        if dice.chance(0.5):
            drawn["activation"] = dice.pick(0, 1, 5)
        if dice.chance(0.5):
            drawn["metrics"][-1]["activation"] = dice.pick(0, 1, 5)
        return drawn


class KedaActivation(Limiter):
    """Zero while nothing is to be done, at least one while something is.

    A trigger is active while its metric is above its activation, and one is enough. The way to zero
    is open when none has been active for `cooldown_s` and all replicas answer; whatever is above
    `least` is the HPA's.
    """

    def __init__(self, settings: KedaSettings) -> None:
        super().__init__("activation")
        self._triggers: Final[list[tuple[Metric, KedaMetric, float]]] = []
        for number, one in enumerate(settings.metrics):
            above = one.activation
            if above is None and number == 0:
                above = settings.activation
            if above is not None:
                self._triggers.append((metric(one.name, "metrics"), one, above))
        self._cooldown_s: Final = settings.cooldown_s
        self._idle: Final = settings.idle
        self._least: Final = settings.least
        self._active_s: Final[dict[str, float]] = self.remember("active")

    def limit(self, totals: list[int], context: LimitContext) -> list[int]:
        """Also of groups of which an HPA knows nothing: it is paused at zero."""
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
        names = " or ".join(one.name for _, one, _ in self._triggers)
        if self._is_active(number, context):
            return f"{names} is active: at least {self._least}."
        if self._is_silent(context.groups[number]):
            return f"{names} is not known of every replica: {self._least} stay."
        if after < before:
            return f"{names} has not been active for {self._cooldown_s:g} s."
        return f"{names} was active within {self._cooldown_s:g} s: {self._least} stay."

    def record(self, recommended: list[int], decided: list[int], context: LimitContext) -> None:
        for number, group in enumerate(context.groups):
            if self._is_active(number, context) or group.key not in self._active_s:
                self._active_s[group.key] = context.now_s

    def _is_silent(self, group: Group) -> bool:
        """Whether it cannot be known that it is inactive."""
        return any(
            measured.missing(group) or not measured.is_known(group)
            for measured, _, _ in self._triggers
        )

    def _is_active(self, number: int, context: LimitContext) -> bool:
        group = context.groups[number]
        return any(
            measured.of_group(group, one.aggregate) > above
            for measured, one, above in self._triggers
        )
