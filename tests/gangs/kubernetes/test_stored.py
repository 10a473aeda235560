"""What controllers do through JSON is what they do on the simulated API server."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gangs.kubernetes.stored import StoredWorld, merged, received
from tests.gangs.manifests import workload
from tests.gangs.test_stateful import DELAY_S, NODES, manifests
from tests.gangs.world import World
from windtunnel.core.errors import InputError
from windtunnel.core.kubernetes import NEVER, seconds_of, stamp
from windtunnel.core.random import Streams
from windtunnel.gangs.kubernetes.calls import merge_patch, pod_suffix
from windtunnel.gangs.kubernetes.reading import read
from windtunnel.gangs.objects import SET, Node
from windtunnel.gangs.statuses import SetStatus, Status
from windtunnel.gangs.view import View


def seen(status: Status) -> Status:
    """A status, whatever its generation: a real one counts what is scaled, too."""
    if isinstance(status, SetStatus):
        return msgspec.structs.replace(status, observed_generation=0)
    return status


def state(world: World) -> dict[str, Any]:
    """Everything of a cluster but the names of pods, uids and versions."""
    view = world.view
    names = {pod.name: f"{pod.clique}/{pod.index}" for pod in view.pods.values()}
    return {
        "pods": sorted(
            (
                pod.clique,
                pod.index,
                pod.node != "",
                pod.ready,
                pod.gates,
                pod.template_hash,
                pod.phase,
            )
            for pod in view.pods.values()
        ),
        "parts": {
            thing.name: (thing.replicas, seen(thing.status), thing.conditions, thing.created_s)
            for kind in (view.sets, view.groups, view.cliques)
            for thing in kind.values()
        },
        "cliques": {
            one.name: (one.template, one.place, one.starts_after, one.incarnation)
            for one in view.cliques.values()
        },
        "gangs": {
            gang.name: (
                gang.phase,
                gang.base,
                gang.pack,
                gang.pack_groups,
                gang.scheduler,
                gang.conditions,
                [
                    (one.name, one.min_replicas, sorted(names.get(pod, "") for pod in one.pods))
                    for one in gang.groups
                ],
            )
            for gang in view.gangs.values()
        },
        "attached": sorted(
            (kind, name, one.set_name, one.replica)
            for kind, known in view.attachments.items()
            for name, one in known.items()
        ),
    }


STEPS = st.one_of(
    st.tuples(st.just("run"), st.sampled_from([0.0, 1.0, DELAY_S - 1.0, DELAY_S + 1.0, 300.0])),
    st.tuples(st.just("kill"), st.integers(0, 100)),
    st.tuples(st.just("stop"), st.just(0)),
    st.tuples(st.just("cordon"), st.integers(0, 20)),
    st.tuples(st.just("scale"), st.integers(0, 400)),
    st.tuples(st.just("change"), st.integers(0, 2)),
)


def play(world: World, manifest: dict[str, Any], steps: list[tuple[str, Any]]) -> World:
    """The same happens to every world. Controllers stop in the middle, and are started anew."""
    world.cordon_all_but(12)
    for number, (what, value) in enumerate(steps):
        if what == "run":
            world.run(value)
        elif what == "kill" and world.pods():
            world.kill(world.pods()[value % len(world.pods())])
        elif what == "stop":
            world.reconcile()
            world.crash()
        elif what == "cordon":
            world.cordon_all_but(value)
        elif what == "scale":
            found = world.scalable()
            _, name, minimum = found[value % len(found)]
            replicas = value // 100
            if replicas == 0 or replicas >= minimum:
                world.scale(name, min(replicas, 2))
        elif what == "change":
            labels = {"version": str(number)}
            manifest["spec"]["template"]["cliques"][value]["labels"] = labels
            manifest["spec"]["replicas"] = world.view.sets["web"].replicas
            world.apply(manifest)
    return world.run(1.0)


@settings(max_examples=20)
@given(manifest=manifests(), steps=st.lists(STEPS, max_size=6))
def test_a_cluster_of_json_comes_to_the_same(
    manifest: dict[str, Any], steps: list[tuple[str, Any]]
) -> None:
    again = copy.deepcopy(manifest)
    plain = play(World(NODES, manifest), manifest, steps)
    stored = play(StoredWorld(NODES, again), again, steps)
    assert state(stored) == state(plain)


def test_a_pod_is_named_for_its_place_and_the_pod_that_it_replaces() -> None:
    """A create that is repeated, as its answer was lost, is for the same name."""
    names = {pod_suffix(uid, index, old) for uid in "ab" for index in (0, 1) for old in ("", "x")}
    assert len(names) == 8
    assert pod_suffix("a", 0, "") == pod_suffix("a", 0, "")
    assert all(len(name) == 5 and name.isalnum() for name in names)


@given(at_s=st.integers(0, 4_000_000_000_000_000))
def test_times_survive_to_the_microsecond(at_s: int) -> None:
    assert seconds_of(stamp(at_s / 1e6)) == at_s / 1e6


def test_times_of_wrong_clocks_and_wrong_texts_are_not_trusted() -> None:
    assert seconds_of("2026-11-16T10:00:00Z", now_s=5.0) == 5.0
    assert seconds_of("2026-11-16T10:00:00+01:00") == seconds_of("2026-11-16T09:00:00Z")
    assert [seconds_of(text) for text in (None, "", "yesterday", 7)] == [NEVER] * 4


json_values = st.recursive(
    st.integers() | st.text(max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3) | st.lists(inner),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abcd"), json_values)


@given(old=objects, new=objects)
def test_a_merge_patch_makes_the_new_of_the_old(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert merged(old, merge_patch(old, new)) == new
    assert merge_patch(new, new) == {}


def test_what_others_made_takes_its_name_and_is_left_alone() -> None:
    world = StoredWorld(20, workload(1))
    theirs = {"podSpec": {"containers": []}, "replicas": 1}
    world.stored.put(
        "PodClique", "web-0-pc-a", {"metadata": {"name": "web-0-pc-a"}, "spec": theirs}
    )
    world.run(1.0)
    condition = world.view.sets["web"].conditions["NamesTaken"]
    assert condition.status == "True"
    assert "PodClique web-0-pc-a was not created by this operator" in condition.message
    assert not [pod for pod in world.view.pods.values() if pod.clique == "web-0-pc-a"]
    assert world.stored.objects["PodClique", "web-0-pc-a"]["spec"] == theirs


@pytest.mark.parametrize("kind", ["PodClique", "PodCliqueScalingGroup", "PodGang"])
def test_what_is_owned_and_does_not_say_where_it_belongs_is_left_alone(kind: str) -> None:
    """Its owner is shown after it, as a list may have it."""
    world = StoredWorld(20, workload(1))
    world.run(1.0)
    objects = world.stored.objects
    owner = ("PodCliqueScalingGroup", "web-0-sg-x") if kind == "PodClique" else (SET, "web")
    uid = objects[owner]["metadata"]["uid"]
    reference = {"uid": uid, "kind": owner[0], "name": owner[1], "controller": True}
    meta = {"name": "made-by-hand", "ownerReferences": [reference]}
    world.stored.put(kind, "made-by-hand", {"metadata": meta, "spec": {"podSpec": {}}})
    first = objects.pop((kind, "made-by-hand"))
    rest = dict(objects)
    objects.clear()
    objects.update({(kind, "made-by-hand"): first, **rest})
    world.crash()
    world.run(600.0)
    assert objects[kind, "made-by-hand"] == first
    assert world.running() == 10


def test_a_set_created_again_before_all_of_the_old_one_is_gone_starts_clean() -> None:
    """Kubernetes collects what the old set owned, object by object, whenever it gets to it."""
    manifest = workload(4)
    world = StoredWorld(20, manifest)
    world.run(1.0)
    objects = world.stored.objects
    before = {key: one["metadata"]["uid"] for key, one in objects.items()}
    world.stored._remove("PodCliqueSet", "web")
    world.run(1.0)
    world.stored.put("PodCliqueSet", "web", manifest)
    world.run(1.0)
    for key, uid in before.items():
        if key in objects and objects[key]["metadata"]["uid"] == uid:
            world.stored._delete(*key, world.now_s)
            world.run(1.0)
    assert objects.keys() >= {key for key in before if key[0] != "Pod"}
    assert not set(before.values()) & {one["metadata"]["uid"] for one in objects.values()}
    assert world.running() == len(world.pods()) == 10


@pytest.mark.parametrize("seed", range(5))
def test_objects_of_all_kinds_in_any_order_come_to_the_same(seed: int) -> None:
    world = StoredWorld(20, workload(2))
    world.run(1.0)
    stream = Streams(seed)["tests.order"]
    shuffled = sorted(world.stored.objects.items(), key=lambda _: stream.uniform())
    world.stored.objects = dict(shuffled)
    world.crash()
    assert world.controller.reconcile(world.now_s) == []
    world.kill(world.pods()[3], shut=False)
    world.run(1.0)
    assert world.running() == len(world.pods()) == 10


def test_a_set_that_is_wrong_says_all_that_is_wrong_with_it() -> None:
    manifest = workload(1)
    manifest["spec"]["template"]["cliques"][0]["spec"]["minAvailable"] = 9
    manifest["spec"]["template"]["podCliqueScalingGroups"][0]["cliqueNames"] = ["nothing"]
    raw = received({**manifest, "metadata": {"name": "web", "uid": "u", "generation": 1}})
    with pytest.raises(InputError) as caught:
        read("PodCliqueSet", raw, View(), 0.0)
    said = str(caught.value)
    assert "PodCliqueSet web: spec.template.cliques[0].spec.minAvailable" in said
    assert "there is no clique 'nothing'" in said


def test_a_garbled_memory_is_worked_out_again() -> None:
    world = StoredWorld(20, workload(1))
    world.run(1.0)
    before = state(world)
    for key, one in world.stored.objects.items():
        if key[0] in ("PodClique", "PodCliqueScalingGroup"):
            one["status"]["windtunnel"] = {"replicas": "many"}
    world.crash()
    world.run(1.0)
    assert state(world)["pods"] == before["pods"]


def test_a_node_is_read_with_what_pods_may_use() -> None:
    raw = received(
        {
            "metadata": {"name": "n1", "namespace": "", "labels": {"zone": "a"}},
            "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            "status": {
                "capacity": {"cpu": "8"},
                "allocatable": {"cpu": "7500m", "memory": "16Gi", "x": "?"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )
    node = read("Node", raw, View(), 0.0)
    assert isinstance(node, Node)
    assert (node.cordoned, node.ready, node.labels) == (True, True, {"zone": "a"})
    assert node.capacity == {"cpu": 7.5, "memory": 2.0**34}
    assert node.taints == (("gpu", "", "NoSchedule"),)
