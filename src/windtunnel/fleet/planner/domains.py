"""The domain of a gang: the total order in which domains are compared."""

from windtunnel.fleet.planner.entries import (
    NOT_COMING,
    ONLY_PLANNED,
    MachineEntry,
    NeedRow,
    Stock,
    Supply,
)
from windtunnel.fleet.planner.moves import Moves
from windtunnel.fleet.planner.packing import both, covers, free_of, left_over, total

WITH_FREE = 0
WITH_VICTIMS = 1
NEVER = 2


def find_whole(row: NeedRow, supply: Supply) -> bool:
    """Whether a gang is complete in some domain; if so, it stays there."""
    bags = _by_domain(row, supply, row.held)
    for value in sorted(bags):
        if covers(row, supply, bags[value]):
            row.domain = value
            return True
    return False


def settle(moves: Moves, row: NeedRow, supply: Supply) -> None:
    """Chooses the domain of an incomplete gang, and releases its machines elsewhere.

    If no domain can host all of it, nothing is taken and its present machines stay.
    """
    row.domain = _best(row, supply)
    if row.domain:
        moves.keep(row)
        return
    row.bag = {}
    for entry in list(row.held):
        stage = entry.stage()
        if stage == NOT_COMING:
            continue
        if stage != ONLY_PLANNED and entry.stock in supply.rank:
            row.bag[entry.stock] = row.bag.get(entry.stock, 0) + 1
            moves.credit(row, entry)
        else:
            moves.spare(entry)
    row.left = left_over(row, supply, row.bag)


def _best(row: NeedRow, supply: Supply) -> str:
    """The first domain in this order; empty if none could ever host the whole gang:

    satisfiable with free machines, then with those of lower priorities; the most already there or
    being drained for it; the most of that the gang's own; the tightest fit; the name.
    """
    if not row.held and not row.promised and not row.cluster.surplus and len(row.counts) == 1:
        return _tightest(row, supply, victims=False) or _tightest(row, supply, victims=True)
    own = _by_domain(row, supply, row.held)
    others = [entry for entry in row.cluster.surplus.values() if entry.row is not row]
    spare = _by_domain(row, supply, others)
    promised = _by_domain(row, supply, row.promised)
    best = ""
    best_tier = NEVER
    best_rank = (0.0, 0.0, 0.0)
    for value in supply.values:
        mine = own.get(value, {})
        creditable = both(mine, spare.get(value, {}))
        coming = promised.get(value, {})
        stocks = supply.domains[value]
        joint = both(creditable, free_of(stocks))
        tier = WITH_FREE
        if not covers(row, supply, joint):
            if best_tier == WITH_FREE:
                continue
            tier = WITH_VICTIMS
            joint = both(joint, coming)
            for stock in stocks:
                count = stock.takeable.below(row.priority)
                if count:
                    joint[stock] = joint.get(stock, 0) + count
            if not covers(row, supply, joint):
                continue
        there = both(creditable, coming)
        rank = (-coverage(row, there), -coverage(row, mine), size(row, joint))
        if tier < best_tier or rank < best_rank:
            best, best_tier, best_rank = value, tier, rank
    return best


def _tightest(row: NeedRow, supply: Supply, *, victims: bool) -> str:
    """As `_best`, for the many gangs with units of one size and no machines yet: with free
    machines, or also with those of lower priorities."""
    best, best_size = "", 0.0
    resources, want, count, priority = row.sizing.resources, row.want, row.counts[0], row.priority
    rank, rooms = supply.rank, supply.rooms
    for value in supply.values:
        units = 0
        found = 0.0
        stocks = supply.domains[value]
        for stock in stocks:
            free = stock.idle_count + stock.quota_count
            if victims:
                free += stock.takeable.below(priority)
            if free:
                units += free * rooms[rank[stock]]
        if units < count:
            continue
        for at in range(len(want)):
            have, resource = 0, resources[at]
            for stock in stocks:
                free = stock.idle_count + stock.quota_count
                if victims:
                    free += stock.takeable.below(priority)
                have += free * stock.amounts[resource]
            found += have / want[at]
            if best and found >= best_size:
                break
        if not best or found < best_size:
            best, best_size = value, found
    return best


def _by_domain(
    row: NeedRow, supply: Supply, entries: list[MachineEntry]
) -> dict[str, dict[Stock, int]]:
    """Machines by domain and stock. Leaving machines count only for the need they leave for."""
    bags: dict[str, dict[Stock, int]] = {}
    leaving = entries is row.promised
    for entry in entries:
        stock = entry.stock
        if stock in supply.rank and (leaving or entry.stage() != NOT_COMING):
            bag = bags.setdefault(stock.attributes[row.domain_key], {})
            bag[stock] = bag.get(stock, 0) + 1
    return bags


def coverage(row: NeedRow, bag: dict[Stock, int]) -> float:
    """The covered share of each amount, at most 1, summed over resources."""
    found = 0.0
    if bag:
        have = total(row, bag)
        for at in range(len(have)):
            share = have[at] / row.want[at]
            found += share if share < 1.0 else 1.0
    return found


def size(row: NeedRow, bag: dict[Stock, int]) -> float:
    """As `coverage`, without the limit of 1."""
    have = total(row, bag)
    found = 0.0
    for at in range(len(have)):
        found += have[at] / row.want[at]
    return found
