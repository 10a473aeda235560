"""The reference scenarios RU and OD: how a change reaches the pods, also while something scales.

Five of the RU rows are switched off upstream because they fail now and then: RU13, 14, 15, 17, 21.
"""

import copy
from typing import Any

import pytest

from tests.gangs import manifests
from tests.gangs.manifests import the_clique, workload
from tests.gangs.world import World
from windtunnel.gangs.controllers.replicas import ReplicaState
from windtunnel.gangs.controllers.sets import turn_order
from windtunnel.gangs.objects import Pod

ROLES = ("pc-a", "pc-b", "pc-c")


def changed(manifest: dict[str, Any], *roles: str, version: str = "2") -> dict[str, Any]:
    """The manifest with another label on the pods of these roles."""
    made = copy.deepcopy(manifest)
    for number, role in enumerate(ROLES):
        if role in roles:
            the_clique(made, number)["labels"] = {"version": version}
    return made


def is_new(pod: Pod, version: str = "2") -> bool:
    return pod.template.labels.get("version") == version


class Watch:
    """The worst that was seen at any moment of an update."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pods_down: dict[str, int] = {}
        self.groups_down: dict[str, int] = {}
        self.replicas_at_once = 0
        self.deleted: list[str] = []
        world.watching.append(self.look)

    def look(self) -> None:
        view, hurt = self.world.view, set()
        for clique in view.cliques.values():
            ready = sum(1 for pod in clique.pods.values() if pod.ready and pod.active)
            down = clique.replicas - ready
            self.pods_down[clique.name] = max(down, self.pods_down.get(clique.name, 0))
            if down > 0:
                hurt.add(clique.replica)
        for group in view.groups.values():
            whole = [
                members
                for members in group.cliques.values()
                if len(members) == len(group.members)
                and all(
                    sum(1 for pod in one.pods.values() if pod.ready and pod.active)
                    >= one.min_available
                    for one in members.values()
                )
            ]
            down = group.replicas - len(whole)
            self.groups_down[group.name] = max(down, self.groups_down.get(group.name, 0))
            if down > 0:
                hurt.add(group.replica)
        self.replicas_at_once = max(self.replicas_at_once, len(hurt))


def is_over(world: World) -> bool:
    status = world.view.sets["web"].status
    return status.update_ended_s >= status.update_started_s >= 0.0 and not status.updating


def test_ru7_one_pod_at_a_time_and_one_set_replica() -> None:
    world = World(20, workload(1, replicas=2)).run()
    others = world.uids("pc-b") | world.uids("pc-c")
    watch = Watch(world)
    world.apply(changed(workload(1, replicas=2), "pc-a"))
    world.run()
    assert is_over(world)
    assert all(is_new(pod) for pod in world.pods("pc-a"))
    assert others == world.uids("pc-b") | world.uids("pc-c")
    assert (watch.pods_down["web-0-pc-a"], watch.pods_down["web-1-pc-a"]) == (1, 1)
    assert watch.replicas_at_once == 1


def test_ru8_one_group_replica_at_a_time() -> None:
    world = World(20, workload(1, replicas=2)).run()
    watch, alone = Watch(world), world.uids("pc-a")
    world.apply(changed(workload(1, replicas=2), "pc-b"))
    world.run()
    assert is_over(world)
    assert all(is_new(pod) for pod in world.pods("pc-b"))
    assert alone == world.uids("pc-a")
    assert watch.groups_down == {"web-0-sg-x": 1, "web-1-sg-x": 1}
    assert watch.replicas_at_once == 1


def test_ru9_everything_changes() -> None:
    world = World(20, workload(1, replicas=2)).run()
    watch = Watch(world)
    world.apply(changed(workload(1, replicas=2), *ROLES))
    world.run()
    assert is_over(world)
    assert all(is_new(pod) for pod in world.pods())
    assert watch.pods_down["web-0-pc-a"] == 1
    assert watch.groups_down == {"web-0-sg-x": 1, "web-1-sg-x": 1}
    assert watch.replicas_at_once == 1
    assert world.view.sets["web"].status.updated == 2


def test_ru10_without_room_it_stops_after_one_pod() -> None:
    world = World(10, workload(1)).run()
    before = world.uids("pc-a")
    world.cordon(*world.view.nodes)
    world.apply(changed(workload(1), "pc-a"))
    world.run(10_000.0)
    pods = world.pods("pc-a")
    assert sorted(is_new(pod) for pod in pods) == [False, True]
    assert [pod.node != "" for pod in pods if is_new(pod)] == [False]
    assert len(before & world.uids("pc-a")) == 1
    world.open()
    world.run()
    assert all(is_new(pod) for pod in world.pods("pc-a"))
    assert is_over(world)


def test_ru11_a_set_replica_that_comes_meanwhile_is_born_new() -> None:
    world = World(30, workload(1, replicas=2)).run()
    world.cordon(*world.view.nodes)
    world.apply(changed(workload(1, replicas=2), "pc-a"))
    world.run()
    manifest = changed(workload(1, replicas=3), "pc-a")
    world.apply(manifest)
    world.run()
    born = world.uids("web-2-")
    world.open()
    world.run()
    assert (len(world.pods()), world.running()) == (30, 30)
    assert born == world.uids("web-2-")
    assert all(is_new(pod) for pod in world.pods("pc-a"))
    assert is_over(world)


def stalled(world: World, manifest: dict[str, Any], replica: int) -> None:
    """Starts an update, and holds it while the set replica `replica` has its turn."""
    world.startable = lambda pod: not (is_new(pod) and pod.replica == replica)
    world.apply(manifest)
    world.run()
    assert world.view.sets["web"].status.turns == (replica,)


def go_on(world: World) -> None:
    world.startable = lambda _: True
    world.run()
    assert is_over(world)


def test_ru12_a_set_replica_that_goes_while_it_has_its_turn() -> None:
    world = World(20, workload(1, replicas=2)).run()
    stalled(world, changed(workload(1, replicas=2), "pc-a"), 1)
    world.scale("web", 1)
    go_on(world)
    assert len(world.pods()) == 10
    assert all(is_new(pod) for pod in world.pods("pc-a"))


def test_ru13_a_set_replica_that_goes_after_its_turn() -> None:
    world = World(30, workload(1, replicas=3)).run()
    stalled(world, changed(workload(1, replicas=3), "pc-a"), 2)
    world.startable = lambda pod: pod.replica == 2
    world.run()
    world.scale("web", 1)
    go_on(world)
    assert world.running() == 10


@pytest.mark.parametrize("replica", [0, 1])
def test_ru14_a_group_scaled_out_during_its_update(replica: int) -> None:
    world = World(28, workload(1, replicas=2)).run()
    stalled(world, changed(workload(1, replicas=2), "pc-b"), replica)
    for number in (0, 1):
        world.scale(f"web-{number}-sg-x", 3)
    world.run()
    born = world.uids("sg-x-2")
    go_on(world)
    assert (len(world.pods()), world.running()) == (28, 28)
    assert all(is_new(pod) for pod in world.pods("pc-b"))
    assert born == world.uids("sg-x-2")


def test_ru15_a_group_scaled_out_before_its_update() -> None:
    world = World(28, workload(1, replicas=2)).run()
    stalled(world, changed(workload(1, replicas=2), "pc-b"), 0)
    world.scale("web-1-sg-x", 3)
    world.run()
    born = world.uids("web-1-sg-x-2")
    assert all(is_new(pod) for pod in world.pods("web-1-sg-x-2-pc-b"))
    world.scale("web-0-sg-x", 3)
    go_on(world)
    assert (len(world.pods()), world.running()) == (28, 28)
    assert born == world.uids("web-1-sg-x-2")


def test_ru16_a_group_scaled_in_during_its_update() -> None:
    world = World(28, workload(1, replicas=2)).run()
    world.scale("web-0-sg-x", 3)
    world.run()
    stalled(world, changed(workload(1, replicas=2), "pc-b"), 0)
    world.scale("web-0-sg-x", 2)
    go_on(world)
    assert (len(world.pods()), world.running()) == (20, 20)
    assert all(is_new(pod) for pod in world.pods("pc-b"))


def test_ru17_a_group_scaled_in_before_its_update() -> None:
    world = World(28, workload(1, replicas=2)).run()
    world.scale("web-1-sg-x", 3)
    world.run()
    stalled(world, changed(workload(1, replicas=2), "pc-b"), 0)
    world.scale("web-1-sg-x", 2)
    go_on(world)
    assert (len(world.pods()), world.running()) == (20, 20)
    assert all(is_new(pod) for pod in world.pods("pc-b"))


@pytest.mark.parametrize(
    ("name", "start", "end", "turn"),
    [
        ("ru18: out during", 2, 4, 0),
        ("ru19: out before", 2, 4, 1),
        ("ru20: in during", 3, 2, 0),
        ("ru21: in before", 3, 2, 1),
    ],
)
def test_ru18_to_ru21_a_clique_scaled_in_an_update(
    name: str, start: int, end: int, turn: int
) -> None:
    world = World(24, workload(1, replicas=2)).run()
    for number in (0, 1):
        world.scale(f"web-{number}-pc-a", start)
    world.run()
    stalled(world, changed(workload(1, replicas=2), "pc-a"), 0)
    world.scale(f"web-{turn}-pc-a", end)
    world.run()
    born = {pod.uid for pod in world.pods("pc-a") if is_new(pod) and pod.replica == turn}
    go_on(world)
    assert world.running() == len(world.pods()) == 16 + start + end
    assert all(is_new(pod) for pod in world.pods("pc-a"))
    if end > start:
        assert born <= world.uids("pc-a")


def test_a_second_change_in_the_middle_of_an_update_wins() -> None:
    world = World(20, workload(1, replicas=2)).run()
    stalled(world, changed(workload(1, replicas=2), *ROLES), 0)
    for version in ("3", "4", "5"):
        world.apply(changed(workload(1, replicas=2), *ROLES, version=version))
        world.reconcile(1)
    go_on(world)
    assert all(is_new(pod, "5") for pod in world.pods())
    assert world.view.sets["web"].status.updated == 2


def test_reordering_the_cliques_updates_nothing() -> None:
    manifest = workload(1)
    world = World(10, manifest).run()
    before = world.uids()
    manifest["spec"]["template"]["cliques"].reverse()
    world.apply(manifest)
    world.run()
    assert before == world.uids()
    assert world.view.sets["web"].status.update_started_s < 0.0


def test_an_update_goes_on_with_the_room_that_there_is() -> None:
    """Six of ten pods fit: those are replaced one by one, and the other four wait as before."""
    manifest = manifests.pod_clique_set([manifests.clique("pc-a", 10, 2)])
    world = World(6, manifest).run()
    assert world.running() == 6
    watch = Watch(world)
    world.apply(changed(manifest, "pc-a"))
    world.run()
    assert is_over(world)
    assert (world.running(), len(world.pods())) == (6, 10)
    assert all(is_new(pod) for pod in world.pods())
    assert watch.pods_down["web-0-pc-a"] == 5


# What the users of the reference ask for.


def rolling(manifest: dict[str, Any], **values: Any) -> dict[str, Any]:
    manifest["spec"]["updateStrategy"] = {"rollingUpdate": values}
    return manifest


def test_max_unavailable_takes_several_at_once() -> None:
    manifest = workload(2)
    the_clique(manifest)["spec"]["replicas"] = 6
    rolling(manifest, maxUnavailable="50%")
    world = World(14, manifest).run()
    watch = Watch(world)
    world.apply(changed(manifest, "pc-a"))
    world.run()
    assert is_over(world)
    assert watch.pods_down["web-0-pc-a"] == 3


@pytest.mark.parametrize("roles", [("pc-a",), ("pc-b",), ROLES])
def test_max_surge_takes_nothing_before_its_successor_is_ready(roles: tuple[str, ...]) -> None:
    manifest = rolling(workload(2), maxSurge=1, maxUnavailable=0)
    world = World(16, manifest).run()
    watch, most = Watch(world), []
    world.watching.append(lambda: most.append(len(world.pods())))
    world.apply(changed(manifest, *roles))
    world.run()
    assert is_over(world)
    assert world.running() == 10
    assert all(is_new(pod) for role in roles for pod in world.pods(role))
    assert [pod.index for pod in world.pods("pc-a")] == [0, 1]
    assert sorted(world.view.groups["web-0-sg-x"].cliques) == [0, 1]
    if "pc-a" in roles:
        assert watch.pods_down["web-0-pc-a"] == 0
    if "pc-b" in roles:
        assert watch.groups_down["web-0-sg-x"] == 0
    assert max(most) == 10 + ("pc-a" in roles) + 4 * ("pc-b" in roles)
    assert list(world.view.gangs) == ["web-0", "web-0-sg-x-0"]


def test_pause_and_go_on() -> None:
    manifest = workload(1, replicas=2)
    manifest["spec"]["updateStrategy"] = {"paused": True}
    world = World(20, manifest).run()
    before = world.uids()
    new = changed(manifest, *ROLES)
    world.apply(new)
    world.run(599.0)
    assert before == world.uids()
    condition = world.view.sets["web"].conditions["Progressing"]
    assert (condition.status, condition.reason) == ("Unknown", "Paused")
    new["spec"]["updateStrategy"] = {"paused": False}
    world.apply(new)
    world.run()
    assert is_over(world)
    assert not before & world.uids()


def test_a_pause_in_the_middle_takes_nothing_more() -> None:
    world = World(10, workload(1)).run()
    stalled(world, changed(workload(1), "pc-a"), 0)
    paused = changed(workload(1), "pc-a")
    paused["spec"]["updateStrategy"] = {"paused": True}
    world.apply(paused)
    world.startable = lambda _: True
    world.run(1000.0)
    assert sorted(is_new(pod) for pod in world.pods("pc-a")) == [False, True]
    assert world.running() == 10


def test_a_pause_excuses_a_breach_no_longer_than_an_update_that_stands_still() -> None:
    manifest = rolling(workload(1, terminationDelay="1h"), progressDeadline="20m")
    world = World(10, manifest).run()
    stalled(world, changed(manifest, "pc-a"), 0)
    world.kill(next(pod for pod in world.pods("pc-a") if not is_new(pod)))
    paused = changed(manifest, "pc-a")
    paused["spec"]["updateStrategy"]["paused"] = True
    world.run(100.0)
    world.apply(paused)
    world.run(1099.0)
    assert world.condition("web-0-pc-a") == ("Unknown", "UpdateInProgress")
    world.run(1.0)
    assert world.condition("web-0-pc-a") == ("True", "ScheduledReplicasBelowMinAvailable")
    condition = world.view.sets["web"].conditions["Progressing"]
    assert (condition.status, condition.reason) == ("Unknown", "PausedPastDeadline")
    assert condition.message.endswith(
        "is paused and made no progress for 1200 s: breaches count again"
    )
    assert not world.events("ProgressDeadlineExceeded"), "a pause is no failure"
    world.crash()
    world.server.read_statuses_back()
    before = world.uids()
    world.run(3599.0)
    assert len(before & world.uids()) >= 8
    world.run(1.0)
    assert not before & world.uids()


def test_the_deadline_begins_anew_when_a_pause_ends() -> None:
    manifest = workload(1, terminationDelay="1h")
    world = World(10, manifest).run()
    stalled(world, changed(manifest, "pc-a"), 0)
    for paused, seconds, reason in (
        (True, 599.0, "Paused"),
        (True, 2_000.0, "PausedPastDeadline"),
        (False, 599.0, "UpdateInProgress"),
        (False, 2.0, "ProgressDeadlineExceeded"),
        (True, 10.0, "PausedPastDeadline"),
    ):
        again = changed(manifest, "pc-a")
        again["spec"]["updateStrategy"] = {"paused": paused}
        world.apply(again)
        world.run(seconds)
        assert world.view.sets["web"].conditions["Progressing"].reason == reason
    assert len(world.events("ProgressDeadlineExceeded")) == 1


def test_a_deadline_is_told_once_and_progress_takes_it_back() -> None:
    manifest = rolling(workload(1), progressDeadline="10m")
    world = World(10, manifest).run()
    stalled(world, changed(manifest, "pc-a"), 0)
    world.run(599.0)
    assert world.view.sets["web"].conditions["Progressing"].reason == "UpdateInProgress"
    world.run(2.0)
    condition = world.view.sets["web"].conditions["Progressing"]
    assert (condition.status, condition.reason) == ("False", "ProgressDeadlineExceeded")
    world.run(10_000.0)
    assert len(world.events("ProgressDeadlineExceeded")) == 1
    go_on(world)
    assert world.view.sets["web"].conditions["Progressing"].reason == "UpdateCompleted"


@pytest.mark.parametrize(
    ("setting", "deadline_s"), [({}, 600.0), ({"progressDeadline": "30m"}, 1800.0)]
)
def test_a_stuck_update_does_not_keep_a_gang_from_termination_for_ever(
    setting: dict[str, str], deadline_s: float
) -> None:
    manifest = rolling(workload(1, terminationDelay="1h"), **setting)
    world = World(10, manifest).run()
    stalled(world, changed(manifest, "pc-a"), 0)
    world.kill(next(pod for pod in world.pods("pc-a") if not is_new(pod)))
    world.run(deadline_s - 1.0)
    assert world.condition("web-0-pc-a") == ("Unknown", "UpdateInProgress")
    world.run(1.0)
    assert world.condition("web-0-pc-a") == ("True", "ScheduledReplicasBelowMinAvailable")
    world.crash()
    world.server.read_statuses_back()
    before = world.uids()
    world.run(3599.0)
    assert len(before & world.uids()) >= 8
    world.run(1.0)
    assert not before & world.uids()
    assert len(world.events("PodCliqueSetReplicaDeleteSuccessful")) == 1
    world.open()
    go_on(world)
    assert is_over(world)


def test_an_update_that_goes_on_excuses_a_breach_again() -> None:
    manifest = workload(1, terminationDelay="1h")
    world = World(10, manifest).run()
    stalled(world, changed(manifest, "pc-a", "pc-b"), 0)
    world.kill(next(pod for pod in world.pods("pc-a") if not is_new(pod)))
    world.run(700.0)
    assert world.condition("web-0-pc-a")[0] == "True"
    world.startable = lambda pod: not (is_new(pod) and "pc-a" in pod.clique)
    world.run()
    assert world.condition("web-0-pc-a") == ("Unknown", "UpdateInProgress")


def test_several_set_replicas_at_once() -> None:
    manifest = workload(1, replicas=4)
    manifest["spec"]["updateStrategy"] = {"parallelReplicas": 3}
    world = World(40, manifest).run()
    watch = Watch(world)
    world.apply(changed(manifest, *ROLES))
    world.run()
    assert is_over(world)
    assert watch.replicas_at_once == 3


def test_ru_order_idle_then_breached_then_by_index() -> None:
    def standing(*, breached: bool = False, idle: bool = False) -> ReplicaState:
        return ReplicaState(available=not breached, updated=False, breached=breached, idle=idle)

    found = [standing(), standing(breached=True), standing(), standing(idle=True), standing()]
    order = sorted(range(5), key=lambda index: turn_order(found[index], index))
    assert order == [3, 1, 0, 2, 4]


# OnDelete.


def on_delete(manifest: dict[str, Any]) -> dict[str, Any]:
    manifest["spec"]["updateStrategy"] = {"type": "OnDelete"}
    return manifest


@pytest.mark.parametrize("roles", [("pc-a",), ("pc-b",), ROLES])
@pytest.mark.parametrize("replicas", [1, 2])
def test_od1_od4_od7_nothing_is_deleted_and_the_update_is_over(
    roles: tuple[str, ...], replicas: int
) -> None:
    manifest = on_delete(workload(1, replicas=replicas))
    world = World(20, manifest).run()
    before = world.uids()
    world.apply(changed(manifest, *roles))
    world.run(100.0)
    assert before == world.uids()
    assert is_over(world)
    for clique in world.view.cliques.values():
        assert clique.conditions["MinAvailableBreached"].status == "False"


def test_od2_a_deleted_pod_comes_back_new() -> None:
    manifest = on_delete(workload(1))
    world = World(10, manifest).run()
    world.apply(changed(manifest, "pc-a"))
    world.run()
    world.kill(world.pods("pc-a")[0], shut=False)
    world.run()
    assert sorted(is_new(pod) for pod in world.pods("pc-a")) == [False, True]
    assert world.view.cliques["web-0-pc-a"].status.updated == 1


def test_od3_scaling_in_keeps_the_new_pod() -> None:
    manifest = on_delete(workload(2))
    world = World(10, manifest).run()
    world.apply(changed(manifest, "pc-a"))
    world.run()
    world.kill(world.pods("pc-a")[1], shut=False)
    world.run()
    world.scale("web-0-pc-a", 1)
    world.run()
    assert [is_new(pod) for pod in world.pods("pc-a")] == [True]


def test_od5_and_od6_only_what_was_deleted_is_new() -> None:
    manifest = on_delete(workload(1))
    world = World(10, manifest).run()
    world.apply(changed(manifest, *ROLES))
    world.run()
    before = world.uids()
    victims = [world.pods(name)[0] for name in ("pc-a", "sg-x-0-pc-b", "sg-x-1-pc-c")]
    world.kill(*victims, shut=False)
    world.run()
    assert len(before & world.uids()) == 7
    assert sum(is_new(pod) for pod in world.pods()) == 3
    assert world.running() == 10


def test_od9_switching_the_strategy_back_and_forth() -> None:
    manifest = on_delete(workload(1))
    world = World(10, manifest).run()
    world.apply(changed(manifest, "pc-a", version="2"))
    world.run()
    assert not any(is_new(pod) for pod in world.pods())
    switched = changed(workload(1), "pc-a", version="2")
    world.apply(switched)
    world.run()
    assert not any(is_new(pod) for pod in world.pods())  # the strategy alone rolls nothing
    world.apply(changed(workload(1), "pc-a", version="3"))
    world.run()
    assert all(is_new(pod, "3") for pod in world.pods("pc-a"))
    world.apply(on_delete(changed(workload(1), "pc-a", version="4")))
    world.run()
    assert all(is_new(pod, "3") for pod in world.pods("pc-a"))
    assert is_over(world)


def test_on_delete_in_the_middle_ends_a_rolling_update() -> None:
    world = World(10, workload(1)).run()
    stalled(world, changed(workload(1), "pc-a"), 0)
    world.apply(on_delete(changed(workload(1), "pc-a")))
    go_on(world)
    assert sorted(is_new(pod) for pod in world.pods("pc-a")) == [False, True]
    assert world.condition("web-0-pc-a") == ("False", "SufficientReadyPods")
