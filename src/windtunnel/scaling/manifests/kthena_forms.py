"""Kthena's AutoscalingPolicy, and the AutoscalingPolicyBinding of its earlier releases."""

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.scaling.manifests.fields import (
    Amount,
    AnyText,
    Count,
    ManifestForm,
    Most,
    Opaque,
    Reference,
    Span,
    limits_of,
)
from windtunnel.scaling.policies.kthena.policy import KthenaHeterogeneousSettings, KthenaSettings
from windtunnel.scaling.policies.kthena.settings import Coordination, Panic, Percent
from windtunnel.settings.fields import Text, Whole
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.section import ApiSection

THRESHOLDS = limits_of(Panic, "threshold")
EXPANSIONS = limits_of(KthenaHeterogeneousSettings, "cost_expansion_percent")
TOLERANCES = limits_of(KthenaSettings, "tolerance_percent")
MetricName = Annotated[str, Text("the name of a metric")]


class MetricForm(ApiSection):
    """A metric, and what one replica should have of it."""

    name: MetricName | None = Field(default=None, description="Its name.")
    metric_name: MetricName | None = Field(default=None, description="Its name, before v1.0.")
    target_value: Amount = Field(description="What one replica should have of it.")

    @property
    def called(self) -> str:
        return self.name or self.metric_name or ""


class StablePolicyForm(ApiSection):
    """How fast a size may change, and how long a recommendation counts.

    Where anything of it is written, the schema fills in defaults of its own for `instances` and
    `period`; where nothing is, the webhook's hold.
    """

    instances: Annotated[int, Whole(0, MOST_REPLICAS)] = Field(
        default=1, description="So many replicas."
    )
    percent: Percent | None = Field(default=None, description="So many percent of the size.")
    period: Span = Field(default=15.0, description="Within this time.")
    select_policy: Literal["Or", "And"] | None = Field(
        default=None, description="The looser of the two limits, or the stricter."
    )
    stabilization_window: Span | None = Field(
        default=None, description="How long a recommendation counts."
    )


class PanicPolicyForm(ApiSection):
    """Up at once when load outruns the size."""

    percent: Percent | None = Field(default=None, description="So many percent may be added.")
    period: Span = Field(description="Within this time.")
    panic_threshold_percent: Annotated[int, Whole(*THRESHOLDS)] | None = Field(
        default=None, description="Of the size: a recommendation as high calls for it."
    )
    panic_mode_hold: Span | None = Field(default=None, description="How long it lasts.")


class ScaleUpForm(ApiSection):
    """More replicas."""

    stable_policy: StablePolicyForm | None = Field(default=None, description="In calm times.")
    panic_policy: PanicPolicyForm | None = Field(
        default=None, description="In a panic; left out: there is none."
    )


class BehaviorForm(ApiSection):
    """How a recommendation becomes a size."""

    scale_up: ScaleUpForm | None = Field(default=None, description="More replicas.")
    scale_down: StablePolicyForm | None = Field(default=None, description="Fewer replicas.")


class PodSourceForm(ApiSection):
    """The metric is read from every pod."""

    name: AnyText | None = Field(default=None, description="Its name there; left out: the key.")
    uri: AnyText = Field(default="/metrics", description="Not used: nobody is asked by HTTP.")
    port: Annotated[int, Whole(1, 65535)] = Field(default=8100, description="As `uri`.")
    label_selector: Opaque | None = Field(default=None, description="As `uri`.")


class PrometheusSourceForm(ApiSection):
    """The metric is the answer to a query."""

    server_url: Annotated[str, Text("the address of a Prometheus server")] = Field(
        alias="serverURL", description="Not used: nobody is asked by HTTP."
    )
    query: Annotated[str, Text("a query of one metric")] = Field(description="The query.")
    auth: Opaque | None = Field(default=None, description="Not used.")


class MetricSourceForm(ApiSection):
    """Where a metric comes from."""

    type: Literal["Pod", "Prometheus"] | None = Field(default=None, description="Before v1.0.")
    pod: PodSourceForm | None = Field(default=None, description="From every pod.")
    prometheus: PrometheusSourceForm | None = Field(default=None, description="From a query.")


Sources = dict[str, MetricSourceForm]


class EndpointForm(ApiSection):
    """Where pods are asked, before v1.0; not used."""

    uri: AnyText = Field(default="/metrics", description="Not used.")
    port: Annotated[int, Whole(1, 65535)] = Field(default=8100, description="Not used.")
    label_selector: Opaque | None = Field(default=None, description="Not used.")


class SubTargetForm(ApiSection):
    """A part of a target, before v1.0."""

    kind: Literal["Role"] | None = Field(default=None, description="Only roles are parts.")
    name: AnyText = Field(description="The name of the role.")


class TargetForm(ApiSection):
    """What is scaled, and where its metrics come from."""

    target_ref: Reference = Field(description="The ModelServing.")
    metric_sources: Sources | None = Field(default=None, description="By metric.")
    metric_endpoint: EndpointForm | None = Field(default=None, description="Before v1.0.")
    sub_targets: SubTargetForm | None = Field(default=None, description="Before v1.0: a role.")


class HomogeneousForm(ApiSection):
    """One target."""

    target: TargetForm = Field(description="What is scaled.")
    min_replicas: Count = Field(description="The fewest replicas.")
    max_replicas: Most = Field(description="The most replicas.")


class ParameterForm(HomogeneousForm):
    """One of several targets."""

    cost: Annotated[int, Whole(0, 10**9)] = Field(
        default=0, description="Of one replica, in any unit."
    )


class HeterogeneousForm(ApiSection):
    """Several targets that can stand in for each other."""

    params: list[ParameterForm] = Field(min_length=1, max_length=64, description="The targets.")
    cost_expansion_rate_percent: Annotated[int, Whole(*EXPANSIONS)] | None = Field(
        default=None, description="How fast blocks of one kind grow."
    )
    coordination: Coordination | None = Field(
        default=None, description="Left out: off. Bands are by target, or by role."
    )


class RoleForm(ApiSection):
    """A role of a disaggregated target."""

    min_replicas: Count = Field(description="The fewest replicas.")
    max_replicas: Most = Field(description="The most replicas.")
    metrics: list[MetricForm] | None = Field(
        default=None, description="Its own metrics; left out: those of the policy."
    )
    metric_sources: Sources | None = Field(default=None, description="By metric.")

    @property
    def fixed(self) -> bool:
        return self.min_replicas == self.max_replicas > 0


class RatioForm(ApiSection):
    """How many replicas of one role there are for each of the other."""

    numerator_role: AnyText = Field(description="The role that is counted.")
    denominator_role: AnyText = Field(description="The role that it is counted by.")
    min_ratio: Amount = Field(description="At least so many.")
    max_ratio: Amount = Field(description="At most so many.")


class DisaggregatedForm(ApiSection):
    """A target whose roles are scaled each by itself."""

    target_ref: Reference = Field(description="The ModelServing.")
    roles: dict[str, RoleForm] = Field(description="One or two roles, by name.")
    ratio_constraint: RatioForm | None = Field(default=None, description="Between the roles.")


class PolicyTargets(ApiSection):
    """What a policy scales: one of the three."""

    homogeneous_target: HomogeneousForm | None = Field(default=None, description="One target.")
    heterogeneous_target: HeterogeneousForm | None = Field(
        default=None, description="Several targets by their cost."
    )
    disaggregated_target: DisaggregatedForm | None = Field(
        default=None, description="The roles of one target."
    )


class PolicyForm(PolicyTargets):
    """What metrics should be, and how fast sizes may follow."""

    tolerance_percent: Annotated[int, Whole(*TOLERANCES)] | None = Field(
        default=None, description="So far around the targets nothing changes."
    )
    metrics: list[MetricForm] = Field(default_factory=list, description="The metrics.")
    behavior: BehaviorForm | None = Field(default=None, description="How fast sizes follow.")


class AutoscalingPolicy(ManifestForm):
    """A whole policy."""

    spec: PolicyForm = Field(description="What it says.")


class BindingForm(PolicyTargets):
    """Which policy holds for which target."""

    policy_ref: Reference = Field(description="The AutoscalingPolicy.")


class AutoscalingPolicyBinding(ManifestForm):
    """Binds a policy to a target, before v1.0."""

    spec: BindingForm = Field(description="What it says.")
