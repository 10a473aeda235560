"""What a fleet costs to decide: a cold cycle, warm ones, folding of events, and convergence.

The benchmark looks at what it measures: whether the inventory was loaded, and whether the needs can
be satisfied. An empty fleet is decided about very fast.
"""

import tracemalloc
from collections.abc import Callable
from typing import Final

import msgspec

from windtunnel.core.random import Stream
from windtunnel.fleet.execution import DEFERRED, SUCCESS, Executor
from windtunnel.fleet.instruments import ACTIONS_TOTAL, Instruments
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need
from windtunnel.fleet.orders import CREATE, ExecutionLimits, MachineOrder
from windtunnel.fleet.planner.actions import CyclePlan
from windtunnel.fleet.planner.cycle import Planner
from windtunnel.fleet.planner.inventory import Inventory
from windtunnel.fleet.reconciliation import Reconciler
from windtunnel.fleet.states import FAILED, SPECULATIVE
from windtunnel.twin.fleet.workloads import BenchWorld, world

CHANGED: Final = 0.01
"""The share of needs and of machines that change before a warm cycle."""
WARM_CYCLES: Final = 5
WEIGHED: Final = 20_000
"""Machines of which the memory is measured; the measuring is slow."""
CYCLE_S: Final = 1.0
"""Simulated seconds between cycles; every order is answered within one."""


class Convergence(msgspec.Struct):
    """How the first plan of a fleet was carried out."""

    cycles: int
    actions: int
    """What was planned over all cycles."""
    deferred: int
    """What had to wait for a later cycle; each is counted once."""
    landed: int
    duplicates: int
    """Orders that repeat one that was given before."""
    execute_ms: float
    """What it took to begin as much of the first plan as the cap allows, and to keep the rest."""
    events_per_s: float
    """Completions folded per second of the clock."""
    satisfied: float
    """The share of needs that machines cover in the end."""


class Bench:
    """One fleet on which things are measured, in this order: load, cold, converge, warm."""

    def __init__(
        self,
        machines: int,
        needs: int,
        clock: Callable[[], float],
        *,
        seed: int = 1,
        merging: bool = True,
        instruments: Instruments | None = None,
    ) -> None:
        self._clock: Final = clock
        self._stream: Final = Stream(seed, "fleet.bench")
        self.world: Final[BenchWorld] = world(machines, needs, self._stream, merging=merging)
        self.instruments: Final = instruments or Instruments()
        self.planner: Final = Planner(self.instruments)
        self.plan = CyclePlan([], [], [], 0)
        self.now_s = 0.0
        self._growing: list[Need] = []
        self._lost: list[str] = []

    def _ms(self, work: Callable[[], object]) -> float:
        start = self._clock()
        work()
        return (self._clock() - start) * 1e3

    def load_ms(self) -> float:
        took = self._ms(lambda: self.planner.inventory.load(self.world.machines))
        assert len(self.planner.inventory.entries) == len(self.world.machines) > 0
        return took

    def rollup_ms(self) -> float:
        """Takes what all clusters say they need."""
        took = self._ms(self._roll_up)
        assert self.planner.needs.live > 0
        return took

    def _roll_up(self) -> None:
        for cluster, needs in self.world.needs.items():
            self.planner.needs.replace(cluster, needs)

    def reconcile_ms(self) -> float:
        """Everything is listed again, and nothing has changed."""
        inventory = self.planner.inventory
        reconciler = Reconciler(inventory, Executor(inventory, ExecutionLimits()))
        took = self._ms(lambda: reconciler.fold(self.world.machines, self.now_s, complete=True))
        assert len(inventory.entries) == len(self.world.machines)
        assert not reconciler.rejected
        return took

    def cold_ms(self) -> float:
        """The first cycle, to which everything is new."""
        return self._ms(self._cycle)

    def _cycle(self) -> None:
        self.plan = self.planner.cycle(self.now_s)

    # Until everything is where it was planned.

    def converge(self, actions_per_cycle: int) -> Convergence:
        """Carries out the plan of the cold cycle, and whatever is planned on the way."""
        limits = ExecutionLimits(
            actions_per_cycle=actions_per_cycle, concurrency=4 * actions_per_cycle
        )
        executor = Executor(self.planner.inventory, limits, instruments=self.instruments)
        asked: dict[tuple[str, str], int] = {}
        cycles, actions, events, folding_s, execute_s = 0, 0, 0, 0.0, 0.0
        orders: list[MachineOrder] = []
        while True:
            cycles += 1
            actions += len(self.plan.actions)
            start = self._clock()
            orders += executor.submit(self.plan, self.now_s)
            execute_s = execute_s if cycles > 1 else self._clock() - start
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
        return Convergence(
            cycles=cycles,
            actions=actions,
            deferred=self._count(DEFERRED),
            landed=self._count(SUCCESS),
            duplicates=sum(times - 1 for times in asked.values()),
            execute_ms=execute_s * 1e3,
            events_per_s=events / folding_s if folding_s else 0.0,
            satisfied=1.0 - len(self.plan.shortfalls) / max(1, self.plan.needs),
        )

    def _count(self, result: str) -> int:
        rows = self.instruments.counts[ACTIONS_TOTAL].items()
        return sum(times for labels, times in rows if labels[1] == result)

    def _answer(self, executor: Executor, orders: list[MachineOrder]) -> list[MachineOrder]:
        """Everything that was asked is done; gives what follows from it."""
        following: list[MachineOrder] = []
        for one in orders:
            host = one.machine if one.operation == CREATE else ""
            executor.completed(one.machine, one.token, self.now_s, following, host)
        return following

    # Warm cycles.

    def warm_ms(self) -> tuple[float, float]:
        """The least of a few cycles after a change, and of taking note of the change before it.

        The least, since what else runs on a machine only ever adds.
        """
        folds, cycles = [], []
        for _ in range(WARM_CYCLES):
            self._choose_changes()
            folds.append(self._ms(self._change))
            cycles.append(self._ms(self._cycle))
        return min(cycles), min(folds)

    def _choose_changes(self) -> None:
        """Some needs will grow by a unit, some machines will be lost."""
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
        """What the inventory takes for one machine, with its id and the name of its host."""
        machines = self.world.machines[:WEIGHED]
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        inventory = Inventory()
        for one in machines:
            inventory.add(_copy(one))
        took = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        return took / len(machines)


def _grown(one: Need) -> Need:
    units = dict(one.min_unit)
    more = tuple((name, amount + units[name]) for name, amount in one.aggregate)
    return msgspec.structs.replace(one, aggregate=more)


def _copy(one: Machine) -> Machine:
    """The same machine with names of its own, so that their memory is counted."""
    name, host = one.id.encode().decode(), one.host.encode().decode()
    return msgspec.structs.replace(one, id=name, host=host)
