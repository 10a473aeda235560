"""The section `fleet:`: pools of machines, their prices, and how often the fleet decides."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from windtunnel.core.taints import taint_of
from windtunnel.fleet.demand.requests import CPU, GPU, MEMORY
from windtunnel.fleet.shape import CAPACITY_TYPES, RESERVED, MachineShape, shape
from windtunnel.settings.faults import Fault, dotted
from windtunnel.settings.fields import Duration, Name, Number, Share, Size, TaintForm, Text, Whole
from windtunnel.settings.limits import HIGHEST_PRICE, LONGEST_TARGET
from windtunnel.settings.section import Added, Context, Section

MOST_MACHINES = 100_000
MOST_KINDS = 1_000
MOST_ON_ONE = 1_024
OWN_TAINTS = {"windtunnel.dev/": "Windtunnel", "node.kubernetes.io/": "Kubernetes"}
"""Owners of taints, by prefix of their keys."""
PODS = 110.0
"""Pods per node, the limit of kubelets."""

Machines = Annotated[int, Whole(0, MOST_MACHINES)]
Label = Annotated[str, Text("the key or the value of a label")]


class MachineCounts(Section):
    """The number of machines."""

    min: Machines = Field(default=0, description="Kept, and paid for, even when not needed.")
    initial: Machines | None = Field(
        default=None,
        description="Present at the start. Default: what the initial replicas need.",
    )
    max: Machines = Field(description="The quota.")

    def check(self, where: Context) -> Iterator[Fault]:
        beside = ("min", "initial", "max")
        if self.min > self.max:
            what = f"{self.min} is more than max, which is {self.max}"
            yield where.fault("min", what, beside=beside)
        elif self.initial is not None and not self.min <= self.initial <= self.max:
            what = f"{self.initial} is not between min and max"
            yield where.fault("initial", what, f"{self.min} to {self.max}", beside=beside)


class ProvisioningTime(Section):
    """The time to get a machine: lognormal, drawn for each."""

    mean_s: Annotated[float, Duration("0s", LONGEST_TARGET)] = Field(
        default=120.0, description="Mean."
    )
    stddev_s: Annotated[float, Duration("0s", LONGEST_TARGET)] = Field(
        default=0.0, description="Standard deviation."
    )

    @property
    def cv(self) -> float:
        """The standard deviation over the mean."""
        return self.stddev_s / self.mean_s if self.mean_s else 0.0


class FleetPool(Section):
    """Machines of one kind."""

    name: Annotated[str, Name()] = Field(description="Its name in results.")
    accelerator: Annotated[str, Text("the name of an accelerator, such as h200")] = Field(
        description="Their accelerator: a catalog name, or the name that pools use."
    )
    accelerators: Annotated[int, Whole(1, MOST_ON_ONE)] = Field(
        default=8, description="Accelerators per machine."
    )
    machines: MachineCounts = Field(description="Number of machines.")
    provisioning: ProvisioningTime = Field(
        default_factory=ProvisioningTime,
        description="Time to get one more: lognormal, drawn for each.",
    )
    price_per_hour: Annotated[float, Number(0, HIGHEST_PRICE)] | None = Field(
        default=None,
        description="Dollars per machine-hour. Default: the catalog's example for its "
        "accelerators.",
    )
    capacity: Literal["on-demand", "spot", "reserved", "bare-metal"] = Field(
        default="on-demand",
        description="Idle machines are deleted after 10m (`on-demand`), 1m (`spot`) or "
        "never (`reserved`, `bare-metal`).",
    )
    interruption: Annotated[float, Share()] = Field(
        default=0.0,
        description="Interruption rate, which the fleet weighs against the price.",
    )
    zone: Annotated[str, Name()] = Field(default="zone-1", description="Its zone.")
    machines_per_rack: Annotated[int, Whole(0, MOST_MACHINES)] = Field(
        default=0, description="Machines per rack; 0: one rack for the pool."
    )
    cpu: Annotated[float, Number(0, 100_000, above=True)] = Field(
        default=192.0, description="Cores per machine, for pods that request some."
    )
    memory_bytes: Annotated[float, Size("0", "1024TiB", above=True)] = Field(
        default=float(2 << 40), description="Memory per machine, for pods that request some."
    )
    labels: dict[Label, Label] = Field(
        default_factory=dict, description="Labels of its nodes, for the selectors of manifests."
    )

    taints: Annotated[list[Annotated[str, TaintForm()]], Added()] = Field(
        default_factory=list,
        description="Taints of its nodes, such as `nvidia.com/gpu=present:NoSchedule`.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        first: dict[tuple[str, str], int] = {}
        for index, text in enumerate(self.taints):
            key, _, effect = taint_of(text)
            before = first.setdefault((key, effect), index)
            if before != index:
                other = dotted((*where.path, "taints", before))
                what = f"{text!r} has the key and the effect of {other}"
                yield where.fault(("taints", index), what, "one taint for a key and an effect")
            owner = next((who for start, who in OWN_TAINTS.items() if key.startswith(start)), "")
            if owner:
                what = f"{text!r} is a taint that {owner} adds and removes itself"
                yield where.fault(("taints", index), what, "taints with a key of your own")

    def capacity_for_pods(self) -> dict[str, float]:
        """The capacity of one machine for pods."""
        return {
            GPU: float(self.accelerators),
            CPU: self.cpu,
            MEMORY: self.memory_bytes,
            "pods": PODS,
        }

    def shape(self, number: int, labels: Mapping[str, str], price: float) -> MachineShape:
        """The shape of a machine of the pool, by its number: the first ones are always kept."""
        kept = number < self.machines.min
        return shape(
            self.name,
            self.zone,
            {
                CPU: int(self.cpu * 1000),
                MEMORY: int(self.memory_bytes),
                GPU: self.accelerators,
            },
            capacity_type=RESERVED if kept else CAPACITY_TYPES.index(self.capacity),
            labels=labels,
            price_per_hour=price,
            interruption_probability=0.0 if kept else self.interruption,
        )

    def rack_of(self, number: int) -> int:
        """The rack of a machine of the pool, by its number."""
        return number // self.machines_per_rack if self.machines_per_rack else 0


class FleetSettings(Section):
    """The machines of the fleet, their prices, and how often the fleet decides."""

    pools: list[FleetPool] = Field(
        min_length=1, max_length=MOST_KINDS, description="Kinds of machines."
    )
    cycle_s: Annotated[float, Duration("100ms", "1h")] = Field(
        default=10.0, description="Time between decisions."
    )
    replaced_after_s: Annotated[float, Duration("0s", LONGEST_TARGET)] = Field(
        default=600.0,
        description="Time after a loss until a replacement is available.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        yield from where.repeated("pools", [pool.name for pool in self.pools])
