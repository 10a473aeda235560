"""Faults of controllers: clocks that are off, and processes that are started anew."""

from collections.abc import Callable
from typing import Final

from windtunnel.twin.autoscaling import Autoscaling
from windtunnel.twin.faults.effects import Effect, Strike
from windtunnel.twin.faults.plan import AUTOSCALER, FLEET, GANGS, RestartPlan, SkewPlan
from windtunnel.twin.footing import Footing


class ClockSkew(Effect):
    """The autoscaler's clock is off."""

    def __init__(self, plan: SkewPlan, autoscaling: Autoscaling) -> None:
        self._plan: Final = plan
        self._autoscaling: Final = autoscaling

    def choose(self) -> Strike:
        return Skew(self._plan.skew_s, self._autoscaling)


class Skew(Strike):
    """A clock that is off for a while; skews that overlap add up."""

    def __init__(self, skew_s: float, autoscaling: Autoscaling) -> None:
        super().__init__([AUTOSCALER])
        self._skew_s: Final = skew_s
        self._autoscaling: Final = autoscaling

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        self._autoscaling.skew_s += self._skew_s

    def end(self, now_s: float) -> None:  # noqa: ARG002
        self._autoscaling.skew_s -= self._skew_s


class ControllerRestart(Effect):
    """A controller is lost with all that it knew, and another begins."""

    def __init__(
        self, plan: RestartPlan, autoscaling: Autoscaling | None, ground: Footing | None
    ) -> None:
        self._plan: Final = plan
        self._autoscaling: Final = autoscaling
        self._ground: Final = ground

    def choose(self) -> Strike:
        if self._plan.controller == AUTOSCALER:
            assert self._autoscaling is not None
            return Absence(self._autoscaling)
        assert self._ground is not None
        assert self._plan.controller in (GANGS, FLEET)
        ground = self._ground
        restart = ground.restart_gangs if self._plan.controller == GANGS else ground.restart_fleet
        return Restart(self._plan.controller, restart)


class Absence(Strike):
    """The autoscaler is away: it takes no snapshot, and what was on its way to it is lost."""

    def __init__(self, autoscaling: Autoscaling) -> None:
        super().__init__([AUTOSCALER])
        self._autoscaling: Final = autoscaling

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        self._autoscaling.leave()

    def end(self, now_s: float) -> None:  # noqa: ARG002
        self._autoscaling.come_back()


class Restart(Strike):
    """A controller that is back at once."""

    lasts = False

    def __init__(self, controller: str, restart: Callable[[float], None]) -> None:
        super().__init__([controller])
        self._restart: Final = restart

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        self._restart(now_s)
