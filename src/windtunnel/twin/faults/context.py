"""The parts of a scenario that faults depend on, for their checks and for the fuzzer."""

from typing import TYPE_CHECKING, Final, NamedTuple

from windtunnel.settings.drawing import Dice

if TYPE_CHECKING:
    from windtunnel.twin.scenario.sections import Scenario


NO_AUTOSCALER: Final = "there is no autoscaler: the scenario has no `scaling`"


class MachinePool(NamedTuple):
    """A pool of machines of the fleet."""

    name: str
    zone: str
    spot: bool
    maximum: int = 1
    racks: int = 1

    def can_have(self, machine: str) -> bool:
        """Whether a machine of this name can exist; replacements of lost machines have a slash."""
        if machine.startswith(f"{self.name}/"):
            return True
        pool, _, number = machine.rpartition("-")
        return pool == self.name and number in map(str, range(self.maximum))


class FaultContext(NamedTuple):
    """What a scenario has for a fault to hit."""

    servers: dict[str, int]
    """The initial size of each server pool."""
    machines: tuple[MachinePool, ...]
    """The machine pools; empty without `fleet`."""
    scales: bool
    """Whether there is an autoscaler."""
    queues: bool
    """Whether the gateway may queue requests."""
    pods: bool
    """Whether servers are pods, of `gangs` or on a `fleet`."""
    duration_s: float | None = None
    """Duration of the run; None: it ends with its last request."""
    lasts_s: float = 1.0
    """Roughly how long requests arrive; the fuzzer draws times relative to it."""

    @property
    def readers(self) -> tuple[str, ...]:
        """The readers of server metrics."""
        return ("routers", "autoscaler") if self.scales else ("routers",)

    def span_s(self, dice: Dice) -> float:
        """Draws a length of time within the run."""
        return self.lasts_s * dice.span(0.01, 0.6)


def context_of(scenario: "Scenario") -> FaultContext:
    """The context of a parsed scenario."""
    machines = []
    for one in scenario.fleet.pools if scenario.fleet is not None else ():
        maximum, per_rack = one.machines.max, one.machines_per_rack
        racks = -(-maximum // per_rack) if per_rack else 1
        machines.append(MachinePool(one.name, one.zone, one.capacity == "spot", maximum, racks))
    return FaultContext(
        servers={pool.name: pool.replicas for pool in scenario.serving.pools},
        machines=tuple(machines),
        scales=scenario.scaling is not None,
        queues=not scenario.serving.admission.admits_all,
        pods=scenario.gangs is not None or scenario.fleet is not None,
        duration_s=scenario.duration_s,
    )
