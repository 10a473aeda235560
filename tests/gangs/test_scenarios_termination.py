"""The reference scenarios GT: what is torn down when something fell below its minimum."""

from typing import Any

import pytest

from tests.gangs.manifests import clique, group, pod_clique_set, workload
from tests.gangs.world import World
from windtunnel.gangs.commands import Delete
from windtunnel.gangs.controllers.termination import broken_replica, due_in_replica

DELAY_S = 10.0
FIRED = "PodCliqueSetReplicaDeleteSuccessful"
FIRED_IN_GROUP = "PodCliqueScalingGroupReplicaDeleteSuccessful"
LOST = "AllScheduledReplicasLost"


def quick(number: int, **template: Any) -> World:
    """One of the workloads with a delay of ten seconds, all running."""
    manifest = workload(number, terminationDelay="10s", **template)
    world = World(10, manifest).run(100.0)
    assert world.running() == 10
    return world


def wl5_gt(**template: Any) -> World:
    roles = [clique("pc-a", 2, 1), clique("pc-b", 1), clique("pc-c", 3, 3)]
    groups = [group("sg-x", ["pc-b", "pc-c"], 2, 1)]
    manifest = pod_clique_set(roles, groups, terminationDelay="10s", **template)
    world = World(10, manifest).run(100.0)
    assert world.running() == 10
    return world


def test_gt1_a_clique_that_stands_alone_takes_the_whole_replica() -> None:
    world = quick(1)
    before = world.uids()
    world.kill(world.pods("pc-a")[0])
    world.run(DELAY_S - 0.1)
    assert len(before & world.uids()) == 9
    world.run(0.1)
    assert not before & world.uids()
    assert (len(world.pods()), world.running()) == (10, 0)
    world.open()
    assert world.run().running() == 10
    assert len(world.events(FIRED)) == 1


def test_gt2_a_group_below_its_minimum_takes_the_whole_replica() -> None:
    world = quick(1)
    before = world.uids()
    world.kill(world.pods("sg-x-0-pc-c")[0])
    world.run()
    assert world.condition("web-0-sg-x") == ("True", "ScheduledReplicasBelowMinAvailable")
    world.run(DELAY_S)
    assert not before & world.uids()
    world.open()
    assert world.run(DELAY_S * 10).running() == 10
    assert len(world.events(FIRED)) == 1


def test_gt3_a_loss_above_the_minimum_is_replaced_and_nothing_else() -> None:
    world = quick(2)
    before = world.uids()
    world.kill(world.pods("pc-a")[0])
    world.run(DELAY_S * 10)
    assert len(before & world.uids()) == 9
    assert world.condition("web-0-pc-a") == ("False", "SufficientReadyPods")


@pytest.mark.parametrize(
    ("rule", "stranded", "recycled"),
    [("Hold", "Hold", False), ("Hold", "Terminate", True), ("Terminate", "Hold", True)],
)
def test_gt3_when_the_last_is_lost_the_rule_decides(
    rule: str, stranded: str, recycled: bool
) -> None:
    world = quick(2, onAllScheduledLost=rule, onStranded=stranded)
    before = world.uids()
    world.kill(*world.pods("pc-a"))
    world.run()
    breached = ("True", "ScheduledReplicasBelowMinAvailable")
    waits = ("False", "InsufficientScheduledPods")
    assert world.condition("web-0-pc-a") == (breached if rule == "Terminate" else waits)
    assert [event.name for event in world.events(LOST)] == ["web-0-pc-a"]
    world.run(DELAY_S)
    assert len(before & world.uids()) == (0 if recycled else 8)
    world.open()
    assert world.run().running() == 10


def test_gt4_a_group_replica_below_its_minimum_goes_alone() -> None:
    world = quick(2, onAllScheduledLost="Terminate")
    before = {name: world.uids(name) for name in ("sg-x-0", "sg-x-1", "pc-a")}
    world.kill(world.pods("sg-x-0-pc-c")[0])
    world.run(DELAY_S * 3)
    assert len(before["sg-x-0"] & world.uids("sg-x-0")) == 3
    world.kill(*(pod for pod in world.pods("sg-x-0-pc-c") if pod.node))
    world.run(DELAY_S)
    assert not before["sg-x-0"] & world.uids("sg-x-0")
    assert before["sg-x-1"] == world.uids("sg-x-1")
    assert before["pc-a"] == world.uids("pc-a")
    assert (len(world.events(FIRED_IN_GROUP)), len(world.events(FIRED))) == (1, 0)
    world.open()
    assert world.run().running() == 10


def test_gt5_all_pods_of_a_member_lost() -> None:
    world = wl5_gt(onAllScheduledLost="Terminate")
    before, others = world.uids("sg-x-0"), world.uids("sg-x-1") | world.uids("pc-a")
    world.kill(*world.pods("sg-x-0-pc-c"))
    world.run(DELAY_S)
    assert not before & world.uids("sg-x-0")
    assert others == world.uids("sg-x-1") | world.uids("pc-a")


def test_gt5_part_of_a_member_lost_with_the_default_rule() -> None:
    world = wl5_gt()
    before, others = world.uids("sg-x-0"), world.uids("sg-x-1") | world.uids("pc-a")
    world.kill(world.pods("sg-x-0-pc-c")[0])
    world.run(DELAY_S)
    assert not before & world.uids("sg-x-0")
    assert others == world.uids("sg-x-1") | world.uids("pc-a")


def test_a_termination_in_a_group_is_decided_once_while_it_is_carried_out() -> None:
    """Deciding again would take what was made since, and tell of a second termination."""
    world = wl5_gt()
    before = world.uids("sg-x-0")
    world.kill(world.pods("sg-x-0-pc-c")[0])
    world.run(DELAY_S)
    assert not before & world.uids("sg-x-0")
    assert (len(world.events(FIRED_IN_GROUP)), world.told(FIRED_IN_GROUP)) == (1, 1)


def test_gt6_a_lost_pod_of_a_scaled_gang_is_replaced() -> None:
    world = quick(2)
    before = world.uids()
    world.kill(world.pods("sg-x-1-pc-c")[0], shut=False)
    world.run(DELAY_S * 10)
    assert len(before & world.uids()) == 9
    assert world.running() == 10


def test_a_breach_that_heals_stops_the_clock() -> None:
    world = quick(1)
    before = world.uids()
    for _ in range(3):
        world.kill(world.pods("pc-a")[0])
        world.run(DELAY_S * 0.9)
        world.open()
        world.run()
    assert len(before & world.uids()) >= 8
    assert world.events(FIRED) == []


def test_replacements_come_while_the_clock_runs() -> None:
    world = quick(1)
    world.kill(world.pods("pc-a")[0])
    world.run(DELAY_S / 2)
    assert len(world.pods("pc-a")) == 2
    assert world.pending() == 1


def test_what_was_never_scheduled_is_never_terminated() -> None:
    world = World(10, workload(1, terminationDelay="10s"))
    world.cordon_all_but(9)
    world.run()
    before = world.uids()
    world.run(100_000.0)
    assert before == world.uids()
    for name in ("web-0-pc-a", "web-0-sg-x"):
        assert world.condition(name) == ("False", "InsufficientScheduledPods")
    message = world.view.cliques["web-0-pc-a"].conditions["MinAvailableBreached"].message
    assert "gang termination is suppressed" in message


def test_a_recycled_replica_that_finds_no_room_waits_without_another_recycle() -> None:
    world = quick(1)
    world.kill(world.pods("pc-a")[0])
    world.run(DELAY_S)
    after = world.uids()
    world.run(DELAY_S * 1000)
    assert world.uids() == after
    assert len(world.events(FIRED)) == 1


def test_a_partly_placed_start_without_gang_admission_is_absorbed_by_the_delay() -> None:
    world = World(10, workload(1, terminationDelay="10s"), gangs=False)
    world.cordon_all_but(1)
    world.run()
    assert world.condition("web-0-pc-a") == ("True", "ScheduledReplicasBelowMinAvailable")
    for _ in range(9):
        world.open(1)
        world.run(1.0)
    assert world.running() == 10
    assert world.events(FIRED) == []
    assert world.condition("web-0-pc-a") == ("False", "SufficientReadyPods")


def test_a_start_that_stays_half_placed_gives_its_room_back() -> None:
    world = World(5, workload(1, terminationDelay="10s"), gangs=False)
    world.run(9.0)
    before = world.uids()
    world.run(1.0)
    assert not before & world.uids()
    assert len(world.events(FIRED)) == 1


def test_a_group_may_have_a_delay_of_its_own_and_none_at_all() -> None:
    manifest = workload(1, terminationDelay="10s")
    sg = manifest["spec"]["template"]["podCliqueScalingGroups"][0]
    sg["terminationDelay"] = "1h"
    world = World(10, manifest).run(100.0)
    before = world.uids()
    world.kill(world.pods("sg-x-0-pc-c")[0])
    world.run(3599.0)
    assert len(before & world.uids()) == 9
    world.run(1.0)
    assert not before & world.uids()

    sg["terminationDelay"] = "Never"
    world = World(10, manifest).run(100.0)
    before = world.uids()
    world.kill(world.pods("sg-x-0-pc-c")[0])
    world.run(1e6)
    assert len(before & world.uids()) == 9


def test_the_set_can_switch_termination_off() -> None:
    world = World(10, workload(1, terminationDelay="Never")).run()
    before = world.uids()
    world.kill(world.pods("pc-a")[0])
    world.run(1e6)
    assert len(before & world.uids()) == 9


def test_the_scale_of_a_clique_survives_a_termination() -> None:
    world = World(14, workload(1, terminationDelay="10s")).run()
    world.scale("web-0-pc-a", 4)
    assert world.run().running() == 12
    for pod in world.pods("pc-a")[:3]:
        world.kill(pod)
    world.close_free()
    world.run(DELAY_S)
    assert len(world.events(FIRED)) == 1
    world.open()
    world.run()
    assert world.running("pc-a") == 4
    assert world.view.sets["web"].status.scales == {}


def test_group_replicas_that_fail_at_different_times_go_by_the_groups_own_clock() -> None:
    roles = [clique("pc-b", 1), clique("pc-c", 2, 2)]
    manifest = pod_clique_set(
        roles, [group("sg-x", ["pc-b", "pc-c"], 3, 2)], terminationDelay="10s"
    )
    world = World(9, manifest).run(100.0)
    world.kill(world.pods("sg-x-0-pc-c")[0])
    world.run(6.0)
    world.kill(world.pods("sg-x-1-pc-c")[0])
    world.run(6.0)
    # Replica 0 is due by now, but the group would be left below its minimum: the set decides.
    assert world.events(FIRED_IN_GROUP) == []
    assert world.events(FIRED) == []
    world.run(4.0)
    assert len(world.events(FIRED)) == 1


def test_an_update_takes_the_clock_away() -> None:
    manifest = workload(1, terminationDelay="10s")
    world = World(10, manifest).run(100.0)
    world.kill(world.pods("pc-a")[0])
    world.run(5.0)
    manifest["spec"]["template"]["cliques"][0]["labels"] = {"new": "yes"}
    world.apply(manifest)
    world.run(100.0)
    assert world.condition("web-0-pc-a") == ("Unknown", "UpdateInProgress")
    assert world.events(FIRED) == []


def test_a_group_that_lost_a_pod_in_every_replica_goes_with_its_set_replica() -> None:
    world = quick(1)
    before = world.uids()
    world.kill(world.pods("sg-x-0-pc-c")[0])
    world.run(4.0)
    world.kill(world.pods("sg-x-1-pc-c")[0])
    world.run()
    # No replica is scheduled whole, so the condition waits; the pods that are left are held.
    assert world.condition("web-0-sg-x") == ("False", "InsufficientScheduledPods")
    world.run(5.9)
    assert len(before & world.uids()) == 8
    world.run(0.1)
    assert not before & world.uids()
    world.open()
    assert world.run().running() == 10
    assert "GangTerminationInProgress" not in world.view.groups["web-0-sg-x"].conditions


def test_a_group_replica_does_not_go_alone_when_the_others_are_not_whole() -> None:
    """Replica 1 is due first, but of the two others one lost everything: the set decides, once."""
    manifest = pod_clique_set(
        [clique("c", 3, 2)], [group("g", ["c"], 3, 2)], terminationDelay="10s"
    )
    world = World(9, manifest).run(100.0)
    world.kill(*world.pods("g-1-c")[:2])
    world.run(6.0)
    world.kill(*world.pods("g-0-c"))
    world.run(9.9)
    assert world.events(FIRED_IN_GROUP) == world.events(FIRED) == []
    world.run(100.0)
    assert (len(world.events(FIRED_IN_GROUP)), len(world.events(FIRED))) == (0, 1)


@pytest.mark.parametrize(("name", "back"), [("web-0-a", 2), ("web-0-g", 1)])
def test_what_slept_and_finds_no_room_was_never_scheduled(name: str, back: int) -> None:
    roles = [clique("a", 2, 2), clique("c", 2, 2)]
    world = World(
        4,
        pod_clique_set(
            roles,
            [group("g", ["c"], 1, 1)],
            terminationDelay="10s",
            onAllScheduledLost="Terminate",
        ),
    ).run(100.0)
    world.scale(name, 0)
    world.run()
    world.cordon_all_but(0)
    world.scale(name, back)
    world.run(100.0)
    assert world.condition(name) == ("False", "InsufficientScheduledPods")
    assert world.events(FIRED) == []
    world.open()
    assert world.run().running() == 4


def test_a_group_without_a_whole_replica_says_who_is_judged() -> None:
    """What still holds pods is torn down in time, so the group does not say that nothing is."""
    manifest = pod_clique_set([clique("c", 3, 3)], [group("g", ["c"])], terminationDelay="10s")
    world = World(3, manifest).run(100.0)
    world.kill(world.pods("c")[0])
    world.run()
    assert world.condition("web-0-g") == ("False", "InsufficientScheduledPods")
    message = world.view.groups["web-0-g"].conditions["MinAvailableBreached"].message
    assert message.endswith("; a replica that still holds pods is judged by its cliques")
    world.run(DELAY_S)
    assert len(world.events(FIRED)) == 1


def test_of_two_breached_groups_the_earlier_one_decides_when() -> None:
    roles = [clique("b", 2, 2), clique("c", 2, 2)]
    groups = [group("g", ["b"], 2, 2), group("h", ["c"], 2, 2)]
    world = World(8, pod_clique_set(roles, groups, terminationDelay="10s")).run(100.0)
    world.kill(world.pods("h-0-c")[0])
    world.run(4.0)
    world.kill(world.pods("g-0-b")[0])
    world.run(5.9)
    assert world.events(FIRED) == []
    world.run(0.1)
    assert ["web-0-h" in event.message for event in world.events(FIRED)] == [True]
    world.run(100.0)
    assert len(world.events(FIRED)) == 1


def test_a_set_replica_without_one_of_its_cliques_waits_until_it_is_there_again() -> None:
    world = quick(1)
    world.kill(world.pods("sg-x-0-pc-c")[0])
    world.run(DELAY_S - 1.0)
    world.now_s += 1.0
    owner, alone = world.view.sets["web"], world.view.cliques["web-0-pc-a"]
    one = world.view.groups["web-0-sg-x"]
    broken = {index: broken_replica(owner, one, found) for index, found in one.cliques.items()}
    known = {one.name: {index: what for index, what in broken.items() if what is not None}}
    assert list(due_in_replica(owner, 0, known, {}, 0.0, world.now_s).replicas) == [0]
    world.server.apply(Delete(alone, "by hand"), world.now_s)
    assert list(due_in_replica(owner, 0, known, {}, 0.0, world.now_s).replicas) == []
    world.run()
    assert len(world.events(FIRED)) == 1


# Stranded gangs: a part of them lost everything, and the others hold machines in vain.

DAY_S = 86400.0
WHY = "web-0-g-0-leader lost all of its pods, while 7 other pods of its gang hold machines"


def leader_and_workers(replicas: int = 1, **template: Any) -> World:
    """A leader and seven workers in one scaling group, each on a machine of its own."""
    roles = [clique("leader", 1), clique("worker", 7)]
    groups = [group("g", ["leader", "worker"], replicas, 1)]
    settings = {"terminationDelay": "10m", **template}
    return World(8 * replicas, pod_clique_set(roles, groups, **settings)).run()


def stranded(world: World) -> str:
    condition = world.view.groups["web-0-g"].conditions.get("GangStranded")
    return "" if condition is None else condition.message


def test_a_lost_leader_does_not_strand_its_workers_for_ever() -> None:
    world = leader_and_workers()
    world.run(100.0)
    world.kill(*world.pods("leader"))
    world.run(599.0)
    assert len(world.taken) == 7
    assert world.condition("web-0-g-0-leader") == ("False", "InsufficientScheduledPods")
    assert stranded(world) == WHY
    assert world.events(FIRED) == []
    world.run(1.0)
    assert not world.taken
    assert [event.message for event in world.events(FIRED)] == [
        f"Set replica 0 is terminated: {WHY}"
    ]
    world.run(DAY_S)
    assert len(world.events(FIRED)) == 1
    assert stranded(world) == ""
    world.open()
    assert world.run(1.0).running() == 8


def test_one_replica_of_a_group_that_is_stranded_goes_alone() -> None:
    world = leader_and_workers(2)
    stay = world.uids("g-1")
    world.kill(*world.pods("g-0-leader"))
    world.run(600.0)
    assert world.events(FIRED) == []
    assert [event.message for event in world.events(FIRED_IN_GROUP)] == [
        f"Replica 0 of web-0-g is terminated: {WHY}"
    ]
    assert world.uids("g-1") == stay
    assert len(world.taken) == 8


@pytest.mark.parametrize(("replicas", "event"), [(1, FIRED), (2, FIRED_IN_GROUP)])
def test_a_termination_names_the_clique_that_is_breached(replicas: int, event: str) -> None:
    world = leader_and_workers(replicas)
    world.kill(world.pods("g-0-worker")[0])
    world.run(600.0)
    (told,) = world.events(event)
    assert told.message.endswith(" is terminated: the clique web-0-g-0-worker is breached")


def test_a_leader_that_comes_back_in_time_stops_the_clock() -> None:
    world = leader_and_workers()
    world.kill(*world.pods("leader"))
    world.run(599.0)
    before = world.uids("worker")
    world.open()
    world.run(0.5)
    assert stranded(world) == ""
    world.run(DAY_S)
    assert world.uids("worker") == before
    assert world.events(FIRED) == []


@pytest.mark.parametrize("setting", [{"onStranded": "Hold"}, {"terminationDelay": "Never"}])
def test_termination_of_stranded_gangs_can_be_switched_off(setting: dict[str, Any]) -> None:
    world = leader_and_workers(**setting)
    world.kill(*world.pods("leader"))
    world.run(DAY_S)
    assert len(world.taken) == 7
    assert world.events(FIRED) == []


def test_a_role_that_stands_alone_strands_the_whole_set_replica() -> None:
    roles = [clique("front", 1), clique("worker", 2)]
    manifest = pod_clique_set(roles, [group("g", ["worker"], 2, 1)], terminationDelay="10m")
    world = World(5, manifest).run()
    world.kill(*world.pods("front"))
    world.run(599.0)
    found = world.view.cliques["web-0-front"].conditions["GangStranded"]
    assert "4 other pods of its gang hold machines" in found.message
    before = world.uids()
    world.run(1.0)
    assert not before & world.uids()
    assert len(world.events(FIRED)) == 1
    assert world.running("front") == 1  # on a machine that a worker had


def test_a_group_that_lost_everything_strands_the_roles_around_it() -> None:
    roles = [clique("front", 1), clique("worker", 2)]
    manifest = pod_clique_set(roles, [group("g", ["worker"], 1, 1)], terminationDelay="10m")
    world = World(3, manifest).run()
    world.kill(*world.pods("worker"))
    world.run(600.0)
    assert not world.taken
    assert ["web-0-g lost all" in event.message for event in world.events(FIRED)] == [True]
    world.run(DAY_S)
    assert len(world.events(FIRED)) == 1


def test_a_gang_that_lost_everything_holds_nothing_and_is_left_alone() -> None:
    world = leader_and_workers()
    world.kill(*world.pods())
    world.run(DAY_S)
    assert world.events(FIRED) == []
    assert stranded(world) == ""


@pytest.mark.parametrize("most", range(1, 12, 2))
def test_a_controller_that_starts_over_keeps_the_clock_of_a_stranded_gang(most: int) -> None:
    world = leader_and_workers()
    world.kill(*world.pods("leader"))
    world.reconcile(most)
    world.crash()
    world.server.read_statuses_back()
    world.run(599.0)
    assert len(world.taken) == 7
    world.crash()
    world.run(1.0)
    world.crash()
    world.run(DAY_S)
    assert not world.taken
    assert len(world.events(FIRED)) == 1
