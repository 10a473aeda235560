"""Amounts, stages and rows as the reference cycle sees them: dictionaries, sums, comparisons."""

import math
from collections.abc import Iterable, Sequence

from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need
from windtunnel.fleet.planner.actions import BOOTSTRAP, DELETE, NOTHING, PREEMPT, PROVISION
from windtunnel.fleet.planner.costs import effective_cost
from windtunnel.fleet.requirements import accepts_all
from windtunnel.fleet.shape import Resources
from windtunnel.fleet.states import CONFIGURED, CONFIGURING, CREATING, IDLE, SPECULATIVE

Amounts = dict[str, int]


def stage_of(machine: Machine) -> int:
    """How far a machine is on its way to its holder: 0 there ... 3 planned; -1 for not at all."""
    if machine.state == CONFIGURED:
        return -1 if machine.planned == PREEMPT else 0
    if machine.state == CONFIGURING:
        return 1
    if machine.state == CREATING:
        return 2
    return 3 if machine.planned in (BOOTSTRAP, PROVISION) else -1


def coverage(have: Amounts, want: Amounts) -> float:
    """The share of each amount that is there, at most 1, summed."""
    found = 0.0
    for name, amount in sorted(want.items()):
        found += min(1.0, have.get(name, 0) / amount)
    return found


def size(have: Amounts, want: Amounts) -> float:
    """As coverage, without the limit."""
    found = 0.0
    for name, amount in sorted(want.items()):
        found += have.get(name, 0) / amount
    return found


def total(machines: Iterable[Machine]) -> Amounts:
    amounts: Amounts = {}
    for machine in machines:
        for name, amount in machine.shape.resources:
            amounts[name] = amounts.get(name, 0) + amount
    return amounts


def without(units: Sequence[Resources], machine: Machine) -> list[Resources]:
    """The units that a machine does not take, when each in turn goes in if it fits."""
    free, others = dict(machine.shape.resources), []
    for unit in units:
        if all(free.get(name, 0) >= amount for name, amount in unit):
            for name, amount in unit:
                free[name] = free.get(name, 0) - amount
        else:
            others.append(unit)
    return others


def room_of(machine: Machine, size: Resources) -> int:
    """How many units of a size fit on a machine, and nothing else."""
    offered = dict(machine.shape.resources)
    return min(offered.get(name, 0) // amount for name, amount in size if amount)


def is_free(machine: Machine) -> bool:
    """Whether anybody may have it: idle or speculative, and not planned for somebody."""
    if machine.state == IDLE:
        return machine.planned in (NOTHING, DELETE)
    return machine.state == SPECULATIVE and machine.planned == NOTHING


class ReferenceRow:
    """A need, and what is credited to it in this cycle."""

    def __init__(self, need: Need) -> None:
        self.need = need
        self.key = need.key()
        self.want = dict(need.aggregate)
        self.units = [size for size, count in need.sizes() for _ in range(count)]
        """The largest first."""
        self.credited: list[str] = []
        self.whole = False
        """Satisfied: its units fit, and within one domain where that is asked."""
        self.domain = ""
        """The one value of its Same key that was chosen."""
        self.domain_key = need.profile.same_key
        over = need.profile.spread_over
        self.skew = over.max_skew if over else 0
        if over:
            self.domain_key = over.key

    @property
    def same(self) -> bool:
        return bool(self.need.profile.same_key)

    def unit_cost(self, machine: Machine) -> tuple[int, float]:
        """Whether all units fit on a machine, else which is the largest that does; and what such a
        unit costs on a machine that is full of them."""
        sizes = [self.need.min_unit]
        if not self.domain_key:
            sizes += [size for size, _ in self.need.sizes()]
        for tier, size in enumerate(sizes):
            room = room_of(machine, size)
            if room:
                return tier, self.cost(machine) / room
        return len(sizes), math.inf

    def unplaced(self, machines: Iterable[Machine]) -> list[Resources]:
        """The units that find no room: machine by machine, the largest that fits goes in."""
        left = list(self.units)
        for machine in sorted(machines, key=lambda m: (self.unit_cost(m), m.shape.key(), m.id)):
            left = without(left, machine)
        return left

    def holds(self, machines: Iterable[Machine]) -> bool:
        return not self.unplaced(machines)

    def helps(self, left: Sequence[Resources], machine: Machine) -> bool:
        """Whether a machine takes something of what is left."""
        return len(without(left, machine)) < len(left)

    def largest(self, left: Sequence[Resources], machine: Machine) -> int:
        """The number of the largest size of which a machine would take some."""
        stays = without(left, machine)
        sizes = [size for size, _ in self.need.sizes()]
        taken = (at for at, size in enumerate(sizes) if stays.count(size) < left.count(size))
        return next(taken, len(sizes))

    def price(self, left: Sequence[Resources], machine: Machine) -> tuple[int, float]:
        """The largest size that a machine would take; then what it costs for a unit of those that
        it would take, small ones in proportion."""
        stays = without(left, machine)
        sizes = [size for size, _ in self.need.sizes()]
        if len(sizes) == 1:
            return 0, self.cost(machine) / (len(left) - len(stays))
        largest = {name: max(dict(size)[name] for size in sizes) for name in self.want}
        worth = 0.0
        for size in sizes:
            share = 0.0
            for name, amount in size:
                share += amount / largest[name]
            worth += (left.count(size) - stays.count(size)) * (share / len(size))
        return self.largest(left, machine), self.cost(machine) / worth if worth else math.inf

    def keep_order(self, machine: Machine) -> tuple[int, tuple[int, float], str]:
        """Machines that are there first; of these, the cheapest for a unit."""
        return (stage_of(machine), self.unit_cost(machine), machine.id)

    def cost(self, machine: Machine) -> float:
        shape = machine.shape
        bucket = self.need.profile.interruption_bucket
        return effective_cost(shape.price_per_hour, shape.interruption_probability, bucket)

    def matches(self, machine: Machine) -> bool:
        """Whether this machine may be counted for this need."""
        attributes = machine.shape.attributes()
        return (
            accepts_all(self.need.profile.requirements, attributes)
            and math.isfinite(self.unit_cost(machine)[1])
            and (not self.domain_key or self.domain_key in attributes)
            and self.cost(machine) < math.inf
        )

    def domain_of(self, machine: Machine) -> str:
        return machine.shape.attributes().get(self.domain_key, "")
