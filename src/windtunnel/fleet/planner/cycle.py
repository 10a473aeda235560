"""The decision cycle: which machine serves which need, decided again where something has changed.

It decides exactly as `tests/fleet/reference.py` does slowly and plainly; property tests compare the
two. A cycle looks only at rows whose need or machines changed, and at those that are still short.
Decisions are recorded in the inventory at once, so that the next cycle counts on them.
"""

from typing import Final

from windtunnel.fleet.instruments import (
    CALLS_TOTAL,
    CYCLE,
    EXCHANGE,
    PHASE_1,
    PHASE_2,
    PHASE_3,
    POOL_BUILD,
    PREEMPTION,
    RECLAIMING,
    RELEASING,
    SEED,
    SNAPSHOT,
    TAKE,
    TAKE_CO_LOCATED,
    TAKE_SPREAD,
    VERDICTS_TOTAL,
    Instruments,
)
from windtunnel.fleet.need import NeedKey
from windtunnel.fleet.planner.actions import (
    DELETE,
    DELETE_REASON,
    INSUFFICIENT_CAPACITY,
    NOTHING,
    PREEMPTING,
    PRIORITY_STARVED,
    QUOTA_EXHAUSTED,
    RECLAIM,
    RECLAIM_REASON,
    SATISFIED,
    VERDICTS,
    Action,
    CyclePlan,
    NeedVerdict,
    in_words,
)
from windtunnel.fleet.planner.costs import RECLAIM_GRACE_S
from windtunnel.fleet.planner.domains import find_whole, settle
from windtunnel.fleet.planner.entries import MachineEntry, NeedRow, Supply
from windtunnel.fleet.planner.exchange.exchange import MachineExchange
from windtunnel.fleet.planner.inventory import Inventory
from windtunnel.fleet.planner.moves import Moves
from windtunnel.fleet.planner.packing import missing
from windtunnel.fleet.planner.preemption import Preemption
from windtunnel.fleet.planner.supply import Supplies
from windtunnel.fleet.planner.table import NeedsTable
from windtunnel.fleet.states import CONFIGURED

ROWS_PER_LAP: Final = 4


class Planner:
    """Machines, needs, and the cycle over them."""

    def __init__(self, instruments: Instruments | None = None) -> None:
        self.instruments: Final = instruments or Instruments()
        self.inventory: Final = Inventory()
        self._supplies: Final = Supplies(self.inventory)
        self.needs: Final = NeedsTable(self.inventory, self._supplies)
        self._moves: Final = Moves(self.inventory, self._supplies)
        self._exchange: Final = MachineExchange(self._moves)
        self._preemption: Final = Preemption(self._moves)
        self._short: list[NeedRow] = []

    def cycle(self, now_s: float) -> CyclePlan:
        """Decides what to do now. A second call without a change yields no actions."""
        instruments = self.instruments
        began = instruments.begin()
        self._preemption.start()
        self._supplies.refresh()
        rows = self._rows_to_look_at()
        snapped = instruments.lap(SNAPSHOT)
        self._seed(rows)
        instruments.lap(SEED)
        short = self._acquire_all(rows)
        acquired = instruments.last_s
        shortfalls = self._preempt(short)
        preempted = instruments.lap(PREEMPTION)
        self._reclaim()
        instruments.lap(RECLAIMING)
        self._release(now_s)
        plan = self._moves.finish(shortfalls, self.needs.live)
        ended = instruments.lap(RELEASING)
        instruments.took(PHASE_1, acquired - snapped)
        instruments.took(PHASE_2, preempted - acquired)
        instruments.took(PHASE_3, ended - preempted)
        instruments.took(CYCLE, ended - began)
        return plan

    def supply_of(self, row: NeedRow) -> Supply:
        """The machines that suit a live row."""
        return self._supplies.of(row)

    def full_domains(self, row: NeedRow) -> list[str]:
        """The domains of a spread that may not get more machines before others do."""
        if not row.skew:
            return []
        supply = self._supplies.of(row)
        may_grow = self._moves.open_domains(row, supply, {})
        return [value for value in supply.values if value not in may_grow]

    def would_keep(self, row: NeedRow, entries: list[MachineEntry]) -> list[MachineEntry]:
        """The machines that a row would keep out of these suitable ones, if all were ready."""
        return self._moves.would_keep(row, entries)

    def _rows_to_look_at(self) -> list[NeedRow]:
        """The rows that changed or are short, in the order of service."""
        inventory = self.inventory
        rows = list(inventory.dirty)
        inventory.dirty.clear()
        rows.extend([row for row in self._short if not row.dirty])
        levels: dict[int, list[NeedRow]] = {}
        for row in rows:
            levels.setdefault(row.priority, []).append(row)
        ordered: list[NeedRow] = []
        for priority in sorted(levels, reverse=True):
            levels[priority].sort(key=_turn)
            ordered += levels[priority]
        return ordered

    def _seed(self, rows: list[NeedRow]) -> None:
        """Phase 1, first part: counts what each row has."""
        for row in rows:
            if not row.dirty and not row.same:
                continue
            row.dirty = False
            row.domain = ""
            row.verdict = SATISFIED
            if row.same and row.live:
                for entry in row.held:
                    self.inventory.unspare(entry)
                if not row.held or not find_whole(row, self._supplies.of(row)):
                    row.whole = False
                    continue
            self._moves.keep(row)
            if not row.live:
                self.inventory.forget(row)

    def _acquire_all(self, rows: list[NeedRow]) -> list[NeedRow]:
        """Phase 1, second part: acquires machines in the order of service; returns rows still
        short.

        A few rows on the same path share a lap: reading a clock for each would cost more than it is
        worth.
        """
        instruments, supplies = self.instruments, self._supplies
        wanting = [row for row in rows if row.live and not row.whole]
        builds = supplies.builds
        supplied = [supplies.of(row) for row in wanting]
        if supplies.builds > builds:
            instruments.laps(POOL_BUILD, supplies.builds - builds)
        calls: dict[str, int] = {}
        path, together = "", 0
        for row, supply in zip(wanting, supplied, strict=True):
            before = path
            path = _path(row)
            if together and (path != before or together == ROWS_PER_LAP):
                instruments.laps(before, together)
                together = 0
            began = len(self._moves.actions)
            self._acquire(row, supply)
            self._exchange.note(row, began)
            calls[path] = calls.get(path, 0) + 1
            together += 1
        if together:
            instruments.laps(path, together)
        for name, times in calls.items():
            instruments.count(CALLS_TOTAL, (name,), times)
        if self._exchange.run():
            for row in wanting:
                if not row.whole and not row.same:
                    self._acquire(row, supplies.of(row))  # from what others no longer need
        instruments.lap(EXCHANGE)
        return [row for row in wanting if not row.whole]

    def _acquire(self, row: NeedRow, supply: Supply) -> None:
        """Acquires machines for one row."""
        moves = self._moves
        if row.same:
            settle(moves, row, supply)
            if not row.domain:
                return
        if row.cluster.surplus and not row.whole:
            moves.adopt_spare(row, supply)
        began = len(moves.actions)
        moves.take(row, supply)
        row.whole = not any(row.left)
        if moves.is_mixed(row):
            if row.whole:
                moves.tidy(row, began)
            self.inventory.touch(row)  # it may no longer need something that it had

    def _preempt(self, short: list[NeedRow]) -> list[NeedVerdict]:
        """Phase 2: preempts needs of lower priority; returns the verdicts on rows still short."""
        self._preemption.settle_promises([row for row in short if not row.same or row.domain])
        verdicts: list[NeedVerdict] = []
        self._short = short
        highest = max(self.needs.priorities, default=0)
        for row in short:
            left = self._preemption.preempt(row)
            if row.verdict == PRIORITY_STARVED:
                if self._supplies.of(row).withheld():
                    row.verdict = INSUFFICIENT_CAPACITY
                elif row.priority == highest:
                    row.verdict = QUOTA_EXHAUSTED
            if row.verdict == PREEMPTING:
                left = row.left  # machines being drained are not available yet
            if row.verdict != SATISFIED:
                verdicts.append(
                    NeedVerdict(row.key, row.verdict, self._in_words(row, row.verdict, left))
                )
                self.instruments.count(VERDICTS_TOTAL, (VERDICTS[row.verdict],))
        return verdicts

    def _in_words(self, row: NeedRow, verdict: int, left: tuple[int, ...]) -> str:
        """Describes a verdict in a sentence, with the amounts for units without room."""
        amounts = missing(row, left) if left else []
        names = self.needs.names(row)
        lacking = [(names[at], amounts[at]) for at in range(len(amounts)) if amounts[at]]
        supply = self._supplies.of(row)
        withheld = supply.withheld() if lacking else 0
        return in_words(verdict, lacking, some_match=supply.is_alive(), withheld=withheld)

    def _reclaim(self) -> None:
        """Phase 3: drains what no need of its cluster counts on, the most expensive first."""
        clusters = [one for one in self.inventory.clusters.values() if one.surplus and one.ready]
        clusters.sort(key=lambda one: one.name)
        for cluster in clusters:
            spare = [
                entry
                for entry in cluster.surplus.values()
                if entry.state == CONFIGURED and entry.planned == NOTHING
            ]
            spare.sort(key=_dearest)
            for entry in spare:
                self.inventory.plan(entry, RECLAIM, entry.row)
                action = Action(
                    RECLAIM,
                    entry.id,
                    cluster.name,
                    None,
                    RECLAIM_GRACE_S,
                    0,
                    0.0,
                    RECLAIM_REASON,
                )
                self._moves.actions.append(action)

    def _release(self, now_s: float) -> None:
        """Phase 3: deletes machines that have been idle for long enough."""
        for entry in self.inventory.expired(now_s):
            self.inventory.plan(entry, DELETE, None)
            self._moves.actions.append(
                Action(DELETE, entry.id, "", None, 0.0, 0, 0.0, DELETE_REASON)
            )


def _path(row: NeedRow) -> str:
    """The instrument for the way in which a row gets its machines."""
    if row.same:
        return TAKE_CO_LOCATED
    return TAKE_SPREAD if row.skew else TAKE


def _turn(row: NeedRow) -> tuple[float, NeedKey]:
    return row.turn


def _dearest(entry: MachineEntry) -> tuple[float, str]:
    return (-entry.stock.price, entry.id)
