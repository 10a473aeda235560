"""What servers cost: their scenario's price, or else the catalog's example."""

from windtunnel.twin.pools import accelerator_of
from windtunnel.twin.scenario.plan import PoolPlan

SECONDS_PER_HOUR = 3600.0


def price_of(pool: PoolPlan) -> float | None:
    """Dollars for an hour of one accelerator of a pool; None when nobody has said."""
    if pool.price_per_hour is not None:
        return pool.price_per_hour
    accelerator = accelerator_of(pool)
    return None if accelerator is None else accelerator.price_per_hour


def cost_of(pool: PoolPlan, replica_seconds: float) -> float:
    """Dollars for so much time of its servers; a pool without a price costs nothing."""
    price = price_of(pool) or 0.0
    return replica_seconds * pool.tensor_parallel * price / SECONDS_PER_HOUR
