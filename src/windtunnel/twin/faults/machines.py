"""Faults of machines: some are lost, some are taken back, and others cannot be had."""

from typing import Final

from windtunnel.core.random import Stream
from windtunnel.core.vocabulary import LOST_IN_FAULT, RECLAIMED
from windtunnel.fleet.shape import MachineShape
from windtunnel.twin.faults.effects import Effect, Strike
from windtunnel.twin.faults.plan import (
    MACHINE,
    RACK,
    MachineLossPlan,
    MachineSelectPlan,
    OutagePlan,
    QuotaPlan,
    ReclaimPlan,
)
from windtunnel.twin.faults.schedule import Schedule
from windtunnel.twin.ground.mishaps import Mishaps, Place


def places(select: MachineSelectPlan, mishaps: Mishaps) -> list[Place]:
    """Machines that are there and match, by name."""
    return [
        one
        for one in mishaps.there()
        if select.pool in (None, one.pool)
        and select.zone in (None, one.zone)
        and select.rack in (None, one.rack)
        and select.machine in (None, one.machine)
    ]


def drawn(count: int | None, of: list[str], stream: Stream) -> list[str]:
    """So many of them by chance, in their order; None: all."""
    if count is None or count >= len(of):
        return of
    left = of[:]
    picked = [left.pop(stream.integer(0, len(left) - 1)) for _ in range(count)]
    return sorted(picked)


class MachineLoss(Effect):
    """Machines, racks or zones that are lost whole."""

    def __init__(self, plan: MachineLossPlan, mishaps: Mishaps, stream: Stream) -> None:
        self._plan: Final = plan
        self._mishaps: Final = mishaps
        self._stream: Final = stream

    def choose(self) -> Strike:
        found = places(self._plan.select, self._mishaps)
        domains = {one.machine: self._domain(one) for one in found}
        named = sorted(set(domains.values()))
        lost = drawn(self._plan.select.count, named, self._stream)
        return Loss([one for one, domain in domains.items() if domain in lost], lost, self._mishaps)

    def _domain(self, place: Place) -> str:
        """What is lost as a whole, of which a machine is a part."""
        if self._plan.unit == MACHINE:
            return place.machine
        return f"{place.pool}-rack-{place.rack}" if self._plan.unit == RACK else place.zone


class Loss(Strike):
    """Machines that are lost now."""

    lasts = False

    def __init__(self, machines: list[str], domains: list[str], mishaps: Mishaps) -> None:
        super().__init__(domains)
        self._machines: Final = machines
        self._mishaps: Final = mishaps

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        self._mishaps.lose(self._machines, LOST_IN_FAULT, now_s)


class SpotReclaim(Effect):
    """A provider takes spot machines back, and says so a while before."""

    def __init__(
        self, plan: ReclaimPlan, mishaps: Mishaps, schedule: Schedule, stream: Stream
    ) -> None:
        self._plan: Final = plan
        self._mishaps: Final = mishaps
        self._schedule: Final = schedule
        self._stream: Final = stream

    def choose(self) -> Strike:
        spot = [one.machine for one in places(self._plan.select, self._mishaps) if one.spot]
        taken = drawn(self._plan.select.count, spot, self._stream)
        return Reclaim(taken, self._plan.notice_s, self._mishaps, self._schedule)


class Reclaim(Strike):
    """Machines that are told to be empty soon, and are gone then."""

    lasts = False

    def __init__(
        self, machines: list[str], notice_s: float, mishaps: Mishaps, schedule: Schedule
    ) -> None:
        super().__init__(machines)
        self._notice_s: Final = notice_s
        self._mishaps: Final = mishaps
        self._schedule: Final = schedule

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        self._mishaps.warn(self.subjects, now_s)
        self._schedule.plan(now_s + self._notice_s, self._take, helps=False)

    def _take(self, now_s: float) -> None:
        self._mishaps.lose(self.subjects, RECLAIMED, now_s)


class ProviderOutage(Effect):
    """The provider of machines answers nobody."""

    def __init__(self, plan: OutagePlan, mishaps: Mishaps) -> None:  # noqa: ARG002
        self._mishaps: Final = mishaps

    def choose(self) -> Strike:
        return Outage(self._mishaps)


class Outage(Strike):
    """A while without answers."""

    def __init__(self, mishaps: Mishaps) -> None:
        super().__init__(["provider"])
        self._mishaps: Final = mishaps

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        self._mishaps.reach(1, now_s)

    def end(self, now_s: float) -> None:
        self._mishaps.reach(-1, now_s)


class QuotaExhaustion(Effect):
    """No more machines can be had than there are."""

    def __init__(self, plan: QuotaPlan, mishaps: Mishaps) -> None:
        self._plan: Final = plan
        self._mishaps: Final = mishaps

    def choose(self) -> Strike:
        return Shortage(self._plan, self._mishaps)


class Shortage(Strike):
    """A while in which a quota is used up."""

    def __init__(self, plan: QuotaPlan, mishaps: Mishaps) -> None:
        super().__init__([plan.pool or plan.zone or "fleet"])
        self._plan: Final = plan
        self._mishaps: Final = mishaps
        self._shapes: list[MachineShape] = []

    def begin(self, now_s: float, until_s: float) -> None:  # noqa: ARG002
        self._shapes = self._mishaps.shut(self._plan.pool, self._plan.zone, now_s)

    def end(self, now_s: float) -> None:
        self._mishaps.open(self._shapes, now_s)
