"""What Kthena's admission says of a policy: every rule, in its words, all faults at once."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.scaling.manifests.fields import Reference, limits_of
from windtunnel.scaling.manifests.kthena_forms import (
    BehaviorForm,
    BindingForm,
    DisaggregatedForm,
    HeterogeneousForm,
    HomogeneousForm,
    MetricForm,
    PolicyForm,
    PolicyTargets,
    RatioForm,
    RoleForm,
    Sources,
    StablePolicyForm,
    TargetForm,
)
from windtunnel.scaling.policies.kthena.coordinate import coordination_faults
from windtunnel.scaling.policies.kthena.ratio import RoleBounds, is_possible
from windtunnel.scaling.policies.kthena.settings import PaceUp, Ratio
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.settings.section import Context

SPEC: KeyPath = ("spec",)
SHORTEST_S, LONGEST_S = limits_of(PaceUp, "period_s")
MOST_ROLES = 2
MODEL_SERVING = "ModelServing"
TARGETS = ("homogeneous_target", "heterogeneous_target", "disaggregated_target")
ONE_TARGET = (
    "exactly one of homogeneousTarget, heterogeneousTarget, or disaggregatedTarget must be set"
)


def policy_faults(spec: PolicyForm, *, bound: bool) -> list[Fault]:
    """Of a policy; one that a binding gives a target has none of its own."""
    faults = list(_metric_faults(spec.metrics, (*SPEC, "metrics")))
    faults += _behavior_faults(spec.behavior)
    if not bound:
        faults += target_faults(spec, spec.metrics)
    elif _targets(spec):
        what = "a binding has a target for this policy, and the policy has its own"
        faults.append(Fault(SPEC, what, hint="leave one of the two out"))
    return faults


def target_faults(spec: PolicyTargets, metrics: Sequence[MetricForm]) -> Iterator[Fault]:
    """Of what a policy or a binding scales, with the metrics of the policy."""
    earlier = isinstance(spec, BindingForm)
    if len(_targets(spec)) != 1:
        yield Fault(SPEC, ONE_TARGET)
    if spec.homogeneous_target is not None:
        here = (*SPEC, "homogeneousTarget")
        yield from _scaled_faults(spec.homogeneous_target, here, metrics, earlier=earlier)
    if spec.heterogeneous_target is not None:
        yield from _heterogeneous_faults(spec.heterogeneous_target, metrics, earlier=earlier)
    if (spec.homogeneous_target or spec.heterogeneous_target) and not metrics:
        yield Fault((*SPEC, "metrics"), "at least one metric must be set")
    if spec.disaggregated_target is not None:
        yield from _disaggregated_faults(spec.disaggregated_target, metrics)


def _targets(spec: PolicyTargets) -> list[str]:
    return [name for name in TARGETS if getattr(spec, name) is not None]


def _metric_faults(metrics: Sequence[MetricForm], path: KeyPath) -> Iterator[Fault]:
    seen: list[str] = []
    for number, metric in enumerate(metrics):
        here = (*path, number)
        if (metric.name is None) == (metric.metric_name is None):
            both = metric.name is not None
            what = "name and metricName are the same field" if both else "missing"
            yield Fault((*here, "name"), what, hint="leave metricName out" if both else None)
        if metric.target_value <= 0 or math.isinf(metric.target_value):
            what = "metric target value must be greater than 0 and not equal to infinity"
            yield Fault((*here, "targetValue"), what)
        if metric.called in seen:
            what = f"duplicate metric name {metric.called} is not allowed"
            yield Fault((*here, "name"), what)
        seen.append(metric.called)


def _behavior_faults(behavior: BehaviorForm | None) -> Iterator[Fault]:
    if behavior is None:
        return
    here = (*SPEC, "behavior")
    up = behavior.scale_up
    if behavior.scale_down is not None:
        yield from _pace_faults(behavior.scale_down, (*here, "scaleDown"))
    if up is not None and up.stable_policy is not None:
        yield from _pace_faults(up.stable_policy, (*here, "scaleUp", "stablePolicy"))
    if up is not None and up.panic_policy is not None:
        path = (*here, "scaleUp", "panicPolicy")
        panic = up.panic_policy
        yield from _time_faults(panic.period, (*path, "period"), "panic policy period")
        if panic.panic_mode_hold is not None:
            hold = "panic policy panic mode hold"
            yield from _time_faults(panic.panic_mode_hold, (*path, "panicModeHold"), hold)


def _pace_faults(pace: StablePolicyForm, path: KeyPath) -> Iterator[Fault]:
    yield from _time_faults(pace.period, (*path, "period"), "stable policy period")
    if pace.stabilization_window is not None:
        place = (*path, "stabilizationWindow")
        window = "stable policy stabilization window"
        yield from _time_faults(pace.stabilization_window, place, window)


def _time_faults(value_s: float, path: KeyPath, noun: str) -> Iterator[Fault]:
    if not SHORTEST_S <= value_s <= LONGEST_S:
        most = f"{LONGEST_S / 60:g} minutes"
        yield Fault(path, f"{noun} must be between {SHORTEST_S:g} and {most}")


def _reference_faults(reference: Reference, path: KeyPath) -> Iterator[Fault]:
    if reference.kind not in (None, "", MODEL_SERVING):
        what = f"targetRef.kind must be {MODEL_SERVING}, but got {reference.kind}"
        yield Fault((*path, "kind"), what)
    if not reference.name:
        yield Fault((*path, "name"), "targetRef.name must be set, but got empty")


def _scaled_faults(
    scaled: HomogeneousForm, path: KeyPath, metrics: Sequence[MetricForm], *, earlier: bool
) -> Iterator[Fault]:
    target, here = scaled.target, (*path, "target")
    yield from _reference_faults(target.target_ref, (*here, "targetRef"))
    if scaled.min_replicas > scaled.max_replicas:
        yield Fault((*path, "minReplicas"), "minReplicas must be <= maxReplicas")
    # Before v1.0, metrics without a source were read from the pods.
    if target.metric_sources is not None or not earlier:
        place = (*here, "metricSources")
        yield from _source_faults(target.metric_sources or {}, place)
        yield from _unread_faults(target, metrics, place)


def _unread_faults(
    target: TargetForm, metrics: Sequence[MetricForm], path: KeyPath
) -> Iterator[Fault]:
    """Kthena lets these pass, and then never reads the metric, or the source."""
    sources = target.metric_sources or {}
    names = [metric.called for metric in metrics]
    for name in names:
        if name not in sources:
            yield Fault(path, f"there is no source of {name}, which is never read then")
    for key in sources:
        if key not in names:
            yield Fault((*path, key), "metricSources key must match an effective metric name")


def _source_faults(sources: Sources, path: KeyPath) -> Iterator[Fault]:
    for key, source in sources.items():
        if source.pod is None and source.prometheus is None and source.type != "Pod":
            yield Fault((*path, key), "one metric source backend config is required")
        if source.pod is not None and source.prometheus is not None:
            yield Fault((*path, key), "pod and prometheus configs are mutually exclusive")
        if source.pod is not None and not source.pod.uri.startswith("/"):
            yield Fault((*path, key, "pod", "uri"), "the path does not start with '/'")
        if source.prometheus is not None:
            url = source.prometheus.server_url
            if not url.startswith(("http://", "https://")):
                what = f"{url!r} is no http:// or https:// address"
                yield Fault((*path, key, "prometheus", "serverURL"), what)


def _heterogeneous_faults(
    spec: HeterogeneousForm, metrics: Sequence[MetricForm], *, earlier: bool
) -> Iterator[Fault]:
    here = (*SPEC, "heterogeneousTarget")
    for number, parameter in enumerate(spec.params):
        place = (*here, "params", number)
        yield from _scaled_faults(parameter, place, metrics, earlier=earlier)
    if spec.coordination is not None:
        names = [called(parameter.target) for parameter in spec.params]
        where = Context(None, Path(), (*here, "coordination"))
        yield from coordination_faults(spec.coordination, where, names)


def called(target: TargetForm) -> str:
    """What coordination calls a target: by its role where it has one, else by its name."""
    return target.sub_targets.name if target.sub_targets else target.target_ref.name


def _disaggregated_faults(
    spec: DisaggregatedForm, metrics: Sequence[MetricForm]
) -> Iterator[Fault]:
    here = (*SPEC, "disaggregatedTarget")
    yield from _reference_faults(spec.target_ref, (*here, "targetRef"))
    path = (*here, "roles")
    if not 1 <= len(spec.roles) <= MOST_ROLES:
        what = f"there are {len(spec.roles)} roles"
        yield Fault(path, what, "one or two")
    for name, role in spec.roles.items():
        if not name:
            what = (
                "role name must refer to a ModelServing.spec.template.roles[].name "
                "and must not be empty"
            )
            yield Fault((*path, name), what)
        yield from _role_faults(role, (*path, name), metrics)
    if spec.ratio_constraint is not None:
        if len(spec.roles) < MOST_ROLES:
            what = "roles must contain at least two entries when ratioConstraint is configured"
            yield Fault(path, what)
        yield from _ratio_faults(spec.ratio_constraint, spec.roles, (*here, "ratioConstraint"))


def _role_faults(role: RoleForm, path: KeyPath, metrics: Sequence[MetricForm]) -> Iterator[Fault]:
    if role.min_replicas > role.max_replicas:
        yield Fault((*path, "minReplicas"), "minReplicas must be <= maxReplicas")
    yield from _metric_faults(role.metrics or (), (*path, "metrics"))
    sources = role.metric_sources or {}
    yield from _source_faults(sources, (*path, "metricSources"))
    if role.fixed:
        return
    effective = role.metrics or metrics
    if not effective:
        what = "metrics must be set on every non-fixed role when spec.metrics is empty"
        yield Fault((*path, "metrics"), what)
    elif not sources:
        what = "metricSources must be set on every non-fixed role when metrics are configured"
        yield Fault((*path, "metricSources"), what)
    names = [metric.called for metric in effective]
    for key in sources:
        if key not in names:
            what = "metricSources key must match an effective metric name"
            yield Fault((*path, "metricSources", key), what)
    for name in names:
        if sources and name not in sources:
            what = f"there is no source of {name}, which is never read then"
            yield Fault((*path, "metricSources"), what)


def _ratio_faults(ratio: RatioForm, roles: dict[str, RoleForm], path: KeyPath) -> Iterator[Fault]:
    if ratio.numerator_role == ratio.denominator_role:
        yield Fault(path, "numeratorRole and denominatorRole must differ")
    for key, name in (
        ("numeratorRole", ratio.numerator_role),
        ("denominatorRole", ratio.denominator_role),
    ):
        if name not in roles:
            yield Fault((*path, key), f"{key} must exist in roles", ", ".join(roles) or None)
    if not (math.isfinite(ratio.min_ratio) and math.isfinite(ratio.max_ratio)):
        yield Fault(path, "ratio values must be finite")
        return
    if ratio.min_ratio < 0 or ratio.max_ratio <= 0:
        yield Fault(path, "minRatio must be >= 0 and maxRatio must be > 0")
    if ratio.min_ratio > ratio.max_ratio:
        yield Fault((*path, "minRatio"), "minRatio must be <= maxRatio")
    num, den = roles.get(ratio.numerator_role), roles.get(ratio.denominator_role)
    if num is None or den is None:
        return
    if (num.min_replicas == 0) != (den.min_replicas == 0):
        yield Fault(path, "ratio roles must be scalable-to-zero together")
    too_many = den.max_replicas > 0 and num.min_replicas / den.max_replicas > ratio.max_ratio
    too_few = den.min_replicas > 0 and num.max_replicas / den.min_replicas < ratio.min_ratio
    if too_many or too_few:
        yield Fault(path, "ratioConstraint is not achievable within role replica bounds")
    elif _is_sound(ratio, num, den):
        band = Ratio(numerator="n", denominator="d", min=ratio.min_ratio, max=ratio.max_ratio)
        bounds = [RoleBounds(role.min_replicas, role.max_replicas) for role in (num, den)]
        if not is_possible(band, *bounds):
            what = "no whole numbers of replicas within the bounds have such a ratio"
            yield Fault(path, what)


def _is_sound(ratio: RatioForm, num: RoleForm, den: RoleForm) -> bool:
    """Whether bounds and band are such that one can look for numbers in them."""
    in_order = all(role.min_replicas <= role.max_replicas for role in (num, den))
    return in_order and 0 <= ratio.min_ratio <= ratio.max_ratio and ratio.max_ratio > 0
