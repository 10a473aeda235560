"""How long to wait before a failed call is tried again: doubling, bounded, and never in step."""

from typing import Final

from windtunnel.core.random import Stream

FIRST_S: Final = 2.0
LONGEST_S: Final = 60.0


def retry_delay_s(attempt: int, stream: Stream) -> float:
    """The wait after the `attempt`-th failure, from 0: half to all of a delay that doubles."""
    full_s = min(LONGEST_S, FIRST_S * 2.0 ** min(attempt, 10))
    return stream.between(0.5 * full_s, full_s)
