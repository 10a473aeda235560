"""Draws several models and clusters: the model and the cluster of each pool."""

import copy

from windtunnel.fuzz.drawing.serving import MODEL, Pools
from windtunnel.fuzz.drawing.swarm import Swarm
from windtunnel.fuzz.drawing.workload import TrafficDraw
from windtunnel.settings.drawing import Values

MODELS = (MODEL, "llama-3.2-1b")
ELSEWHERE = ("east", "west")
APART = "apart"
"""The pool of the second model, if the other pools depend on each other."""


def draw_models(swarm: Swarm, traffic: TrafficDraw, pools: Pools) -> Pools:
    """Gives pools and sources models of their own, or leaves them as they are."""
    if not swarm.has("several-models"):
        return pools
    dice = swarm.dice("several-models")
    made = pools.pools
    if pools.is_split or len(made) == 1:
        one = copy.deepcopy(made[0])
        one.pop("role", None)
        other = {**one, "name": APART}
        for pool in made:
            pool["model"] = MODELS[0]
        made = [*made, {**other, "model": MODELS[1]}]
    else:
        for number, pool in enumerate(made):
            pool["model"] = MODELS[min(number, 1)]
    for source in traffic.sources:
        source["model"] = dice.pick(*MODELS)
    return Pools(made)


def draw_clusters(swarm: Swarm, pools: Pools) -> Values | None:
    """Draws `serving.clusters`; pools that split requests are in the same cluster."""
    if not swarm.has("clusters"):
        return None
    dice = swarm.dice("clusters")
    together = dice.pick("", *ELSEWHERE)
    for pool in pools.pools:
        alone = not pools.is_split or pool["name"] == APART
        where = dice.pick("", *ELSEWHERE) if alone else together
        if where:
            pool["cluster"] = where
    used = sorted({pool["cluster"] for pool in pools.pools if "cluster" in pool})
    far = {name: {"latency": dice.span(1e-4, 0.5)} for name in used if dice.chance(0.7)}
    return far or None
