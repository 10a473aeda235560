"""RU7 to RU21 and OD1 to OD9: how a change of templates reaches the pods, scaled or not."""

from typing import Any

import pytest

from tests.gangs.manifests import clique, pod_clique_set, the_clique, workload
from tests.gangs.scenarios.live import Live

OLD, NEW = "busybox:1", "busybox:2"


class Watched(Live):
    """Notes after every event how many pods of each clique are down, and in which replicas."""

    def __init__(self, *manifests: dict[str, Any], **options: Any) -> None:
        self.most: dict[str, int] = {}
        self.together = 0
        self.groups_down: dict[str, int] = {}
        super().__init__(*manifests, **options)

    def watch(self, seconds: float = 600.0) -> None:
        until_s = self.now_s + seconds
        self.loop.wake()
        self._note()
        while self.loop.step(until_s):
            self._note()
        self.loop.run(until_s)

    def _note(self) -> None:
        replicas = set()
        for one in self.view.cliques.values():
            down = one.replicas - sum(pod.ready and pod.active for pod in one.pods.values())
            self.most[one.name] = max(self.most.get(one.name, 0), down)
            if down:
                replicas.add(one.replica)
        self.together = max(self.together, len(replicas))
        for one_group in self.view.groups.values():
            down = sum(
                any(len([p for p in m.pods.values() if p.ready and p.active]) < m.min_available
                    for m in members.values())
                for members in one_group.cliques.values()
            ) + one_group.replicas - len(one_group.cliques)  # fmt: skip
            self.groups_down[one_group.name] = max(self.groups_down.get(one_group.name, 0), down)


def updated(live: Live) -> bool:
    status = live.view.sets["web"].status
    return not status.updating and status.updated == live.view.sets["web"].replicas


def two(number: int = 1) -> dict[str, Any]:
    return workload(number, replicas=2)


def test_ru7_a_lone_clique_one_pod_and_one_replica_at_a_time() -> None:
    live = Watched(two(), nodes=20)
    live.change(0, seconds=0.0)
    live.watch()
    assert live.images("pc-a") == [NEW] * 4
    assert live.images("pc-b") == [OLD] * 4
    assert max(live.most[f"web-{n}-pc-a"] for n in (0, 1)) == 1
    assert live.together == 1
    assert updated(live)
    assert live.ready() == 20


def test_ru8_a_group_one_replica_at_a_time() -> None:
    live = Watched(two(), nodes=20)
    live.change(1, seconds=0.0)
    live.watch()
    assert live.images("pc-b") == [NEW] * 4
    assert live.images("pc-a") == [OLD] * 4
    assert set(live.groups_down.values()) == {1}
    assert live.together == 1
    assert updated(live)


def test_ru9_all_roles_one_pod_and_one_group_replica_at_a_time() -> None:
    live = Watched(two(), nodes=20)
    live.change(0, 1, 2, seconds=0.0)
    live.watch(1200.0)
    assert live.images() == [NEW] * 20
    assert max(live.most[f"web-{n}-pc-a"] for n in (0, 1)) == 1
    assert set(live.groups_down.values()) == {1}
    assert live.together == 1
    assert updated(live)


def test_ru10_without_a_free_node_it_halts_after_one_pod() -> None:
    live = Live(workload(1), nodes=10)
    for number in range(10):
        live.cluster.cordon(f"n{number}", live.now_s)
    live.change(0, seconds=600.0)
    assert live.images("pc-a") == [OLD, NEW]
    assert [pod.scheduled for pod in live.pods("pc-a")] == [True, False]
    assert not updated(live)
    live.add(10)
    live.run(300.0)
    assert live.images("pc-a") == [NEW, NEW]
    assert updated(live)
    assert live.ready() == 10


def test_ru11_a_replica_that_comes_during_an_update_is_born_new() -> None:
    live = Live(two(), nodes=30)
    live.change(0, seconds=3.0)
    live.scale("web", 3, seconds=0.0)
    born = live.uids("web-2-pc-a")
    live.run(600.0)
    assert len(live.pods()) == 30
    assert live.images("pc-a") == [NEW] * 6
    assert live.uids("web-2-pc-a") >= born
    assert updated(live)


def test_ru13_a_replica_that_goes_after_it_was_updated() -> None:
    live = Live(two(), nodes=20)
    live.change(0, seconds=0.0)
    while live.images("web-1-pc-a") != [NEW, NEW]:
        assert live.loop.step()
    live.scale("web", 1, seconds=600.0)
    assert len(live.pods()) == 10
    assert updated(live)


@pytest.mark.parametrize("seconds", [0.0, 1.0, 3.0, 6.0, 10.0, 20.0])
def test_ru14_a_group_that_grows_during_its_update(seconds: float) -> None:
    live = Live(two(), nodes=28)
    live.change(1, seconds=seconds)
    for replica in (0, 1):
        live.scale(f"web-{replica}-sg-x", 3, seconds=0.0)
    live.run(1200.0)
    assert len(live.pods()) == 28
    assert live.images("pc-b") == [NEW] * 6
    assert updated(live)
    assert live.ready() == 28


def test_ru14_what_was_added_meanwhile_is_not_updated_twice() -> None:
    live = Live(workload(1), nodes=14)
    live.change(1, seconds=3.0)
    live.scale("web-0-sg-x", 3, seconds=0.0)
    live.loop.wake()
    born = live.uids("sg-x-2-pc-b")
    live.run(1200.0)
    assert live.uids("sg-x-2-pc-b") == born
    assert live.images("pc-b") == [NEW] * 3


def test_ru15_a_group_that_grows_before_its_update() -> None:
    live = Live(two(), nodes=28)
    for replica in (0, 1):
        live.scale(f"web-{replica}-sg-x", 3, seconds=0.0)
    live.change(1, seconds=1200.0)
    assert len(live.pods()) == 28
    assert live.images("pc-b") == [NEW] * 6
    assert updated(live)


def test_ru17_a_group_that_shrinks_before_its_update() -> None:
    live = Live(two(), nodes=28)
    for replica in (0, 1):
        live.scale(f"web-{replica}-sg-x", 3)
    for replica in (0, 1):
        live.scale(f"web-{replica}-sg-x", 2, seconds=0.0)
    live.change(1, seconds=1200.0)
    assert len(live.pods()) == 20
    assert live.images("pc-b") == [NEW] * 4
    assert updated(live)


@pytest.mark.parametrize("seconds", [0.0, 2.0, 5.0])
def test_ru18_a_clique_that_grows_during_its_update(seconds: float) -> None:
    live = Live(two(), nodes=24)
    live.change(0, seconds=seconds)
    for replica in (0, 1):
        live.scale(f"web-{replica}-pc-a", 4, seconds=0.0)
    live.run(1200.0)
    assert len(live.pods()) == 24
    assert live.images("pc-a") == [NEW] * 8
    assert updated(live)
    assert live.ready() == 24


def test_ru19_a_clique_that_grows_before_its_update() -> None:
    live = Live(two(), nodes=24)
    for replica in (0, 1):
        live.scale(f"web-{replica}-pc-a", 4, seconds=0.0)
    live.change(0, seconds=1200.0)
    assert len(live.pods()) == 24
    assert live.images("pc-a") == [NEW] * 8
    assert updated(live)


@pytest.mark.parametrize("seconds", [0.0, 2.0, 5.0])
def test_ru20_a_clique_that_shrinks_during_its_update(seconds: float) -> None:
    live = Live(two(), nodes=22)
    for replica in (0, 1):
        live.scale(f"web-{replica}-pc-a", 3)
    live.change(0, seconds=seconds)
    for replica in (0, 1):
        live.scale(f"web-{replica}-pc-a", 2, seconds=0.0)
    live.run(1200.0)
    assert len(live.pods()) == 20
    assert live.images("pc-a") == [NEW] * 4
    assert updated(live)


def test_ru21_a_clique_that_shrinks_before_its_update() -> None:
    live = Live(two(), nodes=22)
    for replica in (0, 1):
        live.scale(f"web-{replica}-pc-a", 3)
    for replica in (0, 1):
        live.scale(f"web-{replica}-pc-a", 2, seconds=0.0)
    live.change(0, seconds=1200.0)
    assert len(live.pods()) == 20
    assert live.images("pc-a") == [NEW] * 4
    assert updated(live)


# On delete.


def on_delete(number: int = 1, replicas: int = 1) -> dict[str, Any]:
    manifest = workload(number, replicas=replicas)
    manifest["spec"]["updateStrategy"] = {"type": "OnDelete"}
    return manifest


@pytest.mark.parametrize(
    ("name", "roles", "replicas"), [("od1", (0,), 1), ("od4", (1,), 1), ("od7", (0, 1, 2), 2)]
)
def test_od1_od4_od7_nothing_is_deleted(name: str, roles: tuple[int, ...], replicas: int) -> None:
    live = Live(on_delete(replicas=replicas), nodes=10 * replicas)
    before = live.uids()
    live.change(*roles, seconds=300.0)
    assert live.uids() == before, name
    assert live.view.sets["web"].status.update_ended_s >= 0.0


def test_od2_a_pod_deleted_by_hand_comes_back_new() -> None:
    live = Live(on_delete(), nodes=10)
    live.change(0)
    live.kill(live.pods("pc-a")[0], cordon=False)
    assert live.images("pc-a") == [OLD, NEW]
    assert live.view.cliques["web-0-pc-a"].status.updated == 1


def test_od3_scaling_in_takes_the_outdated_pod() -> None:
    live = Live(on_delete(2), nodes=10)
    live.change(0)
    live.kill(live.pods("pc-a")[0], cordon=False)
    live.scale("web-0-pc-a", 1)
    assert live.images("pc-a") == [NEW]


def test_od5_a_group_member_deleted_by_hand_comes_back_new() -> None:
    live = Live(on_delete(), nodes=10)
    live.change(2)
    live.kill(live.pods("sg-x-0-pc-c")[0], cordon=False)
    assert live.images("pc-c") == [OLD] * 5 + [NEW]


def test_od6_one_of_each_kind() -> None:
    live = Live(on_delete(), nodes=10)
    live.change(0, 1, 2)
    for name in ("pc-a", "sg-x-0-pc-b", "sg-x-1-pc-c"):
        live.kill(live.pods(name)[0], cordon=False)
    assert live.images() == [OLD] * 7 + [NEW] * 3


def test_od8_a_bad_node_is_left_by_those_who_are_deleted_alone() -> None:
    live = Live(on_delete(2), nodes=11)
    bad = live.pods("pc-a")[0].node
    expression = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [bad]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    the_clique(live.manifests[0])["spec"]["podSpec"]["affinity"] = affinity
    live.apply()
    before = live.uids()
    lost = live.pods("pc-a")[0]
    live.kill(lost, cordon=False)
    assert live.uids() >= before - {lost.uid}
    assert bad not in {pod.node for pod in live.pods()}
    assert live.ready() == 10


def test_od9_switching_the_strategy_with_a_change_each_time() -> None:
    live = Live(on_delete(), nodes=10)
    before = live.uids()
    live.change(0, image="busybox:2", seconds=300.0)
    assert live.uids() == before
    live.manifests[0]["spec"]["updateStrategy"] = {"type": "RollingRecreate"}
    live.apply(300.0)
    assert live.uids() == before, "another strategy alone rolls nothing"
    live.change(0, image="busybox:3", seconds=300.0)
    assert live.images("pc-a") == ["busybox:3"] * 2
    before = live.uids()
    live.manifests[0]["spec"]["updateStrategy"] = {"type": "OnDelete"}
    live.change(0, image="busybox:4", seconds=300.0)
    assert live.uids() == before


def test_a_second_change_before_the_first_is_through() -> None:
    """Where upstream stuck: the second takes over, and nobody is left at the first."""
    for seconds in (0.0, 2.0, 5.0, 8.0):
        live = Live(two(), nodes=20)
        live.change(0, 1, seconds=seconds)
        live.change(0, 1, image="busybox:3", seconds=1200.0)
        assert live.images("pc-a") == ["busybox:3"] * 4
        assert live.images("pc-b") == ["busybox:3"] * 4
        assert updated(live)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 0), (3, 1)])
def test_a_change_and_another_size_at_once(before: int, after: int) -> None:
    """Both in one file, with no time for a controller in between."""
    live = Live(workload(1, replicas=before), nodes=30)
    live.manifests[0]["spec"]["replicas"] = after
    live.change(0, seconds=1200.0)
    assert {pod.replica for pod in live.pods()} == set(range(after))
    assert sorted(gang.replica for gang in live.view.gangs.values()) == list(range(after))
    assert live.images("pc-a") == [NEW] * 2 * after
    assert live.ready() == 10 * after


def test_deleting_a_set_takes_everything_with_it() -> None:
    live = Live(workload(1), nodes=10)
    live.server.delete(live.view.sets["web"], live.now_s)
    live.cluster.absorb(live.now_s)
    live.run()
    view = live.view
    assert [len(kind) for kind in (view.pods, view.cliques, view.groups, view.gangs)] == [0] * 4
    assert not any(view.attachments.values())
    live.loop.run()
    assert live.driver.next_s() == float("inf")


def test_the_node_that_is_freed_is_enough_for_an_update() -> None:
    """Delete first: an update of a full cluster goes through."""
    manifest = pod_clique_set([clique("a", 3, 1)])
    live = Live(manifest, nodes=3)
    live.change(0, seconds=300.0)
    assert live.images() == [NEW] * 3
    assert live.ready() == 3


def homes(live: Live) -> list[tuple[str, int, str]]:
    return sorted((pod.clique, pod.index, pod.node) for pod in live.pods())


@pytest.mark.parametrize("returns", ["true", "false"])
def test_pods_return_to_their_nodes_where_that_is_asked_for(returns: str) -> None:
    """Twice as many nodes as pods, and the first ones are free again after each step."""
    manifest = workload(1)
    manifest["metadata"]["annotations"] = {"windtunnel.dev/reuse-placement": returns}
    live = Live(manifest, nodes=20)
    for number in range(10):  # those that were taken first are closed, so that others are taken
        live.cluster.drain(f"n{number}", live.now_s)
    live.run()
    before = homes(live)
    live.add(10)
    live.change(0, 1, 2, seconds=600.0)
    assert live.images() == [NEW] * 10
    assert (sorted(home[2] for home in homes(live)) == sorted(home[2] for home in before)) == (
        returns == "true"
    )


def test_who_would_return_does_not_wait_for_ever() -> None:
    """A pod of the old placement that does not end is waited for during its grace, no longer."""
    manifest = workload(1)
    manifest["metadata"]["annotations"] = {"windtunnel.dev/reuse-placement": "true"}
    live = Live(manifest, nodes=11)
    lost = live.pods("pc-a")[0]
    live.cluster.holds = lambda pod: pod is lost
    live.kill(lost, seconds=25.0, cordon=False)
    assert live.why("web-0") == "the nodes that it had are held until its pods there end"
    live.run(30.0)
    assert live.ready() == 10
