"""What a need pays for its units, beside a bound that nothing beats."""

from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import coo_array

from tests.fleet.worlds import idle
from windtunnel.core.loop import Loop
from windtunnel.core.random import Stream, Streams
from windtunnel.fleet.driver import FleetDriver
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need, need, profile
from windtunnel.fleet.planner.actions import BOOTSTRAP
from windtunnel.fleet.planner.consolidation import ConsolidationLimits
from windtunnel.fleet.planner.cycle import Planner
from windtunnel.fleet.shape import MachineShape, shape
from windtunnel.fleet.shard import Shard
from windtunnel.twin.fleet.bound import fleet_gap
from windtunnel.twin.fleet.provider import Delays, SimulatedProvider

SIZES = (1, 2, 4, 8, 16)
SCARCEST = 0.1
EAGER = ConsolidationLimits(
    least_saving=0.0, budget_share=1.0, budget_machines=10_000, cooldown_s=20.0
)


class Mix:
    """Three generations of machines in five sizes, and needs of units in five sizes."""

    def __init__(self, seed: int) -> None:
        draw = Stream(seed, "mix")
        self.shapes: list[MachineShape] = []
        for generation in range(3):
            dollars = 0.6 + draw.uniform()
            for gpus in SIZES:
                price = gpus * dollars * (0.85 + 0.3 * draw.uniform())
                memory = gpus * (64, 128)[draw.integer(0, 1)]
                offered = {"gpu": gpus, "cpu": gpus * 12, "memory": memory}
                like = shape(f"g{generation}-{gpus}", "a", offered, price_per_hour=price)
                self.shapes.append(like)
        self.needs = [self._need(draw, number) for number in range(9)]

    def _need(self, draw: Stream, number: int) -> Need:
        gpus, count = (1, 2, 3, 4, 6, 8)[draw.integer(0, 5)], draw.integer(40, 120)
        unit = {
            "gpu": gpus,
            "cpu": gpus * (4, 8, 12)[draw.integer(0, 2)],
            "memory": gpus * (16, 48)[draw.integer(0, 1)],
        }
        total = {name: amount * count for name, amount in unit.items()}
        return need(f"c{number % 3}", profile(priority=number), total, unit)

    def machines(self, shapes: list[MachineShape], plenty: float = 2.0) -> list[Machine]:
        """Of every shape so many times as many as everything takes."""
        asked = sum(dict(one.aggregate)["gpu"] for one in self.needs)
        return [
            idle(f"{like.instance_type}-{number:04}", like)
            for like in shapes
            for number in range(int(plenty * asked) // dict(like.resources)["gpu"])
        ]

    def wanted(self) -> dict[str, list[Need]]:
        found: dict[str, list[Need]] = {}
        for one in self.needs:
            found.setdefault(one.cluster, []).append(one)
        return found


@pytest.mark.parametrize("seed", range(10))
def test_a_mix_costs_little_more_than_the_bound(seed: int) -> None:
    mix, planner = Mix(seed), Planner()
    planner.inventory.load(mix.machines(mix.shapes))
    for cluster, some in mix.wanted().items():
        planner.needs.replace(cluster, some)
    assert not planner.cycle(0.0).shortfalls
    gap = fleet_gap(planner)
    assert gap.rows == len(mix.needs)
    assert gap.gap <= 0.05


@pytest.mark.parametrize("plenty", [SCARCEST, 0.15, 0.3])
@pytest.mark.parametrize("seed", range(10))
def test_a_mix_with_scarce_machines_costs_little_more(seed: int, plenty: float) -> None:
    """All machines together are 1.5 to 4.5 times what is needed: those that are cheap for several
    needs go to the ones that gain most by them. Served one after the other, they cost up to 22 %
    more than the bound."""
    mix, planner = Mix(100 + seed), Planner()
    planner.inventory.load(mix.machines(mix.shapes, plenty))
    for cluster, some in mix.wanted().items():
        planner.needs.replace(cluster, some)
    planner.cycle(0.0)
    gap = fleet_gap(planner)
    short = 2 if plenty == SCARCEST else 0  # units of eight may find too few large machines
    assert gap.rows >= len(mix.needs) - short
    assert gap.gap <= 0.03
    again = planner.cycle(1.0)
    assert (again.actions, again.withdrawn) == ([], [])


@pytest.mark.parametrize("plenty", [2.0, 0.3, 0.2])
@pytest.mark.parametrize("seed", range(8))
def test_needs_of_several_unit_sizes_cost_little_more(seed: int, plenty: float) -> None:
    """Where cheap machines are scarce, needs with units of two or three sizes trade them: served
    one after the other, some mixes cost more than that."""
    mix, planner, draw = Mix(300 + seed), Planner(), Stream(seed, "sizes")
    mix.needs = [_with_smaller_units(one, draw) for one in mix.needs]
    machines = mix.machines(mix.shapes, plenty)
    planner.inventory.load(machines)
    for cluster, some in mix.wanted().items():
        planner.needs.replace(cluster, some)
    plan = planner.cycle(0.0)
    assert not plan.shortfalls
    shapes = {one.id: one.shape for one in machines}
    cost = sum(shapes[action.machine].price_per_hour for action in plan.actions)
    assert cost <= 1.05 * _filled_bound(mix.needs, Counter(one.shape for one in machines))
    again = planner.cycle(1.0)
    assert (again.actions, again.withdrawn) == ([], [])


def _with_smaller_units(one: Need, draw: Stream) -> Need:
    """A need with a second size of units, and often a third."""
    ((largest, count),) = one.sizes()
    units, gpus = {largest: count}, dict(largest)["gpu"]
    for _ in range(2):
        part = draw.integer(1, gpus)
        smaller = tuple((name, amount * part // gpus) for name, amount in largest)
        units.setdefault(smaller, draw.integer(20, 120))
    amounts = {
        name: sum(dict(size)[name] * times for size, times in units.items()) for name, _ in largest
    }
    sizes = tuple(sorted(units.items(), key=lambda pair: dict(pair[0])["gpu"], reverse=True))
    return msgspec.structs.replace(one, aggregate=tuple(amounts.items()), units=sizes)


def _filled_bound(needs: list[Need], available: Counter[MachineShape]) -> float:
    """The least cost where needs may have parts of machines, each filled with whole units."""
    shapes = list(available)
    limits = [float(available[like]) for like in shapes]
    costs: list[float] = []
    entries: list[tuple[int, int, float]] = []
    for one in needs:
        first = len(limits)
        limits += [-float(count) for _, count in one.sizes()]
        for at, like in enumerate(shapes):
            for filled in _fillings(dict(like.resources), [dict(size) for size, _ in one.sizes()]):
                entries.append((at, len(costs), 1.0))
                entries += [(first + n, len(costs), -float(k)) for n, k in enumerate(filled)]
                costs.append(like.price_per_hour)
    at_row, at_column, values = zip(*entries, strict=True)
    matrix = coo_array((values, (at_row, at_column)), shape=(len(limits), len(costs))).tocsr()
    limit = LinearConstraint(matrix, np.full(len(limits), -np.inf), np.array(limits))
    done = milp(np.array(costs), constraints=limit)
    assert done.status == 0
    return float(done.fun)


def _fillings(free: dict[str, int], sizes: list[dict[str, int]]) -> Iterator[tuple[int, ...]]:
    """Every number of units of each size that fills a machine."""
    room = min(free[name] // amount for name, amount in sizes[0].items())
    if len(sizes) == 1:
        yield (room,)
        return
    for count in range(room + 1):
        left = {name: amount - count * sizes[0].get(name, 0) for name, amount in free.items()}
        for rest in _fillings(left, sizes[1:]):
            yield (count, *rest)


@pytest.mark.parametrize("seed", range(3))
def test_after_consolidation_it_costs_still_less(seed: int) -> None:
    """Two generations are there from the start; the third, and with it the best choice, later."""
    mix, provider = Mix(seed), SimulatedProvider(Delays(), Streams(3))
    mix.needs = mix.needs[:4]
    few = [one for one in mix.shapes if not one.instance_type.startswith("g2")]
    for machine in mix.machines(few):
        provider.add(machine)
    shard = Shard("s", consolidation=EAGER)
    loop = Loop(FleetDriver(provider, [shard], Streams(3)["fetch"]))
    for cluster, some in mix.wanted().items():
        shard.want(cluster, some)
    loop.run(300.0)
    for machine in mix.machines(mix.shapes):
        if machine.shape not in few:
            provider.add(machine)
    loop.run(2500.0)
    gap = fleet_gap(shard.planner)
    assert gap.rows == len(mix.needs)
    assert gap.gap <= 0.01


def test_it_is_the_price_of_a_unit_that_counts() -> None:
    small = shape("small", "a", {"gpu": 1}, price_per_hour=1.1)
    large = shape("large", "a", {"gpu": 8}, price_per_hour=8.0)
    machines = [idle(f"l{n}", large) for n in range(3)] + [
        idle(f"s{n:02}", small) for n in range(20)
    ]

    def taken(count: int) -> str:
        planner = Planner()
        planner.inventory.load(machines)
        planner.needs.replace("east", [need("east", profile(), {"gpu": count}, {"gpu": 1})])
        plan = planner.cycle(0.0)
        assert all(one.kind == BOOTSTRAP for one in plan.actions)
        return "".join(one.machine[0] for one in plan.actions)

    assert taken(7) == "sssssss"  # 7.70, where the large one costs 8.00
    assert taken(8) == "l"
    assert taken(10) == "lss"
    assert taken(23) == "llsssssss"
