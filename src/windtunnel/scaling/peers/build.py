"""The parts of each peer's policy, from its plan."""

from windtunnel.scaling.metrics import metric
from windtunnel.scaling.peers.aibrix import Aibrix, AibrixCooldown
from windtunnel.scaling.peers.dynamo import Dynamo
from windtunnel.scaling.peers.hpa import Hpa, HpaBehavior, HpaTarget, HpaWindows, Rule
from windtunnel.scaling.peers.keda import KedaActivation
from windtunnel.scaling.peers.knative import Knative, KnativeSettings
from windtunnel.scaling.peers.plans import (
    AibrixPlan,
    DynamoPlan,
    HpaDirection,
    HpaPlan,
    KedaPlan,
    KnativePlan,
)
from windtunnel.scaling.recipe import Recipe


def hpa_recipe(plan: HpaPlan) -> Recipe:
    targets = [
        HpaTarget(metric(each.name, "metrics"), each.target, each.kind) for each in plan.metrics
    ]
    windows = HpaWindows(plan.up.window_s, plan.down.window_s)
    behavior = HpaBehavior(
        _rules(plan.up),
        _rules(plan.down),
        select_up=plan.up.select,
        select_down=plan.down.select,
    )
    analyzer = Hpa(targets, tolerance=plan.tolerance, tolerance_down=plan.tolerance_down)
    return Recipe([analyzer], limiters=[windows, behavior], by_variant=True)


def keda_recipe(plan: KedaPlan) -> Recipe:
    recipe = hpa_recipe(plan.hpa)
    triggers = [metric(each.name, "metrics") for each in plan.hpa.metrics]
    switch = KedaActivation(
        triggers,
        activation=plan.activation,
        cooldown_s=plan.cooldown_s,
        idle=plan.idle,
        least=plan.least,
    )
    return Recipe(recipe.analyzers, limiters=[*recipe.limiters, switch], by_variant=True)


def knative_recipe(plan: KnativePlan) -> Recipe:
    settings = KnativeSettings(
        target=plan.target * plan.utilization_percent / 100.0,
        stable_window_s=plan.window_s,
        panic_window_percent=plan.panic_window_percent,
        panic_threshold_percent=plan.panic_threshold_percent,
        max_scale_up_rate=plan.max_scale_up_rate,
        max_scale_down_rate=plan.max_scale_down_rate,
        scale_down_delay_s=plan.scale_down_delay_s,
        activation_scale=plan.activation_scale,
    )
    return Recipe([Knative(metric(plan.metric), settings)], by_variant=True)


def aibrix_recipe(plan: AibrixPlan) -> Recipe:
    targets = [(metric(name, "metrics"), target) for name, target in plan.metrics.items()]
    analyzer = Aibrix(targets, strategy=plan.strategy)
    cooldown = AibrixCooldown(plan.up_cooldown_s, plan.down_cooldown_s)
    return Recipe([analyzer], limiters=[cooldown], by_variant=True)


def dynamo_recipe(plan: DynamoPlan) -> Recipe:
    analyzer = Dynamo(
        adjustment_s=plan.adjustment_s,
        ttft_s=plan.ttft_s,
        itl_s=plan.itl_s,
        budget=plan.budget,
        least=plan.least,
        predictor=plan.predictor,
        correct=plan.correct,
    )
    return Recipe([analyzer])


def _rules(direction: HpaDirection) -> list[Rule] | None:
    if direction.rules is None:
        return None
    return [Rule(rule.amount, rule.period_s, percent=rule.percent) for rule in direction.rules]
