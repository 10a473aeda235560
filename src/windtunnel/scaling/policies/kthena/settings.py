"""Settings of Kthena's policies; the defaults are those of its admission webhook.

Kthena's manifests (`manifests/kthena.py`) are read into the same sections. `policy.py` has the
three policies.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, FieldSerializationInfo, field_serializer

from windtunnel.core.errors import nearest
from windtunnel.scaling.metrics import draw_targets, metric
from windtunnel.scaling.settings import PolicySettings, refusals
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Name, Number, Text, Whole
from windtunnel.settings.limits import LARGEST_FACTOR, MOST_REPLICAS
from windtunnel.settings.section import Context, Section

OR: Final = "Or"
PREFERRED: Final = "Preferred"

Percent = Annotated[int, Whole(0, 1000)]
PaceWindow = Annotated[float, Duration("0s", "30m")]
Factor = Annotated[float, Number(0, LARGEST_FACTOR)]
LARGEST_TARGET = 10**18
Metrics = dict[
    Annotated[str, Text("the name of a metric")],
    Annotated[float, Number(0, LARGEST_TARGET, above=True)],
]


class BehaviorPace(Section):
    """How fast a size may change in one direction, and how long a recommendation counts."""

    instances: Annotated[int, Whole(0, MOST_REPLICAS)]
    percent: Percent = Field(
        default=100, description="Percent of the size that may change per period."
    )
    period_s: PaceWindow = Field(default=60.0, description="The period; 0s: no limit.")
    select: Literal["Or", "And"] = Field(
        default="Or",
        description="`Or`: the looser of `instances` and `percent` applies; `And`: the stricter.",
    )
    window_s: PaceWindow

    @classmethod
    def draw(cls, dice: Dice) -> Values:
        pace: Values = {"window": dice.pick(0, 0.5, 10.0)}
        if dice.chance(0.5):
            pace["instances"] = dice.few(0, 4)
        if dice.chance(0.5):
            pace["percent"] = dice.pick(0, 50, 100, 1000)
        if dice.chance(0.5):
            pace["period"] = dice.pick(0, 1.0, 30.0)
        pace["select"] = dice.pick("Or", "And")
        return pace

    @field_serializer("instances", "percent", "period_s", "window_s", check_fields=False)
    def _as_written(self, value: Any, info: FieldSerializationInfo) -> Any:
        """Serializes omitted values as null, so that digests do not depend on defaults."""
        return value if self.written(info.field_name) else None


class PaceUp(BehaviorPace):
    """How fast a size may grow."""

    instances: Annotated[int, Whole(0, MOST_REPLICAS)] = Field(
        default=4, description="Replicas that may be added per period."
    )
    window_s: PaceWindow = Field(
        default=0.0,
        description="Window of recommendations; the size grows to the lowest of them.",
    )


class PaceDown(BehaviorPace):
    """How fast a size may shrink."""

    instances: Annotated[int, Whole(0, MOST_REPLICAS)] = Field(
        default=0, description="Replicas that may be removed per period."
    )
    window_s: PaceWindow = Field(
        default=300.0,
        description="Window of recommendations; the size shrinks to the highest of them.",
    )


class Panic(Section):
    """Grows at once when load outruns the size, and does not shrink for a while."""

    hold_s: Annotated[float, Duration("0s", "30m", above=True)] = Field(
        default=60.0,
        description="How long a panic lasts after the last cause.",
    )
    threshold: Annotated[int, Whole(110, 1000)] = Field(
        default=200,
        description="Recommended percentage of the size that starts a panic.",
    )
    percent: Percent = Field(
        default=1000,
        description="Percent that may be added per period in a panic.",
    )
    period_s: PaceWindow = Field(default=0.0, description="That period; 0s: no limit.")


class Behavior(Section):
    """Limits between a recommendation and the size."""

    up: PaceUp = Field(default_factory=PaceUp, description="More replicas.")
    down: PaceDown = Field(default_factory=PaceDown, description="Fewer replicas.")
    panic: Panic | None = Field(default=None, description="Default: no panic.")

    @classmethod
    def draw(cls, dice: Dice) -> Values:
        behavior: Values = {"up": PaceUp.draw(dice), "down": PaceDown.draw(dice)}
        if dice.chance(0.5):
            behavior["panic"] = {"hold": dice.span(0.5, 60.0), "threshold": dice.whole(110, 400)}
        return behavior


class Band(Section):
    """The share of all replicas that a pool should have, in percent."""

    min: Annotated[float, Number(0, 100)] = Field(default=0.0, description="At least.")
    max: Annotated[float, Number(0, 100)] = Field(default=100.0, description="At most.")


class Coordination(Section):
    """Shifts replicas between pools by cost and pressure, half each; not in a panic.

    Pressure is queue depth, KV cache in use and TTFT. The total does not change.
    """

    mode: Literal["Off", "Preferred"] = Field(
        default="Off", description="Off, or towards the preferred ratios."
    )
    preferredRatio: dict[str, Band] = Field(  # noqa: N815 - as Kthena's users write it
        default_factory=dict,
        description="Band of a pool's share of all replicas in percent, by pool.",
    )


class Ratio(Section):
    """Replicas of one pool per replica of another."""

    numerator: Annotated[str, Name()] = Field(
        description="The pool in the numerator, such as prefill."
    )
    denominator: Annotated[str, Name()] = Field(description="The pool in the denominator.")
    min: Factor = Field(description="The smallest ratio.")
    max: Annotated[float, Number(0, LARGEST_FACTOR, above=True)] = Field(
        description="The largest ratio."
    )
    rule: Literal["exact", "as-shipped"] = Field(
        default="exact",
        description="`exact`: the nearest whole numbers in the band, within rates; `as-shipped`: "
        "the short side is raised once, ignoring rates and perhaps the band.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if self.numerator == self.denominator:
            yield where.fault("denominator", "numerator and denominator are the same pool")
        if self.min > self.max:
            what = f"{self.min:g} is more than max, which is {self.max:g}"
            yield where.fault("min", what, beside=("max",))


class KthenaSettings(PolicySettings):
    """Settings that Kthena's three policies share."""

    unused: ClassVar[dict[str, str]] = {
        "optimizer": "leave it out",
        "stabilization": "leave it out; `behavior` has the windows",
    }

    metrics: Metrics = Field(
        description="Targets per replica, such as `vllm:num_requests_waiting: 10`; the largest "
        "size wins.",
    )
    queries: dict[str, Literal["sum", "avg", "max"]] = Field(
        default_factory=dict,
        exclude_if=lambda value: not value,
        description="Metrics that are one number for the pool, and their aggregation. Default: "
        "every replica is read.",
    )
    tolerance_percent: Annotated[int, Whole(0, 100)] = Field(
        default=10, description="Tolerated deviation from targets, in percent."
    )
    tolerance: Literal["per-pod", "summed"] = Field(
        default="per-pod",
        description="Around the current size (`per-pod`, intended), or on sums, around a size of "
        "one (`summed`, as shipped).",
    )
    behavior: Behavior = Field(
        default_factory=Behavior,
        description="Windows, rates and panic. Default: up by 4 or 100% per minute, down after 5m.",
    )
    history: Literal["kept", "lost"] = Field(
        default="kept",
        description="Whether the initial size counts as a recommendation (`kept`) or not "
        "(`lost`, as shipped).",
    )

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        behavior = Behavior.draw(dice)
        return {
            "metrics": draw_targets(dice),
            "behavior": behavior,
            "tolerance_percent": dice.pick(0, 10, 50),
            "tolerance": dice.pick("per-pod", "summed"),
            "history": dice.pick("kept", "lost"),
        }

    def faults(self, where: Context, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().faults(where, pools)
        if not self.metrics:
            yield where.fault("metrics", "there is no metric", "at least one")
        for name in self.metrics:
            yield from refusals(where, "metrics", metric, name)
        for name in self.queries:
            if name not in self.metrics:
                known = list(self.metrics)
                what = "there is no such metric"
                yield where.fault(("queries", name), what, ", ".join(known), nearest(name, known))

    def window_down(self) -> tuple[str, float | None]:
        return "behavior.down.window", self.behavior.down.window_s
