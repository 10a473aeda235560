"""`quota-exhaustion`: no more machines can be had than there are."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values
from windtunnel.twin.faults.context import FaultContext
from windtunnel.twin.faults.kind import Injection, LastingFault
from windtunnel.twin.faults.machines import MachineFault, QuotaSelect
from windtunnel.twin.faults.world import World

if TYPE_CHECKING:
    from windtunnel.fleet.shape import MachineShape


class QuotaExhaustion(LastingFault, MachineFault):
    """No more machines can be had than there are; one that is given back can be had again."""

    kind: Literal["quota-exhaustion"]
    select: QuotaSelect = Field(
        default_factory=QuotaSelect, description="Which machines; left out: all."
    )

    def prepare(self, world: World, stream: Stream) -> Injection:  # noqa: ARG002
        pool, zone = self.select.pool, self.select.zone
        withheld: list[MachineShape] = []
        return Injection(
            [pool or zone or "fleet"],
            begin=lambda now_s: withheld.extend(world.machines.exhaust_quota(pool, zone, now_s)),
            end=lambda now_s: world.machines.restore_quota(withheld, now_s),
        )

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        drawn = super().draw(dice, context)
        pool = dice.pick(*[one.name for one in context.machines])
        return {**drawn, **({"select": {"pool": pool}} if dice.chance(0.5) else {})}
