"""`machine-loss`, `rack-loss`, `zone-loss`: machines stop, along with their servers."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.core.vocabulary import LOST_IN_FAULT
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.section import Added
from windtunnel.twin.faults.context import FaultContext
from windtunnel.twin.faults.kind import Injection
from windtunnel.twin.faults.machines import (
    DrawnFault,
    MachineSelect,
    RackSelect,
    ZoneSelect,
)
from windtunnel.twin.faults.servers import draw_number
from windtunnel.twin.faults.timing import Length
from windtunnel.twin.faults.world import World

if TYPE_CHECKING:
    from windtunnel.twin.infrastructure.faults import FleetMachine


class DomainLoss(DrawnFault):
    """The loss of whole failure domains: single machines, racks or zones."""

    for_s: Annotated[Length | None, Added()] = Field(
        default=None,
        serialization_alias="for_",
        description="Time until replacements are available. Default: `fleet.replaced_after`.",
    )

    @property
    def length_s(self) -> float | None:
        return self.for_s

    def domain(self, machine: "FleetMachine") -> str:
        """The failure domain of a machine, which is lost as a whole."""
        raise NotImplementedError

    def prepare(self, world: World, stream: Stream) -> Injection:
        machines = world.machines.existing()
        domains = {one.name: self.domain(one) for one in machines if self.select.matches(one)}
        lost = self.select.choose(sorted(set(domains.values())), stream)
        names = [name for name, domain in domains.items() if domain in lost]
        back_s = self.for_s

        def begin(now_s: float) -> None:
            world.machines.lose(names, LOST_IN_FAULT, now_s, back_s)

        return Injection(lost, begin, None if back_s is None else _over)

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        select = draw_number(dice)
        if dice.chance(0.5):
            select["pool"] = dice.pick(*[one.name for one in context.machines])
        back = {"for": context.span_s(dice)} if dice.chance(0.3) else {}
        return {"select": select, **back}


def _over(now_s: float) -> None:
    """Does nothing: the fleet already offers machines in place of the lost ones."""


class MachineLoss(DomainLoss):
    """Machines stop, along with their servers."""

    kind: Literal["machine-loss"]
    select: MachineSelect = Field(
        default_factory=MachineSelect, description="Which; default: one of all."
    )

    def domain(self, machine: "FleetMachine") -> str:
        return machine.name


class RackLoss(DomainLoss):
    """All machines of a rack stop at once."""

    kind: Literal["rack-loss"]
    select: RackSelect = Field(
        default_factory=RackSelect, description="Which; default: one of all."
    )

    def domain(self, machine: "FleetMachine") -> str:
        return f"{machine.pool}-rack-{machine.rack}"


class ZoneLoss(DomainLoss):
    """All machines of a zone stop at once."""

    kind: Literal["zone-loss"]
    select: ZoneSelect = Field(
        default_factory=ZoneSelect, description="Which; default: one of all."
    )

    def domain(self, machine: "FleetMachine") -> str:
        return machine.zone

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        return {"select": {"zone": dice.pick(*[one.zone for one in context.machines])}}
