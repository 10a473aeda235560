"""Kthena's AutoscalingPolicy, and the AutoscalingPolicyBinding of its earlier releases."""

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.scaling.manifests.fields import (
    Amount,
    AnyText,
    Count,
    Manifest,
    Most,
    Opaque,
    Plain,
    Reference,
    Span,
)
from windtunnel.settings.fields import Text, Whole
from windtunnel.settings.section import ApiSection

Percent = Annotated[int, Whole(0, 1000)]
MetricName = Annotated[str, Text("the name of a metric")]


class MetricSpec(ApiSection):
    """A metric, and what one replica should have of it."""

    name: MetricName | None = Field(default=None, description="Its name.")
    metric_name: MetricName | None = Field(default=None, description="Its name, before v1.0.")
    target_value: Amount = Field(description="What one replica should have of it.")

    @property
    def called(self) -> str:
        return self.name or self.metric_name or ""


class StablePolicySpec(ApiSection):
    """How fast a size may change, and how long a recommendation counts."""

    instances: Annotated[int, Whole(0, 10**6)] = Field(default=1, description="So many replicas.")
    percent: Percent = Field(default=100, description="So many percent of the size.")
    period: Span = Field(default=15.0, description="Within this time.")
    select_policy: Literal["Or", "And"] = Field(
        default="Or", description="The looser of the two limits, or the stricter."
    )
    stabilization_window: Span | None = Field(
        default=None, description="How long a recommendation counts; up 0s, down 5m."
    )


class PanicPolicySpec(ApiSection):
    """Up at once when load outruns the size."""

    percent: Percent = Field(default=1000, description="So many percent may be added.")
    period: Span = Field(description="Within this time.")
    panic_threshold_percent: Annotated[int, Whole(110, 1000)] = Field(
        default=200, description="Of the size: a recommendation as high calls for it."
    )
    panic_mode_hold: Span = Field(default=60.0, description="How long it lasts.")


class ScaleUpSpec(ApiSection):
    """More replicas."""

    stable_policy: StablePolicySpec | None = Field(default=None, description="In calm times.")
    panic_policy: PanicPolicySpec | None = Field(
        default=None, description="In a panic; left out: there is none."
    )


class BehaviorSpec(ApiSection):
    """How a recommendation becomes a size."""

    scale_up: ScaleUpSpec | None = Field(default=None, description="More replicas.")
    scale_down: StablePolicySpec | None = Field(default=None, description="Fewer replicas.")


class PodSourceSpec(ApiSection):
    """The metric is read from every pod."""

    name: AnyText | None = Field(default=None, description="Its name there; left out: the key.")
    uri: AnyText = Field(default="/metrics", description="Not used: nobody is asked by HTTP.")
    port: Annotated[int, Whole(1, 65535)] = Field(default=8100, description="As `uri`.")
    label_selector: Opaque | None = Field(default=None, description="As `uri`.")


class PrometheusSourceSpec(ApiSection):
    """The metric is the answer to a query."""

    server_url: Annotated[str, Text("the address of a Prometheus server")] = Field(
        alias="serverURL", description="Not used: nobody is asked by HTTP."
    )
    query: Annotated[str, Text("a query of one metric")] = Field(description="The query.")
    auth: Opaque | None = Field(default=None, description="Not used.")


class MetricSourceSpec(ApiSection):
    """Where a metric comes from."""

    type: Literal["Pod", "Prometheus"] | None = Field(default=None, description="Before v1.0.")
    pod: PodSourceSpec | None = Field(default=None, description="From every pod.")
    prometheus: PrometheusSourceSpec | None = Field(default=None, description="From a query.")


Sources = dict[str, MetricSourceSpec]


class EndpointSpec(ApiSection):
    """Where pods are asked, before v1.0; not used."""

    uri: AnyText = Field(default="/metrics", description="Not used.")
    port: Annotated[int, Whole(1, 65535)] = Field(default=8100, description="Not used.")
    label_selector: Opaque | None = Field(default=None, description="Not used.")


class SubTargetSpec(ApiSection):
    """A part of a target, before v1.0."""

    kind: Literal["Role"] | None = Field(default=None, description="Only roles are parts.")
    name: AnyText = Field(description="The name of the role.")


class TargetSpec(ApiSection):
    """What is scaled, and where its metrics come from."""

    target_ref: Reference = Field(description="The ModelServing.")
    metric_sources: Sources | None = Field(default=None, description="By metric.")
    metric_endpoint: EndpointSpec | None = Field(default=None, description="Before v1.0.")
    sub_targets: SubTargetSpec | None = Field(default=None, description="Before v1.0: a role.")


class HomogeneousSpec(ApiSection):
    """One target."""

    target: TargetSpec = Field(description="What is scaled.")
    min_replicas: Count = Field(description="The fewest replicas.")
    max_replicas: Most = Field(description="The most replicas.")


class ParameterSpec(HomogeneousSpec):
    """One of several targets."""

    cost: Annotated[int, Whole(0, 10**9)] = Field(
        default=0, description="Of one replica, in any unit."
    )


class BandSpec(ApiSection):
    """The share of all replicas that a target should have, in percent."""

    min: Plain = Field(default=0.0, description="At least.")
    max: Plain = Field(default=100.0, description="At most.")


class CoordinationSpec(ApiSection):
    """Whether replicas move between targets to where the pressure is."""

    mode: Literal["Off", "Preferred"] = Field(default="Off", description="Whether it is done.")
    preferred_ratio: dict[str, BandSpec] = Field(
        default_factory=dict, description="By the name of a target, or of its role."
    )


class HeterogeneousSpec(ApiSection):
    """Several targets that can stand in for each other."""

    params: list[ParameterSpec] = Field(min_length=1, max_length=64, description="The targets.")
    cost_expansion_rate_percent: Annotated[int, Whole(0, 10_000)] = Field(
        default=200, description="How fast blocks of one kind grow."
    )
    coordination: CoordinationSpec | None = Field(default=None, description="Left out: off.")


class RoleSpec(ApiSection):
    """A role of a disaggregated target."""

    min_replicas: Count = Field(description="The fewest replicas.")
    max_replicas: Most = Field(description="The most replicas.")
    metrics: list[MetricSpec] | None = Field(
        default=None, description="Its own metrics; left out: those of the policy."
    )
    metric_sources: Sources | None = Field(default=None, description="By metric.")

    @property
    def fixed(self) -> bool:
        return self.min_replicas == self.max_replicas > 0


class RatioSpec(ApiSection):
    """How many replicas of one role there are for each of the other."""

    numerator_role: AnyText = Field(description="The role that is counted.")
    denominator_role: AnyText = Field(description="The role that it is counted by.")
    min_ratio: Amount = Field(description="At least so many.")
    max_ratio: Amount = Field(description="At most so many.")


class DisaggregatedSpec(ApiSection):
    """A target whose roles are scaled each by itself."""

    target_ref: Reference = Field(description="The ModelServing.")
    roles: dict[str, RoleSpec] = Field(description="One or two roles, by name.")
    ratio_constraint: RatioSpec | None = Field(default=None, description="Between the roles.")


class PolicyTargets(ApiSection):
    """What a policy scales: one of the three."""

    homogeneous_target: HomogeneousSpec | None = Field(default=None, description="One target.")
    heterogeneous_target: HeterogeneousSpec | None = Field(
        default=None, description="Several targets by their cost."
    )
    disaggregated_target: DisaggregatedSpec | None = Field(
        default=None, description="The roles of one target."
    )


class PolicySpec(PolicyTargets):
    """What metrics should be, and how fast sizes may follow."""

    tolerance_percent: Annotated[int, Whole(0, 100)] = Field(
        default=10, description="So far around the targets nothing changes."
    )
    metrics: list[MetricSpec] = Field(default_factory=list, description="The metrics.")
    behavior: BehaviorSpec | None = Field(default=None, description="How fast sizes follow.")


class AutoscalingPolicy(Manifest):
    """A whole policy."""

    spec: PolicySpec = Field(description="What it says.")


class BindingSpec(PolicyTargets):
    """Which policy holds for which target."""

    policy_ref: Reference = Field(description="The AutoscalingPolicy.")


class AutoscalingPolicyBinding(Manifest):
    """Binds a policy to a target, before v1.0."""

    spec: BindingSpec = Field(description="What it says.")
