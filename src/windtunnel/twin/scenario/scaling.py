"""Scaling: what the section means, and what is wrong with it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.core.errors import InputError, nearest
from windtunnel.core.units import format_duration
from windtunnel.scaling.build import build_policy, minds_accelerators
from windtunnel.scaling.plan import (
    BoundsPlan,
    OptimizerPlan,
    RatePlan,
    ScalingPlan,
    StabilizationPlan,
    TimingPlan,
)
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.twin.scenario.kthena_spec import KthenaScalerSpec
from windtunnel.twin.scenario.manifest_spec import (
    ManifestScalerSpec,
    manifest_faults,
    manifest_plan,
    nobody_serves,
)
from windtunnel.twin.scenario.scaler_spec import BoundsSpec, ScalerSpec, TimedSpec
from windtunnel.twin.scenario.serving_spec import PoolSpec

SECTION: KeyPath = ("scaling",)


def scaling_plan(
    spec: ScalerSpec | ManifestScalerSpec, pools: Sequence[PoolSpec], folder: Path
) -> ScalingPlan:
    """The plan of a section without faults; manifests are looked for in `folder`."""
    if isinstance(spec, ManifestScalerSpec):
        return manifest_plan(spec, pools, folder)
    return _policy_plan(spec, pools)


def _policy_plan(spec: ScalerSpec, pools: Sequence[PoolSpec]) -> ScalingPlan:
    order, rate, windows = spec.optimizer, spec.rate, spec.stabilization
    return ScalingPlan(
        timing=TimingPlan(
            spec.interval,
            spec.scrape_delay,
            spec.actuation_delay.mean,
            spec.actuation_delay.stddev,
            spec.freshness,
        ),
        policy=spec.policy_plan(),
        bounds={pool.name: _bounds(spec, pool) for pool in pools},
        accelerators=spec.accelerators or None,
        optimizer=None if order is None else OptimizerPlan(order.order, order.engine),
        stabilization=None if windows is None else StabilizationPlan(windows.up, windows.down),
        rate=None if rate is None else RatePlan(rate.up, rate.down, rate.period),
        zero_after_s=spec.zero_after,
        matched_roles=spec.matched_roles,
        wake=spec.wake,
    )


def _bounds(spec: ScalerSpec, pool: PoolSpec) -> BoundsPlan:
    bounds = spec.pools.get(pool.name, BoundsSpec())
    return BoundsPlan(bounds.min, bounds.max)


def scaling_faults(
    spec: ScalerSpec | ManifestScalerSpec, pools: Sequence[PoolSpec], model: str | None = None
) -> Iterator[Fault]:
    """Names of nobody, values that contradict each other, and options without a use.

    All by the values in force, so that one that contradicts another's default is told too. `model`
    is that of pools which name none.
    """
    yield from _time_faults(spec)
    if isinstance(spec, ManifestScalerSpec):
        yield from manifest_faults(spec, pools, SECTION)
        return
    yield from _bound_faults(spec, pools)
    by_model: dict[str | None, list[PoolSpec]] = {}
    for pool in pools:
        by_model.setdefault(pool.model or model, []).append(pool)
    for alike in by_model.values():
        yield from _nobody_serves(spec, alike)
    yield from _accelerator_faults(spec, pools)
    yield from _useless(spec, list(by_model.values()))
    own = list(spec.policy_faults([pool.name for pool in pools]))
    for fault in own:
        because_of = tuple((*SECTION, *path) for path in fault.because_of)
        yield fault._replace(path=(*SECTION, *fault.path), because_of=because_of)
    if own:  # what cannot be built would be told twice
        return
    plan = _policy_plan(spec, pools)
    try:
        build_policy(plan)
    except InputError as error:
        path = (*SECTION, *(error.where or "policy").split("."))
        yield Fault(path, error.what, error.allowed, error.hint, because_of=(SECTION,))
        return
    if spec.accelerators and not minds_accelerators(plan):
        what = f"{spec.policy} grows whether accelerators are free or not"
        hint = "leave it out"
        if not isinstance(spec, KthenaScalerSpec):  # they have optimizers of their own
            hint = "set optimizer: {engine: greedy}, or leave it out"
        yield Fault((*SECTION, "accelerators"), what, hint=hint)


def _bound_faults(spec: ScalerSpec, pools: Sequence[PoolSpec]) -> Iterator[Fault]:
    names = [pool.name for pool in pools]
    for name, bounds in spec.pools.items():
        path = (*SECTION, "pools", name)
        if name not in names:
            yield Fault(path, "there is no such pool", ", ".join(names), nearest(name, names))
        elif bounds.min > bounds.max:
            what = f"{bounds.min} is more than max, which is {bounds.max}"
            yield Fault((*path, "min"), what, because_of=((*path, "max"),))
    for index, pool in enumerate(pools):
        bounds = spec.pools.get(pool.name, BoundsSpec())
        if bounds.min <= bounds.max and not bounds.min <= pool.replicas <= bounds.max:
            what = f"{pool.replicas} is outside the bounds of its scaling"
            allowed = f"from {bounds.min} to {bounds.max}"
            because = ((*SECTION, "pools", pool.name),)
            yield Fault(("serving", "pools", index, "replicas"), what, allowed, because_of=because)


def _nobody_serves(spec: ScalerSpec, pools: Sequence[PoolSpec]) -> Iterator[Fault]:
    bounds = {pool.name: _bounds(spec, pool) for pool in pools}
    what = nobody_serves([(pool.name, pool.role) for pool in pools], bounds)
    if what:
        empty = next(name for name, own in bounds.items() if not own.maximum)
        path = (*SECTION, "pools", empty, "max")
        yield Fault(path, what, hint="give one of them a max of at least 1")


def _accelerator_faults(spec: ScalerSpec, pools: Sequence[PoolSpec]) -> Iterator[Fault]:
    used: dict[str, int] = {}
    for pool in pools:
        if pool.accelerator is not None:
            taken = used.get(pool.accelerator, 0)
            used[pool.accelerator] = taken + pool.replicas * pool.tensor_parallel
    for kind, there in spec.accelerators.items():
        path = (*SECTION, "accelerators", kind)
        if kind not in used:
            names = ", ".join(used) or "none: no pool has an accelerator"
            yield Fault(path, "no pool has this accelerator", names, nearest(kind, list(used)))
        elif there < used[kind]:
            what = f"{there} are fewer than the pools have at the start, which is {used[kind]}"
            yield Fault(path, what, because_of=(("serving", "pools"),))


def _time_faults(spec: TimedSpec) -> Iterator[Fault]:
    if spec.freshness is not None and spec.freshness < spec.scrape_delay:
        delay = format_duration(spec.scrape_delay)
        what = f"less than scrape_delay, which is {delay}: nothing would ever be believed"
        yield Fault((*SECTION, "freshness"), what, because_of=((*SECTION, "scrape_delay"),))


def _useless(spec: ScalerSpec, by_model: Sequence[Sequence[PoolSpec]]) -> Iterator[Fault]:
    """What would change nothing."""
    pools = [pool for alike in by_model for pool in alike]
    if spec.rate is not None and spec.rate.up is None and spec.rate.down is None:
        what = "neither up nor down is limited"
        yield Fault((*SECTION, "rate"), what, hint="give one of them, or leave it out")
    smallest = min(_bounds(spec, pool).minimum for pool in pools)
    if spec.zero_after is not None and smallest > 0:
        what = "no pool may go to zero"
        hint = "set min: 0 for one under scaling.pools, or leave it out"
        yield Fault((*SECTION, "zero_after"), what, hint=hint, because_of=((*SECTION, "pools"),))
    if spec.matched_roles and all(len({one.role for one in alike}) == 1 for alike in by_model):
        what = "all pools have the same role"
        yield Fault((*SECTION, "matched_roles"), what, hint="leave it out")
