"""Small worlds of machines and needs for tests, and random ones for hypothesis."""

from hypothesis import strategies as st

from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need, need, profile
from windtunnel.fleet.requirements import MachineRequirement, requirement, spread
from windtunnel.fleet.shape import (
    BARE_METAL,
    INSTANCE_TYPE,
    ON_DEMAND,
    RACK,
    SPOT,
    ZONE,
    MachineShape,
    shape,
)
from windtunnel.fleet.states import IDLE, SPECULATIVE

TYPES = {"small": (2, 8, 0.1), "large": (8, 32, 0.35), "gpu": (8, 64, 3.0)}
"""Cores, GiB and dollars per hour."""


def shape_of(
    kind: str = "small", zone: str = "a", rack: str = "r1", capacity_type: int = ON_DEMAND
) -> MachineShape:
    cores, gib, price = TYPES[kind]
    resources = {"cpu": cores, "memory": gib}
    if kind == "gpu":
        resources["gpu"] = 8
    return shape(
        kind,
        zone,
        resources,
        capacity_type=capacity_type,
        labels={RACK: f"{zone}-{rack}"},
        price_per_hour=price * (0.4 if capacity_type == SPOT else 1.0),
        interruption_probability=0.05 if capacity_type == SPOT else 0.0,
    )


def idle(name: str, like: MachineShape | None = None) -> Machine:
    return Machine(name, like or shape_of(), IDLE, host=f"host-{name}")


def quota(name: str, like: MachineShape | None = None) -> Machine:
    return Machine(name, like or shape_of(), SPECULATIVE)


def ask(
    cluster: str = "east",
    machines: int = 1,
    kind: str = "small",
    *more: MachineRequirement,
    priority: int = 100,
    group: str = "",
    skew: int = 0,
    arrival_s: float = 0.0,
    penalty: int = 1,
) -> Need:
    """A need of so many machines of a type."""
    cores, gib, _ = TYPES[kind]
    wish = profile(
        [requirement(INSTANCE_TYPE, "In", [kind]), *more],
        spread=[spread(ZONE, skew)] if skew else [],
        priority=priority,
        interruption_bucket=penalty,
        reclamation_bucket=penalty,
    )
    unit = {"cpu": cores, "memory": gib}
    total = {name: amount * machines for name, amount in unit.items()}
    return need(cluster, wish, total, unit, group=group, arrival_s=arrival_s)


SAME_RACK = requirement(RACK, "Same")

shapes = st.builds(
    shape_of,
    st.sampled_from(["small", "small", "large", "gpu"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["r1", "r2"]),
    st.sampled_from([ON_DEMAND, ON_DEMAND, SPOT, BARE_METAL]),
)


@st.composite
def needs(draw: st.DrawFn) -> Need:
    """Needs of every kind, few enough in kinds to compete."""
    kinds = draw(
        st.lists(st.sampled_from(["small", "small", "large", "gpu"]), min_size=1, max_size=2)
    )
    wishes = [requirement(INSTANCE_TYPE, "In", kinds)]
    flavour = draw(st.sampled_from(["plain", "plain", "zone", "same", "same", "spread"]))
    if flavour == "zone":
        wishes.append(requirement(ZONE, draw(st.sampled_from(["In", "NotIn"])), ["a"]))
    if flavour == "same":
        wishes.append(requirement(draw(st.sampled_from([RACK, ZONE])), "Same"))
    wish = profile(
        wishes,
        spread=[spread(ZONE, draw(st.integers(1, 2)))] if flavour == "spread" else [],
        priority=draw(st.sampled_from([1, 100, 1000])),
        interruption_bucket=draw(st.sampled_from([1, 9, 9, 27])),
        reclamation_bucket=draw(st.sampled_from([1, 9, 9, 27])),
    )
    cpu = draw(st.integers(1, 24))
    return need(
        draw(st.sampled_from(["east", "west"])),
        wish,
        {"cpu": cpu, "memory": draw(st.integers(4, 80))},
        {"cpu": min(cpu, draw(st.sampled_from([1, 2, 8]))), "memory": 4},
        group=draw(st.sampled_from(["", "g1", "g2"])),
        arrival_s=float(draw(st.integers(0, 3))),
    )
