"""The decision cycle: which machine belongs to whom, decided again where something changed.

It decides exactly as `reference.cycle` does, which says what is meant; property tests hold the two
equal. Here a cycle looks only at rows whose need or machines changed and at those that still lack
something. What it decides is planned in the inventory at once, so that the next cycle counts on it.
"""

from typing import Final

from windtunnel.fleet.actions import (
    DELETE,
    DELETE_REASON,
    NOTHING,
    PREEMPTING,
    RECLAIM,
    RECLAIM_REASON,
    SATISFIED,
    Action,
    Plan,
    Verdict,
    in_words,
)
from windtunnel.fleet.costs import RECLAIM_GRACE_S
from windtunnel.fleet.domains import find_whole, settle
from windtunnel.fleet.entries import Entry, Row
from windtunnel.fleet.inventory import Inventory
from windtunnel.fleet.need import NeedKey
from windtunnel.fleet.planning import Moves
from windtunnel.fleet.preemption import Preemption
from windtunnel.fleet.states import CONFIGURED
from windtunnel.fleet.supply import Supplies
from windtunnel.fleet.table import NeedsTable


class Planner:
    """Machines, needs, and the cycle over them."""

    def __init__(self) -> None:
        self.inventory: Final = Inventory()
        self._supplies: Final = Supplies(self.inventory)
        self.needs: Final = NeedsTable(self.inventory, self._supplies)
        self._moves: Final = Moves(self.inventory, self._supplies)
        self._preemption: Final = Preemption(self._moves)
        self._short: list[Row] = []

    def cycle(self, now_s: float) -> Plan:
        """Decides what to do now. To ask again without a change gives nothing to do."""
        self._preemption.start()
        self._supplies.refresh()
        rows = self._rows_to_look_at()
        self._seed(rows)
        short: list[Row] = []
        for row in rows:
            if row.live and not row.whole:
                self._acquire(row)
                if not row.whole:
                    short.append(row)
        shortfalls = self._preempt(short)
        self._reclaim()
        self._release(now_s)
        return self._moves.finish(shortfalls, self.needs.live)

    def _rows_to_look_at(self) -> list[Row]:
        """Those that changed and those that lack something, in the order of service."""
        inventory = self.inventory
        rows = list(inventory.dirty)
        inventory.dirty.clear()
        rows.extend(row for row in self._short if not row.dirty)
        rows.sort(key=_order)
        return rows

    def _seed(self, rows: list[Row]) -> None:
        """Phase 1, first: what each row has."""
        for row in rows:
            if not row.dirty and not row.same:
                continue
            row.dirty = False
            row.domain = ""
            row.verdict = SATISFIED
            if row.same and row.live:
                for entry in row.held:
                    self.inventory.unspare(entry)
                if not find_whole(row, self._supplies.of(row)):
                    row.whole = False
                    continue
            self._moves.keep(row)

    def _acquire(self, row: Row) -> None:
        """Phase 1, then: what a row can get."""
        moves = self._moves
        supply = self._supplies.of(row)
        if row.same:
            settle(moves, row, supply)
            if not row.domain:
                return
        if row.cluster.surplus and not row.whole:
            moves.adopt_spare(row, supply)
        if not moves.is_covered(row):
            if row.same:
                moves.take_co_located(row, supply)
            elif row.skew:
                moves.take_spread(row, supply)
            else:
                moves.take(row, supply)
        row.whole = moves.is_covered(row)
        if moves.is_mixed(row):
            self.inventory.touch(row)  # the last machine may have made an earlier one needless

    def _preempt(self, short: list[Row]) -> list[Verdict]:
        """Phase 2: what must leave needs of lower priority; and what is said of those that lack."""
        self._preemption.settle_promises([row for row in short if not row.same or row.domain])
        told: list[Verdict] = []
        self._short = short
        for row in short:
            have = self._preemption.preempt(row)
            if row.verdict != SATISFIED:
                told.append(Verdict(row.key, row.verdict, self._words(row, have)))
        return told

    def _words(self, row: Row, have: list[int]) -> str:
        if row.verdict == PREEMPTING:
            have = row.have  # what is being drained is not there yet
        names = self.needs.names(row)
        missing = [
            (names[at], row.want[at] - have[at])
            for at in range(len(names))
            if row.want[at] > have[at]
        ]
        return in_words(row.verdict, missing)

    def _reclaim(self) -> None:
        """Phase 3: drains what no need of its cluster counts on, the dearest first."""
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
        """Phase 3: gives back idle machines that were held long enough."""
        for entry in self.inventory.expired(now_s):
            self.inventory.plan(entry, DELETE, None)
            self._moves.actions.append(
                Action(DELETE, entry.id, "", None, 0.0, 0, 0.0, DELETE_REASON)
            )


def _order(row: Row) -> tuple[int, float, NeedKey]:
    return (-row.priority, row.arrival_s, row.key)


def _dearest(entry: Entry) -> tuple[float, str]:
    return (-entry.stock.price, entry.id)
