"""How far an assignment is from the optimum: a lower bound by linear programming.

The decision cycle is greedy. On sampled cycles, off the hot path, its cost is compared with a bound
that no assignment of the same machines to the same needs can beat. Rules that only raise the cost
(one domain for a gang, an even spread) are left out of the bound: the true gap is at most the
reported one.
"""

import math
from typing import TYPE_CHECKING, Final

import msgspec

from windtunnel.core.random import Stream
from windtunnel.fleet.planner.costs import effective_cost
from windtunnel.fleet.planner.cycle import Planner
from windtunnel.fleet.planner.entries import (
    NOT_COMING,
    MachineEntry,
    NeedRow,
    Sizing,
    Stock,
    Supply,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

SAMPLED_ROWS: Final = 40
_INFEASIBLE: Final = 2
SOLVE_S: Final = 10.0
"""Time limit for solving with whole machines; what is proved by then is the bound."""


class CostGap(msgspec.Struct, frozen=True):
    """The cost of the assigned machines, and a lower bound for any assignment."""

    rows: int
    machines: int
    """Machines that count for those rows."""
    cost: float
    """Effective dollars per hour of these machines."""
    bound: float
    gap: float
    """The cost above the bound, as a share of the bound."""
    whole_machines: bool
    """Whether the bound is for whole machines; otherwise fractions of machines are allowed, which
    costs less."""
    proved: bool
    """Whether the solver finished."""


class BoundGroup(msgspec.Struct, frozen=True):
    """Needs that are bounded together: their supply, and the units that must fit."""

    supply: Supply
    sizing: Sizing
    counts: list[int]


class BoundModel:
    """The assignment as a linear program: how many machines of each stock each group of needs gets.

    For a group with units of several sizes, the program also chooses how many units of each size go
    on the machines of a stock in total: whether these units can be divided among the machines is
    left open.
    """

    def __init__(self, groups: list[BoundGroup]) -> None:
        self._groups: Final = groups
        self._available: Final[dict[Stock, int]] = {}
        self.costs: Final[list[float]] = []
        self.whole: Final[list[int]] = []
        """For each variable, 1 if it counts machines."""
        self._entries: Final[list[tuple[int, int, float]]] = []
        for group in groups:
            for stock in group.supply.order:
                self._available.setdefault(stock, stock.free_count)

    def add_held(self, entries: list[MachineEntry]) -> None:
        """Adds the machines that the needs hold now to the available ones."""
        for entry in entries:
            if entry.stock in self._available:
                self._available[entry.stock] += 1

    def rows(self) -> "tuple[csr_array, NDArray[np.float64]]":
        """The matrix and the right-hand side: stock limits, and room for every unit."""
        import numpy as np
        from scipy.sparse import coo_array

        places = {stock: place for place, stock in enumerate(self._available)}
        limits = [float(count) for count in self._available.values()]
        for group in self._groups:
            asked = [len(limits) + at for at in range(len(group.sizing.sizes))]
            limits += [-1.0] * len(asked)  # as shares of the demand, so that magnitudes are similar
            for stock, cost in zip(group.supply.order, group.supply.costs, strict=True):
                machines = self._variable(cost, whole=1)
                self._entries.append((places[stock], machines, 1.0))
                if len(asked) == 1:
                    share = group.sizing.room(0, stock.amounts) / group.counts[0]
                    self._entries.append((asked[0], machines, -share))
                else:
                    self._divide(group, stock, machines, asked, limits)
        at_row, at_column, values = zip(*self._entries, strict=True)
        shape = (len(limits), len(self.costs))
        return coo_array((values, (at_row, at_column)), shape=shape).tocsr(), np.array(limits)

    def _variable(self, cost: float, *, whole: int) -> int:
        self.costs.append(cost)
        self.whole.append(whole)
        return len(self.costs) - 1

    def _divide(
        self, group: BoundGroup, stock: Stock, machines: int, asked: list[int], limits: list[float]
    ) -> None:
        """Adds units of several sizes on the machines of a stock, within their capacity."""
        sizing = group.sizing
        rooms = [sizing.room(size, stock.amounts) for size in range(len(sizing.sizes))]
        units = {size: self._variable(0.0, whole=0) for size, room in enumerate(rooms) if room}
        for at, resource in enumerate(sizing.resources):
            offered = stock.amounts[resource]
            if not offered:
                continue  # none of the units that fit needs it
            self._entries.append((len(limits), machines, -1.0))
            self._entries.extend(
                (len(limits), unit, sizing.sizes[size][at] / offered)
                for size, unit in units.items()
            )
            limits.append(0.0)
        for size, unit in units.items():
            self._entries.append((asked[size], unit, -1.0 / group.counts[size]))
            self._entries.append((len(limits), unit, 1.0 / rooms[size]))
            self._entries.append((len(limits), machines, -1.0))
            limits.append(0.0)


def fleet_gap(planner: Planner) -> CostGap:
    """The gap over all satisfied needs, with fractional machines: one linear program."""
    rows = _whole_rows(planner)
    model = BoundModel(_alike(planner, rows))
    cost, machines = _now(rows, model)
    if not rows:
        return _gap(0, 0, 0.0, 0.0, whole=False, proved=True)
    bound, proved = _solve(model, whole=False, limit_s=math.inf)
    return _gap(len(rows), machines, cost, bound, whole=False, proved=proved)


def sampled_gap(
    planner: Planner, stream: Stream, *, rows: int = SAMPLED_ROWS, limit_s: float = SOLVE_S
) -> CostGap:
    """The gap of some randomly drawn satisfied needs, in whole machines; all others stay fixed."""
    found = _whole_rows(planner)
    drawn: list[NeedRow] = []
    while found and len(drawn) < rows:
        drawn.append(found.pop(stream.integer(0, len(found) - 1)))
    if not drawn:
        return _gap(0, 0, 0.0, 0.0, whole=True, proved=True)
    model = BoundModel(
        [BoundGroup(planner.supply_of(row), row.sizing, list(row.counts)) for row in drawn]
    )
    cost, machines = _now(drawn, model)
    bound, proved = _solve(model, whole=True, limit_s=limit_s)
    return _gap(len(drawn), machines, cost, bound, whole=True, proved=proved)


def _solve(model: BoundModel, *, whole: bool, limit_s: float) -> tuple[float, bool]:
    """A lower bound on the cost of any solution, and whether the solver finished."""
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    matrix, limits = model.rows()
    done = milp(
        np.array(model.costs),
        constraints=LinearConstraint(matrix, np.full(len(limits), -np.inf), limits),
        integrality=np.array(model.whole) * int(whole),
        bounds=Bounds(0, np.inf),
        options={"time_limit": limit_s, "mip_rel_gap": 1e-6},
    )
    assert done.status != _INFEASIBLE, "what is assigned now is a solution, and yet there is none"
    bound = done.mip_dual_bound if whole else done.fun
    if bound is None or not math.isfinite(bound):
        return 0.0, False
    return float(bound), done.status == 0


def _whole_rows(planner: Planner) -> list[NeedRow]:
    """The needs fully covered by machines, by key."""
    rows = [row for row in planner.inventory.rows.values() if row.live and row.whole]
    return sorted(rows, key=lambda row: row.key)


def _alike(planner: Planner, rows: list[NeedRow]) -> list[BoundGroup]:
    """Merges needs that may take the same machines for the same units: an equivalent program.

    With fractional machines, a solution for the sum gives one for each, in proportion.
    """
    groups: dict[tuple[object, ...], tuple[Supply, NeedRow, int]] = {}
    for row in rows:
        supply = planner.supply_of(row)
        times = math.gcd(*row.counts)
        ratio = tuple(count // times for count in row.counts)
        key = (id(supply), id(row.sizing), ratio)
        before = groups.get(key)
        groups[key] = (supply, row, times + (before[2] if before else 0))
    return [
        BoundGroup(
            supply,
            row.sizing,
            [count // math.gcd(*row.counts) * times for count in row.counts],
        )
        for supply, row, times in groups.values()
    ]


def _now(rows: list[NeedRow], model: BoundModel) -> tuple[float, int]:
    """The cost and number of the machines of some rows; the model may assign them to any row."""
    cost, machines = 0.0, 0
    for row in rows:
        held = [one for one in row.held if not one.spare and one.stage() != NOT_COMING]
        for one in held:
            stock = one.stock
            cost += effective_cost(stock.price, stock.probability, row.interruption_bucket)
        machines += len(held)
        model.add_held(held)
    return cost, machines


def _gap(
    rows: int, machines: int, cost: float, bound: float, *, whole: bool, proved: bool
) -> CostGap:
    gap = max(0.0, cost / bound - 1.0) if bound > 0.0 else 0.0  # solvers have a tolerance
    return CostGap(rows, machines, cost, bound, gap, whole, proved)
