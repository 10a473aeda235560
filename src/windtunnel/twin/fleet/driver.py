"""Drives shards in virtual time: a provider, clusters that answer, and the order of events.

Tests, soaks and simulations use it as a component: `next_s` and `advance`. Hooks say what clusters
ask for. A second driver of the same seed does exactly the same.
"""

import heapq
import math
from collections.abc import Callable
from typing import Final, Protocol

from windtunnel.core.random import Stream
from windtunnel.fleet.orders import FETCH, MachineOrder
from windtunnel.fleet.planner.actions import CyclePlan
from windtunnel.fleet.provider import Completion, Provider
from windtunnel.fleet.shard import Shard

CYCLE_S: Final = 10.0
RELIST_CYCLES: Final = 30
"""After so many cycles a shard looks at everything again, and not only at what changed."""
FETCH_S: Final = 0.2
"""How long a cluster takes to say what a machine needs to join it."""


class TimedProvider(Provider, Protocol):
    """A provider whose time is ours to tell."""

    def next_s(self) -> float:
        """When something will be done or answered next."""

    def advance(self, now_s: float) -> list[Completion]:
        """Finishes what is due; gives all answers since the last time."""


class FleetDriver:
    """One or more shards on one provider."""

    def __init__(
        self,
        provider: TimedProvider,
        shards: list[Shard],
        fetches: Stream,
        *,
        cycle_s: float = CYCLE_S,
        relist_cycles: int = RELIST_CYCLES,
    ) -> None:
        self.provider: Final = provider
        self.shards: Final = {shard.name: shard for shard in shards}
        self._fetches: Final = fetches
        self._cycle_s: Final = cycle_s
        self._relist_cycles: Final = relist_cycles
        self.now_s = 0.0
        self._next_cycle_s = 0.0
        self._fetched: Final[list[tuple[float, int, str, Completion]]] = []
        self._number = 0
        self._owners: Final[dict[str, str]] = {}  # the shard that asked last, by machine
        self.before_cycle: Callable[[float], None] = _nothing
        """Called before shards decide: what clusters ask for, faults, moves."""
        self.after_cycle: Callable[[Shard, CyclePlan], None] = _nothing_of
        self.cycles = 0

    def advance(self, end_s: float) -> None:
        """Does everything that is due until then."""
        while self.step(end_s):
            pass

    def next_s(self) -> float:
        """When the next event is due."""
        provider_s = max(self.now_s, self.provider.next_s())
        return min(provider_s, self._fetched_s(), self._deadline_s(), self._next_cycle_s)

    def _fetched_s(self) -> float:
        return self._fetched[0][0] if self._fetched else math.inf

    def _deadline_s(self) -> float:
        return min((shard.next_deadline_s() for shard in self.shards.values()), default=math.inf)

    def step(self, end_s: float = math.inf) -> bool:
        """One event: an answer, a blob, a deadline or a cycle. False when none is left before."""
        deadline_s, fetched_s = self._deadline_s(), self._fetched_s()
        provider_s = max(self.now_s, self.provider.next_s())
        due_s = min(provider_s, fetched_s, deadline_s, self._next_cycle_s)
        if due_s > end_s:
            self.now_s = max(self.now_s, end_s)
            return False
        self.now_s = due_s
        if provider_s == due_s:
            for answer in self.provider.advance(due_s):
                self._tell(self._owners.get(answer.machine, ""), answer)
        elif fetched_s == due_s:
            _, _, shard, answer = heapq.heappop(self._fetched)
            self._tell(shard, answer)
        elif deadline_s == due_s:
            for one in self.shards.values():
                if one.next_deadline_s() <= due_s:
                    self._send(one, one.expire(due_s))
        else:
            self._cycle()
            self._next_cycle_s = due_s + self._cycle_s
        return True

    def look(self, shard: Shard) -> None:
        """Lets a shard see what its provider lists."""
        again = True
        while again:
            page = self.provider.list_since(shard.name, shard.epoch, shard.cursor)
            again = shard.fold(page, self.now_s)

    def restart(self, name: str, fresh: Shard) -> None:
        """A shard dies, with all that it knew, and another starts in its place."""
        assert fresh.name == name
        self.shards[name] = fresh
        self.look(fresh)

    def stop(self, name: str) -> None:
        """A shard is no longer run: its completions are dropped until another process starts."""
        del self.shards[name]

    def _cycle(self) -> None:
        self.cycles += 1
        self.before_cycle(self.now_s)
        for shard in list(self.shards.values()):
            if self.cycles % self._relist_cycles == 0:
                shard.relist()
            self.look(shard)
            if not shard.is_ready:
                continue  # its provider could not be reached since it started
            plan, orders = shard.cycle(self.now_s)
            self._send(shard, orders)
            self.after_cycle(shard, plan)

    def _tell(self, name: str, answer: Completion) -> None:
        shard = self.shards.get(name)
        if shard is not None:
            self._send(shard, shard.answer(answer, self.now_s))

    def _send(self, shard: Shard, orders: list[MachineOrder]) -> None:
        for order in orders:
            if order.operation == FETCH:
                self._number += 1
                due_s = self.now_s + self._fetches.exponential(FETCH_S)
                fetched = Completion(order.machine, order.token)
                heapq.heappush(self._fetched, (due_s, self._number, shard.name, fetched))
            else:
                self._owners[order.machine] = shard.name
                self.provider.begin(shard.name, order, self.now_s)


def _nothing(now_s: float) -> None:
    """No demand."""


def _nothing_of(shard: Shard, plan: CyclePlan) -> None:
    """Plans are not observed."""
