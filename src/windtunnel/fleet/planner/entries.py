"""The planner's data: machine entries, stocks of equal machines, rows of needs, clusters.

A machine is one small entry that points at its stock (interchangeable machines of the same shape)
and at its row (the need that it is counted for). The only texts here are names.
"""

from typing import Final

from mypy_extensions import i32, u8

from windtunnel.fleet.need import NeedKey
from windtunnel.fleet.planner.actions import BOOTSTRAP, DELETE, NOTHING, PREEMPT, PROVISION
from windtunnel.fleet.planner.costs import PINNED, victim_score
from windtunnel.fleet.shape import MachineShape, Resources
from windtunnel.fleet.states import CONFIGURED, CONFIGURING, CREATING, IDLE, SPECULATIVE

THERE: Final = 0
BEING_CONFIGURED: Final = 1
BEING_CREATED: Final = 2
ONLY_PLANNED: Final = 3
NOT_COMING: Final = -1
"""How far a machine is on its way to the need that holds it."""

MANY: Final = 8
MOST_LEFT_OVER: Final = 1000
"""How many machines that are no longer free a list may hold, beyond the number of free ones."""


class MachineEntry:
    """One machine."""

    __slots__ = (
        "host",
        "id",
        "in_idle",
        "in_quota",
        "listed",
        "place",
        "planned",
        "resting",
        "row",
        "since_s",
        "spare",
        "state",
        "stock",
    )

    def __init__(self, name: str, stock: "Stock") -> None:
        self.id = name
        self.host = ""
        self.stock = stock
        self.row: NeedRow | None = None
        self.since_s = 0.0
        self.place: i32 = 0  # in the list of its row
        self.listed: i32 = 0  # the number of the last list that it was on
        self.state: u8 = SPECULATIVE
        self.planned: u8 = NOTHING
        self.in_idle = False  # whether it is in its stock's list of idle machines
        self.in_quota = False  # the same for speculative ones
        self.spare = False  # bound to a cluster in which no need requires it
        self.resting = False  # its drain was withdrawn in this cycle: it may not be taken

    def is_free(self) -> bool:
        """Whether any need may take it."""
        if self.state == IDLE:
            return self.planned in (NOTHING, DELETE)
        return self.state == SPECULATIVE and self.planned == NOTHING

    def stage(self) -> int:
        """How far it is on its way to its row."""
        if self.state == CONFIGURED:
            return NOT_COMING if self.planned == PREEMPT else THERE
        if self.state == CONFIGURING:
            return BEING_CONFIGURED
        if self.state == CREATING:
            return BEING_CREATED
        if self.planned in (BOOTSTRAP, PROVISION):
            return ONLY_PLANNED
        return NOT_COMING

    def is_takeable(self) -> bool:
        """Whether a need of higher priority could take it."""
        row = self.row
        return (
            self.state == CONFIGURED
            and self.planned == NOTHING
            and not self.spare
            and not self.resting
            and row is not None
            and row.yields
        )


class Stock:
    """Machines of one shape, with lists of the free ones."""

    def __init__(self, shape: MachineShape, amounts: list[int]) -> None:
        self.shape: Final = shape
        self.key: Final = shape.key()
        self.attributes: Final = shape.attributes()
        self.price: Final = shape.price_per_hour
        self.probability: Final = shape.interruption_probability
        self.capacity_type: Final = shape.capacity_type
        self.number = 0
        self.kind = 0  # the same for all stocks with the same resources
        self.amounts = amounts  # by the number of a resource
        self.idle_count = 0
        self.quota_count = 0  # places that may be created now
        self.closed = False  # the provider had no capacity: no place may be created for a while
        self._places = 0  # free places, whether or not it is closed
        # In descending order of ids. Taken ones stay until they are encountered, which is
        # cheaper than searching; if they become free again, they are already in place.
        self._idle: Final[list[MachineEntry]] = []
        self._quota: Final[list[MachineEntry]] = []
        self._sorted = True
        self.alive = 0  # machines that have not failed
        self.takeable: Final = Takeable()

    @property
    def free_count(self) -> int:
        return self.idle_count + self.quota_count

    def put(self, entry: MachineEntry) -> None:
        """Lists a machine that has become free."""
        if entry.state == IDLE:
            self.idle_count += 1
            if not entry.in_idle:
                entry.in_idle = True
                self._insert(self._idle, entry)
        else:
            self._count_places(1)
            if not entry.in_quota:
                entry.in_quota = True
                self._insert(self._quota, entry)

    def _insert(self, free: list[MachineEntry], entry: MachineEntry) -> None:
        if not self._sorted or not free or entry.id < free[-1].id:
            free.append(entry)
        elif entry.id > free[0].id and len(free) > MANY:
            free.append(entry)  # a fleet is loaded in the order of its ids: sort only once
            self._sorted = False
        else:
            free.insert(_place(free, entry.id), entry)

    def take_out(self, entry: MachineEntry) -> None:
        """Removes a machine from the count of free ones."""
        if entry.state == IDLE:
            self.idle_count -= 1
            if len(self._idle) > 2 * self.idle_count + MOST_LEFT_OVER:
                self._tidy(self._idle, IDLE)
        else:
            self._count_places(-1)
            if len(self._quota) > 2 * self._places + MOST_LEFT_OVER:
                self._tidy(self._quota, SPECULATIVE)

    def pop(self, state: int) -> MachineEntry:
        """Takes the first free machine in a state; there must be one."""
        if not self._sorted:
            self._order()
        if state == IDLE:
            self.idle_count -= 1
            free = self._idle
        else:
            self._count_places(-1)
            free = self._quota
        while True:
            entry = free.pop()
            _unlist(entry, state)
            if entry.state == state and entry.is_free():
                return entry

    def _count_places(self, more: int) -> None:
        self._places += more
        if not self.closed:
            self.quota_count = self._places

    def close(self, *, closed: bool) -> None:
        """Sets whether places may not be created now."""
        self.closed = closed
        self.quota_count = 0 if closed else self._places

    @property
    def withheld(self) -> int:
        """Free places that may not be created now."""
        return self._places - self.quota_count

    def _tidy(self, free: list[MachineEntry], state: int) -> None:
        """Drops machines that are no longer free from a list."""
        kept: list[MachineEntry] = []
        for entry in free:
            if entry.state == state and entry.is_free():
                kept.append(entry)
            else:
                _unlist(entry, state)
        free[:] = kept

    def _order(self) -> None:
        self._idle.sort(key=_by_id, reverse=True)
        self._quota.sort(key=_by_id, reverse=True)
        self._sorted = True

    def free(self) -> list[MachineEntry]:
        """All free machines, by id; to take one, use `pop`."""
        listed = [e for e in self._idle if e.state == IDLE and e.is_free()]
        if not self.closed:
            listed += [e for e in self._quota if e.state == SPECULATIVE and e.is_free()]
        return sorted(listed, key=_by_id)


def _unlist(entry: MachineEntry, state: int) -> None:
    if state == IDLE:
        entry.in_idle = False
    else:
        entry.in_quota = False


def _by_id(entry: MachineEntry) -> str:
    return entry.id


def _place(free: list[MachineEntry], name: str) -> int:
    """The position of an id in a list in descending order."""
    low, high = 0, len(free)
    while low < high:
        middle = (low + high) >> 1
        if free[middle].id > name:
            low = middle + 1
        else:
            high = middle
    return low


class TakeableLevel:
    """Needs of one priority with machines that could be taken, best victims first."""

    def __init__(self) -> None:
        self.count = 0  # of machines
        self.rows: dict[NeedRow, int] = {}
        self._order: list[NeedRow] = []
        self._from = 0  # before this one, none has a machine left
        self._sorted = True

    def change(self, row: "NeedRow", more: int) -> None:
        """Changes a need's number of machines that could be taken."""
        self.count += more
        before = self.rows.get(row, 0)
        if before + more:
            self.rows[row] = before + more
            if not before:
                self._sorted = False
        else:
            del self.rows[row]

    def first(self, but: "ClusterHoldings | None") -> "NeedRow | None":
        """The best need to take from, except those of one cluster."""
        if not self._sorted:
            self._order = sorted(self.rows, key=_rank)
            self.rows = {row: self.rows[row] for row in self._order}  # makes the next sort faster
            self._from = 0
            self._sorted = True
        order, rows = self._order, self.rows
        while self._from < len(order) and order[self._from] not in rows:
            self._from += 1
        for at in range(self._from, len(order)):
            row = order[at]
            if row.cluster is not but and row in rows:
                return row
        return None


NOT_KNOWN: Final = -(1 << 40)
"""Outside the range of priorities, which have 32 bits."""


class Takeable:
    """Machines of one shape that could be taken, by the priority of the need that has them."""

    def __init__(self) -> None:
        self.levels: Final[dict[int, TakeableLevel]] = {}
        self._first: NeedRow | None = None  # the best need to take from, in any cluster
        self._below = NOT_KNOWN  # the priority that it is for
        self._count = 0  # machines of lower priorities
        self._counted = NOT_KNOWN  # than this one

    def change(self, row: "NeedRow", more: int) -> None:
        self._below = self._counted = NOT_KNOWN
        level = self.levels.get(row.priority)
        if level is None:
            level = TakeableLevel()
            self.levels[row.priority] = level
        level.change(row, more)
        if not level.count:
            del self.levels[row.priority]

    def first(self, priority: int, but: "ClusterHoldings | None") -> "NeedRow | None":
        """The best need of lower priority to take from, except those of one cluster."""
        if self._below != priority:
            self._first = self._best(priority, None)
            self._below = priority
        found = self._first
        return self._best(priority, but) if found is not None and found.cluster is but else found

    def _best(self, priority: int, but: "ClusterHoldings | None") -> "NeedRow | None":
        best: NeedRow | None = None
        for level, needs in self.levels.items():
            if level < priority:
                found = needs.first(but)
                if found is not None and (best is None or found.rank < best.rank):
                    best = found
        return best

    def below(self, priority: int) -> int:
        """The number of machines of needs of lower priority."""
        if self._counted != priority:
            self._count = 0
            for level, held in self.levels.items():
                if level < priority:
                    self._count += held.count
            self._counted = priority
        return self._count


def _rank(row: "NeedRow") -> tuple[float, str, str, str]:
    return row.rank


class Offer:
    """Stocks that differ to a need only in their keys: the same amounts at the same cost."""

    def __init__(self, cost: float, room: int) -> None:
        self.cost: Final = cost
        self.room: Final = room  # largest units that fit on one machine
        self.stocks: Final[list[Stock]] = []  # by key
        self._epoch = -1
        self._idle_from = 0  # before this one, no stock has idle machines
        self._quota_from = 0

    def first(self, state: int, epoch: int) -> Stock | None:
        """The first stock with free machines in a state; any freed machine ends an epoch."""
        if self._epoch != epoch:
            self._epoch = epoch
            self._idle_from = 0
            self._quota_from = 0
        stocks = self.stocks
        if state == IDLE:
            at = self._idle_from
            while at < len(stocks) and not stocks[at].idle_count:
                at += 1
            self._idle_from = at
        else:
            at = self._quota_from
            while at < len(stocks) and not stocks[at].quota_count:
                at += 1
            self._quota_from = at
        return stocks[at] if at < len(stocks) else None


def _offers(stocks: list[Stock], costs: list[float], rooms: list[int]) -> list[Offer]:
    alike: dict[tuple[float, Resources], Offer] = {}
    for at, stock in enumerate(stocks):
        key = (costs[at], stock.shape.resources)
        if key not in alike:
            alike[key] = Offer(costs[at], rooms[at])
        alike[key].stocks.append(stock)
    return list(alike.values())


class Supply:
    """The stocks that suit a kind of need: those for the largest units first, then by unit cost."""

    def __init__(
        self,
        key: "tuple[str, Sizing]",
        order: list[Stock],
        costs: list[float],
        rooms: list[int],
        unit_costs: list[tuple[int, float]],
        domain_key: str,
    ) -> None:
        self.key: Final = key
        self.order: Final = order
        self.costs: Final = costs
        self.rooms: Final = rooms
        """By stock: how many units fit on one machine if each has the maximum of every resource; 0
        if only smaller ones fit."""
        self.unit_costs: Final = unit_costs
        """By stock: 0 if every unit fits on its machines, else a tier by the largest unit that
        does; and the cost per such unit on a full machine."""
        self.rank: Final[dict[Stock, int]] = {stock: at for at, stock in enumerate(order)}
        self.offers: Final = _offers(order, costs, rooms)
        self.domains: Final[dict[str, list[Stock]]] = {}
        self.domain_offers: Final[dict[str, list[Offer]]] = {}
        if domain_key:
            for stock in order:
                self.domains.setdefault(stock.attributes[domain_key], []).append(stock)
            for value, stocks in self.domains.items():
                ranks = [self.rank[stock] for stock in stocks]
                self.domain_offers[value] = _offers(
                    stocks, [costs[rank] for rank in ranks], [rooms[rank] for rank in ranks]
                )
        self.values: Final = sorted(self.domains)
        self.members: Final[dict[NeedRow, None]] = {}  # rows with this supply

    def withheld(self) -> int:
        """Suitable places of offerings for which the provider had no capacity."""
        return sum(stock.withheld for stock in self.order)

    def is_alive(self) -> bool:
        """Whether any machine matches, in use or not."""
        return any(stock.alive > 0 for stock in self.order)


class UnitPattern:
    """The units that one machine takes out of those left."""

    __slots__ = ("largest", "taken", "worth")

    def __init__(self, taken: list[int], worth: float) -> None:
        self.taken: Final = taken  # by size
        self.worth: Final = worth  # in units of the largest size
        self.largest = 0
        """The number of the largest size that it takes; the number of sizes if it takes nothing."""
        while self.largest < len(taken) and not taken[self.largest]:
            self.largest += 1


class Sizing:
    """The unit sizes of some needs, and how machines are filled with them."""

    def __init__(self, resources: list[int], sizes: list[list[int]]) -> None:
        self.resources: Final = resources  # the numbers of the requested resources, by name
        self.sizes: Final = sizes  # amounts of these; largest first
        self.weights: Final = [_share(size, sizes) for size in sizes]
        self.patterns: Final[dict[int, dict[tuple[int, ...], UnitPattern]]] = {}
        """By kind of machine and the units left."""

    def room(self, at: int, amounts: list[int]) -> int:
        """How many units of one size fit on an empty machine with these amounts."""
        size = self.sizes[at]
        return min(
            [
                amounts[self.resources[place]] // size[place]
                for place in range(len(size))
                if size[place]
            ]
        )


def _share(size: list[int], sizes: list[list[int]]) -> float:
    """The weight of a unit relative to one with the maximum of every resource."""
    found = 0.0
    for at in range(len(size)):
        found += size[at] / max([one[at] for one in sizes])
    return found / len(size)


NO_UNITS: Final = Sizing([], [])


class ClusterHoldings:
    """A cluster, and its surplus machines."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.ready = False  # whether it has sent its needs
        self.surplus: Final[dict[str, MachineEntry]] = {}
        self.configured = 0
        self.rows: Final[dict[NeedRow, None]] = {}
        self.unknown: Final = NeedRow(self, NeedKey(name, "", ""), 0, 0, 0)
        """Holds machines of the cluster whose need is unknown."""
        self.unknown.yields = False


class NeedRow:
    """A need, or the rest of one while machines are still counted for it."""

    def __init__(
        self,
        cluster: ClusterHoldings,
        key: NeedKey,
        priority: int,
        interruption_bucket: int,
        reclamation_bucket: int,
    ) -> None:
        self.cluster: Final = cluster
        self.key: Final = key
        self.priority: Final = priority
        self.interruption_bucket: Final = interruption_bucket
        self.reclamation_bucket: Final = reclamation_bucket
        self.yields = reclamation_bucket != PINNED
        """Whether needs of higher priority may take its machines."""
        value = priority - victim_score(interruption_bucket, reclamation_bucket)
        self.rank: Final = (value, key.cluster, key.fingerprint, key.group)
        """The order in which needs lose machines to higher priorities."""
        self.live = False  # whether its cluster asks for it
        self.turn = (0.0, key)  # the order of service within a priority, as `Need.order`
        self.want: list[int] = []  # total of each requested resource
        self.sizing = NO_UNITS  # the sizes of its units
        self.counts: tuple[int, ...] = ()  # how many units there are of each size
        self.supply: Supply | None = None
        self.domain_key = ""  # of its Same, or of its spread
        self.same = False
        self.skew = 0
        self.held: Final[list[MachineEntry]] = []
        self.promised: Final[list[MachineEntry]] = []
        self.bag: dict[Stock, int] = {}  # as of its turn: the machines that count for it
        self.left: tuple[int, ...] = ()  # as of its turn: units without room on these, by size
        self.whole = True
        self.dirty = False
        self.domain = ""
        self.verdict = 0
