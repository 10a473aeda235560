"""A shard and its provider: what is promised, and what a start in the middle of things repeats."""

import math

import pytest

from tests.fleet.worlds import ask, idle, quota, shape_of
from windtunnel.core.errors import InputError
from windtunnel.core.loop import Loop
from windtunnel.core.random import Streams
from windtunnel.fleet.driver import CYCLE_S, RELIST_CYCLES, FleetDriver
from windtunnel.fleet.instruments import ACTIONS_TOTAL
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need
from windtunnel.fleet.orders import (
    CONFIGURE,
    CREATE,
    DELETE,
    DRAIN,
    TAG,
    ExecutionLimits,
    MachineOrder,
    Token,
)
from windtunnel.fleet.planner.costs import RECLAIM_GRACE_S
from windtunnel.fleet.provider import FROM_THE_START, STEPS, Page
from windtunnel.fleet.shard import Shard
from windtunnel.fleet.states import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DRAINING,
    FAILED,
    IDLE,
    SPECULATIVE,
)
from windtunnel.twin.fleet.provider import Delays, SimulatedProvider

INSTANT = Delays(0.0, 0.0, 0.0, 0.0)


def provider_of(machines: list[Machine], delays: Delays | None = None) -> SimulatedProvider:
    provider = SimulatedProvider(delays or Delays(), Streams(5))
    for machine in machines:
        provider.add(machine)
    return provider


def order(operation: str, sequence: int, cluster: str = "", epoch: int = 1) -> MachineOrder:
    return MachineOrder(operation, "m1", Token(epoch, sequence), cluster)


# The interface.


def test_an_order_is_answered_when_it_is_done_and_not_before() -> None:
    provider = provider_of([quota("m1")], Delays(create_s=60.0, cv=0.0))
    provider.begin("s", order(CREATE, 1), 5.0)
    assert provider.advance(64.9) == []
    (answer,) = provider.advance(65.0)
    assert (answer.error, answer.host, answer.token) == ("", "host-m1", Token(1, 1))
    found = provider.get("m1")
    assert found is not None
    assert (found.state, found.since_s) == (IDLE, 65.0)


def test_to_ask_again_begins_nothing_and_the_newer_token_is_answered() -> None:
    provider = provider_of([idle("m1")], Delays(cv=0.0))
    provider.begin("s", order(CONFIGURE, 1, "east"), 0.0)
    provider.begin("s", order(CONFIGURE, 2, "east"), 1.0)
    (answer,) = provider.advance(5.0)
    assert answer.token == Token(1, 2)
    provider.begin("s", order(CONFIGURE, 3, "east"), 6.0)  # it was done already
    assert [one.token for one in provider.advance(6.0)] == [Token(1, 3)]
    assert (provider.begun[CONFIGURE], provider.repeated[CONFIGURE]) == (1, 2)


def test_an_order_that_cannot_be_is_answered_with_a_sentence() -> None:
    provider = provider_of([quota("m1")])
    provider.begin("s", order(CONFIGURE, 1, "east"), 0.0)
    provider.begin("s", MachineOrder(DRAIN, "m2", Token(1, 2)), 0.0)
    assert [one.error for one in provider.advance(0.0)] == [
        "it is speculative; configure begins at idle",
        "there is no such machine",
    ]


def test_a_machine_of_another_cluster_is_not_configured_a_second_time() -> None:
    provider = provider_of([idle("m1")], INSTANT)
    provider.begin("s", order(CONFIGURE, 1, "east"), 0.0)
    provider.advance(0.0)
    provider.begin("s", order(CONFIGURE, 2, "west"), 0.0)
    assert provider.advance(0.0)[0].error == "it is configured; configure begins at idle"


def test_orders_that_were_overtaken_or_are_of_an_earlier_start_are_void() -> None:
    provider = provider_of([idle("m1")], INSTANT)
    provider.begin("s", order(CONFIGURE, 2, "east"), 0.0)
    provider.begin("s", order(DRAIN, 1), 0.0)
    provider.list_since("s", 2, FROM_THE_START)  # the shard was started again
    provider.begin("s", order(DRAIN, 9), 0.0)
    assert provider.fenced == 2
    provider.begin("s", order(DRAIN, 1, epoch=2), 1.0)
    assert provider.begun[DRAIN] == 0  # it was not configured yet
    assert provider.fenced == 2


def test_a_tag_changes_only_whose_the_machine_is() -> None:
    provider = provider_of([idle("m1")], INSTANT)
    provider.begin("s", order(CONFIGURE, 1, "east"), 0.0)
    provider.advance(0.0)
    key = ask().key()
    provider.begin("s", MachineOrder(TAG, "m1", Token(1, 2), "east", key), 0.0)
    found = provider.get("m1")
    assert found is not None
    assert (found.state, found.holder) == (CONFIGURED, key)
    assert provider.advance(1.0) == []


def test_a_cursor_gives_what_changed_with_tombstones_in_pages() -> None:
    provider = provider_of([idle(f"m{n}") for n in range(5)])
    first = provider.list_since("s", 1, FROM_THE_START, most=3)
    assert ([one.id for one in first.records], first.more) == (["m0", "m1", "m2"], True)
    rest = provider.list_since("s", 1, first.cursor, most=3)
    assert ([one.id for one in rest.records], rest.more) == (["m3", "m4"], False)
    provider.remove("m1")
    provider.lose("m3", "spot took it", 1.0)
    changed = provider.list_since("s", 1, rest.cursor)
    assert ([one.id for one in changed.records], changed.tombstones) == (["m3"], ["m1"])
    assert provider.list_since("s", 1, changed.cursor) == Page([], [], changed.cursor)
    assert provider.list_since("s", 1, FROM_THE_START).tombstones == []


def test_a_cursor_that_is_too_old_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.fleet.provider.TOMBSTONES_KEPT", 1)
    provider = provider_of([idle(f"m{n}") for n in range(4)])
    shard = Shard("s")
    assert not shard.fold(provider.list_since("s", 1, shard.cursor), 0.0)
    for name in ("m0", "m1", "m2"):
        provider.remove(name)
    assert shard.fold(provider.list_since("s", 1, shard.cursor), 1.0)  # look again
    assert not shard.fold(provider.list_since("s", 1, shard.cursor), 1.0)
    assert sorted(shard.planner.inventory.entries) == ["m3"]


def test_a_quota_grows_and_shrinks_and_a_new_price_is_a_new_place() -> None:
    provider = provider_of([])
    provider.offer(shape_of(), 3)
    provider.offer(shape_of("large"), 1)
    names = [one.id for one in provider.records()]
    assert names == ["large/a/2/0", "small/a/1/0", "small/a/1/1", "small/a/1/2"]
    provider.begin("s", MachineOrder(CREATE, "small/a/1/0", Token(1, 1)), 0.0)
    provider.offer(shape_of(), 0)
    assert [one.state for one in provider.records()] == [SPECULATIVE, CREATING]
    provider.offer(shape_of(), 1)
    assert provider.get("small/a/1/3") is not None  # ids are not given out twice
    with pytest.raises(InputError, match="-1 places are offered; allowed: 0 or more"):
        provider.offer(shape_of(), -1)


def test_a_delay_that_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match="drain_s is nan"):
        SimulatedProvider(Delays(drain_s=math.nan), Streams(1))


def test_a_drain_takes_no_longer_than_its_grace() -> None:
    provider = provider_of([idle("m1")], Delays(configure_s=0.0, drain_s=500.0, cv=0.0))
    provider.begin("s", order(CONFIGURE, 1, "east"), 0.0)
    provider.advance(0.0)
    provider.begin("s", MachineOrder(DRAIN, "m1", Token(1, 2), grace_s=60.0), 0.0)
    assert provider.next_s() == 60.0


# Starts in the middle of things.

HIGH = ask("east", machines=4, priority=900)
LOW = ask("west", machines=3, priority=1)
WANTED = {"east": [HIGH, ask("east", machines=2, kind="large", group="g")], "west": [LOW]}
END_S = 400.0


def fleet() -> SimulatedProvider:
    """Two machines are free, three must be made, and two must be taken from others."""
    held = [
        Machine(f"w{n}", shape_of(), CONFIGURED, f"host-w{n}", "west", LOW.key()) for n in range(3)
    ]
    free = [idle("m1"), quota("m2")]
    large = [quota("l1", shape_of("large")), idle("l2", shape_of("large"))]
    return provider_of(held + free + large)


class Convergence:
    """A drill in which a shard may die after any event."""

    def __init__(self) -> None:
        self.provider = fleet()
        self.driver = FleetDriver(self.provider, [], Streams(5)["fetch"])
        self.loop = Loop(self.driver)
        self.start(1)

    def start(self, epoch: int) -> None:
        shard = Shard("s", ExecutionLimits(actions_per_cycle=2), epoch=epoch)
        self.driver.restart(shard, self.loop.now_s)
        for cluster, needs in WANTED.items():
            shard.want(cluster, needs)

    def outcome(self) -> tuple[list[tuple[int, str]], dict[str, int]]:
        """How many machines each cluster has in the end, and what it took."""
        ends = sorted((one.state, one.cluster) for one in self.provider.records())
        return ends, dict(self.provider.begun)


def events_of_a_quiet_run() -> int:
    quiet = Convergence()
    events = 0
    while quiet.loop.step(END_S):
        events += 1
    ends, begun = quiet.outcome()
    assert ends == [(CONFIGURED, "east")] * 6 + [(CONFIGURED, "west")]
    assert begun == {CREATE: 2, CONFIGURE: 6, DRAIN: 2, DELETE: 0}
    return events


def test_a_shard_that_starts_again_at_any_moment_repeats_nothing() -> None:
    events = events_of_a_quiet_run()
    assert events > 40
    for dies_after in range(events):
        run = Convergence()
        for _ in range(dies_after):
            run.loop.step(END_S)
        run.start(2)
        run.loop.run(END_S + 100.0)
        ends, begun = run.outcome()
        assert ends == [(CONFIGURED, "east")] * 6 + [(CONFIGURED, "west")], dies_after
        assert begun == {CREATE: 2, CONFIGURE: 6, DRAIN: 2, DELETE: 0}, dies_after
        assert sum(run.provider.repeated.values()) == 0, dies_after
        assert run.driver.shards["s"].reconciler.rejected == {}


def test_orders_of_the_dead_that_arrive_late_do_nothing() -> None:
    run = Convergence()
    while run.provider.begun[CONFIGURE] < 1:
        run.loop.step(END_S)
    run.start(2)
    for machine in ("m1", "l2", "w0"):
        for operation in STEPS:
            late = MachineOrder(operation, machine, Token(1, 10**6), "east", HIGH.key())
            run.provider.begin("s", late, run.loop.now_s)
    assert run.provider.fenced == 12
    run.loop.run(END_S)
    assert run.outcome()[1] == {CREATE: 2, CONFIGURE: 6, DRAIN: 2, DELETE: 0}


def test_what_was_begun_before_a_start_and_never_ends_is_given_up() -> None:
    stuck = Machine("m1", shape_of(), CONFIGURING, "h", "east", ask().key())
    provider = provider_of([stuck, idle("m2")], INSTANT)
    driver = FleetDriver(provider, [], Streams(1)["fetch"])
    loop = Loop(driver)
    shard = Shard("s", epoch=2)
    driver.restart(shard, 0.0)
    shard.want("east", [ask()])
    loop.run(89.0)
    assert provider.begun[CONFIGURE] == 0  # it is still counted on
    loop.run(120.0)
    entries = shard.planner.inventory.entries
    assert (entries["m1"].state, entries["m2"].state) == (FAILED, CONFIGURED)
    assert "never ended" in shard.planner.inventory.errors["m1"]


def test_a_drain_that_was_begun_before_a_start_has_its_grace_period_as_well() -> None:
    stuck = Machine("m1", shape_of(), DRAINING, "h", "east", ask().key())
    driver = FleetDriver(provider_of([stuck], INSTANT), [], Streams(1)["fetch"])
    loop = Loop(driver)
    shard = Shard("s", epoch=2)
    driver.restart(shard, 0.0)
    shard.want("east", [])
    limits = shard.limits
    given_up_s = limits.attempts * (limits.timeout_s + RECLAIM_GRACE_S)
    loop.run(given_up_s - 1.0)
    entry = shard.planner.inventory.entries["m1"]
    assert entry.state == DRAINING
    loop.run(given_up_s + 30.0)
    assert entry.state == FAILED


def test_a_shard_that_starts_again_plans_what_the_dead_one_would_have() -> None:
    run = Convergence()
    run.loop.run(END_S)
    twin = Shard("s", epoch=2)
    twin.fold(run.provider.list_since("s", 2, FROM_THE_START), END_S)
    wanted: dict[str, list[Need]] = {"east": [*WANTED["east"], ask("east", priority=901)]}
    for shard in (run.driver.shards["s"], twin):
        for cluster, needs in (WANTED | wanted).items():
            shard.want(cluster, needs)
    old, new = run.driver.shards["s"].cycle(END_S)[0], twin.cycle(END_S)[0]
    assert [(one.kind, one.machine) for one in new.actions] == [
        (one.kind, one.machine) for one in old.actions
    ]
    assert len(new.actions) == 1


def test_nothing_is_reclaimed_before_a_cluster_has_said_what_it_needs() -> None:
    provider = fleet()
    driver = FleetDriver(provider, [Shard("s")], Streams(1)["fetch"])
    loop = Loop(driver)
    loop.run(100.0)
    assert sum(provider.begun.values()) == 0


class ForgetfulOfTags(SimulatedProvider):
    """Takes the first tags, and does not note them."""

    def __init__(self, forgets: int) -> None:
        super().__init__(INSTANT, Streams(5))
        self.forgets = forgets
        self.tags = 0

    def begin(self, shard: str, order: MachineOrder, now_s: float) -> None:
        if order.operation == TAG:
            self.tags += 1
            if self.tags <= self.forgets:
                return
        super().begin(shard, order, now_s)


@pytest.mark.parametrize("forgets", [0, 1, 2])
def test_a_tag_that_was_forgotten_is_given_again_when_the_old_holder_is_listed(
    forgets: int,
) -> None:
    low, high = ask(priority=1), ask(priority=2)
    provider = ForgetfulOfTags(forgets)
    provider.add(Machine("m1", shape_of(), CONFIGURED, "h1", "east", low.key()))
    shard = Shard("s")
    driver = FleetDriver(provider, [shard], Streams(1)["fetch"])
    loop = Loop(driver)
    driver.before_cycle = lambda _: _want(shard, low, high)
    loop.run(3.5 * RELIST_CYCLES * CYCLE_S)
    found = provider.get("m1")
    assert found is not None
    assert found.holder == high.key()
    assert provider.tags == forgets + 1
    told = shard.instruments
    assert told.counted(ACTIONS_TOTAL, "adopt", "repeated") == forgets
    assert told.counted(ACTIONS_TOTAL, "adopt", "success") == 1


def _want(shard: Shard, *needs: Need) -> None:
    shard.want("east", list(needs))
