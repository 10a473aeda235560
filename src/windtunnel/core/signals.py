"""What is known of each server, and how old that is: what routers, gateways and scalers decide on.

A control plane never sees its servers as they are, but as they were when they were last asked. The
driver fills these lists when `stale` says so; only `in_flight` is exact at any time: whoever
sends a request and hears of its end can count.
"""

import math
from typing import Final


class Signals:
    """Lists with an entry per server, taken together at `taken_s`."""

    def __init__(self, slots: list[int], staleness_s: float) -> None:
        servers = len(slots)
        self.slots: Final = slots  # requests that may run at once
        self.staleness_s: Final = staleness_s
        self.taken_s = -math.inf
        self.waiting = [0] * servers
        self.running = [0] * servers
        self.kv_used = [0.0] * servers  # share of KV blocks in use
        self.in_flight = [0] * servers  # sent there and not ended: exact at any time

    def stale(self, now_s: float) -> bool:
        """Whether it is time to ask again; with a staleness of 0, at every decision."""
        return now_s - self.taken_s >= self.staleness_s
