"""`controller-restart`: a controller is lost with all that it knew, and another begins."""

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
from windtunnel.twin.faults.world import AUTOSCALER, FLEET, GANGS, World


class ControllerRestart(LastingFault):
    """A controller is lost with all that it knew; another begins with what it can observe."""

    kind: Literal["controller-restart"]
    controller: Literal["autoscaler", "gangs", "fleet"] = Field(description="Which one.")
    for_s: Length | None = Field(
        default=None,
        serialization_alias="for_",
        description="How long the autoscaler is away; left out: it is back at once. Of others "
        "nothing may be written: they are back at once.",
    )

    @property
    def length_s(self) -> float | None:
        return 0.0 if self.for_s is None else self.for_s

    def prepare(self, world: World, stream: Stream) -> Injection:  # noqa: ARG002
        controller = self.controller
        if controller == AUTOSCALER:
            return Injection(
                [controller],
                begin=lambda _: world.stop_autoscaler(),
                end=lambda _: world.start_autoscaler(),
            )
        return Injection([controller], begin=lambda now_s: world.restart(controller, now_s))

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        controller, context = self.controller, context_of(where.root)
        if controller not in _controllers(context):
            what = {
                AUTOSCALER: NO_AUTOSCALER,
                GANGS: "there are no gangs: the scenario has neither `gangs` nor `fleet`",
                FLEET: "the scenario has no `fleet`",
            }[controller]
            yield where.fault("controller", what)
        if controller != AUTOSCALER and self.for_s is not None:
            what = f"the controller of {controller} is back at once"
            yield where.fault("for", what, hint="leave it out")

    @classmethod
    def applies(cls, context: FaultContext) -> bool:
        return bool(_controllers(context))

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        controller = dice.pick(*_controllers(context))
        away = controller == AUTOSCALER and dice.chance(0.5)
        return {"controller": controller, **(super().draw(dice, context) if away else {})}


def _controllers(context: FaultContext) -> list[str]:
    """Those that a scenario has."""
    there = {AUTOSCALER: context.scales, GANGS: context.pods, FLEET: bool(context.machines)}
    return [controller for controller, exists in there.items() if exists]
