"""Draws a whole scenario from a seed: plain data, as a file of a user would have it."""

from windtunnel.core.random import Streams
from windtunnel.fuzz.drawing.dice import Section, Swarm
from windtunnel.fuzz.drawing.gateway import draw_gateway, looks_at_servers
from windtunnel.fuzz.drawing.scaling import draw_scaling
from windtunnel.fuzz.drawing.serving import (
    MODEL,
    draw_coming_and_going,
    draw_encoders,
    draw_pools,
    draw_router,
    draw_split,
)
from windtunnel.fuzz.drawing.workload import draw_traffic

__all__ = ["draw"]


def draw(seed: int) -> Section:
    """The scenario of a seed; it is meant to be valid, so that a refusal of it is a finding."""
    swarm = Swarm(Streams(seed))
    dice = swarm.dice("scenario")
    duration_s = dice.span(1.0, 90.0) if swarm.has("duration") else None
    traffic = draw_traffic(swarm, duration_s)
    pools = draw_pools(swarm, traffic)
    scaling = draw_scaling(swarm, pools, traffic.lasts_s)
    gateway = draw_gateway(swarm, traffic)
    serving: Section = {
        "pools": pools.pools,
        "router": draw_router(swarm, watched=looks_at_servers(gateway)),
        "admission": gateway,
        "disaggregation": draw_split(swarm, pools),
        "encode": draw_encoders(swarm, traffic),
        **(draw_coming_and_going(swarm, traffic.lasts_s) if scaling is not None else {}),
    }
    scenario: Section = {
        "name": f"fuzz-{seed}",
        "seed": seed,
        "duration": duration_s,
        "model": MODEL if pools.needs_model else None,
        "workload": traffic.sources,
        "slo": traffic.classes or None,
        "serving": {key: value for key, value in serving.items() if value is not None},
        "scaling": scaling,
    }
    return {key: value for key, value in scenario.items() if value is not None}
