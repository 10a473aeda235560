"""Large cliques: nobody looks through all pods, and what is done is what a look at all gives."""

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gangs import reference
from windtunnel.core.loop import Loop
from windtunnel.gangs.commands import Command
from windtunnel.gangs.controllers import cliques
from windtunnel.gangs.controllers.controller import Controller
from windtunnel.gangs.objects import FAILED, GATE, PENDING, RUNNING, Node, Pod, PodClique, PodGang
from windtunnel.gangs.roster import BLOCK, Roster, roster_of
from windtunnel.gangs.statuses import CliqueStatus
from windtunnel.gangs.templates import (
    COHERENT,
    OFF,
    ROLLING_RECREATE,
    CliquePlace,
    CliqueTemplate,
    PodGroup,
    Rolling,
    SetSpec,
    Share,
    UpdateStrategy,
)
from windtunnel.twin.kubernetes.api_server import ApiServer
from windtunnel.twin.kubernetes.cluster import SimCluster
from windtunnel.twin.kubernetes.driver import Driver
from windtunnel.twin.kubernetes.times import PodTimes

GPU = "nvidia.com/gpu"


def template(size: int, version: str, minimum: int = 1) -> CliqueTemplate:
    image = {"containers": [{"name": "main", "image": version}]}
    return CliqueTemplate("w", size, minimum, image, {GPU: 1.0}, version)


# What a start and an update cost.


def clique_of(size: int, minimum: int, version: str, **rolling: Any) -> SetSpec:
    update = UpdateStrategy(rolling=Rolling(**rolling))
    role = template(size, version, minimum)
    return SetSpec(1, (role,), hash=version, termination_delay_s=OFF, update=update)


def starting(size: int, minimum: int, gpus: int, **rolling: Any) -> tuple[SimCluster, Loop]:
    """A clique whose pods are about to be placed, on nodes of so many GPUs."""
    server = ApiServer()
    cluster = SimCluster(server, times=PodTimes(startup=1.0, ending=1.0))
    for number in range(size // gpus + 1):
        cluster.add_node(Node(f"n{number}", {GPU: float(gpus)}, {}), 0.0)
    server.add_set("web", clique_of(size, minimum, "1", **rolling), 0.0)
    loop = Loop(Driver(cluster, Controller))
    return cluster, loop


def lines_of_start(size: int, gpus: int) -> float:
    """Lines of the gang layer that run while a clique starts, for each pod."""
    cluster, loop = starting(size, size, gpus)
    count = lines_of(loop)
    assert sum(pod.ready for pod in cluster.view.pods.values()) == size
    return count / size


def lines_of_update(size: int, **rolling: Any) -> float:
    """Lines of the gang layer that run while an update goes through a clique, for each pod."""
    cluster, loop = starting(size, size // 2, 8, **rolling)
    loop.wake()
    loop.run(1_000.0)
    cluster.server.change_spec("web", clique_of(size, size // 2, "2", **rolling))
    count = lines_of(loop)
    view = cluster.view
    assert {pod.template_hash for pod in view.pods.values()} == {"2"}
    assert len(view.pods) == size
    assert not view.sets["web"].status.updating
    return count / size


def lines_of(loop: Loop) -> int:
    """Lines of the gang layer that run until nothing is to be done."""
    count = 0

    def line(frame: FrameType, event: str, about: object) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def call(frame: FrameType, event: str, about: object) -> Any:
        return line if "/windtunnel/gangs/" in frame.f_code.co_filename else None

    sys.settrace(call)
    try:
        loop.wake()
        loop.run()
    finally:
        sys.settrace(None)
    return count


@pytest.mark.once
@pytest.mark.parametrize("gpus", [8, 1], ids=["shared", "whole"])
def test_a_start_costs_the_same_for_each_pod(gpus: int) -> None:
    """On nodes that pods share, and on nodes of which each pod takes a whole one: of 800 and of 100
    pods 0.9 times as much; 1.3 times where each node looks at all that were chosen before it."""
    assert lines_of_start(800, gpus) < 1.1 * lines_of_start(100, gpus)


@pytest.mark.once
@pytest.mark.parametrize("rolling", [{}, {"max_unavailable": Share(0), "max_surge": Share(1)}])
def test_an_update_pod_by_pod_costs_the_same_for_each_pod(rolling: dict[str, Any]) -> None:
    """Of 40 and of 160 pods: 1.04 times as much; twice as much where all are looked at."""
    assert lines_of_update(160, **rolling) < 1.2 * lines_of_update(40, **rolling)


# What is done.

pods = st.lists(
    st.tuples(
        st.sampled_from("ab"),  # its template
        st.sampled_from(["gated", "waits", "bound", "ready", "failed", "leaving", "foreign"]),
        st.floats(0.0, 3.0, width=16),  # when it was created
        st.integers(0, 9),  # its index
    ),
    max_size=12,
)
strategies = st.builds(
    UpdateStrategy,
    type=st.sampled_from([ROLLING_RECREATE, COHERENT]),
    rolling=st.builds(
        Rolling,
        max_unavailable=st.none() | st.builds(Share, st.integers(0, 3)),
        max_surge=st.builds(Share, st.integers(0, 2)),
    ),
    paused=st.sampled_from([False, False, True]),
)


def become(pod: Pod, state: str) -> None:
    pod.gates = {"gated": [GATE], "foreign": ["other"]}.get(state, [])
    pod.node = "" if state in ("gated", "waits", "foreign") else "n"
    pod.phase = {"failed": FAILED, "ready": RUNNING}.get(state, PENDING)
    pod.ready = state == "ready"
    pod.deleted_s = 9.0 if state == "leaving" else -1.0


def said(commands: list[Command]) -> list[tuple[object, ...]]:
    return [
        (type(one).__name__, one.name, getattr(one, "why", ""), getattr(one, "index", -1))
        for one in commands
    ]


@given(
    pods,
    strategies,
    st.integers(0, 8),
    st.integers(0, 8),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 11), st.sampled_from(["ready", "bound", "gone"]))),
)
def test_what_is_done_is_what_a_look_at_all_pods_gives(
    made: list[tuple[str, str, float, int]],
    update: UpdateStrategy,
    replicas: int,
    peak: int,
    updating: bool,
    later: list[tuple[int, str]],
) -> None:
    server = ApiServer()
    view = server.view
    owner = server.add_set("web", SetSpec(1, (template(4, "b"),), hash="b", update=update), 0.0)
    place = CliquePlace("web", 0, "web-0")
    clique = PodClique("web-0-w", place, template(4, "a"), replicas)
    gang = PodGang("web-0", "web", 0)
    clique.uid, gang.uid = "c", "g"
    clique.owner_uid = gang.owner_uid = owner.uid
    clique.status = CliqueStatus(update_started_s=1.0 if updating else -1.0, update_peak=peak)
    gang.groups = (PodGroup(clique.name, 1, None, roster_of(f"p{n}" for n in range(0, 12, 2))),)
    view.put(clique)
    view.put(gang)
    for number, (version, state, created_s, index) in enumerate(made):
        clique.template = template(4, version)
        pod = Pod(f"p{number}", clique, index)
        pod.uid, pod.created_s = f"u{number}", created_s
        clique.template = template(4, "a")
        become(pod, state)
        view.put(pod)
    clique.template = template(4, "b")
    clique.recount()
    for number, state in [(-1, ""), *later]:
        one = view.pods.get(f"p{number}")
        if one is not None and state == "gone":
            view.remove(one)
        elif one is not None:
            become(one, state)
            view.changed(one)
        commands: list[Command] = []
        cliques.act(view, owner, clique, commands)
        assert said(commands) == said(reference.act(view, owner, clique))
        active = [pod.name for pod in clique.pods.values() if pod.active]
        assert list(clique.pod_index.roster) == sorted(active)


# Rosters.


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4 * BLOCK)), max_size=8 * BLOCK))
def test_a_roster_is_a_sorted_list_of_names(steps: list[tuple[bool, int]]) -> None:
    roster, names = Roster(), set[str]()
    for number in range(0, 4 * BLOCK, 3):
        roster, names = roster.plus(f"{number:04}"), names | {f"{number:04}"}
    before, had = roster, set(names)
    for joins, number in steps:
        name = f"{number:04}"
        assert (name in roster) == (name in names)
        if joins and name not in names:
            roster = roster.plus(name)
            names.add(name)
        elif not joins and name in names:
            roster = roster.minus(name)
            names.remove(name)
    assert list(roster) == sorted(names)
    assert len(roster) == len(names)
    assert roster == roster_of(names)
    assert hash(roster) == hash(roster_of(names))
    assert (roster == before) == (names == had)
    assert before.until(roster) == (sorted(had - names), sorted(names - had))
    assert all(0 < len(block) <= 2 * BLOCK for block in roster.blocks)
