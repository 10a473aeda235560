"""What a person writes under `scaling:`. A policy is a class here and a row in the last table."""

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.scaling.plan import (
    BlisPlan,
    PolicyPlan,
    SaturationPlan,
    WvaPlan,
    WvaSparePlan,
)
from windtunnel.settings.fields import Number, Whole, by_one_key, chosen_by, variant
from windtunnel.settings.limits import MOST_SEQUENCES, MOST_TOKENS
from windtunnel.twin.scenario.kthena_spec import (
    KthenaDisaggregatedSpec,
    KthenaHeterogeneousSpec,
    KthenaHomogeneousSpec,
)
from windtunnel.twin.scenario.manifest_spec import ManifestScalerSpec
from windtunnel.twin.scenario.peers_spec import (
    AibrixScalerSpec,
    DynamoScalerSpec,
    HpaScalerSpec,
    KedaScalerSpec,
    KnativeScalerSpec,
    PredictiveScalerSpec,
)
from windtunnel.twin.scenario.scaler_spec import ScalerSpec, Switch

Share = Annotated[float, Number(0, 1, above=True)]
Queue = Annotated[float, Number(0, MOST_SEQUENCES, above=True)]


class SaturationScalerSpec(ScalerSpec):
    """KV tokens that are in use and wait, over those that replicas can hold.

    A replica can hold `kv_threshold` of its KV cache, or what it holds when it computes as fast as
    it can, if that is less. Down waits 5m where `stabilization` is left out.
    """

    policy: Literal["saturation"]
    up: Share = Field(
        default=0.8, description="The load of what is there and coming above which it grows."
    )
    down: Share = Field(
        default=0.4, description="The load of what is ready below which it may shrink; below `up`."
    )
    kv_threshold: Share = Field(
        default=0.8,
        description="The share of a KV cache that may be in use; the rest is for peaks.",
    )
    average_prompt: Annotated[float, Number(0, MOST_TOKENS, above=True)] = Field(
        default=512.0, description="Tokens that a prompt counts until some were measured."
    )
    full_queue: Annotated[int, Whole(1, MOST_SEQUENCES)] = Field(
        default=5,
        description="Waiting requests from which on a replica computes as fast as it can: what it "
        "holds then is its compute-bound capacity.",
    )
    compute_bound: Switch = Field(
        default=True,
        description="Whether a replica can be full before its cache is: by what was observed of "
        "it, else by its limits of sequences and tokens a step.",
    )

    def policy_plan(self) -> PolicyPlan:
        return SaturationPlan(
            self.up,
            self.down,
            self.kv_threshold,
            self.average_prompt,
            self.full_queue,
            self.compute_bound,
        )


class WvaScalerSpec(ScalerSpec):
    """The second analyzer of llm-d's workload variant autoscaler: tokens, with its thresholds.

    Prefill and decode grow in the same proportion, whatever `matched_roles` says.
    """

    policy: Literal["wva"]
    up: Share = Field(
        default=0.85, description="The load of what is there and coming above which it grows."
    )
    down: Share = Field(
        default=0.7, description="The load of what is ready below which it may shrink; below `up`."
    )
    kv_threshold: Share = Field(
        default=0.8, description="The share of a KV cache that may be in use."
    )
    full_queue: Annotated[int, Whole(1, MOST_SEQUENCES)] = Field(
        default=5, description="Waiting requests from which on a replica is taken to be full."
    )

    def policy_plan(self) -> PolicyPlan:
        return WvaPlan(self.up, self.down, self.kv_threshold, self.full_queue)


class WvaSpareScalerSpec(ScalerSpec):
    """The first analyzer of llm-d's workload variant autoscaler: one replica at a time.

    Nothing changes while replicas start or go.
    """

    policy: Literal["wva-v1"]
    kv_threshold: Share = Field(
        default=0.8, description="The share of its KV cache with which a replica is saturated."
    )
    queue_threshold: Queue = Field(
        default=5.0, description="Waiting requests with which a replica is saturated."
    )
    kv_spare: Annotated[float, Number(0, 1)] = Field(
        default=0.1,
        description="It grows when the others have less of their cache to spare, on the average, "
        "before they are saturated; below `kv_threshold`.",
    )
    queue_spare: Annotated[float, Number(0, MOST_SEQUENCES)] = Field(
        default=3.0,
        description="It grows when the others have less of their queue to spare; "
        "below `queue_threshold`.",
    )

    def policy_plan(self) -> PolicyPlan:
        return WvaSparePlan(
            self.kv_threshold, self.queue_threshold, self.kv_spare, self.queue_spare
        )


class BlisScalerSpec(ScalerSpec):
    """As BLIS scales: tokens of the caches alone, all of a change on one pool, no patience.

    Requests at the gateway, measured lengths and the compute-bound capacity do not count.
    """

    policy: Literal["blis"]
    up: Share = Field(default=0.8, description="The load above which it grows.")
    down: Share = Field(default=0.4, description="The load below which it may shrink; below `up`.")
    kv_threshold: Share = Field(
        default=0.8, description="The share of a KV cache that may be in use."
    )
    average_prompt: Annotated[float, Number(0, MOST_TOKENS, above=True)] = Field(
        default=512.0, description="Tokens that a request in a queue counts."
    )

    def policy_plan(self) -> PolicyPlan:
        return BlisPlan(self.up, self.down, self.kv_threshold, self.average_prompt)


PolicySpec = Annotated[
    Annotated[PredictiveScalerSpec, variant("predictive")]
    | Annotated[SaturationScalerSpec, variant("saturation")]
    | Annotated[WvaScalerSpec, variant("wva")]
    | Annotated[WvaSpareScalerSpec, variant("wva-v1")]
    | Annotated[BlisScalerSpec, variant("blis")]
    | Annotated[KthenaHomogeneousSpec, variant("kthena-homogeneous")]
    | Annotated[KthenaHeterogeneousSpec, variant("kthena-heterogeneous")]
    | Annotated[KthenaDisaggregatedSpec, variant("kthena-disaggregated")]
    | Annotated[HpaScalerSpec, variant("hpa")]
    | Annotated[KedaScalerSpec, variant("keda")]
    | Annotated[KnativeScalerSpec, variant("knative")]
    | Annotated[AibrixScalerSpec, variant("aibrix")]
    | Annotated[DynamoScalerSpec, variant("dynamo")],
    chosen_by(
        "policy",
        "predictive",
        "saturation",
        "wva",
        "wva-v1",
        "blis",
        "kthena-homogeneous",
        "kthena-heterogeneous",
        "kthena-disaggregated",
        "hpa",
        "keda",
        "knative",
        "aibrix",
        "dynamo",
    ),
]
ScalingSpec = Annotated[
    Annotated[ManifestScalerSpec, variant("manifests")] | Annotated[PolicySpec, variant("policy")],
    by_one_key("policy", "manifests"),
]
