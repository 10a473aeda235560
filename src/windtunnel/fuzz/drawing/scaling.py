"""Draws `scaling:`: every policy, bounds that allow scaling to zero, delays of all kinds."""

from windtunnel.fuzz.drawing.serving import Pools
from windtunnel.fuzz.drawing.swarm import Swarm
from windtunnel.scaling.build import POLICIES, word_of
from windtunnel.scaling.settings import OptimizerSettings
from windtunnel.settings.drawing import Dice, Values, draw_section

MOST_REPLICAS = 5
SHORTEST_S = 0.05
"""Minimum interval: slow server starts make a run far longer than its traffic."""
MOST_LOOKS = 200
"""About the most decisions of an autoscaler while requests arrive."""


def draw_scaling(swarm: Swarm, pools: Pools, lasts_s: float) -> Values | None:
    """Draws the section; None keeps every pool's size. Some pools may begin with no server."""
    if not swarm.has("scaling"):
        return None
    dice = swarm.dice("scaling")
    settings = dice.pick(*POLICIES)
    scaling: Values = {"policy": word_of(settings), **settings.draw(dice, pools.names)}
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
    """Draws the bounds and the initial replicas of every pool."""
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
