"""Whether the units of a need fit on machines: each machine is filled with the largest that fit.

Machines are filled in one order, the cheapest for a unit first, so that the answer depends on which
machines there are and not on how they came. All units fit on each machine of a supply, one at a
time; so every machine more takes something, as long as something is left.
"""

from windtunnel.fleet.planner.entries import NeedRow, Stock, Supply


def pattern(row: NeedRow, left: list[int], amounts: list[int]) -> list[int]:
    """How many units of each size one machine takes of those that are left."""
    free = [amounts[resource] for resource in row.resources]
    taken: list[int] = []
    for at, size in enumerate(row.sizes):
        count = left[at]
        if count:
            for place in range(len(size)):
                if size[place]:
                    room = free[place] // size[place]
                    if room < count:
                        count = room
            if count:
                for place in range(len(size)):
                    free[place] -= count * size[place]
        taken.append(count)
    return taken


def fill(row: NeedRow, left: list[int], amounts: list[int], most: int) -> None:
    """Fills up to so many equal machines, and takes what they hold off what is left."""
    while most > 0:
        taken = pattern(row, left, amounts)
        times = most
        any_taken = False
        for at in range(len(taken)):
            if taken[at]:
                any_taken = True
                again = left[at] // taken[at]
                if again < times:
                    times = again
        if not any_taken:
            return
        for at in range(len(taken)):
            left[at] -= taken[at] * times
        most -= times


def left_over(row: NeedRow, supply: Supply, bag: dict[Stock, int]) -> list[int]:
    """The units of each size that find no room on some machines, given by stock."""
    if len(row.counts) == 1:
        count = row.counts[0]
        for stock, machines in bag.items():
            count -= machines * supply.rooms[supply.rank[stock]]
        return [count] if count > 0 else [0]
    left = list(row.counts)
    for place in sorted([supply.rank[stock] for stock in bag]):
        stock = supply.order[place]
        fill(row, left, stock.amounts, bag[stock])
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

    It has room for so many of the largest. Units of several sizes count by their shares of all that
    the row asks for.
    """
    left = row.left
    if len(left) == 1:
        return cost / (room if room < left[0] else left[0])
    taken = pattern(row, left, stock.amounts)
    worth = 0.0
    for at in range(len(taken)):
        worth += taken[at] * row.weights[at]
    return cost / worth


def weigh(row: NeedRow) -> list[float]:
    """What a unit of each size is worth beside the others."""
    weights: list[float] = []
    for size in row.sizes:
        found = 0.0
        for at in range(len(size)):
            found += size[at] / row.want[at]
        weights.append(found)
    return weights


def total(row: NeedRow, bag: dict[Stock, int]) -> list[int]:
    """What some machines offer of each resource that a row asks for."""
    found = [0] * len(row.resources)
    for stock, count in bag.items():
        for at in range(len(found)):
            found[at] += count * stock.amounts[row.resources[at]]
    return found


def missing(row: NeedRow, left: list[int]) -> list[int]:
    """What units that are left ask for, by resource."""
    found = [0] * len(row.resources)
    for at, size in enumerate(row.sizes):
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
    """The machines of some stocks that anybody may have."""
    return {stock: stock.free_count for stock in stocks if stock.free_count}
