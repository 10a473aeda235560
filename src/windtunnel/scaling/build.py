"""Builds the scaler that a plan asks for. A policy is a row in `BUILDERS`."""

from collections.abc import Callable, Sequence
from typing import Any

from windtunnel.scaling.assigned import Assigned
from windtunnel.scaling.kthena.build import kthena_recipe
from windtunnel.scaling.kthena.settings import KthenaPlan
from windtunnel.scaling.optimizers import CostOrdered
from windtunnel.scaling.parts import Optimizer
from windtunnel.scaling.peers.build import (
    aibrix_recipe,
    dynamo_recipe,
    hpa_recipe,
    keda_recipe,
    knative_recipe,
)
from windtunnel.scaling.peers.plans import (
    AibrixPlan,
    DynamoPlan,
    HpaPlan,
    KedaPlan,
    KnativePlan,
)
from windtunnel.scaling.plan import (
    BlisPlan,
    PartPlan,
    PolicyPlan,
    SaturationPlan,
    ScalingPlan,
    StabilizationPlan,
    WvaPlan,
    WvaSparePlan,
)
from windtunnel.scaling.policy import Decider, Policy
from windtunnel.scaling.predictive.build import PredictivePlan, predictive_recipe
from windtunnel.scaling.recipe import Recipe
from windtunnel.scaling.saturation import Saturation
from windtunnel.scaling.scaler import Scaler, Timing
from windtunnel.scaling.spare import SpareCapacity
from windtunnel.scaling.windows import Matched, Rate, Sustained, ZeroAfter

SLOW_DOWN = StabilizationPlan(up_s=0.0, down_s=300.0)
"""Up at once, down when it was asked for as long as Kubernetes waits."""


def _saturation(plan: SaturationPlan) -> Recipe:
    analyzer = Saturation(
        up=plan.up,
        down=plan.down,
        kv_threshold=plan.kv_threshold,
        average_prompt=plan.average_prompt,
        full_queue=plan.full_queue,
        compute_bound=plan.compute_bound,
    )
    return Recipe([analyzer], stabilization=SLOW_DOWN)


def _wva(plan: WvaPlan) -> Recipe:
    analyzer = Saturation(
        up=plan.up, down=plan.down, kv_threshold=plan.kv_threshold, full_queue=plan.full_queue
    )
    return Recipe([analyzer], limiters=[Matched()], stabilization=SLOW_DOWN)


def _wva_spare(plan: WvaSparePlan) -> Recipe:
    analyzer = SpareCapacity(
        kv_threshold=plan.kv_threshold,
        queue_threshold=plan.queue_threshold,
        kv_spare=plan.kv_spare,
        queue_spare=plan.queue_spare,
    )
    optimizer = CostOrdered(order="price", engine="unlimited", keep_one=True)
    return Recipe([analyzer], optimizer, stabilization=SLOW_DOWN)


def _blis(plan: BlisPlan) -> Recipe:
    analyzer = Saturation(
        up=plan.up,
        down=plan.down,
        kv_threshold=plan.kv_threshold,
        average_prompt=plan.average_prompt,
        measured_prompt=False,
        compute_bound=False,
        answers=False,
        gateway=False,
        check_last=True,
    )
    optimizer = CostOrdered(order="price", engine="unlimited", one_variant=True)
    return Recipe([analyzer], optimizer, stabilization=StabilizationPlan(0.0, 0.0))


BUILDERS: dict[type[PolicyPlan], Callable[[Any], Recipe]] = {
    SaturationPlan: _saturation,
    WvaPlan: _wva,
    WvaSparePlan: _wva_spare,
    BlisPlan: _blis,
    KthenaPlan: kthena_recipe,
    HpaPlan: hpa_recipe,
    KedaPlan: keda_recipe,
    KnativePlan: knative_recipe,
    AibrixPlan: aibrix_recipe,
    DynamoPlan: dynamo_recipe,
    PredictivePlan: predictive_recipe,
}
"""By plan; each takes a plan of its own kind."""


def build_policy(plan: ScalingPlan) -> Decider:
    """A policy without any memory."""
    if not isinstance(plan.policy, tuple):
        return _policy(plan, plan.policy)
    return Assigned(
        {
            part.source: _policy(plan, part.policy, part.source, list(part.pools))
            for part in plan.policy
        }
    )


def _policy(
    plan: ScalingPlan, policy: PolicyPlan, name: str = "", only: list[str] | None = None
) -> Policy:
    recipe = BUILDERS[type(policy)](policy)
    optimizer = _optimizer(plan, recipe)
    limiters = list(recipe.limiters)
    windows = plan.stabilization or recipe.stabilization
    if windows is not None:
        limiters.append(Sustained(windows.up_s, windows.down_s))
    if plan.matched_roles and not any(isinstance(limiter, Matched) for limiter in limiters):
        limiters.append(Matched())
    if plan.rate is not None:
        limiters.append(Rate(plan.rate.up, plan.rate.down, plan.rate.period_s))
    if plan.zero_after_s is not None:
        limiters.append(ZeroAfter(plan.zero_after_s))
    return Policy(
        name or type(policy).__name__.removesuffix("Plan").lower(),
        recipe.analyzers,
        optimizer,
        limiters,
        by_variant=recipe.by_variant,
        together=recipe.together,
        wake=plan.wake,
        only=only,
    )


def _optimizer(plan: ScalingPlan, recipe: Recipe) -> Optimizer:
    if plan.optimizer is not None:
        return CostOrdered(order=plan.optimizer.order, engine=plan.optimizer.engine)
    return recipe.optimizer or CostOrdered()


def minds_accelerators(plan: ScalingPlan) -> bool:
    """Whether any policy of the plan grows only onto accelerators that are free."""
    policies = plan.policy if isinstance(plan.policy, tuple) else (plan.policy,)
    for policy in policies:
        of = policy.policy if isinstance(policy, PartPlan) else policy
        optimizer = _optimizer(plan, BUILDERS[type(of)](of))
        if isinstance(optimizer, CostOrdered) and optimizer.greedy:
            return True
    return False


def notes_of(plan: ScalingPlan) -> list[str]:
    """What is allowed and may surprise, to be said once of a run."""
    policies = plan.policy if isinstance(plan.policy, tuple) else (plan.policy,)
    notes = list(plan.notes)
    for policy in policies:
        of = policy.policy if isinstance(policy, PartPlan) else policy
        key, window_s = _window_down(plan, of)
        if isinstance(policy, PartPlan):  # whose manifest has a name of its own for it
            key = f"the window for fewer replicas of {policy.source}"
        note = f"{key} is 0s: servers go at the first tick that could spare them"
        if window_s == 0 and note not in notes:
            notes.append(note)
    return notes


def _window_down(plan: ScalingPlan, policy: PolicyPlan) -> tuple[str, float | None]:
    """The key of the window before a policy shrinks, and its length; None: it has none."""
    if isinstance(policy, KthenaPlan):
        return "behavior.down.window", policy.behavior.down.window_s
    if isinstance(policy, HpaPlan):
        return "down.window", policy.down.window_s
    if isinstance(policy, KedaPlan):
        return "down.window", policy.hpa.down.window_s
    windows = plan.stabilization or BUILDERS[type(policy)](policy).stabilization
    return "stabilization.down", None if windows is None else windows.down_s


def build_scaler(plan: ScalingPlan, models: Sequence[str]) -> Scaler:
    """A scaler before its first tick, with one policy that all models share."""
    timing = Timing(
        plan.timing.interval_s,
        scrape_delay_s=plan.timing.scrape_delay_s,
        actuation_delay_s=plan.timing.actuation_delay_s,
        actuation_stddev_s=plan.timing.actuation_stddev_s,
        freshness_s=plan.timing.freshness_s,
    )
    policy = build_policy(plan)
    return Scaler(dict.fromkeys(models, policy), timing)
