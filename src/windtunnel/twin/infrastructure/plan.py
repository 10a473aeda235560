"""Clusters and machines as plans: manifests of gangs, what each pool is, the fleet."""

import msgspec

from windtunnel.fleet.settings import FleetSettings
from windtunnel.twin.kubernetes.times import PodDelay, PodTimes

MAIN = "main"
"""The cluster of whoever names none."""


class BackingPlan(msgspec.Struct, frozen=True):
    """What the replicas of a pool are."""

    pool: str
    set_name: str
    kind: str
    """PodClique, PodCliqueScalingGroup or PodCliqueSet."""
    name: str
    """The role of a clique, the short name of a group; of a set its own name."""


class InfrastructurePlan(msgspec.Struct, frozen=True):
    """Gangs of pods on machines."""

    files: tuple[tuple[str, str], ...]
    """Of the manifests: where each is, and what it says."""
    backings: tuple[BackingPlan, ...]
    """By pool; one that is not here is a pod per replica."""
    priorities: dict[str, int]
    """By priority class."""
    pool_priorities: dict[str, int]
    times: PodTimes
    load: PodDelay | None
    """How long servers load, where it is not the `readiness` of the times."""
    fleet: FleetSettings | None
    """None: machines without end."""
