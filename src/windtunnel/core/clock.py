"""The one module that reads a real clock. Simulated time never comes from here."""

import time
from typing import Final


def monotonic_s() -> float:
    """Seconds on a clock that only goes forward, for progress displays and live drivers."""
    return time.monotonic()


def cpu_s() -> float:
    """CPU seconds that this process has used, for measuring ourselves."""
    return time.process_time()


def unix_s() -> float:
    """Seconds since 1970, for what others want dated."""
    return time.time()


lap_s: Final = time.perf_counter
"""As `monotonic_s`, for code that measures itself thousands of times a second: no function of
ours is called around it."""
