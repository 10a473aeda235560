"""The gangs and machines in `result.json`."""

from typing import Any

from windtunnel.twin.infrastructure.infrastructure import Infrastructure
from windtunnel.twin.ports import ReplicaBacking


def gangs_of(backing: ReplicaBacking | None) -> dict[str, Any] | None:
    """Pods at the end of a run, by cluster; None without clusters."""
    if not isinstance(backing, Infrastructure):
        return None
    clusters = {}
    for serving_cluster in backing.serving_clusters:
        pods = list(serving_cluster.cluster.view.pods.values())
        clusters[serving_cluster.name] = {
            "gangs": len(serving_cluster.cluster.view.gangs),
            "pods": len(pods),
            "waiting": sum(pod.active and not pod.node for pod in pods),
            "ready": sum(pod.ready for pod in pods),
            "sizes": serving_cluster.pods.levels.rows,
        }
    notes = list(backing.notes)
    for serving_cluster in backing.serving_clusters:
        notes += serving_cluster.cluster.recycle_loops() + serving_cluster.unplaceable_pods()
    said = {"notes": notes} if notes else {}
    return {"terminations": backing.terminations, "clusters": clusters, **said}


def fleet_of(backing: ReplicaBacking | None, now_s: float) -> dict[str, Any] | None:
    """Machines by kind, their cost and the fleet's decisions; None without a fleet."""
    if not isinstance(backing, Infrastructure) or backing.machines is None:
        return None
    machines = backing.machines
    pools = {}
    for name, account in machines.meter.accounts.items():
        pools[name] = {
            "machine_seconds": account.seconds(now_s),
            "cost": account.cost(now_s),
            "machines": account.here,
            "most": account.most,
            "created": account.created,
            "given_back": account.given_back,
            "lost": account.lost,
            "sizes": account.levels.rows,
        }
    return {
        "cost": machines.meter.cost(now_s),
        "pools": pools,
        "actions": dict(sorted(machines.actions.items())),
        "short": dict(sorted(machines.verdicts.items())),
    }
