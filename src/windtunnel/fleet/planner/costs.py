"""The cost of a machine to a need, and of losing a machine to a workload.

There are two penalties, which are never mixed: for an interruption (by the provider) and for a
reclamation (by us). Penalties are in 28 buckets that double; dollars are rounded up to the upper
end of their bucket, so that workloads that differ by cents are one need.
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
"""The dollars that a bucket stands for: 0, 0, 0.5, 1, 2, ... 8,388,608, infinity."""


def bucket_of(dollars: float) -> int:
    """The bucket of a penalty; anything above the last finite bucket is pinned."""
    if math.isnan(dollars) or dollars < 0.0:
        raise InputError(f"the penalty is {dollars}", allowed="0 or more dollars, or infinity")
    bucket = FREE
    while DOLLARS[bucket] < dollars:
        bucket += 1
    return bucket


DRAIN_S: Final = 30.0
"""Default time to drain a machine."""
RECLAIM_GRACE_S: Final = 600.0
"""The time that a machine no longer needed by its cluster has to empty itself."""


def effective_cost(price_per_hour: float, interruption_probability: float, bucket: int) -> float:
    """The dollars by which machines are compared for a need: price, and the risk of losing one.

    The units are mixed on purpose: the price of an hour is weighed against one interruption.
    """
    if interruption_probability <= 0.0:
        return price_per_hour  # the cost of a pinned need is infinite only if there is a risk
    return price_per_hour + interruption_probability * DOLLARS[bucket]


def victim_score(interruption_bucket: int, reclamation_bucket: int) -> float:
    """How suitable a need is as a victim, on top of the priority gap (1 per priority); larger is
    better."""
    return (
        0.1 / DRAIN_S
        + 0.1 / max(0.01, DOLLARS[interruption_bucket])
        + 0.1 / max(0.01, DOLLARS[reclamation_bucket])
    )


def preemption_grace_s(gap: int) -> float:
    """How long a victim may take to leave: the larger the priority gap, the shorter."""
    if gap > 900_000:
        return 10.0
    if gap > 500_000:
        return 30.0
    return 120.0 if gap > 100_000 else RECLAIM_GRACE_S
