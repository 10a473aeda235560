"""Builds the gateway that a plan asks for."""

import math
from typing import assert_never

from windtunnel.admission.gateway.bands import Weights
from windtunnel.admission.gateway.budgets import TenantBudgets
from windtunnel.admission.gateway.detectors import Concurrency, Detector, Utilization
from windtunnel.admission.gateway.flow_control import FlowControl, FlowSettings
from windtunnel.admission.gateway.gateway import Gateway
from windtunnel.admission.gateway.plan import (
    AlwaysPlan,
    DetectorPlan,
    FlowControlPlan,
    GatewayPlan,
    PolicyPlan,
    SaturationPlan,
    TierShedPlan,
    TokenBucketPlan,
)
from windtunnel.admission.gateway.policies import Always, SaturationShed, TierShed, TokenBucket


def build_gateway(plan: GatewayPlan, tenants: list[str]) -> Gateway:
    """A gateway before its first request; `tenants` are names by number, and may grow."""
    gateway = _policy(plan.policy, tenants)
    if not plan.budgets:
        return gateway
    return TenantBudgets(gateway, dict(plan.budgets), tenants, reject_all=plan.reject_all)


def _policy(plan: PolicyPlan, tenants: list[str]) -> Gateway:
    if isinstance(plan, AlwaysPlan):
        return Always()
    if isinstance(plan, TokenBucketPlan):
        return TokenBucket(plan.capacity, plan.refill_per_s)
    if isinstance(plan, TierShedPlan):
        return TierShed(plan.threshold, plan.min_priority)
    if isinstance(plan, SaturationPlan):
        return SaturationShed(plan.queue_depth, plan.kv_used)
    if isinstance(plan, FlowControlPlan):
        settings = FlowSettings(
            plan.order,
            plan.max_waiting,
            plan.max_waiting_per_band,
            math.inf if plan.ttl_s is None else plan.ttl_s,
            plan.limit,
            shedding=plan.shedding,
            eviction=plan.eviction,
        )
        weights = Weights(dict(plan.weights), tenants)
        return FlowControl(_detector(plan.detector), settings, weights, list(plan.priorities))
    assert_never(plan)


def _detector(plan: DetectorPlan) -> Detector:
    if plan.kind == "concurrency":
        return Concurrency(plan.max_per_server)
    if plan.kind == "utilization":
        return Utilization(plan.queue_depth, plan.kv_used, plan.interval_s)
    assert plan.kind == "never"
    return Detector()
