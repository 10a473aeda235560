"""What a person writes under `serving.admission:`."""

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.settings.fields import (
    Duration,
    Flag,
    Name,
    Number,
    Rate,
    Whole,
    chosen_by,
    variant,
)
from windtunnel.settings.limits import (
    HIGHEST_PRIORITY,
    LARGEST_WEIGHT,
    LONGEST_STALENESS,
    LONGEST_TARGET,
    MOST_SEQUENCES,
    MOST_WAITING,
)
from windtunnel.settings.section import Section

Tenant = Annotated[str, Name()]
Switch = Annotated[bool, Flag()]
Waiting = Annotated[int, Whole(0, MOST_WAITING)]
QueueDepth = Annotated[float, Number(0, MOST_SEQUENCES, above=True)]
KvShare = Annotated[float, Number(0, 1, above=True)]
FASTEST_REFILL = "1000000000/s"
LARGEST_BUCKET = 10**12  # tokens


class GatewaySpec(Section):
    """What every policy has: budgets of tenants around it."""

    policy: str = Field(description="Chooses this.")
    budgets: dict[Tenant, Annotated[float, Number(0, 1)]] | None = Field(
        default=None,
        description="The share of all running slots (`max_num_seqs` of every server) that the "
        "requests of a tenant may hold, waiting at the gateway or in flight; a share above 0 is "
        "good for one request at least. A tenant that is not named has no budget.",
    )
    over_budget: Literal["shed", "reject-all"] | None = Field(
        default=None,
        description="With `budgets`: whether a tenant over its budget loses only requests that "
        "may be shed (`shed`, priority below 0) or all that come (`reject-all`); left out: shed.",
    )


class AlwaysSpec(GatewaySpec):
    """Every request is let in at once."""

    policy: Literal["always"]


class TokenBucketSpec(GatewaySpec):
    """A request takes its prompt tokens out of a bucket; it is turned away when they are short."""

    policy: Literal["token-bucket"]
    capacity: Annotated[float, Number(0, LARGEST_BUCKET, above=True)] = Field(
        description="Tokens that the bucket holds when it is full, as it is at the start: "
        "the largest burst, and the longest prompt that can ever get in."
    )
    refill: Annotated[float, Rate("0/s", FASTEST_REFILL)] = Field(
        description="Tokens that flow in, such as 4000/s: the rate that can be kept up."
    )


class TierShedSpec(GatewaySpec):
    """Low priorities are turned away while any server has more requests than a threshold."""

    policy: Literal["tier-shed"]
    threshold: Waiting = Field(
        description="Requests, waiting or running, that the busiest server may have."
    )
    min_priority: Annotated[int, Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY)] = Field(
        default=0,
        description="From this priority on nobody is turned away; 0: what may be shed is.",
    )


class SaturationSpec(GatewaySpec):
    """What may be shed is turned away while the fleet looks full.

    It is full where the mean over servers of the larger of queue / `queue_depth` and KV use /
    `kv_utilization` is 1 or more.
    """

    policy: Literal["saturation"]
    queue_depth: QueueDepth = Field(
        default=5.0, description="Waiting requests with which a server counts as full."
    )
    kv_utilization: KvShare = Field(
        default=0.8, description="Share of KV blocks in use with which a server counts as full."
    )


class ConcurrencySpec(Section):
    """Requests in flight over the most that the fleet should have; exact at any time."""

    kind: Literal["concurrency"]
    max_per_server: Annotated[int, Whole(1, MOST_SEQUENCES)] = Field(
        default=100, description="Requests in flight with which a server counts as full."
    )


class UtilizationSpec(Section):
    """As `policy: saturation` sees it, and what was sent since the last look counts as queued."""

    kind: Literal["utilization"]
    queue_depth: QueueDepth = Field(
        default=5.0, description="Waiting requests with which a server counts as full."
    )
    kv_utilization: KvShare = Field(
        default=0.8, description="Share of KV blocks in use with which a server counts as full."
    )
    interval: Annotated[float, Duration("0s", LONGEST_STALENESS, above=True)] | None = Field(
        default=None,
        description="How often it looks again while requests wait and nothing happens; "
        "left out: as often as there is something new to see, `router.staleness`, or 50ms where "
        "that is 0s.",
    )


class NeverSpec(Section):
    """The fleet is never full, so that nobody waits here."""

    kind: Literal["never"]


DetectorSpec = Annotated[
    Annotated[ConcurrencySpec, variant("concurrency")]
    | Annotated[UtilizationSpec, variant("utilization")]
    | Annotated[NeverSpec, variant("never")],
    chosen_by("kind", "concurrency", "utilization", "never"),
]


class FlowControlSpec(GatewaySpec):
    """Requests wait here, in bands by priority, while the fleet is too full for them."""

    policy: Literal["flow-control"]
    order: Literal["priority", "fifo", "slo-deadline", "round-robin"] = Field(
        default="priority",
        description="Who goes next: the highest priority, and of equal ones the tenant that had "
        "the fewest prompt tokens (`priority`); the first to come (`fifo`); who wants its first "
        "token soonest, by the ttft of its class (`slo-deadline`); or the tenant that was served "
        "longest ago, with its highest priority (`round-robin`).",
    )
    detector: DetectorSpec = Field(
        default_factory=lambda: UtilizationSpec(kind="utilization"),
        description="How full the fleet is; `kind` chooses how that is known. "
        "Left out: utilization.",
    )
    limit: Annotated[float, Number(0, 1)] = Field(
        default=1.0,
        description="How full the fleet may be for the lowest priority to go. The highest goes "
        "up to 1, those between up to values at equal steps.",
    )
    max_waiting: Waiting | None = Field(
        default=None, description="Most requests that may wait here; left out: a million."
    )
    max_waiting_per_band: Waiting | None = Field(
        default=None, description="The same of each priority; left out: any number of them."
    )
    ttl: Annotated[float, Duration("0s", LONGEST_TARGET, above=True)] | None = Field(
        default=None,
        description="How long a request may wait here before it is turned away; "
        "left out: as long as whoever sent it.",
    )
    shedding: Switch = Field(
        default=True,
        description="When `max_waiting` is reached: whether a newcomer takes the place of the "
        "newest request of the lowest priority, if that is lower than its own and below 0.",
    )
    eviction: Switch = Field(
        default=False,
        description="When the fleet is full: whether a request of priority below 0 is stopped "
        "where it is, its work lost, for each request of higher priority that has to wait. "
        "With `order: priority`, so that the place goes to that one.",
    )
    weights: dict[Tenant, Annotated[float, Number(0, LARGEST_WEIGHT, above=True)]] | None = Field(
        default=None,
        description="With `order: priority`: what a tenant's share counts against the others'; "
        "1 for who is not named.",
    )


AdmissionSpec = Annotated[
    Annotated[AlwaysSpec, variant("always")]
    | Annotated[TokenBucketSpec, variant("token-bucket")]
    | Annotated[TierShedSpec, variant("tier-shed")]
    | Annotated[SaturationSpec, variant("saturation")]
    | Annotated[FlowControlSpec, variant("flow-control")],
    chosen_by("policy", "always", "token-bucket", "tier-shed", "saturation", "flow-control"),
]
