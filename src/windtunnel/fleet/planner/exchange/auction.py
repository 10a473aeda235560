"""Allocates machines that several needs want, by an auction among them.

If needs are served one after the other, the first takes machines that it could do without and
another could not. In an auction each bids for the machines with the lowest cost per unit, up to the
cost of its second choice; an outbid need bids on other machines. Nothing is actually paid: prices
only show which need gains most from a machine. Once every unit has a machine, the total cost is
close to the minimum.
"""

from typing import Final

FIRST_STEP: Final = 0.005
"""The smallest increment of a bid, as a share of the mean cost of a machine; it doubles after as
many bids as there are choices, so that every auction ends."""
MOST_ROUNDS: Final = 12
"""After this many doublings there are not enough machines for all, and the auction is abandoned."""
MOST_BIDDERS: Final = 200
"""With more needs than this, those of one kind bid together."""
LEAST_SAVING: Final = 0.001
"""The share of the cost that must be saved; otherwise needs keep their machines."""
NO_NEED: Final = -1


class Choice:
    """Machines that suit a need: their stock, how many units fit on one, and its cost."""

    __slots__ = ("cost", "room", "stock")

    def __init__(self, stock: int, room: int, cost: float) -> None:
        self.stock: Final = stock
        self.room: Final = room
        self.cost: Final = cost


class BiddingNeed:
    """A need: its number of units of one size, its choices, and how many of each it has now."""

    __slots__ = ("choices", "has", "kind", "units")

    def __init__(self, kind: int, units: int, choices: list[Choice], has: list[int]) -> None:
        self.kind: Final = kind  # the same for all needs with the same choices
        self.units: Final = units
        self.choices: Final = choices
        self.has: Final = has


def is_worth_it(free: list[int], kinds: list[BiddingNeed], *, is_short: bool) -> bool:
    """Whether reallocating machines may pay off, by what the needs of each kind have together.

    Rounding to whole machines per need is ignored, so that thousands of needs are treated as a few
    kinds. If a need is short, it suffices that there are machines for all.
    """
    left = list(free)
    for need in kinds:
        for at, choice in enumerate(need.choices):
            left[choice.stock] -= need.has[at]
    if len(kinds) < 2 or not _is_contended(left, kinds):
        return False
    bidders = [Bidder(need.units, need.choices) for need in kinds]
    if not Auction(free, bidders).run():
        return False
    before, after = 0.0, 0.0
    for need, bidder in zip(kinds, bidders, strict=True):
        before += _cost_of_units(need, need.has)
        after += _cost_of_units(need, bidder.held)
    return is_short or after < before * (1.0 - LEAST_SAVING)


def _cost_of_units(need: BiddingNeed, held: list[int]) -> float:
    """The cost of some machines, without their unused room."""
    cost, room = 0.0, 0
    for at, choice in enumerate(need.choices):
        cost += held[at] * choice.cost
        room += held[at] * choice.room
    return cost * need.units / room if room > need.units else cost


def share_out(free: list[int], needs: list[BiddingNeed]) -> list[list[int]] | None:
    """How many machines of each of its choices every need gets so that none is short, if one is
    short now or the total becomes cheaper. None: needs keep their machines.

    `free` counts the machines of each stock, including those that the needs have.
    """
    groups: dict[int, list[BiddingNeed]] = {}
    for number, need in enumerate(needs):
        groups.setdefault(need.kind if len(needs) > MOST_BIDDERS else number, []).append(need)
    bidders = {
        number: Bidder(sum([need.units for need in group]), group[0].choices)
        for number, group in groups.items()
    }
    if not Auction(free, list(bidders.values())).run():
        return None
    left = list(free)
    for bidder in bidders.values():
        for at, choice in enumerate(bidder.choices):
            left[choice.stock] -= bidder.held[at]
    shares: dict[BiddingNeed, list[int]] = {}
    for number, group in groups.items():
        for need in group:
            share = _take(need, bidders[number].held, left)
            if share is None:
                return None
            shares[need] = share
    found = [shares[need] for need in needs]
    return found if _is_better(needs, found) else None


def _is_better(needs: list[BiddingNeed], shares: list[list[int]]) -> bool:
    """Whether a need is short with what it has now, or the total becomes cheaper."""
    before, after = 0.0, 0.0
    for need, share in zip(needs, shares, strict=True):
        room = 0
        for at, choice in enumerate(need.choices):
            room += need.has[at] * choice.room
            before += need.has[at] * choice.cost
            after += share[at] * choice.cost
        if room < need.units:
            return True
    return after < before * (1.0 - LEAST_SAVING)


def _is_contended(left: list[int], kinds: list[BiddingNeed]) -> bool:
    """Whether a stock that needs of two kinds could use is used up."""
    wanted: dict[int, int] = {}
    for need in kinds:
        for choice in need.choices:
            if not left[choice.stock]:
                wanted[choice.stock] = wanted.get(choice.stock, 0) + 1
                if wanted[choice.stock] > 1:
                    return True
    return False


def _take(need: BiddingNeed, quota: list[int], left: list[int]) -> list[int] | None:
    """The machines for one need: from the quota of its kind, then from the rest."""
    share = [0] * len(quota)
    room = 0
    while room < need.units:
        best, least, own = -1, 0.0, False
        for at, choice in enumerate(need.choices):
            mine = quota[at] > 0
            if mine < own or not (mine or left[choice.stock]):
                continue
            fits = need.units - room
            price = choice.cost / (choice.room if choice.room < fits else fits)
            if best < 0 or mine > own or price < least:
                best, least, own = at, price, mine
        if best < 0:
            return None
        choice = need.choices[best]
        count = (need.units - room) // choice.room
        most = quota[best] if own else left[choice.stock]
        count = 1 if not count else count if count < most else most
        if own:
            quota[best] -= count
        else:
            left[choice.stock] -= count
        share[best] += count
        room += count * choice.room
    for at, choice in enumerate(need.choices):  # the last one may have made others superfluous
        spare = (room - need.units) // choice.room
        count = spare if spare < share[at] else share[at]
        share[at] -= count
        room -= count * choice.room
        left[choice.stock] += count
    return share


class Bidder:
    """One need, or all needs of a kind."""

    __slots__ = ("choices", "held", "lacks", "units")

    def __init__(self, units: int, choices: list[Choice]) -> None:
        self.units: Final = units
        self.choices: Final = choices
        self.lacks = units  # units without a machine
        self.held: Final = [0] * len(choices)  # machines, by choice

    def change(self, at: int, count: int) -> None:
        """Changes its number of machines of a choice."""
        self.held[at] += count
        room = 0
        for place, choice in enumerate(self.choices):
            room += self.held[place] * choice.room
        self.lacks = self.units - room if room < self.units else 0


class Lot:
    """Machines of one stock that one bidder has at one price."""

    __slots__ = ("at", "count", "holder", "price")

    def __init__(self, price: float, holder: int, at: int, count: int) -> None:
        self.price: Final = price
        self.holder: Final = holder
        self.at: Final = at  # the number of its holder's choice
        self.count = count


class Auction:
    """Machines by stock, and the needs that bid for them."""

    def __init__(self, free: list[int], bidders: list[Bidder]) -> None:
        self._bidders: Final = bidders
        self._lots: Final = [[Lot(0.0, NO_NEED, 0, count)] if count else [] for count in free]
        costs = [choice.cost for bidder in bidders for choice in bidder.choices]
        self._bids_a_round: Final = len(costs)
        self._step = FIRST_STEP * sum(costs) / len(costs) if costs else 0.0
        self._alone: Final = max(costs, default=0.0)
        """The extra amount bid by a need without a second choice."""

    def run(self) -> bool:
        """Runs the auction until all units have a machine. False if it is abandoned."""
        bidders = self._bidders
        turns = list(range(len(bidders)))
        at, bids = 0, 0
        while at < len(turns):
            number = turns[at]
            at += 1
            while bidders[number].lacks:
                bids += 1
                if bids % self._bids_a_round == 0:
                    self._step *= 2.0
                    if bids == MOST_ROUNDS * self._bids_a_round:
                        return False
                if not self._bid(number, turns):
                    return False
        return True

    def _bid(self, number: int, turns: list[int]) -> bool:
        """Places one bid; an outbid need gets another turn. False if no machine is left."""
        bidder = self._bidders[number]
        best, best_value, second = -1, 0.0, -1.0
        found: Lot | None = None
        for at, choice in enumerate(bidder.choices):
            lot = self._cheapest(choice.stock, number)
            if lot is None:
                continue
            room = choice.room if choice.room < bidder.lacks else bidder.lacks
            value = (choice.cost + lot.price) / room
            if best < 0 or value < best_value:
                if best >= 0:
                    second = best_value
                best, best_value, found = at, value, lot
            elif second < 0.0 or value < second:
                second = value
        if found is None:
            return False
        choice = bidder.choices[best]
        room = choice.room if choice.room < bidder.lacks else bidder.lacks
        above = (second - best_value) * room if second >= 0.0 else self._alone
        count = bidder.lacks // room
        count = count if count < found.count else found.count
        found.count -= count
        if not found.count:
            self._lots[choice.stock].remove(found)
        price = found.price + above + self._step
        self._lots[choice.stock].append(Lot(price, number, best, count))
        bidder.change(best, count)
        if found.holder != NO_NEED:
            self._bidders[found.holder].change(found.at, -count)
            turns.append(found.holder)
        return True

    def _cheapest(self, stock: int, but: int) -> Lot | None:
        """The lot of a stock with the lowest price, except those of one bidder."""
        best: Lot | None = None
        for lot in self._lots[stock]:
            if lot.holder != but and (best is None or lot.price < best.price):
                best = lot
        return best
