"""Gateway admission: shedding, budgets and flow control."""

from windtunnel.admission.gateway.bands import Weights
from windtunnel.admission.gateway.budgets import TenantBudgets
from windtunnel.admission.gateway.detectors import Concurrency, Detector, Utilization
from windtunnel.admission.gateway.driver import GatewayDriver
from windtunnel.admission.gateway.flow_control import ORDERS, FlowControl
from windtunnel.admission.gateway.gateway import Allowance, Gateway
from windtunnel.admission.gateway.policies import (
    Always,
    SaturationShed,
    TierShed,
    TokenBucket,
    build_gateway,
)
from windtunnel.admission.gateway.reasons import Reason
from windtunnel.admission.gateway.settings import FlowControlSettings, GatewaySettings
from windtunnel.admission.gateway.tickets import (
    ADMIT,
    EVICT,
    KIND_NAMES,
    QUEUE,
    REJECT,
    GatewayDecision,
    RequestId,
    Ticket,
)

__all__ = [
    # The driver contract.
    "GatewayDriver",
    "Ticket",
    "RequestId",
    "GatewayDecision",
    "Reason",
    "ADMIT",
    "QUEUE",
    "REJECT",
    "EVICT",
    "KIND_NAMES",
    "Allowance",
    # Policies.
    "Gateway",
    "Always",
    "TokenBucket",
    "TierShed",
    "SaturationShed",
    "TenantBudgets",
    "FlowControl",
    "FlowControlSettings",
    "GatewaySettings",
    "build_gateway",
    "Weights",
    "ORDERS",
    # Saturation of the fleet.
    "Detector",
    "Concurrency",
    "Utilization",
]
