"""In which domain a gang shall be: the one total order by which domains are compared."""

from windtunnel.fleet.planner.entries import NOT_COMING, ONLY_PLANNED, MachineEntry, NeedRow, Supply
from windtunnel.fleet.planner.moves import Moves, covered

WITH_FREE = 0
WITH_VICTIMS = 1
NEVER = 2


def find_whole(row: NeedRow, supply: Supply) -> bool:
    """Whether a gang is whole somewhere; there it stays, whatever else there is."""
    sums = _by_domain(row, supply, row.held)
    for value in sorted(sums):
        if covered(sums[value], row.want):
            row.domain = value
            return True
    return False


def settle(moves: Moves, row: NeedRow, supply: Supply) -> None:
    """Chooses the domain of a gang that is not whole, and lets go of what it has elsewhere.

    Where no domain can have all of it, nothing is taken and what is there stays.
    """
    row.domain = _best(row, supply)
    if row.domain:
        moves.keep(row)
        return
    row.have = [0] * len(row.want)
    for entry in list(row.held):
        stage = entry.stage()
        if stage == NOT_COMING:
            continue
        if stage != ONLY_PLANNED and entry.stock in supply.rank:
            moves.gain(row, entry.stock, 1)
            moves.credit(row, entry)
        else:
            moves.spare(entry)


def _best(row: NeedRow, supply: Supply) -> str:
    """The first domain in this order, or none where none could ever have all of a gang:

    satisfiable with what is free, then with what lower priorities hold; the most that is there
    already; the most of it the gang's own; the tightest fit; the name.
    """
    if not row.held and not row.promised and not row.cluster.surplus:
        tightest = _tightest(row, supply)
        if tightest:
            return tightest
    nothing = [0] * len(row.want)
    own = _by_domain(row, supply, row.held)
    spare = _by_domain(row, supply, list(row.cluster.surplus.values()))
    promised = _by_domain(row, supply, row.promised)
    best = ""
    best_tier = NEVER
    best_rank = (0.0, 0.0, 0.0)
    for value in supply.values:
        mine = own.get(value, nothing)
        creditable = _sum(mine, spare.get(value, nothing))
        joint = _with_free(row, supply, value, list(creditable))
        tier = WITH_FREE
        if not covered(joint, row.want):
            tier = WITH_VICTIMS
            joint = _with_victims(row, supply, value, _sum(joint, promised.get(value, nothing)))
            if not covered(joint, row.want):
                continue
        if tier > best_tier:
            continue
        rank = (-coverage(creditable, row.want), -coverage(mine, row.want), size(joint, row.want))
        if tier < best_tier or rank < best_rank:
            best, best_tier, best_rank = value, tier, rank
    return best


def _tightest(row: NeedRow, supply: Supply) -> str:
    """For a gang that has nothing yet: the domain whose free machines leave the least over."""
    best, best_size = "", 0.0
    for value in supply.values:
        joint = _with_free(row, supply, value, [0] * len(row.want))
        if covered(joint, row.want):
            found = size(joint, row.want)
            if not best or found < best_size:
                best, best_size = value, found
    return best


def _by_domain(row: NeedRow, supply: Supply, entries: list[MachineEntry]) -> dict[str, list[int]]:
    """What machines offer, by domain. Those that leave count only for whom they leave for."""
    sums: dict[str, list[int]] = {}
    leaving = entries is row.promised
    for entry in entries:
        if entry.stock in supply.rank and (leaving or entry.stage() != NOT_COMING):
            value = entry.stock.attributes[row.domain_key]
            found = sums.get(value)
            if found is None:
                found = [0] * len(row.want)
                sums[value] = found
            amounts = entry.stock.amounts
            for at in range(len(found)):
                found[at] += amounts[row.resources[at]]
    return sums


def _sum(one: list[int], other: list[int]) -> list[int]:
    return [one[at] + other[at] for at in range(len(one))]


def _with_free(row: NeedRow, supply: Supply, value: str, found: list[int]) -> list[int]:
    for stock in supply.domains[value]:
        count = stock.free_count
        if count:
            amounts = stock.amounts
            for at in range(len(found)):
                found[at] += count * amounts[row.resources[at]]
    return found


def _with_victims(row: NeedRow, supply: Supply, value: str, found: list[int]) -> list[int]:
    for stock in supply.domains[value]:
        count = stock.takeable_below(row.priority)
        if count:
            amounts = stock.amounts
            for at in range(len(found)):
                found[at] += count * amounts[row.resources[at]]
    return found


def coverage(have: list[int], want: list[int]) -> float:
    """The share of each amount that is there, at most 1, summed."""
    found = 0.0
    for at in range(len(want)):
        share = have[at] / want[at]
        found += share if share < 1.0 else 1.0
    return found


def size(have: list[int], want: list[int]) -> float:
    """As coverage, without the limit."""
    found = 0.0
    for at in range(len(want)):
        found += have[at] / want[at]
    return found
