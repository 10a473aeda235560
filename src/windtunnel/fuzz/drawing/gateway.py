"""Draws `serving.admission:`, with options that have an effect in the rest of the scenario."""

from windtunnel.fuzz.drawing.swarm import Swarm
from windtunnel.fuzz.drawing.workload import TrafficDraw
from windtunnel.settings.drawing import Dice, Values

POLICIES = ("token-bucket", "tier-shed", "saturation", "flow-control", "flow-control", "always")


def draw_gateway(swarm: Swarm, traffic: TrafficDraw) -> Values | None:
    """Draws the section; None admits every request at once."""
    if not swarm.has("gateway"):
        return None
    dice = swarm.dice("gateway")
    priorities = traffic.priorities()
    sheds = min(priorities) < 0
    policy = dice.pick(*POLICIES)
    if policy == "saturation" and not sheds:
        policy = "flow-control"
    gateway: Values = {"policy": policy}
    if policy == "token-bucket":
        gateway["capacity"] = dice.span(10, 3000)
        gateway["refill"] = dice.pick(0, dice.span(10, 5000))
    elif policy == "tier-shed":
        gateway["threshold"] = dice.few(0, 8)
        if dice.chance(0.6):
            gateway["min_priority"] = dice.whole(-6, 9)
    elif policy == "saturation":
        gateway.update(_fullness(dice))
    elif policy == "flow-control":
        gateway.update(_flow_control(dice, traffic, priorities, sheds=sheds))
    if swarm.has("budgets"):
        shares = {name: dice.pick(0, 0.01, 0.3, 1) for name in dice.some(traffic.tenants())}
        gateway["budgets"] = shares
        if not sheds or dice.chance(0.5):
            gateway["over_budget"] = "reject-all"
    return gateway


def looks_at_servers(gateway: Values | None) -> bool:
    if gateway is None:
        return False
    if gateway["policy"] == "flow-control":
        kind: str = gateway.get("detector", {"kind": "utilization"})["kind"]
        return kind == "utilization"
    return bool(gateway["policy"] == "saturation")


def _fullness(dice: Dice) -> Values:
    drawn: Values = {}
    if dice.chance(0.7):
        drawn["queue_depth"] = dice.span(0.3, 10)
    if dice.chance(0.7):
        drawn["kv_utilization"] = dice.span(0.05, 1.0)
    return drawn


def _flow_control(dice: Dice, traffic: TrafficDraw, priorities: set[int], *, sheds: bool) -> Values:
    order = dice.pick("priority", "priority", "fifo", "slo-deadline", "round-robin")
    if order == "slo-deadline" and not traffic.has_ttft():
        order = "priority"
    drawn: Values = {"order": order, "detector": _detector(dice)}
    if len(priorities) > 1 and dice.chance(0.6):
        drawn["limit"] = dice.pick(0, 0.3, 0.9, 1)
    if dice.chance(0.6):
        drawn["max_waiting"] = dice.few(0, 12)
    if dice.chance(0.4):
        drawn["max_waiting_per_band"] = dice.few(0, drawn.get("max_waiting", 8))
    if dice.chance(0.5):
        drawn["ttl"] = dice.span(0.01, 20.0)
    if dice.chance(0.5):
        drawn["shedding"] = dice.chance(0.5)
    if order == "priority" and sheds and dice.chance(0.6):
        drawn["eviction"] = True
    if order == "priority" and dice.chance(0.4):
        drawn["weights"] = {name: dice.span(0.1, 9) for name in dice.some(traffic.tenants())}
    return drawn


def _detector(dice: Dice) -> Values:
    kind = dice.pick("concurrency", "utilization", "utilization", "never")
    if kind == "concurrency":
        return {"kind": kind, "max_per_server": dice.few(1, 8)}
    if kind == "utilization":
        detector = {"kind": kind, **_fullness(dice)}
        if dice.chance(0.3):
            detector["interval"] = dice.span(2.0, 5.0)  # never below what is stale
        return detector
    return {"kind": kind}
