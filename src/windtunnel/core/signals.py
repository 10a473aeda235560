"""The observed state of each server and its age: the input of routers and gateways.

A control plane sees servers as they were when they were last probed. A driver fills these lists
with `observe_load` and `observe_adapters` when `stale` says so, and then calls `refreshed`. Only
`in_flight` is exact at any time, since the sender counts the requests that it sends and those that
end: the driver reports both to `sent` and `ended`.
"""

import math
from typing import Final

from mypy_extensions import i64


class LoadListener:
    """Notified whenever the number of requests in flight at a server changes."""

    def moved(self, server: i64) -> None:
        """Called after the count of this server has changed by one."""
        raise NotImplementedError


class LatencySums:
    """Latency sums of the requests that ended at one server since it was last probed."""

    def __init__(self) -> None:
        self.ends: i64 = 0
        self.answers: i64 = 0  # completions with more than one token
        self.ttft_s = 0.0
        self.tpot_s = 0.0


class Signals:
    """Lists with an entry per server. `taken_s` is the time of the last probe of all servers.

    Servers may also be observed one by one: each kind of signal has its own time per server.
    """

    def __init__(
        self, slots: list[int], staleness_s: float, answering: list[int] | None = None
    ) -> None:
        servers = len(slots)
        # Servers that answer requests, by number; the others compute prompts for them. Capacity
        # counts only these, since every request is on one of them.
        self.answering: Final = list(range(servers)) if answering is None else answering
        self.answering_slots = sum([slots[server] for server in self.answering])
        self.least_slots = 0  # of the fleet once it has any server that answers
        self.unplaced = 0  # requests admitted while no server was ready to answer
        self.slots: Final = slots  # requests that may run at once
        self.staleness_s: Final = staleness_s
        self.taken_s = -math.inf
        self.probes = 0  # so far
        self.waiting = [0] * servers
        self.running = [0] * servers
        self.kv_used = [0.0] * servers  # share of KV blocks in use
        self.ttft_s = [0.0] * servers  # means over requests that ended before a probe; 0: none yet
        self.tpot_s = [0.0] * servers
        self.adapters: list[list[int]] = [[] for _ in range(servers)]  # LoRA adapters loaded there
        self.adapters_queued: list[list[int]] = [[] for _ in range(servers)]  # of queued requests
        self.adapter_room = [0] * servers  # slots without an adapter
        self.in_flight = [0] * servers  # sent there and not ended: exact at any time
        self.tokens_in_flight = [0] * servers  # of their prompts
        self.load_seen_s = [-math.inf] * servers  # when waiting, running and kv_used were observed
        self.adapters_seen_s = [-math.inf] * servers
        self.latency_seen_s = [-math.inf] * servers  # when ttft_s and tpot_s were
        self.missed: Final[dict[int, int]] = {}  # silent servers: the number of reasons for each
        self._listeners: Final[list[LoadListener]] = []
        self._reporting: Final[list[int]] = []  # servers where requests ended since the last probe
        self._sums: Final = [LatencySums() for _ in range(servers)]

    def join(self, slots: int) -> int:
        """Adds a server that does not answer requests yet, and returns its number."""
        self.slots.append(slots)
        self.reach()
        return len(self.slots) - 1

    def reach(self) -> None:
        """Extends every list to the length of `slots`, which others may have appended to."""
        servers = len(self.slots)
        for counts in (self.waiting, self.running, self.in_flight):
            counts.extend([0] * (servers - len(counts)))
        for counts in (self.adapter_room, self.tokens_in_flight):
            counts.extend([0] * (servers - len(counts)))
        for values in (self.kv_used, self.ttft_s, self.tpot_s):
            values.extend([0.0] * (servers - len(values)))
        while len(self._sums) < servers:
            self._sums.append(LatencySums())
        for times in (self.load_seen_s, self.adapters_seen_s, self.latency_seen_s):
            times.extend([-math.inf] * (servers - len(times)))
        for adapters in (self.adapters, self.adapters_queued):
            while len(adapters) < servers:
                adapters.append([])

    def answer(self, servers: list[int]) -> None:
        """Sets the servers that answer requests, after some became ready or stopped taking
        requests."""
        self.answering[:] = servers
        self.answering_slots = sum([self.slots[server] for server in servers])

    def stale(self, now_s: float) -> bool:
        """Whether it is time to probe again; with a staleness of 0, before every decision."""
        return now_s - self.taken_s >= self.staleness_s

    def observe_load(
        self, server: i64, waiting: i64, running: i64, kv_used: float, now_s: float
    ) -> None:
        """Records a server's queue, its batch and the share of its KV blocks in use."""
        self.waiting[server] = waiting
        self.running[server] = running
        self.kv_used[server] = kv_used
        self.load_seen_s[server] = now_s

    def observe_adapters(
        self,
        server: i64,
        adapters: list[int],
        now_s: float,
        queued: list[int] | None = None,
        room: i64 = 0,
    ) -> None:
        """Records a server's loaded LoRA adapters, those that queued requests need, and its free
        slots.

        `room` is the number of slots without an adapter.
        """
        self.adapters[server] = adapters
        self.adapters_queued[server] = [] if queued is None else queued
        self.adapter_room[server] = room
        self.adapters_seen_s[server] = now_s

    def refreshed(self, now_s: float) -> None:
        """Marks the end of a probe of all servers: decisions from now on use it."""
        self.taken_s = now_s
        self.probes += 1
        reporting = self._reporting[:]
        self._reporting.clear()
        for server in reporting:
            if server in self.missed:
                self._reporting.append(server)  # until it answers
                continue
            self.latency_seen_s[server] = now_s
            sums = self._sums[server]
            self.ttft_s[server] = sums.ttft_s / float(sums.ends)
            if sums.answers:
                self.tpot_s[server] = sums.tpot_s / float(sums.answers)
            sums.ends = 0
            sums.answers = 0
            sums.ttft_s = 0.0
            sums.tpot_s = 0.0

    def listen(self, listener: LoadListener) -> None:
        self._listeners.append(listener)

    @property
    def listening(self) -> list[LoadListener]:
        return self._listeners[:]

    def unlisten(self, listener: LoadListener) -> None:
        self._listeners.remove(listener)

    def sent(self, server: i64, prompt_tokens: i64 = 0) -> None:
        """Counts a request that was sent to a server."""
        self._count(server, 1, prompt_tokens)
        for listener in self._listeners:
            listener.moved(server)

    def ended(self, server: i64, prompt_tokens: i64 = 0) -> None:
        """Counts a request that is no longer at the server it was sent to, whatever its outcome."""
        self._count(server, -1, -prompt_tokens)
        for listener in self._listeners:
            listener.moved(server)

    def _count(self, server: i64, requests: i64, tokens: i64) -> None:
        in_flight: i64 = self.in_flight[server]  # += would add them as objects
        tokens_in_flight: i64 = self.tokens_in_flight[server]
        self.in_flight[server] = in_flight + requests
        self.tokens_in_flight[server] = tokens_in_flight + tokens

    def observe_latency(self, server: i64, ttft_s: float, tpot_s: float) -> None:
        """Records the latency of a completed request; a server reports the means when it is probed.

        TTFT counts from when the request was sent to the server. A TPOT of 0 means a single token.
        """
        sums = self._sums[server]
        if sums.ends == 0:
            self._reporting.append(server)
        sums.ends += 1
        if tpot_s > 0.0:
            sums.answers += 1
        sums.ttft_s += ttft_s
        sums.tpot_s += tpot_s
