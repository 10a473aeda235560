"""How requests are let in, with every default filled in: the values a gateway is built from."""

import msgspec


class AlwaysPlan(msgspec.Struct, frozen=True, tag_field="policy", tag="always"):
    """Everybody is let in."""


class TokenBucketPlan(msgspec.Struct, frozen=True, tag_field="policy", tag="token-bucket"):
    """Prompt tokens come out of a bucket that fills at a steady rate."""

    capacity: float
    refill_per_s: float


class TierShedPlan(msgspec.Struct, frozen=True, tag_field="policy", tag="tier-shed"):
    """Low priorities are turned away while a server has too much."""

    threshold: int
    min_priority: int


class SaturationPlan(msgspec.Struct, frozen=True, tag_field="policy", tag="saturation"):
    """What may be shed is turned away while the fleet looks full."""

    queue_depth: float
    kv_used: float


class DetectorPlan(msgspec.Struct, frozen=True):
    """How flow control knows how full the fleet is."""

    kind: str
    """`concurrency`, `utilization` or `never`; the others' values have no meaning for it."""
    max_per_server: int = 100
    queue_depth: float = 5.0
    kv_used: float = 0.8
    interval_s: float = 0.05


class FlowControlPlan(msgspec.Struct, frozen=True, tag_field="policy", tag="flow-control"):
    """Requests wait in bands before the fleet, and go while there is room."""

    order: str
    priorities: tuple[int, ...]
    """Those that requests can have, the highest first: a band for each."""
    max_waiting: int
    max_waiting_per_band: int
    ttl_s: float | None
    """None: as long as their clients do."""
    limit: float
    shedding: bool
    eviction: bool
    weights: dict[str, float]
    """By tenant; 1 for who is not named."""
    detector: DetectorPlan


PolicyPlan = AlwaysPlan | TokenBucketPlan | TierShedPlan | SaturationPlan | FlowControlPlan


class GatewayPlan(msgspec.Struct, frozen=True):
    """Who is let in, and when."""

    policy: PolicyPlan
    budgets: dict[str, float]
    """The share of all slots that a tenant may hold; who is not named is free."""
    reject_all: bool
    """Whether a tenant over its budget loses all that comes, not only what may be shed."""

    @property
    def is_open(self) -> bool:
        """Whether everybody is let in at once, so that there is nothing to decide."""
        return isinstance(self.policy, AlwaysPlan) and not self.budgets

    @property
    def reads_signals(self) -> bool:
        """Whether servers have to be asked how they are."""
        policy = self.policy
        if isinstance(policy, FlowControlPlan):
            return policy.detector.kind == "utilization"
        return isinstance(policy, SaturationPlan)
