"""The scheduler on a cluster that others change: its count of the room is always the true one."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.gangs.manifests import clique, load, pod_clique_set
from tests.gangs.test_stateful import manifests
from tests.gangs.world import World
from windtunnel.gangs.commands import Delete
from windtunnel.gangs.objects import FAILED, SUCCEEDED, Node
from windtunnel.gangs.placement.constraints import REUSE
from windtunnel.gangs.placement.following import FollowingScheduler
from windtunnel.gangs.view import View

SCHEDULER = "kai-scheduler"
PODS_ON_A_NODE = 2


def new_node(name: str, **labels: str) -> Node:
    return Node(name, {"pods": float(PODS_ON_A_NODE), "memory": 1e9}, labels)


class PlacedWorld(World):
    """`World` with the real scheduler; every third pod cannot be bound at first."""

    def __init__(self, nodes: int, manifest: dict[str, Any], *, stumbles: bool) -> None:
        super().__init__(0, manifest)
        self.stumbles = stumbles
        self.interrupted = 0
        """Of this pass, so many pods are gone before they are bound, and so many before that is
        reported."""
        self.tries = 0
        for number in range(nodes):
            self.server.add_node(new_node(f"n{number}"), 0.0)
        self.following = FollowingScheduler(self.view, SCHEDULER)

    def _schedule(self) -> int:
        self.following.follow()
        if not self.following.is_due(self.now_s):
            return 0
        planned = self.following.plan(self.now_s)
        gone = [self.view.pods[one.pod] for one in planned.bindings][: 2 * self.interrupted]
        self.kill(*gone[::2], shut=False)
        for binding in list(planned.bindings):
            self.tries += 1
            if self.stumbles and self.tries % 3 == 0:
                self.following.not_bound(planned, binding)
            else:
                self.following.bound(binding, self.now_s)
        self.kill(*gone[1::2], shut=False)
        self.interrupted = 0
        for command in self.following.report(planned, self.now_s):
            self.server.apply(command, self.now_s)
        self.following.follow()
        return len(planned.bindings)

    def replace_node(self, name: str) -> None:
        """The machine is replaced by another of its name."""
        self.view.remove(self.view.nodes[name])
        self.server.add_node(new_node(name, zone=str(self.now_s)), self.now_s)


def room(following: FollowingScheduler) -> dict[str, int]:
    """Pods that still fit on each node, as the scheduler counts them."""
    space = following._space
    return {one.name: one.free[0] // 1000 for one in space.nodes}


def true_room(view: View, others: Counter[str]) -> dict[str, int]:
    on = Counter(pod.node for pod in view.pods.values() if pod.phase not in (SUCCEEDED, FAILED))
    return {name: PODS_ON_A_NODE - on[name] - others[name] for name in view.nodes}


def apart(manifest: dict[str, Any]) -> dict[str, Any]:
    """The set with pods that avoid each other: at most one is on a node."""
    every = {"matchExpressions": [{"key": "app.kubernetes.io/part-of", "operator": "Exists"}]}
    term = {"labelSelector": every, "topologyKey": "kubernetes.io/hostname"}
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for role in manifest["spec"]["template"]["cliques"]:
        role["spec"]["podSpec"]["affinity"] = rules
    return manifest


def avoided(following: FollowingScheduler) -> list[dict[str, int]]:
    """By term: pods that match it on each node, as the scheduler counts them."""
    terms = following._scheduler.shapes.terms.values()
    return [{name: count for name, count in one.matching.items() if count} for one in terms]


def there(view: View) -> dict[str, int]:
    ended = (SUCCEEDED, FAILED)
    return Counter(pod.node for pod in view.pods.values() if pod.node and pod.phase not in ended)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["run", "kill", "scale", "restart", "other", "node", "cordon", "interrupt"]
        ),
        st.integers(0, 300),
    ),
    max_size=8,
)


@given(manifest=manifests() | manifests().map(apart), steps=STEPS, stumbles=st.booleans())
def test_the_room_is_counted_right_whatever_happens(
    manifest: dict[str, Any], steps: list[tuple[str, int]], stumbles: bool
) -> None:
    world = PlacedWorld(8, manifest, stumbles=stumbles)
    others: Counter[str] = Counter()
    for what, value in steps:
        name = f"n{value % 8}"
        world.interrupted = value % 4 if what == "interrupt" else 0
        if what == "run":
            world.run(float(value))
        elif what == "kill" and world.pods():
            world.kill(world.pods()[value % len(world.pods())], shut=False)
        elif what == "scale":
            found = world.scalable()
            _, scaled, minimum = found[value % len(found)]
            if value // 100 == 0 or value // 100 >= minimum:
                world.scale(scaled, min(value // 100, 2))
        elif what == "restart":
            world.following = FollowingScheduler(world.view, SCHEDULER)
            for number, (node, count) in enumerate(sorted(others.items())):
                for one in range(count):
                    world.following.other_pod(f"{number}-{one}", node, {})
            others = Counter({node: count for node, count in others.items() if count})
        elif what == "other" and room(world.following)[name] > 0:
            others[name] += 1
            world.following.other_pod(f"o{value}{sum(others.values())}", name, {})
        elif what == "node":
            world.replace_node(name)
        elif what == "cordon":
            world.view.nodes[name].cordoned = value % 2 == 0
            world.view.changed(world.view.nodes[name])
        world.following.follow()
        assert room(world.following) == true_room(world.view, others)
        assert all(found == there(world.view) for found in avoided(world.following))
    world.run(1.0)
    assert room(world.following) == true_room(world.view, others)
    assert min(room(world.following).values()) >= 0


def test_a_pod_that_avoids_others_comes_back_to_its_node_after_a_restart() -> None:
    world = PlacedWorld(2, apart(pod_clique_set([clique("a", 2)])), stumbles=False)
    assert {pod.node for pod in world.run().pods()} == {"n0", "n1"}
    world.following = FollowingScheduler(world.view, SCHEDULER)
    world.run()
    assert avoided(world.following) == [{"n0": 1, "n1": 1}]
    world.kill(world.pods()[0], shut=False)
    assert {pod.node for pod in world.run().pods()} == {"n0", "n1"}


def test_a_gang_that_goes_while_it_is_being_bound_leaves_its_room() -> None:
    world = PlacedWorld(2, pod_clique_set([clique("a", 2)]), stumbles=False)
    while not world.pods() or any(pod.gated for pod in world.pods()):
        world.reconcile()
    world.following.follow()
    planned = world.following.plan(0.0)
    assert len(planned.bindings) == 2
    first, second = (world.view.pods[binding.pod] for binding in planned.bindings)
    world.view.remove(first)
    for binding in planned.bindings:
        world.following.bound(binding, 0.0)
    (gang,) = world.view.gangs.values()
    world.view.remove(gang)
    world.view.remove(second)
    assert not [one for one in world.following.report(planned, 0.0) if one.name == gang.name]
    world.following.follow()
    assert room(world.following) == {"n0": PODS_ON_A_NODE, "n1": PODS_ON_A_NODE}


def test_gangs_of_other_schedulers_are_left_alone_and_take_room() -> None:
    world = PlacedWorld(2, pod_clique_set([clique("a", 2)]), stumbles=False)
    world.following = FollowingScheduler(world.view, "windtunnel")
    world.run(1.0)
    assert {pod.node for pod in world.pods()} == {""}
    for pod in world.pods():
        pod.node = "n0"
        world.view.changed(pod)
    world.following.follow()
    assert room(world.following) == {"n0": 0, "n1": 2}


def test_a_pod_on_a_node_that_is_not_known_yet_is_counted_when_it_comes() -> None:
    world = PlacedWorld(1, pod_clique_set([clique("a", 1)]), stumbles=False)
    world.following.other_pod("x", "late", {})
    world.following.follow()
    assert not world.following._space.by_name["late"].usable
    world.server.add_node(new_node("late"), 0.0)
    world.following.follow()
    assert room(world.following) == {"n0": 2, "late": 1}
    world.following.other_pod("x", "", {})
    assert room(world.following) == {"n0": 2, "late": 2}


def usable(world: PlacedWorld) -> list[str]:
    return [one.name for one in world.following._space.nodes if one.usable]


def test_where_a_pod_takes_an_unknown_amount_nothing_more_is_placed() -> None:
    world = PlacedWorld(2, pod_clique_set([clique("a", 2)]), stumbles=False)
    world.following.other_pod("x", "n0", None)
    world.run(1.0)
    assert {pod.node for pod in world.pods()} == {"n1"}
    node = world.view.nodes["n0"]
    world.view.changed(node)
    world.following.follow()
    assert usable(world) == ["n1"], "a heartbeat does not free it"
    world.following.other_pod("x", "n0", {})
    assert usable(world) == ["n0", "n1"]
    assert room(world.following)["n0"] == 1


def test_a_gang_that_was_bound_in_part_is_evicted_where_the_rest_has_no_room() -> None:
    world = PlacedWorld(1, pod_clique_set([clique("a", 3)]), stumbles=False)
    world.following = FollowingScheduler(world.view, "other")
    world.run(1.0)
    half = world.pods()[0]
    half.node = "n0"
    world.view.changed(half)
    world.following = FollowingScheduler(world.view, SCHEDULER)
    world.following.follow()
    planned = world.following.plan(world.now_s)
    gone = [one for one in world.following.report(planned, world.now_s) if isinstance(one, Delete)]
    assert [one.name for one in gone] == [half.name]
    assert "bound in part" in gone[0].why
    world.server.add_node(new_node("n1"), world.now_s)
    world.following.follow()
    planned = world.following.plan(world.now_s)
    assert len(planned.bindings) == 2, "with room for the rest, it is completed"


def test_of_gangs_that_wait_alike_one_is_looked_at_when_a_node_joins() -> None:
    """And the next one when that one fits; the others say what they waited for a minute later."""
    manifest = pod_clique_set([clique("a", 3)], replicas=8)
    world = PlacedWorld(0, manifest, stumbles=False)
    world.run()
    gangs = world.view.gangs
    assert all("no nodes" in gang.why_pending for gang in gangs.values())
    world.server.add_node(new_node("n0"), world.now_s)
    world.run()
    needs = "it needs 3 pods of 80 MiB memory each"
    assert {gang.why_pending for gang in gangs.values()} == {f"{needs}; 2 fit on 1 node"}
    looked: list[tuple[int, int]] = []
    for number in range(1, 4):
        world.server.add_node(new_node(f"n{number}"), world.now_s)
        world.following.follow()
        planned = world.following.plan(world.now_s)
        looked.append((len(planned.requests), len(planned.behind)))
        for binding in planned.bindings:
            world.following.bound(binding, world.now_s)
        for command in world.following.report(planned, world.now_s):
            world.server.apply(command, world.now_s)
        world.run()
    assert looked == [(2, 1), (2, 1), (1, 1)]
    waiting = [gang.why_pending for gang in gangs.values() if gang.why_pending]
    assert len(waiting) == 6
    assert waiting.count(f"{needs}; 2 fit on 4 nodes") == 1
    world.now_s += 61.0
    world.server.add_node(new_node("tiny"), world.now_s)
    world.view.nodes["tiny"].cordoned = True
    world.following.look_again()
    world.run()
    assert len({gang.why_pending for gang in gangs.values() if gang.why_pending}) == 1


def test_room_that_becomes_free_while_pods_are_bound_is_seen_by_the_next_pass() -> None:
    world = PlacedWorld(2, pod_clique_set([clique("a", 2)], replicas=2), stumbles=False)
    others = [f"o{number}" for number in range(PODS_ON_A_NODE)]
    for name in others:
        world.following.other_pod(name, "n0", {})
    while len(world.pods()) < 4 or any(pod.gated for pod in world.pods()):
        world.reconcile()
    world.following.follow()
    planned = world.following.plan(0.0)
    assert [binding.node for binding in planned.bindings] == ["n1", "n1"]
    for binding in planned.bindings:
        world.following.bound(binding, 0.0)
    for name in others:
        world.following.other_pod(name, "", {})
    for command in world.following.report(planned, 0.0):
        world.server.apply(command, 0.0)
    world.following.follow()
    assert world.following.is_due(0.0)
    world.run()
    assert Counter(pod.node for pod in world.pods()) == {"n0": 2, "n1": 2}


def test_gangs_get_room_behind_one_that_is_no_longer_of_their_kind() -> None:
    manifests = {name: pod_clique_set([clique("a", 2)], name=name) for name in "bcde"}
    world = PlacedWorld(0, manifests["b"], stumbles=False)
    for manifest in list(manifests.values())[1:]:
        one = load(manifest).sets[0]
        world.server.add_set(one.name, one.spec, 0.0)
    world.run()
    assert world.pending() == 8
    world.server.add_node(Node("small", {"pods": 1.0, "memory": 1e9}, {}), 0.0)
    world.run()
    assert world.pending() == 8
    world.scale("b", 0)
    world.run()
    manifests["c"]["metadata"]["annotations"] = {REUSE: "true"}
    world.apply(manifests["c"])
    for number in range(4):
        world.server.add_node(new_node(f"n{number}"), 0.0)
    world.run()
    assert len(world.pods()) == 6
    assert world.pending() == 0


def test_a_gang_for_which_others_may_not_make_way_holds_no_room() -> None:
    """Others of a lower priority use it meanwhile; what says why it waits names who is kept."""
    world = PlacedWorld(3, pod_clique_set([clique("a", 2)], name="low"), stumbles=False)
    world.view.priorities["urgent"] = 10
    world.run()
    urgent = pod_clique_set([clique("a", 6)], name="high", priorityClassName="urgent")
    for manifest in (urgent, pod_clique_set([clique("a", 2)], name="late")):
        one = load(manifest).sets[0]
        world.server.add_set(one.name, one.spec, world.now_s)
    while len(world.pods()) < 10 or any(pod.gated for pod in world.pods()):
        world.reconcile()
    following, now_s = world.following, world.now_s
    following.follow()
    planned = following.plan(now_s)
    kept = [one.pod for one in planned.done.evictions]
    assert len(kept) == 2
    following.not_evicted(planned, "high-0", kept, now_s + 5.0, "a budget says no")
    for command in following.report(planned, now_s):
        world.server.apply(command, now_s)
    says = "pods of low-0 would make way, and may not be evicted: a budget says no"
    high = world.view.gangs["high-0"]
    assert high.why_pending == says
    assert following.is_due(now_s)
    world.run()
    assert [world.running(f"{name}-0-a") for name in ("low", "late", "high")] == [2, 2, 0]
    assert high.why_pending == says
    # They are asked again later, and so are those that came in between.
    assert following.again_s == now_s + 5.0
    world.now_s = now_s + 5.0
    following.follow()
    assert following.is_due(world.now_s)
    assert len(following.plan(world.now_s).done.evictions) == 4
