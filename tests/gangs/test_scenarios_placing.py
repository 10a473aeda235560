"""The reference scenarios GS and SO: what is placed when, and what starts after what.

Every node takes one pod, so the number of open nodes is the room there is.
"""

import pytest

from tests.gangs.manifests import workload
from tests.gangs.world import World


def test_gs1_all_ten_or_none() -> None:
    world = World(10, workload(1))
    world.cordon_all_but(9)
    world.run()
    assert (world.pending(), world.running()) == (10, 0)
    world.open()
    world.run()
    assert (world.pending(), world.running()) == (0, 10)
    assert len({pod.node for pod in world.pods()}) == 10


def test_gs2_a_scaled_out_group_waits_for_room_of_its_own() -> None:
    world = World(14, workload(1))
    world.cordon_all_but(9)
    assert world.run().pending() == 10
    world.open(1)
    assert world.run().running() == 10
    world.scale("web-0-sg-x", 3)
    world.run()
    assert (world.running(), world.pending()) == (10, 4)
    world.open()
    assert world.run().running() == 14
    assert list(world.view.gangs) == ["web-0", "web-0-sg-x-0"]


def test_gs3_a_second_set_replica_is_a_gang_of_its_own() -> None:
    world = World(20, workload(1))
    world.cordon_all_but(9)
    world.run()
    world.open(1)
    assert world.run().running() == 10
    world.scale("web", 2)
    assert world.run().pending() == 10
    world.open()
    assert world.run().running() == 20


def test_gs4_sets_and_groups_scaled_in_turn() -> None:
    world = World(28, workload(1))
    world.cordon_all_but(9)
    assert world.run().pending() == 10
    world.open(1)
    assert world.run().running() == 10
    world.scale("web-0-sg-x", 3)
    assert world.run().pending() == 4
    world.open(4)
    assert world.run().running() == 14
    world.scale("web", 2)
    assert world.run().pending() == 10
    world.scale("web-1-sg-x", 3)
    assert world.run().pending() == 14
    world.open()
    assert world.run().running() == 28


def test_gs5_exactly_the_minimum_is_placed() -> None:
    world = World(10, workload(2))
    world.cordon_all_but(2)
    world.run()
    assert (world.pending(), world.running()) == (10, 0)
    world.open(1)
    world.run()
    placed = sorted(pod.clique for pod in world.pods() if pod.node)
    assert placed == ["web-0-pc-a", "web-0-sg-x-0-pc-b", "web-0-sg-x-0-pc-c"]
    world.open()
    assert world.run().running() == 10


def test_gs6_a_new_group_replica_lands_by_its_minimum() -> None:
    world = World(14, workload(2))
    world.cordon_all_but(10)
    assert world.run().running() == 10
    world.scale("web-0-sg-x", 3)
    assert world.run().pending() == 4
    world.open(2)
    assert world.run().running() == 12
    placed = sorted(pod.clique for pod in world.pods("sg-x-2") if pod.node)
    assert placed == ["web-0-sg-x-2-pc-b", "web-0-sg-x-2-pc-c"]
    world.open(2)
    assert world.run().running() == 14


def test_gs7_base_minimum_then_scaled_minimum_then_the_rest() -> None:
    world = World(14, workload(2))
    world.cordon_all_but(2)
    world.run()
    seen = []
    for more in (1, 2, 5):
        world.open(more)
        seen.append(world.run().running())
    assert seen == [3, 5, 10]
    world.scale("web-0-sg-x", 3)
    assert world.run().pending() == 4
    for more, running in ((2, 12), (2, 14)):
        world.open(more)
        assert world.run().running() == running


def test_gs8_scaled_while_everything_waits() -> None:
    world = World(14, workload(2))
    world.cordon_all_but(2)
    world.run()
    world.scale("web-0-sg-x", 3)
    assert world.run().pending() == 14
    for more, running in ((1, 3), (4, 7), (7, 14)):
        world.open(more)
        assert world.run().running() == running


def test_gs10_both_base_minima_come_first() -> None:
    world = World(20, workload(2))
    world.cordon_all_but(2)
    world.run()
    world.scale("web", 2)
    assert world.run().pending() == 20
    world.open(4)
    assert world.run().running() == 6
    assert all(not pod.node for pod in world.pods("sg-x-1"))
    world.open(4)
    assert world.run().running() == 10
    assert sum(1 for pod in world.pods("sg-x-1") if pod.node) == 4
    world.open()
    assert world.run().running() == 20


def test_gs11_every_stage_lands_its_minimum_first() -> None:
    world = World(28, workload(2))
    world.cordon_all_but(3)
    assert world.run().running() == 3
    world.open(7)
    assert world.run().running() == 10
    world.scale("web-0-sg-x", 3)
    world.run()
    for more, running in ((2, 12), (2, 14)):
        world.open(more)
        assert world.run().running() == running
    world.scale("web", 2)
    world.run()
    for more, running in ((3, 17), (7, 24)):
        world.open(more)
        assert world.run().running() == running
    world.scale("web-1-sg-x", 3)
    world.run()
    for more, running in ((2, 26), (2, 28)):
        world.open(more)
        assert world.run().running() == running


def ready_ranks(world: World, role: str, group_replica: int = -2) -> list[int]:
    order = world.ready_order
    return [
        rank
        for rank, pod in enumerate(order)
        if pod.template.name == role and group_replica in (-2, pod.group_replica)
    ]


def test_so1_in_order_with_everything_guaranteed() -> None:
    world = World(10, workload(3)).run()
    a, b, c = (ready_ranks(world, role) for role in ("pc-a", "pc-b", "pc-c"))
    assert (len(a), len(b), len(c)) == (2, 2, 6)
    assert max(a) < min(b)
    assert max(b) < min(c)


def test_so2_in_order_by_the_minimum_and_each_scaled_replica_by_itself() -> None:
    world = World(10, workload(4))
    slow = {"web-0-sg-x-0-pc-b"}
    world.startable = lambda pod: (
        pod.clique not in slow and (pod.clique != "web-0-pc-a" or pod.index == 0)
    )
    world.run()
    # One of two pc-a is enough for pc-b; sg-x-1 does not wait for what sg-x-0 lacks.
    assert world.running("pc-a") == 1
    assert world.running("sg-x-1-pc-c") == 3
    assert world.running("sg-x-0") == 0
    assert min(ready_ranks(world, "pc-b", 1)) < min(ready_ranks(world, "pc-c", 1))
    world.startable = lambda _: True
    assert world.run().running() == 10
    assert max(ready_ranks(world, "pc-b", 0)) < min(ready_ranks(world, "pc-c", 0))


def test_so3_in_the_order_that_is_written() -> None:
    world = World(10, workload(5)).run()
    a, b, c = (ready_ranks(world, role) for role in ("pc-a", "pc-b", "pc-c"))
    assert max(a) < min(c)
    assert max(c) < min(b)


def test_a_replacement_waits_for_its_parents_and_parents_stop_nobody() -> None:
    world = World(10, workload(3)).run()
    world.startable = lambda pod: pod.template.name != "pc-a"
    world.kill(world.pods("pc-a")[0], shut=False)
    world.run()
    assert (world.running("pc-a"), world.running("pc-c")) == (1, 6)
    world.kill(world.pods("sg-x-0-pc-b")[0], shut=False)
    world.run()
    assert [(pod.node != "", pod.ready) for pod in world.pods("sg-x-0-pc-b")] == [(True, False)]
    world.startable = lambda _: True
    assert world.run().running() == 10


@pytest.mark.parametrize("number", [3, 4, 5, 6])
def test_a_slow_ordered_start_breaches_nothing(number: int) -> None:
    world = World(10, workload(number))
    world.startable = lambda pod: pod.template.name == "pc-x"
    world.run(5 * 3600.0)
    assert all(
        clique.conditions["MinAvailableBreached"].status == "False"
        for clique in world.view.cliques.values()
    )
    assert world.events("PodCliqueSetReplicaDeleteSuccessful") == []
