"""What every policy has under `scaling:`: when it looks, its bounds, what slows it down."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from windtunnel.scaling.plan import PolicyPlan
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Flag, Name, Text, Whole
from windtunnel.settings.limits import (
    LONGEST_RUN,
    LONGEST_STALENESS,
    LONGEST_TARGET,
    MOST_REPLICAS,
    MOST_TENSOR_PARALLEL,
)
from windtunnel.settings.section import Section

Switch = Annotated[bool, Flag()]
Delay = Annotated[float, Duration("0s", LONGEST_STALENESS)]
Window = Annotated[float, Duration("0s", LONGEST_TARGET)]
Period = Annotated[float, Duration("0s", LONGEST_TARGET, above=True)]
Replicas = Annotated[int, Whole(0, MOST_REPLICAS)]
Step = Annotated[int, Whole(1, MOST_REPLICAS)]
Accelerators = Annotated[int, Whole(0, MOST_REPLICAS * MOST_TENSOR_PARALLEL)]


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


class PolicyKey(Section):
    """The word that chooses a policy, before everything else."""

    policy: str = Field(description="Chooses this.")


class TimedSpec(Section):
    """When an autoscaler looks, and how late it sees and acts."""

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
    wake: Switch = Field(
        default=True,
        description="Whether a replica starts where there is none and requests wait, and the last "
        "one stays while there is work.",
    )


class ScalerSpec(TimedSpec, PolicyKey):
    """What every policy has: when it looks, between which sizes, and what slows it down."""

    pools: dict[Annotated[str, Name()], BoundsSpec] = Field(
        default_factory=dict,
        description="Bounds by the name of a pool; one that is left out has at least one replica "
        "and as many as are wanted. `min` and `max` alike fix its size.",
    )
    accelerators: dict[Annotated[str, Text("the accelerator of a pool")], Accelerators] = Field(
        default_factory=dict,
        description="How many accelerators there are for all pools together, by the name that "
        "pools have as `accelerator`; one that is left out is there without end. Pools grow only "
        "onto those that are free; the one replica that `wake` starts does not ask.",
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

    def policy_plan(self) -> PolicyPlan:
        """What the policy is built from."""
        raise NotImplementedError

    def policy_faults(self, pools: Sequence[str]) -> Iterator[Fault]:  # noqa: ARG002 - overridden
        """What is wrong with the policy's own options, beside pools of these names."""
        return iter(())
