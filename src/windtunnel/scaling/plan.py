"""How a fleet is scaled, with every default filled in: the values a scaler is built from."""

import msgspec


class TimingPlan(msgspec.Struct, frozen=True):
    """When it looks, and how late it sees and acts."""

    interval_s: float
    scrape_delay_s: float
    actuation_delay_s: float
    actuation_stddev_s: float
    freshness_s: float | None
    """None: the scrape delay and three intervals."""


class BoundsPlan(msgspec.Struct, frozen=True):
    """The smallest and the largest size of a pool."""

    minimum: int
    maximum: int


class PolicyPlan(msgspec.Struct, frozen=True):
    """What a policy is built from: a struct for each, and a row in `build.BUILDERS`."""


class SaturationPlan(PolicyPlan, frozen=True):
    """KV tokens that are wanted against those that can be held."""

    up: float = 0.8
    down: float = 0.4
    kv_threshold: float = 0.8
    average_prompt: float = 512.0
    full_queue: int = 5
    compute_bound: bool = True


class WvaPlan(PolicyPlan, frozen=True):
    """As the workload variant autoscaler has it, second analyzer."""

    up: float = 0.85
    down: float = 0.7
    kv_threshold: float = 0.8
    full_queue: int = 5


class WvaSparePlan(PolicyPlan, frozen=True):
    """As the workload variant autoscaler has it, first analyzer."""

    kv_threshold: float = 0.8
    queue_threshold: float = 5.0
    kv_spare: float = 0.1
    queue_spare: float = 3.0


class BlisPlan(PolicyPlan, frozen=True):
    """As BLIS has it."""

    up: float = 0.8
    down: float = 0.4
    kv_threshold: float = 0.8
    average_prompt: float = 512.0


class PartPlan(msgspec.Struct, frozen=True):
    """One of several policies, and the pools that it scales."""

    source: str
    """What asks for it, such as the kind and name of a manifest."""
    pools: tuple[str, ...]
    policy: PolicyPlan


class OptimizerPlan(msgspec.Struct, frozen=True):
    """Where it grows and shrinks."""

    order: str = "price-per-capacity"
    engine: str = "greedy"


class RatePlan(msgspec.Struct, frozen=True):
    """How many replicas more or fewer within a period; None: any number."""

    up: int | None
    down: int | None
    period_s: float


class StabilizationPlan(msgspec.Struct, frozen=True):
    """How long a direction must be asked for."""

    up_s: float
    down_s: float


class ScalingPlan(msgspec.Struct, frozen=True):
    """The whole of a scaler. What is None is left to the policy."""

    timing: TimingPlan
    policy: PolicyPlan | tuple[PartPlan, ...]
    """One for all pools, or several; what none of them scales stays as it is."""
    bounds: dict[str, BoundsPlan]
    """By pool, for every pool."""
    accelerators: dict[str, int] | None = None
    """How many of a kind there are for all pools; a kind that is left out is without end."""
    optimizer: OptimizerPlan | None = None
    stabilization: StabilizationPlan | None = None
    rate: RatePlan | None = None
    zero_after_s: float | None = None
    matched_roles: bool = False
    wake: bool = True
    notes: tuple[str, ...] = ()
    """What was written and is not used, to be said once of a run."""
