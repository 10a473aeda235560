"""Exchanges machines taken in a cycle between needs, to lower the cost or help one that is short.

None of the actions has begun. Needs with units of one size bid for machines in an auction. If there
are few needs and some have several sizes, they trade in pairs instead. Gangs and spreads keep what
they took. Idle machines and places in quotas are exchanged separately, so that no need waits for a
machine that it could have at once.
"""

from typing import Final

from windtunnel.fleet.planner.actions import BOOTSTRAP, PROVISION, Action
from windtunnel.fleet.planner.entries import NeedRow, Stock, Supply
from windtunnel.fleet.planner.exchange.auction import BiddingNeed, Choice, is_worth_it, share_out
from windtunnel.fleet.planner.exchange.trading import MOST_TRADERS, Trader, Ware, trade
from windtunnel.fleet.planner.moves import Moves
from windtunnel.fleet.planner.packing import add
from windtunnel.fleet.states import IDLE, SPECULATIVE


class MachineExchange:
    """The needs of a cycle that may exchange what they took."""

    def __init__(self, moves: Moves) -> None:
        self._moves: Final = moves
        # Needs in the order of service, and their ranges of actions. Plain lists, since a first
        # cycle has thousands of them.
        self._rows: Final[list[NeedRow]] = []
        self._begins: Final[list[int]] = []
        self._ends: Final[list[int]] = []
        self._idle: Final[list[int]] = []  # numbers of needs that took only idle machines, or none
        self._quota: Final[list[int]] = []  # the same for places in quotas
        self._changed: Final[dict[NeedRow, None]] = {}
        self._gone: Final[dict[int, None]] = {}  # actions to remove from the plan

    def note(self, row: NeedRow, began: int) -> None:
        """Records a need that was short and took machines, by the actions from `began` on."""
        if row.domain_key:
            return
        if len(row.counts) > 1 and len(row.held) > len(self._moves.actions) - began:
            return  # how its earlier machines are filled depends on what it takes
        actions, number = self._moves.actions, len(self._rows)
        self._rows.append(row)
        self._begins.append(began)
        self._ends.append(len(actions))
        if began == len(actions):
            self._idle.append(number)
            self._quota.append(number)
            return
        kind = actions[began].kind
        # Units of one size take surplus machines of the cluster first, and places in quotas last;
        # of several sizes, a small one may take an idle machine after a place in a quota.
        for at in range(began if len(row.counts) > 1 else len(actions) - 1, len(actions)):
            if actions[at].kind != kind:
                return
        if kind == BOOTSTRAP:
            self._idle.append(number)
        elif kind == PROVISION:
            self._quota.append(number)

    def run(self) -> bool:
        """Lets needs exchange what they took: including those that are short, or else without them.

        Returns whether anything changed.
        """
        self._run(self._idle, IDLE)
        if self._changed:
            self._quota[:] = [at for at in self._quota if self._rows[at] not in self._changed]
        self._run(self._quota, SPECULATIVE)
        for some in (self._begins, self._ends, self._idle, self._quota):
            some.clear()
        self._rows.clear()
        if not self._changed:
            return False
        self._changed.clear()
        kept: list[Action] = []
        for at, action in enumerate(self._moves.actions):
            if at not in self._gone:
                kept.append(action)
        self._moves.actions[:] = kept
        self._gone.clear()
        return True

    def _run(self, numbers: list[int], state: int) -> None:
        several = [number for number in numbers if len(self._rows[number].counts) > 1]
        if several:
            if len(numbers) <= MOST_TRADERS:
                self._trade(numbers, state)
                return
            numbers = [number for number in numbers if len(self._rows[number].counts) == 1]
        whole = [number for number in numbers if self._rows[number].whole]
        if whole and not self._try(numbers, state) and len(whole) < len(numbers):
            self._try(whole, state)

    def _try(self, numbers: list[int], state: int) -> bool:
        """Exchanges machines in a state, if that is better."""
        rows = self._rows
        pools = MachinePools(state)
        is_short = False
        for number in numbers:
            pools.join(rows[number], self._taken(number))
            is_short = is_short or not rows[number].whole
        if not pools.divide() or not is_worth_it(pools.free, pools.needs(), is_short=is_short):
            return False
        needs = [pools.need(rows[number], self._taken(number)) for number in numbers]
        shares = share_out(pools.free, needs)
        if shares is None:
            return False
        changed = [at for at, share in enumerate(shares) if share != needs[at].has]
        for at in changed:
            self._give_back(numbers[at])
        for at in changed:
            row = rows[numbers[at]]
            for choice, count in zip(needs[at].choices, shares[at], strict=True):
                self._take(row, pools.pools[choice.stock], count, state)
            row.whole = not any(row.left)
        return True

    def _trade(self, numbers: list[int], state: int) -> None:
        """Lets needs trade machines in a state, in pairs."""
        rows = self._rows
        pools = MachinePools(state)
        for number in numbers:
            pools.join(rows[number], self._taken(number))
        if not pools.divide():
            return
        traders = [pools.trader(rows[number], self._taken(number)) for number in numbers]
        before = [one.has for one in traders]
        free = list(pools.free)
        for one in traders:
            for at, ware in enumerate(one.wares):
                free[ware.pool] -= one.has[at]
        if not trade(free, traders):
            return
        changed = [at for at, one in enumerate(traders) if one.has != before[at]]
        for at in changed:
            self._give_back(numbers[at])
        for at in changed:
            row = rows[numbers[at]]
            for ware, count in zip(traders[at].wares, traders[at].has, strict=True):
                self._take(row, pools.pools[ware.pool], count, state)
            row.whole = not any(row.left)

    def _taken(self, number: int) -> dict[Stock, int]:
        """The machines that a need took, by stock."""
        row, begin, end = self._rows[number], self._begins[number], self._ends[number]
        if end - begin == len(row.held):
            return row.bag
        taken: dict[Stock, int] = {}
        for at in range(begin, end):
            entry = self._moves.inventory.entries[self._moves.actions[at].machine]
            add(taken, entry.stock, 1)
        return taken

    def _give_back(self, number: int) -> None:
        """Frees the machines that a need took, and removes them from the plan."""
        row = self._rows[number]
        self._changed[row] = None
        for at in range(self._begins[number], self._ends[number]):
            self._gone[at] = None
            self._moves.give_back(row, self._moves.actions[at].machine)

    def _take(self, row: NeedRow, stocks: list[Stock], count: int, state: int) -> None:
        """Takes this many machines of a pool, which must have them."""
        for stock in stocks:
            free = stock.idle_count if state == IDLE else stock.quota_count
            some = free if free < count else count
            if some:
                self._moves.take_some(row, stock, state, some)
                count -= some
        assert not count


class MachinePools:
    """Machines that are free or were just taken, grouped if alike to every need of an exchange."""

    def __init__(self, state: int) -> None:
        self._state: Final = state
        self._kinds: Final[dict[int, int]] = {}  # by id of a supply
        self._supplies: Final[list[Supply]] = []
        self._units: Final[list[int]] = []
        self._taken: Final[list[dict[Stock, int]]] = []
        self._choices: list[list[Choice]] = []
        self.pools: Final[list[list[Stock]]] = []
        self.free: Final[list[int]] = []
        self._number: Final[dict[Stock, int]] = {}

    def join(self, row: NeedRow, taken: dict[Stock, int]) -> None:
        """Adds a need, with the machines that it took."""
        supply = row.supply
        assert supply is not None
        kind = self._kinds.get(id(supply))
        if kind is None:
            kind = len(self._kinds)
            self._kinds[id(supply)] = kind
            self._supplies.append(supply)
            self._units.append(0)
            self._taken.append({})
        self._units[kind] += _units(row, supply, taken)
        mine = self._taken[kind]
        for stock, count in taken.items():
            mine[stock] = mine.get(stock, 0) + count

    def divide(self) -> bool:
        """Groups equivalent stocks. False if there is nothing to exchange."""
        if len(self._supplies) < 2:
            return False
        users: dict[Stock, int] = {}
        for kind, supply in enumerate(self._supplies):
            for stock in supply.order:
                users[stock] = users.get(stock, 0) | (1 << kind)
        taken: dict[Stock, int] = {}
        for mine in self._taken:
            for stock, count in mine.items():
                taken[stock] = taken.get(stock, 0) + count
        alike: dict[tuple[int, float, float, int], int] = {}
        for stock in sorted(users, key=_by_key):
            free = stock.idle_count if self._state == IDLE else stock.quota_count
            free += taken.get(stock, 0)
            if free:
                key = (stock.kind, stock.price, stock.probability, users[stock])
                number = alike.setdefault(key, len(alike))
                if number == len(self.pools):
                    self.pools.append([])
                    self.free.append(0)
                self.pools[number].append(stock)
                self.free[number] += free
                self._number[stock] = number
        self._choices = [self._choices_of(supply) for supply in self._supplies]
        return True

    def _choices_of(self, supply: Supply) -> list[Choice]:
        choices: list[Choice] = []
        for at, some in enumerate(self.pools):
            rank = supply.rank.get(some[0])
            if rank is not None:
                choices.append(Choice(at, supply.rooms[rank], supply.costs[rank]))
        return choices

    def needs(self) -> list[BiddingNeed]:
        """The joint requests of all needs of each kind."""
        kinds = range(len(self._supplies))
        return [self._need(kind, self._units[kind], self._taken[kind]) for kind in kinds]

    def need(self, row: NeedRow, taken: dict[Stock, int]) -> BiddingNeed:
        """The request of a need beyond what it had before, with the machines that it took."""
        supply = row.supply
        assert supply is not None
        return self._need(self._kinds[id(supply)], _units(row, supply, taken), taken)

    def trader(self, row: NeedRow, taken: dict[Stock, int]) -> Trader:
        """A trader for a need and the machines that it took."""
        supply = row.supply
        assert supply is not None
        ranked: list[tuple[int, int]] = []
        for number, some in enumerate(self.pools):
            rank = supply.rank.get(some[0])
            if rank is not None:
                ranked.append((rank, number))
        ranked.sort()
        by_pool = self._by_pool(taken)
        wares: list[Ware] = []
        has: list[int] = []
        for rank, number in ranked:
            stock = self.pools[number][0]
            wares.append(Ware(number, stock.kind, stock.amounts, supply.costs[rank]))
            has.append(by_pool.get(number, 0))
        if len(row.counts) == 1:
            return Trader(row.sizing, (_units(row, supply, taken),), wares, has)
        return Trader(row.sizing, row.counts, wares, has)

    def _by_pool(self, taken: dict[Stock, int]) -> dict[int, int]:
        by_pool: dict[int, int] = {}
        for stock, count in taken.items():
            number = self._number[stock]
            by_pool[number] = by_pool.get(number, 0) + count
        return by_pool

    def _need(self, kind: int, units: int, taken: dict[Stock, int]) -> BiddingNeed:
        by_pool = self._by_pool(taken)
        choices = self._choices[kind]
        return BiddingNeed(kind, units, choices, [by_pool.get(one.stock, 0) for one in choices])


def _units(row: NeedRow, supply: Supply, taken: dict[Stock, int]) -> int:
    """The units of a need, without those that had room before it took machines."""
    units = row.counts[0]
    if taken is not row.bag:
        for stock, count in row.bag.items():
            units -= (count - taken.get(stock, 0)) * supply.rooms[supply.rank[stock]]
    return max(units, 0)


def _by_key(stock: Stock) -> str:
    return stock.key
