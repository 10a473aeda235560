"""Faults of machines: which machines of the fleet they hit."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from windtunnel.core.errors import nearest
from windtunnel.core.random import Stream
from windtunnel.fleet.settings import MOST_MACHINES
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Name, Text, Whole
from windtunnel.settings.section import Context, Section
from windtunnel.twin.faults.context import FaultContext, MachinePool, context_of
from windtunnel.twin.faults.kind import InjectedFault
from windtunnel.twin.faults.servers import ALL, ByCount

if TYPE_CHECKING:
    from windtunnel.twin.infrastructure.faults import FleetMachine

Count = Annotated[int | str, Whole(1, MOST_MACHINES, word=ALL)]
PoolName = Annotated[str, Name()]


class QuotaSelect(Section):
    """The machines that become unavailable."""

    pool: PoolName | None = Field(default=None, description="Only this pool of `fleet`.")
    zone: PoolName | None = Field(default=None, description="Only this zone.")

    def matches(self, machine: "FleetMachine") -> bool:
        return self.pool in (None, machine.pool) and self.zone in (None, machine.zone)

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        pools = context_of(where.root).machines
        if pools:
            yield from _unknown(where, "pool", self.pool, [one.name for one in pools])
            yield from _unknown(where, "zone", self.zone, sorted({one.zone for one in pools}))


class DrawnSelect(ByCount):
    """The existing machines, racks or zones that a fault hits."""

    count: Count = Field(default=1, description="How many to draw.")

    @property
    def is_random(self) -> bool:
        return self.draws(self.count)

    def matches(self, machine: "FleetMachine") -> bool:
        raise NotImplementedError

    def choose(self, of: list[str], stream: Stream) -> list[str]:
        """Draws the configured number of names, in sorted order, or returns all."""
        many = self.number_of(self.count, len(of))
        if many >= len(of):
            return of
        left = of[:]
        return sorted(left.pop(stream.integer(0, len(left) - 1)) for _ in range(many))


class RackSelect(QuotaSelect, DrawnSelect):
    """The racks with machines that are lost."""

    rack: Annotated[int, Whole(0, MOST_MACHINES)] | None = Field(
        default=None, description="This rack of the named pool, from 0."
    )

    def matches(self, machine: "FleetMachine") -> bool:
        return super().matches(machine) and self.rack in (None, machine.rack)

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        if self.rack is not None and self.pool is None:
            what = "a number, and no pool that it counts in"
            yield where.fault("rack", what, hint="add pool")
        for own in context_of(where.root).machines:
            if self.rack is not None and own.name == self.pool and self.rack >= own.racks:
                what = f"{self.rack}, and the pool has {own.racks}, counted from 0"
                yield where.fault("rack", what, f"a whole number from 0 to {own.racks - 1}")


class MachineSelect(RackSelect):
    """The existing machines that a fault hits."""

    machine: Annotated[str, Text("the name of a machine, such as big-0")] | None = Field(
        default=None, description="The machine of this name, POOL-NUMBER. Default: drawn."
    )

    @property
    def is_random(self) -> bool:
        return self.machine is None and super().is_random

    def matches(self, machine: "FleetMachine") -> bool:
        return super().matches(machine) and self.machine in (None, machine.name)

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        pools = context_of(where.root).machines
        if self.machine is None or not pools:
            return
        if not any(one.can_have(self.machine) for one in pools):
            what = f"the fleet never has a machine {self.machine!r}"
            allowed = ", ".join(_names(one) for one in pools if one.maximum) or "none"
            yield where.fault("machine", what, allowed)
        for key in ("count", "share", "pool", "zone", "rack"):
            if self.written(key):
                yield where.fault(key, "one machine is named", hint=f"leave out {key} or machine")


class ZoneSelect(DrawnSelect):
    """The zones with machines that are lost."""

    zone: PoolName | None = Field(default=None, description="This zone; default: drawn.")

    def matches(self, machine: "FleetMachine") -> bool:
        return self.zone in (None, machine.zone)

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        zones = sorted({one.zone for one in context_of(where.root).machines})
        if zones:
            yield from _unknown(where, "zone", self.zone, zones)


class MachineFault(InjectedFault):
    """A fault of machines; it requires a `fleet`."""

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        if not context_of(where.root).machines:
            what = "there are no machines: the scenario has no `fleet`"
            yield where.fault("kind", what, hint="add `fleet`, or leave the fault out")

    @classmethod
    def applies(cls, context: FaultContext) -> bool:
        return bool(context.machines)


class DrawnFault(MachineFault):
    """A fault of machines that are drawn at random or named."""

    select: DrawnSelect

    @property
    def is_random(self) -> bool:
        return super().is_random or self.select.is_random


def _unknown(where: Context, key: str, word: str | None, words: list[str]) -> Iterator[Fault]:
    if word is not None and word not in words:
        what = f"the fleet has no {key} {word!r}"
        yield where.fault(key, what, ", ".join(words), nearest(word, words))


def _names(pool: MachinePool) -> str:
    """The names of the pool's machines."""
    first = f"{pool.name}-0"
    return first if pool.maximum == 1 else f"{first} to {pool.name}-{pool.maximum - 1}"
