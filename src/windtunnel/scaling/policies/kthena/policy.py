"""Kthena's three policies: their settings, and the parts that each consists of."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from windtunnel.core.errors import nearest
from windtunnel.scaling.metrics import draw_targets, metric
from windtunnel.scaling.optimizers import CostOrdered
from windtunnel.scaling.policies.kthena.analyzer import Recommender
from windtunnel.scaling.policies.kthena.behavior import Histories, step_limiters
from windtunnel.scaling.policies.kthena.coordinate import coordination_faults
from windtunnel.scaling.policies.kthena.ratio import RatioLimiter, RoleBounds, is_possible
from windtunnel.scaling.policies.kthena.settings import (
    Coordination,
    KthenaSettings,
    Metrics,
    Ratio,
)
from windtunnel.scaling.policies.kthena.split import CostSplit
from windtunnel.scaling.policy import BY_VARIANT, TOGETHER, PolicyParts
from windtunnel.scaling.settings import Cost, PoolName, refusals, unknown_pools
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Whole
from windtunnel.settings.section import Context


class KthenaHomogeneousSettings(KthenaSettings):
    """Kthena's homogeneous target: each pool is scaled by its own metrics."""

    policy: Literal["kthena-homogeneous"]

    def parts(self) -> PolicyParts:
        histories = Histories(self)
        return PolicyParts(
            [Recommender(self, histories)],
            CostOrdered(engine="unlimited"),
            step_limiters(histories),
            grouping=BY_VARIANT,
        )


class KthenaHeterogeneousSettings(KthenaSettings):
    """Kthena's heterogeneous target: all pools together, with replicas in blocks by cost."""

    policy: Literal["kthena-heterogeneous"]
    costs: dict[PoolName, Cost] = Field(
        default_factory=dict,
        description="Cost of a replica by pool. Default: its price.",
    )
    cost_expansion_percent: Annotated[int, Whole(0, 10_000)] = Field(
        default=200,
        description="Growth of blocks: 200 doubles them, 100 fills the cheapest pool first.",
    )
    coordination: Coordination = Field(
        default_factory=Coordination, description="Moves replicas to pools under pressure."
    )

    def parts(self) -> PolicyParts:
        histories = Histories(self)
        optimizer = CostSplit(
            histories,
            costs=self.costs,
            growth_percent=self.cost_expansion_percent,
            coordination=self.coordination,
        )
        return PolicyParts(
            [Recommender(self, histories)], optimizer, step_limiters(histories), grouping=TOGETHER
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
    """Kthena's disaggregated target: each pool by its own metrics, all or none, within a ratio."""

    policy: Literal["kthena-disaggregated"]
    metrics_of: dict[PoolName, Metrics] = Field(
        default_factory=dict,
        description="Metrics by pool, in place of `metrics`.",
    )
    ratio: Ratio | None = Field(
        default=None, description="Limits on the ratio of two pools' sizes. Default: none."
    )

    def parts(self) -> PolicyParts:
        histories = Histories(self)
        limiters = step_limiters(histories)
        if self.ratio is not None:
            limiters.append(RatioLimiter(self.ratio, histories))
        return PolicyParts(
            [Recommender(self, histories, self.metrics_of, all_or_none=True)],
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
            for name in metrics:
                yield from refusals(where, ("metrics_of", pool), metric, name)
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
