"""Realistic fleets and needs: seven kinds of workloads, their weights, sizes and machines.

For benchmarks and scale tests. The inventory matches the demand: each machine type gets its share
of the machines by what the needs will request, so that the needs can be satisfied where there are
enough machines.
"""

import math
from functools import lru_cache
from typing import Final

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need, NeedProfile, UnitSizes, merge, need, profile
from windtunnel.fleet.planner.costs import bucket_of
from windtunnel.fleet.requirements import requirement, spread
from windtunnel.fleet.shape import (
    INSTANCE_TYPE,
    ON_DEMAND,
    RACK,
    RESERVED,
    SPOT,
    ZONE,
    MachineShape,
    Resources,
    shape,
)
from windtunnel.fleet.states import CONFIGURED, IDLE, SPECULATIVE

RACKS_PER_ZONE: Final = 10
CELL: Final = "windtunnel.dev/cell"
"""The machine label by which shards divide a fleet."""
SHORT_CELL: Final = 0.97
"""The share of its needed machines that the first cell has."""
ZONES: Final = ("a", "b", "c")
BATCH: Final = "cpu-batch"
BATCH_PRIORITY: Final = 100

TYPES: Final = {
    "a3-highgpu-8g": (208, 1872, 8, 88.0),
    "a3-highgpu-1g": (26, 234, 1, 11.0),
    "a2-highgpu-1g": (12, 85, 1, 3.7),
    "c6i.4xlarge": (16, 32, 0, 0.68),
    "c6i.8xlarge": (32, 64, 0, 1.36),
    "n2-standard-32": (32, 128, 0, 1.55),
    "m6i.large": (2, 8, 0, 0.096),
    "m6i.xlarge": (4, 16, 0, 0.192),
    "m6i.2xlarge": (8, 32, 0, 0.384),
    "r6i.xlarge": (4, 32, 0, 0.252),
    "r6i.2xlarge": (8, 64, 0, 0.504),
}
"""Cores, GiB, GPUs and dollars per hour of each machine type."""


class UnitSize(msgspec.Struct, frozen=True):
    """One size of a workload's units: its weight, and its resources."""

    weight: int
    cores: int
    gib: int
    gpus: int = 0


class Archetype(msgspec.Struct, frozen=True):
    """One kind of workload."""

    name: str
    weight: int
    types: tuple[str, ...]
    zones: tuple[str, ...]
    sizes: tuple[UnitSize, ...]
    priorities: tuple[int, ...]
    interruption_dollars: float
    reclamation_dollars: float
    gang: tuple[int, int] = (1, 1)
    """The fewest and the most units that share a rack."""
    is_spread: bool = False
    """Whether machines are spread evenly over all zones."""


ARCHETYPES: Final = (
    Archetype(
        "gpu-training",
        5,
        ("a3-highgpu-8g",),
        ZONES,
        (UnitSize(70, 96, 768, 8), UnitSize(30, 200, 1800, 8)),
        (1000,),
        65536,
        65536,
        (2, 8),
    ),
    Archetype(
        "gpu-inference",
        15,
        ("a3-highgpu-1g", "a2-highgpu-1g"),
        ZONES,
        (UnitSize(60, 8, 64, 1), UnitSize(40, 12, 80, 1)),
        (100, 1000),
        4096,
        8192,
    ),
    Archetype(
        BATCH,
        35,
        ("c6i.4xlarge", "c6i.8xlarge", "n2-standard-32"),
        ZONES,
        (UnitSize(30, 4, 8), UnitSize(35, 8, 16), UnitSize(25, 16, 32), UnitSize(10, 32, 64)),
        (BATCH_PRIORITY,),
        64,
        256,
    ),
    Archetype(
        "cpu-service",
        30,
        ("m6i.large", "m6i.xlarge", "m6i.2xlarge"),
        ZONES,
        (UnitSize(40, 2, 8), UnitSize(35, 4, 16), UnitSize(25, 8, 32)),
        (1000,),
        1024,
        8192,
    ),
    Archetype(
        "web-frontend",
        10,
        ("m6i.large", "m6i.xlarge", "m6i.2xlarge"),
        ZONES,
        (UnitSize(60, 2, 8), UnitSize(40, 4, 16)),
        (1000,),
        1024,
        8192,
        is_spread=True,
    ),
    Archetype(
        "memory-db",
        10,
        ("r6i.xlarge", "r6i.2xlarge"),
        ("a", "b"),
        (UnitSize(60, 4, 32), UnitSize(40, 4, 64)),
        (1000,),
        4096,
        32768,
        (3, 5),
    ),
    Archetype(
        "critical-realtime",
        5,
        ("c6i.4xlarge", "m6i.2xlarge"),
        ZONES,
        (UnitSize(70, 8, 16), UnitSize(30, 16, 32)),
        (1_000_000,),
        65536,
        65536,
    ),
)


class BenchWorld(msgspec.Struct):
    """Machines, and matching needs of clusters."""

    machines: list[Machine]
    needs: dict[str, list[Need]]
    """Needs by cluster, one per unit; equal ones merge."""
    wanted: int
    """How many machines satisfy all of them."""

    @property
    def is_satisfiable(self) -> bool:
        return self.wanted <= len(self.machines)


NEEDS_PER_CLUSTER: Final = 50
SPECULATIVE_SHARE: Final = 0.2
SPOT_PRICE: Final = 0.35
SPOT_RISK: Final = 0.05


def world(machines: int, needs: int, stream: Stream, *, merging: bool = True) -> BenchWorld:
    """A fleet with these numbers of machines and needs; without `merging`, no two needs are
    alike."""
    if machines < 1 or needs < 1:
        raise InputError(
            f"a fleet of {machines} machines and {needs} needs is too small to measure",
            allowed="1 or more of both",
        )
    asked = _draw_needs(needs, stream, "c", merging=merging)
    wanted = _wanted(asked)
    return BenchWorld(_machines(_shares(machines, wanted), "m"), asked, sum(wanted.values()))


def cells(machines: int, needs: int, names: list[str], stream: Stream) -> dict[str, BenchWorld]:
    """A fleet in cells, each with its own clusters and machines.

    The first has too few machines, and the others have spare ones.
    """
    asked = {
        name: _draw_needs(max(1, needs // len(names)), stream, f"{name}-c", merging=True)
        for name in names
    }
    wanted = {name: _wanted(some) for name, some in asked.items()}
    every: dict[tuple[str, str], int] = {}
    for some in wanted.values():
        for pair, count in some.items():
            every[pair] = every.get(pair, 0) + count
    counts: dict[str, dict[tuple[str, str], int]] = {name: {} for name in names}
    for pair, total in _shares(machines, every).items():
        split = {name: wanted[name].get(pair, 0) for name in names}
        for name, count in _split(total, split).items():
            counts[name][pair] = count
    return {
        name: BenchWorld(
            _machines(counts[name], f"{name}-m", name), asked[name], sum(wanted[name].values())
        )
        for name in names
    }


def _split(total: int, wanted: dict[str, int]) -> dict[str, int]:
    """Machines of one type and zone by cell: too few for the first, where others can help."""
    first, *others = wanted
    among = sum(wanted[name] for name in others)
    short = math.floor(SHORT_CELL * wanted[first])
    missing = wanted[first] - short
    if not among or total - wanted[first] - among < 2 * missing:
        others, among, short = list(wanted), among + wanted[first], 0
    counts, owed, given = dict.fromkeys(wanted, 0), 0.0, 0
    if first not in others:
        counts[first] = short
    for name in others:
        owed += (total - short) * wanted[name] / among
        counts[name] = round(owed) - given
        given = round(owed)
    return counts


def _wanted(asked: dict[str, list[Need]]) -> dict[tuple[str, str], int]:
    """How many machines satisfy all needs, by type and zone."""
    wanted: dict[tuple[str, str], int] = {}
    for some in asked.values():
        for row in merge(some).values():
            types = next(one.values for one in row.profile.requirements if one.key == INSTANCE_TYPE)
            zones = next(one.values for one in row.profile.requirements if one.key == ZONE)
            for number, kind in enumerate(_cheapest(types, row.sizes())):
                pair = (kind, zones[number % len(zones)])
                wanted[pair] = wanted.get(pair, 0) + 1
    return wanted


def _draw_needs(count: int, stream: Stream, prefix: str, *, merging: bool) -> dict[str, list[Need]]:
    clusters = [f"{prefix}{number:04}" for number in range(max(1, count // NEEDS_PER_CLUSTER))]
    asked: dict[str, list[Need]] = {name: [] for name in clusters}
    made = 0
    while made < count:
        kind = ARCHETYPES[_pick([one.weight for one in ARCHETYPES], stream)]
        cluster = clusters[stream.integer(0, len(clusters) - 1)]
        size = kind.sizes[_pick([one.weight for one in kind.sizes], stream)]
        members = stream.integer(*kind.gang) if kind.gang[1] > 1 else 1
        group = f"g{made}" if members > 1 or not merging else ""
        wish = _profile(kind, stream)
        for _ in range(min(members, count - made)):
            asked[cluster].append(_unit(cluster, wish, size, group, float(made)))
            made += 1
    return asked


def _pick(weights: list[int], stream: Stream) -> int:
    """Draws an index by weight."""
    left = stream.uniform() * sum(weights)
    for place, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return place
    return len(weights) - 1


def _profile(kind: Archetype, stream: Stream) -> NeedProfile:
    zones = kind.zones
    if not kind.is_spread:
        zones = (zones[stream.integer(0, len(zones) - 1)],)
    wishes = [requirement(INSTANCE_TYPE, "In", kind.types), requirement(ZONE, "In", zones)]
    if kind.gang[1] > 1:
        wishes.append(requirement(RACK, "Same"))
    return profile(
        wishes,
        spread=[spread(ZONE)] if kind.is_spread else [],
        priority=kind.priorities[stream.integer(0, len(kind.priorities) - 1)],
        interruption_bucket=bucket_of(kind.interruption_dollars),
        reclamation_bucket=bucket_of(kind.reclamation_dollars),
    )


def _unit(cluster: str, wish: NeedProfile, size: UnitSize, group: str, arrival_s: float) -> Need:
    amounts = {"cpu": size.cores * 1000, "memory": size.gib * 1024}
    if size.gpus:
        amounts["gpu"] = size.gpus
    return need(cluster, wish, amounts, amounts, group=group, arrival_s=arrival_s)


def _amounts(kind: str) -> dict[str, int]:
    cores, gib, gpus, _ = TYPES[kind]
    amounts = {"cpu": cores * 1000, "memory": gib * 1024}
    return {**amounts, "gpu": gpus} if gpus else amounts


@lru_cache(maxsize=10_000)
def _cheapest(types: tuple[str, ...], sizes: UnitSizes) -> list[str]:
    """The machines for the given units: each time the cheapest type for those that remain."""
    left = [size for size, count in sizes for _ in range(count)]
    largest = left[0]
    taken: list[str] = []
    while left:
        kind, left = min(
            (
                (kind, _without(left, kind))
                for kind in types
                if all(_amounts(kind).get(name, 0) >= amount for name, amount in largest)
            ),
            key=lambda one: (TYPES[one[0]][3] / (_cores(left) - _cores(one[1])), one[0]),
        )
        taken.append(kind)
    return taken


def _without(units: list[Resources], kind: str) -> list[Resources]:
    """The units that do not fit on a machine of this type, placing the largest first."""
    free, others = _amounts(kind), []
    for unit in units:
        if all(free[name] >= amount for name, amount in unit):
            for name, amount in unit:
                free[name] -= amount
        else:
            others.append(unit)
    return others


def _cores(units: list[Resources]) -> int:
    return sum(dict(unit)["cpu"] for unit in units)


def _shares(count: int, wanted: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Divides `count` machines by type and zone in proportion to what is wanted."""
    share, owed, given = count / sum(wanted.values()), 0.0, 0
    shares: dict[tuple[str, str], int] = {}
    for pair, number in sorted(wanted.items()):
        owed += number * share
        shares[pair] = round(owed) - given
        given = round(owed)
    return shares


def _machines(counts: dict[tuple[str, str], int], prefix: str, cell: str = "") -> list[Machine]:
    """Machines by type and zone; one in five is a place in a quota."""
    racks = min(RACKS_PER_ZONE, max(1, sum(counts.values()) // 1000))
    machines: list[Machine] = []
    for (kind, zone), count in counts.items():
        places = [_shape(kind, zone, rack, racks, cell) for rack in range(racks)]
        for place in range(count):
            number = len(machines)
            idle = place % round(1 / SPECULATIVE_SHARE) != 0
            machines.append(
                Machine(
                    f"{prefix}{number:07}",
                    places[place % racks],
                    IDLE if idle else SPECULATIVE,
                    host=f"h-{prefix}{number:07}" if idle else "",
                )
            )
    return machines


def _shape(kind: str, zone: str, rack: int, racks: int, cell: str) -> MachineShape:
    """A machine shape: racks are reserved or on demand, and one rack is spot for batch work."""
    price = TYPES[kind][3]
    spot = racks == RACKS_PER_ZONE and rack == racks - 1 and kind.startswith(("c6i", "n2"))
    capacity_type = SPOT if spot else (RESERVED if rack * 3 < racks else ON_DEMAND)
    return shape(
        kind,
        zone,
        _amounts(kind),
        capacity_type=capacity_type,
        labels={RACK: f"{zone}-{rack}", **({CELL: cell} if cell else {})},
        price_per_hour=price * SPOT_PRICE if spot else price,
        interruption_probability=SPOT_RISK if spot else 0.0,
    )


# A fleet in which every machine is held, and needs that preempt.

PLAIN: Final = "plain"
SPREAD: Final = "spread"
GANGS: Final = "gangs"
URGENT: Final = (PLAIN, SPREAD, GANGS)
"""The constraints of urgent needs: none, spread over zones, or on one rack."""
URGENT_MACHINES: Final = 5
URGENT_PRIORITY: Final = 1_000_000
HELD_RACKS: Final = 67  # with three zones about 200 stocks
HELD_PRIORITIES: Final = 7
HELD_TYPE: Final = "a3-highgpu-8g"


def held_world(machines: int, needs: int) -> BenchWorld:
    """Machines that are all held, by this many needs of several low priorities."""
    shapes = [
        _shape(HELD_TYPE, zone, rack, HELD_RACKS, "")
        for zone in ZONES
        for rack in range(HELD_RACKS)
    ]
    asked: dict[str, list[Need]] = {}
    made: list[Machine] = []
    for number in range(needs):
        count = machines * (number + 1) // needs - len(made)
        wish = profile(
            [requirement(INSTANCE_TYPE, "In", [HELD_TYPE])],
            priority=100 + number % HELD_PRIORITIES,
            reclamation_bucket=1 + number % 4,
        )
        cluster = f"c{number // NEEDS_PER_CLUSTER:04}"
        one = _whole_machines(cluster, wish, max(1, count), f"held-{number}")
        asked.setdefault(one.cluster, []).append(one)
        for _ in range(count):
            name = f"m{len(made):07}"
            like = shapes[len(made) % len(shapes)]
            made.append(Machine(name, like, CONFIGURED, f"h-{name}", one.cluster, one.key()))
    return BenchWorld(made, asked, len(made))


def urgent_needs(count: int, kind: str) -> list[Need]:
    """Needs of other clusters, which must preempt the holders of all machines."""
    wishes = [requirement(INSTANCE_TYPE, "In", [HELD_TYPE])]
    if kind == GANGS:
        wishes.append(requirement(RACK, "Same"))
    wish = profile(
        wishes, spread=[spread(ZONE)] if kind == SPREAD else [], priority=URGENT_PRIORITY
    )
    return [
        _whole_machines(f"urgent-{number}", wish, URGENT_MACHINES, f"{kind}-{number}")
        for number in range(count)
    ]


def batch_bursts(cluster: str, machines: int) -> list[Need]:
    """Urgent needs for machines of batch work, one for the first rack of each zone.

    Racks are filled one after the other, so the first one is full where there are several.
    """
    batch = next(one for one in ARCHETYPES if one.name == BATCH)
    size = batch.sizes[2]
    found: list[Need] = []
    for number, zone in enumerate(ZONES):
        count = (machines + number) // len(ZONES)
        if count:
            wishes = [
                requirement(INSTANCE_TYPE, "In", batch.types),
                requirement(RACK, "In", [f"{zone}-0"]),
            ]
            wish = profile(wishes, priority=URGENT_PRIORITY // 2)
            units = [_unit(cluster, wish, size, "", 0.0) for _ in range(count)]
            found += merge(units).values()
    return found


def _whole_machines(cluster: str, wish: NeedProfile, count: int, group: str) -> Need:
    unit = {"gpu": TYPES[HELD_TYPE][2]}
    return need(cluster, wish, {"gpu": unit["gpu"] * count}, unit, group=group)
