"""Draws a whole scenario from a seed: plain data, as in a user's file."""

from windtunnel.core.random import Streams
from windtunnel.fuzz.documents import BESIDE, FILES
from windtunnel.fuzz.drawing.cluster import draw_cluster
from windtunnel.fuzz.drawing.faults import draw_faults, draw_retries, fault_context
from windtunnel.fuzz.drawing.gateway import draw_gateway, looks_at_servers
from windtunnel.fuzz.drawing.manifests import draw_manifests
from windtunnel.fuzz.drawing.scaling import draw_scaling
from windtunnel.fuzz.drawing.serving import (
    MODEL,
    draw_clusters,
    draw_coming_and_going,
    draw_encoders,
    draw_models,
    draw_pools,
    draw_router,
    draw_split,
)
from windtunnel.fuzz.drawing.swarm import Swarm
from windtunnel.fuzz.drawing.workload import draw_trace, draw_traffic
from windtunnel.settings.drawing import Values

__all__ = ["draw"]


def draw(seed: int) -> Values:
    """The scenario of a seed; it is meant to be valid, so that its rejection is a finding."""
    swarm = Swarm(Streams(seed))
    dice = swarm.dice("scenario")
    duration_s = dice.span(1.0, 90.0) if swarm.has("duration") else None
    traffic = draw_traffic(swarm, duration_s)
    pools = draw_models(swarm, traffic, draw_pools(swarm, traffic))
    clusters = draw_clusters(swarm, pools)
    scaling = draw_scaling(swarm, pools, traffic.lasts_s)
    files: Values = {}
    file = f"gangs-{seed}{BESIDE}"
    cluster = draw_cluster(swarm, pools, scaling, traffic.lasts_s, file)
    if cluster.gangs is not None:
        files[file] = cluster.manifests
    moves = scaling is not None or cluster.gangs is not None or cluster.fleet is not None
    gateway = draw_gateway(swarm, traffic)
    queues = gateway is not None and (gateway["policy"] != "always" or bool(gateway.get("budgets")))
    context = fault_context(
        pools, cluster, traffic.lasts_s, scales=scaling is not None, queues=queues
    )
    faults = draw_faults(swarm, context)
    trace = draw_trace(swarm, traffic, pools.models, f"trace-{seed}")
    if trace is not None:
        files[trace[0]["trace"]["path"]] = trace[1]
    file = f"scaling-{seed}{BESIDE}"
    manifests = draw_manifests(swarm, scaling, file) if scaling is not None else None
    if manifests is not None:
        scaling, files[file] = manifests
    serving: Values = {
        "pools": pools.pools,
        "clusters": clusters,
        "router": draw_router(swarm, watched=looks_at_servers(gateway)),
        "admission": gateway,
        "disaggregation": draw_split(swarm, pools),
        "encode": draw_encoders(swarm, traffic),
        "retries": draw_retries(swarm) if context.pods or faults else None,
        **(draw_coming_and_going(swarm, traffic.lasts_s) if moves else {}),
    }
    scenario: Values = {
        "name": f"fuzz-{seed}",
        "seed": seed,
        "duration": duration_s,
        "measure": {"from": dice.span(0.01, 0.9)} if swarm.has("measure") else None,
        "model": MODEL if pools.needs_model and not pools.models else None,
        "workload": [*traffic.sources, *([trace[0]] if trace is not None else [])],
        "slo": traffic.classes or None,
        "serving": {key: value for key, value in serving.items() if value is not None},
        "scaling": scaling,
        "gangs": cluster.gangs,
        "fleet": cluster.fleet,
        "faults": faults or None,
        FILES: files or None,
    }
    return {key: value for key, value in scenario.items() if value is not None}
