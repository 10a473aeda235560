"""The parts that a Kthena policy is made of."""

from windtunnel.scaling.kthena.memory import Histories, step_limiters
from windtunnel.scaling.kthena.parts import CostSplit, RatioLimiter, Recommender, Targets
from windtunnel.scaling.kthena.settings import (
    AS_SHIPPED,
    DISAGGREGATED,
    HETEROGENEOUS,
    KEPT,
    SUMMED,
    KthenaPlan,
)
from windtunnel.scaling.optimizers import CostOrdered
from windtunnel.scaling.parts import Optimizer
from windtunnel.scaling.recipe import Recipe


def kthena_recipe(plan: KthenaPlan) -> Recipe:
    """Parts without any memory."""
    histories = Histories(plan.behavior, seeded=plan.history == KEPT)
    recommender = Recommender(
        Targets(plan.metrics),
        histories,
        tolerance=plan.tolerance_percent / 100,
        summed=plan.tolerance == SUMMED,
        queries=plan.queries,
        by_variant={pool: Targets(values) for pool, values in plan.pool_metrics.items()},
        all_or_none=plan.target == DISAGGREGATED,
    )
    limiters = step_limiters(histories)
    if plan.ratio is not None:
        as_shipped = plan.ratio_rule == AS_SHIPPED
        limiters.append(RatioLimiter(plan.ratio, histories, as_shipped=as_shipped))
    together = plan.target == HETEROGENEOUS
    optimizer: Optimizer = CostOrdered(engine="unlimited")
    if together:
        optimizer = CostSplit(
            histories,
            costs=plan.costs,
            growth_percent=plan.growth_percent,
            coordination=plan.coordination,
        )
    return Recipe([recommender], optimizer, limiters, by_variant=not together, together=together)
