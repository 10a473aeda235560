"""Settings of a gateway: one class for each policy, and their validation.

The section chooses a policy by the word at `policy`. `check` finds faults within a section,
`traffic_faults` options that have no effect on the expected requests.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from windtunnel.admission.gateway.tickets import SHEDDABLE_BELOW
from windtunnel.core.errors import nearest
from windtunnel.core.units import format_duration
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import (
    Duration,
    Flag,
    Name,
    Number,
    Rate,
    Share,
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
from windtunnel.settings.section import Added, Context, Section

Tenant = Annotated[str, Name()]
Switch = Annotated[bool, Flag()]
Waiting = Annotated[int, Whole(0, MOST_WAITING)]
QueueDepth = Annotated[float, Number(0, MOST_SEQUENCES, above=True)]
KvShare = Annotated[float, Share(above=True)]
FASTEST_REFILL = "1000000000/s"
LARGEST_BUCKET = 10**12  # tokens
LOOK_EVERY_S = 0.05
"""How often a detector evaluates while requests are queued, if signals are never stale."""


class GatewayPolicySettings(Section):
    """The fields of every policy: budgets of tenants."""

    policy: str = Field(description="Chooses this.")
    budgets: dict[Tenant, Annotated[float, Share()]] | None = Field(
        default=None,
        description="Share of all running slots (`max_num_seqs` of every server) that a tenant's "
        "requests may hold, queued or in flight; at least one request.",
    )
    over_budget: Literal["shed", "reject-all"] | None = Field(
        default=None,
        description="Whether a tenant over budget loses new requests of priority below 0 "
        "(`shed`, the default) or all (`reject-all`).",
    )

    @property
    def reject_all(self) -> bool:
        """Whether a tenant over its budget has every request rejected, not only sheddable ones."""
        return self.over_budget == "reject-all"

    @property
    def admits_all(self) -> bool:
        """Whether every request is admitted at once, so that there is nothing to decide."""
        return False

    @property
    def reads_signals(self) -> bool:
        """Whether servers have to be polled for it."""
        return False

    def check(self, where: Context) -> Iterator[Fault]:
        if self.budgets is not None and not self.budgets:
            yield _nobody_named("budgets", where)
        if self.over_budget is not None and self.budgets is None:
            hint = "give some, or leave it out"
            yield where.note("over_budget", "there are no budgets", hint)


class AlwaysSettings(GatewayPolicySettings):
    """Every request is admitted at once."""

    policy: Literal["always"]

    @property
    def admits_all(self) -> bool:
        return not self.budgets


class TokenBucketSettings(GatewayPolicySettings):
    """Requests take prompt tokens from a bucket, or are rejected."""

    policy: Literal["token-bucket"]
    capacity: Annotated[float, Number(0, LARGEST_BUCKET, above=True)] = Field(
        description="Size of the bucket, full at the start."
    )
    refill_per_s: Annotated[float, Rate("0/s", FASTEST_REFILL)] = Field(
        description="Tokens added per second: the sustained rate."
    )


class TierShedSettings(GatewayPolicySettings):
    """Low priorities are rejected while a server is over a threshold."""

    policy: Literal["tier-shed"]
    threshold: Waiting = Field(
        description="Most requests, queued or running, on the busiest server."
    )
    min_priority: Annotated[int, Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY)] = Field(
        default=0,
        description="Requests of this priority and above are never rejected.",
    )


class SaturationShedSettings(GatewayPolicySettings):
    """Priorities below 0 are rejected while saturation, the mean over servers of the larger of
    queue / `queue_depth` and KV use / `kv_utilization`, is 1 or more.
    """

    policy: Literal["saturation"]
    queue_depth: QueueDepth = Field(
        default=5.0, description="Queued requests at which a server is saturated."
    )
    kv_utilization: KvShare = Field(
        default=0.8, description="Share of KV blocks in use at which a server is saturated."
    )

    @property
    def reads_signals(self) -> bool:
        return True


class ConcurrencySettings(Section):
    """Requests in flight over their limit; exact at any time."""

    kind: Literal["concurrency"]
    max_per_server: Annotated[int, Whole(1, MOST_SEQUENCES)] = Field(
        default=100, description="Requests in flight at which a server is saturated."
    )


class UtilizationSettings(Section):
    """As `policy: saturation`; requests sent since the last probe count as queued."""

    kind: Literal["utilization"]
    queue_depth: QueueDepth = Field(
        default=5.0, description="Queued requests at which a server is saturated."
    )
    kv_utilization: KvShare = Field(
        default=0.8, description="Share of KV blocks in use at which a server is saturated."
    )
    interval_s: Annotated[float, Duration("0s", LONGEST_STALENESS, above=True)] | None = Field(
        default=None,
        description="Time between evaluations while requests are queued. Default: "
        "`router.staleness`, or 50ms.",
    )

    def look_every_s(self, staleness_s: float) -> float:
        """Returns the evaluation interval, given the age at which signals are refreshed."""
        return self.interval_s or staleness_s or LOOK_EVERY_S


class NeverSettings(Section):
    """Never saturated: nothing is queued at the gateway."""

    kind: Literal["never"]


DetectorSettings = Annotated[
    Annotated[ConcurrencySettings, variant("concurrency")]
    | Annotated[UtilizationSettings, variant("utilization")]
    | Annotated[NeverSettings, variant("never")],
    chosen_by("kind", "concurrency", "utilization", "never"),
]


class AgingSettings(Section):
    """Keeps strict priorities from starving the lower ones."""

    after_s: Annotated[float, Duration("0s", LONGEST_TARGET, above=True)] = Field(
        description="How long a priority's oldest request must have been queued."
    )
    share: Annotated[float, Share(above=True)] = Field(
        default=0.1,
        description="Share of dispatched requests.",
    )


class FlowControlSettings(GatewayPolicySettings):
    """Requests are queued at the gateway, by priority, while the fleet is saturated."""

    policy: Literal["flow-control"]
    order: Literal["priority", "fifo", "slo-deadline", "round-robin"] = Field(
        default="priority",
        description="Next is, by `priority`, the highest, fair between tenants; by `fifo` the "
        "oldest; by `slo-deadline` the earliest TTFT deadline; by `round-robin` each "
        "tenant's highest priority in turn.",
    )
    detector: DetectorSettings = Field(
        default_factory=lambda: UtilizationSettings(kind="utilization"),
        description="How saturation is measured, by `kind`. Default: utilization.",
    )
    limit: Annotated[float, Share()] = Field(
        default=1.0,
        description="Saturation up to which the lowest priority is sent; 100% for the highest.",
    )
    max_waiting: Waiting | None = Field(
        default=None, description="Most queued requests. Default: a million."
    )
    max_waiting_per_band: Waiting | None = Field(
        default=None, description="The same per priority. Default: no limit."
    )
    ttl_s: Annotated[float, Duration("0s", LONGEST_TARGET, above=True)] | None = Field(
        default=None,
        description="How long a request may be queued. Default: until its timeout.",
    )
    aging: Annotated[AgingSettings | None, Added()] = Field(
        default=None,
        description="With `order: priority`: a share for lower priorities that wait too long.",
    )
    shedding: Switch = Field(
        default=True,
        description="At `max_waiting`: whether a new request displaces the newest of the lowest "
        "priority, if lower and below 0.",
    )
    eviction: Switch = Field(
        default=False,
        description="With `order: priority`: whether, if saturated, a queued request evicts a "
        "running one of lower priority below 0.",
    )
    weights: dict[Tenant, Annotated[float, Number(0, LARGEST_WEIGHT, above=True)]] | None = Field(
        default=None,
        description="With `order: priority`: weights of tenants; 1 for others.",
    )

    @property
    def reads_signals(self) -> bool:
        return isinstance(self.detector, UtilizationSettings)

    @property
    def most_queued(self) -> int:
        return MOST_WAITING if self.max_waiting is None else self.max_waiting

    @property
    def most_queued_per_band(self) -> int:
        return MOST_WAITING if self.max_waiting_per_band is None else self.max_waiting_per_band

    @property
    def longest_queued_s(self) -> float:
        return math.inf if self.ttl_s is None else self.ttl_s

    @property
    def aged_after_s(self) -> float:
        return math.inf if self.aging is None or self.order != "priority" else self.aging.after_s

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        order, only = self.order, "only with order: priority"
        if self.weights is not None:
            if not self.weights:
                yield _nobody_named("weights", where)
            if order != "priority":
                what = f"the order {order!r} has no use for it"
                yield where.note("weights", what, only)
        if self.aging is not None and order != "priority":
            yield where.note("aging", f"the order {order!r} has no use for it", only)
        if self.eviction and order != "priority":
            what = f"with the order {order!r} another request may take the freed place"
            yield where.fault("eviction", what, only, beside=("order",))
        most, per_band = self.max_waiting, self.max_waiting_per_band
        if most is not None and per_band is not None and per_band > most:
            what = f"{per_band} is more than max_waiting, which is {most}"
            yield where.fault("max_waiting_per_band", what, beside=("max_waiting",))


GatewaySettings = Annotated[
    Annotated[AlwaysSettings, variant("always")]
    | Annotated[TokenBucketSettings, variant("token-bucket")]
    | Annotated[TierShedSettings, variant("tier-shed")]
    | Annotated[SaturationShedSettings, variant("saturation")]
    | Annotated[FlowControlSettings, variant("flow-control")],
    chosen_by("policy", "always", "token-bucket", "tier-shed", "saturation", "flow-control"),
]


class ExpectedTraffic(NamedTuple):
    """What is known in advance of the requests to a gateway, and of its signals."""

    priorities: Collection[int]
    """The priorities that requests can have."""
    has_targets: bool
    """Whether a request can have a target for its time to first token."""
    tenants: Sequence[str]
    """Some known tenants, for error messages."""
    is_tenant: Callable[[str], bool]
    staleness_s: float
    """The age at which signals are refreshed."""


def traffic_faults(
    settings: GatewaySettings, traffic: ExpectedTraffic, where: Context
) -> Iterator[Fault]:
    """Yields faults for unknown tenants and for options that have no effect on this traffic."""
    yield from _unknown_tenants("budgets", settings.budgets, traffic, where)
    if not any(priority < SHEDDABLE_BELOW for priority in traffic.priorities):
        yield from _nothing_to_shed(settings, where)
    if not isinstance(settings, FlowControlSettings):
        return
    if settings.order == "slo-deadline" and not traffic.has_targets:
        what = "no class of a source has a ttft target"
        hint = "give one under `slo`, or take another order"
        yield where.note("order", what, hint)
    if settings.limit < 1 and len(set(traffic.priorities)) == 1:
        what = "all requests have the same priority, and the limit of the highest is 1"
        yield where.note("limit", what, "leave it out")
    if settings.eviction and min(traffic.priorities) >= SHEDDABLE_BELOW:
        what = "no request has a priority below 0, so that none can be evicted"
        yield where.note("eviction", what, "leave it out")
    yield from _unknown_tenants("weights", settings.weights, traffic, where)
    detector = settings.detector
    interval_s = detector.interval_s if isinstance(detector, UtilizationSettings) else None
    if interval_s is not None and interval_s < traffic.staleness_s:
        stale = format_duration(traffic.staleness_s)
        what = f"less than the {stale} after which signals are refreshed"
        hint = "lower serving.router.staleness, or leave it out"
        yield where.note(("detector", "interval"), what, hint)


def _nothing_to_shed(settings: GatewaySettings, where: Context) -> Iterator[Fault]:
    none = "no request has a priority below 0"
    hint = "give a source a class such as `batch`"
    if isinstance(settings, SaturationShedSettings):
        what = f"{none}, so that 'saturation' admits all"
        yield where.note("policy", what, hint)
    if settings.budgets and not settings.reject_all:
        what = f"{none}, so that none is rejected over a budget"
        hint += ", or set over_budget: reject-all"
        yield where.note("budgets", what, hint)


def _nobody_named(key: str, where: Context) -> Fault:
    return where.fault(key, "no tenant is named", "at least one, or leave it out")


def _unknown_tenants(
    key: str, named: Mapping[str, float] | None, traffic: ExpectedTraffic, where: Context
) -> Iterator[Fault]:
    for name in named or ():
        if not traffic.is_tenant(name):
            known = list(traffic.tenants)
            what = f"no source has the tenant {name!r}"
            yield where.fault((key, name), what, ", ".join(known), nearest(name, known))
