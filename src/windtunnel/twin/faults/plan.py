"""The faults of a scenario as frozen values, every default filled in."""

import msgspec

SLOW_MACHINE = "slow-machine"
ENGINE_CRASH = "engine-crash"


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


What = SlowPlan | CrashPlan


class FaultPlan(msgspec.Struct, frozen=True):
    """One entry of the list: what goes wrong, when, and for how long."""

    name: str
    kind: str
    timing: Timing
    for_s: float | None
    """None: until the end of the run, or an instant where a fault has no length."""
    what: What
