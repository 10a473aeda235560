"""Kthena's three policies: their settings, and the parts that each is made of."""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from windtunnel.core.errors import InputError, nearest
from windtunnel.scaling.metrics import draw_targets, metric
from windtunnel.scaling.optimizers import CostOrdered
from windtunnel.scaling.policies.kthena.analyzer import MetricTargets, Recommender
from windtunnel.scaling.policies.kthena.behavior import Histories, step_limiters
from windtunnel.scaling.policies.kthena.coordinate import coordination_faults
from windtunnel.scaling.policies.kthena.ratio import RatioLimiter, RoleBounds, is_possible
from windtunnel.scaling.policies.kthena.settings import Behavior, Coordination, Ratio
from windtunnel.scaling.policies.kthena.split import CostSplit
from windtunnel.scaling.policy import BY_VARIANT, TOGETHER, PolicyParts
from windtunnel.scaling.settings import PolicySettings, PoolName, unknown_pools
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Number, Text, Whole
from windtunnel.settings.section import Context

LARGEST_TARGET = 10**9
Metrics = dict[
    Annotated[str, Text("the name of a metric")],
    Annotated[float, Number(0, LARGEST_TARGET, above=True)],
]
Cost = Annotated[float, Number(0, 10**9)]


class KthenaSettings(PolicySettings):
    """What Kthena's three policies share."""

    unused: ClassVar[dict[str, str]] = {
        "optimizer": "leave it out",
        "stabilization": "leave it out; `behavior` has the windows",
    }

    metrics: Metrics = Field(
        description="Target of each metric per replica, by name, such as "
        "`vllm:num_requests_waiting: 10`. The metric that asks for most replicas wins.",
    )
    queries: dict[str, Literal["sum", "avg", "max"]] = Field(
        default_factory=dict,
        exclude_if=lambda value: not value,
        description="Metrics that a query reads as one number for a whole pool, by name, and what "
        "it makes of the replicas. Kthena takes the answer for the load of the pool. "
        "Left out: every replica is asked.",
    )
    tolerance_percent: Annotated[int, Whole(0, 100)] = Field(
        default=10, description="Deviation from the targets that is tolerated, in percent."
    )
    tolerance: Literal["per-pod", "summed"] = Field(
        default="per-pod",
        description="Whether the tolerance holds around the current size, as intended (`per-pod`), "
        "or on the sums of all replicas, as shipped, where it holds around a size of one.",
    )
    behavior: Behavior = Field(
        default_factory=Behavior,
        description="Windows, rates and panic; left out: up by 4 or 100% a minute, "
        "down when nothing more was asked for in 5m.",
    )
    history: Literal["kept", "lost"] = Field(
        default="kept",
        description="Whether the size at the start counts as asked for (`kept`), or nothing is "
        "remembered then, as shipped, so that it may shrink at once.",
    )

    def histories(self) -> Histories:
        return Histories(self.behavior, seeded=self.history == "kept")

    def recommender(
        self,
        histories: Histories,
        metrics_of: dict[str, Metrics] | None = None,
        *,
        all_or_none: bool = False,
    ) -> Recommender:
        return Recommender(
            MetricTargets(self.metrics),
            histories,
            tolerance=self.tolerance_percent / 100,
            summed=self.tolerance == "summed",
            queries=self.queries,
            by_variant={pool: MetricTargets(values) for pool, values in (metrics_of or {}).items()},
            all_or_none=all_or_none,
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
        yield from _metric_faults(where, ("metrics",), self.metrics)
        for name in self.queries:
            if name not in self.metrics:
                known = list(self.metrics)
                what = "there is no such metric"
                yield where.fault(("queries", name), what, ", ".join(known), nearest(name, known))

    def window_down(self) -> tuple[str, float | None]:
        return "behavior.down.window", self.behavior.down.window_s


class KthenaHomogeneousSettings(KthenaSettings):
    """Kthena's homogeneous target: every pool alone, by its metrics."""

    policy: Literal["kthena-homogeneous"]

    def parts(self) -> PolicyParts:
        histories = self.histories()
        return PolicyParts(
            [self.recommender(histories)],
            CostOrdered(engine="unlimited"),
            step_limiters(histories),
            grouping=BY_VARIANT,
        )


class KthenaHeterogeneousSettings(KthenaSettings):
    """Kthena's heterogeneous target: all pools together, blocks of replicas by their cost."""

    policy: Literal["kthena-heterogeneous"]
    costs: dict[PoolName, Cost] = Field(
        default_factory=dict,
        description="Cost of a replica, by the name of its pool; left out: its price.",
    )
    cost_expansion_percent: Annotated[int, Whole(0, 10_000)] = Field(
        default=200,
        description="How fast blocks grow: 200 doubles them, 100 fills the cheapest pool first.",
    )
    coordination: Coordination = Field(
        default_factory=Coordination, description="Moves replicas to where the pressure is."
    )

    def parts(self) -> PolicyParts:
        histories = self.histories()
        optimizer = CostSplit(
            histories,
            costs=self.costs,
            growth_percent=self.cost_expansion_percent,
            coordination=self.coordination,
        )
        return PolicyParts(
            [self.recommender(histories)], optimizer, step_limiters(histories), grouping=TOGETHER
        )

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        drawn = super().draw(dice, pools)
        drawn["cost_expansion_percent"] = dice.pick(0, 100, 200, 1000)
        if dice.chance(0.5):
            drawn["costs"] = {name: dice.span(0.1, 10.0) for name in dice.some(pools)}
        if dice.chance(0.5):
            drawn["coordination"] = {"mode": "Preferred"}
        return drawn

    def faults(self, where: Context, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().faults(where, pools)
        yield from unknown_pools(where, "costs", self.costs, pools)
        yield from coordination_faults(self.coordination, where.inside("coordination"), pools)


class KthenaDisaggregatedSettings(KthenaSettings):
    """Kthena's disaggregated target: every pool by its own metrics, all or none, in a ratio."""

    policy: Literal["kthena-disaggregated"]
    metrics_of: dict[PoolName, Metrics] = Field(
        default_factory=dict,
        description="Metrics of single pools, by name, in place of `metrics`.",
    )
    ratio: Ratio | None = Field(
        default=None, description="Limits on the ratio of the sizes of two pools; left out: none."
    )

    def parts(self) -> PolicyParts:
        histories = self.histories()
        limiters = step_limiters(histories)
        if self.ratio is not None:
            limiters.append(RatioLimiter(self.ratio, histories))
        return PolicyParts(
            [self.recommender(histories, self.metrics_of, all_or_none=True)],
            CostOrdered(engine="unlimited"),
            limiters,
            grouping=BY_VARIANT,
        )

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        drawn = super().draw(dice, pools)
        if dice.chance(0.5):
            drawn["metrics_of"] = {name: draw_targets(dice) for name in dice.some(pools)}
        if len(pools) > 1 and dice.chance(0.6):
            drawn["ratio"] = {
                "numerator": pools[0],
                "denominator": pools[1],
                "min": dice.pick(0, 0.5, 1),
                "max": dice.pick(1, 2.5),
                "rule": dice.pick("exact", "as-shipped"),
            }
        return drawn

    def faults(self, where: Context, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().faults(where, pools)
        yield from unknown_pools(where, "metrics_of", self.metrics_of, pools)
        for pool, metrics in self.metrics_of.items():
            yield from _metric_faults(where, ("metrics_of", pool), metrics)
        ratio = self.ratio
        if ratio is None:
            return
        for key, name in (("numerator", ratio.numerator), ("denominator", ratio.denominator)):
            if name not in pools:
                allowed, hint = ", ".join(pools), nearest(name, pools)
                yield where.fault(("ratio", key), "there is no such pool", allowed, hint)
        if ratio.rule == "exact" and ratio.min <= ratio.max and not self._is_possible(ratio):
            what = f"no whole numbers within the bounds have a ratio of {ratio.min:g} to "
            yield where.fault("ratio", f"{what}{ratio.max:g}", beside=("pools",))

    def _is_possible(self, ratio: Ratio) -> bool:
        bounds = [self.bounds_of(name) for name in (ratio.numerator, ratio.denominator)]
        if any(own.min > own.max for own in bounds):
            return True  # which is a fault of its own
        num, den = (RoleBounds(own.min, own.max) for own in bounds)
        return is_possible(ratio, num, den)


def _metric_faults(where: Context, path: tuple[str, ...], names: Metrics) -> Iterator[Fault]:
    for name in names:
        try:
            metric(name)
        except InputError as error:
            yield where.fault(path, error.what, error.allowed, error.hint)
