"""Objects and answers that are not as they should be do not end the operator."""

import asyncio
from unittest.mock import AsyncMock

from tests.gangs.manifests import binding, clique, pod_clique_set
from tests.live.operate.test_operator_log import SPEC
from windtunnel.gangs.objects import GANG, POD, SET
from windtunnel.gangs.placement.placer import Binding
from windtunnel.live.kubernetes.errors import error_of
from windtunnel.live.kubernetes.resources import Meta, OwnerReference
from windtunnel.live.operate.mirror import TOPOLOGY, Mirror
from windtunnel.live.operate.placement import Placement
from windtunnel.live.operate.received import Received


def mirror() -> Mirror:
    return Mirror(AsyncMock(), lambda: 0.0, placing=True)


def test_an_object_without_the_shape_of_its_kind_is_left_as_it_was() -> None:
    mirrored = mirror()
    meta = Meta(name="g", namespace="default", uid="1", resource_version="5")
    good = {"podgroups": [{"name": "a", "minReplicas": 1, "podReferences": []}]}
    mirrored.take(GANG, "g", Received(metadata=meta, spec=good))
    bad = {"podgroups": [{"minReplicas": 1}]}
    mirrored.take(GANG, "g", Received(metadata=meta, spec=bad))
    assert len(mirrored.view.gangs["g"].groups) == 1
    assert "name" in mirrored.objects[GANG].unreadable["default", "g"]
    assert not mirrored.invalid
    levels = {"levels": [{"domain": "rack"}, 7, {"domain": "zone", "key": "z"}]}
    mirrored.take(TOPOLOGY, "t", Received(metadata=Meta(name="t"), spec=levels))
    assert mirrored.view.levels["t"] == {"zone": "z"}


def test_a_binding_that_is_refused_for_a_moment_is_tried_again() -> None:
    mirrored, client = mirror(), AsyncMock()
    pod = Received(metadata=Meta(name="p", namespace="default", uid="1"), spec=SPEC)
    mirrored.objects[POD].cache.replace([pod], "1")
    client.bind.side_effect = [error_of("POST", 503, b""), None]
    client.find.return_value = pod
    placement = Placement(mirrored, client, lambda: 0.0)
    assert asyncio.run(placement._bind_twice(client, Binding("gang", "group", "p", "node")))


def test_a_pod_that_cannot_be_read_takes_all_room_of_its_node() -> None:
    """One of another program with a quantity that is no number, and a malformed one of ours."""
    mirrored = mirror()
    placement = Placement(mirrored, AsyncMock(), lambda: 0.0)
    requests = {"requests": {"cpu": "many"}}
    foreign = {"nodeName": "n", "containers": [{"name": "c", "resources": requests}]}
    clique = OwnerReference(kind="PodClique", name="c", uid="2", controller=True)
    ours = {"nodeName": "n", "containers": "none"}
    for uid, spec, owners in (("1", foreign, []), ("3", ours, [clique])):
        labels = {"app.kubernetes.io/managed-by": "grove-operator"}
        meta = Meta(name=f"p{uid}", namespace="default", uid=uid, labels=labels,
                    owner_references=owners)  # fmt: skip
        mirrored.objects[POD].cache.show(Received(metadata=meta, spec=spec))
    room = placement._scheduler
    assert not room._space.by_name["n"].usable
    assert room._unknown["n"] == {"1": None, "3": None}


def test_a_pod_of_another_namespace_or_without_our_label_takes_room_and_is_not_ours() -> None:
    mirrored = Mirror(AsyncMock(), lambda: 0.0, "mine", placing=True)
    clique = OwnerReference(kind="PodClique", name="c", uid="2", controller=True)
    ours = {"app.kubernetes.io/managed-by": "grove-operator"}
    for space, name, labels in (("mine", "p", ours), ("mine", "q", {}), ("theirs", "p", ours)):
        meta = Meta(name=name, namespace=space, uid=f"{space}-{name}", labels=labels,
                    owner_references=[clique])  # fmt: skip
        mirrored.objects[POD].cache.show(Received(metadata=meta, spec=SPEC))
    assert list(mirrored.view.pods) == ["mine/p"]
    assert mirrored.raw(POD, "theirs/p") is not None
    assert mirrored.raw(POD, "mine/q") is not None


def test_a_pod_that_goes_before_its_binding_was_seen() -> None:
    """The watch broke after the binding; the next list is without the pod."""
    mirrored = mirror()
    placement = Placement(mirrored, AsyncMock(), lambda: 0.0)
    clique = OwnerReference(kind="PodClique", name="c", uid="2", controller=True)
    labels = {"app.kubernetes.io/managed-by": "grove-operator"}
    meta = Meta(name="p", namespace="default", uid="1", labels=labels, owner_references=[clique])
    cache = mirrored.objects[POD].cache
    cache.replace([Received(metadata=meta, spec=SPEC)], "1")
    placement._scheduler.bound(Binding("gang", "group", "p", "n1"), 0.0)
    assert mirrored.view.pods["p"].node == "n1"
    cache.replace([], "2")
    assert not mirrored.view.pods


def test_a_set_that_lacked_its_topology_is_read_when_that_comes() -> None:
    mirrored = mirror()
    for name in ("other", "cluster"):
        manifest = pod_clique_set([clique("a", 2)])
        pack = {"topologyName": name, "pack": {"required": "rack"}}
        manifest["spec"]["template"]["topologyConstraint"] = pack
        meta = Meta(name=f"of-{name}", namespace="default", uid=name, generation=1)
        levels = binding(name)["spec"]
        if name == "other":  # without any topology, sets are not checked against them
            mirrored.take(TOPOLOGY, name, Received(metadata=Meta(name=name), spec=levels))
        mirrored.take(SET, f"of-{name}", Received(metadata=meta, spec=manifest["spec"]))
    assert list(mirrored.view.sets) == ["of-other"]
    assert "cluster" in mirrored.invalid["of-cluster"].says
    mirrored.take(TOPOLOGY, "cluster", Received(metadata=Meta(name="cluster"), spec=levels))
    assert list(mirrored.view.sets) == ["of-other", "of-cluster"]
    assert not mirrored.invalid
