"""Machine shapes: type, zone, resources, labels, price. Equal shapes are interchangeable."""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from windtunnel.core.errors import InputError

BARE_METAL: Final = 0
RESERVED: Final = 1
ON_DEMAND: Final = 2
SPOT: Final = 3
CAPACITY_TYPES: Final = ("bare-metal", "reserved", "on-demand", "spot")
"""The name of each capacity type, by its number."""

IDLE_HOLD_S: Final = (math.inf, math.inf, 600.0, 60.0)
"""By capacity type: how long an idle machine is kept before it is deleted.

Bare metal and reservations are paid for in any case, so they stay.
"""

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
ZONE: Final = "topology.kubernetes.io/zone"
RACK: Final = "topology.windtunnel/rack"

Resources = tuple[tuple[str, int], ...]
"""Names with whole amounts, such as millicores, bytes or GPUs, sorted by name."""
Labels = tuple[tuple[str, str], ...]


class MachineShape(msgspec.Struct, frozen=True):
    """The common properties of interchangeable machines."""

    instance_type: str
    zone: str
    resources: Resources
    capacity_type: int = ON_DEMAND
    labels: Labels = ()
    price_per_hour: float = 0.0
    interruption_probability: float = 0.0
    """The probability that the provider takes the machine away, as stated by the provider."""

    def attributes(self) -> dict[str, str]:
        """The attributes for requirements: labels, and type and zone by their well-known keys."""
        return {**dict(self.labels), INSTANCE_TYPE: self.instance_type, ZONE: self.zone}

    def key(self) -> str:
        """A text that is equal only for equal shapes; it orders shapes of the same cost."""
        return (
            f"{self.instance_type}|{self.zone}|{self.capacity_type}|{_pairs(self.labels)}"
            f"|{_pairs(self.resources)}|{self.price_per_hour!r}|{self.interruption_probability!r}"
        )


def _pairs(pairs: tuple[tuple[str, object], ...]) -> str:
    return ";".join(f"{name}={value}" for name, value in pairs)


def shape(
    instance_type: str,
    zone: str,
    resources: Mapping[str, int],
    *,
    capacity_type: int = ON_DEMAND,
    labels: Mapping[str, str] | None = None,
    price_per_hour: float = 0.0,
    interruption_probability: float = 0.0,
) -> MachineShape:
    """Builds a checked shape, with sorted resources and labels."""
    made = MachineShape(
        instance_type,
        zone,
        tuple(sorted(resources.items())),
        capacity_type,
        tuple(sorted((labels or {}).items())),
        price_per_hour,
        interruption_probability,
    )
    fault = fault_of_shape(made)
    if fault:
        raise InputError(fault, where=f"shape {instance_type} in {zone}")
    return made


def fault_of_shape(shape: MachineShape) -> str:
    """The fault in a shape, as a sentence; empty: none."""
    price, probability = shape.price_per_hour, shape.interruption_probability
    if not 0.0 <= price < math.inf:
        return f"the price per hour is {price}; allowed: a number of 0 or more"
    if not 0.0 <= probability <= 1.0:
        return f"the interruption probability is {probability}; allowed: 0 to 1"
    if not 0 <= shape.capacity_type < len(CAPACITY_TYPES):
        return f"the capacity type is {shape.capacity_type}; allowed: 0 to 3"
    last = ""
    for name, amount in shape.resources:
        if name <= last:  # equal shapes must compare equal
            return f"resource {name!r} is there twice, or not in the order of names"
        last = name
        if not isinstance(amount, int) or amount < 0:
            return f"resource {name!r} is {amount}; allowed: a whole number of 0 or more"
    return ""
