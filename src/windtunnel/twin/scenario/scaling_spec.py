"""What a person writes under `scaling:`. A policy is a class here and a row in the last table."""

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.core.spec.fields import Duration, Flag, Name, Number, Whole, chosen_by, variant
from windtunnel.core.spec.section import Section
from windtunnel.scaling.plan import (
    BlisPlan,
    PolicyPlan,
    SaturationPlan,
    WvaPlan,
    WvaSparePlan,
)
from windtunnel.twin.scenario.limits import (
    LONGEST_RUN,
    LONGEST_STALENESS,
    LONGEST_TARGET,
    MOST_REPLICAS,
    MOST_SEQUENCES,
    MOST_TOKENS,
)

Switch = Annotated[bool, Flag()]
Delay = Annotated[float, Duration("0s", LONGEST_STALENESS)]
Window = Annotated[float, Duration("0s", LONGEST_TARGET)]
Period = Annotated[float, Duration("0s", LONGEST_TARGET, above=True)]
Share = Annotated[float, Number(0, 1, above=True)]
Queue = Annotated[float, Number(0, MOST_SEQUENCES, above=True)]
Replicas = Annotated[int, Whole(0, MOST_REPLICAS)]
Step = Annotated[int, Whole(1, MOST_REPLICAS)]


class ActuationSpec(Section):
    """How long it takes from a decision until the cluster acts on it: normal, never below 0."""

    mean: Delay = Field(default=0.0, description="Its mean.")
    stddev: Delay = Field(default=0.0, description="Its standard deviation; 0s: always the mean.")


class BoundsSpec(Section):
    """The sizes that a pool may have."""

    min: Replicas = Field(
        default=1,
        description="The fewest replicas; 0 lets it go away altogether, and come back when "
        "requests wait.",
    )
    max: Replicas = Field(default=MOST_REPLICAS, description="The most replicas.")


class OptimizerSpec(Section):
    """Which pool grows first where several have the same role, and which shrinks."""

    order: Literal["price-per-capacity", "price"] = Field(
        default="price-per-capacity",
        description="Which pool is the cheapest: by what it can do, or as it is. That one grows "
        "first, and the dearest shrinks first.",
    )
    engine: Literal["greedy", "unlimited"] = Field(
        default="greedy",
        description="Whether only accelerators that are free count and the next pool is taken "
        "where there are none (`greedy`), or replicas are asked for all the same (`unlimited`).",
    )


class StabilizationSpec(Section):
    """How long a direction must be recommended, tick after tick, before it is taken."""

    up: Window = Field(default=0.0, description="For more replicas; 0s acts at once.")
    down: Window = Field(
        default=300.0, description="For fewer; 0s acts at once. Kubernetes waits as long."
    )


class RateSpec(Section):
    """How fast a pool, or the pools of a role together, may change."""

    up: Step | None = Field(
        default=None, description="Most replicas more within a period; left out: any number."
    )
    down: Step | None = Field(
        default=None, description="Most replicas fewer within a period; left out: any number."
    )
    period: Period = Field(default=60.0, description="The period.")


class ScalerSpec(Section):
    """What every policy has: when it looks, between which sizes, and what slows it down."""

    policy: str = Field(description="Chooses this.")
    interval: Period = Field(
        default=15.0, description="How often it looks at the fleet and decides; as Kubernetes does."
    )
    scrape_delay: Delay = Field(
        default=0.0, description="How old what it sees is when it decides: metrics take their time."
    )
    freshness: Period | None = Field(
        default=None,
        description="What is older than this is not believed, and nothing changes; "
        "left out: the scrape delay and three intervals.",
    )
    actuation_delay: ActuationSpec = Field(
        default_factory=ActuationSpec,
        description="From a decision until the cluster acts on it; left out: at once.",
    )
    pools: dict[Annotated[str, Name()], BoundsSpec] = Field(
        default_factory=dict,
        description="Bounds by the name of a pool; one that is left out has at least one replica "
        "and as many as are wanted. `min` and `max` alike fix its size.",
    )
    optimizer: OptimizerSpec | None = Field(
        default=None, description="Where it grows and shrinks; left out: as the policy has it."
    )
    stabilization: StabilizationSpec | None = Field(
        default=None,
        description="Patience before it acts; left out: as the policy has it.",
    )
    rate: RateSpec | None = Field(
        default=None, description="How fast sizes may change; left out: at any rate."
    )
    zero_after: Annotated[float, Duration("0s", LONGEST_RUN)] | None = Field(
        default=None,
        description="How long nothing must have arrived or be there before the last replica of a "
        "pool with `min: 0` goes; left out: as soon as the policy says so.",
    )
    matched_roles: Switch = Field(
        default=False,
        description="Whether prefill and decode grow in the same proportion where one of them "
        "cannot get all it asks for.",
    )
    wake: Switch = Field(
        default=True,
        description="Whether a replica starts where there is none and requests wait, and the last "
        "one stays while there is work.",
    )

    def policy_plan(self) -> PolicyPlan:
        """What the policy is built from."""
        raise NotImplementedError


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
    """The second analyzer of llm-d's workload variant autoscaler: tokens, with its thresholds."""

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


ScalingSpec = Annotated[
    Annotated[SaturationScalerSpec, variant("saturation")]
    | Annotated[WvaScalerSpec, variant("wva")]
    | Annotated[WvaSpareScalerSpec, variant("wva-v1")]
    | Annotated[BlisScalerSpec, variant("blis")],
    chosen_by("policy", "saturation", "wva", "wva-v1", "blis"),
]
