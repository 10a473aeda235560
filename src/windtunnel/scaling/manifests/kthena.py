"""Kthena's AutoscalingPolicy, and the AutoscalingPolicyBinding of its earlier releases.

`check` of each form reports faults in the words of Kthena's admission webhook. What the webhook
accepts but this product cannot simulate is reported when a policy is read.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from windtunnel.core.addresses import address_fault
from windtunnel.core.errors import InputError
from windtunnel.scaling.manifests.fields import Becomes, Most, Reference, settings_of
from windtunnel.scaling.manifests.names import ScenarioNames
from windtunnel.scaling.policies.kthena.coordinate import coordination_faults
from windtunnel.scaling.policies.kthena.policy import (
    KthenaDisaggregatedSettings,
    KthenaHeterogeneousSettings,
    KthenaHomogeneousSettings,
)
from windtunnel.scaling.policies.kthena.ratio import RoleBounds, is_possible
from windtunnel.scaling.policies.kthena.settings import (
    LARGEST_TARGET,
    Behavior,
    Coordination,
    KthenaSettings,
    PaceDown,
    PaceUp,
    Panic,
    Ratio,
)
from windtunnel.scaling.settings import PoolBounds
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Text, Whole
from windtunnel.settings.limits import LARGEST_FACTOR
from windtunnel.settings.manifests import AnyText, Count, FreeText, Manifest, Opaque, Quantity
from windtunnel.settings.section import ApiSection, Context

MOST_ROLES = 2
MODEL_SERVING = "ModelServing"
ONE_TARGET = (
    "exactly one of homogeneousTarget, heterogeneousTarget, or disaggregatedTarget must be set"
)
UNMATCHED = "metricSources key must match an effective metric name"
MetricName = Annotated[str, Text("the name of a metric")]
P = TypeVar("P", PaceUp, PaceDown)
Measured = dict[str, tuple[float, str]]
"""Target and query aggregate of each metric, by its name here."""


class PolicyTime(Duration):
    """A duration in a behavior, refused in the words of Kthena's admission webhook."""

    def __init__(self, what: str) -> None:
        super().__init__("0s", "30m")
        self.what = what

    def check(self, value: object) -> float:
        amount = self.read(value)
        if not self.low <= amount <= self.high:
            self.fail(f"{self.what} must be between 0 and 30 minutes")
        return amount


class TargetValue(Quantity):
    """The target per replica of a metric."""

    def check(self, value: object) -> float:
        amount = super().check(value)
        if amount <= 0 or math.isinf(amount):
            self.fail("metric target value must be greater than 0 and not equal to infinity")
        if amount > LARGEST_TARGET:
            self.fail(f"{amount:g} is too large")
        return amount


class MetricForm(ApiSection):
    """A metric, and its target per replica."""

    name: MetricName | None = Field(default=None, description="Its name.")
    metric_name: MetricName | None = Field(default=None, description="Its name, before v1.0.")
    target_value: Annotated[float, TargetValue()] = Field(description="Target per replica.")

    @property
    def called(self) -> str:
        return self.name or self.metric_name or ""

    def check(self, where: Context) -> Iterator[Fault]:
        if (self.name is None) == (self.metric_name is None):
            both = self.name is not None
            what = "name and metricName are the same field" if both else "missing"
            yield where.fault("name", what, hint="leave metricName out" if both else None)


def _repeated(metrics: Sequence[MetricForm], where: Context) -> Iterator[Fault]:
    seen: list[str] = []
    for number, one in enumerate(metrics):
        if one.called in seen:
            what = f"duplicate metric name {one.called} is not allowed"
            yield where.fault(("metrics", number, "name"), what)
        seen.append(one.called)


class StablePolicyForm(ApiSection):
    """How fast a size may change, and how long a recommendation counts.

    If any field is given, the schema supplies its own defaults for `instances` and `period`;
    otherwise those of the webhook apply.
    """

    instances: Annotated[int, Becomes(PaceUp, "instances")] = Field(
        default=1, description="Replicas that may change per period."
    )
    percent: Annotated[int, Becomes(PaceUp, "percent")] | None = Field(
        default=None, description="Percent of the size that may change per period."
    )
    period: Annotated[float, Becomes(PaceUp, "period_s", PolicyTime("stable policy period"))] = (
        Field(default=15.0, description="The period.")
    )
    select_policy: Annotated[Literal["Or", "And"], Becomes(PaceUp, "select")] | None = Field(
        default=None, description="The looser of the two limits, or the stricter."
    )
    stabilization_window: (
        Annotated[
            float, Becomes(PaceUp, "window_s", PolicyTime("stable policy stabilization window"))
        ]
        | None
    ) = Field(default=None, description="How long a recommendation counts.")


def _pace(kind: type[P], form: StablePolicyForm | None) -> P:
    if form is None or not form.model_fields_set:
        return kind()  # with the webhook's defaults
    return kind(**settings_of(form))


class PanicPolicyForm(ApiSection):
    """Scales up at once when load outruns the size."""

    percent: Annotated[int, Becomes(Panic, "percent")] | None = Field(
        default=None, description="Percent that may be added per period."
    )
    period: Annotated[float, Becomes(Panic, "period_s", PolicyTime("panic policy period"))] = Field(
        description="The period."
    )
    panic_threshold_percent: Annotated[int, Becomes(Panic, "threshold")] | None = Field(
        default=None, description="Recommended percentage of the size that starts a panic."
    )
    panic_mode_hold: Annotated[float, PolicyTime("panic policy panic mode hold")] | None = Field(
        default=None, description="How long a panic lasts; 0s: no panic."
    )

    def panic(self) -> Panic | None:
        if self.panic_mode_hold == 0:
            return None
        hold = {} if self.panic_mode_hold is None else {"hold_s": self.panic_mode_hold}
        return Panic(**settings_of(self), **hold)


class ScaleUpForm(ApiSection):
    """Limits on scaling up."""

    stable_policy: StablePolicyForm | None = Field(default=None, description="Outside a panic.")
    panic_policy: PanicPolicyForm | None = Field(
        default=None, description="In a panic; default: none."
    )


class BehaviorForm(ApiSection):
    """Limits between a recommendation and the size."""

    scale_up: ScaleUpForm = Field(default_factory=ScaleUpForm, description="Limits on scaling up.")
    scale_down: StablePolicyForm | None = Field(default=None, description="Limits on scaling down.")

    def behavior(self) -> Behavior:
        """The fields as written, with defaults of the schema or, for absent parts, the webhook."""
        panic = self.scale_up.panic_policy
        return Behavior(
            up=_pace(PaceUp, self.scale_up.stable_policy),
            down=_pace(PaceDown, self.scale_down),
            panic=None if panic is None else panic.panic(),
        )


class PodSourceForm(ApiSection):
    """The metric is scraped from every pod."""

    name: AnyText | None = Field(default=None, description="Its name on the pod; default: the key.")
    uri: AnyText = Field(default="/metrics", description="Not used: nothing is scraped.")
    port: Annotated[int, Whole(1, 65535)] = Field(
        default=8100, description="Not used: nothing is scraped."
    )
    label_selector: Opaque | None = Field(default=None, description="Not used: nothing is scraped.")

    def check(self, where: Context) -> Iterator[Fault]:
        if not self.uri.startswith("/"):
            yield where.fault("uri", "the path does not start with '/'")


class PrometheusSourceForm(ApiSection):
    """The metric is the result of a query."""

    server_url: Annotated[str, Text("the address of a Prometheus server")] = Field(
        alias="serverURL", description="Not used: nothing is scraped."
    )
    query: Annotated[str, Text("a query of one metric")] = Field(description="The query.")
    auth: Opaque | None = Field(default=None, description="Not used.")

    def check(self, where: Context) -> Iterator[Fault]:
        what = address_fault(self.server_url)
        if what:
            yield where.fault("serverURL", what)


class MetricSourceForm(ApiSection):
    """The source of a metric."""

    type: Literal["Pod", "Prometheus"] | None = Field(
        default=None, description="The type, before v1.0."
    )
    pod: PodSourceForm | None = Field(default=None, description="Scraped from every pod.")
    prometheus: PrometheusSourceForm | None = Field(
        default=None, description="The result of a query."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if self.pod is None and self.prometheus is None and self.type != "Pod":
            yield where.fault((), "one metric source backend config is required")
        if self.pod is not None and self.prometheus is not None:
            yield where.fault((), "pod and prometheus configs are mutually exclusive")


Sources = dict[str, MetricSourceForm]


def _unmatched(
    sources: Sources, metrics: Sequence[MetricForm], where: Context, *, none_is_fine: bool = False
) -> Iterator[Fault]:
    """Faults: metrics without a source, which Kthena never reads, and sources without a metric."""
    names = [one.called for one in metrics]
    for name in names:
        if name not in sources and not (none_is_fine and not sources):
            what = f"the metric {name} has no source, so Kthena never reads it"
            yield where.fault("metricSources", what)
    for key in sources:
        if key not in names:
            yield where.fault(("metricSources", key), UNMATCHED)


class EndpointForm(ApiSection):
    """Where pods are scraped, before v1.0; not used."""

    uri: AnyText = Field(default="/metrics", description="Not used.")
    port: Annotated[int, Whole(1, 65535)] = Field(default=8100, description="Not used.")
    label_selector: Opaque | None = Field(default=None, description="Not used.")


class SubTargetForm(ApiSection):
    """A part of a target, before v1.0."""

    kind: Literal["Role"] | None = Field(
        default=None, description="The kind of the part; only roles are allowed."
    )
    name: AnyText = Field(description="The name of the role.")


class ServingKind(FreeText):
    """The kind of a target."""

    def check(self, value: object) -> str:
        kind = super().check(value)
        if kind not in ("", MODEL_SERVING):
            self.fail(f"targetRef.kind must be {MODEL_SERVING}, but got {kind}")
        return kind


class ServingReference(Reference):
    """A reference to a ModelServing."""

    kind: Annotated[str, ServingKind()] | None = Field(default=None, description="Its kind.")

    def check(self, where: Context) -> Iterator[Fault]:
        if not self.name:
            yield where.fault("name", "targetRef.name must be set, but got empty")


class TargetForm(ApiSection):
    """A target to scale, and the sources of its metrics."""

    target_ref: ServingReference = Field(description="The ModelServing.")
    metric_sources: Sources | None = Field(default=None, description="Sources by metric.")
    metric_endpoint: EndpointForm | None = Field(
        default=None, description="Where pods are scraped, before v1.0."
    )
    sub_targets: SubTargetForm | None = Field(default=None, description="A role, before v1.0.")

    @property
    def called(self) -> str:
        """Its name in `coordination`: that of its role, if any, else its own."""
        return self.sub_targets.name if self.sub_targets else self.target_ref.name

    def check(self, where: Context) -> Iterator[Fault]:
        # Before v1.0, metrics without a source were scraped from the pods.
        if self.metric_sources is not None or not where.root.earlier:
            yield from _unmatched(self.metric_sources or {}, where.root.policy.metrics, where)


class BoundsForm(ApiSection):
    """Minimum and maximum size."""

    min_replicas: Count = Field(description="Fewest replicas.")
    max_replicas: Most = Field(description="Most replicas.")

    @property
    def bounds(self) -> PoolBounds:
        return PoolBounds(min=self.min_replicas, max=self.max_replicas)

    def check(self, where: Context) -> Iterator[Fault]:
        if self.min_replicas > self.max_replicas:
            yield where.fault("minReplicas", "minReplicas must be <= maxReplicas")


class HomogeneousForm(BoundsForm):
    """One target."""

    target: TargetForm = Field(description="The target to scale.")


class ParameterForm(HomogeneousForm):
    """One of several targets."""

    cost: Annotated[int, Whole(0, 10**9)] = Field(
        default=0, description="Cost of one replica, in any unit."
    )


class HeterogeneousForm(ApiSection):
    """Several interchangeable targets."""

    params: list[ParameterForm] = Field(min_length=1, max_length=64, description="The targets.")
    cost_expansion_rate_percent: (
        Annotated[int, Becomes(KthenaHeterogeneousSettings, "cost_expansion_percent")] | None
    ) = Field(default=None, description="Growth of the blocks of a kind, in percent.")
    coordination: Coordination | None = Field(
        default=None, description="Bands by target or by role; default: off."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if self.coordination is not None:
            names = [parameter.target.called for parameter in self.params]
            yield from coordination_faults(self.coordination, where.inside("coordination"), names)


class RoleForm(BoundsForm):
    """A role of a disaggregated target."""

    metrics: list[MetricForm] | None = Field(
        default=None, description="Its own metrics; default: those of the policy."
    )
    metric_sources: Sources | None = Field(default=None, description="Sources by metric.")

    @property
    def fixed(self) -> bool:
        return self.min_replicas == self.max_replicas > 0

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        yield from _repeated(self.metrics or (), where)
        if self.fixed:
            return
        effective, sources = self.metrics or where.root.policy.metrics, self.metric_sources or {}
        if not effective:
            what = "metrics must be set on every non-fixed role when spec.metrics is empty"
            yield where.fault("metrics", what)
        elif not sources:
            what = "metricSources must be set on every non-fixed role when metrics are configured"
            yield where.fault("metricSources", what)
        yield from _unmatched(sources, effective, where, none_is_fine=True)


class RatioForm(ApiSection):
    """Replicas of one role per replica of another."""

    numerator_role: AnyText = Field(description="The role in the numerator.")
    denominator_role: AnyText = Field(description="The role in the denominator.")
    min_ratio: Annotated[float, Quantity()] = Field(description="Smallest ratio.")
    max_ratio: Annotated[float, Quantity()] = Field(description="Largest ratio.")

    def check(self, where: Context) -> Iterator[Fault]:
        if self.numerator_role == self.denominator_role:
            yield where.fault((), "numeratorRole and denominatorRole must differ")
        roles: dict[str, RoleForm] = where.around[-1].roles
        for key, name in (
            ("numeratorRole", self.numerator_role),
            ("denominatorRole", self.denominator_role),
        ):
            if name not in roles:
                yield where.fault(key, f"{key} must exist in roles", ", ".join(roles) or None)
        if not (math.isfinite(self.min_ratio) and math.isfinite(self.max_ratio)):
            yield where.fault((), "ratio values must be finite")
            return
        for key, ratio in (("minRatio", self.min_ratio), ("maxRatio", self.max_ratio)):
            if ratio > LARGEST_FACTOR:
                yield where.fault(key, f"{ratio:g} is too large", f"up to {LARGEST_FACTOR:g}")
                return
        if self.min_ratio < 0 or self.max_ratio <= 0:
            yield where.fault((), "minRatio must be >= 0 and maxRatio must be > 0")
        if self.min_ratio > self.max_ratio:
            yield where.fault("minRatio", "minRatio must be <= maxRatio")
        num, den = roles.get(self.numerator_role), roles.get(self.denominator_role)
        if num is not None and den is not None:
            yield from self._bound_faults(num, den, where)

    def _bound_faults(self, num: RoleForm, den: RoleForm, where: Context) -> Iterator[Fault]:
        if (num.min_replicas == 0) != (den.min_replicas == 0):
            yield where.fault((), "ratio roles must be scalable-to-zero together")
        too_many = den.max_replicas > 0 and num.min_replicas / den.max_replicas > self.max_ratio
        too_few = den.min_replicas > 0 and num.max_replicas / den.min_replicas < self.min_ratio
        in_order = all(role.min_replicas <= role.max_replicas for role in (num, den))
        if too_many or too_few:
            yield where.fault((), "ratioConstraint is not achievable within role replica bounds")
        elif in_order and 0 <= self.min_ratio <= self.max_ratio and self.max_ratio > 0:
            bounds = [RoleBounds(role.min_replicas, role.max_replicas) for role in (num, den)]
            if not is_possible(self.ratio("n", "d"), *bounds):
                what = "no whole numbers of replicas within the bounds have such a ratio"
                yield where.fault((), what)

    def ratio(self, numerator: str, denominator: str) -> Ratio:
        band = {"min": self.min_ratio, "max": self.max_ratio}
        return Ratio(numerator=numerator, denominator=denominator, **band)


class DisaggregatedForm(ApiSection):
    """A target whose roles are scaled separately."""

    target_ref: ServingReference = Field(description="The ModelServing.")
    roles: dict[str, RoleForm] = Field(description="One or two roles, by name.")
    ratio_constraint: RatioForm | None = Field(
        default=None, description="Limits on the ratio of the two roles."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if not 1 <= len(self.roles) <= MOST_ROLES:
            yield where.fault("roles", f"there are {len(self.roles)} roles", "one or two")
        if "" in self.roles:
            what = (
                "role name must refer to a ModelServing.spec.template.roles[].name "
                "and must not be empty"
            )
            yield where.fault(("roles", ""), what)
        if self.ratio_constraint is not None and len(self.roles) < MOST_ROLES:
            what = "roles must contain at least two entries when ratioConstraint is configured"
            yield where.fault("roles", what)


class PolicyTargets(ApiSection):
    """The target of a policy: one of the three kinds."""

    homogeneous_target: HomogeneousForm | None = Field(default=None, description="One target.")
    heterogeneous_target: HeterogeneousForm | None = Field(
        default=None, description="Several targets, by cost."
    )
    disaggregated_target: DisaggregatedForm | None = Field(
        default=None, description="The roles of one target."
    )

    @property
    def targets(self) -> int:
        """The number of kinds that are set."""
        given = (self.homogeneous_target, self.heterogeneous_target, self.disaggregated_target)
        return sum(one is not None for one in given)

    def check(self, where: Context) -> Iterator[Fault]:
        policy = where.root.policy
        if where.root.bound:
            if self.targets:
                what = "a binding has a target for this policy, and the policy has its own"
                yield where.fault((), what, hint="leave one of the two out")
            return
        if self.targets != 1:
            yield where.fault((), ONE_TARGET)
        if (self.homogeneous_target or self.heterogeneous_target) and not policy.metrics:
            yield where.fault("metrics", "at least one metric must be set")


class PolicyForm(PolicyTargets):
    """Targets of metrics, and how fast sizes may follow."""

    tolerance_percent: Annotated[int, Becomes(KthenaSettings, "tolerance_percent")] | None = Field(
        default=None, description="Tolerated deviation from targets, in percent."
    )
    metrics: list[MetricForm] = Field(default_factory=list, description="The metrics.")
    behavior: BehaviorForm = Field(
        default_factory=BehaviorForm, description="How fast sizes may follow."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        yield from _repeated(self.metrics, where)


class AutoscalingPolicy(Manifest):
    """An AutoscalingPolicy."""

    spec: PolicyForm = Field(description="The spec.")


class BindingForm(PolicyTargets):
    """The policy that applies to a target."""

    policy_ref: Reference = Field(description="The AutoscalingPolicy.")


class AutoscalingPolicyBinding(Manifest):
    """Binds a policy to a target, before v1.0."""

    spec: BindingForm = Field(description="The spec.")


class KthenaReader:
    """Turns a policy and its targets into settings; features that are not simulated are faults."""

    def __init__(self, policy: PolicyForm, names: ScenarioNames) -> None:
        self._policy = policy
        self._names = names
        self.faults: list[Fault] = []

    def read(self, targets: PolicyTargets, where: Context) -> KthenaSettings | None:
        """The settings of a policy without faults; None if reading finds further `faults`."""
        if targets.homogeneous_target is not None:
            one = targets.homogeneous_target
            place = where.inside("homogeneousTarget", "target")
            read = self._metrics(self._policy.metrics, one.target.metric_sources, place)
            pools = {self._pool(one.target, place): one.bounds}
            return self._made(KthenaHomogeneousSettings, "homogeneous", read, pools=pools)
        if targets.heterogeneous_target is not None:
            several = targets.heterogeneous_target
            return self._heterogeneous(several, where.inside("heterogeneousTarget"))
        assert targets.disaggregated_target is not None
        return self._disaggregated(
            targets.disaggregated_target, where.inside("disaggregatedTarget")
        )

    def _heterogeneous(self, form: HeterogeneousForm, where: Context) -> KthenaSettings | None:
        pools: dict[str, PoolBounds] = {}
        costs: dict[str, float] = {}
        names: dict[str, str] = {}
        metrics: Measured = {}
        for number, parameter in enumerate(form.params):
            here = where.inside("params", number, "target")
            pool = self._pool(parameter.target, here)
            if pool in pools:
                what = f"the pool {pool!r} is there twice"
                self.faults.append(here.fault(("targetRef", "name"), what))
            pools[pool], costs[pool] = parameter.bounds, float(parameter.cost)
            names[parameter.target.called] = pool
            read = self._metrics(self._policy.metrics, parameter.target.metric_sources, here)
            if number and read != metrics:
                what = "its metrics are read otherwise than those of the first target"
                self.faults.append(here.fault("metricSources", what))
            metrics = metrics or read
        more = settings_of(form)
        if form.coordination is not None:
            bands = form.coordination.preferredRatio.items()
            by_pool = {"preferredRatio": {names[name]: band for name, band in bands}}
            more["coordination"] = form.coordination.model_copy(update=by_pool)
        kind = KthenaHeterogeneousSettings
        return self._made(kind, "heterogeneous", metrics, costs=costs, pools=pools, **more)

    def _disaggregated(self, form: DisaggregatedForm, where: Context) -> KthenaSettings | None:
        bounds: dict[str, PoolBounds] = {}
        pools: dict[str, str] = {}
        by_pool: dict[str, dict[str, float]] = {}
        queries: dict[str, str] = {}
        for name, role in form.roles.items():
            here = where.inside("roles", name)
            pools[name] = pool = self._found(form.target_ref.name, name, here, ())
            if pool in bounds:
                self.faults.append(here.fault((), f"the pool {pool!r} has two roles"))
            bounds[pool] = role.bounds
            if not role.fixed:
                own = role.metrics or self._policy.metrics
                read = self._metrics(own, role.metric_sources, here)
                by_pool[pool] = {metric: target for metric, (target, _) in read.items()}
                queries |= {metric: how for metric, (_, how) in read.items() if how}
        band = form.ratio_constraint
        ratio = None
        if band is not None and not self.faults:
            ratio = band.ratio(pools[band.numerator_role], pools[band.denominator_role])
        more = {"metrics_of": by_pool, "queries": queries, "ratio": ratio, "pools": bounds}
        return self._made(KthenaDisaggregatedSettings, "disaggregated", {}, **more)

    def _made(
        self, kind: type[KthenaSettings], word: str, metrics: Measured, **more: Any
    ) -> KthenaSettings | None:
        if self.faults:
            return None
        own = {
            "metrics": {name: value for name, (value, _) in metrics.items()},
            "queries": {name: how for name, (_, how) in metrics.items() if how},
            "behavior": self._policy.behavior.behavior(),
        }
        return kind(policy=f"kthena-{word}", **settings_of(self._policy), **{**own, **more})

    def _pool(self, target: TargetForm, where: Context) -> str:
        role = target.sub_targets
        key = ("targetRef", "name") if role is None else ("subTargets", "name")
        return self._found(target.target_ref.name, role.name if role else "", where, key)

    def _found(self, target: str, role: str, where: Context, key: tuple[str, ...]) -> str:
        try:
            return self._names.pool(target, role)
        except InputError as error:
            self.faults.append(where.fault(key, error.what, error.allowed, error.hint))
            return f"?{len(self.faults)}"

    def _queried(self, query: str, called: str) -> tuple[str, str]:
        """The metric that a query asks for, and its aggregate."""
        found = self._names.query(query, called)
        if found.above is not None:
            raise InputError("a comparison in a query is simulated for KEDA alone")
        return found.name, found.aggregate

    def _metrics(
        self, metrics: Sequence[MetricForm], sources: Sources | None, where: Context
    ) -> Measured:
        found: Measured = {}
        for written in metrics:
            name, how = written.called, ""
            key: tuple[str, ...] = ("metricSources", name)
            source = (sources or {}).get(name)
            try:
                if source is not None and source.prometheus is not None:
                    key = (*key, "prometheus", "query")
                    name, how = self._queried(source.prometheus.query, name)
                elif source is not None and source.pod is not None and source.pod.name:
                    key = (*key, "pod", "name")
                    name = self._names.metric(source.pod.name)
                else:
                    name = self._names.metric(name)
            except InputError as error:
                self.faults.append(where.fault(key, error.what, error.allowed, error.hint))
                continue
            before = found.get(name, (written.target_value, how))
            found[name] = (min(before[0], written.target_value), how)
        return found
