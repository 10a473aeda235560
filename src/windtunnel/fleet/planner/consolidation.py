"""Replaces expensive machines by cheaper ones: created first, drained later, within a budget.

The cycle takes the free machines with the lowest cost per unit at the time, and keeps what it has.
Later a cheaper one may be free, one large machine may replace many small ones, or a need may have
shrunk below the size of its machine. A pass here finds replacements and starts them beside the old
machines. Once they are ready, the cycle itself keeps the cheapest and drains the rest, like any
surplus of a need. So nothing is drained before its replacement works, and a replacement that fails
changes nothing.
"""

import math
from typing import Final

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.fleet.planner.actions import BOOTSTRAP, NOTHING, PROVISION, Action
from windtunnel.fleet.planner.costs import DOLLARS, effective_cost
from windtunnel.fleet.planner.cycle import Planner
from windtunnel.fleet.planner.entries import THERE, ClusterHoldings, MachineEntry, NeedRow, Stock
from windtunnel.fleet.states import CONFIGURED, DRAINING, IDLE

REASON: Final = "cheaper than a machine that the need has"
MOST_STOCKS: Final = 8
"""How many stocks are tried for a need: the cheapest with free machines."""
MOST_NEW: Final = 64
"""Maximum machines of a stock in one replacement; smaller numbers are tried by halving."""


class ConsolidationLimits(msgspec.Struct, frozen=True):
    """The required benefit of a replacement, and how many machines may leave at once."""

    least_saving: float = 0.15
    """The share of the leaving machines' cost that must be saved, to avoid churn for cents."""
    payback_h: float = 720.0
    """The time within which savings must pay for moving the need: its reclamation penalty for each
    machine that leaves. A month is the lifetime of a machine in many fleets."""
    budget_share: float = 0.1
    """The share of a cluster's machines that may be leaving at once; always at least as many as one
    machine replaces, so that a large one can replace all small ones."""
    budget_machines: int = 100
    """Maximum machines leaving at once in all clusters together."""
    cooldown_s: float = 600.0
    """How long a need is left alone after a replacement was begun for it."""
    rows_per_pass: int = 2000
    """Number of needs per pass; the next pass continues from there."""

    def check(self) -> "ConsolidationLimits":
        """Returns itself if every limit is valid."""
        for name in ("least_saving", "budget_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"{name} is {getattr(self, name)}", allowed="0 to 1")
        for name in ("payback_h", "cooldown_s"):
            if not getattr(self, name) >= 0.0:
                raise InputError(f"{name} is {getattr(self, name)}", allowed="0 or more")
        for name in ("budget_machines", "rows_per_pass"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", allowed="1 or more")
        return self


class Replacement(msgspec.Struct, frozen=True):
    """Machines to add, and those that will leave for them."""

    comes: list[MachineEntry]
    leaves: list[MachineEntry]
    saves: float
    """Effective dollars per hour."""


class Consolidator:
    """Finds replacements, and counts the machines that are leaving because of them."""

    def __init__(self, planner: Planner, limits: ConsolidationLimits | None = None) -> None:
        self._planner: Final = planner
        self._limits: Final = (limits or ConsolidationLimits()).check()
        self._next_row = 0
        self._rests: Final[dict[NeedRow, float]] = {}
        self._leaving: Final[dict[str, tuple[ClusterHoldings, float]]] = {}
        self.begun = 0
        """The number of replacements begun."""
        self.saving = 0.0
        """Their total saving, in effective dollars per hour."""

    def propose(self, now_s: float) -> list[Action]:
        """Plans replacements and returns the actions; called after a cycle."""
        self._settle(now_s)
        rows = list(self._planner.inventory.rows.values())
        found: list[tuple[float, NeedRow, Replacement]] = []
        for _ in range(min(len(rows), self._limits.rows_per_pass)):
            self._next_row = (self._next_row + 1) % len(rows)
            row = rows[self._next_row]
            best = self._best(row) if self._is_calm(row, now_s) else None
            if best is not None:
                found.append((best.saves, row, best))
        # The largest savings first, while the budget lasts.
        found.sort(key=lambda one: (-one[0], one[1].key))
        actions: list[Action] = []
        for _, row, first in found:
            taken = any(entry.planned != NOTHING for entry in first.comes)
            one = self._best(row) if taken else first
            if one is not None and self._allows(row.cluster, one.comes, one.leaves):
                actions += self._begin(row, one, now_s)
        return actions

    # Budgets.

    def _settle(self, now_s: float) -> None:
        """Forgets machines that have left, or stayed after all."""
        entries = self._planner.inventory.entries
        for name, (_, until_s) in list(self._leaving.items()):
            entry = entries.get(name)
            if (
                entry is None
                or entry.state not in (CONFIGURED, DRAINING)
                or (entry.state == CONFIGURED and not entry.spare and now_s >= until_s)
            ):
                del self._leaving[name]
        for row in [row for row, until_s in self._rests.items() if until_s <= now_s]:
            del self._rests[row]

    def _allows(
        self, cluster: ClusterHoldings, comes: list[MachineEntry], leaves: list[MachineEntry]
    ) -> bool:
        if len(self._leaving) + len(leaves) > self._limits.budget_machines:
            return False
        own = sum(owner is cluster for owner, _ in self._leaving.values())
        most = max(1, int(self._limits.budget_share * cluster.configured))
        return own + len(leaves) <= most or (not own and len(comes) == 1)

    # Replacements.

    def _is_calm(self, row: NeedRow, now_s: float) -> bool:
        """Whether a need has everything it asks for, with nothing on its way."""
        return (
            row.live
            and row.whole
            and not row.dirty
            and not row.skew  # an even spread leaves no choice of which one to remove
            and bool(row.held)
            and now_s >= self._rests.get(row, -math.inf)
            and all(_is_settled(entry) for entry in row.held)
        )

    def _best(self, row: NeedRow) -> Replacement | None:
        """The most valuable replacement, if any is worth it."""
        supply = self._planner.supply_of(row)
        ranks = [supply.rank[entry.stock] for entry in row.held]
        dearest = max(supply.costs[rank] for rank in ranks)
        dearest_unit = max(supply.unit_costs[rank] for rank in ranks)
        stocks = supply.domains[row.domain] if row.domain else supply.order
        best: Replacement | None = None
        tried = 0
        for stock in stocks:
            if tried == MOST_STOCKS:
                break
            rank = supply.rank[stock]
            is_cheaper = supply.costs[rank] < dearest or supply.unit_costs[rank] < dearest_unit
            if not is_cheaper or not stock.free_count:
                continue
            tried += 1
            free = [one for one in stock.free() if one.planned == NOTHING][:MOST_NEW]
            free.sort(key=lambda one: (one.state != IDLE, one.id))
            count = len(free)
            while count:
                one = self._weigh(row, free[:count])
                if one is not None and (best is None or one.saves > best.saves):
                    best = one
                count //= 2
        return best

    def _weigh(self, row: NeedRow, comes: list[MachineEntry]) -> Replacement | None:
        """The replacement with these machines, by what the cycle would keep; None: not worth it."""
        kept = self._planner.would_keep(row, row.held + comes)
        names = {entry.id for entry in kept}
        if any(entry.id not in names for entry in comes):
            return None
        leaves = [entry for entry in row.held if entry.id not in names]
        before = sum(_cost(row, entry.stock) for entry in leaves)
        saves = before - sum(_cost(row, entry.stock) for entry in comes)
        penalty = DOLLARS[row.reclamation_bucket] * len(leaves)
        if not self._allows(row.cluster, comes, leaves):
            return None
        if saves <= 0.0 or saves < self._limits.least_saving * before:
            return None
        if saves * self._limits.payback_h < penalty:
            return None
        return Replacement(comes, leaves, saves)

    def _begin(self, row: NeedRow, one: Replacement, now_s: float) -> list[Action]:
        self.begun += 1
        self.saving += one.saves
        until_s = now_s + self._limits.cooldown_s
        self._rests[row] = until_s
        for entry in one.leaves:
            self._leaving[entry.id] = (row.cluster, until_s)
        actions = []
        for entry in one.comes:
            kind = BOOTSTRAP if entry.state == IDLE else PROVISION
            self._planner.inventory.plan(entry, kind, row)
            cost = _cost(row, entry.stock)
            actions.append(
                Action(kind, entry.id, row.cluster.name, row.key, 0.0, row.priority, cost, REASON)
            )
        return actions


def _is_settled(entry: MachineEntry) -> bool:
    return entry.stage() == THERE and entry.planned == NOTHING and not entry.spare


def _cost(row: NeedRow, stock: Stock) -> float:
    return effective_cost(stock.price, stock.probability, row.interruption_bucket)
