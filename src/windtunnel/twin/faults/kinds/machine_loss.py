"""`machine-loss`, `rack-loss`, `zone-loss`: machines stop, with the servers on them."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.core.vocabulary import LOST_IN_FAULT
from windtunnel.settings.drawing import Dice, Values
from windtunnel.twin.faults.context import FaultContext
from windtunnel.twin.faults.kind import Injection
from windtunnel.twin.faults.machines import (
    MachineFault,
    MachineSelect,
    RackSelect,
    ZoneSelect,
    chosen,
    draw_machines,
)
from windtunnel.twin.faults.world import World

if TYPE_CHECKING:
    from windtunnel.twin.infrastructure.faults import FleetMachine


class DomainLoss(MachineFault):
    """Machines that are lost by whole domains: single machines, racks or zones."""

    def domain(self, machine: "FleetMachine") -> str:
        """What is lost as a whole, of which a machine is a part."""
        raise NotImplementedError

    @property
    def selected(self) -> MachineSelect | RackSelect | ZoneSelect:
        raise NotImplementedError

    @property
    def is_random(self) -> bool:
        return super().is_random or self.selected.is_random

    def prepare(self, world: World, stream: Stream) -> Injection:
        machines = world.machines.existing()
        domains = {one.name: self.domain(one) for one in machines if self.selected.matches(one)}
        lost = chosen(self.selected.count, sorted(set(domains.values())), stream)
        names = [name for name, domain in domains.items() if domain in lost]
        return Injection(lost, begin=lambda now_s: world.machines.lose(names, LOST_IN_FAULT, now_s))

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        return draw_machines(dice, context)


class MachineLoss(DomainLoss):
    """Machines stop, with the servers on them. Another can be had after `fleet.replaced_after`."""

    kind: Literal["machine-loss"]
    select: MachineSelect = Field(
        default_factory=MachineSelect, description="Which; left out: one of all."
    )

    @property
    def selected(self) -> MachineSelect:
        return self.select

    def domain(self, machine: "FleetMachine") -> str:
        return machine.name


class RackLoss(DomainLoss):
    """All machines of a rack stop at once."""

    kind: Literal["rack-loss"]
    select: RackSelect = Field(
        default_factory=RackSelect, description="Which; left out: one of all."
    )

    @property
    def selected(self) -> RackSelect:
        return self.select

    def domain(self, machine: "FleetMachine") -> str:
        return f"{machine.pool}-rack-{machine.rack}"


class ZoneLoss(DomainLoss):
    """All machines of a zone stop at once."""

    kind: Literal["zone-loss"]
    select: ZoneSelect = Field(
        default_factory=ZoneSelect, description="Which; left out: one of all."
    )

    @property
    def selected(self) -> ZoneSelect:
        return self.select

    def domain(self, machine: "FleetMachine") -> str:
        return machine.zone

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        return {"select": {"zone": dice.pick(*[one.zone for one in context.machines])}}
