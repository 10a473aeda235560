"""The fast cycle decides exactly as the obvious one, over random machines, needs and events."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet import reference
from tests.fleet.worlds import needs, shape_of, shapes
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need, profile
from windtunnel.fleet.planner.actions import (
    BOOTSTRAP,
    NOTHING,
    PREEMPT,
    PROVISION,
    RECLAIM,
    CyclePlan,
)
from windtunnel.fleet.planner.cycle import Planner
from windtunnel.fleet.planner.entries import NeedRow
from windtunnel.fleet.requirements import requirement
from windtunnel.fleet.shape import INSTANCE_TYPE
from windtunnel.fleet.states import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DELETING,
    DRAINING,
    FAILED,
    IDLE,
    SPECULATIVE,
)

NEXT = {
    CREATING: [IDLE, FAILED],
    CONFIGURING: [CONFIGURED, CONFIGURED, IDLE, FAILED],
    CONFIGURED: [CONFIGURED, FAILED],
    DRAINING: [IDLE, IDLE, FAILED],
    DELETING: [SPECULATIVE],
    IDLE: [IDLE, FAILED],
}
BEGINS = {BOOTSTRAP: CONFIGURING, PROVISION: CREATING, PREEMPT: DRAINING, RECLAIM: DRAINING}


class Both:
    """The two cycles over the same world."""

    def __init__(self, machines: list[Machine], wanted: list[Need]) -> None:
        self.planner = Planner()
        self.planner.inventory.load(machines)
        self.wanted: dict[str, list[Need]] = {}
        self.now_s = 0.0
        for cluster in sorted({"east", "west", *(one.cluster for one in wanted)}):
            self.want(cluster, [one for one in wanted if one.cluster == cluster])

    def want(self, cluster: str, wanted: list[Need]) -> None:
        if self.planner.needs.replace(cluster, wanted):
            self.wanted[cluster] = wanted

    def cycle(self) -> CyclePlan:
        """Runs both, and holds the plans and what machines became equal."""
        before = self.planner.inventory.records()
        all_needs = self.planner.needs.needs()
        after, expected = reference.cycle(before, all_needs, list(self.wanted), self.now_s)
        plan = self.planner.cycle(self.now_s)
        assert plan == expected
        assert self.planner.inventory.records() == after
        check_books(self.planner)
        return plan

    def happen(self, data: st.DataObject) -> None:
        """Some of what was planned begins, some of what began ends, and some is lost."""
        inventory, draw = self.planner.inventory, data.draw
        for name in sorted(inventory.entries):
            entry = inventory.entries[name]
            if entry.planned in BEGINS and draw(st.booleans()):
                row = entry.row
                inventory.transition(entry, BEGINS[int(entry.planned)], self.now_s, row=row)
            elif entry.planned != NOTHING and draw(st.integers(0, 5)) == 0:
                inventory.withdraw(entry)
            elif entry.planned == NOTHING and int(entry.state) in NEXT and draw(st.booleans()):
                state = draw(st.sampled_from(NEXT[int(entry.state)]))
                if state != entry.state:
                    error = "lost" if state == FAILED else ""
                    inventory.transition(entry, state, self.now_s, host="h", error=error)
            elif draw(st.integers(0, 15)) == 0:
                inventory.remove(name)


def check_books(planner: Planner) -> None:
    """What the inventory counts is what its machines say."""
    inventory = planner.inventory
    for stock in inventory.stocks:
        mine = [e for e in inventory.entries.values() if e.stock is stock]
        free = sorted(e.id for e in mine if e.is_free())
        assert free == [e.id for e in stock.free()]
        assert len(free) == stock.free_count
        assert stock.alive == sum(e.state != FAILED for e in mine)
        takeable: dict[int, dict[NeedRow, int]] = {}
        for entry in mine:
            if entry.is_takeable() and entry.row is not None:
                rows = takeable.setdefault(entry.row.priority, {})
                rows[entry.row] = rows.get(entry.row, 0) + 1
        assert {at: level.rows for at, level in stock.takeable.levels.items()} == takeable
        assert all(
            sum(level.rows.values()) == level.count for level in stock.takeable.levels.values()
        )
    for row in inventory.rows.values():
        assert all(e.row is row and row.held[e.place] is e for e in row.held)
    for cluster in inventory.clusters.values():
        spare = [e for e in inventory.entries.values() if e.spare and e.row is not None]
        names = sorted(e.id for e in spare if e.row is not None and e.row.cluster is cluster)
        assert names == sorted(cluster.surplus)


@st.composite
def worlds(draw: st.DrawFn) -> Both:
    kinds = draw(st.lists(shapes, min_size=1, max_size=6))
    machines = []
    for number in range(draw(st.integers(0, 14))):
        like = draw(st.sampled_from(kinds))
        state = draw(st.sampled_from([IDLE, IDLE, SPECULATIVE]))
        name = f"m{(number * 7) % 16:02}"
        machines.append(Machine(name, like, state, host="h" if state == IDLE else ""))
    return Both(machines, draw(st.lists(needs(), max_size=8)))


@given(data=st.data())
@settings(max_examples=60)
def test_a_first_cycle_and_all_that_follow_are_equal(data: st.DataObject) -> None:
    both = data.draw(worlds())
    both.cycle()
    for _ in range(data.draw(st.integers(0, 5))):
        both.now_s += data.draw(st.sampled_from([0.5, 30.0, 400.0]))
        both.happen(data)
        if data.draw(st.booleans()):
            cluster = data.draw(st.sampled_from(["east", "west"]))
            wanted = data.draw(st.lists(needs(), max_size=6))
            both.want(cluster, [one for one in wanted if one.cluster == cluster])
        both.cycle()


@st.composite
def crowded_worlds(draw: st.DrawFn) -> Both:
    """Every machine is held by a need of low priority, and others want them."""
    holders = draw(st.lists(needs(), min_size=1, max_size=5))
    machines = []
    for number in range(draw(st.integers(4, 14))):
        holder = draw(st.sampled_from(holders))
        name = f"m{(number * 7) % 16:02}"
        machines.append(Machine(name, draw(shapes), CONFIGURED, "h", holder.cluster, holder.key()))
    return Both(machines, [*holders, *draw(st.lists(needs(), max_size=4))])


@given(data=st.data())
@settings(max_examples=60)
def test_urgent_needs_take_the_same_from_others(data: st.DataObject) -> None:
    both = data.draw(crowded_worlds())
    both.cycle()
    for _ in range(data.draw(st.integers(0, 4))):
        both.now_s += 10.0
        both.happen(data)
        both.cycle()


def test_a_need_that_took_a_small_and_a_large_machine_spares_the_small_one() -> None:
    def asks(priority: int, cpu: int) -> Need:
        kinds = [requirement(INSTANCE_TYPE, "In", ["gpu", "small"])]
        unit = (("cpu", 1), ("memory", 4))
        return Need("east", profile(kinds, priority=priority), (("cpu", cpu), unit[1]), unit)

    low, urgent = asks(1, 11), asks(100, 3)
    machines = [
        Machine(name, shape_of(kind), CONFIGURED, "h", "east", low.key())
        for name, kind in (("m00", "small"), ("m05", "gpu"))
    ]
    both = Both(machines, [low, urgent])
    assert [action.machine for action in both.cycle().actions] == ["m00", "m05"]
    both.now_s += 10.0
    adopted = both.cycle().actions
    assert [(action.machine, action.need) for action in adopted] == [("m00", low.key())]


@given(world=worlds())
@settings(max_examples=30)
def test_to_ask_again_gives_nothing_to_do(world: Both) -> None:
    world.cycle()
    for _ in range(6):  # a need that lost to another of its cluster may look elsewhere
        plan = world.cycle()
        if not plan.actions and not plan.withdrawn:
            break
    plan = world.cycle()
    assert (plan.actions, plan.withdrawn) == ([], [])
