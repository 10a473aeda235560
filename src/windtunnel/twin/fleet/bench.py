"""Benchmarks of fleet decisions: whole steps of a shard, warm cycles, preemption, convergence.

The benchmark verifies what it measures: that the inventory was loaded, and that the needs can be
satisfied. Decisions about an empty fleet are very fast.
"""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Final

import msgspec

from windtunnel.core.random import Stream
from windtunnel.fleet.execution import DEFERRED, SUCCESS, Executor
from windtunnel.fleet.instruments import (
    ACTIONS_TOTAL,
    BOOTSTRAP_FETCH,
    DEFERRALS_TOTAL,
    Instruments,
)
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need, merge
from windtunnel.fleet.orders import CREATE, ExecutionLimits, MachineOrder
from windtunnel.fleet.planner.actions import CyclePlan
from windtunnel.fleet.planner.inventory import Inventory
from windtunnel.fleet.provider import Page
from windtunnel.fleet.shard import Shard
from windtunnel.fleet.states import FAILED, SPECULATIVE
from windtunnel.twin.fleet.workloads import URGENT_MACHINES, BenchWorld, held_world, urgent_needs

CHANGED: Final = 0.01
"""The share of needs and of machines that change before a warm cycle."""
WARM_CYCLES: Final = 5
MACHINES_PER_HOLDER: Final = 5
"""How many machines each need holds that urgent needs may take."""
WEIGHED: Final = 20_000
"""Number of machines whose memory is measured; measuring is slow."""
CYCLE_S: Final = 1.0
"""Simulated seconds between cycles; every order is completed within one."""


class CycleTimes(msgspec.Struct, frozen=True):
    """The times of a shard's parts of a cycle, without roll-ups."""

    list_ms: float
    """Time to fold a full list without changes."""
    plan_ms: float
    emit_ms: float
    """Time to begin as much of the plan as the cap allows, and to keep the rest."""

    @property
    def whole_ms(self) -> float:
        return self.list_ms + self.plan_ms + self.emit_ms


class Convergence(msgspec.Struct):
    """How the first plan of a fleet was carried out."""

    cycles: int
    actions: int
    """Actions planned over all cycles."""
    deferred: int
    """Actions that had to wait for a later cycle; each is counted once."""
    deferral_reasons: dict[str, int]
    """What the deferred actions waited for."""
    landed: int
    duplicates: int
    """Orders that repeat an earlier order."""
    events_per_s: float
    """Completions folded per second of real time."""
    fetch_s_p50: float
    fetch_s_p99: float
    """Simulated seconds until a cluster had answered what a machine needs to join it."""
    satisfied: float
    """The share of needs that are covered by machines in the end."""


class Bench:
    """The measurements of one shard, in this order: load, step, converge, quiet, warm."""

    def __init__(
        self,
        made: BenchWorld,
        clock: Callable[[], float],
        *,
        actions_per_cycle: int = 1000,
        instruments: Instruments | None = None,
    ) -> None:
        self._clock: Final = clock
        self._stream: Final = Stream(1, "fleet.bench.changes")
        self.world: Final = made
        self.instruments: Final = instruments or Instruments()
        limits = ExecutionLimits(
            actions_per_cycle=actions_per_cycle,
            concurrency=4 * actions_per_cycle or len(made.machines),
        )
        self.shard: Final = Shard("bench", limits, instruments=self.instruments)
        self.planner: Final = self.shard.planner
        self.plan = CyclePlan([], [], [], 0)
        self.now_s = 0.0
        self.orders: list[MachineOrder] = []
        self._growing: list[Need] = []
        self._lost: list[str] = []

    def _ms(self, work: Callable[[], object]) -> float:
        start = self._clock()
        work()
        return (self._clock() - start) * 1e3

    def load_ms(self) -> float:
        """Measures the first list, from which the shard learns its machines."""
        took = self._ms(self._list)
        assert len(self.planner.inventory.entries) == len(self.world.machines) > 0
        return took

    def _list(self) -> None:
        self.shard.relist()
        self.shard.fold(Page(self.world.machines, [], 1), self.now_s)

    def rollup_ms(self) -> float:
        """Measures the roll-ups of all clusters."""
        took = self._ms(self._roll_up)
        assert self.planner.needs.live > 0
        return took

    def _roll_up(self) -> None:
        for cluster, needs in self.world.needs.items():
            self.shard.want(cluster, needs)

    def step(self) -> CycleTimes:
        """Measures a full list, a plan and its execution; in the first step everything is new."""
        times = CycleTimes(self._ms(self._list), self._ms(self._cycle), self._ms(self._emit))
        assert len(self.planner.inventory.entries) == len(self.world.machines)
        assert not self.shard.reconciler.rejected
        return times

    def _cycle(self) -> None:
        self.plan = self.planner.cycle(self.now_s)

    def _emit(self) -> None:
        self.orders = self.shard.executor.submit(self.plan, self.now_s)

    def ask(self, needs: list[Need]) -> None:
        """Adds needs of some clusters."""
        for one in needs:
            self.planner.needs.put(one)

    # Convergence.

    def converge(self) -> Convergence:
        """Carries out the plan of the first step, and everything planned along the way."""
        executor, orders = self.shard.executor, self.orders
        asked: dict[tuple[str, str], int] = {}
        cycles, actions, events, folding_s = 1, len(self.plan.actions), 0, 0.0
        while True:
            for one in orders:
                key = (one.operation, one.machine)
                asked[key] = asked.get(key, 0) + 1
            if not orders and not executor.waiting and not executor.running:
                break
            self.now_s += CYCLE_S
            events += len(orders)
            start = self._clock()
            orders = self._answer(executor, orders)
            folding_s += self._clock() - start
            self._cycle()
            cycles += 1
            actions += len(self.plan.actions)
            orders += executor.submit(self.plan, self.now_s)
        fetch = self.instruments.times[BOOTSTRAP_FETCH]
        return Convergence(
            cycles=cycles,
            actions=actions,
            deferred=self._count(DEFERRED),
            deferral_reasons={
                labels[0]: times
                for labels, times in self.instruments.counts[DEFERRALS_TOTAL].items()
            },
            landed=self._count(SUCCESS),
            duplicates=sum(times - 1 for times in asked.values()),
            events_per_s=events / folding_s if folding_s else 0.0,
            fetch_s_p50=fetch.quantile(0.5),
            fetch_s_p99=fetch.quantile(0.99),
            satisfied=1.0 - len(self.plan.shortfalls) / max(1, self.plan.needs),
        )

    def _count(self, result: str) -> int:
        rows = self.instruments.counts[ACTIONS_TOTAL].items()
        return sum(times for labels, times in rows if labels[1] == result)

    def _answer(self, executor: Executor, orders: list[MachineOrder]) -> list[MachineOrder]:
        """Completes all orders; returns the orders that follow."""
        following: list[MachineOrder] = []
        for one in orders:
            host = one.machine if one.operation == CREATE else ""
            executor.completed(one.machine, one.token, self.now_s, following, host)
        return following

    # Warm cycles.

    def quiet_ms(self) -> float:
        """Measures an incremental list and a cycle without any change."""
        assert not self.shard.planner.inventory.dirty
        return min(self._ms(self._look_again) for _ in range(WARM_CYCLES))

    def _look_again(self) -> None:
        self.shard.fold(Page([], [], self.shard.cursor), self.now_s)
        plan, orders = self.shard.cycle(self.now_s)
        assert not plan.actions
        assert not orders

    def warm_ms(self) -> tuple[float, float]:
        """The fastest of a few cycles after a change, and of recording the change before it.

        The fastest, since other load on the machine only ever adds time.
        """
        folds, cycles = [], []
        for _ in range(WARM_CYCLES):
            self._choose_changes()
            folds.append(self._ms(self._change))
            cycles.append(self._ms(self._cycle))
        return min(cycles), min(folds)

    def _choose_changes(self) -> None:
        """Chooses needs that will grow by a unit, and machines that will be lost."""
        self.now_s += 10.0
        stream = self._stream
        needs, machines = self.planner.needs.needs(), self.world.machines
        self._growing = [
            _grown(needs[stream.integer(0, len(needs) - 1)])
            for _ in range(max(1, round(len(needs) * CHANGED)))
        ]
        self._lost = [
            machines[stream.integer(0, len(machines) - 1)].id
            for _ in range(max(1, round(len(machines) * CHANGED)))
        ]

    def _change(self) -> None:
        inventory = self.planner.inventory
        for one in self._growing:
            self.planner.needs.put(one)
        for name in self._lost:
            entry = inventory.entries[name]
            if entry.state not in (FAILED, SPECULATIVE):
                inventory.transition(entry, FAILED, self.now_s, error="lost")

    def bytes_per_machine(self) -> float:
        """Inventory memory per machine, including its id and host name."""
        machines = self.world.machines[:WEIGHED]
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        inventory = Inventory()
        for one in machines:
            inventory.add(_copy(one))
        took = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        return took / len(machines)


def preemption_ms(machines: int, urgent: int, kind: str, clock: Callable[[], float]) -> float:
    """Measures the cycle in which urgent needs take machines, all of which are held by others."""
    bench = Bench(held_world(machines, max(1, machines // MACHINES_PER_HOLDER)), clock)
    bench.load_ms()
    bench.rollup_ms()
    bench.step()
    assert not bench.plan.actions
    bench.ask(urgent_needs(urgent, kind))
    gc.collect()
    took = bench.step().plan_ms
    assert len(bench.plan.actions) == urgent * URGENT_MACHINES
    return took


def _grown(one: Need) -> Need:
    """The same need with one more of its largest unit."""
    unit = msgspec.structs.replace(one, aggregate=one.min_unit, units=())
    return merge([one, unit])[one.key()]


def _copy(one: Machine) -> Machine:
    """The same machine with its own copies of the names, so that their memory is counted."""
    name, host = one.id.encode().decode(), one.host.encode().decode()
    return msgspec.structs.replace(one, id=name, host=host)
