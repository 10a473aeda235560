"""What is known of each server, and how old that is: what routers, gateways and scalers decide on.

A control plane never sees its servers as they are, but as they were when they were last asked. The
driver fills these lists when `stale` says so, and then calls `took`; only `in_flight` is exact at
any time: whoever sends a request and hears of its end can count. The driver tells both to `sent`
and `ended`.
"""

import math
from typing import Final

from mypy_extensions import i64


class Watcher:
    """Something that keeps servers in order by how many requests are in flight there."""

    def moved(self, server: i64) -> None:
        """The count of this server has changed by one."""
        raise NotImplementedError


class Signals:
    """Lists with an entry per server, taken together at `taken_s`."""

    def __init__(
        self, slots: list[int], staleness_s: float, answering: list[int] | None = None
    ) -> None:
        servers = len(slots)
        # The servers that answer requests, by number; the others compute prompts for them. Whoever
        # asks how much room there is looks at these alone: a request is on one of them.
        self.answering: Final = list(range(servers)) if answering is None else answering
        self.answering_slots = sum([slots[server] for server in self.answering])
        self.least_slots = 0  # what the fleet has at least once it answers at all
        self.unplaced = 0  # requests that were let in while no server was ready to answer
        self.slots: Final = slots  # requests that may run at once
        self.staleness_s: Final = staleness_s
        self.taken_s = -math.inf
        self.looks = 0  # how often they were taken
        self.waiting = [0] * servers
        self.running = [0] * servers
        self.kv_used = [0.0] * servers  # share of KV blocks in use
        self.ttft_s = [0.0] * servers  # means over the ends before a look; 0: none yet
        self.tpot_s = [0.0] * servers
        self.adapters: list[list[int]] = [[] for _ in range(servers)]  # LoRA adapters loaded there
        self.in_flight = [0] * servers  # sent there and not ended: exact at any time
        self._watchers: Final[list[Watcher]] = []
        self._reporting: Final[list[int]] = []  # servers where requests ended since the last look
        self._ends = [0] * servers  # since the last look
        self._answers = [0] * servers  # those among them with more than one token
        self._ttft_sums = [0.0] * servers
        self._tpot_sums = [0.0] * servers

    def join(self, slots: int) -> int:
        """A server more, whose number is returned; it answers nobody yet."""
        self.slots.append(slots)
        self.reach()
        return len(self.slots) - 1

    def reach(self) -> None:
        """Makes every list as long as `slots`, which others may have added to."""
        servers = len(self.slots)
        for counts in (self.waiting, self.running, self.in_flight, self._ends, self._answers):
            counts.extend([0] * (servers - len(counts)))
        for values in (self.kv_used, self.ttft_s, self.tpot_s, self._ttft_sums, self._tpot_sums):
            values.extend([0.0] * (servers - len(values)))
        while len(self.adapters) < servers:
            self.adapters.append([])

    def answer(self, servers: list[int]) -> None:
        """From now on these answer requests: some have become ready, or get no more."""
        self.answering[:] = servers
        self.answering_slots = sum([self.slots[server] for server in servers])

    def stale(self, now_s: float) -> bool:
        """Whether it is time to ask again; with a staleness of 0, at every decision."""
        return now_s - self.taken_s >= self.staleness_s

    def took(self, now_s: float) -> None:
        """All lists have been filled with what is true now."""
        self.taken_s = now_s
        self.looks += 1
        for server in self._reporting:
            self.ttft_s[server] = self._ttft_sums[server] / self._ends[server]
            if self._answers[server]:
                self.tpot_s[server] = self._tpot_sums[server] / self._answers[server]
            self._ends[server] = 0
            self._answers[server] = 0
            self._ttft_sums[server] = 0.0
            self._tpot_sums[server] = 0.0
        self._reporting.clear()

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def sent(self, server: i64) -> None:
        """A request is on its way there."""
        self.in_flight[server] += 1
        for watcher in self._watchers:
            watcher.moved(server)

    def ended(self, server: i64) -> None:
        """A request that was sent there is no longer there, whatever became of it."""
        self.in_flight[server] -= 1
        for watcher in self._watchers:
            watcher.moved(server)

    def heard(self, server: i64, ttft_s: float, tpot_s: float) -> None:
        """How long a request that has completed took there; its server reports means when asked.

        The first token counts from when it was sent there. A time per token of 0: it had but one.
        """
        if self._ends[server] == 0:
            self._reporting.append(server)
        self._ends[server] += 1
        if tpot_s > 0.0:
            self._answers[server] += 1
        self._ttft_sums[server] += ttft_s
        self._tpot_sums[server] += tpot_s
