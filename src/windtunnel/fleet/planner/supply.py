"""Which stocks will do for which needs: one bit per stock, one mask per attribute.

Requirements are looked up once for all needs that ask the same, not once per need or machine.
"""

import math
from typing import Final

from windtunnel.fleet.need import Need
from windtunnel.fleet.planner.costs import effective_cost
from windtunnel.fleet.planner.entries import NeedRow, Stock, Supply
from windtunnel.fleet.planner.inventory import Inventory
from windtunnel.fleet.requirements import DOES_NOT_EXIST, EXISTS, IN, NOT_IN, MachineRequirement
from windtunnel.fleet.shape import Resources


class Supplies:
    """The supplies of all kinds of needs; they are made again when a stock is new."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory: Final = inventory
        self._by_value: Final[dict[str, dict[str, int]]] = {}
        self._by_key: Final[dict[str, int]] = {}
        self._indexed = 0
        self._numbers: Final[dict[tuple[str, Resources], int]] = {}  # by what is asked of machines
        self._made: Final[dict[int, Supply]] = {}
        self._asked: Final[dict[NeedRow, Need]] = {}
        self._fresh: Final[dict[NeedRow, None]] = {}
        self.builds = 0

    def ask(self, row: NeedRow, need: Need) -> None:
        """A row asks for what this need says; its supply is found when it is looked at."""
        self._leave(row)
        self._asked[row] = need
        self._fresh[row] = None
        key = (row.key.fingerprint, need.min_unit)
        row.supply_number = self._numbers.setdefault(key, len(self._numbers))

    def forget(self, row: NeedRow) -> None:
        self._leave(row)
        self._asked.pop(row, None)
        self._fresh.pop(row, None)

    def _leave(self, row: NeedRow) -> None:
        if row.supply is not None:
            del row.supply.members[row]
            row.supply = None

    def all(self) -> list[Supply]:
        """The supply of every kind of need."""
        return list(self._made.values())

    def take_fresh(self) -> list[NeedRow]:
        """The rows that are asked for anew since the last time, each with its supply found."""
        fresh = list(self._fresh)
        self._fresh.clear()
        for row in fresh:
            self.of(row)
        return fresh

    def refresh(self) -> None:
        """Takes note of new stocks; every supply may have grown by them."""
        stocks = self._inventory.stocks
        if self._indexed == len(stocks):
            return
        for stock in stocks[self._indexed :]:
            bit = 1 << stock.number
            for key, value in stock.attributes.items():
                values = self._by_value.setdefault(key, {})
                values[value] = values.get(value, 0) | bit
                self._by_key[key] = self._by_key.get(key, 0) | bit
        self._indexed = len(stocks)
        self._made.clear()
        for row in self._asked:
            row.supply = None
            self._fresh[row] = None

    def of(self, row: NeedRow) -> Supply:
        """The supply of a row that is asked for."""
        found = row.supply
        if found is None:
            found = self._made.get(row.supply_number)
            if found is None:
                found = self._build(self._asked[row], row.domain_key)
                self._made[row.supply_number] = found
            row.supply = found
            found.members[row] = None
        return found

    def _build(self, need: Need, domain_key: str) -> Supply:
        self.builds += 1
        mask = (1 << self._indexed) - 1
        for one in need.profile.requirements:
            mask &= self._accepting(one)
        if domain_key:
            mask &= self._by_key.get(domain_key, 0)
        inventory = self._inventory
        unit = [(inventory.resource(name), amount) for name, amount in need.min_unit]
        bucket = need.profile.interruption_bucket
        order: list[Stock] = []
        costs: list[float] = []
        rooms: list[int] = []
        found: list[tuple[float, str, int]] = []
        while mask:
            lowest = mask & -mask
            mask ^= lowest
            stock = inventory.stocks[lowest.bit_length() - 1]
            cost = effective_cost(stock.price, stock.probability, bucket)
            room = min([stock.amounts[number] // amount for number, amount in unit])
            if cost < math.inf and room:
                found.append((cost / room, stock.key, len(order)))
                order.append(stock)
                costs.append(cost)
                rooms.append(room)
        found.sort()
        return Supply(
            [order[at] for _, _, at in found],
            [costs[at] for _, _, at in found],
            [rooms[at] for _, _, at in found],
            domain_key,
        )

    def _accepting(self, one: MachineRequirement) -> int:
        """The stocks that meet a requirement, as a mask."""
        everything = (1 << self._indexed) - 1
        having = self._by_key.get(one.key, 0)
        if one.operator == EXISTS:
            return having
        if one.operator == DOES_NOT_EXIST:
            return everything & ~having
        values = self._by_value.get(one.key, {})
        listed = 0
        for value in one.values:
            listed |= values.get(value, 0)
        if one.operator == IN:
            return listed
        if one.operator == NOT_IN:
            return everything & ~listed
        return listed if one.values else having
