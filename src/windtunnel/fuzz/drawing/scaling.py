"""Draws `scaling:`: every policy, bounds that let pools go to zero, delays of all kinds."""

from collections.abc import Callable

from windtunnel.fuzz.drawing.serving import Pools
from windtunnel.fuzz.drawing.swarm import Swarm
from windtunnel.scaling.build import POLICIES, word_of
from windtunnel.scaling.settings import OptimizerSettings, PolicySettings
from windtunnel.settings.drawing import Dice, Values, draw_section

METRICS = ("num_requests_waiting", "running", "concurrency", "kv_used", "ttft", "tpot", "rate")
MOST_REPLICAS = 5
SHORTEST_S = 0.05
"""Of an interval: servers that take long to come make a run far longer than its traffic."""
MOST_LOOKS = 200
"""While requests come, an autoscaler looks at most about so often."""


def draw_scaling(swarm: Swarm, pools: Pools, lasts_s: float) -> Values | None:
    """None: every pool keeps its size. Otherwise some pools may begin with no server."""
    if not swarm.has("scaling"):
        return None
    dice = swarm.dice("scaling")
    settings = dice.pick(*POLICIES)
    scaling: Values = {"policy": word_of(settings), **_options(dice, settings, pools)}
    scaling["interval"] = max(SHORTEST_S, lasts_s * dice.span(1.0 / MOST_LOOKS, 0.3))
    _bounds(scaling, dice, pools)
    _delays(scaling, dice)
    if "stabilization" not in settings.unused and dice.chance(0.85):
        scaling["stabilization"] = {"up": dice.pick(0, 1.0), "down": dice.pick(0, 0, 0.5, 5.0)}
    if "optimizer" not in settings.unused and dice.chance(0.3):
        scaling["optimizer"] = draw_section(dice, OptimizerSettings, OptimizerSettings.model_fields)
    if dice.chance(0.4):
        scaling["rate"] = {key: dice.few(1, 3) for key in dice.some(("up", "down"))}
        scaling["rate"]["period"] = dice.span(0.5, 60.0)
    if len(set(pools.roles)) > 1 and dice.chance(0.4):
        scaling["matched_roles"] = True
    return scaling


def _bounds(scaling: Values, dice: Dice, pools: Pools) -> None:
    """Of every pool; the policy's own rules may have asked for some already."""
    bounds: Values = {}
    for pool in pools.pools:
        least = dice.pick(0, 0, 1)
        most = dice.whole(2, MOST_REPLICAS)
        pool["replicas"] = dice.pick(least, most, most, dice.whole(least, most))
        bounds[pool["name"]] = {"min": least, "max": most}
    scaling["pools"] = bounds
    if any(bound["min"] == 0 for bound in bounds.values()) and dice.chance(0.5):
        scaling["zero_after"] = dice.span(0.1, 30.0)


def _delays(scaling: Values, dice: Dice) -> None:
    if dice.chance(0.4):
        scaling["scrape_delay"] = dice.span(0.01, 10.0)
        if dice.chance(0.3):
            scaling["freshness"] = scaling["scrape_delay"] * dice.pick(1.0, 2.0, 10.0)
    if dice.chance(0.4):
        mean_s = dice.pick(0.0, dice.span(0.01, 10.0))
        scaling["actuation_delay"] = {"mean": mean_s, "stddev": dice.pick(0.0, 2.0)}
    if dice.chance(0.3):
        scaling["wake"] = False


def _options(dice: Dice, settings: type[PolicySettings], pools: Pools) -> Values:
    """The policy's own options: as drawn below, or else as they are declared."""
    draw = DRAWN.get(word_of(settings))
    if draw is not None:
        return draw(dice, pools)
    own = [name for name in settings.model_fields if name not in PolicySettings.model_fields]
    return draw_section(dice, settings, own)


def _metrics(dice: Dice) -> dict[str, float]:
    return {name: dice.span(0.02, 10.0) for name in dice.some(METRICS)}


def _thresholds(dice: Dice) -> Values:
    up = dice.span(0.1, 1.0)
    return {"up": up, "down": up * dice.pick(0.2, 0.6, 0.95), "kv_threshold": dice.span(0.1, 1.0)}


def _saturation(dice: Dice, _: Pools) -> Values:
    return {**_thresholds(dice), "compute_bound": dice.chance(0.5), "full_queue": dice.few(1, 9)}


def _wva(dice: Dice, _: Pools) -> Values:
    return {**_thresholds(dice), "full_queue": dice.few(1, 9)}


def _wva_spare(dice: Dice, _: Pools) -> Values:
    kv, queue = dice.span(0.2, 1.0), dice.span(1.0, 8.0)
    return {
        "kv_threshold": kv,
        "queue_threshold": queue,
        "kv_spare": kv * dice.pick(0.1, 0.8),
        "queue_spare": queue * dice.pick(0.0, 0.5),
    }


def _blis(dice: Dice, _: Pools) -> Values:
    return {**_thresholds(dice), "average_prompt": dice.span(1.0, 600.0)}


def _predictive(dice: Dice, _: Pools) -> Values:
    return {
        "probability": dice.pick(0.5, 0.9, 0.999),
        "season": dice.pick(0, 20.0, 3600.0),
        "headroom": dice.pick(0, 0.3, 3),
        "drain": dice.span(1.0, 100.0),
    }


def _pace(dice: Dice) -> Values:
    pace: Values = {"window": dice.pick(0, 0.5, 10.0)}
    if dice.chance(0.5):
        pace["instances"] = dice.few(0, 4)
    if dice.chance(0.5):
        pace["percent"] = dice.pick(0, 50, 100, 1000)
    if dice.chance(0.5):
        pace["period"] = dice.pick(0, 1.0, 30.0)
    pace["select"] = dice.pick("Or", "And")
    return pace


def _kthena(dice: Dice, _: Pools) -> Values:
    behavior: Values = {"up": _pace(dice), "down": _pace(dice)}
    if dice.chance(0.5):
        behavior["panic"] = {"hold": dice.span(0.5, 60.0), "threshold": dice.whole(110, 400)}
    return {
        "metrics": _metrics(dice),
        "behavior": behavior,
        "tolerance_percent": dice.pick(0, 10, 50),
        "tolerance": dice.pick("per-pod", "summed"),
        "history": dice.pick("kept", "lost"),
    }


def _heterogeneous(dice: Dice, pools: Pools) -> Values:
    drawn = {**_kthena(dice, pools), "cost_expansion_percent": dice.pick(0, 100, 200, 1000)}
    if dice.chance(0.5):
        drawn["costs"] = {name: dice.span(0.1, 10.0) for name in dice.some(pools.names)}
    if dice.chance(0.5):
        drawn["coordination"] = {"mode": "Preferred"}
    return drawn


def _disaggregated(dice: Dice, pools: Pools) -> Values:
    drawn = _kthena(dice, pools)
    if dice.chance(0.5):
        drawn["metrics_of"] = {name: _metrics(dice) for name in dice.some(pools.names)}
    if len(pools.names) > 1 and dice.chance(0.6):
        drawn["ratio"] = {
            "numerator": pools.names[0],
            "denominator": pools.names[1],
            "min": dice.pick(0, 0.5, 1),
            "max": dice.pick(1, 2.5),
            "rule": dice.pick("exact", "as-shipped"),
        }
    return drawn


def _direction(dice: Dice) -> Values:
    drawn: Values = {"window": dice.pick(0, 0.5, 20.0)}
    if dice.chance(0.5):
        rules = [{"pods": dice.few(1, 4)}, {"percent": dice.pick(10, 100, 400)}]
        drawn["rules"] = [{**rule, "period": dice.span(0.5, 30.0)} for rule in dice.some(rules)]
        drawn["select"] = dice.pick("Max", "Min", "Disabled")
    return drawn


def _hpa(dice: Dice, _: Pools) -> Values:
    metrics = [
        {"name": name, "target": target, "type": dice.pick("average", "total", "value")}
        for name, target in _metrics(dice).items()
    ]
    return {
        "metrics": metrics,
        "up": _direction(dice),
        "down": _direction(dice),
        "tolerance": dice.pick(0, 0.1, 1),
    }


def _keda(dice: Dice, pools: Pools) -> Values:
    drawn = {**_hpa(dice, pools), "cooldown": dice.pick(0, 1.0, 30.0)}
    if dice.chance(0.5):
        drawn["activation"] = dice.pick(0, 1, 5)
    return drawn


def _knative(dice: Dice, _: Pools) -> Values:
    return {
        "metric": dice.pick(*METRICS),
        "target": dice.span(1.0, 20.0),
        "utilization_percent": dice.pick(1, 70, 100),
        "window": dice.span(6.0, 100.0),
        "scale_down_delay": dice.pick(0, 5.0),
        "activation_scale": dice.few(1, 3),
    }


def _aibrix(dice: Dice, _: Pools) -> Values:
    return {
        "metrics": _metrics(dice),
        "strategy": dice.pick("APA", "KPA"),
        "up_cooldown": dice.pick(0, 2.0),
        "down_cooldown": dice.pick(0, 1.0, 20.0),
    }


def _dynamo(dice: Dice, _: Pools) -> Values:
    return {
        "adjustment": dice.span(0.5, 60.0),
        "ttft": dice.span(0.01, 2.0),
        "itl": dice.span(0.001, 0.2),
        "accelerator_budget": dice.few(1, 12),
        "least": dice.pick(0, 1, 1),
        "predictor": dice.pick("constant", "kalman"),
        "correct": dice.chance(0.5),
    }


DRAWN: dict[str, Callable[[Dice, Pools], Values]] = {
    "saturation": _saturation,
    "wva": _wva,
    "wva-v1": _wva_spare,
    "blis": _blis,
    "predictive": _predictive,
    "kthena-homogeneous": _kthena,
    "kthena-heterogeneous": _heterogeneous,
    "kthena-disaggregated": _disaggregated,
    "hpa": _hpa,
    "keda": _keda,
    "knative": _knative,
    "aibrix": _aibrix,
    "dynamo": _dynamo,
}
"""Policies whose options are required, or must fit each other; others draw what they declare."""
