"""The one module that reads a real clock. Simulated time never comes from here."""

import time
from typing import Final


def monotonic_s() -> float:
    """Seconds on a monotonic clock, for progress displays and live drivers."""
    return time.monotonic()


def cpu_s() -> float:
    """CPU seconds that this process has used, for measuring its own cost."""
    return time.process_time()


def unix_s() -> float:
    """Seconds since 1970 (Unix time), for timestamps that other programs read."""
    return time.time()


lap_s: Final = time.perf_counter
"""Like `monotonic_s`, but without a Python function around the call, for code that measures itself
thousands of times a second."""
