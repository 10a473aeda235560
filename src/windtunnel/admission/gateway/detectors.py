"""Saturation of the fleet: a number that reaches 1 when the fleet should get no more requests.

A detector reads the signals at most once per trigger, and then gives the saturation after each
request that is sent. Requests sent since it read the signals count; otherwise a whole queue would
be sent on one stale view of a fleet that had room.
"""

import math
from typing import Final

from windtunnel.core.signals import Signals

NO_SERVERS: Final = math.inf


class Detector:
    """A detector that never reports saturation as long as there is a server at all."""

    def __init__(self) -> None:
        self.servers = 0

    @property
    def look_every_s(self) -> float:
        """How often to evaluate while requests are queued; infinity: only on events."""
        return math.inf

    @property
    def reads_signals(self) -> bool:
        """Whether servers have to be polled for it; their number is known without polling."""
        return False

    def look(self, signals: Signals, in_flight: int) -> None:
        """Reads the current signals."""
        self.servers = len(signals.answering)

    def saturation(self, in_flight: int) -> float:
        """Returns the saturation with `in_flight` requests, including those sent since `look`."""
        return 0.0 if self.servers else NO_SERVERS


class Concurrency(Detector):
    """Requests in flight, relative to the most that the fleet should have. Always exact."""

    def __init__(self, max_per_server: int) -> None:
        super().__init__()
        self.max_per_server: Final = max_per_server

    def saturation(self, in_flight: int) -> float:
        if self.servers == 0:
            return NO_SERVERS
        return in_flight / (self.servers * self.max_per_server)


class Utilization(Detector):
    """Mean over the servers of queue or KV use, whichever is closer to its threshold.

    A request that was sent but is not seen running counts as queued, so that requests on their way
    count. Requests sent since the last look count as queued on the average server.
    """

    def __init__(self, queue_depth: float, kv_used: float, look_every_s: float) -> None:
        super().__init__()
        self.queue_depth: Final = queue_depth
        self.kv_used: Final = kv_used
        self._look_every_s: Final = look_every_s
        self._taken_s = math.nan
        self._seen = NO_SERVERS
        self._in_flight = 0  # at the last look

    @property
    def look_every_s(self) -> float:
        return self._look_every_s

    @property
    def reads_signals(self) -> bool:
        return True

    def look(self, signals: Signals, in_flight: int) -> None:
        servers = len(signals.answering)
        same = signals.taken_s == self._taken_s and servers == self.servers
        if same and signals.staleness_s > 0.0:
            return
        self.servers = servers
        self._taken_s = signals.taken_s
        self._in_flight = in_flight
        self._seen = mean_use(signals, self.queue_depth, self.kv_used, count_unseen=True)

    def saturation(self, in_flight: int) -> float:
        if self.servers == 0:
            return NO_SERVERS
        sent = in_flight - self._in_flight
        if sent <= 0:
            return self._seen
        return self._seen + sent / (self.servers * self.queue_depth)


def mean_use(signals: Signals, queue_depth: float, kv_used: float, *, count_unseen: bool) -> float:
    """Returns the mean over servers of max(queue / threshold, KV use / threshold); infinity without
    servers.

    With `count_unseen`, requests in flight that are not running count as queued, whether or not the
    server reports them.
    """
    servers = len(signals.answering)
    if servers == 0:
        return NO_SERVERS
    total = 0.0
    for server in signals.answering:
        queued = signals.waiting[server]
        if count_unseen:
            unseen = signals.in_flight[server] - signals.running[server]
            if unseen > queued:
                queued = unseen
        use = queued / queue_depth
        kv = signals.kv_used[server] / kv_used
        total += kv if kv > use else use
    return total / servers
