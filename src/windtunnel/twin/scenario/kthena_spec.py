"""What a person writes under `scaling:` for Kthena's policies, and the rules that hold there."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from pydantic import Field

from windtunnel.core.errors import nearest
from windtunnel.scaling.kthena.coordinate import coordination_faults
from windtunnel.scaling.kthena.ratio import Bounds, is_possible
from windtunnel.scaling.kthena.settings import (
    DISAGGREGATED,
    DOWN,
    HETEROGENEOUS,
    HOMOGENEOUS,
    UP,
    Band,
    Behavior,
    Coordination,
    KthenaPlan,
    Pace,
    Panic,
    Ratio,
)
from windtunnel.scaling.plan import PolicyPlan
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Name, Number, Text, Whole
from windtunnel.settings.limits import LARGEST_FACTOR, MOST_REPLICAS
from windtunnel.settings.section import Section
from windtunnel.twin.scenario.scaler_spec import BoundsSpec, ScalerSpec

Percent = Annotated[int, Whole(0, 1000)]
Count = Annotated[int, Whole(0, MOST_REPLICAS)]
Window = Annotated[float, Duration("0s", "30m")]
Target = Annotated[float, Number(0, 10**9, above=True)]
Metrics = dict[Annotated[str, Text("the name of a metric")], Target]
PoolName = Annotated[str, Name()]
Cost = Annotated[float, Number(0, LARGEST_FACTOR)]


class PaceSpec(Section):
    """How fast a size may change in one direction; what is left out is as Kthena has it."""

    instances: Count | None = Field(
        default=None, description="So many replicas within a period; up 4, down 0."
    )
    percent: Percent | None = Field(
        default=None, description="So many percent of the size within a period; 100."
    )
    period: Window | None = Field(default=None, description="The period; 60s. 0s sets no limit.")
    select: Literal["Or", "And"] = Field(
        default="Or",
        description="Whether the looser of `instances` and `percent` holds (`Or`) or the stricter.",
    )
    window: Window | None = Field(
        default=None,
        description="How long a recommendation is remembered: the lowest of it holds a growing "
        "size, the highest a shrinking one; up 0s, down 5m.",
    )

    def over(self, default: Pace) -> Pace:
        return Pace(
            default.instances if self.instances is None else self.instances,
            default.percent if self.percent is None else self.percent,
            default.period_s if self.period is None else self.period,
            default.window_s if self.window is None else self.window,
            self.select,
        )


class PanicSpec(Section):
    """Up at once when load outruns the size, and not down for a while."""

    hold: Annotated[float, Duration("0s", "30m", above=True)] = Field(
        default=60.0, description="How long it lasts after the last time that it was called for."
    )
    threshold: Annotated[int, Whole(110, 1000)] = Field(
        default=200, description="Percent of the size: a recommendation as high calls for it."
    )
    percent: Percent = Field(
        default=1000, description="So many percent may be added within a period."
    )
    period: Window = Field(default=0.0, description="That period; 0s sets no limit.")


class BehaviorSpec(Section):
    """How a recommendation becomes a size."""

    up: PaceSpec = Field(default_factory=PaceSpec, description="More replicas.")
    down: PaceSpec = Field(default_factory=PaceSpec, description="Fewer replicas.")
    panic: PanicSpec | None = Field(default=None, description="Left out: it never panics.")


class KthenaScalerSpec(ScalerSpec):
    """What Kthena's three policies share."""

    metrics: Metrics = Field(
        description="What one replica should have of each metric, by its name, such as "
        "`vllm:num_requests_waiting: 10`. The metric that asks for most wins.",
    )
    tolerance_percent: Annotated[int, Whole(0, 100)] = Field(
        default=10, description="So far around the targets nothing changes."
    )
    tolerance: Literal["per-pod", "summed"] = Field(
        default="per-pod",
        description="Whether the tolerance holds around the current size, as intended (`per-pod`), "
        "or on the sums of all replicas, as shipped, where it holds around a size of one.",
    )
    behavior: BehaviorSpec = Field(
        default_factory=BehaviorSpec,
        description="Windows, rates and panic; left out: up by 4 or 100% a minute, "
        "down when nothing more was asked for in 5m.",
    )
    history: Literal["kept", "lost"] = Field(
        default="kept",
        description="Whether the size at the start counts as asked for (`kept`), or nothing is "
        "remembered then, as shipped, so that it may shrink at once.",
    )

    def _plan(self, target: str) -> KthenaPlan:
        behavior, panic = self.behavior, self.behavior.panic
        return KthenaPlan(
            target=target,
            metrics=self.metrics,
            tolerance_percent=self.tolerance_percent,
            tolerance=self.tolerance,
            behavior=Behavior(
                behavior.up.over(UP),
                behavior.down.over(DOWN),
                Panic()
                if panic is None
                else Panic(panic.percent, panic.period, panic.threshold, panic.hold),
            ),
            history=self.history,
        )

    def policy_faults(self, pools: Sequence[str]) -> Iterator[Fault]:
        if not self.metrics:
            yield Fault(("metrics",), "there is no metric", "at least one")
        assert pools  # there is always one
        for key in ("optimizer", "stabilization"):
            if getattr(self, key) is not None:
                hint = "leave it out; `behavior` has the windows" if key == "stabilization" else ""
                what = f"{self.policy} does not use it"
                yield Fault((key,), what, hint=hint or "leave it out")


class KthenaHomogeneousSpec(KthenaScalerSpec):
    """Kthena's homogeneous target: every pool alone, by its metrics."""

    policy: Literal["kthena-homogeneous"]

    def policy_plan(self) -> PolicyPlan:
        return self._plan(HOMOGENEOUS)


class BandSpec(Section):
    """The share of all replicas that a pool should have, in percent."""

    min: Annotated[float, Number(0, 100)] = Field(default=0.0, description="At least.")
    max: Annotated[float, Number(0, 100)] = Field(default=100.0, description="At most.")


class CoordinationSpec(Section):
    """Half of a pool's share of the total comes from its cost, half from its pressure.

    Pressure is the queue, the KV cache in use and the time to the first token. Only the split is
    moved, never the total, and not in a panic.
    """

    mode: Literal["Off", "Preferred"] = Field(default="Off", description="Whether it is done.")
    preferredRatio: dict[str, BandSpec] = Field(  # noqa: N815 - as Kthena's users write it
        default_factory=dict, description="The band of a pool's share, by its name."
    )

    def plan(self) -> Coordination:
        bands = {name: Band(band.min, band.max) for name, band in self.preferredRatio.items()}
        return Coordination(self.mode, bands)


class KthenaHeterogeneousSpec(KthenaScalerSpec):
    """Kthena's heterogeneous target: all pools together, blocks of replicas by their cost."""

    policy: Literal["kthena-heterogeneous"]
    costs: dict[PoolName, Cost] = Field(
        default_factory=dict,
        description="What a replica counts by the name of a pool; left out: its price.",
    )
    cost_expansion_percent: Annotated[int, Whole(0, 10_000)] = Field(
        default=200,
        description="How fast blocks grow: 200 doubles them, 100 fills the cheapest pool first.",
    )
    coordination: CoordinationSpec = Field(
        default_factory=CoordinationSpec, description="Moves replicas to where the pressure is."
    )

    def policy_plan(self) -> PolicyPlan:
        plan = self._plan(HETEROGENEOUS)
        return _with(
            plan,
            costs=self.costs,
            growth_percent=self.cost_expansion_percent,
            coordination=self.coordination.plan(),
        )

    def policy_faults(self, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().policy_faults(pools)
        yield from _unknown_pools(("costs",), self.costs, pools)
        here = ("coordination",)
        for fault in coordination_faults(self.coordination.plan(), pools):
            yield Fault((*here, *fault.path), fault.what, fault.allowed or None)
        if self.coordination.mode == "Off" and self.coordination.preferredRatio:
            what = "coordination is off"
            yield Fault((*here, "preferredRatio"), what, hint="write mode: Preferred")


class RatioSpec(Section):
    """How many replicas of one pool there are for each of another."""

    numerator: PoolName = Field(description="The pool that is counted, such as the prefill pool.")
    denominator: PoolName = Field(description="The pool that it is counted by.")
    min: Annotated[float, Number(0, LARGEST_FACTOR)] = Field(description="At least so many.")
    max: Annotated[float, Number(0, LARGEST_FACTOR, above=True)] = Field(
        description="At most so many."
    )
    rule: Literal["exact", "as-shipped"] = Field(
        default="exact",
        description="Whether the nearest whole numbers inside the band are found, within the rates "
        "(`exact`), or the short side is raised once, whatever the rates, and may miss the band.",
    )


class KthenaDisaggregatedSpec(KthenaScalerSpec):
    """Kthena's disaggregated target: every pool by its own metrics, all or none, in a ratio."""

    policy: Literal["kthena-disaggregated"]
    metrics_of: dict[PoolName, Metrics] = Field(
        default_factory=dict,
        description="Metrics of single pools, by name, in place of `metrics`.",
    )
    ratio: RatioSpec | None = Field(
        default=None, description="Between which sizes of another pool one stays; left out: any."
    )

    def policy_plan(self) -> PolicyPlan:
        ratio = self.ratio
        plan = self._plan(DISAGGREGATED)
        if ratio is None:
            return _with(plan, pool_metrics=self.metrics_of)
        return _with(
            plan,
            pool_metrics=self.metrics_of,
            ratio=Ratio(ratio.numerator, ratio.denominator, ratio.min, ratio.max),
            ratio_rule=ratio.rule,
        )

    def policy_faults(self, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().policy_faults(pools)
        yield from _unknown_pools(("metrics_of",), self.metrics_of, pools)
        if self.ratio is None:
            return
        here = ("ratio",)
        for key in ("numerator", "denominator"):
            name = getattr(self.ratio, key)
            if name not in pools:
                allowed, hint = ", ".join(pools), nearest(name, pools)
                yield Fault((*here, key), "there is no such pool", allowed, hint)
        if self.ratio.numerator == self.ratio.denominator:
            yield Fault((*here, "denominator"), "numerator and denominator are the same pool")
        if self.ratio.min > self.ratio.max:
            what = f"{self.ratio.min:g} is more than max, which is {self.ratio.max:g}"
            yield Fault((*here, "min"), what, because_of=((*here, "max"),))
        elif self.ratio.rule == "exact" and not self._is_possible(self.ratio):
            what = f"no whole numbers within the bounds have a ratio of {self.ratio.min:g} to "
            yield Fault(here, f"{what}{self.ratio.max:g}", because_of=(("pools",),))

    def _is_possible(self, ratio: RatioSpec) -> bool:
        written = [
            self.pools.get(name, BoundsSpec()) for name in (ratio.numerator, ratio.denominator)
        ]
        num, den = (Bounds(bounds.min, bounds.max) for bounds in written)
        band = Ratio(ratio.numerator, ratio.denominator, ratio.min, ratio.max)
        return num.minimum > num.maximum or den.minimum > den.maximum or is_possible(band, num, den)


def _with(plan: KthenaPlan, **changes: object) -> KthenaPlan:
    return msgspec.structs.replace(plan, **changes)


def _unknown_pools(
    path: KeyPath, named: dict[str, float] | dict[str, dict[str, float]], pools: Sequence[str]
) -> Iterator[Fault]:
    for name in named:
        if name not in pools:
            allowed = ", ".join(pools)
            yield Fault((*path, name), "there is no such pool", allowed, nearest(name, pools))
