"""Which stocks suit which needs: one bit per stock, one mask per attribute.

Requirements are evaluated once for all equal needs, not once per need or machine.
"""

import math
from typing import Final

from windtunnel.fleet.need import Need
from windtunnel.fleet.planner.costs import effective_cost
from windtunnel.fleet.planner.entries import NeedRow, Sizing, Stock, Supply
from windtunnel.fleet.planner.inventory import Inventory
from windtunnel.fleet.requirements import DOES_NOT_EXIST, EXISTS, IN, NOT_IN, MachineRequirement


class Supplies:
    """The supplies of all kinds of needs, rebuilt when there is a new stock."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory: Final = inventory
        self._by_value: Final[dict[str, dict[str, int]]] = {}
        self._by_key: Final[dict[str, int]] = {}
        self._indexed = 0
        self._made: Final[dict[tuple[str, Sizing], Supply]] = {}  # by fingerprint and sizes
        self._needs: Final[dict[NeedRow, Need]] = {}
        self.builds = 0

    def register(self, row: NeedRow, need: Need) -> None:
        """Registers the need of a row; its supply is found when it is first used."""
        self._leave(row)
        self._needs[row] = need

    def forget(self, row: NeedRow) -> None:
        self._leave(row)
        self._needs.pop(row, None)

    def _leave(self, row: NeedRow) -> None:
        supply = row.supply
        if supply is not None:
            del supply.members[row]
            if not supply.members:
                self._made.pop(supply.key, None)
            row.supply = None

    def refresh(self) -> None:
        """Indexes new stocks, which may extend every supply."""
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
        for row in self._needs:
            row.supply = None

    def of(self, row: NeedRow) -> Supply:
        """The supply of a registered row."""
        found = row.supply
        if found is None:
            key = (row.key.fingerprint, row.sizing)
            found = self._made.get(key)
            if found is None:
                found = self._build(self._needs[row], key, row.domain_key)
                self._made[key] = found
            row.supply = found
            found.members[row] = None
        return found

    def _build(self, need: Need, key: tuple[str, Sizing], domain_key: str) -> Supply:
        """The stocks whose machines host every unit, then those that host only small ones.

        Gangs and spreads count machines by domain, and require that each hosts every unit.
        """
        self.builds += 1
        sizing = key[1]
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
        found: list[tuple[int, float, str, int]] = []
        while mask:
            lowest = mask & -mask
            mask ^= lowest
            stock = inventory.stocks[lowest.bit_length() - 1]
            cost = effective_cost(stock.price, stock.probability, bucket)
            room = min([stock.amounts[number] // amount for number, amount in unit])
            tier, hosts = 0, room
            while not hosts and not domain_key and tier < len(sizing.sizes):
                hosts = sizing.room(tier, stock.amounts)
                tier += 1
            if cost < math.inf and hosts:
                found.append((tier, cost / hosts, stock.key, len(order)))
                order.append(stock)
                costs.append(cost)
                rooms.append(room)
        found.sort()
        places = [at for _, _, _, at in found]
        return Supply(
            key,
            [order[at] for at in places],
            [costs[at] for at in places],
            [rooms[at] for at in places],
            [(tier, price) for tier, price, _, _ in found],
            domain_key,
        )

    def _accepting(self, one: MachineRequirement) -> int:
        """The stocks that meet a requirement, as a bit mask."""
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
