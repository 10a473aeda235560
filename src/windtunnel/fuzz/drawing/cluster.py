"""Draws `gangs:` and `fleet:`: the pods of servers, and the machines that they run on."""

import math
from typing import Any

from windtunnel.fuzz.drawing.serving import ACCELERATORS, Pools
from windtunnel.fuzz.drawing.swarm import Swarm
from windtunnel.settings.drawing import Dice, Values

GPU = "nvidia.com/gpu"
STARTS = ("CliqueStartupTypeAnyOrder", "CliqueStartupTypeInOrder")
SHORTEST_DELAY_S = 60.0
CLASSES = {"high": 100, "low": -100}
TOPOLOGY: Values = {
    "apiVersion": "grove.io/v1alpha1",
    "kind": "ClusterTopologyBinding",
    "metadata": {"name": "house"},
    "spec": {
        "levels": [
            {"domain": "zone", "key": "topology.kubernetes.io/zone"},
            {"domain": "rack", "key": "topology.kubernetes.io/rack"},
            {"domain": "host", "key": "kubernetes.io/hostname"},
        ]
    },
}


class DrawnCluster:
    """The drawn sections, and the manifests that are written beside the scenario."""

    def __init__(self) -> None:
        self.gangs: Values | None = None
        self.fleet: Values | None = None
        self.manifests: list[Values] = []


def draw_cluster(
    swarm: Swarm, pools: Pools, scaling: Values | None, lasts_s: float, file: str
) -> DrawnCluster:
    """Draws both sections, and gives pools the cliques, accelerators and priorities they need.

    `file` is the name of the file with the manifests.
    """
    cluster = DrawnCluster()
    if swarm.has("gangs"):
        dice = swarm.dice("gangs")
        for number, pool in enumerate(pools.pools):
            one = swarm.dice(f"gangs.{number}")
            cluster.manifests.append(_set(one, f"set-{number}", pool, scaling, lasts_s))
        cluster.gangs = {"manifests": [file], "priorities": CLASSES}
        if dice.chance(0.7):
            cluster.gangs["times"] = _times(dice, lasts_s)
    if swarm.has("fleet"):
        dice = swarm.dice("fleet")
        for pool in pools.pools:
            pool.setdefault("accelerator", dice.pick(*ACCELERATORS))
            if cluster.gangs is None and dice.chance(0.5):
                pool["tensor_parallel"] = dice.pick(1, 2)
            if dice.chance(0.4):
                pool["priority"] = dice.whole(-5, 5)
        cluster.fleet = _fleet(dice, pools, lasts_s)
    return cluster


def _set(dice: Dice, name: str, pool: Values, scaling: Values | None, lasts_s: float) -> Values:
    """A PodCliqueSet; the pool is its clique, its scaling group, or the set itself."""
    kind = dice.pick("clique", "group", "set")
    start = dice.pick(*STARTS)
    template: Values = {"cliqueStartupType": start}
    if dice.chance(0.6):
        # A gang that is ended before it can be ready comes and goes until the run gives up.
        template["terminationDelay"] = f"{int(SHORTEST_DELAY_S + lasts_s * dice.span(0.05, 1.0))}s"
    if dice.chance(0.3):
        template["priorityClassName"] = dice.pick(*CLASSES)
    least = _least(dice, pool, scaling)
    replicas = max(1, pool["replicas"], least)
    small = pool["step_time"]["model"] != "linear"  # a model splits over one or two alone
    if kind == "clique":
        gpus = dice.pick(1, 2) if small else dice.few(1, 4)
        clique = _clique(dice, f"{name}-pod", replicas, gpus)
        clique["spec"]["minAvailable"] = least
        template["cliques"] = [clique]
        pool["clique"], pool["tensor_parallel"] = f"{name}-pod", gpus
    else:
        leader, workers = (1, 1) if small else (dice.few(1, 2), dice.few(1, 2))
        cliques = [_clique(dice, "lead", 1, leader), _clique(dice, "help", workers, 1)]
        if workers > 1 and dice.chance(0.4):
            workers = cliques[1]["spec"]["minAvailable"] = 1  # so many make a server
        template["cliques"] = cliques
        pool["tensor_parallel"] = leader + workers
        pool["clique"] = name
    if kind == "group":
        members = ["lead", "help"]
        group = {"name": f"{name}-group", "cliqueNames": members, "replicas": replicas}
        template["podCliqueScalingGroups"] = [{**group, "minAvailable": least}]
        pool["clique"] = f"{name}-group"
    if dice.chance(0.3):
        template["onStranded"] = dice.pick("Hold", "Terminate")
    for clique in template["cliques"]:
        for key in ("startupProbe", "readinessProbe"):
            if dice.chance(0.3):
                probe = {"periodSeconds": dice.pick(1, 5, 10), "failureThreshold": 10_000}
                clique["spec"]["podSpec"]["containers"][0][key] = probe
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": {"name": name},
        "spec": {"replicas": replicas if kind == "set" else 1, "template": template},
    }


def _least(dice: Dice, pool: Values, scaling: Values | None) -> int:
    """`minAvailable` of the scaled object; smaller counts other than 0 are rejected."""
    bounds = (scaling or {}).get("pools", {}).get(pool["name"], {"min": 1})
    two = pool["replicas"] != 1 and bounds["min"] != 1
    return 2 if two and dice.chance(0.5) else 1


def _clique(dice: Dice, name: str, replicas: int, gpus: int) -> Values:
    container = {"name": "e", "image": f"{name}:1", "resources": {"requests": {GPU: str(gpus)}}}
    pod: Values = {"containers": [container]}
    if dice.chance(0.6):
        pod["terminationGracePeriodSeconds"] = dice.few(0, 30)
    return {"name": name, "spec": {"roleName": name, "replicas": replicas, "podSpec": pod}}


def _times(dice: Dice, lasts_s: float) -> Values:
    keys = ("scheduling", "image_pull", "startup", "ending", "crash_after", "node_lost_after")
    times: Values = {key: min(lasts_s * dice.span(0.001, 0.1), 5.0) for key in dice.some(keys)}
    if dice.chance(0.5):
        times["evict_after"] = lasts_s * dice.span(0.01, 0.5)
    if "image_pull" in times and dice.chance(0.4):
        times["image_pull"] = {"mean": times["image_pull"], "distribution": "exponential"}
    return times


def _fleet(dice: Dice, pools: Pools, lasts_s: float) -> Values:
    machines: list[Values] = []
    for kind in dict.fromkeys(pool["accelerator"] for pool in pools.pools):
        served = [pool for pool in pools.pools if pool["accelerator"] == kind]
        machines += [
            _machines(dice, f"{kind}-{number}", kind, served, lasts_s)
            for number in range(dice.few(1, 2))
        ]
    fleet: Values = {"pools": machines}
    if dice.chance(0.8):
        fleet["cycle"] = max(0.1, lasts_s * dice.span(0.01, 0.2))
    if dice.chance(0.4):
        fleet["replaced_after"] = lasts_s * dice.span(0.01, 1.0)
    return fleet


def _machines(
    dice: Dice, name: str, kind: str, served: list[Values], lasts_s: float
) -> dict[str, Any]:
    """Machines that can hold each pool alone; whether they can hold all pools is left to chance."""
    largest = max(pool.get("tensor_parallel", 1) for pool in served)
    size = max(largest, dice.pick(1, 2, 4, 8))
    needs = [
        math.ceil(pool["replicas"] / (size // pool.get("tensor_parallel", 1))) for pool in served
    ]
    most = (sum(needs) if dice.chance(0.7) else max(needs)) + dice.few(0, 4)
    most = max(1, most)
    counts: Values = {"max": most}
    if dice.chance(0.4):
        counts["min"] = dice.whole(0, most)
    if dice.chance(0.4):
        counts["initial"] = dice.whole(counts.get("min", 0), most)
    drawn: Values = {
        "name": name,
        "accelerator": kind,
        "accelerators": size,
        "machines": counts,
        "provisioning": {"mean": lasts_s * dice.span(0.001, 0.5)},
        "capacity": dice.pick("on-demand", "spot", "reserved", "bare-metal"),
        "zone": dice.pick("zone-1", "zone-2"),
    }
    if dice.chance(0.5):
        drawn["provisioning"]["stddev"] = drawn["provisioning"]["mean"] * dice.pick(0.3, 2.0)
    if dice.chance(0.4):
        drawn["machines_per_rack"] = dice.few(1, 3)
    if dice.chance(0.4):
        drawn["interruption"] = dice.span(0.01, 1.0)
    if dice.chance(0.4):
        drawn["price_per_hour"] = dice.span(0.1, 50.0)
    return drawn
