"""Drives shards: their provider, clusters that answer, and the order of events.

Simulations, soaks and the operator use it as a component of a loop. Hooks supply the demand of
clusters. A second driver with the same seed behaves identically.
"""

from collections.abc import Callable
from typing import Final, Protocol

from windtunnel.core.loop import INFINITY, Component, EventQueue, SkewedClock
from windtunnel.core.random import Stream
from windtunnel.fleet.orders import FETCH, MachineOrder
from windtunnel.fleet.planner.actions import CyclePlan
from windtunnel.fleet.provider import Completion, Provider
from windtunnel.fleet.shard import Shard

CYCLE_S: Final = 10.0
RELIST_CYCLES: Final = 30
"""A shard lists everything, not only changes, every this many cycles."""
FETCH_S: Final = 0.2
"""How long a cluster takes to supply what a machine needs to join it."""


class TimedProvider(Provider, Protocol):
    """A provider whose answers arrive over time."""

    def next_s(self) -> float:
        """When the next operation or answer is due; a time in the past: at once."""

    def advance(self, now_s: float) -> list[Completion]:
        """Finishes what is due; returns all answers since the last call."""


class FleetDriver(Component):
    """One or more shards on one provider."""

    def __init__(
        self,
        provider: TimedProvider,
        shards: list[Shard],
        fetches: Stream,
        *,
        cycle_s: float = CYCLE_S,
    ) -> None:
        self.provider: Final = provider
        self.shards: Final = {shard.name: shard for shard in shards}
        self._fetches: Final = fetches
        self._cycle_s: Final = cycle_s
        self.clock: Final = SkewedClock()
        """The clock of the shards."""
        self._next_cycle_s = 0.0
        self._fetched: Final = EventQueue()  # answers of clusters, with the shard that asked
        self._owners: Final[dict[str, str]] = {}  # the shard that asked last, by machine
        self.before_cycle: Callable[[float], None] = _nothing
        """Called before shards decide: for demand of clusters, faults, moves."""
        self.after_cycle: Callable[[Shard, CyclePlan, float], None] = _nothing_of
        self.cycles = 0
        self.pace = 1.0
        """Factor on the time that clusters take to answer; 0 before a run begins."""

    def next_s(self) -> float:
        return min(
            self.provider.next_s(), self._fetched.next_s, self._deadline_s(), self._next_cycle_s
        )

    def _deadline_s(self) -> float:
        shown_s = min((shard.next_deadline_s() for shard in self.shards.values()), default=INFINITY)
        return self.clock.when(shown_s)

    def advance(self, now_s: float) -> None:
        """Runs what is due first: answers of the provider or of clusters, deadlines, or a cycle."""
        if self.provider.next_s() <= now_s:
            for answer in self.provider.advance(now_s):
                self._deliver(self._owners.get(answer.machine, ""), answer, now_s)
        elif self._fetched.next_s <= now_s:
            while self._fetched.next_s <= now_s:
                entry = self._fetched.pop()
                assert entry is not None
                fetched = entry.payload
                assert isinstance(fetched, tuple)
                self._deliver(fetched[0], fetched[1], now_s)
        elif self._deadline_s() <= now_s:
            clock_s = self.clock.read(now_s)
            for one in self.shards.values():
                if one.next_deadline_s() <= clock_s:
                    self._send(one, one.expire(clock_s), now_s)
        else:
            self.cycle(now_s)

    def look(self, shard: Shard, now_s: float) -> None:
        """Lets a shard read the list of its provider."""
        again = True
        while again:
            page = self.provider.list_since(shard.name, shard.epoch, shard.cursor)
            again = shard.fold(page, self.clock.read(now_s))

    def restart(self, fresh: Shard, now_s: float) -> None:
        """Replaces a shard that died, and lost all its state, by a fresh one."""
        self.shards[fresh.name] = fresh
        self.look(fresh, now_s)

    def stop(self, name: str) -> None:
        """Stops a shard; its completions are dropped until another process starts."""
        del self.shards[name]

    def cycle(self, now_s: float) -> None:
        """Runs one decision cycle of every shard, and schedules the next."""
        self.cycles += 1
        self._next_cycle_s = now_s + self._cycle_s
        self.before_cycle(now_s)
        for shard in list(self.shards.values()):
            if self.cycles % RELIST_CYCLES == 0:
                shard.relist()
            self.look(shard, now_s)
            if not shard.is_ready:
                continue  # its provider has been unreachable since it started
            plan, orders = shard.cycle(self.clock.read(now_s))
            self._send(shard, orders, now_s)
            self.after_cycle(shard, plan, now_s)

    def _deliver(self, name: str, answer: Completion, now_s: float) -> None:
        shard = self.shards.get(name)
        if shard is not None:
            self._send(shard, shard.answer(answer, self.clock.read(now_s)), now_s)

    def _send(self, shard: Shard, orders: list[MachineOrder], now_s: float) -> None:
        for order in orders:
            if order.operation == FETCH:
                due_s = now_s + self.pace * self._fetches.exponential(FETCH_S)
                fetched = Completion(order.machine, order.token)
                self._fetched.push(due_s, 0, (shard.name, fetched))
            else:
                self._owners[order.machine] = shard.name
                self.provider.begin(shard.name, order, now_s)


def _nothing(now_s: float) -> None:
    """The hook without demand."""


def _nothing_of(shard: Shard, plan: CyclePlan, now_s: float) -> None:
    """The hook without observers of plans."""
