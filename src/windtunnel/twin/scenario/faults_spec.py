"""What a person writes under `faults:`. A kind is a class here and a row in the last table."""

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.settings.fields import Number, Rate, chosen_by, variant
from windtunnel.settings.limits import MOST_FAULTS
from windtunnel.settings.section import Section
from windtunnel.twin.faults.plan import (
    READERS,
    SLOWEST,
    BlackoutPlan,
    CrashPlan,
    LagPlan,
    LeakPlan,
    LoopPlan,
    PartitionPlan,
    RestartPlan,
    SkewPlan,
    SlowPlan,
    StormPlan,
    What,
)
from windtunnel.twin.scenario.fault_times_spec import (
    FaultSpec,
    LastingSpec,
    Length,
    Moment,
    SelectSpec,
)
from windtunnel.twin.scenario.machine_faults_spec import (
    MachineLossSpec,
    ProviderOutageSpec,
    QuotaSpec,
    RackLossSpec,
    SpotReclaimSpec,
    ZoneLossSpec,
)


class SlowSpec(LastingSpec):
    """Steps of some servers take longer, from the next that they plan on."""

    kind: Literal["slow-machine"]
    select: SelectSpec = Field(
        default_factory=SelectSpec, description="Which servers; left out: one of all."
    )
    factor: Annotated[float, Number(1, SLOWEST, above=True)] = Field(
        default=2.0, description="How many times longer a step takes than its model says."
    )

    @property
    def selected(self) -> SelectSpec:
        return self.select

    def what(self) -> What:
        return SlowPlan(self.select.plan(), self.factor)


class CrashSpec(FaultSpec):
    """Engines end at once, with everything on them; a new server starts in the place of each.

    It is ready after `serving.startup`. What becomes of the requests is said by `serving.retries`.
    """

    kind: Literal["engine-crash"]
    select: SelectSpec = Field(
        default_factory=SelectSpec, description="Which servers; left out: one of all."
    )

    @property
    def selected(self) -> SelectSpec:
        return self.select

    def what(self) -> What:
        return CrashPlan(self.select.plan())


class BackoffSpec(Section):
    """How long an engine that crashed waits before it starts again; twice as long every time."""

    first: Moment = Field(default=10.0, description="After the first crash; as Kubernetes does.")
    most: Moment = Field(default=300.0, description="Never longer than this.")


class CrashLoopSpec(LastingSpec):
    """Engines crash, and again after every start, until what is wrong is mended.

    On gangs it is all pods of the clique that crash; when, and the waiting, are their cluster's.
    """

    kind: Literal["crash-loop"]
    for_: Length = Field(alias="for", description="How long; who starts after that starts well.")
    select: SelectSpec = Field(
        default_factory=SelectSpec, description="Which servers crash first; left out: one of all."
    )
    after: Moment = Field(default=5.0, description="From being ready to the crash.")
    backoff: BackoffSpec = Field(
        default_factory=BackoffSpec, description="How long it waits; left out: 10s, 20s, ... 5m."
    )

    @property
    def selected(self) -> SelectSpec:
        return self.select

    def what(self) -> What:
        return LoopPlan(self.select.plan(), self.after, self.backoff.first, self.backoff.most)


class PartitionSpec(LastingSpec):
    """Routers and gateways do not see some ready servers, which finish what they have."""

    kind: Literal["router-partition"]
    select: SelectSpec = Field(
        default_factory=SelectSpec, description="Which servers; left out: one of all."
    )

    @property
    def selected(self) -> SelectSpec:
        return self.select

    def what(self) -> What:
        return PartitionPlan(self.select.plan())


Readers = Annotated[list[Literal["routers", "autoscaler"]], Field(min_length=1, max_length=2)]
READERS_SAY = (
    "Who reads metrics: `routers`, with the gateway, or the `autoscaler`; left out: "
    "all that there are."
)


class MetricSpec(LastingSpec):
    """A fault of metrics."""

    readers: Readers | None = Field(default=None, description=READERS_SAY)

    def read_by(self) -> tuple[str, ...]:
        return READERS if self.readers is None else tuple(self.readers)


class BlackoutSpec(MetricSpec):
    """Nobody gets metrics: what is known of servers becomes older, and no snapshot is taken.

    How many requests a router has sent to each server it counts itself, and knows.
    """

    kind: Literal["metric-blackout"]

    def what(self) -> What:
        return BlackoutPlan(self.read_by())


class LagSpec(MetricSpec):
    """Metrics come later. Lags that overlap add up."""

    kind: Literal["metric-lag"]
    by: Length = Field(description="How much later.")

    def what(self) -> What:
        return LagPlan(self.read_by(), self.by)


class SkewSpec(LastingSpec):
    """The clock of the autoscaler is off. It never runs backwards: it stands still instead."""

    kind: Literal["clock-skew"]
    controller: Literal["autoscaler"] = Field(default="autoscaler", description="Whose clock.")
    ahead: Length | None = Field(default=None, description="By how much; this or `behind`.")
    behind: Length | None = Field(default=None, description="By how much; this or `ahead`.")

    def what(self) -> What:
        return SkewPlan(self.ahead if self.ahead is not None else -(self.behind or 0.0))


class RestartSpec(LastingSpec):
    """A controller is lost with all that it knew; another begins with what it can observe."""

    kind: Literal["controller-restart"]
    controller: Literal["autoscaler", "gangs", "fleet"] = Field(description="Which one.")
    for_: Length | None = Field(
        default=None,
        alias="for",
        description="How long the autoscaler is away; left out: it is back at once. Of others "
        "nothing may be written: they are back at once.",
    )

    @property
    def length_s(self) -> float | None:
        return 0.0 if self.for_ is None else self.for_

    def what(self) -> What:
        return RestartPlan(self.controller)


class KvLeakSpec(LastingSpec):
    """KV blocks of some servers become unusable, for as long as their engines run."""

    kind: Literal["kv-leak"]
    select: SelectSpec = Field(
        default_factory=SelectSpec, description="Which servers; left out: one of all."
    )
    rate: Annotated[float, Rate("0.001/s", "1000000/s")] = Field(
        description="Blocks of each of them."
    )

    @property
    def selected(self) -> SelectSpec:
        return self.select

    def what(self) -> What:
        return LeakPlan(self.select.plan(), self.rate)


class StormSpec(LastingSpec):
    """Servers answer 429 to some of the requests that are sent to them.

    What becomes of those is said by `serving.retries`.
    """

    kind: Literal["rate-limit-storm"]
    select: SelectSpec = Field(
        default_factory=lambda: SelectSpec(count="all"),
        description="Which servers; left out: all.",
    )
    share: Annotated[float, Number(0, 1, above=True)] = Field(
        default=1.0, description="The share of requests that they refuse, drawn for each."
    )

    @property
    def selected(self) -> SelectSpec:
        return self.select

    def what(self) -> What:
        return StormPlan(self.select.plan(), self.share)


Fault = Annotated[
    Annotated[SlowSpec, variant("slow-machine")]
    | Annotated[CrashSpec, variant("engine-crash")]
    | Annotated[CrashLoopSpec, variant("crash-loop")]
    | Annotated[PartitionSpec, variant("router-partition")]
    | Annotated[BlackoutSpec, variant("metric-blackout")]
    | Annotated[LagSpec, variant("metric-lag")]
    | Annotated[SkewSpec, variant("clock-skew")]
    | Annotated[RestartSpec, variant("controller-restart")]
    | Annotated[KvLeakSpec, variant("kv-leak")]
    | Annotated[StormSpec, variant("rate-limit-storm")]
    | Annotated[MachineLossSpec, variant("machine-loss")]
    | Annotated[RackLossSpec, variant("rack-loss")]
    | Annotated[ZoneLossSpec, variant("zone-loss")]
    | Annotated[SpotReclaimSpec, variant("spot-reclaim")]
    | Annotated[ProviderOutageSpec, variant("provider-outage")]
    | Annotated[QuotaSpec, variant("quota-exhaustion")],
    chosen_by(
        "kind",
        "slow-machine",
        "engine-crash",
        "crash-loop",
        "router-partition",
        "metric-blackout",
        "metric-lag",
        "clock-skew",
        "controller-restart",
        "kv-leak",
        "rate-limit-storm",
        "machine-loss",
        "rack-loss",
        "zone-loss",
        "spot-reclaim",
        "provider-outage",
        "quota-exhaustion",
    ),
]
Faults = Annotated[list[Fault], Field(max_length=MOST_FAULTS)]
