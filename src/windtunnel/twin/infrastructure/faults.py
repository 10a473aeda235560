"""The effects that faults can have on the machines of a run."""

from typing import Final, NamedTuple

from windtunnel.fleet.machine import Machine
from windtunnel.fleet.shape import SPOT, MachineShape
from windtunnel.fleet.states import CONFIGURED, CONFIGURING, DRAINING, IDLE, SPECULATIVE
from windtunnel.twin.fleet.provider import CapacityShortage
from windtunnel.twin.infrastructure.infrastructure import Infrastructure

EXISTING: Final = (IDLE, CONFIGURING, CONFIGURED, DRAINING)


class FleetMachine(NamedTuple):
    """An existing machine and its location."""

    name: str
    pool: str
    zone: str
    rack: int
    """The rack number within its pool."""
    spot: bool


class MachineFaults:
    """Loses, reclaims and withholds machines. Times are those of the run."""

    def __init__(self, infrastructure: Infrastructure) -> None:
        assert infrastructure.machines is not None, "refused when it is loaded"
        self._infrastructure: Final = infrastructure
        self._machines: Final = infrastructure.machines

    def existing(self) -> list[FleetMachine]:
        """All existing machines, by name."""
        records = self._machines.provider.records()
        return [self._place(one) for one in records if one.state in EXISTING]

    def _place(self, machine: Machine) -> FleetMachine:
        pool = self._machines.pool_of[machine.shape.instance_type]
        number = int(machine.id.replace("/", "-").rpartition("-")[2])
        rack = pool.rack_of(number)
        spot = machine.shape.capacity_type == SPOT
        return FleetMachine(machine.id, pool.name, pool.zone, rack, spot)

    def lose(
        self, machines: list[str], error: str, now_s: float, back_s: float | None = None
    ) -> None:
        """Loses machines for good; machines that are already gone are skipped.

        Replacements become available after `back_s`; None: after the fleet's `replaced_after`.
        """
        for machine in machines:
            self._machines.lose(machine, error, now_s, back_s)
        self._infrastructure.wake(now_s)

    def warn(self, machines: list[str], now_s: float) -> None:
        """Gives notice that machines will be reclaimed: their clusters drain them."""
        for machine in machines:
            self._machines.warn(machine, now_s)
        self._infrastructure.wake(now_s)

    def exhaust_quota(self, pool: str | None, zone: str | None, now_s: float) -> list[MachineShape]:
        """Withdraws the provider's offers of further machines; returns their shapes."""
        gone: list[MachineShape] = []
        for machine in self._machines.provider.records():
            own = self._machines.pool_of[machine.shape.instance_type]
            if (
                machine.state == SPECULATIVE
                and pool in (None, own.name)
                and zone in (None, own.zone)
            ):
                gone.append(machine.shape)
                self._machines.provider.remove(machine.id)
        self._infrastructure.wake(now_s)
        return gone

    def restore_quota(self, shapes: list[MachineShape], now_s: float) -> None:
        """Restores the provider's offers of these shapes."""
        for shape in shapes:
            self._machines.provider.open(shape)
        self._infrastructure.wake(now_s)

    def withhold_capacity(
        self, pool: str | None, zone: str | None, now_s: float, *, on: bool
    ) -> None:
        """Makes orders to create a machine fail for lack of capacity."""
        shortage = CapacityShortage(pool or "", zone or "")
        if on:
            self._machines.provider.shortages.append(shortage)
        else:
            self._machines.provider.shortages.remove(shortage)
        self._infrastructure.wake(now_s)

    def cut_off_provider(self, now_s: float, *, on: bool) -> None:
        """Makes the provider unreachable."""
        self._machines.link.out += 1 if on else -1
        self._infrastructure.wake(now_s)
