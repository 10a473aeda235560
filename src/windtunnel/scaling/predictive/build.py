"""The predictive policy, from its plan."""

from windtunnel.scaling.plan import PolicyPlan
from windtunnel.scaling.predictive.analyzer import Predictive, Settings
from windtunnel.scaling.predictive.keeping import Keeping
from windtunnel.scaling.recipe import Recipe


class PredictivePlan(PolicyPlan, frozen=True):
    """Forecast, capacity by step times, cheapest pools first."""

    interval_s: float
    probability: float = 0.9
    season_s: float = 86_400.0
    headroom: float = 0.0
    drain_s: float = 60.0
    output_tokens: float = 256.0


def predictive_recipe(plan: PredictivePlan) -> Recipe:
    settings = Settings(
        probability=plan.probability,
        season_s=plan.season_s,
        headroom=plan.headroom,
        drain_s=plan.drain_s,
        output_tokens=plan.output_tokens,
    )
    return Recipe([Predictive(settings, plan.interval_s)], limiters=[Keeping()])
