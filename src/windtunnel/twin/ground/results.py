"""What `result.json` says of gangs and machines."""

from typing import Any

from windtunnel.twin.footing import Footing
from windtunnel.twin.ground.ground import Ground


def gangs_of(footing: Footing | None) -> dict[str, Any] | None:
    """Pods at the end of a run, by cluster; None where servers stand on nothing."""
    if not isinstance(footing, Ground):
        return None
    clusters = {}
    for yard in footing.yards:
        pods = list(yard.cluster.view.pods.values())
        clusters[yard.name] = {
            "gangs": len(yard.cluster.view.gangs),
            "pods": len(pods),
            "waiting": sum(pod.active and not pod.node for pod in pods),
            "ready": sum(pod.ready for pod in pods),
            "sizes": yard.pods.levels.rows(footing.offset_s),
        }
    return {"terminations": footing.terminations, "clusters": clusters}


def fleet_of(footing: Footing | None, now_s: float) -> dict[str, Any] | None:
    """Machines by kind, what they cost, and what was decided; None where they are without end."""
    if not isinstance(footing, Ground) or footing.machines is None:
        return None
    machines, ground_s = footing.machines, now_s + footing.offset_s
    pools = {}
    for name, account in machines.meter.accounts.items():
        pools[name] = {
            "machine_seconds": account.seconds(ground_s),
            "cost": account.cost(ground_s),
            "machines": account.here,
            "most": account.most,
            "created": account.created,
            "given_back": account.given_back,
            "lost": account.lost,
            "sizes": account.levels.rows(footing.offset_s),
        }
    return {
        "cost": machines.meter.cost(ground_s),
        "pools": pools,
        "actions": dict(sorted(machines.actions.items())),
        "short": dict(sorted(machines.verdicts.items())),
    }
