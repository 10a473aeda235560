"""What a person writes under `scaling:` to run autoscaling manifests as they are."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from windtunnel.core.errors import InputError, nearest
from windtunnel.scaling.manifests.load import read_manifests
from windtunnel.scaling.manifests.pools import Pools
from windtunnel.scaling.plan import BoundsPlan, PartPlan, ScalingPlan, TimingPlan
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Name, Text
from windtunnel.twin.scenario.scaler_spec import Period, TimedSpec
from windtunnel.twin.scenario.serving_spec import PoolSpec

MOST_FILES = 100


class ManifestScalerSpec(TimedSpec):
    """Autoscaling as it is written for a cluster: the manifests say all but when it looks.

    Read are AutoscalingPolicy and AutoscalingPolicyBinding of Kthena, HorizontalPodAutoscaler,
    ScaledObject of KEDA, and Service of Knative. A pool that none of them names keeps its size.
    """

    manifests: list[Annotated[str, Text("the path of a file of manifests")]] = Field(
        min_length=1,
        max_length=MOST_FILES,
        description="Files of manifests; a path counts from the scenario's folder.",
    )
    targets: dict[str, Annotated[str, Name()]] = Field(
        default_factory=dict,
        description="Which pool a target of a manifest is, where their names differ: from `TARGET` "
        "or `TARGET/ROLE` to a pool. Else a target is the pool of its name, and a role of it the "
        "pool `TARGET-ROLE` or the pool of the role's name.",
    )
    interval: Period = Field(
        default=15.0,
        description="How often it looks at the fleet and decides; left out: as often as the "
        "controllers of the manifests do (Kthena, HPA and KEDA 15s, Knative 2s).",
    )


def manifest_plan(spec: ManifestScalerSpec, pools: Sequence[PoolSpec], folder: Path) -> ScalingPlan:
    """The plan of a section without faults; what is wrong with the files is raised."""
    named = Pools([pool.name for pool in pools], spec.targets)
    read = read_manifests([folder / path for path in spec.manifests], named)
    found = read.assignments
    bounds = {pool.name: BoundsPlan(pool.replicas, pool.replicas) for pool in pools}
    for assignment in found:
        bounds |= assignment.bounds
    does = nobody_serves([(pool.name, pool.role) for pool in pools], bounds)
    if does:
        hint = "give one of them a maximum of at least 1"
        raise InputError(does, where="scaling.manifests", hint=hint)
    interval_s = spec.interval
    if "interval" not in spec.model_fields_set:
        interval_s = min(assignment.interval_s for assignment in found)
    return ScalingPlan(
        timing=TimingPlan(
            interval_s,
            spec.scrape_delay,
            spec.actuation_delay.mean,
            spec.actuation_delay.stddev,
            spec.freshness,
        ),
        policy=tuple(
            PartPlan(assignment.source, tuple(assignment.bounds), assignment.policy)
            for assignment in found
        ),
        bounds=bounds,
        wake=spec.wake,
        notes=tuple(read.notes),
    )


def nobody_serves(pools: Sequence[tuple[str, str]], bounds: Mapping[str, BoundsPlan]) -> str:
    """What is wrong where nothing could be served; empty where it could. Pools: name and role."""
    for role, does in (("prefill", "computes prompts"), ("decode", "writes answers")):
        able = [name for name, own in pools if own in ("both", role)]
        if able and not any(bounds[name].maximum for name in able):
            return f"no pool that {does} may have a server: nothing would ever be served"
    return ""


def manifest_faults(
    spec: ManifestScalerSpec, pools: Sequence[PoolSpec], section: KeyPath
) -> Iterator[Fault]:
    """Pools that nobody has."""
    names = [pool.name for pool in pools]
    for target, pool in spec.targets.items():
        if pool not in names:
            path = (*section, "targets", target)
            what = f"there is no pool {pool!r}"
            yield Fault(path, what, ", ".join(names), nearest(pool, names))
