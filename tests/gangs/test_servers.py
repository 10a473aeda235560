"""Pods become servers: what is decided of one, step by step."""

import pytest

from tests.gangs.manifests import clique, group, pod_clique_set
from tests.gangs.world import World
from windtunnel.gangs import servers
from windtunnel.gangs.objects import CLIQUE, GANG, GROUP, Node, Pod
from windtunnel.gangs.servers import PodUnit, PoolPods, ServerPods, slots_of
from windtunnel.twin.servers import replicas


def engines() -> tuple[World, ServerPods]:
    """A scaling group of two replicas, each of a leader and two workers."""
    roles = [clique("leader", 1), clique("worker", 2)]
    roles[0]["spec"]["podSpec"]["terminationGracePeriodSeconds"] = 60
    roles[1]["spec"]["podSpec"]["terminationGracePeriodSeconds"] = 60
    world = World(8, pod_clique_set(roles, [group("engine", ["leader", "worker"], 2)]))
    spec = world.view.sets["web"].spec
    pool = PoolPods("main", "web", GROUP, "engine", slots_of(spec, GROUP, "engine"))
    return world, ServerPods(world.view, [pool])


def move(unit: PodUnit, state: int) -> tuple[str, str]:
    found = unit.next_move(state)
    return ("", "") if found is None else (found.kind, found.why)


def test_states_are_those_of_replicas() -> None:
    names = ("PENDING", "STARTING", "READY", "DRAINING", "GONE")
    assert [getattr(servers, name) for name in names] == [getattr(replicas, name) for name in names]


def test_a_server_follows_its_pods() -> None:
    world, pods = engines()
    world.startable = lambda _: False
    world.run()
    assert list(pods.changed() or {}) == ["web-0-engine-0", "web-0-engine-1"]
    assert pods.changed() is None
    unit = pods.units["web-0-engine-0"]
    assert len(unit.pods) == 3
    assert move(unit, servers.NO_SERVER) == (servers.ASK, "")
    assert move(unit, servers.PENDING) == (servers.LOAD, "")
    assert move(unit, servers.STARTING) == ("", "")
    world.startable = lambda _: True
    world.run()
    assert move(unit, servers.STARTING) == (servers.SERVE, "")
    assert move(unit, servers.READY) == ("", "")
    assert move(unit, servers.GONE) == (servers.FORGET, "")


def leave(world: World, pod: Pod) -> None:
    world.server.delete_pod(pod, world.now_s)


@pytest.mark.parametrize(
    ("ending", "why"), [(1, servers.POD_MOVED), (3, servers.PODS_ENDING)], ids=["one", "all"]
)
def test_an_order_drains_a_server_until_the_grace_is_over(ending: int, why: str) -> None:
    world, pods = engines()
    world.run(5.0)
    pods.changed()
    unit = pods.units["web-0-engine-1"]
    for pod in list(unit.pods.values())[:ending]:
        leave(world, pod)
    assert list(pods.changed() or {}) == ["web-0-engine-1"]
    assert move(unit, servers.READY) == (servers.DRAIN, why)
    assert unit.over_s() == 65.0
    assert len(unit.released()) == ending


def test_a_pod_or_a_machine_that_fails_loses_the_server() -> None:
    world, pods = engines()
    world.run()
    pods.changed()
    unit = pods.units["web-0-engine-0"]
    pod = next(iter(unit.pods.values()))
    pod.ready, pod.erroneous = False, True
    world.server.wrote(pod)
    assert move(unit, servers.READY) == (servers.LOSE, servers.POD_DIED)
    pod.ready, pod.erroneous = True, False
    node: Node = world.view.nodes[pod.node]
    node.ready = False
    world.server.wrote(pod)
    pods.changed()
    world.server.wrote(node)
    assert list(pods.changed() or {}) == ["web-0-engine-0"], "only the unit on that machine"
    assert move(unit, servers.READY) == (servers.LOSE, servers.MACHINE_LOST)
    assert move(unit, servers.DRAINING) == (servers.LOSE, servers.MACHINE_LOST)


def test_pools_are_known_by_what_owns_their_pods() -> None:
    world, pods = engines()
    world.run()
    pods.changed()
    assert pods.pools_of(GANG, "web-0") == ["main"]
    assert pods.pools_of(CLIQUE, "web-0-engine-1-worker") == ["main"]
    assert pods.pools_of(CLIQUE, "web-0-other") == []
    world.scale("web-0-engine", 1)
    world.run()
    pods.changed()
    assert pods.pools_of(CLIQUE, "web-0-engine-1-worker") == []
    gone = pods.units["web-0-engine-1"]
    assert move(gone, servers.NO_SERVER) == (servers.DROP, "")
    pods.drop(gone)
    assert list(pods.units) == ["web-0-engine-0"]
