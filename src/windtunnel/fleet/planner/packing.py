"""Whether the units of a need fit on machines: each machine is filled with the largest that fit.

Machines are filled in one order, that of the supply, so that the answer depends on which machines
there are and not on how they came. Machines that host every unit come first; what only has room for
small ones takes what these leave.
"""

import math
from typing import Final

from windtunnel.fleet.planner.entries import NeedRow, Sizing, Stock, Supply, UnitPattern

MOST_PATTERNS: Final = 10_000
"""How many of one kind of machine and one set of sizes are remembered."""


def pattern(row: NeedRow, left: tuple[int, ...], stock: Stock) -> UnitPattern:
    """What one machine takes of the units that are left; worked out once for all that are alike."""
    return pattern_of_kind(row.sizing, left, stock.kind, stock.amounts)


def pattern_of_kind(
    sizing: Sizing, left: tuple[int, ...], kind: int, amounts: list[int]
) -> UnitPattern:
    """The same for a machine with some amounts."""
    known = sizing.patterns.get(kind)
    if known is None:
        known = {}
        sizing.patterns[kind] = known
    found = known.get(left)
    if found is None:
        if len(known) >= MOST_PATTERNS:
            known.clear()
        found = _pattern(sizing, left, amounts)
        known[left] = found
    return found


def _pattern(sizing: Sizing, left: tuple[int, ...], amounts: list[int]) -> UnitPattern:
    free = [amounts[resource] for resource in sizing.resources]
    taken: list[int] = []
    worth = 0.0
    for at, size in enumerate(sizing.sizes):
        count = left[at]
        for place in range(len(size)):
            if size[place]:
                room = free[place] // size[place]
                if room < count:
                    count = room
        for place in range(len(size)):
            free[place] -= count * size[place]
        taken.append(count)
        worth += count * sizing.weights[at]
    return UnitPattern(taken, worth)


def fill(row: NeedRow, left: tuple[int, ...], stock: Stock, most: int) -> tuple[int, ...]:
    """What is left after up to so many machines of a stock are filled."""
    return fill_kind(row.sizing, left, stock.kind, stock.amounts, most)


def fill_kind(
    sizing: Sizing, left: tuple[int, ...], kind: int, amounts: list[int], most: int
) -> tuple[int, ...]:
    """The same for machines with some amounts."""
    while most > 0 and any(left):
        taken = pattern_of_kind(sizing, left, kind, amounts).taken
        times = most
        for at in range(len(taken)):
            if taken[at]:
                again = left[at] // taken[at]
                if again < times:
                    times = again
        left = tuple([left[at] - taken[at] * times for at in range(len(taken))])
        most -= times
    return left


def left_over(row: NeedRow, supply: Supply, bag: dict[Stock, int]) -> tuple[int, ...]:
    """The units of each size that find no room on some machines, given by stock."""
    if len(row.counts) == 1:
        count = row.counts[0]
        for stock, machines in bag.items():
            count -= machines * supply.rooms[supply.rank[stock]]
        return (count,) if count > 0 else (0,)
    left = row.counts
    if len(bag) > 1:
        for place in sorted([supply.rank[stock] for stock in bag]):
            stock = supply.order[place]
            left = fill(row, left, stock, bag[stock])
    else:
        for stock, machines in bag.items():
            left = fill(row, left, stock, machines)
    return left


def covers(row: NeedRow, supply: Supply, bag: dict[Stock, int]) -> bool:
    """Whether all units of a row find room on some machines."""
    if len(row.counts) > 1:
        have = total(row, bag)
        for at in range(len(have)):
            if have[at] < row.want[at]:
                return False  # which is quicker to find
    return not any(left_over(row, supply, bag))


def unit_price(row: NeedRow, stock: Stock, room: int, cost: float) -> float:
    """What a machine costs for a unit of what it would take of those that the row still lacks.

    It has room for so many of the largest. Smaller units count by their share of the largest.
    Infinite where it would take none.
    """
    left = row.left
    if len(left) == 1:
        return cost / (room if room < left[0] else left[0])
    worth = pattern(row, left, stock).worth
    return cost / worth if worth else math.inf


def largest_taken(row: NeedRow, left: tuple[int, ...], stock: Stock) -> int:
    """The number of the largest size of which a machine takes some of what is left."""
    return 0 if len(left) == 1 else pattern(row, left, stock).largest


def helps(row: NeedRow, left: tuple[int, ...], stock: Stock) -> bool:
    """Whether a machine takes something of what is left."""
    return largest_taken(row, left, stock) < len(left)


def total(row: NeedRow, bag: dict[Stock, int]) -> list[int]:
    """What some machines offer of each resource that a row asks for."""
    resources = row.sizing.resources
    found = [0] * len(resources)
    for stock, count in bag.items():
        for at in range(len(found)):
            found[at] += count * stock.amounts[resources[at]]
    return found


def could_spare(row: NeedRow, bag: dict[Stock, int]) -> bool:
    """Whether a machine is no larger in anything than what its row has too much of."""
    have, resources = total(row, bag), row.sizing.resources
    for stock in bag:
        is_small = True
        for at in range(len(have)):
            if stock.amounts[resources[at]] > have[at] - row.want[at]:
                is_small = False
        if is_small:
            return True
    return False


def missing(row: NeedRow, left: tuple[int, ...]) -> list[int]:
    """What units that are left ask for, by resource."""
    found = [0] * len(row.want)
    for at, size in enumerate(row.sizing.sizes):
        for place in range(len(found)):
            found[place] += left[at] * size[place]
    return found


def add(bag: dict[Stock, int], stock: Stock, count: int) -> None:
    """So many machines more, or fewer."""
    left = bag.get(stock, 0) + count
    if left:
        bag[stock] = left
    else:
        del bag[stock]


def both(one: dict[Stock, int], other: dict[Stock, int]) -> dict[Stock, int]:
    """The machines of two bags in one."""
    bag = dict(one)
    for stock, count in other.items():
        bag[stock] = bag.get(stock, 0) + count
    return bag


def free_of(stocks: list[Stock]) -> dict[Stock, int]:
    """The machines of some stocks that any need may have."""
    return {stock: stock.free_count for stock in stocks if stock.free_count}
