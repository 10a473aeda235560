"""Draws `faults:` and `serving.retries:`; each kind of fault draws its own settings."""

from windtunnel.fuzz.drawing.cluster import DrawnCluster
from windtunnel.fuzz.drawing.serving import Pools
from windtunnel.fuzz.drawing.swarm import Swarm
from windtunnel.settings.drawing import Values
from windtunnel.twin.faults.context import FaultContext, MachinePool
from windtunnel.twin.faults.kinds import KINDS
from windtunnel.twin.faults.timing import draw_time

MOST_FAULTS = 4


def fault_context(
    pools: Pools, cluster: DrawnCluster, lasts_s: float, *, scales: bool, queues: bool
) -> FaultContext:
    """What the drawn sections offer as targets of faults."""
    machines = cluster.fleet["pools"] if cluster.fleet is not None else []
    return FaultContext(
        servers={pool["name"]: pool["replicas"] for pool in pools.pools},
        machines=tuple(
            MachinePool(one["name"], one["zone"], one["capacity"] == "spot") for one in machines
        ),
        scales=scales,
        queues=queues,
        pods=cluster.gangs is not None or cluster.fleet is not None,
        lasts_s=lasts_s,
    )


def draw_faults(swarm: Swarm, context: FaultContext) -> list[Values]:
    if not swarm.has("faults"):
        return []
    count = swarm.dice("faults").few(1, MOST_FAULTS)
    kinds = [word for word, kind in KINDS.items() if kind.applies(context)]
    faults = []
    for number in range(count):
        dice = swarm.dice(f"faults.{number}")
        word = dice.pick(*kinds)
        time = draw_time(dice, context)
        faults.append({"kind": word, **time, **KINDS[word].draw(dice, context)})
    return faults


def draw_retries(swarm: Swarm) -> Values | None:
    dice = swarm.dice("retries")
    return {"attempts": dice.few(0, 3)} if dice.chance(0.6) else None
