"""The fair queue: order, two-phase selection, counts, and equality with the obvious one."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.admission.queues.reference_queue import ReferenceQueue
from windtunnel.admission.queues.fair_queue import FairQueue
from windtunnel.admission.queues.groups import (
    READY,
    REFUSED,
    YIELDING,
    DemandLane,
    GroupShare,
    LaneGroup,
    QueuedWork,
    SharedResource,
)
from windtunnel.core.errors import InputError


class Line:
    """A queue with one lane, filled and emptied by group names."""

    def __init__(self, **weights: int) -> None:
        self.queue = FairQueue()
        self.lane = DemandLane("work", self.queue.add_bay(), [], [])
        self.specs = {name: GroupShare(name, weight) for name, weight in weights.items()}
        self.made = 0

    def add(self, group: str, count: int = 1) -> None:
        for _ in range(count):
            self.made += 1
            self.queue.enqueue(
                QueuedWork(f"{group}{self.made}", self.specs[group], self.lane, None)
            )

    def take(self, count: int) -> str:
        served = []
        for _ in range(count):
            selection = self.queue.select()
            assert selection is not None
            assert self.queue.commit(selection) is selection.item
            served.append(selection.group.spec.key)
        return "".join(served)


def test_equal_groups_take_turns_in_order_of_activation() -> None:
    line = Line(a=1, b=1, c=1)
    for group in "bca":
        line.add(group, 3)
    assert line.take(9) == "bcabcabca"


def test_weights_share_in_proportion() -> None:
    line = Line(a=4, b=1)
    line.add("a", 12)
    line.add("b", 12)
    assert line.take(11) == "abaaabaaaab"


def test_work_of_one_group_is_first_in_first_out() -> None:
    line = Line(a=1)
    line.add("a", 5)
    order = []
    while (selection := line.queue.select()) is not None:
        line.queue.commit(selection)
        order.append(selection.item.id)
    assert order == ["a1", "a2", "a3", "a4", "a5"]


def test_a_group_that_was_idle_gains_no_credit() -> None:
    line = Line(a=1, b=1)
    line.add("a", 20)
    line.take(10)
    line.add("b", 10)
    assert line.take(10).count("b") == 5


def test_going_idle_does_not_reset_what_a_group_has_used() -> None:
    line = Line(a=1, b=1)
    line.add("b", 30)
    served = ""
    for _ in range(20):
        line.add("a")
        served += line.take(1)
    assert abs(served.count("a") - served.count("b")) <= 1


def test_select_never_changes_anything() -> None:
    line = Line(a=1, b=2)
    line.add("a", 2)
    line.add("b", 2)
    version = line.queue.version
    first = line.queue.select()
    assert first is not None
    for _ in range(3):
        again = line.queue.select()
        assert again is not None
        assert (again.item, again.version) == (first.item, version)
    assert len(line.queue) == 4


@pytest.mark.parametrize("change", ["enqueue", "discard", "commit"])
def test_a_stale_selection_cannot_be_committed(change: str) -> None:
    line = Line(a=1, b=1)
    line.add("a", 2)
    line.add("b", 2)
    stale = line.queue.select()
    assert stale is not None
    if change == "enqueue":
        line.add("b")
    elif change == "discard":
        line.queue.discard("b4")
    else:
        line.take(1)
    size = len(line.queue)
    assert line.queue.commit(stale) is None
    assert len(line.queue) == size
    assert line.take(1) in "ab"


def test_an_id_that_waits_is_accepted_once() -> None:
    line = Line(a=1)
    item = QueuedWork("x", line.specs["a"], line.lane, None)
    assert line.queue.enqueue(item)
    version = line.queue.version
    assert not line.queue.enqueue(QueuedWork("x", line.specs["a"], line.lane, None))
    assert (line.queue.version, len(line.queue)) == (version, 1)
    assert line.take(1) == "a"
    assert line.queue.enqueue(QueuedWork("x", line.specs["a"], line.lane, None))


def test_discarding_the_head_lets_the_next_go() -> None:
    line = Line(a=1)
    line.add("a", 3)
    assert line.queue.discard("a1") is not None
    assert line.queue.discard("a1") is None
    selection = line.queue.select()
    assert selection is not None
    assert selection.item.id == "a2"


def test_higher_priority_goes_first_and_lower_keeps_its_own_clock() -> None:
    queue = FairQueue()
    lane = DemandLane("work", queue.add_bay(), [], [])
    high, old, new = GroupShare("high", priority=1), GroupShare("old"), GroupShare("new")
    for number in range(50):
        queue.enqueue(QueuedWork(f"h{number}", high, lane, None))
        queue.enqueue(QueuedWork(f"o{number}", old, lane, None))
    served = []
    for turn in range(70):
        if turn == 50:
            for number in range(20):
                queue.enqueue(QueuedWork(f"n{number}", new, lane, None))
        selection = queue.select()
        assert selection is not None
        queue.commit(selection)
        served.append(selection.group.spec.key)
    assert served[:50] == ["high"] * 50
    assert served[50:].count("new") == 10


def test_a_costly_item_is_charged_as_such() -> None:
    queue = FairQueue()
    lane = DemandLane("work", queue.add_bay(), [], [])
    long, short = GroupShare("long"), GroupShare("short")
    for number in range(10):
        queue.enqueue(QueuedWork(f"l{number}", long, lane, None, cost=4.0))
        queue.enqueue(QueuedWork(f"s{number}", short, lane, None))
    served = ""
    for _ in range(10):
        selection = queue.select()
        assert selection is not None
        queue.commit(selection)
        served += selection.item.id[0]
    assert served.count("s") == 8


def test_ordering_state_is_bounded_by_active_groups() -> None:
    """Request queue heap never shrinks; task-queue history growth."""
    queue = FairQueue()
    lane = DemandLane("work", queue.add_bay(), [], [])
    busy = GroupShare("busy")
    for number in range(3000):
        queue.enqueue(QueuedWork(f"b{number}", busy, lane, None))
        queue.enqueue(QueuedWork(f"q{number}", GroupShare(f"once{number}"), lane, None))
        selection = queue.select()
        assert selection is not None
        queue.commit(selection)
        selection = queue.select()
        assert selection is not None
        queue.commit(selection)
        assert len(queue.groups) <= 6
        assert len(lane.groups) <= 6


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"weight": 0}, "group g: 0 is not a weight; allowed: 1 or more"),
        ({"priority": 1001}, "group g: 1001 is not a priority; allowed: -1000 to 1000"),
        ({"admitted_limit": -1}, "group g: -1 is not a limit; allowed: 0 (none) or more"),
    ],
)
def test_a_bad_group_gets_a_sentence(arguments: dict[str, int], sentence: str) -> None:
    with pytest.raises(InputError) as fault:
        GroupShare("g", **arguments)
    assert str(fault.value) == sentence


def test_a_group_cannot_change_its_priority() -> None:
    line = Line(a=1)
    line.add("a")
    with pytest.raises(InputError, match="one group has one priority"):
        line.queue.enqueue(QueuedWork("x", GroupShare("a", priority=2), line.lane, None))
    assert "x" not in line.queue


GROUPS = [(f"g{number}", number % 3) for number in range(6)]


class QueueMachine(RuleBasedStateMachine):
    """The fast queue and the obvious one, told the same, must answer the same."""

    def __init__(self) -> None:
        super().__init__()
        self.fast, self.slow = FairQueue(), ReferenceQueue()
        self.resources = [SharedResource(f"r{number}", number, 9) for number in range(3)]
        self.bays = [self.fast.add_bay() for _ in range(2)]
        self.lanes = [
            DemandLane("empty", self.bays[0], [], []),
            DemandLane("one", self.bays[0], self.resources[:1], [1]),
            DemandLane("two", self.bays[1], self.resources[1:], [2, 1]),
        ]
        self.blocked: set[str] = set()
        self.short: set[LaneGroup] = set()
        self.standing: dict[str, int] = {}
        self.kept: list[tuple[object, object]] = []

    @rule(
        number=st.integers(0, 40),
        group=st.sampled_from(GROUPS),
        weight=st.integers(1, 4),
        lane=st.integers(0, 2),
        cost=st.sampled_from([1.0, 1.0, 0.5, 3.0]),
        is_again=st.booleans(),
    )
    def enqueue(
        self,
        number: int,
        group: tuple[str, int],
        weight: int,
        lane: int,
        cost: float,
        is_again: bool,
    ) -> None:
        spec = GroupShare(group[0], weight, group[1] // 2)
        one, other = (QueuedWork(str(number), spec, self.lanes[lane], None, cost) for _ in range(2))
        state = self.fast.groups.get(spec.key)
        known = state is not None and state.lane is not None and state.spec.weight == weight
        if state is not None and is_again and state.lane is not self.lanes[lane]:
            known = False  # its head is another's, which the policy has not looked at
        accepted = self.fast.enqueue(one, is_again)
        assert accepted == self.slow.enqueue(other, is_again=is_again)
        if accepted and not known:
            self.standing.pop(spec.key, None)

    @rule(number=st.integers(0, 40))
    def discard(self, number: int) -> None:
        before = self.heads()
        assert (self.fast.discard(str(number)) is not None) == self.slow.discard(str(number))
        self.forget_standings(before)

    @rule(lane=st.integers(0, 2))
    def toggle_lane(self, lane: int) -> None:
        chosen = self.lanes[lane]
        if chosen.name in self.blocked:
            self.blocked.remove(chosen.name)
            self.fast.unblock(chosen)
        else:
            self.blocked.add(chosen.name)
            self.fast.block(chosen)

    @rule(bay=st.integers(0, 1))
    def toggle_bay(self, bay: int) -> None:
        chosen = self.bays[bay]
        chosen.shortages = 1 - chosen.shortages
        self.short ^= {chosen}

    @precondition(lambda self: len(self.slow) > 0)
    @rule(pick=st.integers(0, 5), standing=st.sampled_from([READY, YIELDING, REFUSED]))
    def stand(self, pick: int, standing: int) -> None:
        heads = self.slow.heads()
        key = heads[pick % len(heads)].group.key
        self.standing[key] = standing
        self.fast.set_standing(self.fast.groups[key], standing)

    @rule()
    def serve(self) -> None:
        fast, slow = self.fast.select(), self.select_slowly()
        if fast is None or slow is None:
            assert fast is None
            assert slow is None
            return
        assert fast.item.id == slow[0].id
        self.kept.append((fast, slow))
        before = self.heads()
        assert self.slow.commit(*slow)
        assert self.fast.commit(fast) is fast.item
        assert self.fast.commit(fast) is None
        self.forget_standings(before)

    def select_slowly(self) -> tuple[QueuedWork, int] | None:
        return self.slow.select(
            lambda item: item.lane.name not in self.blocked and item.lane.bay not in self.short,
            lambda item: self.standing.get(item.group.key, READY),
        )

    def heads(self) -> dict[str, str]:
        return {head.group.key: head.lane.name for head in self.slow.heads()}

    def forget_standings(self, before: dict[str, str]) -> None:
        """A standing is about a group's head: it lapses with the group, or with what it asks."""
        after = self.heads()
        for key, lane in before.items():
            if after.get(key) != lane:
                self.standing.pop(key, None)

    @invariant()
    def same_counts(self) -> None:
        assert len(self.fast) == len(self.slow)
        demand = {resource.name: resource.queued for resource in self.resources if resource.queued}
        assert demand == self.slow.demand()
        for key, group in self.fast.groups.items():
            own = {
                self.resources[index].name: account.queued
                for index, account in group.accounts.items()
                if account.queued
            }
            assert own == self.slow.demand(key)

    @invariant()
    def contention_is_what_open_lanes_hold(self) -> None:
        for resource in self.resources:
            wanting = [
                head
                for head in self.slow.heads()
                if resource.name in head.lane.request() and head.lane.name not in self.blocked
            ]
            assert resource.contenders == len(wanting)
            weights = [self.slow.spec(head.group.key).weight for head in wanting]
            assert resource.contending_weight == sum(weights)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(stateful_step_count=60)
