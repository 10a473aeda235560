"""Which pods come, go and are let through; and what a set has beside them."""

import copy
from typing import Any

import pytest

from tests.gangs.manifests import (
    binding,
    clique,
    constraint,
    group,
    load_set,
    pod_clique_set,
    the_clique,
    the_group,
    workload,
)
from tests.gangs.world import World
from windtunnel.core.errors import InvariantBroken
from windtunnel.gangs import names
from windtunnel.gangs.commands import Delete
from windtunnel.gangs.controllers.attachments import claims_of
from windtunnel.gangs.controllers.cliques import victim_order
from windtunnel.gangs.controllers.gates import why_held
from windtunnel.gangs.controllers.startup import starts_after
from windtunnel.gangs.objects import GATE, Pod, PodClique
from windtunnel.gangs.roster import NameRoster
from windtunnel.gangs.templates import CliquePlace


def test_who_goes_first_when_there_are_too_many() -> None:
    spec = load_set(pod_clique_set([clique("a")])).spec
    owner = PodClique("web-0-a", CliquePlace("web", 0, "web-0"), spec.roles["a"], 1)

    def pod(name: str, created_s: float = 1.0, **state: Any) -> Pod:
        made = Pod(name, owner, 0)
        made.created_s = created_s
        for key, value in {"node": "n", "phase": "Running", "ready": True, **state}.items():
            setattr(made, key, value)
        return made

    current = spec.roles["a"].hash
    order = [
        pod("unassigned", node="", phase="Pending", ready=False),
        pod("pending", phase="Pending", ready=False),
        pod("unknown", phase="Unknown", ready=False),
        pod("not ready", ready=False),
        pod("newer", 5.0),
        pod("older", 2.0),
    ]
    shuffled = sorted(order, key=lambda one: one.name)
    found = sorted(shuffled, key=lambda one: victim_order(one, current))
    assert [one.name for one in found] == [one.name for one in order]
    # An old template goes before a new one of the same readiness, however old it is.
    assert victim_order(order[5], "another") < victim_order(order[4], current)


def test_a_replacement_takes_the_lowest_free_place() -> None:
    world = World(5, pod_clique_set([clique("a", 4, 1)])).run()
    world.kill(*(world.pods()[index] for index in (1, 2)), shut=False)
    world.run()
    assert [pod.index for pod in world.pods()] == [0, 1, 2, 3]
    assert names.host("ns/web-0-a", 2) == "web-0-a-2"


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_ended_is_replaced(phase: str) -> None:
    world = World(3, pod_clique_set([clique("a", 2, 1)])).run()
    pod = world.pods()[0]
    pod.phase, pod.ready = phase, False
    world.view.changed(pod)
    world.run()
    assert pod.name not in world.view.pods
    assert world.running() == 2


def test_gates_hold_until_every_pod_exists_and_the_base_is_placed() -> None:
    world = World(10, workload(2))
    world.cordon_all_but(2)
    while world.reconcile():
        for pod in world.view.pods.values():
            gang = world.view.gangs.get(pod.gang)
            referred = {name for one in gang.groups for name in one.pods} if gang else set()
            assert pod.gated or pod.name in referred
    held = world.pods("sg-x-1")
    assert all(pod.gated for pod in held)
    assert why_held(world.view, held[0]) == (
        "the base gang web-0 comes first: web-0-pc-a has 0 of 1 pods scheduled"
    )
    assert not any(pod.gated for pod in world.pods("sg-x-0"))
    world.open()
    world.run()
    assert not any(pod.gated for pod in world.pods())
    # Once let through, a pod is not held again.
    world.kill(*world.pods("sg-x-0-pc-b"))
    world.run()
    assert not any(pod.gated for pod in held)
    world.kill(world.pods("sg-x-1-pc-c")[0])
    world.run()
    late = [pod for pod in world.pods("sg-x-1-pc-c") if not pod.node]
    assert [pod.gated for pod in late] == [True]
    assert "sg-x-0-pc-b has 0 of 1 pods scheduled" in why_held(world.view, late[0])


@pytest.mark.parametrize("most", [1, 2, 3, 5, 8, 13])
def test_no_pod_is_let_through_before_all_pods_of_its_gang_exist(most: int) -> None:
    """However little a controller gets done at a time, a scheduler never sees half a gang."""
    world = World(0, workload(1))
    seen = False
    while world.reconcile(most):
        world.crash()
        for pod in world.pods():
            if pod.gated:
                continue
            seen = True
            for one in world.view.gangs[pod.gang].groups:
                clique = world.view.cliques[one.name]
                assert len(clique.pods) == clique.replicas
    assert seen


def test_why_a_pod_is_held() -> None:
    world = World(10, workload(2)).run()
    pod = world.pods("sg-x-1-pc-c")[0]
    assert why_held(world.view, pod) == ""
    pod.gates.append(GATE)
    assert why_held(world.view, pod) == "its scheduling gate is about to be removed"
    base, gang = world.view.gangs.pop("web-0"), world.view.gangs["web-0-sg-x-0"]
    assert why_held(world.view, pod) == "the base gang web-0 does not exist yet"
    world.view.gangs["web-0"] = base
    gang.groups[1].pods = gang.groups[1].pods.minus(pod.name)
    assert why_held(world.view, pod) == "the gang web-0-sg-x-0 does not refer to it yet"
    gang.groups[1].pods = NameRoster()
    assert why_held(world.view, pod).startswith("the gang web-0-sg-x-0 waits until all")
    del world.view.gangs["web-0-sg-x-0"]
    assert why_held(world.view, pod) == "the gang web-0-sg-x-0 does not exist yet"


def test_the_gates_of_others_are_kept() -> None:
    manifest = pod_clique_set([clique("a")])
    the_clique(manifest)["spec"]["podSpec"]["schedulingGates"] = [{"name": "quota"}]
    world = World(1, manifest).run()
    (pod,) = world.pods()
    assert pod.gates == ["quota"]
    assert "has the gate quota" in why_held(world.view, pod)
    pod.gates.clear()
    world.view.changed(pod)
    assert world.run().running() == 1


def test_a_gang_refers_to_all_pods_at_once_and_follows_them() -> None:
    world = World(10, workload(1)).run()
    gang = world.view.gangs["web-0"]
    assert [(one.name, one.min_replicas, len(one.pods)) for one in gang.groups] == [
        ("web-0-pc-a", 2, 2),
        ("web-0-sg-x-0-pc-b", 1, 1),
        ("web-0-sg-x-0-pc-c", 3, 3),
        ("web-0-sg-x-1-pc-b", 1, 1),
        ("web-0-sg-x-1-pc-c", 3, 3),
    ]
    assert gang.phase == "Running"
    assert {name: one.status for name, one in gang.conditions.items()} == {
        "Initialized": "True",
        "Scheduled": "True",
        "Ready": "True",
    }
    world.kill(world.pods("pc-a")[0])
    world.run()
    assert [pod.name for pod in world.pods("pc-a")] != []
    assert set(gang.groups[0].pods) == {pod.name for pod in world.pods("pc-a")}
    assert (gang.phase, gang.conditions["Unhealthy"].message) == (
        "Pending",
        "web-0-pc-a has 1 of 2 pods scheduled",
    )
    world.open()
    world.run()
    assert "Unhealthy" not in gang.conditions


def test_five_replicas_with_a_minimum_of_three_have_two_scaled_gangs() -> None:
    manifest = pod_clique_set([clique("c")], [group("g", ["c"], 5, 3)])
    world = World(5, manifest).run()
    found = {gang.name: [one.name for one in gang.groups] for gang in world.view.gangs.values()}
    assert found == {
        "web-0": ["web-0-g-0-c", "web-0-g-1-c", "web-0-g-2-c"],
        "web-0-g-0": ["web-0-g-3-c"],
        "web-0-g-1": ["web-0-g-4-c"],
    }


def test_who_starts_after_whom_in_full_names() -> None:
    spec = load_set(workload(3)).spec
    c_after = starts_after(spec, "web", 0, "pc-c", 0)
    assert c_after == (("web-0-sg-x-0-pc-b", 1), ("web-0-sg-x-1-pc-b", 1))
    assert starts_after(spec, "web", 0, "pc-b", 1) == (("web-0-pc-a", 2),)
    assert starts_after(spec, "web", 0, "pc-c", 2) == (("web-0-sg-x-2-pc-b", 1),)
    assert starts_after(spec, "web", 0, "pc-b", 2) == ()
    assert starts_after(spec, "web", 1, "pc-a") == ()


def test_tas_constraints_become_keys_of_node_labels() -> None:
    manifest = workload(2, topologyConstraint=constraint("zone", topology="cluster"))
    the_group(manifest)["topologyConstraint"] = constraint("block", "rack")
    the_clique(manifest, 2)["topologyConstraint"] = constraint("rack")
    world = World(10, binding(), manifest).run()
    base, scaled = world.view.gangs["web-0"], world.view.gangs["web-0-sg-x-0"]
    assert base.pack is not None
    assert scaled.pack is not None
    assert (base.pack.required, scaled.pack.required) == ("zone-key", "block-key")
    (packed,) = base.pack_groups
    assert (packed.name, packed.pack.preferred) == ("web-0-sg-x-0", "rack-key")
    assert packed.pod_groups == ("web-0-sg-x-0-pc-b", "web-0-sg-x-0-pc-c")
    packs = [one.pack.required if one.pack else "" for one in base.groups]
    assert packs == ["", "", "rack-key"]
    assert base.topology == "cluster"
    condition = world.view.sets["web"].conditions["TopologyLevelsUnavailable"]
    assert (condition.status, condition.reason) == ("False", "AllClusterTopologyLevelsAvailable")


def test_tas20_without_its_topology_a_set_says_so_and_new_gangs_are_free() -> None:
    manifest = workload(1, topologyConstraint=constraint("zone", topology="cluster"))
    world = World(20, binding(), manifest).run()
    levels = world.view.levels.pop("cluster")
    world.scale("web", 0)
    world.run()
    world.scale("web", 1)
    world.run()
    condition = world.view.sets["web"].conditions["TopologyLevelsUnavailable"]
    assert (condition.status, condition.reason) == ("Unknown", "ClusterTopologyNotFound")
    assert world.view.gangs["web-0"].pack is None
    world.view.levels["cluster"] = {"rack": levels["rack"]}
    world.view.changed(world.view.sets["web"])
    world.run()
    condition = world.view.sets["web"].conditions["TopologyLevelsUnavailable"]
    assert (condition.status, condition.reason) == ("True", "ClusterTopologyLevelsUnavailable")


def sharing(name: str, scope: str, **chosen: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "scope": f"{scope}Replica{'s' if scope == 'All' else ''}",
    }
    return {**found, "filter": chosen} if chosen else found


def test_rs1_claims_at_every_level_follow_the_scale() -> None:
    worker_a, worker_b = clique("worker-a"), clique("worker-b")
    worker_a["resourceSharing"] = [sharing("four", "Per"), sharing("far", "All")]
    worker_b["resourceSharing"] = [sharing("six", "All")]
    sga = group("sga", ["worker-b"], 2)
    sga["resourceSharing"] = [
        sharing("two", "All"),
        sharing("three", "Per"),
        sharing("eight", "All", childCliqueNames=["worker-b"]),
    ]
    manifest = pod_clique_set([worker_a, worker_b], [sga], name="rs")
    manifest["spec"]["template"]["resourceSharing"] = [
        sharing("five", "All"),
        sharing("out", "Per"),
        sharing("one", "Per", childCliqueNames=["worker-a"]),
        sharing("seven", "All", childScalingGroupNames=["sga"]),
    ]
    world = World(20, manifest).run()
    counts = []
    steps = [("rs-0-sga", 1), ("rs-0-sga", 3), ("rs-0-worker-a", 2), ("rs-0-worker-a", 1)]
    for name, replicas in [("", 0), *steps, ("rs", 2), ("rs", 1)]:
        if name:
            world.scale(name, replicas)
            world.run()
        counts.append(len(world.view.attachments["ResourceClaim"]))
    assert counts == [12, 10, 14, 15, 14, 24, 14]
    spec = world.view.sets["rs"].spec
    (pod,) = world.pods("rs-0-worker-a")
    assert sorted(claims_of(spec, pod)) == [
        "rs-0-one",
        "rs-0-out",
        "rs-0-worker-a-0-four",
        "rs-0-worker-a-all-far",
        "rs-all-five",
    ]
    pod = world.pods("sga-2-worker-b")[0]
    assert sorted(claims_of(spec, pod)) == [
        "rs-0-out",
        "rs-0-sga-2-three",
        "rs-0-sga-2-worker-b-all-six",
        "rs-0-sga-all-eight",
        "rs-0-sga-all-two",
        "rs-all-five",
        "rs-all-seven",
    ]
    for claims in (claims_of(spec, one) for one in world.pods()):
        assert all(claim in world.view.attachments["ResourceClaim"] for claim in claims)


def test_mnnvl_domains_are_made_for_gpu_cliques_by_the_nearest_annotation() -> None:
    key = "grove.io/mnnvl-group"
    roles = [clique(name) for name in "abcd"]
    for role in roles[:3]:
        resources = role["spec"]["podSpec"]["containers"][0]["resources"]
        resources["requests"]["nvidia.com/gpu"] = 1
    roles[1]["annotations"] = {key: "fast"}
    roles[2]["annotations"] = {key: "none"}
    manifest = pod_clique_set(roles, replicas=2)
    plain = copy.deepcopy(manifest)
    manifest["metadata"]["annotations"] = {key: "all"}
    world = World(8, manifest).run()
    assert sorted(world.view.attachments["ComputeDomain"]) == [
        "web-0-all",
        "web-0-fast",
        "web-1-all",
        "web-1-fast",
    ]
    world.scale("web", 1)
    world.run()
    assert len(world.view.attachments["ComputeDomain"]) == 2
    for role in plain["spec"]["template"]["cliques"]:
        role.pop("annotations", None)
    assert "ComputeDomain" not in World(8, plain).run().view.attachments


def test_deleting_a_set_takes_the_whole_tree() -> None:
    world = World(20, workload(2, replicas=2)).run()
    world.server.apply(Delete(world.view.sets["web"], "test"), world.now_s)
    world.run()
    view = world.view
    assert not any((view.pods, view.cliques, view.groups, view.gangs, view.sets))
    assert not any(view.attachments.values())
    assert not world.taken


def test_a_clique_deleted_behind_our_back_comes_back() -> None:
    world = World(10, workload(1)).run()
    for name in ("web-0-pc-a", "web-0-sg-x-1-pc-c"):
        world.server.apply(Delete(world.view.cliques[name], "test"), world.now_s)
    assert world.run().running() == 10


def test_a_pod_cannot_be_removed_twice() -> None:
    world = World(2, pod_clique_set([clique("a", 2)])).run()
    pod = world.pods()[0]
    world.kill(pod)
    with pytest.raises(InvariantBroken, match="is removed twice"):
        world.server.remove_pod(pod)


def test_two_sets_side_by_side_do_not_touch_each_other() -> None:
    first, second = workload(1), workload(1)
    second["metadata"] = {"name": "web", "namespace": "other"}
    world = World(20, first, second).run()
    assert sorted(world.view.sets) == ["other/web", "web"]
    assert world.running() == 20
    assert (names.namespace("other/web-0"), names.short("other/web-0")) == ("other", "web-0")
    before = {pod.uid for pod in world.pods() if pod.set_name == "other/web"}
    world.scale("web", 0)
    world.run()
    assert world.uids() == before


def test_a_name_that_another_set_has_is_said_and_nothing_is_adopted() -> None:
    first = pod_clique_set([clique("c")], [group("b", ["c"], 2)], name="a")
    second = pod_clique_set([clique("c")], name="a-0-b", replicas=2)
    world = World(10, first, second).run()
    # `a-0-b-0-c` would be the clique of both, and `a-0-b-0` the gang of both.
    for pod in world.pods():
        assert pod.clique_uid == world.view.cliques[pod.clique].uid
    told = [one.conditions.get("NamesTaken") for one in world.view.sets.values()]
    messages = [condition.message for condition in told if condition is not None]
    assert messages
    assert all("belongs to the set a" in message for message in messages)
    assert world.controller.reconcile(world.now_s) == []
    world.crash()
    assert world.controller.reconcile(world.now_s) == []
    world.server.delete(world.view.sets["a"], world.now_s)
    world.view.changed(world.view.sets["a-0-b"])
    world.crash()
    world.run()
    assert world.running() == 2
    assert "NamesTaken" not in world.view.sets["a-0-b"].conditions
