"""All machines, by shape and by need; the only place where they change.

Four methods change a machine: `add`, `remove`, `transition` and `plan`. Each keeps the books (which
machines are free or could be taken, which rows must be looked at again), so that a cycle costs in
proportion to what changed.
"""

import heapq
import math
from collections.abc import Iterable
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.fleet.machine import IllegalTransition, Machine, fault_of
from windtunnel.fleet.need import NeedKey
from windtunnel.fleet.planner.actions import BOOTSTRAP, NOTHING, PREEMPT, PROVISION
from windtunnel.fleet.planner.entries import ClusterHoldings, MachineEntry, NeedRow, Sizing, Stock
from windtunnel.fleet.shape import IDLE_HOLD_S, MachineShape, Resources
from windtunnel.fleet.states import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DRAINING,
    FAILED,
    IDLE,
    SPECULATIVE,
    STATES,
    is_legal,
    next_states,
)

_HELD: Final = (CREATING, CONFIGURING, CONFIGURED, DRAINING)
"""States in which a machine is counted for a need."""


MOST_SIZINGS: Final = 10_000
"""Number of size sets cached for future needs."""


class Inventory:
    """Machines, their stocks, and the rows and clusters that they belong to."""

    def __init__(self) -> None:
        self.entries: Final[dict[str, MachineEntry]] = {}
        self.stocks: Final[list[Stock]] = []
        self.resources: Final[dict[str, int]] = {}
        self.clusters: Final[dict[str, ClusterHoldings]] = {}
        self.rows: Final[dict[NeedKey, NeedRow]] = {}
        self.dirty: Final[list[NeedRow]] = []
        self.errors: Final[dict[str, str]] = {}
        self.promises: Final[dict[MachineEntry, NeedRow]] = {}
        """The need of higher priority that a machine is being drained for."""
        self._stock_of: Final[dict[MachineShape, Stock]] = {}
        self._kinds: Final[dict[Resources, int]] = {}
        self._sizings: Final[dict[tuple[Resources, ...], Sizing]] = {}
        self._due: Final[dict[int, list[MachineEntry]]] = {}
        self._due_seconds: Final[list[int]] = []
        self.frees = 0  # how often a machine became free, which resets cursors

    # Names to numbers.

    def resource(self, name: str) -> int:
        """The number of a resource; a new one is added to every stock."""
        number = self.resources.get(name)
        if number is None:
            number = len(self.resources)
            self.resources[name] = number
            for stock in self.stocks:
                stock.amounts.append(0)
        return number

    def cluster(self, name: str) -> ClusterHoldings:
        found = self.clusters.get(name)
        if found is None:
            found = ClusterHoldings(name)
            self.clusters[name] = found
        return found

    def row(self, key: NeedKey) -> NeedRow:
        """The row of a need, whether or not its cluster asks for it now."""
        found = self.rows.get(key)
        if found is None:
            found = NeedRow(
                self.cluster(key.cluster),
                key,
                key.priority(),
                key.interruption_bucket(),
                key.reclamation_bucket(),
            )
            self.rows[key] = found
            found.cluster.rows[found] = None
        return found

    def forget(self, row: NeedRow) -> None:
        """Drops a row without a need and without machines, so that rows do not pile up."""
        if not row.live and not row.held and not row.promised:
            self.rows.pop(row.key, None)
            row.cluster.rows.pop(row, None)

    def stock(self, shape: MachineShape) -> Stock:
        found = self._stock_of.get(shape)
        if found is None:
            numbers = [(self.resource(name), amount) for name, amount in shape.resources]
            amounts = [0] * len(self.resources)
            for number, amount in numbers:
                amounts[number] = amount
            found = Stock(shape, amounts)
            found.number = len(self.stocks)
            found.kind = self._kinds.setdefault(shape.resources, len(self._kinds))
            self.stocks.append(found)
            self._stock_of[shape] = found
        return found

    def close(self, stock: Stock, *, closed: bool) -> None:
        """Sets whether places of a stock may not be created now, for lack of capacity."""
        if stock.closed != closed:
            stock.close(closed=closed)
            self.frees += not closed

    def sizing(self, sizes: tuple[Resources, ...]) -> Sizing:
        """Unit sizes as numbers; shared by all needs with the same sizes."""
        found = self._sizings.get(sizes)
        if found is None:
            if len(self._sizings) >= MOST_SIZINGS:
                self._sizings.clear()
            numbers = [self.resource(name) for name, _ in sizes[0]]
            found = Sizing(numbers, [[amount for _, amount in size] for size in sizes])
            self._sizings[sizes] = found
        return found

    # Machines come and go.

    def load(self, machines: Iterable[Machine]) -> None:
        """Adds many machines; an impossible record is an error."""
        for machine in machines:
            self.add(machine)

    def add(self, machine: Machine) -> MachineEntry:
        """Adds a machine as listed by its provider; an impossible record is an error."""
        fault = fault_of(machine)
        if fault:
            raise InputError(fault, where=f"machine {machine.id!r}")
        return self.insert(machine)

    def insert(self, machine: Machine) -> MachineEntry:
        """Adds a machine whose record was checked."""
        if machine.id in self.entries:
            raise InputError("already exists", where=f"machine {machine.id!r}")
        entry = MachineEntry(machine.id, self.stock(machine.shape))
        self.entries[machine.id] = entry
        entry.host = machine.host
        entry.state = machine.state
        entry.planned = machine.planned
        entry.since_s = machine.since_s
        if machine.error:
            self.errors[machine.id] = machine.error
        if machine.holder is not None and (
            machine.state in _HELD or machine.planned in (BOOTSTRAP, PROVISION)
        ):
            self._attach(entry, self.row(machine.holder))
        elif machine.cluster and machine.state in _HELD:
            self._attach(entry, self.cluster(machine.cluster).unknown)
        if machine.promised is not None:
            self._promise(entry, self.row(machine.promised))
        self._enter(entry)
        self._touch_all(entry)
        return entry

    def remove(self, name: str) -> None:
        """Removes a machine that its provider no longer lists."""
        entry = self.entries.pop(name)
        self._touch_all(entry)
        self._leave(entry)
        self._break_promise(entry)
        self._detach(entry)
        self.errors.pop(name, None)
        entry.state = FAILED  # lists that still have it skip it

    # A machine changes.

    def transition(
        self,
        entry: MachineEntry,
        state: int,
        now_s: float,
        *,
        host: str = "",
        row: NeedRow | None = None,
        error: str = "",
    ) -> None:
        """Changes the state of a machine, the only way to do so; see `machine.transition`."""
        if not is_legal(entry.state, state):
            raise IllegalTransition(
                f"it cannot go from {STATES[entry.state]} to {STATES[state]}",
                where=f"machine {entry.id!r}",
                allowed=next_states(entry.state),
            )
        self._touch_all(entry)
        self._leave(entry)
        entry.planned = NOTHING
        entry.resting = False
        entry.since_s = now_s
        if state != DRAINING and self.promises:
            self._break_promise(entry)
        if host:
            entry.host = host
        elif state in (SPECULATIVE, CREATING):
            entry.host = ""
        if error:
            self.errors[entry.id] = error
        elif entry.state == FAILED:
            self.errors.pop(entry.id, None)
        if state != CONFIGURED:
            self._unmark_spare(entry)
        if state in (IDLE, FAILED, SPECULATIVE):
            self._detach(entry)
        elif row is not None and row is not entry.row:
            self._detach(entry)
            self._attach(entry, row)
        entry.state = state
        self._enter(entry)
        if entry.row is not None:
            self.touch(entry.row)

    def plan(self, entry: MachineEntry, planned: int, row: NeedRow | None) -> None:
        """Plans an action for a machine, and the row that it is then for; nothing has begun.

        The row is not marked as changed: the planner already knows.
        """
        self._leave(entry)
        entry.planned = planned
        if row is not entry.row:
            self._detach(entry)
            if row is not None:
                self._attach(entry, row)
        self._enter(entry)

    def take_planned(self, entry: MachineEntry, planned: int, row: NeedRow) -> None:
        """As `plan`, for a machine just taken off the list of free ones."""
        entry.planned = planned
        self._attach(entry, row)

    def promise(self, entry: MachineEntry, row: NeedRow) -> None:
        """Plans to drain a machine for a need of higher priority."""
        self.plan(entry, PREEMPT, entry.row)
        self._promise(entry, row)

    def withdraw(self, entry: MachineEntry) -> None:
        """Withdraws a planned action that has not begun."""
        bound = entry.state in (CONFIGURED, CONFIGURING)
        self._touch_all(entry)
        self._break_promise(entry)
        self.plan(entry, NOTHING, entry.row if bound else None)

    def spare(self, entry: MachineEntry) -> None:
        """Marks a bound machine that no need of its cluster counts on as surplus."""
        row = entry.row
        if not entry.spare and row is not None:
            self._leave(entry)
            entry.spare = True
            row.cluster.surplus[entry.id] = entry
            self._enter(entry)

    def unspare(self, entry: MachineEntry) -> None:
        """Marks a machine as needed again."""
        if entry.spare:
            self._leave(entry)
            self._unmark_spare(entry)
            self._enter(entry)

    def rest(self, entry: MachineEntry, *, resting: bool) -> None:
        """Sets whether a machine may not be taken because its drain was withdrawn."""
        self._leave(entry)
        entry.resting = resting
        self._enter(entry)

    def touch(self, row: NeedRow) -> None:
        """Marks a row for the next cycle."""
        if not row.dirty:
            row.dirty = True
            self.dirty.append(row)

    def _touch_all(self, entry: MachineEntry) -> None:
        if entry.row is not None:
            self.touch(entry.row)
        if self.promises:
            promised = self.promises.get(entry)
            if promised is not None:
                self.touch(promised)

    # The books.

    def _attach(self, entry: MachineEntry, row: NeedRow) -> None:
        entry.row = row
        entry.place = len(row.held)
        row.held.append(entry)

    def _detach(self, entry: MachineEntry) -> None:
        row = entry.row
        if row is None:
            return
        self._unmark_spare(entry)
        last = row.held.pop()
        if last is not entry:
            row.held[entry.place] = last
            last.place = entry.place
        entry.row = None

    def _unmark_spare(self, entry: MachineEntry) -> None:
        row = entry.row
        if entry.spare and row is not None:
            entry.spare = False
            del row.cluster.surplus[entry.id]

    def _promise(self, entry: MachineEntry, row: NeedRow) -> None:
        self.promises[entry] = row
        row.promised.append(entry)

    def _break_promise(self, entry: MachineEntry) -> None:
        row = self.promises.pop(entry, None)
        if row is not None:
            row.promised.remove(entry)

    def _leave(self, entry: MachineEntry) -> None:
        """Removes a machine from every count that depends on its state."""
        stock = entry.stock
        if entry.is_free():
            stock.take_out(entry)
        elif entry.state == CONFIGURED:
            row = entry.row
            assert row is not None
            row.cluster.configured -= 1
            if entry.is_takeable():
                stock.takeable.change(row, -1)
        if entry.state != FAILED:
            stock.alive -= 1

    def _enter(self, entry: MachineEntry) -> None:
        """Adds a machine to the counts for its new state."""
        stock = entry.stock
        if entry.state != FAILED:
            stock.alive += 1
        if entry.is_free():
            stock.put(entry)
            self.frees += 1
            if entry.state == IDLE and entry.planned == NOTHING:
                self._wait_for_release(entry)
        elif entry.state == CONFIGURED:
            row = entry.row
            assert row is not None
            row.cluster.configured += 1
            if entry.is_takeable():
                stock.takeable.change(row, 1)

    def _wait_for_release(self, entry: MachineEntry) -> None:
        hold_s = IDLE_HOLD_S[entry.stock.capacity_type]
        if hold_s < math.inf:
            second = math.floor(entry.since_s + hold_s)
            waiting = self._due.get(second)
            if waiting is None:
                self._due[second] = [entry]
                heapq.heappush(self._due_seconds, second)
            else:
                waiting.append(entry)

    def expired(self, now_s: float) -> list[MachineEntry]:
        """Machines that have been idle for long enough, by id. Each is reported once."""
        found: dict[str, MachineEntry] = {}
        while self._due_seconds and self._due_seconds[0] <= now_s:
            second = heapq.heappop(self._due_seconds)
            later: list[MachineEntry] = []
            for entry in self._due.pop(second):
                if entry.state == IDLE and entry.planned == NOTHING:
                    due_s = entry.since_s + IDLE_HOLD_S[entry.stock.capacity_type]
                    if due_s <= now_s:
                        found[entry.id] = entry
                    elif math.floor(due_s) == second:
                        later.append(entry)
            if later:
                self._due[second] = later
                heapq.heappush(self._due_seconds, second)
                break
        return [found[name] for name in sorted(found)]

    # Records again.

    def record(self, entry: MachineEntry) -> Machine:
        """Converts a machine to a record."""
        row, promised = entry.row, self.promises.get(entry)
        bound = entry.state in (CONFIGURING, CONFIGURED, DRAINING)
        return Machine(
            entry.id,
            entry.stock.shape,
            int(entry.state),
            entry.host,
            row.cluster.name if row is not None and bound else "",
            row.key if row is not None and row is not row.cluster.unknown else None,
            promised.key if promised is not None else None,
            int(entry.planned),
            entry.since_s,
            self.errors.get(entry.id, ""),
        )

    def records(self) -> list[Machine]:
        """All machines as records, by id."""
        return [self.record(self.entries[name]) for name in sorted(self.entries)]
