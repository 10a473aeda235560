"""Whether the units of a need fit on machines: each machine is filled with the largest that fit.

Machines are filled in one order, that of the supply, so that the result depends only on which
machines there are, not on how they were acquired. Machines that host every unit come first; those
with room only for small ones take the rest.
"""

import math
from typing import Final

from windtunnel.fleet.planner.entries import NeedRow, Sizing, Stock, Supply, UnitPattern

MOST_PATTERNS: Final = 10_000
"""Patterns cached per kind of machine and set of sizes."""


def pattern(row: NeedRow, left: tuple[int, ...], stock: Stock) -> UnitPattern:
    """The units that one machine takes out of those left; cached by kind of machine."""
    return pattern_of_kind(row.sizing, left, stock.kind, stock.amounts)


def pattern_of_kind(
    sizing: Sizing, left: tuple[int, ...], kind: int, amounts: list[int]
) -> UnitPattern:
    """As `pattern`, for a machine with these amounts."""
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
    """The units left after up to this many machines of a stock are filled."""
    return fill_kind(row.sizing, left, stock.kind, stock.amounts, most)


def fill_kind(
    sizing: Sizing, left: tuple[int, ...], kind: int, amounts: list[int], most: int
) -> tuple[int, ...]:
    """As `fill`, for machines with these amounts."""
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
    """The units of each size that do not fit on these machines, given by stock."""
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
    """Whether all units of a row fit on these machines."""
    if len(row.counts) > 1:
        have = total(row, bag)
        for at in range(len(have)):
            if have[at] < row.want[at]:
                return False  # a quick check first
    return not any(left_over(row, supply, bag))


def unit_price(row: NeedRow, stock: Stock, room: int, cost: float) -> float:
    """The cost of a machine per unit that it would take of those the row still lacks.

    `room` is the number of largest units that fit. Smaller units count by their share of the
    largest. Infinite if it would take none.
    """
    left = row.left
    if len(left) == 1:
        return cost / (room if room < left[0] else left[0])
    worth = pattern(row, left, stock).worth
    return cost / worth if worth else math.inf


def largest_taken(row: NeedRow, left: tuple[int, ...], stock: Stock) -> int:
    """The number of the largest size that a machine takes out of the units left."""
    return 0 if len(left) == 1 else pattern(row, left, stock).largest


def helps(row: NeedRow, left: tuple[int, ...], stock: Stock) -> bool:
    """Whether a machine takes any of the units left."""
    return largest_taken(row, left, stock) < len(left)


def total(row: NeedRow, bag: dict[Stock, int]) -> list[int]:
    """The amounts that these machines offer of each resource that a row asks for."""
    resources = row.sizing.resources
    found = [0] * len(resources)
    for stock, count in bag.items():
        for at in range(len(found)):
            found[at] += count * stock.amounts[resources[at]]
    return found


def could_spare(row: NeedRow, bag: dict[Stock, int]) -> bool:
    """Whether some machine is no larger than the row's surplus in every resource."""
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
    """The amounts for the units left, by resource."""
    found = [0] * len(row.want)
    for at, size in enumerate(row.sizing.sizes):
        for place in range(len(found)):
            found[place] += left[at] * size[place]
    return found


def add(bag: dict[Stock, int], stock: Stock, count: int) -> None:
    """Changes the number of machines of a stock in a bag."""
    left = bag.get(stock, 0) + count
    if left:
        bag[stock] = left
    else:
        del bag[stock]


def both(one: dict[Stock, int], other: dict[Stock, int]) -> dict[Stock, int]:
    """The machines of two bags together."""
    bag = dict(one)
    for stock, count in other.items():
        bag[stock] = bag.get(stock, 0) + count
    return bag


def free_of(stocks: list[Stock]) -> dict[Stock, int]:
    """The free machines of these stocks."""
    return {stock: stock.free_count for stock in stocks if stock.free_count}
