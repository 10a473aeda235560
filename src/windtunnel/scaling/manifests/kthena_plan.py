"""Kthena's manifests as settings of its policies, with both tables of defaults."""

from collections.abc import Sequence

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.scaling.kthena.settings import (
    DISAGGREGATED,
    DOWN,
    HETEROGENEOUS,
    HOMOGENEOUS,
    INTERVAL_S,
    UP,
    Behavior,
    Coordination,
    KthenaPlan,
    Pace,
    Panic,
    Ratio,
)
from windtunnel.scaling.manifests.kthena_rules import SPEC, called, coordination_of
from windtunnel.scaling.manifests.kthena_spec import (
    BehaviorSpec,
    DisaggregatedSpec,
    HeterogeneousSpec,
    HomogeneousSpec,
    MetricSpec,
    PolicySpec,
    PolicyTargets,
    Sources,
    StablePolicySpec,
    TargetSpec,
)
from windtunnel.scaling.manifests.pools import Assignment, Pools
from windtunnel.scaling.manifests.queries import asked
from windtunnel.scaling.metrics import metric
from windtunnel.scaling.plan import BoundsPlan
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault


class Reader:
    """Turns one policy and its targets into an assignment; faults are collected."""

    def __init__(self, source: str, policy: PolicySpec, pools: Pools) -> None:
        self._source = source
        self._policy = policy
        self._pools = pools
        self.faults: list[Fault] = []

    def read(self, targets: PolicyTargets) -> Assignment | None:
        """None where there are faults."""
        if targets.homogeneous_target is not None:
            found = self._homogeneous(targets.homogeneous_target)
        elif targets.heterogeneous_target is not None:
            found = self._heterogeneous(targets.heterogeneous_target)
        else:
            assert targets.disaggregated_target is not None
            found = self._disaggregated(targets.disaggregated_target)
        return None if self.faults else found

    def _homogeneous(self, spec: HomogeneousSpec) -> Assignment:
        path = (*SPEC, "homogeneousTarget", "target")
        pool = self._pool(spec.target, path)
        metrics = self._metrics(self._policy.metrics, spec.target.metric_sources, path)
        plan = self._plan(HOMOGENEOUS, metrics)
        return self._assignment(plan, {pool: BoundsPlan(spec.min_replicas, spec.max_replicas)})

    def _heterogeneous(self, spec: HeterogeneousSpec) -> Assignment:
        here = (*SPEC, "heterogeneousTarget", "params")
        bounds: dict[str, BoundsPlan] = {}
        costs: dict[str, float] = {}
        names: dict[str, str] = {}
        metrics: dict[str, tuple[float, str]] = {}
        for number, parameter in enumerate(spec.params):
            path = (*here, number, "target")
            pool = self._pool(parameter.target, path)
            if pool in bounds:
                self._fault((*path, "targetRef", "name"), f"the pool {pool!r} is there twice")
            bounds[pool] = BoundsPlan(parameter.min_replicas, parameter.max_replicas)
            costs[pool] = float(parameter.cost)
            names[called(parameter.target)] = pool
            read = self._metrics(self._policy.metrics, parameter.target.metric_sources, path)
            if number and read != metrics:
                what = "its metrics are read otherwise than those of the first target"
                self._fault((*path, "metricSources"), what)
            metrics = metrics or read
        coordination = Coordination()
        if spec.coordination is not None:
            written = coordination_of(spec.coordination)
            bands = {names[name]: band for name, band in written.preferred.items()}
            coordination = Coordination(written.mode, bands)
        plan = msgspec.structs.replace(
            self._plan(HETEROGENEOUS, metrics),
            costs=costs,
            growth_percent=spec.cost_expansion_rate_percent,
            coordination=coordination,
        )
        return self._assignment(plan, bounds)

    def _disaggregated(self, spec: DisaggregatedSpec) -> Assignment:
        here = (*SPEC, "disaggregatedTarget")
        bounds: dict[str, BoundsPlan] = {}
        pools: dict[str, str] = {}
        by_pool: dict[str, dict[str, float]] = {}
        queries: dict[str, str] = {}
        for name, role in spec.roles.items():
            path = (*here, "roles", name)
            pool = self._found(self._pools.find(spec.target_ref.name, path, name))
            if pool in bounds:
                self._fault(path, f"the pool {pool!r} has two roles")
            pools[name] = pool
            bounds[pool] = BoundsPlan(role.min_replicas, role.max_replicas)
            if not role.fixed:
                own = role.metrics or self._policy.metrics
                read = self._metrics(own, role.metric_sources, path)
                by_pool[pool] = {metric: target for metric, (target, _) in read.items()}
                queries |= {metric: how for metric, (_, how) in read.items() if how}
        ratio = spec.ratio_constraint
        plan = msgspec.structs.replace(
            self._plan(DISAGGREGATED, {}),
            pool_metrics=by_pool,
            queries=queries,
            ratio=None
            if ratio is None
            else Ratio(
                pools[ratio.numerator_role],
                pools[ratio.denominator_role],
                ratio.min_ratio,
                ratio.max_ratio,
            ),
        )
        return self._assignment(plan, bounds)

    def _assignment(self, plan: KthenaPlan, bounds: dict[str, BoundsPlan]) -> Assignment:
        return Assignment(self._source, plan, bounds, INTERVAL_S)

    def _plan(self, target: str, metrics: dict[str, tuple[float, str]]) -> KthenaPlan:
        return KthenaPlan(
            target=target,
            metrics={name: value for name, (value, _) in metrics.items()},
            queries={name: how for name, (_, how) in metrics.items() if how},
            tolerance_percent=self._policy.tolerance_percent,
            behavior=behavior_of(self._policy.behavior),
        )

    def _pool(self, target: TargetSpec, path: KeyPath) -> str:
        name = target.target_ref.name
        if target.sub_targets is None:
            return self._found(self._pools.find(name, (*path, "targetRef", "name")))
        place = (*path, "subTargets", "name")
        return self._found(self._pools.find(name, place, target.sub_targets.name))

    def _found(self, pool: str | Fault) -> str:
        if isinstance(pool, str):
            return pool
        self.faults.append(pool)
        return f"?{len(self.faults)}"

    def _metrics(
        self, metrics: Sequence[MetricSpec], sources: Sources | None, path: KeyPath
    ) -> dict[str, tuple[float, str]]:
        """By the name under which it is measured here: its target, and how a query reads it."""
        found: dict[str, tuple[float, str]] = {}
        for written in metrics:
            name, how = written.called, ""
            place: KeyPath = (*path, "metricSources", name)
            source = (sources or {}).get(name)
            try:
                if source is not None and source.prometheus is not None:
                    place = (*place, "prometheus", "query")
                    question = asked(source.prometheus.query)
                    name, how = question.name, question.aggregate
                elif source is not None and source.pod is not None and source.pod.name:
                    name, place = source.pod.name, (*place, "pod", "name")
                metric(name)
            except InputError as error:
                self.faults.append(Fault(place, error.what, error.allowed, error.hint))
                continue
            before = found.get(name, (written.target_value, how))
            found[name] = (min(before[0], written.target_value), how)
        return found

    def _fault(self, path: KeyPath, what: str) -> None:
        self.faults.append(Fault(path, what))


def behavior_of(spec: BehaviorSpec | None) -> Behavior:
    """What is written, over the schema's defaults; what is not there at all, by the webhook's."""
    if spec is None:
        return Behavior()
    up = spec.scale_up
    stable = up.stable_policy if up is not None else None
    panic = up.panic_policy if up is not None else None
    return Behavior(
        up=_pace(stable, UP),
        down=_pace(spec.scale_down, DOWN),
        panic=Panic()
        if panic is None
        else Panic(
            panic.percent, panic.period, panic.panic_threshold_percent, panic.panic_mode_hold
        ),
    )


def _pace(spec: StablePolicySpec | None, webhook: Pace) -> Pace:
    if spec is None or not spec.model_fields_set:
        return webhook
    window_s = spec.stabilization_window
    return Pace(
        spec.instances,
        spec.percent,
        spec.period,
        webhook.window_s if window_s is None else window_s,
        spec.select_policy,
    )
