"""Faults of the metrics that a control plane sees: missing or late."""

import math
from typing import Any, Final

from windtunnel.core.signals import Signals
from windtunnel.engine.server import Server
from windtunnel.engine.views import probe


class SignalsSnapshot:
    """A copy of the signals of all servers at one time."""

    def __init__(self, signals: Signals) -> None:
        self.taken_s: Final = signals.taken_s
        self._columns: Final = [column[:] for column in _columns(signals)]

    def restore(self, signals: Signals) -> None:
        """Restores the signals to the snapshot; servers added later become unknown."""
        many = len(self._columns[0])
        for column, known in zip(_columns(signals), self._columns, strict=True):
            column[:many] = known
        for server in range(many, len(signals.waiting)):
            signals.observe_load(server, 0, 0, 0.0, -math.inf)
            signals.observe_adapters(server, [], -math.inf)
            signals.latency_seen_s[server] = -math.inf
            signals.ttft_s[server] = signals.tpot_s[server] = 0.0
        signals.taken_s = self.taken_s


def _columns(signals: Signals) -> list[list[Any]]:
    """The lists that probes change, by server."""
    return [
        *(signals.waiting, signals.running, signals.kv_used, signals.load_seen_s),
        *(signals.ttft_s, signals.tpot_s, signals.latency_seen_s),
        *(signals.adapters, signals.adapters_queued, signals.adapter_room, signals.adapters_seen_s),
    ]


class SignalFaults:
    """Probes servers while their metrics are missing or late.

    While metrics are missing, nothing new is learned. While they are late, servers are probed as
    often as before, and each result becomes known `lag_s` later; until the first one does, the
    state from when the lag began remains.
    """

    def __init__(self) -> None:
        self.dark = 0  # faults that hide all metrics
        self.lag_s = 0.0
        self._snapshots: list[SignalsSnapshot] = []  # the current one, and later ones
        self._probed_s = 0.0

    def late_by(self, lag_s: float, signals: Signals) -> None:
        """Sets how late metrics are from now on; 0: on time."""
        self.lag_s = lag_s
        if lag_s and not self._snapshots:
            self._snapshots.append(SignalsSnapshot(signals))
            self._probed_s = signals.taken_s
        elif not lag_s:
            self._snapshots.clear()

    def probe(self, servers: list[Server], signals: Signals, now_s: float) -> None:
        if self.dark:
            return
        if not self.lag_s:
            probe(servers, signals, now_s)
            return
        due = now_s - self._probed_s >= signals.staleness_s
        if due:
            self._snapshots[-1].restore(signals)  # keeps the latest of what no probe changes
            probe(servers, signals, now_s)
            self._probed_s = now_s
            if now_s > self._snapshots[-1].taken_s:
                self._snapshots.append(SignalsSnapshot(signals))
        arrived = False
        while len(self._snapshots) > 1 and self._snapshots[1].taken_s + self.lag_s <= now_s:
            self._snapshots.pop(0)
            arrived = True
        if due or arrived:
            signals.probes += 1
            self._snapshots[0].restore(signals)
