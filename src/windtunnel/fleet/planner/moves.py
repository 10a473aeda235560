"""The working state of a cycle, and the moves by which a row gets machines."""

import math
from typing import Any, Final

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
    NeedVerdict,
)
from windtunnel.fleet.planner.entries import (
    BEING_CONFIGURED,
    NOT_COMING,
    ONLY_PLANNED,
    THERE,
    MachineEntry,
    NeedRow,
    Offer,
    Stock,
    Supply,
)
from windtunnel.fleet.planner.inventory import Inventory
from windtunnel.fleet.planner.packing import (
    add,
    could_spare,
    fill,
    helps,
    largest_taken,
    left_over,
    pattern,
    unit_price,
)
from windtunnel.fleet.planner.supply import Supplies
from windtunnel.fleet.states import IDLE, SPECULATIVE


class Moves:
    """The moves of one cycle, and the resulting actions."""

    def __init__(self, inventory: Inventory, supplies: Supplies) -> None:
        self.inventory: Final = inventory
        self.supplies: Final = supplies
        self.actions: list[Action] = []
        self.withdrawn: list[str] = []

    def finish(self, shortfalls: list[NeedVerdict], needs: int) -> CyclePlan:
        """Returns the decisions since the last call."""
        plan = CyclePlan(self.actions, sorted(self.withdrawn), shortfalls, needs)
        self.actions = []
        self.withdrawn = []
        return plan

    # What a row has.

    def gain(self, row: NeedRow, stock: Stock, count: int) -> None:
        """Changes a row's number of machines of a stock."""
        supply = row.supply
        if supply is not None:
            rank = supply.rank[stock]
            is_last = count > 0
            for other in row.bag:
                if supply.rank[other] > rank:
                    is_last = False
            add(row.bag, stock, count)
            if is_last and len(row.left) > 1:
                row.left = fill(row, row.left, stock, count)  # they are filled last
            else:
                row.left = left_over(row, supply, row.bag)
        else:
            add(row.bag, stock, count)

    def is_mixed(self, row: NeedRow) -> bool:
        """Whether a row has machines of different stocks."""
        held = row.held
        if len(held) > 1:
            stock = held[0].stock
            for entry in held:
                if entry.stock is not stock:
                    return True
        return False

    def keep(self, row: NeedRow) -> None:
        """Credits a row's machines in the order in which they are kept, until all units fit."""
        row.bag = {}
        row.left = row.counts
        if row.held:
            supply = self.supplies.of(row) if row.live else None
            fitting: list[MachineEntry] = []
            others: list[MachineEntry] = []
            for entry in row.held:
                if entry.stage() == NOT_COMING:
                    continue
                if supply is not None and self.fits(row, supply, entry.stock):
                    fitting.append(entry)
                else:
                    others.append(entry)
            if supply is not None and fitting:
                kept = self.kept(row, supply, fitting)
                for entry in kept:
                    self.credit(row, entry)
                if len(kept) < len(fitting):
                    chosen = {entry.id: None for entry in kept}
                    others.extend([entry for entry in fitting if entry.id not in chosen])
            for entry in others:
                self.spare(entry)
        row.whole = not any(row.left)

    def fits(self, row: NeedRow, supply: Supply, stock: Stock) -> bool:
        return stock in supply.rank and (
            not row.domain or stock.attributes[row.domain_key] == row.domain
        )

    def kept(self, row: NeedRow, supply: Supply, fitting: list[MachineEntry]) -> list[MachineEntry]:
        """The machines, out of these, that a row keeps; they become what it has.

        Ready machines come first; among them, repeatedly the one with the lowest cost per unit
        still left; then those made superfluous by the others are dropped. A spread keeps one
        machine of each domain, then a second one, and so on.
        """
        row.bag = {}
        for entry in fitting:
            row.bag[entry.stock] = row.bag.get(entry.stock, 0) + 1
        row.left = left_over(row, supply, row.bag)
        if len(fitting) < 2 or (len(row.counts) == 1 and not self._has_too_much(row, supply)):
            return fitting
        row.bag = {}
        row.left = row.counts
        if row.skew:
            return self._keep_evenly(row, supply, fitting)
        stages: dict[int, list[MachineEntry]] = {}
        for entry in fitting:
            stages.setdefault(entry.stage(), []).append(entry)
        kept: list[MachineEntry] = []
        last: list[MachineEntry] = []
        for stage in sorted(stages):
            chosen = self._choose(row, supply, stages[stage])
            if chosen:
                kept += last
                last = chosen
        created = [entry for entry in last if entry.state == SPECULATIVE]
        if created:
            kept += [entry for entry in last if entry.state != SPECULATIVE]
            last = created
        return kept + self._needed(row, supply, last)

    def would_keep(self, row: NeedRow, entries: list[MachineEntry]) -> list[MachineEntry]:
        """The machines that a row would keep out of these suitable ones, if all were ready."""
        bag, left = row.bag, row.left
        row.bag = {}
        row.left = row.counts
        supply = self.supplies.of(row)
        kept = self._needed(row, supply, self._choose(row, supply, entries))
        row.bag, row.left = bag, left
        return kept

    def _choose(
        self, row: NeedRow, supply: Supply, entries: list[MachineEntry]
    ) -> list[MachineEntry]:
        """Takes the machine with the lowest cost per remaining unit until none is left."""
        by_stock: dict[Stock, list[MachineEntry]] = {}
        for entry in sorted(entries, key=_by_id, reverse=True):
            by_stock.setdefault(entry.stock, []).append(entry)
        chosen: list[MachineEntry] = []
        while by_stock and any(row.left):
            stock = self._cheapest(row, supply, list(by_stock))
            if not helps(row, row.left, stock):
                break
            free = by_stock[stock]
            count = _how_many(row, supply.rooms[supply.rank[stock]], len(free))
            chosen += reversed(free[-count:])
            del free[-count:]
            if not free:
                del by_stock[stock]
            self.gain(row, stock, count)
        return chosen

    def _needed(
        self, row: NeedRow, supply: Supply, chosen: list[MachineEntry]
    ) -> list[MachineEntry]:
        """Drops superfluous machines among those equally far along: the most expensive first, as
        long as every unit still fits. Nearer ones stay until these are ready."""
        if any(row.left) or not could_spare(row, row.bag):
            return chosen
        by_stock: dict[Stock, list[MachineEntry]] = {}
        for entry in sorted(chosen, key=_by_id):
            by_stock.setdefault(entry.stock, []).append(entry)
        ranked = [
            (-supply.costs[supply.rank[stock]], stock.key, supply.rank[stock]) for stock in by_stock
        ]
        ranked.sort()
        needless: dict[str, None] = {}
        for _, _, rank in ranked:
            stock = supply.order[rank]
            entries = by_stock[stock]
            while entries:
                add(row.bag, stock, -1)
                if any(left_over(row, supply, row.bag)):
                    add(row.bag, stock, 1)
                    break
                needless[entries.pop().id] = None
        return [entry for entry in chosen if entry.id not in needless]

    def _has_too_much(self, row: NeedRow, supply: Supply) -> bool:
        """Whether units of one size would still fit without one of the machines."""
        if row.left[0]:
            return False
        for stock in list(row.bag):
            add(row.bag, stock, -1)
            enough = not left_over(row, supply, row.bag)[0]
            add(row.bag, stock, 1)
            if enough:
                return True
        return False

    def _keep_evenly(
        self, row: NeedRow, supply: Supply, fitting: list[MachineEntry]
    ) -> list[MachineEntry]:
        entries = self.in_keep_order(supply, fitting)
        seen: dict[str, int] = {}
        ranked: list[tuple[int, int]] = []
        for place, entry in enumerate(entries):
            value = entry.stock.attributes[row.domain_key]
            times = seen.get(value, 0)
            seen[value] = times + 1
            ranked.append((times, place))
        ranked.sort()
        kept: list[MachineEntry] = []
        for _, place in ranked:
            if not any(row.left):
                break
            kept.append(entries[place])
            self.gain(row, entries[place].stock, 1)
        return kept

    def in_keep_order(self, supply: Supply, entries: list[MachineEntry]) -> list[MachineEntry]:
        """Ready machines first; among equals, in the order of the supply."""
        ranked = [
            (entry.stage(), supply.unit_costs[supply.rank[entry.stock]], entry.id, place)
            for place, entry in enumerate(entries)
        ]
        ranked.sort()
        return [entries[place] for _, _, _, place in ranked]

    def _cheapest(self, row: NeedRow, supply: Supply, stocks: list[Stock]) -> Stock:
        """Of the stocks that take the largest unit left, the lowest cost per unit; then by key."""
        best = stocks[0]
        if len(stocks) > 1:
            size, least = len(row.left) + 1, math.inf
            for stock in stocks:
                rank = supply.rank[stock]
                price = unit_price(row, stock, supply.rooms[rank], supply.costs[rank])
                largest = largest_taken(row, row.left, stock)
                if largest < size or (
                    largest == size and (price < least or (price == least and stock.key < best.key))
                ):
                    best, size, least = stock, largest, price
        return best

    def credit(self, row: NeedRow, entry: MachineEntry) -> None:
        """Counts a machine for a row, and withdraws a planned drain."""
        self.inventory.unspare(entry)
        if entry.planned == RECLAIM:
            self.withdrawn.append(entry.id)
            self.inventory.plan(entry, NOTHING, row)

    def spare(self, entry: MachineEntry) -> None:
        """Releases a surplus machine: a planned one becomes free, a bound one surplus."""
        stage = entry.stage()
        if stage == ONLY_PLANNED:
            self.withdrawn.append(entry.id)
            self.inventory.plan(entry, NOTHING, None)
        elif stage in (THERE, BEING_CONFIGURED):
            self.inventory.spare(entry)

    # What a row can get.

    def adopt(self, row: NeedRow, entry: MachineEntry, cost: float, reason: str) -> None:
        """Counts a machine of the cluster for another of its needs."""
        if entry.planned == RECLAIM:
            self.withdrawn.append(entry.id)
        self.inventory.plan(entry, NOTHING, row)
        self.gain(row, entry.stock, 1)
        self._act(row, ADOPT, entry, cost, reason)

    def adopt_spare(self, row: NeedRow, supply: Supply) -> None:
        """Adopts surplus machines of other needs of the cluster."""
        spare = [e for e in row.cluster.surplus.values() if self.fits(row, supply, e.stock)]
        for entry in self.in_keep_order(supply, spare):
            if not any(row.left):
                break
            if not helps(row, row.left, entry.stock):
                continue
            if row.skew:
                value = entry.stock.attributes[row.domain_key]
                if value not in self.open_domains(row, supply, {}):
                    continue
            self.adopt(row, entry, supply.costs[supply.rank[entry.stock]], SURPLUS_REASON)

    def open_domains(self, row: NeedRow, supply: Supply, coming: dict[Stock, int]) -> list[str]:
        """The domains of a spread that may get one more within its skew, counting those coming."""
        counts: dict[str, int] = {}
        for value in supply.values:
            if any(stock.alive for stock in supply.domains[value]):
                counts[value] = 0
        for bag in (row.bag, coming):
            for stock, count in bag.items():
                value = stock.attributes[row.domain_key]
                counts[value] = counts.get(value, 0) + count
        ceiling = min(counts.values(), default=0) + row.skew - 1
        return [value for value, count in counts.items() if count <= ceiling]

    def take(self, row: NeedRow, supply: Supply) -> None:
        """Takes free machines until all units fit.

        Repeatedly one that takes the largest remaining unit: an idle one, or else one that can be
        created; among these, the one with the lowest cost per unit. Anywhere, in the domain of a
        gang, or in the open domains of a spread.
        """
        offers = supply.domain_offers[row.domain] if row.domain else supply.offers
        while any(row.left):
            if row.skew:
                offers = []
                for value in self.open_domains(row, supply, {}):
                    offers = offers + supply.domain_offers[value]
            best, room, cost, size = self._best(row, offers, IDLE, len(row.left))
            state = IDLE
            if best is None or size > _first(row.left):
                other, other_room, other_cost, _ = self._best(row, offers, SPECULATIVE, size)
                if other is not None:
                    best, room, cost, state = other, other_room, other_cost, SPECULATIVE
            if best is None:
                return
            free = best.idle_count if state == IDLE else best.quota_count
            count = 1 if row.skew else _how_many(row, room, free)
            self._take_some(row, best, state, count, cost)
            self.gain(row, best, count)

    def take_some(self, row: NeedRow, stock: Stock, state: int, count: int) -> None:
        """Takes this many free machines of a stock in a state, which must have them."""
        supply = self.supplies.of(row)
        self._take_some(row, stock, state, count, supply.costs[supply.rank[stock]])
        self.gain(row, stock, count)

    def tidy(self, row: NeedRow, began: int) -> None:
        """Gives back machines taken since some action that the row would not keep: the last machine
        may have made an earlier one superfluous."""
        supply = self.supplies.of(row)
        if len(row.counts) == 1:
            if not self._has_too_much(row, supply):
                return
        elif not could_spare(row, row.bag):
            return
        bag, left = row.bag, row.left
        held = [entry for entry in row.held if entry.stage() != NOT_COMING and not entry.spare]
        kept = {entry.id: None for entry in self.kept(row, supply, held)}
        row.bag, row.left = bag, left
        needless = [one for one in self.actions[began:] if one.machine not in kept]
        if len(needless) == len(held) - len(kept):
            for action in needless:
                self.give_back(row, action.machine)
            self.actions[began:] = [one for one in self.actions[began:] if one.machine in kept]

    def give_back(self, row: NeedRow, machine: str) -> None:
        """Frees a machine that a row took in this cycle."""
        entry = self.inventory.entries[machine]
        self.inventory.plan(entry, NOTHING, None)
        self.gain(row, entry.stock, -1)

    def _best(
        self, row: NeedRow, offers: list[Offer], state: int, below: int
    ) -> tuple[Stock | None, int, float, int]:
        """The stock to take a machine in a state from, with its room and cost, and the number of
        the largest size that it takes, which is below the given one; or None."""
        epoch = self.inventory.frees
        left = row.left
        best: Stock | None = None
        size, least, room, cost = below, math.inf, 0, 0.0
        for offer in offers:
            stock = offer.first(state, epoch)
            if stock is None:
                continue
            if len(left) == 1:
                price = offer.cost / (offer.room if offer.room < left[0] else left[0])
                largest = 0
            else:
                found = pattern(row, left, stock)
                price = offer.cost / found.worth if found.worth else math.inf
                largest = found.largest
            if largest < size or (
                best is not None
                and largest == size
                and (price < least or (price == least and stock.key < best.key))
            ):
                best, size, least = stock, largest, price
                room, cost = offer.room, offer.cost
        return best, room, cost, size

    def _take_some(self, row: NeedRow, stock: Stock, state: int, count: int, cost: float) -> None:
        kind = BOOTSTRAP if state == IDLE else PROVISION
        reason = IDLE_REASON if state == IDLE else SPECULATIVE_REASON
        # As objects: compiled code would box plain numbers again for each action.
        cluster: Any = row.cluster.name
        key: Any = row.key
        priority: Any = row.priority
        price: Any = cost
        for _ in range(count):
            entry = stock.pop(state)
            if entry.planned == DELETE:
                self.withdrawn.append(entry.id)
            self.inventory.take_planned(entry, kind, row)
            self.actions.append(Action(kind, entry.id, cluster, key, 0.0, priority, price, reason))

    def _act(self, row: NeedRow, kind: int, entry: MachineEntry, cost: float, reason: str) -> None:
        self.actions.append(
            Action(kind, entry.id, row.cluster.name, row.key, 0.0, row.priority, cost, reason)
        )


def _first(left: tuple[int, ...]) -> int:
    """The number of the largest remaining size."""
    at = 0
    while not left[at]:
        at += 1
    return at


def _how_many(row: NeedRow, room: int, free: int) -> int:
    """How many machines of the cheapest stock to take before comparing again.

    While machines are filled with units of one size, no other stock becomes cheaper.
    """
    if len(row.left) > 1 or row.left[0] <= room:
        return 1
    count = row.left[0] // room
    return count if count < free else free


def _by_id(entry: MachineEntry) -> str:
    return entry.id
