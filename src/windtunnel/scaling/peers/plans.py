"""What the policies of others are built from, with every default filled in."""

from __future__ import annotations

import msgspec

from windtunnel.scaling.plan import PolicyPlan


class HpaMetric(msgspec.Struct, frozen=True):
    """A metric, its target, and what the target is of."""

    name: str
    target: float
    kind: str = "average"


class HpaRule(msgspec.Struct, frozen=True):
    """A step that is allowed within a period."""

    amount: int
    period_s: float
    percent: bool


class HpaDirection(msgspec.Struct, frozen=True):
    """How a size may change in one direction; no rules: those of Kubernetes."""

    window_s: float
    rules: tuple[HpaRule, ...] | None = None
    select: str = "Max"


class HpaPlan(PolicyPlan, frozen=True):
    """As Kubernetes' HorizontalPodAutoscaler has it."""

    metrics: tuple[HpaMetric, ...]
    tolerance: float = 0.1
    up: HpaDirection = HpaDirection(0.0)
    down: HpaDirection = HpaDirection(300.0)
    tolerance_down: float | None = None
    """Below the target, where it differs."""


class KedaPlan(PolicyPlan, frozen=True):
    """As KEDA's ScaledObject has it: an HPA above one replica, and its own switch below."""

    hpa: HpaPlan
    activation: float = 0.0
    cooldown_s: float = 300.0
    idle: int | None = None
    """While nothing is active; None: the smallest size."""
    least: int = 1
    """While something is active."""


class KnativePlan(PolicyPlan, frozen=True):
    """As Knative's pod autoscaler has it."""

    metric: str = "concurrency"
    target: float = 100.0
    utilization_percent: float = 70.0
    window_s: float = 60.0
    panic_window_percent: float = 10.0
    panic_threshold_percent: float = 200.0
    max_scale_up_rate: float = 1000.0
    max_scale_down_rate: float = 2.0
    scale_down_delay_s: float = 0.0
    activation_scale: int = 1


class AibrixPlan(PolicyPlan, frozen=True):
    """As AIBrix' PodAutoscaler has it."""

    metrics: dict[str, float]
    strategy: str = "APA"
    up_cooldown_s: float = 0.0
    down_cooldown_s: float = 300.0


class DynamoPlan(PolicyPlan, frozen=True):
    """As Dynamo's SLA planner has it."""

    adjustment_s: float = 180.0
    ttft_s: float = 0.5
    itl_s: float = 0.05
    budget: int = 8
    least: int = 1
    predictor: str = "constant"
    correct: bool = True
