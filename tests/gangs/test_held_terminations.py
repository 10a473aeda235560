"""While a good part of all nodes is not ready, no gang is terminated."""

from typing import Any

import pytest

from tests.gangs.manifests import clique, group, pod_clique_set
from tests.gangs.world import World
from windtunnel.core.vocabulary import GROUP_REPLICA_DELETED, SET_REPLICA_DELETED
from windtunnel.gangs.controllers.termination import NodeCount
from windtunnel.gangs.objects import Node
from windtunnel.gangs.templates import Portion, SetSpec

DELAY_S = 60.0
HELD = "TerminationHeld"


class Outage(World):
    """Nodes of one pod each, which stop to be ready and take their pods' readiness with them."""

    def fail(self, *names: str) -> None:
        for name in names:
            node = self.view.nodes[name]
            node.ready = False
            self.view.changed(node)
            for pod in self.pods():
                if pod.node == name:
                    pod.ready = False
                    self.view.changed(pod)
        self.startable = lambda pod: self.view.nodes[pod.node].ready

    def recover(self, *names: str) -> None:
        for name in names:
            self.view.nodes[name].ready = True
            self.view.changed(self.view.nodes[name])

    def held(self, name: str = "web") -> str:
        found = self.view.sets[name].conditions.get(HELD)
        return "" if found is None else found.status

    def terminations(self) -> int:
        return len(self.events(SET_REPLICA_DELETED)) + len(self.events(GROUP_REPLICA_DELETED))


def outage(pods: int, nodes: int, **template: Any) -> Outage:
    manifest = pod_clique_set([clique("a", pods)], terminationDelay=f"{DELAY_S:g}s", **template)
    return Outage(nodes, manifest).run()


def of(world: Outage, count: int) -> list[str]:
    return [pod.node for pod in world.pods()[:count]]


@pytest.mark.parametrize(
    ("limit", "nodes", "down", "holds"),
    [
        (None, 6, 3, True),
        (None, 7, 3, False),
        (None, 7, 4, True),
        (None, 4, 2, False),
        (None, 3, 3, True),
        ("100%", 6, 5, False),
        ("100%", 6, 6, True),
        (1, 9, 1, True),
        (0, 6, 6, False),
        ("0%", 6, 6, False),
    ],
)
def test_how_many_nodes_hold_terminations_back(
    limit: int | str | None, nodes: int, down: int, holds: bool
) -> None:
    template = {} if limit is None else {"holdAtNodesNotReady": limit}
    world = outage(nodes, nodes, **template)
    world.fail(*of(world, down))
    world.run(DELAY_S * 2)
    assert (world.terminations() == 0, world.held() == "True") == (holds, holds)


def test_held_terminations_are_said_once_and_each_delay_starts_over_afterwards() -> None:
    world = outage(4, 8)
    lost = of(world, 4)
    world.fail(*lost)
    world.run(DELAY_S * 100)
    assert world.terminations() == 0
    assert world.held() == "True"
    (told,) = world.events(HELD)
    assert told.message == "4 of 8 nodes are not ready: no gang is terminated"
    world.recover(lost[0])  # three of eight: fewer than half
    world.startable = lambda pod: False
    world.run(DELAY_S - 1.0)
    assert (world.terminations(), world.held()) == (0, "False")
    world.run(1.0)
    assert world.terminations() == 1
    world.startable = lambda pod: world.view.nodes[pod.node].ready
    world.run(DELAY_S * 10)
    assert (world.terminations(), world.held(), world.running()) == (1, "", 4)


def test_what_is_whole_again_after_an_outage_is_not_terminated() -> None:
    world = outage(4, 4)
    lost = of(world, 4)
    before = world.uids()
    world.fail(*lost)
    world.run(DELAY_S * 2)
    world.recover(*lost)
    world.run(DELAY_S * 100)
    assert world.uids() == before
    assert (world.terminations(), world.held()) == (0, "")


def test_a_replica_of_a_group_is_held_too() -> None:
    groups = [group("g", ["a"], 4, 1)]
    manifest = pod_clique_set([clique("a", 2)], groups, terminationDelay=f"{DELAY_S:g}s")
    world = Outage(8, manifest).run()
    assert isinstance(world, Outage)
    bound = {pod.clique: pod.node for pod in world.pods()}
    world.fail(*bound.values())  # one of two pods of each replica, so four nodes of eight
    world.run(DELAY_S * 3)
    assert (world.terminations(), world.held()) == (0, "True")
    first, *others = bound.values()
    world.recover(*others)
    world.run(DELAY_S - 1.0)
    assert world.terminations() == 0
    world.run(1.0)
    assert [event.name for event in world.events(GROUP_REPLICA_DELETED)] == ["web-0-g"]
    assert first in [name for name, node in world.view.nodes.items() if not node.ready]


def test_a_controller_that_starts_anew_keeps_to_it() -> None:
    world = outage(4, 8)
    lost = of(world, 4)
    world.fail(*lost)
    world.run(DELAY_S / 2)
    world.crash()
    world.run(DELAY_S * 2)
    assert (world.terminations(), world.held()) == (0, "True")
    world.crash()
    world.recover(lost[0])  # while there is no controller
    world.startable = lambda pod: False
    world.run(DELAY_S / 2)
    world.crash()
    world.run(DELAY_S / 2 - 1.0)
    assert (world.terminations(), world.held()) == (0, "False")
    world.run(1.0)
    assert world.terminations() == 1


def test_cordoned_nodes_do_not_count() -> None:
    count, spec = NodeCount(), SetSpec(1, ())
    nodes = [Node(str(number), {}, {}) for number in range(6)]
    for node in nodes:
        assert count.follow(node.name, node)
        assert not count.follow(node.name, node)
    for node in nodes[:3]:
        node.ready = False
        count.follow(node.name, node)
    assert (count.down, count.total, count.hold(spec)) == (3, 6, True)
    nodes[0].cordoned = True
    count.follow("0", nodes[0])
    assert (count.down, count.total, count.hold(spec)) == (2, 5, False)
    count.follow("1", None)
    assert (count.down, count.total) == (1, 4)
    assert count.hold(SetSpec(1, (), hold_at=Portion(1)))
