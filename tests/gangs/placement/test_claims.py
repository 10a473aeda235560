"""Host ports, volumes and device claims: pods go where they can be had, or wait and say why."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gangs.manifests import clique, pod_clique_set
from tests.gangs.placement.test_following import (
    PODS_ON_A_NODE,
    SCHEDULER,
    PlacedWorld,
    new_node,
    room,
)
from windtunnel.gangs.objects import Pod
from windtunnel.gangs.placement.claims import (
    BY_FIRST_POD,
    CLAIM_OF_POD,
    DEVICE_CLAIM,
    NO_PROVISIONER,
    ONE_POD,
    SELECTED_NODE,
    STORAGE_CLASS,
    VOLUME,
    VOLUME_CLAIM,
    PodClaims,
)
from windtunnel.gangs.placement.constraints import apart_by_host
from windtunnel.gangs.placement.following import FollowingScheduler
from windtunnel.gangs.placement.shapes import MOST_SPARE
from windtunnel.gangs.placement.why import Waiting

ZONE = "topology.kubernetes.io/zone"


def received(spec: Any = None, status: Any = None, **meta: Any) -> Any:
    known: dict[str, Any] = {
        "deletion_timestamp": None,
        "labels": {},
        "annotations": {},
        "controller": None,
    }
    return SimpleNamespace(
        metadata=SimpleNamespace(**{**known, **meta}), spec=spec or {}, status=status or {}
    )


class ClaimingWorld(PlacedWorld):
    """Two nodes for two pods each, in zones a and b, and a clique whose pods have this spec."""

    def __init__(self, pods: int = 1, manifest: Any = None, **spec: Any) -> None:
        role = clique("a", pods)
        role["spec"]["podSpec"].update(spec)
        super().__init__(0, manifest or pod_clique_set([role]), stumbles=False)
        for number, zone in enumerate("ab"):
            self.server.add_node(new_node(f"n{number}", **{ZONE: zone}), 0.0)
        self.claims = PodClaims(self.view)
        self.following = FollowingScheduler(self.view, SCHEDULER, self.claims)

    @property
    def why(self) -> str:
        return self.view.gangs["web-0"].why_pending

    def nodes(self) -> list[str]:
        return sorted(pod.node for pod in self.pods())

    def take(self, kind: str, name: str, *known: Any, **meta: Any) -> None:
        self.claims.take(kind, name, received(*known, **meta))
        self.run()


def ports(*found: dict[str, Any], **more: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "ports": list(found)}
    return {"containers": [container], **more}


PORT = {"containerPort": 80, "hostPort": 8080}


def test_pods_with_one_host_port_go_to_different_nodes() -> None:
    world = ClaimingWorld(2, **ports(PORT)).run()
    assert world.nodes() == ["n0", "n1"]
    world = ClaimingWorld(3, **ports(PORT)).run()
    assert world.nodes() == ["", "", ""]
    assert "2 fit on 2 nodes on which its host port 8080/TCP is free" in world.why
    assert ClaimingWorld(3, **ports({"containerPort": 80})).run().nodes() == ["n0", "n0", "n1"]
    alone = {"containerPort": 80}
    assert "80/TCP is free" in ClaimingWorld(3, **ports(alone, hostNetwork=True)).run().why
    (pod, *_) = world.pods()
    assert apart_by_host(pod) == ("host port 8080/TCP",)


def test_an_init_container_has_its_port_for_as_long_as_the_pod_if_it_is_a_sidecar() -> None:
    for restart, nodes in (("Always", ["n0", "n1"]), (None, ["n0", "n0"])):
        init = {"name": "i", "image": "x", "ports": [PORT], "restartPolicy": restart}
        assert ClaimingWorld(2, initContainers=[init]).run().nodes() == nodes


@pytest.mark.parametrize(
    ("theirs", "nodes"),
    [
        ({}, ["n1"]),
        ({"hostIP": "0.0.0.0"}, ["n1"]),
        ({"hostIP": "10.0.0.1"}, ["n1"]),
        ({"protocol": "UDP"}, ["n0"]),
        ({"hostPort": 8081}, ["n0"]),
    ],
)
def test_ports_of_other_pods_are_taken_until_they_are_gone(
    theirs: dict[str, Any], nodes: list[str]
) -> None:
    world = ClaimingWorld(1, **ports(PORT))
    world.following.other_pod("u", "n0", {}, ports({**PORT, **theirs}))
    assert world.run().nodes() == nodes
    world = ClaimingWorld(2, **ports(PORT))
    world.following.other_pod("u", "n0", {}, ports({**PORT, **theirs}))
    world.run()
    assert ("is free" in world.why) == (nodes == ["n1"])
    world.following.other_pod("u", "", None, {})
    assert world.run().nodes() == ["n0", "n1"]


def test_a_port_of_one_address_is_free_on_another() -> None:
    mine = ports({**PORT, "hostIP": "10.0.0.1"})
    for address, nodes in (("10.0.0.1", ["n1"]), ("10.0.0.2", ["n0"]), ("", ["n1"])):
        world = ClaimingWorld(1, **mine)
        world.following.other_pod("u", "n0", {}, ports({**PORT, "hostIP": address}))
        assert world.run().nodes() == nodes, address


# Volumes.


def with_claim(pods: int = 1, **volume: Any) -> ClaimingWorld:
    one = volume or {"persistentVolumeClaim": {"claimName": "data"}}
    return ClaimingWorld(pods, volumes=[{"name": "v", **one}])


def test_pods_go_where_their_volume_is() -> None:
    world = with_claim()
    world.run()
    assert world.why == "its PersistentVolumeClaim data does not exist"
    world.take(VOLUME_CLAIM, "data", {"volumeName": "pv"}, {"phase": "Pending"})
    assert world.why == "its PersistentVolumeClaim data is not bound to PersistentVolume pv yet"
    reach = {"key": ZONE, "operator": "In", "values": ["b"]}
    terms = {"required": {"nodeSelectorTerms": [{"matchExpressions": [reach]}]}}
    world.claims.take(VOLUME, "pv", received({"nodeAffinity": terms}))
    world.take(VOLUME_CLAIM, "data", {"volumeName": "pv"}, {"phase": "Bound"})
    assert world.nodes() == ["n1"]
    assert world.why == ""


def test_the_zone_that_labels_of_a_volume_name_counts() -> None:
    world = with_claim(3)
    world.claims.take(VOLUME, "pv", received(labels={ZONE: "b__c"}))
    world.take(VOLUME_CLAIM, "data", {"volumeName": "pv"}, {"phase": "Bound"})
    assert world.nodes() == ["", "", ""]
    assert f"2 fit on the 1 node of 2 with {ZONE} In (b, c)" in world.why


@pytest.mark.parametrize(
    ("claim", "storage", "why"),
    [
        ({}, None, "is not bound to a volume yet"),
        ({"storageClassName": "fast"}, None, "is of StorageClass fast, which does not exist"),
        ({"storageClassName": "fast"}, {"provisioner": "p"}, "is not bound to a volume yet"),
        (
            {"storageClassName": "fast"},
            {"provisioner": NO_PROVISIONER, "volumeBindingMode": BY_FIRST_POD},
            "is not bound, and volumes of StorageClass fast are chosen by kube-scheduler alone",
        ),
        ({"accessModes": [ONE_POD]}, None, "(ReadWriteOncePod), and 2 pods name it"),
    ],
)
def test_pods_whose_volume_is_not_there_wait_and_say_why(
    claim: dict[str, Any], storage: dict[str, Any] | None, why: str
) -> None:
    world = with_claim(2)
    if storage is not None:
        world.claims.take(STORAGE_CLASS, "fast", received(storage))
    world.take(VOLUME_CLAIM, "data", claim)
    assert world.nodes() == ["", ""]
    assert world.why.startswith("its PersistentVolumeClaim data ")
    assert why in world.why
    world.take(VOLUME_CLAIM, "data", claim, deletion_timestamp="now")
    assert world.why.endswith("is being deleted")


def test_a_volume_for_its_first_pod_is_made_for_a_node_that_its_class_allows() -> None:
    world = with_claim()
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    fast = {"provisioner": "p", "volumeBindingMode": BY_FIRST_POD, "allowedTopologies": allowed}
    world.claims.take(STORAGE_CLASS, "fast", received(fast))
    world.claims.take(VOLUME_CLAIM, "data", received({"storageClassName": "fast"}))
    for _ in range(5):  # until its pod may be scheduled
        world.reconcile()
    world.following.follow()
    planned = world.following.plan(0.0)
    (binding,) = planned.bindings
    assert binding.node == "n1"
    assert world.following.wait_for_volumes(planned) == {"data": "n1"}
    assert planned.bindings == []
    world.following.report(planned, 0.0)
    notes = {SELECTED_NODE: "n1"}
    world.take(VOLUME_CLAIM, "data", {"storageClassName": "fast"}, annotations=notes)
    assert world.nodes() == [""]
    assert world.why.endswith("is being made for node n1")
    assert world.following.waiting_for_claims("web-0") == {binding.pod}
    world.claims.take(VOLUME, "pv", received())
    bound = {"storageClassName": "fast", "volumeName": "pv"}
    world.take(VOLUME_CLAIM, "data", bound, {"phase": "Bound"})
    assert world.nodes() != [""]


def test_a_volume_of_one_pod_alone_may_be_for_one_pod() -> None:
    world = with_claim(2, ephemeral={"volumeClaimTemplate": {"spec": {}}})
    world.run()
    for pod in world.pods():
        world.claims.take(VOLUME, pod.name, received())
        claim = {"volumeName": pod.name, "accessModes": [ONE_POD]}
        world.take(VOLUME_CLAIM, f"{pod.name}-v", claim, {"phase": "Bound"})
    assert world.nodes() == ["n0", "n0"]


def test_pods_of_two_cliques_cannot_share_a_volume_for_one_pod() -> None:
    roles = [clique("a", 1), clique("b", 1)]
    for role in roles:
        claim = {"persistentVolumeClaim": {"claimName": "data"}}
        role["spec"]["podSpec"].update(volumes=[{"name": "v", **claim}])
    world = ClaimingWorld(manifest=pod_clique_set(roles))
    world.claims.take(VOLUME, "pv", received())
    known = {"volumeName": "pv", "accessModes": [ONE_POD]}
    world.take(VOLUME_CLAIM, "data", known, {"phase": "Bound"})
    assert world.nodes() == ["", ""]
    assert world.why.endswith("may be used by one pod (ReadWriteOncePod), and 2 pods name it")


def test_each_pod_waits_for_its_own_ephemeral_volume() -> None:
    world = with_claim(2, ephemeral={"volumeClaimTemplate": {"spec": {}}})
    world.run()
    names = [pod.name for pod in world.pods()]
    assert world.why == f"its PersistentVolumeClaim {names[0]}-v does not exist"
    assert world.following.waiting_for_claims("web-0") == set(names)
    for name, zone in zip(names, "ba", strict=True):
        world.claims.take(VOLUME, name, received(labels={ZONE: zone}))
        world.take(VOLUME_CLAIM, f"{name}-v", {"volumeName": name}, {"phase": "Bound"})
    assert [pod.node for pod in world.pods()] == ["n1", "n0"]


def test_a_volume_for_one_pod_is_free_once_the_pods_of_others_are_gone() -> None:
    role = clique("a", 1)
    claim = {"persistentVolumeClaim": {"claimName": "data"}}
    role["spec"]["podSpec"].update(volumes=[{"name": "v", **claim}])
    world = ClaimingWorld(manifest=pod_clique_set([role], replicas=2))
    world.claims.take(VOLUME, "pv", received())
    known = {"volumeName": "pv", "accessModes": [ONE_POD]}
    world.take(VOLUME_CLAIM, "data", known, {"phase": "Bound"})
    assert world.nodes() == ["", ""]
    world.scale("web", 1)
    assert world.run().nodes() == ["n0"]


# Pods above the minimum.


def above_minimum(*roles: tuple[int, int], slots: int = 4) -> ClaimingWorld:
    """Cliques by their pods and minimum; each pod has a volume of its own, which does not exist."""
    cliques = [clique(name, *role) for name, role in zip("ab", roles, strict=False)]
    own = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    for one in cliques:
        one["spec"]["podSpec"].update(volumes=[own])
    world = ClaimingWorld(manifest=pod_clique_set(cliques))
    for number in range(slots, 2 * PODS_ON_A_NODE):
        world.following.other_pod(f"other {number}", f"n{number % 2}", {})
    world.run()
    return world


def make_volume(world: ClaimingWorld, pod: str) -> None:
    world.claims.take(VOLUME, pod, received())
    world.take(VOLUME_CLAIM, f"{pod}-v", {"volumeName": pod}, {"phase": "Bound"})


def test_a_pod_above_the_minimum_that_waits_for_its_volume_holds_back_no_other() -> None:
    world = above_minimum((4, 2), slots=3)
    first, *others, last = (pod.name for pod in world.pods())
    assert world.why == f"its PersistentVolumeClaim {first}-v does not exist"
    make_volume(world, last)
    assert world.nodes() == ["", "", "", ""]
    make_volume(world, others[0])
    assert {pod.name for pod in world.pods() if pod.node} == {others[0], last}
    late = f"2 pods above the minimum wait ({first}, {others[1]})"
    assert world.why == f"{late}: its PersistentVolumeClaim {first}-v does not exist"
    make_volume(world, first)
    make_volume(world, others[1])
    assert world.nodes() == ["", "n0", "n0", "n1"]
    room = f"1 pod above the minimum waits ({others[1]}): it needs 1 more pod of 80 MiB memory"
    assert world.why.startswith(room)
    assert world.following.waiting_for_claims("web-0") == set()


def test_a_pod_that_finds_no_room_is_told_so_beside_one_that_waits_for_its_volume() -> None:
    world = above_minimum((3, 1), slots=1)
    first, second, third = (pod.name for pod in world.pods())
    make_volume(world, first)
    make_volume(world, second)
    assert world.nodes() == ["", "", "n0"]
    both = f"1 pod above the minimum waits ({second}): it needs 1 more pod"
    assert world.why.startswith(both)
    assert f"1 pod above the minimum waits ({third}): its Persistent" in world.why
    assert world.following.waiting_for_claims("web-0") == {third}, "a machine helps the second"


def test_a_volume_to_be_made_for_a_pod_above_the_minimum_holds_back_no_other() -> None:
    for made, bound in ((2, 2), (1, 0)):
        world = above_minimum((3, 2))
        pods = [pod.name for pod in world.pods()]
        fast = {"provisioner": "p", "volumeBindingMode": BY_FIRST_POD}
        world.claims.take(STORAGE_CLASS, "fast", received(fast))
        for pod in pods[:made]:
            world.claims.take(VOLUME, pod, received())
            known = received({"volumeName": pod}, {"phase": "Bound"})
            world.claims.take(VOLUME_CLAIM, f"{pod}-v", known)
        for pod in pods[made:]:
            world.claims.take(VOLUME_CLAIM, f"{pod}-v", received({"storageClassName": "fast"}))
        world.following.follow()
        planned = world.following.plan(0.0)
        assert len(planned.bindings) == 3
        nodes = {one.pod: one.node for one in planned.bindings}
        made_for = {f"{pod}-v": nodes[pod] for pod in pods[made:]}
        assert world.following.wait_for_volumes(planned) == made_for
        assert [one.pod for one in planned.bindings] == pods[:bound]
        assert room(world.following) == {"n0": 2 - bound, "n1": 2}


STEPS = st.lists(st.tuples(st.sampled_from(["volume"] * 3 + ["lost", "kill"]), st.integers(0, 9)))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=2), STEPS,
       st.integers(0, 4))  # fmt: skip
def test_which_pods_are_bound_is_what_a_plain_reference_says(
    roles: list[tuple[int, int]], steps: list[tuple[str, int]], slots: int
) -> None:
    world = above_minimum(*[(max(role), min(role)) for role in roles], slots=slots)
    minima = {f"web-0-{name}": min(role) for name, role in zip("ab", roles, strict=False)}
    volumes: set[str] = set()
    for what, number in steps:
        before = {pod.name for pod in world.pods() if pod.node}
        pod = world.pods()[number % len(world.pods())]
        if what == "volume":
            volumes.add(pod.name)
            make_volume(world, pod.name)
        elif what == "lost":
            volumes.discard(pod.name)
            world.claims.take(VOLUME_CLAIM, f"{pod.name}-v", None)
        else:
            world.kill(pod, shut=False)
        world.run()
        wanted, reason = placed_by_reference(world, before, volumes, minima, slots)
        assert {pod.name for pod in world.pods() if pod.node} == wanted
        verdict = world.following._scheduler.verdicts.get("web-0")
        assert (None if verdict is None else verdict[0]) is reason


def placed_by_reference(
    world: ClaimingWorld, before: set[str], volumes: set[str], minima: dict[str, int], slots: int
) -> tuple[set[str], Waiting | None]:
    """The pods to be bound, by those bound before and those with a volume, and why others wait."""
    pods = sorted(world.pods(), key=lambda pod: (pod.clique, pod.index))
    bound = [pod for pod in pods if pod.name in before]
    ready = [pod for pod in pods if pod.name not in before and pod.name in volumes]
    first: list[Pod] = []
    for name, minimum in minima.items():
        missing = max(0, minimum - sum(pod.clique == name for pod in bound))
        found = [pod for pod in ready if pod.clique == name][:missing]
        if len(found) < missing:
            return before & {pod.name for pod in bound}, Waiting.CLAIMS
        first += found
    free = slots - len(bound)
    if len(first) > free:
        return {pod.name for pod in bound}, Waiting.NO_ROOM
    rest = [pod for pod in ready if pod not in first][: free - len(first)]
    wanted = {pod.name for pod in [*bound, *first, *rest]}
    return wanted, Waiting.EXTRAS if len(wanted) < len(pods) else None


def test_what_is_kept_of_pods_does_not_grow_with_their_turnover() -> None:
    world = with_claim(2)
    world.claims.take(VOLUME, "pv", received())
    world.take(VOLUME_CLAIM, "data", {"volumeName": "pv"}, {"phase": "Bound"})
    shapes = world.following._scheduler.shapes
    kept = [shapes.of(pod) for pod in world.pods()]
    sizes = []
    for _ in range(2 * MOST_SPARE):
        world.kill(world.pods()[0], shut=False)
        world.run()
        assert "" not in world.nodes()
        sizes.append(len(shapes._shapes))
    assert max(sizes) <= MOST_SPARE + 2 * len(world.pods()) + 1
    assert sorted(sizes) != sizes, "it was emptied"
    assert [shapes.of(pod) for pod in world.pods()] == kept, "the space has no more shapes"


# Devices.


@pytest.mark.parametrize("source", ["resourceClaimName", "resourceClaimTemplateName"])
def test_pods_wait_until_their_devices_are_allocated(source: str) -> None:
    world = ClaimingWorld(1, resourceClaims=[{"name": "gpu", source: "mine"}])
    world.run()
    assert "devices are allocated by kube-scheduler alone" in world.why
    (pod,) = world.pods()
    assert world.following.waiting_for_claims("web-0") == {pod.name}
    meta = {}
    if source != "resourceClaimName":
        meta = {"annotations": {CLAIM_OF_POD: "gpu"}, "controller": SimpleNamespace(uid=pod.uid)}
    world.take(DEVICE_CLAIM, "mine", {}, {}, **meta)
    assert "its ResourceClaim mine is not allocated" in world.why
    reach = {"key": ZONE, "operator": "In", "values": ["b"]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [reach]}]}
    world.take(DEVICE_CLAIM, "mine", {}, {"allocation": {"nodeSelector": selector}}, **meta)
    assert world.nodes() == ["n1"]
    world.claims.take(DEVICE_CLAIM, "mine", None)
    assert world.run().nodes() == ["n1"]


def test_shared_claims_of_a_set_are_looked_at() -> None:
    role = clique("a")
    role["resourceSharing"] = [{"name": "t", "scope": "AllReplicas"}]
    devices = {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu"}}]}}
    template = {"name": "t", "templateSpec": {"spec": devices}}
    manifest = pod_clique_set([role], resourceClaimTemplates=[template])
    world = PlacedWorld(1, manifest, stumbles=False)
    claims = PodClaims(world.view)
    world.following = FollowingScheduler(world.view, SCHEDULER, claims)
    world.run()
    assert "its ResourceClaim web-0-a-all-t does not exist" in world.view.gangs["web-0"].why_pending
    claims.take(DEVICE_CLAIM, "web-0-a-all-t", received({}, {"allocation": {"devices": {}}}))
    world.run()
    assert [pod.node for pod in world.pods()] == ["n0"]
