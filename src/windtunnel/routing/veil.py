"""What stands between a control plane and its servers while metrics are missing or late."""

from typing import Final

from windtunnel.core.signals import Signals
from windtunnel.engine.server import Server
from windtunnel.routing.look import look_at


class Glimpse:
    """The lists of all servers as they were at one time."""

    def __init__(self, signals: Signals) -> None:
        self.taken_s: Final = signals.taken_s
        self._waiting: Final = signals.waiting[:]
        self._running: Final = signals.running[:]
        self._kv_used: Final = signals.kv_used[:]
        self._ttft_s: Final = signals.ttft_s[:]
        self._tpot_s: Final = signals.tpot_s[:]
        self._adapters: Final = signals.adapters[:]

    def show(self, signals: Signals) -> None:
        """Makes it what is known; of servers that came later nothing was known then."""
        many = len(self._waiting)
        signals.waiting[:many] = self._waiting
        signals.running[:many] = self._running
        signals.kv_used[:many] = self._kv_used
        signals.ttft_s[:many] = self._ttft_s
        signals.tpot_s[:many] = self._tpot_s
        signals.adapters[:many] = self._adapters
        for server in range(many, len(signals.waiting)):
            signals.waiting[server] = signals.running[server] = 0
            signals.kv_used[server] = signals.ttft_s[server] = signals.tpot_s[server] = 0.0
            signals.adapters[server] = []
        signals.taken_s = self.taken_s


class Veil:
    """Answers for servers that are asked while something is wrong with their metrics.

    In the dark nobody learns anything. Under a lag servers are asked as often as before, and what
    they say is known so much later; until the first of it, what was known when the lag began is.
    """

    def __init__(self) -> None:
        self.dark = 0  # how many faults hide all metrics
        self.lag_s = 0.0
        self._seen: list[Glimpse] = []  # the one that is known, and later ones
        self._asked_s = 0.0

    def late_by(self, lag_s: float, signals: Signals) -> None:
        """From now on metrics come so much later; 0: at once."""
        self.lag_s = lag_s
        if lag_s and not self._seen:
            self._seen.append(Glimpse(signals))
            self._asked_s = signals.taken_s
        elif not lag_s:
            self._seen.clear()

    def look(self, servers: list[Server], signals: Signals, now_s: float) -> None:
        if self.dark:
            return
        if not self.lag_s:
            look_at(servers, signals, now_s)
            return
        asks = now_s - self._asked_s >= signals.staleness_s
        if asks:
            look_at(servers, signals, now_s)
            self._asked_s = now_s
            if now_s > self._seen[-1].taken_s:
                self._seen.append(Glimpse(signals))
        arrived = False
        while len(self._seen) > 1 and self._seen[1].taken_s + self.lag_s <= now_s:
            self._seen.pop(0)
            arrived = True
        if asks or arrived:
            signals.looks += 1
            self._seen[0].show(signals)
