"""What a machine costs a need, and what it costs a workload to lose one.

There are two penalties, and they are never mixed: of an interruption (the provider takes the
machine) and of a reclamation (we take it). Penalties are in 28 buckets that double; dollars are
rounded up to the upper end of their bucket, so that workloads that differ by cents are one need.
"""

import math
from typing import Final

from windtunnel.core.errors import InputError

UNSPECIFIED: Final = 0
FREE: Final = 1
PINNED: Final = 27
BUCKETS: Final = 28

_SMALLEST: Final = 0.5


def _upper_end(bucket: int) -> float:
    if bucket <= FREE:
        return 0.0
    return math.inf if bucket == PINNED else math.ldexp(_SMALLEST, bucket - 2)


DOLLARS: Final = [_upper_end(bucket) for bucket in range(BUCKETS)]
"""The dollars that a bucket counts as: 0, 0, 0.5, 1, 2, ... 8,388,608, infinity."""


def bucket_of(dollars: float) -> int:
    """The bucket of a penalty; infinity, and whatever is above the last bucket, is pinned."""
    if math.isnan(dollars) or dollars < 0.0:
        raise InputError(f"the penalty is {dollars}", allowed="0 or more dollars, or infinity")
    bucket = FREE
    while DOLLARS[bucket] < dollars:
        bucket += 1
    return bucket


DRAIN_S: Final = 30.0
"""How long a machine takes to drain, by default."""
RECLAIM_GRACE_S: Final = 600.0
"""How long a machine that its cluster no longer needs has to empty itself."""


def effective_cost(price_per_hour: float, interruption_probability: float, bucket: int) -> float:
    """Dollars by which machines are compared for a need: price, and the risk of losing it.

    The units are mixed on purpose: an hour's price stands against one interruption.
    """
    if interruption_probability <= 0.0:
        return price_per_hour  # a pinned need costs infinitely much only where there is a risk
    return price_per_hour + interruption_probability * DOLLARS[bucket]


def victim_score(interruption_bucket: int, reclamation_bucket: int) -> float:
    """How good it is to take a machine from a need, beside the gap between priorities, of which
    each counts 1; larger is better."""
    return (
        0.1 / DRAIN_S
        + 0.1 / max(0.01, DOLLARS[interruption_bucket])
        + 0.1 / max(0.01, DOLLARS[reclamation_bucket])
    )


def preemption_grace_s(gap: int) -> float:
    """How long a victim may take to leave: the further below in priority, the less."""
    if gap > 900_000:
        return 10.0
    if gap > 500_000:
        return 30.0
    return 120.0 if gap > 100_000 else RECLAIM_GRACE_S
