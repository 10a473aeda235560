"""What the controllers remember is in the status of objects, and is read back from it."""

import json
from typing import Any

import pytest

from tests.gangs.manifests import clique, group, pod_clique_set
from tests.gangs.world import World
from windtunnel.gangs.api.status import clique_status, group_status, set_status, written


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


def read_back(world: World) -> None:
    """Every status is what JSON left of it."""
    for owner in world.view.sets.values():
        fresh = set_status(json.loads(json.dumps(written(owner.status), allow_nan=False)))
        assert fresh.same(owner.status)
        assert [one.number for one in fresh.revisions] == [
            one.number for one in owner.status.revisions
        ]
        assert [written(one) for one in fresh.revisions] == [
            written(one) for one in owner.status.revisions
        ]
        owner.status = fresh
    for one in world.view.groups.values():
        data = json.loads(json.dumps(written(one.status)))
        assert group_status(data).same(one.status)
        assert group_status(data).losses == one.status.losses
        one.status = group_status(data)
    for two in world.view.cliques.values():
        data = json.loads(json.dumps(written(two.status)))
        assert clique_status(data).same(two.status)
        two.status = clique_status(data)


@pytest.mark.parametrize("cut", range(0, 24, 3))
def test_a_controller_that_reads_its_memory_back_carries_on(cut: int) -> None:
    """In the middle of an update and of a termination, however far they have come."""
    world = World(40, manifest()).run()
    world.kill(world.pods("web-0-a")[0], world.pods("web-0-a")[1])
    world.apply(manifest(2))
    for _ in range(cut):
        world.round(5)
        world.crash()
        read_back(world)
    world.kill(*world.pods("web-1-g-0")[:1])
    world.run(70.0)
    read_back(world)
    world.crash()
    world.open()
    world.run(300.0)
    read_back(world)
    owner = world.view.sets["web"]
    assert owner.status.available == owner.status.updated == 2
    assert len(world.pods()) == world.running() == 12
    world.crash()
    assert world.controller.reconcile(world.now_s) == []
