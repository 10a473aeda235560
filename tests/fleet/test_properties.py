"""What must hold of a fleet whatever it is asked for, once what was ordered is done."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.fleet.reference_rows import ReferenceRow
from tests.fleet.test_execution import Shard
from tests.fleet.worlds import needs, shapes
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need
from windtunnel.fleet.planner.actions import PREEMPTING, NeedVerdict
from windtunnel.fleet.planner.costs import PINNED
from windtunnel.fleet.states import CONFIGURED, IDLE, SPECULATIVE


@st.composite
def fleets(draw: st.DrawFn) -> list[Machine]:
    kinds = draw(st.lists(shapes, min_size=1, max_size=5))
    machines = []
    for number in range(draw(st.integers(1, 16))):
        state = draw(st.sampled_from([IDLE, SPECULATIVE]))
        host = "h" if state == IDLE else ""
        machines.append(Machine(f"m{number:02}", draw(st.sampled_from(kinds)), state, host=host))
    return machines


def rows_of(shard: Shard) -> list[ReferenceRow]:
    return [ReferenceRow(one) for one in shard.planner.needs.needs()]


def settle(shard: Shard) -> list[NeedVerdict]:
    """Cycles and answers until nothing more is asked; gives the last shortfalls."""
    for _ in range(40):
        plan = shard.planner.cycle(shard.now_s)
        shard.hear(shard.executor.submit(plan, shard.now_s))
        if not plan.actions and not plan.withdrawn and not shard.orders:
            return plan.shortfalls
        shard.answer()
    raise AssertionError("it never comes to rest")


def shard_of(machines: list[Machine], wanted: list[Need]) -> Shard:
    shard = Shard(machines)
    for cluster in ("east", "west"):
        shard.want(*[one for one in wanted if one.cluster == cluster], cluster=cluster)
    return shard


@given(machines=fleets(), wanted=st.lists(needs(), min_size=1, max_size=8))
def test_a_fleet_comes_to_rest_where_every_need_is_covered_or_told(
    machines: list[Machine], wanted: list[Need]
) -> None:
    shard = shard_of(machines, wanted)
    short = {one.need for one in settle(shard)}
    records = shard.planner.inventory.records()
    for row in rows_of(shard):
        mine = [m for m in records if m.holder == row.key and m.state == CONFIGURED]
        if row.key in short:
            continue
        assert all(row.matches(m) for m in mine)
        assert row.holds(mine)
        if row.same:
            assert len({row.domain_of(m) for m in mine}) == 1


def _could_use(row: ReferenceRow, machine: Machine) -> bool:
    """Whether a machine would do for a need, and holds at least one unit of it."""
    has = dict(machine.shape.resources)
    return row.matches(machine) and all(has.get(key, 0) >= size for key, size in row.need.min_unit)


@given(machines=fleets(), wanted=st.lists(needs(), min_size=1, max_size=8))
def test_no_lower_priority_keeps_what_a_higher_one_lacks(
    machines: list[Machine], wanted: list[Need]
) -> None:
    shard = shard_of(machines, wanted)
    verdicts = settle(shard)
    assert all(one.verdict != PREEMPTING for one in verdicts)
    short = {one.need for one in verdicts}
    for row in rows_of(shard):
        if row.key in short and not row.domain_key:
            for machine in shard.planner.inventory.records():
                holder = machine.holder
                if machine.state == CONFIGURED and holder is not None and _could_use(row, machine):
                    pinned = holder.reclamation_bucket() == PINNED
                    assert pinned or holder.priority() >= row.need.profile.priority


@given(machines=fleets(), wanted=st.lists(needs(), min_size=1, max_size=6))
def test_a_spread_of_new_machines_is_within_its_skew(
    machines: list[Machine], wanted: list[Need]
) -> None:
    shard = shard_of(machines, wanted)
    shard.planner.cycle(0.0)
    records = shard.planner.inventory.records()
    for row in rows_of(shard):
        if row.skew:
            domains = {row.domain_of(m) for m in records if row.matches(m)}
            mine = [row.domain_of(m) for m in records if m.holder == row.key]
            counts = [mine.count(value) for value in sorted(domains)]
            assert not counts or max(counts) - min(counts) <= row.skew


@given(machines=fleets(), wanted=st.lists(needs(), max_size=6), more=st.lists(needs(), max_size=6))
@settings(max_examples=25)
def test_a_shard_that_starts_again_plans_the_same(
    machines: list[Machine], wanted: list[Need], more: list[Need]
) -> None:
    """A provider's list, in whatever order, is all that a shard must know."""
    shard = shard_of(machines, wanted)
    settle(shard)
    again = Shard(shard.planner.inventory.records()[::-1])
    for cluster in ("east", "west"):
        mine = [one for one in more if one.cluster == cluster]
        shard.want(*mine, cluster=cluster)
        again.want(*mine, cluster=cluster)
    one, other = shard.planner.cycle(5.0), again.planner.cycle(5.0)
    assert (one.actions, one.shortfalls) == (other.actions, other.shortfalls)


@given(data=st.data())
@settings(max_examples=25)
def test_each_loss_is_replaced_once_however_long_it_takes(data: st.DataObject) -> None:
    """Nothing is asked for again while it is on its way: losses and acquisitions are as many."""
    like = data.draw(shapes)
    machines = [
        Machine(f"m{n:02}", like, IDLE if n % 2 else SPECULATIVE, "h" * (n % 2)) for n in range(24)
    ]
    wanted = data.draw(st.lists(needs(), min_size=1, max_size=3))
    assume(any(ReferenceRow(one).matches(machines[0]) for one in wanted))
    shard = shard_of(machines, [one for one in wanted if not one.profile.same_key])
    if settle(shard):
        return
    acquired, lost = 0, 0
    for _ in range(data.draw(st.integers(1, 3))):
        held = [m.id for m in shard.planner.inventory.records() if m.state == CONFIGURED]
        if held:
            shard.executor.lost(data.draw(st.sampled_from(held)), "burnt", shard.now_s)
            lost += 1
        for _ in range(data.draw(st.integers(1, 4))):  # cycles go by before anything is answered
            plan = shard.planner.cycle(shard.now_s)
            acquired += sum(one.kind in (1, 2) for one in plan.actions)
            shard.hear(shard.executor.submit(plan, shard.now_s))
            if plan.shortfalls:
                return
        shard.answer()
    assert acquired <= lost
