"""Sets that Grove's own operator has brought up are taken over, and no pod is restarted."""

import copy
from typing import Any

import pytest

from tests.gangs.kubernetes.groves import as_groves, groves_hash
from tests.gangs.kubernetes.stored import StoredWorld
from tests.gangs.manifests import clique, group, pod_clique_set, workload
from windtunnel.gangs.kubernetes.calls import ApiCall
from windtunnel.gangs.kubernetes.reading import set_of
from windtunnel.gangs.kubernetes.takeover import FINALIZERS, release, take_over
from windtunnel.gangs.objects import CLIQUE, GROUP, POD, SET
from windtunnel.gangs.pod_manifest import TEMPLATE_HASH


def of_grove(manifest: dict[str, Any], nodes: int = 40) -> StoredWorld:
    """A cluster that Grove's operator has brought up, and that nobody looks after now."""
    world = StoredWorld(nodes, manifest)
    world.run(1.0)
    objects = world.stored.objects
    for key, one in objects.items():
        objects[key] = as_groves(key[0], one)
    return world


def calls_for(world: StoredWorld) -> list[ApiCall]:
    raw = world.stored.raw(SET, "web")
    assert raw is not None
    cliques = [world.stored.raw(*key) for key in world.stored.objects if key[0] == CLIQUE]
    spec = set_of(raw, None, new=False, pods_checked=True)
    made = take_over(raw, spec, [one for one in cliques if one is not None])
    groups = [world.stored.raw(*key) for key in world.stored.objects if key[0] == GROUP]
    return [*made, *(call for one in groups if one and (call := release(GROUP, one)))]


def taken_over(world: StoredWorld, most: int | None = None) -> None:
    versions: dict[tuple[str, str, str], str] = {}
    for call in calls_for(world)[:most]:
        key = (call.kind, call.name, call.version)
        guarded = call._replace(version=versions.get(key, call.version))
        assert world.stored._carry_out(guarded, world.now_s)
        written = world.stored.objects[call.kind, call.name]["metadata"]
        versions[key] = written["resourceVersion"]
    if most is None:
        world.crash()


def uids(world: StoredWorld) -> dict[str, str]:
    pods = (one for key, one in world.stored.objects.items() if key[0] == POD)
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in pods}


MANIFESTS = [
    pytest.param(workload(1), id="all guaranteed"),
    pytest.param(workload(4, replicas=2), id="in order, elastic"),
    pytest.param(workload(6), id="explicit order"),
    pytest.param(
        pod_clique_set(
            [clique("a", 2, autoScalingConfig={"maxReplicas": 3})],
            strategy={"type": "OnDelete"},
        ),
        id="with an autoscaler, on delete",
    ),
]


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_nothing_is_created_deleted_or_restarted(manifest: dict[str, Any]) -> None:
    world = of_grove(manifest)
    objects = world.stored.objects
    before = {key: one["metadata"]["uid"] for key, one in objects.items()}
    hashes = {key: one["metadata"].get("labels", {}).get(TEMPLATE_HASH)
              for key, one in objects.items()}  # fmt: skip
    taken_over(world)
    world.run(600.0)
    assert {key: one["metadata"]["uid"] for key, one in objects.items()} == before
    assert hashes == {key: one["metadata"].get("labels", {}).get(TEMPLATE_HASH)
                      for key, one in objects.items()}  # fmt: skip
    owner = world.view.sets["web"]
    assert "NamesTaken" not in owner.conditions
    assert owner.status.available == owner.status.updated == owner.replicas
    assert not owner.status.updating
    status = objects[SET, "web"]["status"]
    assert status["currentGenerationHash"].startswith("grove-")
    cliques = [one for key, one in objects.items() if key[0] == CLIQUE]
    now = {one["status"]["currentPodCliqueSetGenerationHash"] for one in cliques}
    assert now == {status["currentGenerationHash"]}
    left = [key for key, one in objects.items() if one["metadata"].get("finalizers")]
    assert left == []


def test_it_can_be_killed_after_any_call() -> None:
    for number in range(20):
        world = of_grove(workload(4))
        before = uids(world)
        total = len(calls_for(world))
        taken_over(world, number)
        taken_over(world)
        world.run(600.0)
        assert uids(world) == before
        assert world.view.sets["web"].status.updated == 1
        if number >= total:
            return
    raise AssertionError("there are more calls than that")


def test_a_later_change_replaces_the_pods_of_its_role_alone() -> None:
    world = of_grove(workload(2))
    taken_over(world)
    world.run(1.0)
    before = uids(world)
    changed = workload(2)
    changed["spec"]["template"]["cliques"][0]["labels"] = {"version": "2"}
    world.apply(changed)
    world.run(600.0)
    replaced = {name for name in before if name not in uids(world)}
    assert {name.rpartition("-")[0] for name in replaced} == {"web-0-pc-a"}
    assert len(replaced) == 2
    assert world.view.sets["web"].status.updated == 1
    # Back to what Grove had: the hash is Grove's again.
    world.apply(workload(2))
    world.run(600.0)
    role = world.view.sets["web"].spec.roles["pc-a"]
    assert role.hash.startswith("grove-")
    assert world.view.cliques["web-0-pc-a"].template.hash == role.hash


@pytest.mark.parametrize("which", [0, 1])
def test_what_was_changed_while_nobody_looked_is_rolled_out(which: int) -> None:
    """The templates that did not change keep Grove's hash, and their pods run on."""
    world = of_grove(workload(2))
    before = uids(world)
    changed = workload(2)
    changed["spec"]["template"]["cliques"][which]["labels"] = {"version": "2"}
    stored = world.stored.objects[SET, "web"]
    stored["spec"] = copy.deepcopy(changed["spec"])
    stored["metadata"]["generation"] += 1
    taken_over(world)
    world.run(600.0)
    replaced = {name for name in before if name not in uids(world)}
    roles = {"web-0-pc-a"} if which == 0 else {
        f"web-0-sg-x-{replica}-{role}" for replica in (0, 1) for role in ("pc-b", "pc-c")
    }  # fmt: skip
    assert {name.rpartition("-")[0] for name in replaced} == roles
    status = world.view.sets["web"].status
    assert (status.updated, status.updating) == (1, False)


def test_an_update_that_grove_had_begun_is_ended() -> None:
    world = of_grove(pod_clique_set([clique("a", 3)]))
    old = sorted(key for key in world.stored.objects if key[0] == POD)[0]
    world.stored.objects[old]["metadata"]["labels"][TEMPLATE_HASH] = groves_hash("before")
    status = world.stored.objects[SET, "web"]["status"]
    status["updateProgress"] = {"updateStartedAt": "2026-11-16T10:00:00Z"}
    before = uids(world)
    taken_over(world)
    world.run(600.0)
    replaced = {name for name in before if name not in uids(world)}
    assert replaced == {old[1]}
    assert not world.view.sets["web"].status.updating


def test_a_set_with_nothing_below_it_is_made_anew() -> None:
    world = of_grove(pod_clique_set([clique("a", 2)], [group("g", ["a"])]))
    for key in [key for key in world.stored.objects if key[0] != SET]:
        del world.stored.objects[key]
    taken_over(world)
    world.run(600.0)
    assert world.running() == 2
    assert world.stored.objects[SET, "web"]["metadata"]["finalizers"] == []
    assert FINALIZERS[SET]
