"""What the controllers remember is in the status of objects, and is read back from it."""

from typing import Any

import pytest

from tests.gangs.manifests import clique, group, pod_clique_set
from tests.gangs.world import World


def manifest(version: int = 0) -> dict[str, Any]:
    roles = [clique("a", 2, 1), clique("b", 2, 2)]
    roles[0]["spec"]["autoScalingConfig"] = {"minReplicas": 1, "maxReplicas": 4}
    if version:
        roles[0]["labels"] = {"version": str(version)}
        roles[1]["labels"] = {"version": str(version)}
    return pod_clique_set(
        roles,
        [group("g", ["b"], 2, 1)],
        2,
        strategy={"type": "Coherent", "rollingUpdate": {"maxSurge": 1}},
        terminationDelay="60s",
    )


def check_statuses(world: World) -> None:
    """Every status is what JSON left of it, and nothing is lost by that."""
    kinds = (world.view.sets, world.view.groups, world.view.cliques)
    before = [one.status for known in kinds for one in known.values()]
    world.server.read_statuses_back()
    after = [one.status for known in kinds for one in known.values()]
    assert after == before
    assert not any(new is old for new, old in zip(after, before, strict=True))


@pytest.mark.parametrize("cut", range(0, 24, 3))
def test_a_controller_that_reads_its_memory_back_carries_on(cut: int) -> None:
    """In the middle of an update and of a termination, however far they have come."""
    world = World(40, manifest()).run()
    world.kill(world.pods("web-0-a")[0], world.pods("web-0-a")[1])
    world.apply(manifest(2))
    for _ in range(cut):
        world.round(5)
        world.crash()
        check_statuses(world)
    world.kill(*world.pods("web-1-g-0")[:1])
    world.run(70.0)
    check_statuses(world)
    world.crash()
    world.open()
    world.run(300.0)
    check_statuses(world)
    owner = world.view.sets["web"]
    assert owner.status.available == owner.status.updated == 2
    assert len(world.pods()) == world.running() == 12
    world.crash()
    assert world.controller.reconcile(world.now_s) == []
