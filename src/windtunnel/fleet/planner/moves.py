"""What a cycle has in hand while it runs: amounts, and the moves by which a row gets machines."""

from typing import Final

from windtunnel.fleet.planner.actions import (
    ADOPT,
    BOOTSTRAP,
    DELETE,
    IDLE_REASON,
    NOTHING,
    PROVISION,
    RECLAIM,
    SPECULATIVE_REASON,
    SURPLUS_REASON,
    Action,
    CyclePlan,
    Hint,
    NeedVerdict,
)
from windtunnel.fleet.planner.entries import (
    BEING_CONFIGURED,
    NOT_COMING,
    ONLY_PLANNED,
    THERE,
    MachineEntry,
    NeedRow,
    Stock,
    Supply,
)
from windtunnel.fleet.planner.inventory import Inventory
from windtunnel.fleet.planner.supply import Supplies
from windtunnel.fleet.states import IDLE, SPECULATIVE


def covered(have: list[int], want: list[int]) -> bool:
    return all(have[at] >= want[at] for at in range(len(want)))


def keep_order(entry: MachineEntry) -> tuple[int, float, str]:
    """Which machines a need keeps first: those that are there, the cheapest."""
    return (entry.stage(), entry.stock.price, entry.id)


class Moves:
    """The moves of one cycle, and the actions that come of them."""

    def __init__(self, inventory: Inventory, supplies: Supplies) -> None:
        self.inventory: Final = inventory
        self.supplies: Final = supplies
        self.actions: list[Action] = []
        self.withdrawn: list[str] = []

    def finish(self, shortfalls: list[NeedVerdict], needs: int, hints: list[Hint]) -> CyclePlan:
        """What was decided since the last time."""
        plan = CyclePlan(self.actions, sorted(self.withdrawn), shortfalls, needs, hints)
        self.actions = []
        self.withdrawn = []
        return plan

    # Amounts.

    def gain(self, row: NeedRow, stock: Stock, count: int) -> None:
        """A row has so many machines more (or fewer) of a stock."""
        have, amounts, resources = row.have, stock.amounts, row.resources
        for at in range(len(resources)):
            have[at] += amounts[resources[at]] * count

    def is_covered(self, row: NeedRow) -> bool:
        return covered(row.have, row.want)

    def machines_missing(self, row: NeedRow, stock: Stock) -> int:
        """How many machines of a stock would cover what a row lacks."""
        most = 0
        have, want, amounts, resources = row.have, row.want, stock.amounts, row.resources
        for at in range(len(want)):
            lacking = want[at] - have[at]
            if lacking > 0:
                offered = amounts[resources[at]]
                machines = (lacking + offered - 1) // offered
                if machines > most:
                    most = machines
        return most

    def is_mixed(self, row: NeedRow) -> bool:
        """Whether a row has machines that are not all alike."""
        held = row.held
        return any(held[at].stock is not held[0].stock for at in range(1, len(held)))

    # What a row has.

    def keep(self, row: NeedRow) -> None:
        """Credits what a row has, in the order in which it is kept, until it is covered."""
        row.have = [0] * len(row.want)
        fitting: list[MachineEntry] = []
        others: list[MachineEntry] = []
        if row.held:
            supply = self.supplies.of(row) if row.live else None
            for entry in row.held:
                if entry.stage() == NOT_COMING:
                    continue
                if supply is not None and self.fits(row, supply, entry.stock):
                    fitting.append(entry)
                    self.gain(row, entry.stock, 1)
                else:
                    others.append(entry)
            if len(fitting) > 1 and self._has_too_much(row, fitting):
                fitting.sort(key=keep_order)
                if row.skew:
                    fitting = self._evenly(row, fitting)
                self._cut(row, fitting, others)
            for entry in fitting:
                self.credit(row, entry)
            for entry in others:
                self.spare(entry)
        row.whole = covered(row.have, row.want)

    def fits(self, row: NeedRow, supply: Supply, stock: Stock) -> bool:
        return stock in supply.rank and (
            not row.domain or stock.attributes[row.domain_key] == row.domain
        )

    def _has_too_much(self, row: NeedRow, fitting: list[MachineEntry]) -> bool:
        """Whether a row would still be covered without one of its machines."""
        have, want, resources = row.have, row.want, row.resources
        last: Stock | None = None
        for entry in fitting:
            stock = entry.stock
            if stock is last:
                continue
            last = stock
            amounts = stock.amounts
            enough = True
            for at in range(len(want)):
                if have[at] - amounts[resources[at]] < want[at]:
                    enough = False
                    break
            if enough:
                return True
        return False

    def _cut(self, row: NeedRow, fitting: list[MachineEntry], others: list[MachineEntry]) -> None:
        """Leaves what covers the row in `fitting`, and puts the rest to the others."""
        row.have = [0] * len(row.want)
        kept = 0
        while kept < len(fitting) and not covered(row.have, row.want):
            self.gain(row, fitting[kept].stock, 1)
            kept += 1
        others.extend(fitting[kept:])
        del fitting[kept:]

    def _evenly(self, row: NeedRow, entries: list[MachineEntry]) -> list[MachineEntry]:
        """One of each domain, then a second one of each, and so on."""
        seen: dict[str, int] = {}
        ranked: list[tuple[int, int]] = []
        for place, entry in enumerate(entries):
            value = entry.stock.attributes[row.domain_key]
            times = seen.get(value, 0)
            seen[value] = times + 1
            ranked.append((times, place))
        ranked.sort()
        return [entries[place] for _, place in ranked]

    def credit(self, row: NeedRow, entry: MachineEntry) -> None:
        """Counts a machine for a row; a drain that was planned is off."""
        self.inventory.unspare(entry)
        if entry.planned == RECLAIM:
            self.withdrawn.append(entry.id)
            self.inventory.plan(entry, NOTHING, row)

    def spare(self, entry: MachineEntry) -> None:
        """What a row has too much: planned ones are free again, bound ones go to the surplus."""
        stage = entry.stage()
        if stage == ONLY_PLANNED:
            self.withdrawn.append(entry.id)
            self.inventory.plan(entry, NOTHING, None)
        elif stage in (THERE, BEING_CONFIGURED):
            self.inventory.spare(entry)

    # What it can get.

    def adopt(self, row: NeedRow, entry: MachineEntry, cost: float, reason: str) -> None:
        """Counts a machine of the cluster for another need of it."""
        if entry.planned == RECLAIM:
            self.withdrawn.append(entry.id)
        self.inventory.plan(entry, NOTHING, row)
        self.gain(row, entry.stock, 1)
        self._act(row, ADOPT, entry, cost, reason)

    def adopt_spare(self, row: NeedRow, supply: Supply) -> None:
        """Takes what other needs of the cluster have to spare."""
        spare = [e for e in row.cluster.surplus.values() if self.fits(row, supply, e.stock)]
        spare.sort(key=keep_order)
        for entry in spare:
            if covered(row.have, row.want):
                break
            if row.skew and not self.allowed(row, supply, entry.stock, {}):
                continue
            self.adopt(row, entry, supply.costs[supply.rank[entry.stock]], SURPLUS_REASON)

    def allowed(self, row: NeedRow, supply: Supply, stock: Stock, more: dict[str, int]) -> bool:
        """Whether one more in the domain of a stock keeps a spread within its skew."""
        counts = self.counts(row, supply)
        for value, count in more.items():
            counts[value] = counts.get(value, 0) + count
        return counts[stock.attributes[row.domain_key]] <= min(counts.values()) + row.skew - 1

    def counts(self, row: NeedRow, supply: Supply) -> dict[str, int]:
        """The machines that a row has, by domain; domains without any machine are left out."""
        counts: dict[str, int] = {}
        for value in supply.values:
            for stock in supply.domains[value]:
                if stock.alive:
                    counts[value] = 0
                    break
        for entry in row.held:
            if entry.stage() != NOT_COMING and not entry.spare and entry.stock in supply.rank:
                value = entry.stock.attributes[row.domain_key]
                counts[value] = counts.get(value, 0) + 1
        return counts

    def take(self, row: NeedRow, supply: Supply) -> None:
        """Takes the cheapest free machines until a row is covered: idle ones, then others."""
        if supply.epoch != self.inventory.frees:
            supply.epoch = self.inventory.frees
            supply.idle_from = 0
            supply.quota_from = 0
        order = supply.order
        at = supply.idle_from
        while at < len(order):
            if self._take_idle(row, order[at], supply.costs[at]):
                supply.idle_from = at
                return
            at += 1
        supply.idle_from = at
        at = supply.quota_from
        while at < len(order):
            if self._take_quota(row, order[at], supply.costs[at]):
                break
            at += 1
        supply.quota_from = at

    def take_co_located(self, row: NeedRow, supply: Supply) -> None:
        """As `take`, within the domain of the row."""
        stocks = supply.domains[row.domain]
        for stock in stocks:
            if self._take_idle(row, stock, supply.costs[supply.rank[stock]]):
                return
        for stock in stocks:
            if self._take_quota(row, stock, supply.costs[supply.rank[stock]]):
                return

    def take_spread(self, row: NeedRow, supply: Supply) -> None:
        """Takes machines one by one from the domains that may have another."""
        counts = self.counts(row, supply)
        while not covered(row.have, row.want):
            ceiling = min(counts.values(), default=0) + row.skew - 1
            stock = self._cheapest_within(row, supply, counts, ceiling)
            if stock is None:
                return
            cost = supply.costs[supply.rank[stock]]
            if stock.idle_count:
                self._take_one(row, stock, BOOTSTRAP, cost)
            else:
                self._take_one(row, stock, PROVISION, cost)
            counts[stock.attributes[row.domain_key]] += 1

    def _cheapest_within(
        self, row: NeedRow, supply: Supply, counts: dict[str, int], ceiling: int
    ) -> Stock | None:
        """The stock to take from next: idle before speculative, then by cost."""
        speculative: Stock | None = None
        for stock in supply.order:
            if not stock.idle_count and (speculative is not None or not stock.quota_count):
                continue
            if counts[stock.attributes[row.domain_key]] <= ceiling:
                if stock.idle_count:
                    return stock
                speculative = stock
        return speculative

    def _take_idle(self, row: NeedRow, stock: Stock, cost: float) -> bool:
        """Takes what is missing of a stock; True when the row is covered."""
        free = stock.idle_count
        return free > 0 and self._take_some(row, stock, free, BOOTSTRAP, cost)

    def _take_quota(self, row: NeedRow, stock: Stock, cost: float) -> bool:
        free = stock.quota_count
        return free > 0 and self._take_some(row, stock, free, PROVISION, cost)

    def _take_some(self, row: NeedRow, stock: Stock, free: int, kind: int, cost: float) -> bool:
        missing = self.machines_missing(row, stock)
        count = missing if missing <= free else free
        for _ in range(count):
            self._take_one(row, stock, kind, cost)
        return count == missing

    def _take_one(self, row: NeedRow, stock: Stock, kind: int, cost: float) -> None:
        idle = kind == BOOTSTRAP
        entry = stock.pop(IDLE if idle else SPECULATIVE)
        if entry.planned == DELETE:
            self.withdrawn.append(entry.id)
        self.inventory.take_planned(entry, kind, row)
        self.gain(row, stock, 1)
        self._act(row, kind, entry, cost, IDLE_REASON if idle else SPECULATIVE_REASON)

    def _act(self, row: NeedRow, kind: int, entry: MachineEntry, cost: float, reason: str) -> None:
        self.actions.append(
            Action(kind, entry.id, row.cluster.name, row.key, 0.0, row.priority, cost, reason)
        )
