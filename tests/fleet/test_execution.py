"""From plans to orders: limits, the guard, fencing, timeouts, and that all of it converges."""

import math

import pytest

from tests.fleet.worlds import ask, idle, quota, shape_of
from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream
from windtunnel.fleet.execution import Executor
from windtunnel.fleet.instruments import ACTIONS_TOTAL, DEFERRALS_TOTAL, Instruments
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need
from windtunnel.fleet.orders import (
    CONFIGURE,
    CREATE,
    DELETE,
    DRAIN,
    FETCH,
    TAG,
    ExecutionLimits,
    Fence,
    MachineOrder,
    Token,
)
from windtunnel.fleet.planner.cycle import Planner
from windtunnel.fleet.provider import PERMANENT
from windtunnel.fleet.reconciliation import Reconciler
from windtunnel.fleet.states import CONFIGURED, CONFIGURING, FAILED, IDLE, SPECULATIVE
from windtunnel.twin.fleet.workloads import world


class Shard:
    """A planner and an executor, with a provider that does what it is told, when it is told."""

    def __init__(self, machines: list[Machine], limits: ExecutionLimits | None = None) -> None:
        self.instruments = Instruments()
        self.planner = Planner(self.instruments)
        self.planner.inventory.load(machines)
        self.executor = Executor(
            self.planner.inventory,
            limits or ExecutionLimits(),
            epoch=7,
            instruments=self.instruments,
        )
        self.reconciler = Reconciler(self.planner.inventory, self.executor, self.instruments)
        self.now_s = 0.0
        self.orders: list[MachineOrder] = []
        self.asked: list[tuple[str, str]] = []

    def want(self, *needs: Need, cluster: str = "east") -> None:
        self.planner.needs.replace(cluster, needs)

    def cycle(self) -> list[MachineOrder]:
        self.hear(self.executor.submit(self.planner.cycle(self.now_s), self.now_s))
        return self.orders

    def hear(self, orders: list[MachineOrder]) -> None:
        self.orders += orders
        self.asked += [(one.operation, one.machine) for one in orders]

    def answer(self) -> None:
        """Everything that was asked is done, and what follows from it too."""
        while self.orders:
            order, more = self.orders.pop(0), list[MachineOrder]()
            self.executor.completed(order.machine, order.token, self.now_s, more)
            self.hear(more)
        self.hear(self.executor.begin(self.now_s))

    def state(self, name: str) -> int:
        return int(self.planner.inventory.entries[name].state)

    def counted(self, *labels: str) -> int:
        return self.instruments.counted(ACTIONS_TOTAL, *labels)


def test_a_machine_is_created_configured_drained_and_deleted() -> None:
    shard = Shard([quota("m1")])
    shard.want(ask())
    shard.cycle()
    shard.answer()
    assert shard.asked == [(CREATE, "m1"), (FETCH, "m1"), (CONFIGURE, "m1")]
    assert shard.state("m1") == CONFIGURED
    shard.want()
    shard.cycle()
    shard.answer()
    assert shard.state("m1") == IDLE
    shard.now_s = 601.0
    shard.cycle()
    shard.answer()
    assert shard.asked[3:] == [(DRAIN, "m1"), (DELETE, "m1")]
    assert shard.state("m1") == SPECULATIVE
    assert shard.counted("provision", "success") == shard.counted("delete", "success") == 1


def test_what_may_not_begin_is_remembered_and_counted_once() -> None:
    shard = Shard([idle(f"m{n}") for n in range(5)], ExecutionLimits(actions_per_cycle=2))
    shard.want(ask(machines=5))
    for _ in range(3):
        shard.cycle()
        shard.orders.clear()  # nothing is answered, so all of it is still under way
    assert [one for one in shard.asked if one[0] == FETCH] == [(FETCH, f"m{n}") for n in range(5)]
    assert shard.counted("bootstrap", "deferred") == 3
    assert shard.instruments.counted(DEFERRALS_TOTAL, "cap") == 3
    assert shard.executor.waiting == 0


def test_no_more_are_under_way_than_the_concurrency() -> None:
    shard = Shard([idle(f"m{n}") for n in range(3)], ExecutionLimits(concurrency=2))
    shard.want(ask(machines=3))
    assert len(shard.cycle()) == 2
    assert shard.instruments.counted(DEFERRALS_TOTAL, "concurrency") == 1
    shard.answer()
    shard.answer()
    assert [shard.state(f"m{n}") for n in range(3)] == [CONFIGURED] * 3


def test_an_action_whose_machine_changed_meanwhile_does_not_begin() -> None:
    shard = Shard([idle("m1"), idle("m2")], ExecutionLimits(actions_per_cycle=1))
    shard.want(ask(machines=2))
    shard.cycle()
    shard.executor.lost("m2", "it burnt", 1.0)
    shard.orders.clear()
    shard.cycle()
    assert [name for _, name in shard.asked] == ["m1"]
    assert shard.counted("bootstrap", "stale") == 1


def test_a_withdrawn_action_does_not_begin_for_the_need_that_gave_it_up() -> None:
    shard = Shard([idle("m1")])
    shard.executor.paused = True
    shard.want(ask(priority=1))
    shard.cycle()
    shard.want()
    shard.want(ask("west", priority=2), cluster="west")
    shard.cycle()
    shard.executor.paused = False
    (order,) = shard.cycle()
    assert (order.cluster, order.operation) == ("west", FETCH)
    assert shard.instruments.counted(DEFERRALS_TOTAL, "paused") == 2


def test_a_dry_run_begins_nothing_and_plans_the_same_again() -> None:
    shard = Shard([idle("m1"), quota("m2")])
    shard.want(ask(machines=2))
    shard.executor.dry_run = True
    assert shard.cycle() == []
    assert shard.cycle() == []
    assert (shard.state("m1"), shard.counted("bootstrap", "dry_run")) == (IDLE, 2)
    shard.executor.dry_run = False
    assert len(shard.cycle()) == 2


def test_a_dry_run_keeps_what_waits_from_beginning_when_something_ends() -> None:
    shard = Shard([idle("m1"), idle("m2")], ExecutionLimits(concurrency=1))
    shard.want(ask(machines=2))
    shard.cycle()
    shard.executor.dry_run = True
    shard.answer()
    assert shard.asked == [(FETCH, "m1"), (CONFIGURE, "m1")]  # what has begun goes on
    assert (shard.state("m1"), shard.state("m2")) == (CONFIGURED, IDLE)
    shard.executor.dry_run = False
    shard.cycle()
    shard.answer()
    assert shard.state("m2") == CONFIGURED


def test_a_cluster_that_does_not_answer_gives_its_machine_back() -> None:
    shard = Shard([idle("m1")])
    shard.want(ask())
    shard.cycle()
    assert shard.executor.expire(29.0) == []
    assert shard.state("m1") == CONFIGURING
    assert shard.executor.expire(30.0) == []
    assert (shard.state("m1"), shard.counted("bootstrap", "rolled_back")) == (IDLE, 1)


def test_a_provider_that_does_not_answer_is_asked_again_and_then_given_up() -> None:
    shard = Shard([quota("m1")])
    shard.want(ask())
    (first,) = shard.cycle()
    (second,) = shard.executor.expire(600.0)
    assert second.operation == CREATE
    assert second.token > first.token
    assert not shard.executor.completed("m1", first.token, 601.0, [])  # overtaken
    (third,) = shard.executor.expire(1200.0)
    assert shard.executor.expire(1800.0) == []
    assert shard.state("m1") == FAILED
    assert shard.planner.inventory.errors["m1"] == "create was not answered 3 times"
    assert not shard.executor.failed("m1", third.token, "too late", PERMANENT, 1801.0)
    assert shard.executor.next_deadline_s() == math.inf


def test_nothing_is_given_up_while_the_provider_answers_nobody() -> None:
    """A machine that nobody could be asked about has not failed."""
    shard = Shard([quota("m1")])
    shard.want(ask())
    shard.cycle()
    shard.executor.unreachable = True
    for number in range(1, 6):
        (again,) = shard.executor.expire(600.0 * number)
        assert again.operation == CREATE
    shard.executor.unreachable = False
    assert len(shard.executor.expire(3600.0)) == len(shard.executor.expire(4200.0)) == 1
    assert shard.executor.expire(4800.0) == []
    assert shard.state("m1") == FAILED


def test_an_answer_that_comes_twice_counts_once() -> None:
    shard = Shard([idle("m1")])
    shard.want(ask())
    (fetch,) = shard.cycle()
    orders: list[MachineOrder] = []
    assert shard.executor.completed("m1", fetch.token, 1.0, orders)
    assert not shard.executor.completed("m1", fetch.token, 1.0, orders)
    assert not shard.executor.completed("m1", Token(6, orders[0].token.sequence), 1.0, orders)
    assert [one.operation for one in orders] == [CONFIGURE]
    assert shard.counted("answer", "stale") == 2


def test_an_error_of_the_provider_fails_the_machine_and_the_need_gets_another() -> None:
    shard = Shard([idle("m1"), idle("m2")])
    shard.want(ask())
    (fetch,) = shard.cycle()
    assert shard.executor.failed("m1", fetch.token, "no such image", PERMANENT, 1.0)
    shard.orders.clear()
    (order,) = shard.cycle()
    assert (order.machine, shard.state("m1")) == ("m2", FAILED)


def test_a_created_machine_that_nobody_wants_any_more_joins_no_cluster() -> None:
    shard = Shard([quota("m1")])
    shard.want(ask())
    shard.cycle()
    shard.want()
    shard.answer()
    assert shard.asked == [(CREATE, "m1")]
    assert shard.state("m1") == IDLE


def test_few_machines_of_a_cluster_are_reclaimed_at_once() -> None:
    wish = ask(machines=40)
    machines = [
        Machine(f"m{n:02}", shape_of(), CONFIGURED, f"h{n}", "east", wish.key()) for n in range(40)
    ]
    shard = Shard(machines)
    shard.want()
    assert len(shard.cycle()) == 2  # a twentieth
    assert shard.instruments.counted(DEFERRALS_TOTAL, "reclaim_cap") == 38
    shard.answer()
    assert len(shard.cycle()) == 1  # of 38
    assert shard.counted("reclaim", "deferred") == 38


def test_to_take_over_a_machine_is_only_noted() -> None:
    wish = ask(priority=1)
    shard = Shard([Machine("m1", shape_of(), CONFIGURED, "h1", "east", wish.key())])
    shard.want(ask(priority=2))
    shard.cycle()
    assert shard.asked == [(TAG, "m1")]


def test_a_fence_is_kept_for_each_shard_and_machine() -> None:
    fence = Fence()
    assert fence.admits("s1", "m1", Token(1, 5))
    assert fence.admits("s1", "m2", Token(1, 4))  # overtook on the way, and does no harm
    assert not fence.admits("s1", "m1", Token(1, 5))
    assert not fence.admits("s1", "m1", Token(1, 4))
    assert fence.admits("s1", "m1", Token(2, 1))  # the shard was started again
    assert not fence.admits("s1", "m1", Token(1, 9))
    assert fence.admits("s2", "m1", Token(1, 1))


@pytest.mark.parametrize(
    ("limits", "fault"),
    [
        (ExecutionLimits(concurrency=0), "concurrency is 0; allowed: 1 or more"),
        (ExecutionLimits(timeout_s=math.nan), "timeout_s is nan; allowed: more than 0"),
        (ExecutionLimits(reclaim_share=0.0), "reclaim_share is 0.0"),
    ],
)
def test_limits_that_allow_nothing_are_refused(limits: ExecutionLimits, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        Shard([], limits)


def test_a_capped_fleet_converges_without_asking_twice() -> None:
    made = world(600, 600, Stream(3, "test"))
    shard = Shard(made.machines, ExecutionLimits(actions_per_cycle=50, concurrency=50))
    for cluster, needs in made.needs.items():
        shard.want(*needs, cluster=cluster)
    plan = shard.planner.cycle(0.0)
    wanted = len(plan.actions)
    shard.hear(shard.executor.submit(plan, 0.0))
    cycles = 1
    while shard.executor.waiting or shard.executor.running:
        shard.now_s += 1.0
        shard.answer()
        shard.cycle()
        cycles += 1
    asked = [name for operation, name in shard.asked if operation == FETCH]
    assert len(asked) == len(set(asked)) == wanted  # every machine once
    assert len(shard.asked) == len(set(shard.asked))  # and no other order twice either
    stale = [labels for labels in shard.instruments.counts[ACTIONS_TOTAL] if labels[1] == "stale"]
    assert stale == []  # nor was anything planned twice, and held back by the guard
    assert cycles == math.ceil(wanted / 50) + 1
    assert shard.counted("bootstrap", "deferred") + shard.counted("provision", "deferred") == (
        wanted - 50
    )
    for _ in range(3):
        assert shard.cycle() == []


# What providers list.


def test_a_record_that_cannot_be_is_rejected_counted_and_kept() -> None:
    shard = Shard([idle("m1"), idle("m2")])
    lies = [
        Machine("m1", shape_of(), CONFIGURED, "h1", "east"),
        Machine("m2", shape_of("large"), IDLE, "h2"),
        Machine("m3", shape_of(), IDLE),
    ]
    shard.reconciler.fold(lies, 1.0, complete=False)
    assert {name: sentence for name, (_, sentence) in shard.reconciler.rejected.items()} == {
        "m1": "it cannot go from idle to configured",
        "m2": "a machine keeps its shape for life",
        "m3": "it is idle but has no host",
    }
    assert shard.instruments.counted("records_rejected") == 3
    assert [shard.state("m1"), shard.state("m2")] == [IDLE, IDLE]


def test_a_machine_does_not_change_its_cluster_by_being_listed() -> None:
    shard = Shard([Machine("m1", shape_of(), CONFIGURED, "h1", "east", ask().key())])
    shard.want(ask())
    shard.reconciler.fold([Machine("m1", shape_of(), CONFIGURED, "h2", "west")], 1.0, complete=True)
    _, sentence = shard.reconciler.rejected["m1"]
    assert sentence == "it cannot go from cluster 'east' to 'west'"
    assert shard.instruments.counted("records_rejected", "illegal_transition") == 1
    (record,) = shard.planner.inventory.records()
    assert (record.cluster, record.host) == ("east", "h1")


def test_a_list_brings_machines_and_takes_them_away() -> None:
    shard = Shard([idle("m1"), idle("m2")])
    shard.want(ask())
    shard.cycle()
    listed = [idle("m2"), idle("m3"), Machine("m1", shape_of(), FAILED, "h1", error="spot")]
    shard.reconciler.fold(listed, 1.0, complete=True)
    assert shard.state("m1") == FAILED
    assert shard.counted("bootstrap", "lost") == 1
    shard.reconciler.fold([idle("m3")], 2.0, complete=True)
    shard.reconciler.forget(["m3", "unknown"])
    assert sorted(shard.planner.inventory.entries) == []


def test_what_has_begun_is_left_to_its_own_answer() -> None:
    shard = Shard([idle("m1")])
    shard.want(ask())
    shard.cycle()
    shard.reconciler.fold([idle("m1")], 1.0, complete=True)  # a list from before it began
    assert shard.state("m1") == CONFIGURING
    shard.answer()
    assert shard.state("m1") == CONFIGURED
