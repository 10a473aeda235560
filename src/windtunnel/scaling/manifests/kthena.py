"""Kthena's manifests, read into the settings of its policies."""

from collections.abc import Sequence
from typing import Any, TypeVar

from windtunnel.core.errors import InputError
from windtunnel.scaling.manifests.fields import converted
from windtunnel.scaling.manifests.kthena_forms import (
    BehaviorForm,
    DisaggregatedForm,
    HeterogeneousForm,
    HomogeneousForm,
    MetricForm,
    PanicPolicyForm,
    PolicyForm,
    PolicyTargets,
    Sources,
    StablePolicyForm,
    TargetForm,
)
from windtunnel.scaling.manifests.kthena_rules import SPEC, called
from windtunnel.scaling.manifests.pools import Assignment, PoolNames
from windtunnel.scaling.manifests.queries import asked
from windtunnel.scaling.metrics import metric
from windtunnel.scaling.policies.kthena.policy import (
    KthenaDisaggregatedSettings,
    KthenaHeterogeneousSettings,
    KthenaHomogeneousSettings,
    KthenaSettings,
)
from windtunnel.scaling.policies.kthena.settings import (
    Behavior,
    Coordination,
    PaceDown,
    PaceUp,
    Panic,
    Ratio,
)
from windtunnel.scaling.settings import PoolBounds
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault

PACE = {
    "instances": "instances",
    "percent": "percent",
    "period": "period_s",
    "select_policy": "select",
    "stabilization_window": "window_s",
}
PANIC = {
    "percent": "percent",
    "period": "period_s",
    "panic_threshold_percent": "threshold",
    "panic_mode_hold": "hold_s",
}
"""Keys of a behaviour, and what they are called in a scenario."""
P = TypeVar("P", PaceUp, PaceDown)
Measured = dict[str, tuple[float, str]]
"""By the name under which a metric is measured here: its target, and how a query reads it."""


class Reader:
    """Turns one policy and its targets into an assignment; faults are collected."""

    def __init__(self, source: str, policy: PolicyForm, pools: PoolNames) -> None:
        self._source = source
        self._policy = policy
        self._pools = pools
        self.faults: list[Fault] = []

    def read(self, targets: PolicyTargets) -> tuple[Assignment | None, list[Fault]]:
        """The assignment, or what is wrong."""
        if targets.homogeneous_target is not None:
            found = self._homogeneous(targets.homogeneous_target)
        elif targets.heterogeneous_target is not None:
            found = self._heterogeneous(targets.heterogeneous_target)
        else:
            assert targets.disaggregated_target is not None
            found = self._disaggregated(targets.disaggregated_target)
        return found, self.faults

    def _homogeneous(self, spec: HomogeneousForm) -> Assignment | None:
        path = (*SPEC, "homogeneousTarget", "target")
        pool = self._pool(spec.target, path)
        metrics = self._metrics(self._policy.metrics, spec.target.metric_sources, path)
        bounds = {pool: PoolBounds(min=spec.min_replicas, max=spec.max_replicas)}
        return self._assignment(
            KthenaHomogeneousSettings,
            metrics,
            policy="kthena-homogeneous",
            pools=bounds,
        )

    def _heterogeneous(self, spec: HeterogeneousForm) -> Assignment | None:
        here = (*SPEC, "heterogeneousTarget", "params")
        bounds: dict[str, PoolBounds] = {}
        costs: dict[str, float] = {}
        names: dict[str, str] = {}
        metrics: Measured = {}
        for number, parameter in enumerate(spec.params):
            path = (*here, number, "target")
            pool = self._pool(parameter.target, path)
            if pool in bounds:
                self._fault((*path, "targetRef", "name"), f"the pool {pool!r} is there twice")
            bounds[pool] = PoolBounds(min=parameter.min_replicas, max=parameter.max_replicas)
            costs[pool] = float(parameter.cost)
            names[called(parameter.target)] = pool
            read = self._metrics(self._policy.metrics, parameter.target.metric_sources, path)
            if number and read != metrics:
                what = "its metrics are read otherwise than those of the first target"
                self._fault((*path, "metricSources"), what)
            metrics = metrics or read
        more: dict[str, Any] = {}
        if spec.coordination is not None:
            written = spec.coordination
            bands = {names[name]: band for name, band in written.preferredRatio.items()}
            more["coordination"] = Coordination(mode=written.mode, preferredRatio=bands)
        if spec.cost_expansion_rate_percent is not None:
            more["cost_expansion_percent"] = spec.cost_expansion_rate_percent
        return self._assignment(
            KthenaHeterogeneousSettings,
            metrics,
            policy="kthena-heterogeneous",
            costs=costs,
            pools=bounds,
            **more,
        )

    def _disaggregated(self, spec: DisaggregatedForm) -> Assignment | None:
        here = (*SPEC, "disaggregatedTarget")
        bounds: dict[str, PoolBounds] = {}
        pools: dict[str, str] = {}
        by_pool: dict[str, dict[str, float]] = {}
        queries: dict[str, str] = {}
        for name, role in spec.roles.items():
            path = (*here, "roles", name)
            pool = self._found(self._pools.find(spec.target_ref.name, path, name))
            if pool in bounds:
                self._fault(path, f"the pool {pool!r} has two roles")
            pools[name] = pool
            bounds[pool] = PoolBounds(min=role.min_replicas, max=role.max_replicas)
            if not role.fixed:
                own = role.metrics or self._policy.metrics
                read = self._metrics(own, role.metric_sources, path)
                by_pool[pool] = {metric: target for metric, (target, _) in read.items()}
                queries |= {metric: how for metric, (_, how) in read.items() if how}
        written = spec.ratio_constraint
        ratio = None
        if written is not None and not self.faults:
            ratio = Ratio(
                numerator=pools[written.numerator_role],
                denominator=pools[written.denominator_role],
                min=written.min_ratio,
                max=written.max_ratio,
            )
        return self._assignment(
            KthenaDisaggregatedSettings,
            {},
            policy="kthena-disaggregated",
            metrics_of=by_pool,
            queries=queries,
            ratio=ratio,
            pools=bounds,
        )

    def _assignment(
        self, kind: type[KthenaSettings], metrics: Measured, **more: Any
    ) -> Assignment | None:
        """None where there are faults."""
        if self.faults:
            return None
        policy = converted(
            kind,
            {"tolerance_percent": "tolerance_percent"},
            self._policy,
            **{
                "metrics": {name: value for name, (value, _) in metrics.items()},
                "queries": {name: how for name, (_, how) in metrics.items() if how},
                "behavior": behavior_of(self._policy.behavior),
                **more,
            },
        )
        return Assignment(self._source, policy)

    def _pool(self, target: TargetForm, path: KeyPath) -> str:
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
        self, metrics: Sequence[MetricForm], sources: Sources | None, path: KeyPath
    ) -> Measured:
        found: Measured = {}
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


def behavior_of(form: BehaviorForm | None) -> Behavior:
    """What is written, over the schema's defaults; what is not there at all, by the webhook's."""
    if form is None:
        return Behavior()
    up = form.scale_up
    stable = up.stable_policy if up is not None else None
    return Behavior(
        up=_pace(PaceUp, stable),
        down=_pace(PaceDown, form.scale_down),
        panic=None if up is None else _panic(up.panic_policy),
    )


def _panic(form: PanicPolicyForm | None) -> Panic | None:
    """A panic that is held for no time is none."""
    if form is None or form.panic_mode_hold == 0:
        return None
    return converted(Panic, PANIC, form)


def _pace(kind: type[P], form: StablePolicyForm | None) -> P:
    if form is None or not form.model_fields_set:
        return kind()  # as the webhook has it
    return converted(kind, PACE, form)
