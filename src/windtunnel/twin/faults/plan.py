"""The faults of a scenario as frozen values, every default filled in."""

import msgspec

SLOWEST = 1_000.0
"""The most that everything together slows a server: its next step ends some day."""

ROUTERS = "routers"
AUTOSCALER = "autoscaler"
READERS = (ROUTERS, AUTOSCALER)
"""Who reads metrics. A gateway reads what routers do."""

GANGS = "gangs"
FLEET = "fleet"
CONTROLLERS = (AUTOSCALER, GANGS, FLEET)


class SelectPlan(msgspec.Struct, frozen=True):
    """Whom a fault befalls, of those that are there then."""

    pool: str | None = None
    """None: of every pool."""
    server: int | None = None
    """Its number in that pool; None: they are drawn."""
    count: int | None = 1
    """How many are drawn; None: all of them."""


class AtPlan(msgspec.Struct, frozen=True, tag=True):
    """Once, at a time of the run."""

    at_s: float


class EveryPlan(msgspec.Struct, frozen=True, tag=True):
    """By chance: gaps between beginnings are exponential."""

    mean_s: float
    from_s: float
    until_s: float | None
    most: int | None


class WhenPlan(msgspec.Struct, frozen=True, tag=True):
    """When something has been above or below a value for a while."""

    metric: str
    pool: str | None
    above: float | None
    below: float | None
    for_s: float
    interval_s: float
    most: int


Timing = AtPlan | EveryPlan | WhenPlan


class SlowPlan(msgspec.Struct, frozen=True, tag=True):
    """Steps take longer."""

    select: SelectPlan
    factor: float


class CrashPlan(msgspec.Struct, frozen=True, tag=True):
    """An engine ends at once, with everything on it."""

    select: SelectPlan


class LoopPlan(msgspec.Struct, frozen=True, tag=True):
    """Engines crash after every start, for a while."""

    select: SelectPlan
    after_s: float
    backoff_s: float
    longest_s: float


class PartitionPlan(msgspec.Struct, frozen=True, tag=True):
    """Servers that routers do not see."""

    select: SelectPlan


class BlackoutPlan(msgspec.Struct, frozen=True, tag=True):
    """Metrics that nobody gets."""

    readers: tuple[str, ...]


class LagPlan(msgspec.Struct, frozen=True, tag=True):
    """Metrics that come late."""

    readers: tuple[str, ...]
    lag_s: float


class SkewPlan(msgspec.Struct, frozen=True, tag=True):
    """A clock that is off."""

    skew_s: float


class RestartPlan(msgspec.Struct, frozen=True, tag=True):
    """A controller that begins anew."""

    controller: str


class LeakPlan(msgspec.Struct, frozen=True, tag=True):
    """KV blocks that become unusable."""

    select: SelectPlan
    blocks_per_s: float


class StormPlan(msgspec.Struct, frozen=True, tag=True):
    """Servers that answer 429."""

    select: SelectPlan
    share: float


MACHINE = "machine"
RACK = "rack"
ZONE = "zone"


class MachineSelectPlan(msgspec.Struct, frozen=True):
    """Which machines a fault befalls, of those that are there then; None: any."""

    pool: str | None
    zone: str | None
    rack: int | None
    machine: str | None
    count: int | None
    """How many machines, racks or zones are drawn; None: all."""


class MachineLossPlan(msgspec.Struct, frozen=True, tag=True):
    """Machines that stop."""

    select: MachineSelectPlan
    unit: str
    """What is drawn and lost as a whole: a machine, a rack or a zone."""


class ReclaimPlan(msgspec.Struct, frozen=True, tag=True):
    """Spot machines that are taken back."""

    select: MachineSelectPlan
    notice_s: float


class OutagePlan(msgspec.Struct, frozen=True, tag=True):
    """A provider that answers nobody."""


class QuotaPlan(msgspec.Struct, frozen=True, tag=True):
    """No more machines than there are."""

    pool: str | None
    zone: str | None


What = (
    SlowPlan
    | CrashPlan
    | LoopPlan
    | PartitionPlan
    | BlackoutPlan
    | LagPlan
    | SkewPlan
    | RestartPlan
    | LeakPlan
    | StormPlan
    | MachineLossPlan
    | ReclaimPlan
    | OutagePlan
    | QuotaPlan
)


class FaultPlan(msgspec.Struct, frozen=True):
    """One entry of the list: what goes wrong, when, and for how long."""

    name: str
    kind: str
    timing: Timing
    for_s: float | None
    """None: until the end of the run, or an instant where a fault has no length."""
    what: What
