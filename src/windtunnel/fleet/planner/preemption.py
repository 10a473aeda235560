"""Phase 2: what needs of higher priority take from those of lower priority."""

from typing import Final

from windtunnel.fleet.need import NeedKey
from windtunnel.fleet.planner.actions import (
    NO_MATCHING_SUPPLY,
    OWN_VICTIM_REASON,
    PREEMPT,
    PREEMPTING,
    PREEMPTION_EXHAUSTED,
    PRIORITY_STARVED,
    SATISFIED,
    TOPOLOGY_UNSATISFIABLE,
    VICTIM_REASON,
    Action,
)
from windtunnel.fleet.planner.costs import preemption_grace_s, victim_score
from windtunnel.fleet.planner.entries import MachineEntry, NeedRow, Stock, Supply
from windtunnel.fleet.planner.moves import Moves, covered
from windtunnel.fleet.states import DRAINING


class Preemption:
    """Finds victims. Holders are looked up once per cycle, and only when a need preempts."""

    def __init__(self, moves: Moves) -> None:
        self._moves: Final = moves
        self._holders: dict[Stock, list[NeedRow]] = {}
        self._looked_up = False
        self._back: dict[MachineEntry, None] = {}

    def start(self) -> None:
        self._back = {}
        self._holders = {}
        self._looked_up = False

    def settle_promises(self, preemptors: list[NeedRow]) -> None:
        """Takes back each drain, not begun, that its need no longer waits for."""
        inventory = self._moves.inventory
        if not inventory.promises:
            return
        wanted: dict[str, MachineEntry] = {}
        for row in preemptors:
            if row.promised:
                self._mark_wanted(row, wanted)
        for entry in sorted(inventory.promises, key=_by_id):
            if entry.state != DRAINING and entry.id not in wanted:
                self._moves.withdrawn.append(entry.id)
                inventory.withdraw(entry)
                self._back[entry] = None  # nobody counts on it before the next cycle

    def _mark_wanted(self, row: NeedRow, wanted: dict[str, MachineEntry]) -> None:
        have = list(row.have)
        for entry in self._coming(row):
            if not covered(have, row.want):
                wanted[entry.id] = entry
                _add(have, row, entry.stock)

    def _coming(self, row: NeedRow) -> list[MachineEntry]:
        """What is being drained for a row, or will be, and fits."""
        supply = self._moves.supplies.of(row)
        found = [e for e in row.promised if self._moves.fits(row, supply, e.stock)]
        found.sort(key=_draining_first)
        return found

    def preempt(self, row: NeedRow) -> list[int]:
        """Takes from lower priorities what a row lacks; gives back what it still would lack."""
        moves = self._moves
        supply = moves.supplies.of(row)
        have = list(row.have)
        if row.same and not row.domain:
            row.verdict = self._verdict(row, supply, have, tried=False)
            return have
        coming: dict[str, int] = {}
        promised = self._coming(row)
        for entry in promised:
            _add(have, row, entry.stock)
            _count(coming, row, entry.stock)
        tried = bool(promised)
        again = True
        while again and not covered(have, row.want):
            again = False
            for entry in self._victims(row, supply):
                if covered(have, row.want):
                    break
                if row.skew and not moves.allowed(row, supply, entry.stock, coming):
                    continue
                if not self._take(row, supply, entry):
                    tried = True
                    _count(coming, row, entry.stock)
                _add(have, row, entry.stock)
                again = row.skew > 0
        if covered(have, row.want):
            row.verdict = PREEMPTING if tried else SATISFIED
        else:
            row.verdict = self._verdict(row, supply, have, tried=tried)
        return have

    def _take(self, row: NeedRow, supply: Supply, entry: MachineEntry) -> bool:
        """Takes one machine: at once in the own cluster (True), else once it is drained."""
        moves = self._moves
        loser = entry.row
        assert loser is not None
        moves.gain(loser, entry.stock, -1)
        moves.inventory.touch(loser)
        if loser.cluster is row.cluster:
            moves.adopt(row, entry, supply.costs[supply.rank[entry.stock]], OWN_VICTIM_REASON)
            return True
        moves.inventory.promise(entry, row)
        grace_s = preemption_grace_s(row.priority - loser.priority)
        moves.actions.append(
            Action(
                PREEMPT,
                entry.id,
                loser.cluster.name,
                row.key,
                grace_s,
                row.priority,
                0.0,
                VICTIM_REASON,
            )
        )
        return False

    def _victims(self, row: NeedRow, supply: Supply) -> list[MachineEntry]:
        """Machines of needs of lower priority: of the own cluster first, then the best to take."""
        stocks = supply.domains[row.domain] if row.domain else supply.order
        rows: dict[NeedRow, None] = {}
        for stock in stocks:
            if stock.takeable_below(row.priority):
                for holder in self._holders_of(stock):
                    if holder.priority < row.priority:
                        rows[holder] = None
        ranked = [(_victim_order(row, holder), holder) for holder in rows]
        ranked.sort(key=_first)
        found: list[MachineEntry] = []
        for _, holder in ranked:
            mine = [
                e
                for e in holder.held
                if e.is_takeable()
                and e not in self._back
                and self._moves.fits(row, supply, e.stock)
            ]
            mine.sort(key=_by_id)
            found.extend(mine)
        return found

    def _holders_of(self, stock: Stock) -> list[NeedRow]:
        if not self._looked_up:
            self._looked_up = True
            for row in self._moves.inventory.rows.values():
                seen: dict[Stock, None] = {}
                for entry in row.held:
                    if entry.stock not in seen:
                        seen[entry.stock] = None
                        self._holders.setdefault(entry.stock, []).append(row)
        return self._holders.get(stock, [])

    def _verdict(self, row: NeedRow, supply: Supply, have: list[int], *, tried: bool) -> int:
        if not supply.is_alive():
            return NO_MATCHING_SUPPLY
        if row.domain_key and self._free_would_do(row, supply, have):
            return TOPOLOGY_UNSATISFIABLE
        if tried:
            return PREEMPTION_EXHAUSTED
        return PRIORITY_STARVED if _all_would_do(row, supply) else NO_MATCHING_SUPPLY

    def _free_would_do(self, row: NeedRow, supply: Supply, have: list[int]) -> bool:
        """Whether free machines would suffice if it did not matter where they are."""
        found = list(have)
        for stock in supply.order:
            count = stock.free_count
            if count:
                for at in range(len(found)):
                    found[at] += count * stock.amounts[row.resources[at]]
        return covered(found, row.want)


def _all_would_do(row: NeedRow, supply: Supply) -> bool:
    """Whether all machines that match would suffice, in use or not."""
    found = [0] * len(row.want)
    for stock in supply.order:
        for at in range(len(found)):
            found[at] += stock.alive * stock.amounts[row.resources[at]]
    return covered(found, row.want)


def _add(have: list[int], row: NeedRow, stock: Stock) -> None:
    for at in range(len(have)):
        have[at] += stock.amounts[row.resources[at]]


def _count(coming: dict[str, int], row: NeedRow, stock: Stock) -> None:
    if row.domain_key:
        value = stock.attributes[row.domain_key]
        coming[value] = coming.get(value, 0) + 1


def _victim_order(row: NeedRow, holder: NeedRow) -> tuple[bool, float, NeedKey]:
    gap = row.priority - holder.priority
    score = victim_score(gap, holder.interruption_bucket, holder.reclamation_bucket)
    return (holder.cluster is not row.cluster, -score, holder.key)


def _first(one: tuple[tuple[bool, float, NeedKey], NeedRow]) -> tuple[bool, float, NeedKey]:
    return one[0]


def _by_id(entry: MachineEntry) -> str:
    return entry.id


def _draining_first(entry: MachineEntry) -> tuple[bool, str]:
    return (entry.state != DRAINING, entry.id)
