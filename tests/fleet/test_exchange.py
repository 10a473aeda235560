"""Needs exchange what they took in a cycle: the sum is near the optimum, and nobody loses."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet.test_equivalence import Both
from tests.fleet.worlds import idle, quota
from windtunnel.core.random import Stream
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need, need, profile
from windtunnel.fleet.planner.actions import BOOTSTRAP, PROVISION, CyclePlan
from windtunnel.fleet.planner.cycle import Planner
from windtunnel.fleet.planner.exchange.auction import MOST_BIDDERS, BiddingNeed, Choice, share_out
from windtunnel.fleet.shape import shape

SMALL = shape("small", "a", {"gpu": 2, "memory": 64}, price_per_hour=2.2)
LARGE = shape("large", "a", {"gpu": 8, "memory": 256}, price_per_hour=8.0)
RICH = shape("rich", "a", {"gpu": 8, "memory": 512}, price_per_hour=7.9)


def ask(cluster: str, gpus: int, unit: int, memory: int, priority: int) -> Need:
    one = {"gpu": unit, "memory": memory}
    total = {name: amount * (gpus // unit) for name, amount in one.items()}
    return need(cluster, profile(priority=priority), total, one)


def first_cycle(machines: list[Machine], *wanted: Need) -> tuple[CyclePlan, dict[str, str]]:
    """The plan, and the types that each cluster gets."""
    planner = Planner()
    planner.inventory.load(machines)
    for one in wanted:
        planner.needs.replace(one.cluster, [one])
    plan = planner.cycle(0.0)
    taken: dict[str, str] = {}
    for action in plan.actions:
        taken[action.cluster] = taken.get(action.cluster, "") + action.machine[0]
    again = planner.cycle(1.0)
    assert (again.actions, again.withdrawn) == ([], [])
    return plan, taken


def test_a_machine_goes_to_the_need_that_gains_most_by_it() -> None:
    """Served first, the need of little memory would take the rich machine, which is the cheapest;
    the other one has room for four units there and for two on a large one."""
    machines = [idle("r1", RICH), idle("l1", LARGE), idle("l2", LARGE)]
    poor, rich = ask("poor", 8, 1, 32, priority=2), ask("rich", 8, 2, 128, priority=1)
    assert first_cycle(machines, poor)[1] == {"poor": "r"}
    assert first_cycle(machines, poor, rich)[1] == {"poor": "l", "rich": "r"}


def test_no_need_is_short_after_a_trade() -> None:
    """Machines are filled in the order of the supply: `y` would have small units on the first one
    where large ones had to be, and lack room on the other one."""
    rich = shape("rich", "a", {"gpu": 16, "memory": 100}, price_per_hour=3.5)
    poor = shape("poor", "a", {"gpu": 16, "memory": 20}, price_per_hour=2.0)
    machines = [*(idle(f"r{n}", rich) for n in range(2)), *(idle(f"p{n}", poor) for n in range(2))]
    x = _sized("x", {(2, 10): 2, (1, 1): 3}, priority=2)
    y = _sized("y", {(2, 5): 3, (1, 50): 2}, priority=1)
    plan, taken = first_cycle(machines, x, y)
    assert not plan.shortfalls
    assert taken == {"x": "pp", "y": "rr"}


def _sized(cluster: str, counts: dict[tuple[int, int], int], priority: int) -> Need:
    """A need for units of so many GPUs and so much memory, the largest first."""
    names = ("gpu", "memory")
    units = tuple((tuple(zip(names, size, strict=True)), count) for size, count in counts.items())
    total = {
        name: sum(size[at] * count for size, count in counts.items())
        for at, name in enumerate(names)
    }
    one = need(cluster, profile(priority=priority), total, dict(units[0][0]))
    return msgspec.structs.replace(one, units=units)


def test_one_that_is_short_gets_a_machine_that_another_can_do_without() -> None:
    """Units of one GPU fit on small machines, a unit of eight does not, whatever its priority."""
    machines = [idle("l1", LARGE), *(idle(f"s{n}", SMALL) for n in range(4))]
    many, one = ask("many", 8, 1, 8, priority=2), ask("one", 8, 8, 64, priority=1)
    plan, taken = first_cycle(machines, many, one)
    assert not plan.shortfalls
    assert taken == {"many": "ssss", "one": "l"}


def test_where_there_are_too_few_for_all_the_first_keeps_what_it_has() -> None:
    machines = [idle("l1", LARGE), *(idle(f"s{n}", SMALL) for n in range(3))]
    many, one = ask("many", 8, 1, 8, priority=2), ask("one", 8, 8, 64, priority=1)
    plan, taken = first_cycle(machines, many, one)
    assert [one.need.cluster for one in plan.shortfalls] == ["one"]
    assert taken == {"many": "l"}


def test_nobody_waits_for_a_machine_that_must_be_created_where_an_idle_one_is_dearer() -> None:
    dear = shape("dear", "a", {"gpu": 8, "memory": 256}, price_per_hour=99.0)
    machines = [idle("d1", dear), quota("l1", LARGE), quota("r1", RICH)]
    poor, rich = ask("poor", 4, 1, 64, priority=2), ask("rich", 8, 2, 128, priority=1)
    assert first_cycle(machines, poor, rich)[1] == {"poor": "d", "rich": "r"}


def test_a_need_with_machines_of_both_states_exchanges_none() -> None:
    """Of several sizes, a small unit may take an idle machine after a place in a quota."""
    kinds = [*[quota] * 7, *[idle] * 5]
    shapes = [*[SMALL] * 6, LARGE, SMALL, LARGE, *[RICH] * 3]
    machines = [
        made(f"m{number:02}", like)
        for number, (made, like) in enumerate(zip(kinds, shapes, strict=True))
    ]
    wanted = [
        ask("east", gpus, 1, memory, priority)
        for gpus, memory, priority in ((1, 128, 2), (5, 128, 1), (6, 128, 0), (1, 16, 0))
    ]
    plan = Both(machines, wanted).cycle()
    taken = [one.kind for one in plan.actions if one.need is not None and one.priority == 0]
    assert taken == [BOOTSTRAP, PROVISION, BOOTSTRAP]


@st.composite
def tight_worlds(draw: st.DrawFn) -> Both:
    """Machines of several kinds, about as many as needs of one size take."""
    kinds = draw(st.lists(st.sampled_from([SMALL, LARGE, RICH]), min_size=2, max_size=12))
    machines = [
        idle(f"m{number:02}", like) if draw(st.booleans()) else quota(f"m{number:02}", like)
        for number, like in enumerate(kinds)
    ]
    wanted = [
        ask(
            draw(st.sampled_from(["east", "west"])),
            unit * draw(st.integers(1, 6)),
            unit,
            draw(st.sampled_from([16, 64, 128])),
            draw(st.integers(0, 3)),
        )
        for unit in draw(st.lists(st.sampled_from([1, 2, 4]), min_size=2, max_size=5))
    ]
    return Both(machines, wanted)


@given(both=tight_worlds(), data=st.data())
@settings(max_examples=80)
def test_it_is_as_the_obvious_cycle_has_it(both: Both, data: st.DataObject) -> None:
    both.cycle()
    for _ in range(2):
        both.now_s += 10.0
        both.happen(data)
        both.cycle()


class Tight:
    """Needs of one size in a few kinds, and about enough machines for them."""

    def __init__(self, seed: int, needs: int) -> None:
        draw = Stream(seed, "tight")
        self.free = [draw.integer(1, 3 * needs) for _ in range(6)]
        prices = [1.0 + 9.0 * draw.uniform() for _ in self.free]
        kinds = [
            [
                Choice(at, draw.integer(1, 8), price)
                for at, price in enumerate(prices)
                if draw.uniform() < 0.7
            ]
            for _ in range(6)
        ]
        self.asks: list[BiddingNeed] = []
        left = list(self.free)
        for number in range(needs):
            choices = kinds[number % len(kinds)]
            self.asks.append(BiddingNeed(number % len(kinds), draw.integer(1, 9), choices, []))
            self._greedily(self.asks[-1], left)

    def _greedily(self, one: BiddingNeed, left: list[int]) -> None:
        one.has.extend([0] * len(one.choices))
        room = 0
        while room < one.units:
            open_ = [at for at, each in enumerate(one.choices) if left[each.stock]]
            if not open_:
                return
            best = min(open_, key=lambda at: one.choices[at].cost / one.choices[at].room)
            one.has[best] += 1
            left[one.choices[best].stock] -= 1
            room += one.choices[best].room

    @property
    def is_whole(self) -> bool:
        return all(room_of(one, one.has) >= one.units for one in self.asks)

    def optimum(self) -> float:
        """The least that machines for all cost, by HiGHS; infinite where there is no way."""
        np = pytest.importorskip("numpy")
        from scipy.optimize import Bounds, LinearConstraint, milp

        columns = [(n, each) for n, one in enumerate(self.asks) for each in one.choices]
        matrix = np.zeros((len(self.asks) + len(self.free), len(columns)))
        for at, (number, each) in enumerate(columns):
            matrix[number, at] = each.room
            matrix[len(self.asks) + each.stock, at] = 1
        low = [float(one.units) for one in self.asks] + [-np.inf] * len(self.free)
        high = [np.inf] * len(self.asks) + [float(count) for count in self.free]
        done = milp(
            [each.cost for _, each in columns],
            constraints=LinearConstraint(matrix, low, high),
            integrality=np.ones(len(columns)),
            bounds=Bounds(0, np.inf),
            options={"time_limit": 5.0},
        )
        return math.inf if done.fun is None else float(done.fun)


def room_of(one: BiddingNeed, counts: list[int]) -> int:
    return sum(count * each.room for count, each in zip(counts, one.choices, strict=True))


def cost_of(asks: list[BiddingNeed], shares: list[list[int]]) -> float:
    return sum(
        count * each.cost
        for one, share in zip(asks, shares, strict=True)
        for count, each in zip(share, one.choices, strict=True)
    )


@given(seed=st.integers(0, 10**6), needs=st.sampled_from([4, 30, MOST_BIDDERS + 60]))
@settings(max_examples=40, deadline=None)
def test_shares_hold_every_need_and_use_no_machine_twice(seed: int, needs: int) -> None:
    tight = Tight(seed, needs)
    shares = share_out(tight.free, tight.asks)
    if shares is None:
        return
    used = [0] * len(tight.free)
    for one, share in zip(tight.asks, shares, strict=True):
        room = room_of(one, share)
        assert room >= one.units
        for count, each in zip(share, one.choices, strict=True):
            used[each.stock] += count
            assert not count or room - each.room < one.units  # none is needless
    assert all(count <= free for count, free in zip(used, tight.free, strict=True))
    if tight.is_whole:
        assert cost_of(tight.asks, shares) < cost_of(tight.asks, [one.has for one in tight.asks])


def test_on_average_shares_are_within_four_percent_of_the_optimum() -> None:
    paid, best = 0.0, 0.0
    for seed in range(40):
        tight = Tight(seed, 12)
        least = tight.optimum()
        if least < math.inf and tight.is_whole:
            shares = share_out(tight.free, tight.asks) or [one.has for one in tight.asks]
            paid, best = paid + cost_of(tight.asks, shares), best + least
    assert best > 0.0
    assert paid <= 1.04 * best
