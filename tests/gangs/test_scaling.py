"""The scale subresource: who may be scaled how far, and scaling to zero and back."""

import pytest

from tests.gangs.manifests import the_clique, workload
from tests.gangs.world import World
from windtunnel.core.errors import InputError
from windtunnel.core.vocabulary import SET_REPLICA_DELETED
from windtunnel.gangs.commands import Scale
from windtunnel.gangs.objects import CLIQUE, GROUP, SET
from windtunnel.gangs.scaling import scale


def test_what_can_be_scaled() -> None:
    manifest = workload(2)
    the_clique(manifest)["spec"]["autoScalingConfig"] = {"minReplicas": 1, "maxReplicas": 4}
    world = World(10, manifest).run()
    for kind, name, minimum in [
        (SET, "web", 0),
        (GROUP, "web-0-sg-x", 1),
        (CLIQUE, "web-0-pc-a", 1),
    ]:
        assert scale(world.view, kind, name, minimum).replicas == minimum
    autoscaler = world.view.attachments["HorizontalPodAutoscaler"]["web-0-pc-a"]
    assert autoscaler.key in world.view.sets["web"].parts[0].attachments
    spec = autoscaler.body["spec"]
    assert isinstance(spec, dict)
    assert spec["scaleTargetRef"]["name"] == "web-0-pc-a"
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 4)


@pytest.mark.parametrize(
    ("kind", "name", "replicas", "sentence"),
    [
        (GROUP, "web-0-sg-x", 1, "would never be a whole gang; allowed: 0, or 2 and more"),
        (CLIQUE, "web-0-pc-a", 1, "would never be a whole gang; allowed: 0, or 2 and more"),
        (CLIQUE, "web-0-sg-x-0-pc-b", 2, "scaled with its scaling group (scale web-0-sg-x)"),
        (CLIQUE, "web-0-pc-b", 2, "there is no clique 'web-0-pc-b' (did you mean"),
        (GROUP, "web-0-sg-y", 2, "there is no scaling group 'web-0-sg-y' (did you mean"),
        (SET, "wep", 2, "there is no set 'wep'"),
        (SET, "web", -1, "web cannot have -1 replicas; allowed: 0 or more"),
    ],
)
def test_what_cannot_be_scaled_so(kind: str, name: str, replicas: int, sentence: str) -> None:
    world = World(10, workload(1)).run()
    with pytest.raises(InputError) as caught:
        scale(world.view, kind, name, replicas)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name", "left"),
    [(SET, "web", 0), (GROUP, "web-0-sg-x", 2), (CLIQUE, "web-0-pc-a", 8)],
)
@pytest.mark.parametrize("number", [1, 2])
def test_to_zero_and_back(kind: str, name: str, left: int, number: int) -> None:
    world = World(10, workload(number)).run()
    world.server.apply(scale(world.view, kind, name, 0), world.now_s)
    world.run(100_000.0)
    assert (len(world.pods()), world.running()) == (left, left)
    assert world.view.events == {}
    if left:
        assert world.condition(name) == ("False", "ScaledToZero")
        assert world.view.sets["web"].status.available == 1
        # What sleeps asks for nothing: the rest can be placed anew without it.
        world.kill(*world.pods(), shut=False)
        assert world.run().running() == left
    world.server.apply(scale(world.view, kind, name, 1 if kind == SET else 2), world.now_s)
    assert world.run().running() == 10
    assert world.view.sets["web"].status.available == 1


def test_what_is_scaled_is_not_put_back() -> None:
    world = World(12, workload(2)).run()
    world.scale("web-0-pc-a", 4)
    world.run()
    world.crash()
    assert world.run().running("pc-a") == 4
    manifest = workload(2, terminationDelay="1h")
    the_clique(manifest)["spec"]["replicas"] = 3
    world.apply(manifest)
    assert world.run().running("pc-a") == 4


def test_scaling_a_group_takes_the_highest_replicas_and_their_gangs() -> None:
    world = World(18, workload(2)).run()
    world.scale("web-0-sg-x", 4)
    world.run()
    assert list(world.view.gangs) == ["web-0", "web-0-sg-x-0", "web-0-sg-x-1", "web-0-sg-x-2"]
    kept = world.uids("sg-x-0") | world.uids("sg-x-1")
    world.scale("web-0-sg-x", 2)
    world.run()
    assert kept == world.uids("sg-x-0") | world.uids("sg-x-1")
    assert list(world.view.gangs) == ["web-0", "web-0-sg-x-0"]


def test_scaling_a_set_in_takes_everything_of_the_replica_also_its_service() -> None:
    world = World(20, workload(1, replicas=2)).run()
    assert sorted(world.view.attachments["Service"]) == ["web-0", "web-1"]
    world.scale("web", 1)
    world.run()
    assert list(world.view.attachments["Service"]) == ["web-0"]
    assert list(world.view.gangs) == ["web-0"]
    assert all(clique.replica == 0 for clique in world.view.cliques.values())
    assert world.running() == 10


@pytest.mark.parametrize(("kind", "name"), [(CLIQUE, "web-0-pc-a"), (GROUP, "web-0-sg-x")])
@pytest.mark.parametrize("before", [0, 2])
def test_below_its_minimum_a_gang_waits(kind: str, name: str, before: int) -> None:
    """Past what refuses such a scale: half of a gang neither runs on nor starts."""
    world = World(10, workload(1, terminationDelay="1m")).run()
    world.scale(name, before)
    world.run(100_000.0)
    world.server.apply(Scale(kind, name, 1), world.now_s)
    world.run(1.0)
    breached = "True" if before else "False"
    assert world.condition(name) == (breached, "ReplicasBelowMinAvailable")
    thing = world.view.find(kind, name)
    assert thing is not None
    says = thing.conditions["MinAvailableBreached"].message
    assert says == "Scaled to 1, which is not a whole gang: it waits until it is 0, or 2 and more"
    assert world.view.sets["web"].status.available == 0
    world.run(100_000.0)
    # It was terminated once where it ran; its pods are held: there is no whole gang to place.
    assert world.told(SET_REPLICA_DELETED) == (1 if before else 0)
    assert world.running() == (0 if before else 2 if name == "web-0-sg-x" else 8)
    assert all(pod.gates for pod in world.pods() if not pod.node)
    world.scale(name, 2)
    assert world.run().running() == 10
    assert world.condition(name)[0] == "False"
    assert world.view.sets["web"].status.available == 1
