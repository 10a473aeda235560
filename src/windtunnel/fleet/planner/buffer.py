"""Idle machines kept as replacements: for the loss of a whole domain, and of single machines.

Machines of one type in one zone are interchangeable. Enough idle ones of each kind are kept that,
whichever domain (a rack) is lost, the idle machines elsewhere replace all that were in use there.
Any need may take them; the buffer is refilled while there is quota.
"""

import math
from typing import Final

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.fleet.planner.actions import DELETE, NOTHING, PROVISION, Action, CyclePlan
from windtunnel.fleet.planner.entries import Stock
from windtunnel.fleet.planner.inventory import Inventory
from windtunnel.fleet.shape import RACK
from windtunnel.fleet.states import DELETING, FAILED, SPECULATIVE

REASON: Final = "too few idle machines to replace the largest domain"

Kind = tuple[str, str]
"""An instance type in a zone."""


class BufferLimits(msgspec.Struct, frozen=True):
    """The losses to cover."""

    domain_key: str = RACK
    """The key of domains that may be lost as a whole; empty: none."""
    share: float = 0.02
    """The share of machines in use that may be lost singly in addition."""
    most_created: int = 100
    """Maximum machines of a kind created for the buffer per cycle."""

    def check(self) -> "BufferLimits":
        """Returns itself if every limit is valid."""
        if not 0.0 <= self.share <= 1.0:
            raise InputError(f"the share of the buffer is {self.share}", allowed="0 to 1")
        if self.most_created < 0:
            raise InputError(f"most_created is {self.most_created}", allowed="0 or more")
        return self


class Exposure(msgspec.Struct, frozen=True):
    """The effect of losing one domain on one kind of machine."""

    kind: Kind
    domain: str
    in_use: int
    """Machines that would have to be replaced."""
    needed: int
    """Including the single losses to cover."""
    idle_elsewhere: int

    @property
    def short(self) -> int:
        """Machines that could not be replaced at once; negative: the surplus."""
        return self.needed - self.idle_elsewhere


class Buffer:
    """Prevents idle machines from being deleted, and has more of them created."""

    def __init__(self, inventory: Inventory, limits: BufferLimits | None = None) -> None:
        self._inventory: Final = inventory
        self._limits: Final = (limits or BufferLimits()).check()
        self._aside: Final[dict[str, None]] = {}
        """Machines on their way into or out of the buffer, which are not in use."""

    def exposures(self) -> list[Exposure]:
        """The exposure of every kind and domain, by name."""
        aside = self._count_aside()
        found = []
        for kind, stocks in sorted(self._kinds().items()):
            idle = sum(stock.idle_count for stock in stocks)
            used = {stock: stock.alive - stock.free_count - aside.get(stock, 0) for stock in stocks}
            singles = math.ceil(self._limits.share * sum(used.values()) - 1e-9)
            by_domain: dict[str, list[Stock]] = {}
            for stock in stocks:
                by_domain.setdefault(self._domain(stock), []).append(stock)
            for domain, some in sorted(by_domain.items()):
                # Machines without a domain are not lost together.
                in_use = sum(used[stock] for stock in some) if domain else 0
                there = sum(stock.idle_count for stock in some) if domain else 0
                found.append(Exposure(kind, domain, in_use, in_use + singles, idle - there))
        return found

    def keep(self, plan: CyclePlan) -> None:
        """Changes the plan of a cycle: fewer idle machines are deleted, more are created."""
        short: dict[Kind, dict[str, int]] = {}
        for one in self.exposures():
            short.setdefault(one.kind, {})[one.domain] = one.short
        for name in self._aside:
            entry = self._inventory.entries[name]
            if entry.planned == DELETE:  # still idle, but not for long
                self._add(short, entry.stock, -1)
            elif entry.state != DELETING:
                self._add(short, entry.stock, 1)
        self._hold_back(plan, short)
        kinds = self._kinds()
        for kind in sorted(kinds):
            self._fill(plan, kinds[kind], short[kind])

    def _kinds(self) -> dict[Kind, list[Stock]]:
        kinds: dict[Kind, list[Stock]] = {}
        for stock in self._inventory.stocks:
            if stock.alive:
                kinds.setdefault(_kind(stock), []).append(stock)
        return kinds

    def _domain(self, stock: Stock) -> str:
        return stock.attributes.get(self._limits.domain_key, "")

    def _count_aside(self) -> dict[Stock, int]:
        """Machines by stock that are neither free nor in use; forgets those that have arrived."""
        counts: dict[Stock, int] = {}
        for name in list(self._aside):
            entry = self._inventory.entries.get(name)
            if (
                entry is None
                or entry.row is not None
                or entry.state == FAILED
                or (entry.is_free() and entry.planned != DELETE)
            ):
                del self._aside[name]
            elif not entry.is_free():
                counts[entry.stock] = counts.get(entry.stock, 0) + 1
        return counts

    def _add(self, short: dict[Kind, dict[str, int]], stock: Stock, count: int) -> None:
        """Counts this many idle machines more, which help if any domain but their own is lost."""
        by_domain = short.get(_kind(stock), {})
        own = self._domain(stock)
        for domain in by_domain:
            if not domain or domain != own:
                by_domain[domain] -= count

    def _helps(self, by_domain: dict[str, int], stock: Stock) -> bool:
        own = self._domain(stock)
        return any(n > 0 and (not domain or domain != own) for domain, n in by_domain.items())

    def _hold_back(self, plan: CyclePlan, short: dict[Kind, dict[str, int]]) -> None:
        """Keeps those machines due for deletion without which the buffer would be too small."""
        entries = self._inventory.entries
        leaving = [one for one in plan.actions if one.kind == DELETE]
        for action in leaving:
            self._add(short, entries[action.machine].stock, -1)
        stay: dict[str, None] = {}
        for action in leaving:
            entry = entries[action.machine]
            if self._helps(short[_kind(entry.stock)], entry.stock):
                self._add(short, entry.stock, 1)
                self._inventory.withdraw(entry)
                stay[entry.id] = None
            else:
                self._aside[entry.id] = None
        if stay:
            plan.actions[:] = [
                one for one in plan.actions if one.kind != DELETE or one.machine not in stay
            ]

    def _fill(self, plan: CyclePlan, stocks: list[Stock], by_domain: dict[str, int]) -> None:
        """Has machines created one by one, the cheapest of those that help."""
        free = {
            stock: [
                one
                for one in reversed(stock.free())
                if one.state == SPECULATIVE and one.planned == NOTHING
            ]
            for stock in stocks
            if stock.quota_count and any(count > 0 for count in by_domain.values())
        }
        order = sorted(free, key=lambda stock: (stock.price, stock.key))
        for _ in range(self._limits.most_created):
            stock = next((one for one in order if free[one] and self._helps(by_domain, one)), None)
            if stock is None:
                return
            entry = free[stock].pop()
            self._inventory.plan(entry, PROVISION, None)
            self._aside[entry.id] = None
            self._add({_kind(stock): by_domain}, stock, 1)
            plan.actions.append(Action(PROVISION, entry.id, cost=stock.price, reason=REASON))


def _kind(stock: Stock) -> Kind:
    return (stock.shape.instance_type, stock.shape.zone)
