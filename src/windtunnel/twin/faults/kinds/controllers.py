"""`clock-skew`, `controller-restart`: faults of controllers."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.section import Context
from windtunnel.twin.faults.context import NO_AUTOSCALER, FaultContext, context_of
from windtunnel.twin.faults.kind import Injection, LastingFault, lasting
from windtunnel.twin.faults.timing import Length
from windtunnel.twin.faults.world import AUTOSCALER, FLEET, GANGS, GATEWAY, World

Controller = Literal["gateway", "autoscaler", "gangs", "fleet"]


class ClockSkew(LastingFault):
    """A controller's clock is off. It never runs backwards: it stands still instead."""

    kind: Literal["clock-skew"]
    controller: Controller = Field(default="autoscaler", description="Whose clock.")
    ahead_s: Length | None = Field(default=None, description="By how much; this or `behind`.")
    behind_s: Length | None = Field(default=None, description="By how much; this or `ahead`.")

    @property
    def skew_s(self) -> float:
        return self.ahead_s if self.ahead_s is not None else -(self.behind_s or 0.0)

    def prepare(self, world: World, stream: Stream) -> Injection:  # noqa: ARG002
        controller = self.controller
        return lasting(
            [controller],
            lambda on, now_s: world.skew_clock(controller, self.skew_s, now_s, on=on),
        )

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        given = [one for one in (self.ahead_s, self.behind_s) if one is not None]
        if len(given) != 1:
            what = "ahead and behind are both written" if given else "neither ahead nor behind"
            yield where.fault((), what, "one of ahead and behind")
        context = context_of(where.root)
        yield from _missing(self.controller, context, where)
        if self.controller == GATEWAY and not context.queues:
            what = "has no effect: a gateway that admits every request uses no clock"
            yield where.fault("controller", what, hint="set another serving.admission.policy")

    @classmethod
    def applies(cls, context: FaultContext) -> bool:
        return bool(cls._clocks(context))

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        controller = dice.pick(*cls._clocks(context))
        way = {dice.pick("ahead", "behind"): context.span_s(dice)}
        return {**super().draw(dice, context), "controller": controller, **way}

    @staticmethod
    def _clocks(context: FaultContext) -> list[str]:
        return [one for one in _controllers(context) if one != GATEWAY or context.queues]


class ControllerRestart(LastingFault):
    """A controller loses its memory and restarts from what it can observe."""

    kind: Literal["controller-restart"]
    controller: Controller = Field(description="Which one; `gateway` includes the router.")
    for_s: Length | None = Field(
        default=None,
        serialization_alias="for_",
        description="How long a gateway or autoscaler is down. Default: it is back at once, as "
        "other controllers always are.",
    )

    @property
    def length_s(self) -> float | None:
        return 0.0 if self.for_s is None else self.for_s

    def prepare(self, world: World, stream: Stream) -> Injection:  # noqa: ARG002
        controller = self.controller
        if controller == GATEWAY:
            return lasting([controller], lambda on, _: world.stop_gateway(on=on))
        if controller == AUTOSCALER:
            return lasting([controller], lambda on, _: world.stop_autoscaler(on=on))
        return Injection([controller], begin=lambda now_s: world.restart(controller, now_s))

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        controller = self.controller
        yield from _missing(controller, context_of(where.root), where)
        if controller in (GANGS, FLEET) and self.for_s is not None:
            what = f"the controller of {controller} is back at once"
            yield where.fault("for", what, hint="leave it out")

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        controller = dice.pick(*_controllers(context))
        away = controller in (GATEWAY, AUTOSCALER) and dice.chance(0.5)
        return {"controller": controller, **(super().draw(dice, context) if away else {})}


def _missing(controller: str, context: FaultContext, where: Context) -> Iterator[Fault]:
    if controller not in _controllers(context):
        what = {
            AUTOSCALER: NO_AUTOSCALER,
            GANGS: "there are no gangs: the scenario has neither `gangs` nor `fleet`",
            FLEET: "the scenario has no `fleet`",
        }[controller]
        yield where.fault("controller", what)


def _controllers(context: FaultContext) -> list[str]:
    """The controllers that a scenario has."""
    there = {AUTOSCALER: context.scales, GANGS: context.pods, FLEET: bool(context.machines)}
    return [GATEWAY, *(controller for controller, exists in there.items() if exists)]
