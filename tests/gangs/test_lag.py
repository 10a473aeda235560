"""The gang controllers on a read cache that lags, with late creates and slow deletes."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gangs.lagging import LaggingWorld
from tests.gangs.manifests import clique, group, pod_clique_set
from tests.gangs.world import World
from windtunnel.gangs.commands import Create, CreatePod, Delete
from windtunnel.gangs.objects import CLIQUE

NODES = 60
Step = tuple[str, int, int]


def manifest(version: int = 0) -> dict[str, Any]:
    roles = [clique("a", 2, 1), clique("b", 2, 2), clique("c", 1, 1)]
    if version:
        roles[1]["labels"] = {"version": str(version)}
    return pod_clique_set(roles, [group("g", ["b", "c"], 2, 1)], 2, terminationDelay="60s")


def outcome(world: World) -> dict[str, Any]:
    """All that is left in the end, apart from names and ids that an API server issues."""
    view = world.view
    pods: dict[str, list[Any]] = {}
    for pod in world.pods():
        pods.setdefault(pod.clique, []).append((pod.index, pod.template_hash, pod.ready, pod.gates))
    return {
        "sets": [(s.name, s.replicas, s.status.available, s.status.updated, s.status.revision)
                 for s in view.sets.values()],
        "cliques": sorted((c.name, c.replicas, c.template.hash, c.status.ready, c.status.scheduled)
                          for c in view.cliques.values()),
        "groups": sorted((g.name, g.replicas, g.status.available) for g in view.groups.values()),
        "gangs": sorted((g.name, g.phase, [(p.name, p.min_replicas, len(p.pods)) for p in g.groups])
                        for g in view.gangs.values()),
        "attachments": sorted(name for known in view.attachments.values() for name in known),
        "pods": pods,
    }  # fmt: skip


def play(world: World, steps: list[Step]) -> dict[str, Any]:
    """What people and bad luck do to a cluster, and what is left once it is quiet.

    People act on what they see, so they wait until it is quiet; controllers crash in between.
    """
    for number, (what, which, count) in enumerate(steps):
        if what in ("scale", "kill", "update"):
            world.run(200.0)
        if what == "scale":
            found = world.scalable()
            kind, name, minimum = found[which % len(found)]
            if count == 0 or count >= minimum:
                world.scale(name, min(count, 2) if kind == "PodCliqueSet" else count)
        elif what == "kill":
            pods = world.pods()
            if pods:
                world.kill(pods[which % len(pods)], shut=False)
        elif what == "update":
            changed = manifest(number + 1)
            changed["spec"]["replicas"] = world.view.sets["web"].replicas
            world.apply(changed)
        elif what == "crash" and isinstance(world, LaggingWorld):
            world.round(count)
            world.crash()
        world.run(float(which % 3))
    world.run(1_000.0)
    return outcome(world)


steps_of = st.lists(
    st.tuples(
        st.sampled_from(["scale", "kill", "update", "crash", "wait"]),
        st.integers(0, 50),
        st.integers(0, 3),
    ),
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(steps=steps_of, lag_s=st.sampled_from([0.1, 1.0, 7.0]), hold_s=st.sampled_from([0.0, 5.0]))
def test_lag_and_crashes_change_nothing_about_the_end(
    steps: list[Step], lag_s: float, hold_s: float
) -> None:
    prompt = play(World(NODES, manifest()).run(), steps)
    lagging = LaggingWorld(NODES, manifest(), lag_s=lag_s, hold_s=hold_s)
    lagging.run(100.0)
    assert play(lagging, steps) == prompt
    assert lagging.controller.reconcile(lagging.now_s) == []
    lagging.crash()
    assert lagging.controller.reconcile(lagging.now_s) == [], "a restarted controller agrees"


@pytest.mark.parametrize("lag_s", [5.0, 30.0])
def test_no_pod_is_created_twice_while_the_first_is_not_seen(lag_s: float) -> None:
    world = LaggingWorld(NODES, manifest(), lag_s=lag_s, hold_s=0.0)
    for _ in range(300):
        world.round()
        world.round()
        world.now_s += lag_s / 20
    created = [one for one in world.commands if isinstance(one, CreatePod)]
    assert (
        len(created) == len({(one.clique.uid, one.index) for one in created}) == len(world.pods())
    )


@pytest.mark.parametrize("change", ["update", "scale"])
def test_a_clique_that_is_deleted_gets_no_pods(change: str) -> None:
    """An operator was killed after it deleted pods of a clique, and before the clique itself."""
    world = World(NODES, manifest()).run(10.0)
    if change == "update":
        world.apply(manifest(1))
    else:
        world.scale("web", 1)
    gone: set[str] = set()
    for _ in range(50):
        commands = world.controller.reconcile(world.now_s)
        going = {one.name for one in commands if isinstance(one, Delete) and one.kind == CLIQUE}
        if going - gone:
            gone |= going
            world.kill(*(pod for pod in world.pods() if pod.clique in going), shut=False)
            world.crash()
            commands = world.controller.reconcile(world.now_s)
            made = {one.clique.name for one in commands if isinstance(one, CreatePod)}
            assert not going & made
        for command in commands:
            if not world.server.apply(command, world.now_s):
                world.controller.refused(command)
        world.round()
    assert gone


def test_a_refused_command_is_asked_for_again() -> None:
    world = LaggingWorld(NODES, manifest(), lag_s=0.5, hold_s=0.0)
    while not any(isinstance(one, CreatePod) for one in world.commands):
        world.run(0.5)
        commands = world.controller.reconcile(world.now_s)
        for command in commands:
            if isinstance(command, CreatePod):
                world.commands.append(command)
                world.controller.refused(command)
            else:
                world.server.apply(command, world.now_s)
    world.run(50.0)
    assert world.running() == len(world.pods()) == 16


@pytest.mark.parametrize("before", [0, 1])
def test_a_set_replica_of_which_nothing_could_be_created_is_asked_for_again(before: int) -> None:
    world = World(NODES, pod_clique_set([clique("a", 2)], replicas=before)).run(10.0)
    world.scale("web", before + 1)
    refused = 0
    while not refused:
        commands = world.controller.reconcile(world.now_s)
        for command in commands:
            if isinstance(command, Create):
                refused += 1
                world.controller.refused(command)
            else:
                assert world.server.apply(command, world.now_s)
    assert before not in world.view.sets["web"].parts
    world.run(10.0)
    assert world.running() == 2 * (before + 1)


def test_a_clique_that_is_being_deleted_keeps_its_name_until_it_is_gone() -> None:
    world = LaggingWorld(NODES, manifest(), lag_s=0.5, hold_s=30.0)
    world.run(20.0)
    old = world.view.cliques["web-0-a"]
    world.server.apply(Delete(old, "test"), world.now_s)
    world.run(10.0)
    assert world.view.cliques["web-0-a"] is old
    assert old.terminating
    world.run(60.0)
    assert world.view.cliques["web-0-a"] is not old
    assert world.running("web-0-a") == 2
    assert world.view.find(CLIQUE, "web-0-a") is world.view.cliques["web-0-a"]


@pytest.mark.parametrize("forbidden", ["windtunnel.twin", "windtunnel.engine"])
def test_controllers_and_placement_run_without(forbidden: str) -> None:
    script = f"""
import sys
from tests.gangs.lagging import LaggingWorld
from tests.gangs.test_lag import manifest
from windtunnel.gangs.placement.placer import GangPlacer
from windtunnel.gangs.placement.scheduler import GangScheduler
from windtunnel.gangs.placement.space import Space

world = LaggingWorld(0, manifest(), lag_s=1.0, hold_s=2.0)
space = Space()
scheduler = GangScheduler(world.view, space, GangPlacer(space), whole=True)
changes = world.view.watch()
from windtunnel.gangs.objects import Node
for number in range(20):
    node = Node(f"n{{number}}", {{"pods": 1.0, "memory": 2.0**30}}, {{}})
    world.server.add_node(node, 0.0)
    scheduler.add_node(node)
    node.cordoned = True  # for the world: pods are placed by the scheduler alone
bound = 0
for _ in range(60):
    world.run(1.0)
    scheduler.absorb(changes)
    changes.clear()
    planned = scheduler.plan(world.now_s)
    for binding in planned.bindings:
        pod = world.view.pods[binding.pod]
        pod.node, pod.scheduled_s = binding.node, world.now_s
        world.taken[pod.node] = pod.name
        world.server.wrote(pod)
        bound += 1
    for command in [*planned.settled, *scheduler.report(planned, world.now_s)]:
        world.server.apply(command, world.now_s)
assert bound == world.running() == 16, (bound, world.running())
assert world.view.sets["web"].status.available == 2
found = [name for name in sys.modules if (name + ".").startswith("{forbidden}.")]
assert not found, found
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)  # noqa: PLW1510
    assert done.returncode == 0, done.stderr
