"""Phase 2: machines that needs of higher priority take from those of lower priority."""

from typing import Final

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
from windtunnel.fleet.planner.costs import preemption_grace_s
from windtunnel.fleet.planner.domains import settle
from windtunnel.fleet.planner.entries import (
    ClusterHoldings,
    MachineEntry,
    NeedRow,
    Stock,
    Supply,
    Takeable,
)
from windtunnel.fleet.planner.moves import Moves
from windtunnel.fleet.planner.packing import (
    add,
    both,
    covers,
    free_of,
    helps,
    largest_taken,
    left_over,
)
from windtunnel.fleet.states import DRAINING


class Preemption:
    """Finds victims. A cluster's own machines are looked up at most once per cycle."""

    def __init__(self, moves: Moves) -> None:
        self._moves: Final = moves
        self._resting: list[MachineEntry] = []
        self._own: dict[ClusterHoldings, dict[Stock, Takeable]] = {}
        self._machines: dict[NeedRow, dict[Stock, list[MachineEntry]]] = {}

    def start(self) -> None:
        inventory = self._moves.inventory
        for entry in self._resting:
            if entry.resting and inventory.entries.get(entry.id) is entry:
                inventory.rest(entry, resting=False)
        self._resting = []
        self._own = {}
        self._machines = {}

    def settle_promises(self, preemptors: list[NeedRow]) -> None:
        """Withdraws each drain that has not begun and whose need no longer waits for it."""
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
                inventory.rest(entry, resting=True)  # not available before the next cycle
                self._resting.append(entry)

    def _mark_wanted(self, row: NeedRow, wanted: dict[str, MachineEntry]) -> None:
        supply = self._moves.supplies.of(row)
        bag = dict(row.bag)
        left = row.left
        for entry in self._coming(row, supply):
            if not any(left):
                break
            if not helps(row, left, entry.stock):
                continue
            wanted[entry.id] = entry
            add(bag, entry.stock, 1)
            left = left_over(row, supply, bag)

    def _coming(self, row: NeedRow, supply: Supply) -> list[MachineEntry]:
        """Suitable machines that are being drained for a row, or will be."""
        found = [e for e in row.promised if self._moves.fits(row, supply, e.stock)]
        found.sort(key=_draining_first)
        return found

    def preempt(self, row: NeedRow) -> tuple[int, ...]:
        """Takes what a row lacks from lower priorities; returns the units that it would still lack.

        Repeatedly the best victim that a spread allows, for the largest unit that any of them would
        take.
        """
        moves = self._moves
        supply = moves.supplies.of(row)
        if row.domain and not self._suffices(row, supply):
            settle(moves, row, supply)  # gangs before it took what it was meant to have there
        if row.same and not row.domain:
            row.verdict = self._verdict(row, supply, {}, tried=False)
            return row.left
        coming: dict[Stock, int] = {}
        for entry in self._coming(row, supply):
            add(coming, entry.stock, 1)
        left = self._left(row, supply, coming)
        while any(left):
            stocks = supply.domains[row.domain] if row.domain else supply.order
            if row.skew:
                stocks = []
                for value in moves.open_domains(row, supply, coming):
                    stocks = stocks + supply.domains[value]
            victim = self._for_largest(row, left, stocks)
            if victim is None:
                break
            if not self._take(row, supply, victim):
                add(coming, victim.stock, 1)
            left = self._left(row, supply, coming)
        if any(left):
            row.verdict = self._verdict(row, supply, coming, tried=bool(coming))
        else:
            row.verdict = PREEMPTING if coming else SATISFIED
        return left

    def _suffices(self, row: NeedRow, supply: Supply) -> bool:
        """Whether the machines that could be taken in its domain are enough for a gang."""
        bag = dict(row.bag)
        for entry in self._coming(row, supply):
            add(bag, entry.stock, 1)
        for stock in supply.domains[row.domain]:
            count = stock.takeable.below(row.priority)
            if count:
                add(bag, stock, count)
        return covers(row, supply, bag)

    def _left(self, row: NeedRow, supply: Supply, coming: dict[Stock, int]) -> tuple[int, ...]:
        if not coming:
            return row.left
        return left_over(row, supply, both(row.bag, coming))

    # Victims.

    def _for_largest(
        self, row: NeedRow, left: tuple[int, ...], stocks: list[Stock]
    ) -> MachineEntry | None:
        """The best victim for the largest remaining unit that any of them would take."""
        if len(left) == 1:
            return self._victim(row, stocks)
        for size in range(len(left)):
            useful = [one for one in stocks if largest_taken(row, left, one) == size]
            victim = self._victim(row, useful) if useful else None
            if victim is not None:
                return victim
        return None

    def _victim(self, row: NeedRow, stocks: list[Stock]) -> MachineEntry | None:
        """The best victim: in the own cluster first, then by rank of its need, then by id."""
        own = self._own_of(row.cluster)
        return self._first(row, stocks, own) or self._first(row, stocks, None)

    def _first(
        self, row: NeedRow, stocks: list[Stock], own: dict[Stock, Takeable] | None
    ) -> MachineEntry | None:
        """The best victim of these stocks, in the own cluster or in all others."""
        but = row.cluster if own is None else None
        best: MachineEntry | None = None
        holder: NeedRow | None = None
        for stock in stocks:
            takeable = stock.takeable if own is None else own.get(stock)
            if takeable is None:
                continue
            found = takeable.first(row.priority, but)
            if found is None or (holder is not None and holder.rank < found.rank):
                continue
            entry = self._machine_of(found, stock)
            if found is not holder or best is None or entry.id < best.id:
                best, holder = entry, found
        return best

    def _machine_of(self, holder: NeedRow, stock: Stock) -> MachineEntry:
        """The first machine by id of a stock that could be taken from a need; there must be one."""
        by_stock = self._machines.get(holder)
        if by_stock is None:
            by_stock = {}
            self._machines[holder] = by_stock
            for entry in holder.held:
                if entry.is_takeable():
                    by_stock.setdefault(entry.stock, []).append(entry)
            for entries in by_stock.values():
                entries.sort(key=_by_id, reverse=True)
        entries = by_stock[stock]
        while not (entries[-1].row is holder and entries[-1].is_takeable()):
            entries.pop()
        return entries[-1]

    def _own_of(self, cluster: ClusterHoldings) -> dict[Stock, Takeable]:
        """The machines that could be taken from needs of one cluster, by stock."""
        found = self._own.get(cluster)
        if found is None:
            found = {}
            self._own[cluster] = found
            for row in cluster.rows:
                for entry in row.held:
                    if entry.is_takeable():
                        takeable = found.get(entry.stock)
                        if takeable is None:
                            takeable = Takeable()
                            found[entry.stock] = takeable
                        takeable.change(row, 1)
        return found

    def _take(self, row: NeedRow, supply: Supply, entry: MachineEntry) -> bool:
        """Takes one machine: at once in the own cluster (True), else after its drain."""
        moves = self._moves
        loser = entry.row
        assert loser is not None
        moves.gain(loser, entry.stock, -1)
        moves.inventory.touch(loser)
        own = self._own.get(loser.cluster)
        if own is not None:
            own[entry.stock].change(loser, -1)
        if loser.cluster is row.cluster:
            moves.adopt(row, entry, supply.costs[supply.rank[entry.stock]], OWN_VICTIM_REASON)
            moves.inventory.touch(row)  # it may no longer need something that it had
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

    # Verdicts.

    def _verdict(
        self, row: NeedRow, supply: Supply, coming: dict[Stock, int], *, tried: bool
    ) -> int:
        if not supply.is_alive():
            return NO_MATCHING_SUPPLY
        with_free = both(both(row.bag, coming), free_of(supply.order))
        if row.domain_key and covers(row, supply, with_free):
            return TOPOLOGY_UNSATISFIABLE
        if tried:
            return PREEMPTION_EXHAUSTED
        alive = {stock: stock.alive for stock in supply.order if stock.alive}
        return PRIORITY_STARVED if covers(row, supply, alive) else NO_MATCHING_SUPPLY


def _by_id(entry: MachineEntry) -> str:
    return entry.id


def _draining_first(entry: MachineEntry) -> tuple[bool, str]:
    return (entry.state != DRAINING, entry.id)
