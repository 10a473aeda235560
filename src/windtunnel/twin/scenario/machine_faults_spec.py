"""What a person writes under `faults:` about machines."""

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.settings.fields import Name, Text, Whole
from windtunnel.settings.section import Section
from windtunnel.twin.faults.plan import (
    MACHINE,
    RACK,
    ZONE,
    MachineLossPlan,
    MachineSelectPlan,
    OutagePlan,
    QuotaPlan,
    ReclaimPlan,
    What,
)
from windtunnel.twin.scenario.fault_times_spec import FaultSpec, LastingSpec, Moment
from windtunnel.twin.scenario.ground_spec import MOST_MACHINES

Count = Annotated[int | str, Whole(1, MOST_MACHINES, word="all")]
PoolName = Annotated[str, Name()]


def _counted(count: int | str) -> int | None:
    return None if isinstance(count, str) else count


class MachineSelectSpec(Section):
    """Machines that a fault befalls, of those that are there then."""

    pool: PoolName | None = Field(
        default=None, description="Of this pool of `fleet`; left out: of all."
    )
    zone: PoolName | None = Field(default=None, description="In this zone; left out: in any.")
    rack: Annotated[int, Whole(0, MOST_MACHINES)] | None = Field(
        default=None,
        description="In this rack of the pool, which must be named; they count from 0.",
    )
    machine: Annotated[str, Text("the name of a machine, such as big-0")] | None = Field(
        default=None, description="The one of this name, POOL-NUMBER; left out: they are drawn."
    )
    count: Count = Field(
        default=1, description="How many are drawn, or `all`; fewer if there are fewer."
    )

    def plan(self) -> MachineSelectPlan:
        return MachineSelectPlan(
            self.pool, self.zone, self.rack, self.machine, _counted(self.count)
        )


class RackSelectSpec(Section):
    """Racks that are lost, of those that have machines then."""

    pool: PoolName | None = Field(
        default=None, description="Of this pool of `fleet`; left out: of all."
    )
    zone: PoolName | None = Field(default=None, description="In this zone; left out: in any.")
    rack: Annotated[int, Whole(0, MOST_MACHINES)] | None = Field(
        default=None, description="This one of the pool, which must be named; from 0."
    )
    count: Count = Field(default=1, description="How many racks are drawn, or `all`.")

    def plan(self) -> MachineSelectPlan:
        return MachineSelectPlan(self.pool, self.zone, self.rack, None, _counted(self.count))


class ZoneSelectSpec(Section):
    """Zones that are lost, of those that have machines then."""

    zone: PoolName | None = Field(default=None, description="This one; left out: they are drawn.")
    count: Count = Field(default=1, description="How many zones are drawn, or `all`.")

    def plan(self) -> MachineSelectPlan:
        return MachineSelectPlan(None, self.zone, None, None, _counted(self.count))


class QuotaSelectSpec(Section):
    """Machines that can no longer be had."""

    pool: PoolName | None = Field(
        default=None, description="Of this pool of `fleet`; left out: of all."
    )
    zone: PoolName | None = Field(default=None, description="In this zone; left out: in any.")


MachineSelects = MachineSelectSpec | RackSelectSpec | ZoneSelectSpec | QuotaSelectSpec


class MachineFaultSpec(FaultSpec):
    """A fault of machines: there must be a `fleet`."""

    @property
    def where(self) -> MachineSelects | None:
        """Which machines; None: the whole fleet."""
        return None


class MachineLossSpec(MachineFaultSpec):
    """Machines stop, with the servers on them. Another can be had after `fleet.replaced_after`."""

    kind: Literal["machine-loss"]
    select: MachineSelectSpec = Field(
        default_factory=MachineSelectSpec, description="Which; left out: one of all."
    )

    @property
    def where(self) -> MachineSelects:
        return self.select

    def what(self) -> What:
        return MachineLossPlan(self.select.plan(), MACHINE)


class RackLossSpec(MachineFaultSpec):
    """All machines of a rack stop at once."""

    kind: Literal["rack-loss"]
    select: RackSelectSpec = Field(
        default_factory=RackSelectSpec, description="Which; left out: one of all."
    )

    @property
    def where(self) -> MachineSelects:
        return self.select

    def what(self) -> What:
        return MachineLossPlan(self.select.plan(), RACK)


class ZoneLossSpec(MachineFaultSpec):
    """All machines of a zone stop at once."""

    kind: Literal["zone-loss"]
    select: ZoneSelectSpec = Field(
        default_factory=ZoneSelectSpec, description="Which; left out: one of all."
    )

    @property
    def where(self) -> MachineSelects:
        return self.select

    def what(self) -> What:
        return MachineLossPlan(self.select.plan(), ZONE)


class SpotReclaimSpec(MachineFaultSpec):
    """The provider takes spot machines back. Their clusters are told `notice` before."""

    kind: Literal["spot-reclaim"]
    select: MachineSelectSpec = Field(
        default_factory=MachineSelectSpec, description="Which spot machines; left out: one of all."
    )
    notice: Moment = Field(
        default=120.0, description="From the notice to the loss; clouds give 30s to 2m."
    )

    @property
    def where(self) -> MachineSelects:
        return self.select

    def what(self) -> What:
        return ReclaimPlan(self.select.plan(), self.notice)


class ProviderOutageSpec(LastingSpec, MachineFaultSpec):
    """The provider of machines answers nobody: orders are lost, answers come afterwards."""

    kind: Literal["provider-outage"]

    def what(self) -> What:
        return OutagePlan()


class QuotaSpec(LastingSpec, MachineFaultSpec):
    """No more machines can be had than there are; one that is given back can be had again."""

    kind: Literal["quota-exhaustion"]
    select: QuotaSelectSpec = Field(
        default_factory=QuotaSelectSpec, description="Which machines; left out: all."
    )

    @property
    def where(self) -> MachineSelects:
        return self.select

    def what(self) -> What:
        return QuotaPlan(self.select.pool, self.select.zone)
