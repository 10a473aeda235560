"""The one module that reads a real clock. Simulated time never comes from here."""

import time


def monotonic_s() -> float:
    """Seconds on a clock that only goes forward, for progress displays and live drivers."""
    return time.monotonic()


def cpu_s() -> float:
    """CPU seconds that this process has used, for measuring ourselves."""
    return time.process_time()


def unix_s() -> float:
    """Seconds since 1970, for what others want dated."""
    return time.time()
