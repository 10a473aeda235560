"""Processes that run the shards of a fleet: they die or stall, and others take over.

One process holds the lease of each shard. When it has not reported for the duration of the lease,
another process acquires the shard under the next epoch, lists everything from the provider and goes
on. A process that only stalled wakes up after that and gives its pending orders: the provider must
refuse every one of them.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from windtunnel.core.errors import InvariantBroken
from windtunnel.core.random import Stream, Streams
from windtunnel.fleet.driver import FleetDriver
from windtunnel.fleet.orders import FETCH
from windtunnel.fleet.planner.actions import CyclePlan
from windtunnel.fleet.provider import Completion
from windtunnel.fleet.shard import Shard
from windtunnel.fleet.sharding.coordinator import Books, Coordinator
from windtunnel.fleet.sharding.membership import ShardMember
from windtunnel.twin.fleet.provider import SimulatedProvider
from windtunnel.twin.fleet.unreliable import UnreliableProvider, poisson
from windtunnel.twin.fleet.workloads import CELL

STALLS: Final = 0.5
"""The share of failed processes that wake up again after another took over."""


class ShardProcesses:
    """One process per shard, and the coordinator; a single shard needs no coordinator."""

    def __init__(
        self,
        names: list[str],
        make: Callable[..., Shard],
        provider: SimulatedProvider,
        unreliable: UnreliableProvider,
        streams: Streams,
    ) -> None:
        self._make: Final = make
        self._provider: Final = provider
        self._unreliable: Final = unreliable
        self._stream: Final[Stream] = streams["fleet.soak.processes"]
        self.names: Final = names
        self.coordinator: Coordinator | None = None
        if len(names) > 1:
            self.coordinator = Coordinator(key=CELL)
            for name in names:
                self.coordinator.add_shard(name)
                self.coordinator.assign(name, name)
        self._members: Final[dict[str, ShardMember]] = {}
        self._stalled: Final[list[tuple[Shard, ShardMember]]] = []
        self._started = 0
        self.shards: Final[list[Shard]] = []
        """The shards of all processes so far."""
        self.on_start: Callable[[Shard], None] = _nothing
        """Called when a process has taken over a shard."""
        self.takeovers = 0
        self.coordinator_restarts = 0
        self.stale_refused = 0
        self.stale_accepted = 0
        """Orders of replaced processes, by whether the provider refused or accepted them."""
        first = [self._new(name, 0.0) for name in names]
        self.driver: Final = FleetDriver(
            unreliable, [one for one in first if one is not None], streams["fleet.soak.fetch"]
        )

    @property
    def running(self) -> list[Shard]:
        return list(self.driver.shards.values())

    def age_of_shortfalls(self, shard: Shard, plan: CyclePlan) -> dict[object, int]:
        """For how many cycles each need has been short; empty without a coordinator."""
        member = self._members.get(shard.name)
        if member is None or self.coordinator is None:
            return {}
        return {one.need: member.ages.get(one.need, 0) for one in plan.shortfalls}

    def _new(self, name: str, now_s: float) -> Shard | None:
        """The shard for the next process; None while another process holds its lease."""
        self._started += 1
        if self.coordinator is None:
            shard = self._make(name)
        else:
            epoch = self.coordinator.acquire(name, f"process-{self._started}", now_s)
            if not epoch:
                return None
            territory = self.coordinator.territory(name)
            shard = self._make(name, epoch=epoch, territory=territory)
        self._members[name] = ShardMember(shard)
        self.shards.append(shard)
        return shard

    def report(self, shard: Shard, plan: CyclePlan, now_s: float) -> None:
        """Reports a cycle to the coordinator, and follows its instructions."""
        if self.coordinator is not None:
            member = self._members[shard.name]
            member.note(plan)
            instructions = self.coordinator.report(member.report(), now_s)
            member.obey(instructions, self._unreliable.get, now_s)

    def fail_some(self, mean: float) -> None:
        """Lets a Poisson number of processes, including the coordinator, die or stall."""
        for _ in range(poisson(mean, self._stream)):
            number = self._stream.integer(0, len(self.names))
            if number == len(self.names):
                self._restart_coordinator()
            elif self.names[number] in self.driver.shards:
                self._fail(self.names[number])

    def _restart_coordinator(self) -> None:
        """Restarts the coordinator with nothing but its books."""
        assert self.coordinator is not None
        stored = msgspec.json.encode(self.coordinator.books)
        self.coordinator = Coordinator(msgspec.json.decode(stored, type=Books), CELL)
        self.coordinator_restarts += 1

    def _fail(self, name: str) -> None:
        shard, member = self.driver.shards[name], self._members.pop(name)
        self.driver.stop(name)
        if self._stream.uniform() < STALLS:
            self._stalled.append((shard, member))

    def take_over(self, now_s: float) -> None:
        """Starts the shards whose leases have expired on standby processes."""
        for name in self.names:
            if name not in self.driver.shards:
                shard = self._new(name, now_s)
                if shard is not None:
                    self.takeovers += 1
                    self.driver.restart(shard, now_s)
                    self.on_start(shard)
        for stalled in list(self._stalled):
            successor = self.driver.shards.get(stalled[0].name)
            if successor is not None and successor.is_ready:
                self._stalled.remove(stalled)
                self._wake(*stalled, now_s)

    def _wake(self, shard: Shard, member: ShardMember, now_s: float) -> None:
        """Lets a replaced process go on as if nothing had happened, until the coordinator stops
        it."""
        assert self.coordinator is not None
        while shard.fold(self._provider.list_since(shard.name, shard.epoch, shard.cursor), now_s):
            pass
        orders = shard.expire(now_s) + shard.cycle(now_s)[1]
        before, sent = self._provider.fenced, 0
        for order in orders:  # grows: clusters also answer stale processes
            if order.operation == FETCH:
                orders += shard.answer(Completion(order.machine, order.token), now_s)
            else:
                sent += 1
                self._provider.begin(shard.name, order, now_s)
        refused = self._provider.fenced - before
        self.stale_refused += refused
        self.stale_accepted += sent - refused
        member.obey(self.coordinator.report(member.report(), now_s), self._unreliable.get, now_s)
        if not member.retired:
            raise InvariantBroken(f"two processes run shard {shard.name!r} at {now_s} s")


def _nothing(shard: Shard) -> None:
    """Sends no roll-ups."""
