"""What it costs a workload to lose a machine, in 28 buckets that double.

There are two penalties, and they are never mixed: of an interruption (the provider takes the
machine) and of a reclamation (we take it). Dollars are rounded up to the upper end of their bucket,
so that workloads that differ by cents are one need.
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
