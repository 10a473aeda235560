"""Kthena's AutoscalingPolicy on a cluster, and the AutoscalingPolicyBinding from before v1.0.

Policies are parsed by the same forms as in a simulation. Metric sources that a simulation ignores
are used here: Prometheus queries run as written, and pods are scraped at the given port.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import ValidationError

from windtunnel.scaling.build import ScalingSetup
from windtunnel.scaling.kubernetes.autoscaler import invalid
from windtunnel.scaling.kubernetes.canary import Documents, WantedScaling, annotated_canary
from windtunnel.scaling.kubernetes.plan import (
    ExternalQuery,
    InvalidPlan,
    ObjectName,
    ScaledTarget,
    ScalingPlan,
    attempt,
)
from windtunnel.scaling.manifests.fields import Assignment, Scope
from windtunnel.scaling.manifests.kthena import (
    MODEL_SERVING,
    AutoscalingPolicy,
    AutoscalingPolicyBinding,
    EndpointForm,
    KthenaReader,
    PodSourceForm,
    PolicyForm,
    PolicyTargets,
    ServingReference,
    Sources,
)
from windtunnel.scaling.manifests.names import ScenarioNames
from windtunnel.scaling.manifests.queries import QueriedMetric
from windtunnel.scaling.metrics import EXTERNAL, SUM
from windtunnel.scaling.policies.kthena.policy import KthenaDisaggregatedSettings
from windtunnel.scaling.policies.kthena.settings import KthenaSettings
from windtunnel.scaling.settings import PoolBounds
from windtunnel.settings.faults import checker_faults
from windtunnel.settings.manifests import Manifest
from windtunnel.settings.section import Context, faults_of

POLICY: Final = "AutoscalingPolicy"
BINDING: Final = "AutoscalingPolicyBinding"
GROUPS: Final = ("workload.serving.volcano.sh", "workload.volcano.sh")
VERSION: Final = "v1alpha1"
NAME_LABEL: Final = "modelserving.volcano.sh/name"
ENTRY_LABEL: Final = "modelserving.volcano.sh/entry"
ROLE_LABEL: Final = "modelserving.volcano.sh/role"
ROLES_STAY: Final = (
    "the roles of a ModelServing have no scale subresource: their sizes are only recommended"
)


class Stored(NamedTuple):
    """A Kthena object as stored in the API server."""

    named: ObjectName
    spec: Mapping[str, Any]
    canary: str | None = None
    """From its annotation."""

    def data(self) -> dict[str, Any]:
        named = self.named
        meta = {"name": named.name, "namespace": named.namespace}
        return {
            "apiVersion": named.api_version,
            "kind": named.kind,
            "metadata": meta,
            "spec": dict(self.spec),
        }


AnyManifest = TypeVar("AnyManifest", bound=Manifest)


class _LiveNames(ScenarioNames):
    """Accepts any target as a pool of its own, and any query."""

    def pool(self, target: str, role: str = "") -> str:
        return f"{target}-{role}" if role else target

    def query(self, query: str, name: str | None = None) -> QueriedMetric:
        return QueriedMetric(name or query, SUM)


class _Written(NamedTuple):
    """One target as written in a policy."""

    ref: ServingReference
    role: str
    bounds: PoolBounds
    sources: Sources | None
    endpoint: EndpointForm | None

    @property
    def pool(self) -> str:
        return f"{self.ref.name}-{self.role}" if self.role else self.ref.name


def wanted_by(
    policies: Sequence[Stored], bindings: Sequence[Stored]
) -> Iterator[tuple[ObjectName, WantedScaling]]:
    """Wanted scaling by the object that has the targets: a policy since v1.0, a binding before.

    A canary check compares the manifests: the policy and, if any, its binding.
    """
    found = {(one.named.namespace, one.named.name): one for one in policies}
    bound: set[tuple[str, str]] = set()
    for one in bindings:
        key = (one.named.namespace, _policy_name(one.spec))
        bound.add(key)
        of = found.get(key)
        manifests = [one.data()] if of is None else [of.data(), one.data()]
        text = one.canary if one.canary is not None or of is None else of.canary
        yield one.named, _wanted(one.named, manifests, text)
    for key, one in found.items():
        is_wrong = isinstance(attempt(partial(_form, one.data(), AutoscalingPolicy)), InvalidPlan)
        if is_wrong or key not in bound:
            yield one.named, _wanted(one.named, [one.data()], one.canary)


def _wanted(named: ObjectName, manifests: Documents, canary: str | None) -> WantedScaling:
    read = None if canary is None else partial(annotated_canary, canary)
    return WantedScaling(manifests, {}, lambda policy, _: plan_of(named, policy), read)


def _policy_name(spec: Mapping[str, Any]) -> str:
    """The name of the policy that a binding refers to; empty if the reference is malformed."""
    match spec:
        case {"policyRef": {"name": str(name)}}:
            return name
    return ""


def plan_of(named: ObjectName, manifests: Documents) -> ScalingPlan:
    """Makes the plan of a policy with targets, or of a policy and its binding."""
    by_kind = {str(one.get("kind")): one for one in manifests}
    policy_data, binding_data = by_kind.get(POLICY), by_kind.get(BINDING)
    binding = None if binding_data is None else _form(binding_data, AutoscalingPolicyBinding)
    if policy_data is None:
        name = "" if binding is None else binding.spec.policy_ref.name
        raise InvalidPlan(f"spec.policyRef.name: there is no {POLICY} {name!r}")
    if binding is None:
        policy = _form(policy_data, AutoscalingPolicy)
        return _plan(named, policy, policy.spec, policy.spec, earlier=False)
    try:
        policy = _form(policy_data, AutoscalingPolicy)
    except InvalidPlan as error:
        raise InvalidPlan(f"{POLICY} {binding.spec.policy_ref.name} is wrong: {error}") from None
    return _plan(named, binding, policy.spec, binding.spec, earlier=True)


def _form(data: Mapping[str, Any], kind: type[AnyManifest]) -> AnyManifest:
    try:
        return kind.read(dict(data))
    except ValidationError as error:
        raise invalid(checker_faults(error, kind)) from None


def _plan(
    named: ObjectName,
    manifest: AutoscalingPolicy | AutoscalingPolicyBinding,
    policy: PolicyForm,
    targets: PolicyTargets,
    *,
    earlier: bool,
) -> ScalingPlan:
    names = _LiveNames([])
    scope = Scope(names, policy, earlier=earlier)
    found = faults_of(manifest, Context(scope, Path()))
    faults = [fault for fault in found if not fault.is_note]
    if faults:
        raise invalid(faults)
    reader = KthenaReader(policy, names)
    settings = reader.read(targets, Context(None, Path(), ("spec",)))
    if settings is None:
        raise invalid(reader.faults)
    written = list(_targets(targets))
    asked = dict.fromkeys(settings.queries, EXTERNAL)
    settings = settings.model_copy(update={"queries": asked})
    bounds = {target.pool: target.bounds for target in written}
    return ScalingPlan(
        named.name,
        tuple(_target(target, named) for target in written),
        ScalingSetup(settings, (Assignment("", settings),), bounds),
        queries=tuple(
            ExternalQuery(
                target.pool, metric, source.prometheus.server_url, source.prometheus.query
            )
            for target in written
            for metric, source in (target.sources or {}).items()
            if source.prometheus is not None
        ),
        asks_pods=any(name not in settings.queries for own in _metrics(settings) for name in own),
    )


def _metrics(settings: KthenaSettings) -> Iterator[Mapping[str, float]]:
    yield settings.metrics
    if isinstance(settings, KthenaDisaggregatedSettings):
        yield from settings.metrics_of.values()


def _targets(targets: PolicyTargets) -> Iterator[_Written]:
    if targets.homogeneous_target is not None:
        several = [targets.homogeneous_target]
    elif targets.heterogeneous_target is not None:
        several = list(targets.heterogeneous_target.params)
    else:
        assert targets.disaggregated_target is not None
        form = targets.disaggregated_target
        for name, role in form.roles.items():
            yield _Written(form.target_ref, name, role.bounds, role.metric_sources, None)
        return
    for one in several:
        target = one.target
        role_of = target.sub_targets.name if target.sub_targets else ""
        yield _Written(
            target.target_ref, role_of, one.bounds, target.metric_sources, target.metric_endpoint
        )


def _target(target: _Written, owner: ObjectName) -> ScaledTarget:
    ref = target.ref
    asked: PodSourceForm | EndpointForm = target.endpoint or EndpointForm()
    places = [one.pod for one in (target.sources or {}).values() if one.pod is not None]
    if places:
        asked = places[0]
        if any(_place(one) != _place(asked) for one in places):
            what = "metricSources: pods are asked at one uri and port, and with one labelSelector"
            raise InvalidPlan(f"{what}; {target.pool} has several")
    labels = {NAME_LABEL: ref.name, ENTRY_LABEL: "true"}
    labels |= {ROLE_LABEL: target.role} if target.role else {}
    labels |= _match_labels(asked.label_selector)
    return ScaledTarget(
        target.pool,
        ObjectName(ref.api_version or owner.api_version, MODEL_SERVING,
                   ref.namespace or owner.namespace, ref.name),
        target.bounds,
        selector=",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        selects_alone=True,
        port=asked.port,
        path=asked.uri,
        cannot=ROLES_STAY if target.role else "",
    )  # fmt: skip


def _place(asked: PodSourceForm | EndpointForm) -> tuple[str, int, dict[str, str]]:
    return asked.uri, asked.port, _match_labels(asked.label_selector)


def _match_labels(selector: Mapping[str, Any] | None) -> dict[str, str]:
    if not selector:
        return {}
    labels = selector.get("matchLabels")
    if set(selector) - {"matchLabels"} or not isinstance(labels, dict):
        raise InvalidPlan("labelSelector: only matchLabels is read here")
    return {str(key): str(value) for key, value in labels.items()}
