"""What a Kthena policy is set to, with every default filled in.

The defaults are those that its admission webhook fills in where no behaviour is written.
"""

from typing import Final

import msgspec

from windtunnel.scaling.plan import PolicyPlan

OR: Final = "Or"
AND: Final = "And"
SUMMED: Final = "summed"
PER_POD: Final = "per-pod"
EXACT: Final = "exact"
AS_SHIPPED: Final = "as-shipped"
KEPT: Final = "kept"
LOST: Final = "lost"
HOMOGENEOUS: Final = "homogeneous"
HETEROGENEOUS: Final = "heterogeneous"
DISAGGREGATED: Final = "disaggregated"
OFF: Final = "Off"
PREFERRED: Final = "Preferred"

INTERVAL_S: Final = 15.0
"""How often the controller looks, where nobody says otherwise."""


class Pace(msgspec.Struct, frozen=True):
    """How fast a size may change in one direction, and how long a recommendation must hold."""

    instances: int
    percent: int
    period_s: float
    window_s: float
    select: str = OR
    """Or: the looser of the two limits holds. And: the stricter. Any other word: no limit."""


class Panic(msgspec.Struct, frozen=True):
    """When load outruns the size: up at once, and not down for a while."""

    percent: int = 0
    period_s: float = 0.0
    threshold_percent: int = 200
    """Of the current size: a recommendation as high as this starts it."""
    hold_s: float = 0.0
    """0: never panic."""


UP: Final = Pace(instances=4, percent=100, period_s=60.0, window_s=0.0)
DOWN: Final = Pace(instances=0, percent=100, period_s=60.0, window_s=300.0)


class Behavior(msgspec.Struct, frozen=True):
    """How a recommendation becomes a size."""

    up: Pace = UP
    down: Pace = DOWN
    panic: Panic = Panic()


class Ratio(msgspec.Struct, frozen=True):
    """How many replicas of one role there may be for each of another."""

    numerator: str
    denominator: str
    minimum: float
    maximum: float


class Band(msgspec.Struct, frozen=True):
    """The percentage of all replicas that one target should have."""

    minimum: float = 0.0
    maximum: float = 100.0


class Coordination(msgspec.Struct, frozen=True):
    """Whether pressure moves replicas between the targets of a heterogeneous policy."""

    mode: str = OFF
    preferred: dict[str, Band] = msgspec.field(default_factory=dict)


class KthenaPlan(PolicyPlan, frozen=True):
    """A whole policy. Bounds belong to the pools, and are not repeated here."""

    target: str
    """homogeneous: each pool alone; heterogeneous: all pools together, by cost; disaggregated: each
    pool alone, with a ratio between two of them, and all or none of them."""
    metrics: dict[str, float]
    """By name: what one replica should have of it."""
    queries: dict[str, str] = msgspec.field(default_factory=dict)
    """Metrics that a query reads for a whole pool: `sum`, `avg` or `max` of its replicas."""
    tolerance_percent: int = 10
    tolerance: str = PER_POD
    """per-pod: as intended, around the current size. summed: as shipped, around a size of one."""
    behavior: Behavior = Behavior()
    history: str = KEPT
    """kept: seeded with the size at the start, taken over by an edited policy. lost: neither."""
    costs: dict[str, float] = msgspec.field(default_factory=dict)
    """Of one replica by pool; others cost what an hour of them does."""
    growth_percent: int = 200
    coordination: Coordination = Coordination()
    pool_metrics: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    """Metrics of single pools, where they differ."""
    ratio: Ratio | None = None
    ratio_rule: str = EXACT
