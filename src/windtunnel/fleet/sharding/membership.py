"""A shard's side of the coordinator: sends reports and follows instructions."""

from collections.abc import Callable
from typing import Final

from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import NeedKey
from windtunnel.fleet.planner.actions import NOTHING, PREEMPTING, CyclePlan
from windtunnel.fleet.planner.entries import MachineEntry
from windtunnel.fleet.planner.packing import missing
from windtunnel.fleet.shard import Shard
from windtunnel.fleet.sharding.messages import (
    MOST_WISHES,
    FreeMachines,
    Instruction,
    Release,
    Released,
    Retire,
    ShardReport,
    Shortfall,
    Take,
)
from windtunnel.fleet.states import IDLE, SPECULATIVE


class ShardMember:
    """Remembers how long needs have been short, and which machines it gave up and took."""

    def __init__(self, shard: Shard) -> None:
        self._shard: Final = shard
        self._ages: dict[NeedKey, int] = {}
        self._released: dict[int, tuple[str, ...]] = {}
        self._taken: list[int] = []
        self._term = 0
        self.retired = False
        """Another process runs the shard: this one must stop."""

    @property
    def ages(self) -> dict[NeedKey, int]:
        """For how many cycles each need has been short."""
        return self._ages

    def note(self, plan: CyclePlan) -> None:
        """Records the shortfalls of a cycle."""
        short = [one.need for one in plan.shortfalls if one.verdict != PREEMPTING]
        self._ages = {key: self._ages.get(key, 0) + 1 for key in short}

    def report(self) -> ShardReport:
        """The report to the coordinator."""
        shard = self._shard
        inventory = shard.planner.inventory
        free = [
            FreeMachines(stock.shape, stock.idle_count, stock.quota_count)
            for stock in inventory.stocks
            if stock.free_count
        ]
        return ShardReport(
            shard.name,
            shard.epoch,
            tuple(free),
            tuple(self._wishes()),
            tuple(Released(number, names) for number, names in self._released.items()),
            tuple(self._taken),
            self._gone() if shard.is_ready else (),
        )

    def _gone(self) -> tuple[str, ...]:
        """Given machines that are no longer listed; a rejected record counts as listed."""
        shard = self._shard
        known, doubtful = shard.planner.inventory.entries, shard.reconciler.doubtful
        given = shard.territory.given
        return tuple(name for name in given if name not in known and name not in doubtful)

    def _wishes(self) -> list[Shortfall]:
        keys = sorted(self._ages, key=lambda key: (-key.priority(), -self._ages[key], key))
        wishes = []
        for key in keys[:MOST_WISHES]:
            need = self._shard.planner.needs.get(key)
            if need is not None:
                row = self._shard.planner.inventory.rows[key]
                names = [name for name, _ in need.aggregate]
                lacking = tuple(zip(names, missing(row, row.left), strict=True))
                sizes = [
                    size for size, left in zip(row.sizing.sizes, row.left, strict=True) if left
                ]
                unit = need.min_unit
                if sizes and not row.domain_key:
                    unit = tuple(zip(names, map(max, zip(*sizes, strict=True)), strict=True))
                full = tuple(self._shard.planner.full_domains(row))
                wishes.append(Shortfall(need, lacking, unit, full, self._ages[key]))
        return wishes

    def obey(
        self,
        instructions: list[Instruction],
        get: Callable[[str], Machine | None],
        now_s: float,
    ) -> None:
        """Follows instructions, each once; `get` asks the provider for a machine."""
        released: dict[int, tuple[str, ...]] = {}
        taken: list[int] = []
        for one in instructions:
            if one.term < self._term:
                continue  # from an earlier coordinator
            self._term = one.term
            if isinstance(one, Retire):
                self.retired = True
            elif isinstance(one, Release):
                before = self._released.get(one.id)
                released[one.id] = self._release(one) if before is None else before
            else:
                self._take(one, get, now_s)
                taken.append(one.id)
        # Answers to instructions that are no longer repeated have been received.
        self._released, self._taken = released, taken

    def _release(self, order: Release) -> tuple[str, ...]:
        """Gives up free machines without a planned action."""
        shard = self._shard
        stock = shard.planner.inventory.stock(order.shape)
        names: list[str] = []
        for state, count in ((IDLE, order.idle), (SPECULATIVE, order.quota)):
            names += [one.id for one in stock.free() if _may_leave(one, state)][:count]
        for name in names:
            shard.territory.leave(name)
            shard.executor.gone(name)
        return tuple(names)

    def _take(self, order: Take, get: Callable[[str], Machine | None], now_s: float) -> None:
        known = self._shard.planner.inventory.entries
        records = []
        for name in order.machines:
            record = get(name)
            if name not in known:
                self._shard.territory.take(name)
                if record is not None:
                    records.append(record)
        self._shard.reconciler.fold(records, now_s, complete=False)


def _may_leave(entry: MachineEntry, state: int) -> bool:
    return entry.state == state and entry.planned == NOTHING
