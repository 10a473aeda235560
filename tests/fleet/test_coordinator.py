"""Several shards: who has what, and machines that move between them, whoever dies on the way."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet.worlds import SAME_RACK, ask, idle, quota, shape_of
from windtunnel.core.errors import InputError
from windtunnel.core.loop import Loop
from windtunnel.core.random import Streams
from windtunnel.fleet.checks import INVARIANTS, Fleet
from windtunnel.fleet.driver import FleetDriver
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need
from windtunnel.fleet.planner.actions import CyclePlan
from windtunnel.fleet.planner.cycle import Planner
from windtunnel.fleet.requirements import requirement
from windtunnel.fleet.shape import INSTANCE_TYPE
from windtunnel.fleet.shard import Shard
from windtunnel.fleet.sharding.coordinator import IDLE_AGE, LEASE_S, Books, Coordinator
from windtunnel.fleet.sharding.membership import ShardMember
from windtunnel.fleet.sharding.messages import FreeMachines, Release, ShardReport, Take
from windtunnel.fleet.states import CONFIGURED
from windtunnel.twin.fleet.provider import Delays, SimulatedProvider

ZONES = {"a": "s1", "b": "s2"}


class Federation:
    """Two shards with a zone each, a coordinator, and one provider."""

    def __init__(self, machines: list[Machine]) -> None:
        self.provider = SimulatedProvider(Delays(), Streams(7))
        for machine in machines:
            self.provider.add(machine)
        self.coordinator = Coordinator()
        for domain, shard in ZONES.items():
            self.coordinator.add_shard(shard)
            self.coordinator.assign(domain, shard)
        self.driver = FleetDriver(self.provider, [], Streams(7)["fetch"])
        self.loop = Loop(self.driver)
        self.driver.after_cycle = self.exchange
        self.members: dict[str, ShardMember] = {}
        self.wanted: dict[str, dict[str, list[Need]]] = {name: {} for name in ZONES.values()}
        self.epochs = dict.fromkeys(ZONES.values(), 0)
        self.deaf: set[str] = set()
        for name in ZONES.values():
            self.start(name)

    def start(self, name: str) -> None:
        """A shard starts, for the first time or again."""
        self.epochs[name] += 1
        territory = self.coordinator.territory(name)
        shard = Shard(name, epoch=self.epochs[name], territory=territory)
        self.members[name] = ShardMember(shard)
        self.driver.restart(shard, self.loop.now_s)
        for cluster, needs in self.wanted[name].items():
            shard.want(cluster, needs)

    def want(self, *needs: Need) -> None:
        cluster = needs[0].cluster
        bound = (name for name, wanted in self.wanted.items() if cluster in wanted)
        fewest = min(self.wanted, key=lambda name: (len(self.wanted[name]), name))
        name = next(bound, fewest)
        self.wanted[name][cluster] = list(needs)
        self.driver.shards[name].want(cluster, needs)

    def exchange(self, shard: Shard, plan: CyclePlan, now_s: float) -> None:
        member = self.members[shard.name]
        member.note(plan)
        instructions = self.coordinator.report(member.report(), now_s)
        if shard.name not in self.deaf:
            member.obey(instructions, self.provider.get, now_s)
        self.check()

    def check(self) -> None:
        fleet = Fleet(list(self.driver.shards.values()), self.provider)
        for one in INVARIANTS:
            assert one.check(fleet) is None

    def holders(self) -> dict[str, str]:
        """By machine, the shard that decides about it."""
        return {
            name: shard.name
            for shard in self.driver.shards.values()
            for name in shard.planner.inventory.entries
        }

    def configured(self, cluster: str) -> list[str]:
        found = self.provider.records()
        return [one.id for one in found if one.state == CONFIGURED and one.cluster == cluster]


def two_zones(idle_b: int = 6, quota_b: int = 3) -> list[Machine]:
    far = shape_of(zone="b")
    return [
        idle("a1"),
        *(idle(f"b{n}", far) for n in range(idle_b)),
        *(quota(f"q{n}", far) for n in range(quota_b)),
    ]


def test_each_shard_has_the_machines_of_its_domains() -> None:
    federation = Federation(two_zones(2, 1))
    federation.loop.run(1.0)
    assert federation.holders() == {"a1": "s1", "b0": "s2", "b1": "s2", "q0": "s2"}


def test_machines_move_to_where_a_need_has_been_short_for_a_while() -> None:
    federation = Federation(two_zones())
    federation.want(ask("east", machines=4))
    federation.loop.run(39.0)
    assert federation.holders()["b0"] == "s2"
    federation.loop.run(120.0)
    assert len(federation.configured("east")) == 4
    assert federation.holders() | {"b0": "s1", "b1": "s1", "b2": "s1"} == federation.holders()
    assert sorted(federation.holders()) == sorted(one.id for one in two_zones())
    federation.loop.run(400.0)
    assert len(federation.coordinator.books.moved) == 3  # and no more
    assert federation.coordinator.books.moves == {}


def test_places_in_a_quota_move_after_idle_machines_did_not_do() -> None:
    federation = Federation(two_zones(2, 5))
    federation.want(ask("east", machines=4))
    federation.loop.run(100.0)
    assert len(federation.configured("east")) == 3
    federation.loop.run(600.0)
    assert len(federation.configured("east")) == 4


def test_a_gang_is_made_of_machines_of_its_own_shard_and_of_others() -> None:
    """Four of one type: its shard has one of them, and the other shard has three."""
    federation = Federation(two_zones(idle_b=3, quota_b=0))
    gang = ask("east", 4, "small", requirement(INSTANCE_TYPE, "Same"))
    federation.want(gang)
    federation.loop.run(400.0)
    assert federation.configured("east") == ["a1", "b0", "b1", "b2"]


def test_a_gang_gets_all_of_its_machines_in_one_domain() -> None:
    racks = [idle(f"b{n}", shape_of(zone="b", rack=f"r{n % 2}")) for n in range(12)]
    federation = Federation([idle("a1"), *racks])
    federation.want(ask("east", 5, "small", SAME_RACK, group="g"))
    federation.loop.run(300.0)
    came = federation.configured("east")
    assert len(came) == 5
    assert len({int(name[1:]) % 2 for name in came}) == 1


def test_a_spread_gets_machines_of_the_domains_that_lack_some() -> None:
    """It has one in zone a; for two more, one comes from each of the other zones."""
    shard = Shard("s1")
    inventory, planner = shard.planner.inventory, shard.planner
    inventory.load([idle("m1", shape_of(zone="a")), idle("l1", shape_of("large", "b"))])
    wanted = ask(machines=3, skew=1)
    planner.needs.replace("east", [wanted])
    member = ShardMember(shard)
    for now_s in range(IDLE_AGE):
        member.note(planner.cycle(float(now_s)))
    (wish,) = member.report().wishes
    assert wish.full == ()  # zone a is the only one that the shard knows of
    coordinator = Coordinator()
    for name in ("s1", "s2"):
        coordinator.add_shard(name)
    free = tuple(FreeMachines(shape_of(zone=zone), 5, 0) for zone in "abc")
    coordinator.report(ShardReport("s2", free=free), 0.0)
    wish = msgspec.structs.replace(wish, full=("a",))
    coordinator.report(ShardReport("s1", wishes=(wish,)), 1.0)
    orders = coordinator.report(ShardReport("s2", free=free), 2.0)
    assert [(one.shape.zone, one.idle) for one in orders if isinstance(one, Release)] == [
        ("b", 1),
        ("c", 1),
    ]


def test_a_shard_says_which_domains_of_a_spread_are_full() -> None:
    planner = Planner()
    planner.inventory.load([idle("m1"), idle("m2"), quota("m3", shape_of(zone="b"))])
    planner.needs.replace("east", [ask(machines=2, skew=1)])
    planner.cycle(0.0)
    (row,) = planner.inventory.rows.values()
    assert (row.whole, planner.full_domains(row)) == (True, [])
    planner.needs.replace("east", [ask(machines=4, skew=1)])
    planner.cycle(1.0)
    assert (row.whole, planner.full_domains(row)) == (False, ["a"])


def test_what_a_donor_needs_itself_stays() -> None:
    federation = Federation(two_zones(4, 0))
    federation.want(ask("east", machines=4))
    federation.want(ask("west", machines=4))
    federation.loop.run(400.0)
    assert len(federation.configured("west")) == 4
    assert len(federation.configured("east")) == 1


def test_a_machine_finds_its_way_back() -> None:
    federation = Federation(two_zones(3, 0))
    federation.want(ask("east", machines=2))
    federation.loop.run(200.0)
    assert len(federation.coordinator.books.moved) == 1
    federation.want(ask("east", machines=1))
    federation.want(ask("west", machines=3))
    federation.loop.run(900.0)
    assert len(federation.configured("west")) == 3
    assert len(federation.configured("east")) == 1


def test_a_machine_that_moved_and_is_gone_is_forgotten() -> None:
    federation = Federation(two_zones(3, 0))
    federation.want(ask("east", machines=2))
    federation.loop.run(200.0)
    (moved,) = federation.coordinator.books.moved
    federation.provider.remove(moved)
    federation.want(ask("east", machines=1))
    federation.loop.run(230.0)
    assert federation.coordinator.books.moved == {}


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_machines_are_conserved_whoever_dies_and_whatever_is_lost(data: st.DataObject) -> None:
    federation = Federation(two_zones())
    federation.want(ask("east", machines=4))
    for _ in range(data.draw(st.integers(0, 10))):
        federation.loop.run(federation.loop.now_s + data.draw(st.integers(1, 40)))
        happens = data.draw(st.sampled_from(["s1", "s2", "deaf", "coordinator"]))
        if happens == "deaf":
            federation.deaf = {data.draw(st.sampled_from(["s1", "s2"]))}
        elif happens == "coordinator":
            stored = msgspec.json.encode(federation.coordinator.books)
            federation.coordinator = Coordinator(msgspec.json.decode(stored, type=Books))
        else:
            federation.start(happens)
            federation.check()
    federation.deaf = set()
    federation.loop.run(federation.loop.now_s + 400.0)
    assert sorted(federation.holders()) == sorted(one.id for one in two_zones())
    assert len(federation.configured("east")) == 4
    begun = federation.provider.begun
    assert (begun["configure"], sum(federation.provider.repeated.values())) == (4, 0)


def test_a_release_is_followed_once_and_answered_until_it_was_heard() -> None:
    provider = SimulatedProvider(Delays(), Streams(1))
    for machine in two_zones():
        provider.add(machine)
    shard = Shard("s2")
    shard.fold(provider.list_since("s2", 1, 0), 0.0)
    member = ShardMember(shard)
    order = Release(3, 1, shape_of(zone="b"), 2, 1)
    member.obey([order], provider.get, 0.0)
    member.obey([order], provider.get, 0.0)
    (answer,) = member.report().released
    assert (answer.instruction, answer.machines) == (3, ("b0", "b1", "q0"))
    member.obey([Take(4, 2, ("b0",))], provider.get, 0.0)
    assert member.report().released == ()
    assert member.report().taken == (4,)
    member.obey([Release(5, 1, shape_of(zone="b"), 2, 0)], provider.get, 0.0)  # of an old term
    assert "b2" in shard.planner.inventory.entries


def test_a_domain_stays_with_its_shard() -> None:
    coordinator = Coordinator()
    for name in ("s2", "s1"):
        coordinator.add_shard(name)
    coordinator.assign("zone-a", "s1")
    with pytest.raises(InputError, match="domain 'zone-a': it belongs to shard 's1'"):
        coordinator.assign("zone-a", "s2")
    with pytest.raises(InputError, match="there is no shard 's9'; allowed: s1, s2"):
        coordinator.report(ShardReport("s9"), 0.0)


def test_a_shard_is_run_by_one_process_until_its_lease_runs_out() -> None:
    coordinator = Coordinator()
    coordinator.add_shard("s1")
    assert coordinator.acquire("s1", "p1", 0.0) == 1
    assert coordinator.acquire("s1", "p2", LEASE_S - 1.0) == 0
    assert coordinator.report(ShardReport("s1", 1), 20.0) == []  # renews it
    assert coordinator.acquire("s1", "p2", LEASE_S + 1.0) == 0
    assert coordinator.acquire("s1", "p2", 20.0 + LEASE_S) == 2
    member = ShardMember(Shard("s1", epoch=1))
    member.obey(coordinator.report(member.report(), 60.0), lambda _: None, 60.0)
    assert member.retired
    assert coordinator.acquire("s1", "p2", 61.0) == 3  # it starts again
    assert coordinator.report(ShardReport("s1", 3), 62.0) == []


def test_a_machine_that_moved_and_is_listed_wrongly_is_not_forgotten() -> None:
    federation = Federation(two_zones(3, 0))
    federation.want(ask("east", machines=2))
    federation.loop.run(200.0)
    (moved,) = federation.coordinator.books.moved
    record = federation.provider.get(moved)
    assert record is not None
    federation.start("s1")
    shard = federation.driver.shards["s1"]
    shard.executor.gone(moved)  # as in a first list in which its record could not be
    wrong = msgspec.structs.replace(record, host="")
    shard.reconciler.fold([wrong], 200.0, complete=False)
    assert federation.members["s1"].report().gone == ()
    shard.reconciler.forget([moved])
    assert federation.members["s1"].report().gone == (moved,)
