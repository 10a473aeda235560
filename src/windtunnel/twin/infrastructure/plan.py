"""Clusters and machines as plans: manifests of gangs, what each pool is, the fleet."""

import msgspec

from windtunnel.fleet.settings import FleetSettings

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


class DelayPlan(msgspec.Struct, frozen=True):
    """A time that varies, as `twin.kubernetes.times.Delay` has it."""

    mean_s: float
    kind: str = "constant"
    spread: float = 0.0


class PodTimesPlan(msgspec.Struct, frozen=True):
    """How long things take in the life of a pod, and how a cluster looks after its machines."""

    scheduling: DelayPlan
    image_pull: DelayPlan
    startup: DelayPlan
    readiness: DelayPlan
    ending: DelayPlan
    crash_after_s: float
    node_lost_after_s: float
    evict_after_s: float


class InfrastructurePlan(msgspec.Struct, frozen=True):
    """Gangs of pods on machines."""

    files: tuple[tuple[str, str], ...]
    """Of the manifests: where each is, and what it says."""
    backings: tuple[BackingPlan, ...]
    """By pool; one that is not here is a pod per replica."""
    priorities: dict[str, int]
    """By priority class."""
    pool_priorities: dict[str, int]
    times: PodTimesPlan
    fleet: FleetSettings | None
    """None: machines without end."""
