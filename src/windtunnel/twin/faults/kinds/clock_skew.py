"""`clock-skew`: the autoscaler's clock is off."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.section import Context
from windtunnel.twin.faults.context import FaultContext, context_of
from windtunnel.twin.faults.kind import Injection, LastingFault
from windtunnel.twin.faults.metrics import NO_AUTOSCALER
from windtunnel.twin.faults.timing import Length
from windtunnel.twin.faults.world import World


class ClockSkew(LastingFault):
    """The clock of the autoscaler is off. It never runs backwards: it stands still instead."""

    kind: Literal["clock-skew"]
    controller: Literal["autoscaler"] = Field(default="autoscaler", description="Whose clock.")
    ahead_s: Length | None = Field(default=None, description="By how much; this or `behind`.")
    behind_s: Length | None = Field(default=None, description="By how much; this or `ahead`.")

    @property
    def skew_s(self) -> float:
        return self.ahead_s if self.ahead_s is not None else -(self.behind_s or 0.0)

    def prepare(self, world: World, stream: Stream) -> Injection:  # noqa: ARG002
        return Injection(
            [self.controller],
            begin=lambda _: world.skew_clock(self.skew_s),
            end=lambda _: world.skew_clock(-self.skew_s),
        )

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        given = [one for one in (self.ahead_s, self.behind_s) if one is not None]
        if len(given) != 1:
            what = "ahead and behind are both written" if given else "neither ahead nor behind"
            yield where.fault((), what, "one of ahead and behind")
        if not self.applies(context_of(where.root)):
            yield where.fault("controller", NO_AUTOSCALER)

    @classmethod
    def applies(cls, context: FaultContext) -> bool:
        return context.scales

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        return {**super().draw(dice, context), dice.pick("ahead", "behind"): context.span_s(dice)}
