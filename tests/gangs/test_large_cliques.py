"""Large cliques and scaling groups: what is done is what a look at all pods and replicas gives,
and costs what changed."""

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.gangs import reference
from windtunnel.core.loop import Loop
from windtunnel.gangs.commands import Command
from windtunnel.gangs.controllers import cliques, groups
from windtunnel.gangs.controllers.controller import Controller
from windtunnel.gangs.controllers.generation import new_group, new_member
from windtunnel.gangs.objects import FAILED, GATE, PENDING, RUNNING, Node, Pod, PodClique, PodGang
from windtunnel.gangs.roster import BLOCK, NameRoster, roster_of
from windtunnel.gangs.statuses import CliqueStatus, GroupStatus, SetStatus
from windtunnel.gangs.templates import (
    COHERENT,
    OFF,
    ROLLING_RECREATE,
    CliquePlace,
    CliqueTemplate,
    GroupTemplate,
    PodGroup,
    Portion,
    Rolling,
    SetSpec,
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


def group_of(size: int, version: str, **rolling: Any) -> SetSpec:
    """A scaling group of two roles of one pod each."""
    roles = tuple(
        CliqueTemplate(name, 1, 1, {"containers": []}, {GPU: 1.0}, version) for name in "ab"
    )
    update, group = UpdateStrategy(rolling=Rolling(**rolling)), GroupTemplate("g", ("a", "b"), size)
    return SetSpec(1, roles, (group,), hash=version, termination_delay_s=OFF, update=update)


def starting(spec: SetSpec, pods: int, gpus: int) -> tuple[SimCluster, Loop]:
    """A set whose pods are about to be placed, on nodes of so many GPUs."""
    server = ApiServer()
    cluster = SimCluster(server, times=PodTimes(startup=1.0, ending=1.0))
    for number in range(pods // gpus + 1):
        cluster.add_node(Node(f"n{number}", {GPU: float(gpus)}, {}), 0.0)
    server.add_set("web", spec, 0.0)
    loop = Loop(Driver(cluster, Controller))
    return cluster, loop


def lines_of_start(size: int, gpus: int) -> float:
    """Lines of the gang layer that run while a clique starts, for each pod."""
    cluster, loop = starting(clique_of(size, size, "1"), size, gpus)
    count = lines_of(loop)
    assert sum(pod.ready for pod in cluster.view.pods.values()) == size
    return count / size


def lines_of_update(before: SetSpec, after: SetSpec, pods: int) -> float:
    """Lines of the gang layer that run while an update goes through a set, for each pod."""
    cluster, loop = starting(before, pods, 8)
    loop.wake()
    loop.run(1_000.0)
    cluster.server.change_spec("web", after)
    count = lines_of(loop)
    view = cluster.view
    assert {pod.template_hash for pod in view.pods.values()} == {"2"}
    assert len(view.pods) == pods
    assert not view.sets["web"].status.updating
    return count / pods


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


ROLLING: list[dict[str, Any]] = [
    {},
    {"max_unavailable": Portion(0), "max_surge": Portion(1)},
]


@pytest.mark.once
@pytest.mark.parametrize("rolling", ROLLING)
def test_an_update_pod_by_pod_costs_the_same_for_each_pod(rolling: dict[str, Any]) -> None:
    """Of 40 and of 160 pods: 1.04 times as much; twice as much where all are looked at."""

    def lines(size: int) -> float:
        before, after = (clique_of(size, size // 2, version, **rolling) for version in "12")
        return lines_of_update(before, after, size)

    assert lines(160) < 1.2 * lines(40)


@pytest.mark.once
@pytest.mark.parametrize("rolling", ROLLING)
def test_an_update_of_a_scaling_group_costs_the_same_for_each_pod(rolling: dict[str, Any]) -> None:
    """Of 20 and of 80 replicas: as much; 1.9 times as much where all are looked at."""

    def lines(size: int) -> float:
        before, after = (group_of(size, version, **rolling) for version in "12")
        return lines_of_update(before, after, 2 * size)

    assert lines(80) < 1.1 * lines(20)


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
        max_unavailable=st.none() | st.builds(Portion, st.integers(0, 3)),
        max_surge=st.builds(Portion, st.integers(0, 2)),
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


@given(
    strategies,
    st.integers(0, 5),
    st.integers(0, 5),
    st.booleans(),
    st.lists(
        st.tuples(
            st.integers(0, 6),  # the replica
            st.sampled_from("ab"),
            st.sampled_from(["new", "old", "ready", "unready", "leaving", "gone", "terminated"]),
        ),
        max_size=40,
    ),
)
def test_what_is_done_to_a_group_is_what_a_look_at_all_replicas_gives(
    update: UpdateStrategy,
    replicas: int,
    peak: int,
    updating: bool,
    steps: list[tuple[int, str, str]],
) -> None:
    server = ApiServer()
    view = server.view
    spec = replace(group_of(4, "2"), update=update)
    owner = server.add_set("web", spec, 0.0)
    owner.status = SetStatus(update_started_s=1.0 if updating else -1.0, turns=(0,))
    group = new_group(owner, 0, spec.groups[0])
    group.uid, group.replicas = "g", replicas
    group.status = GroupStatus(update_started_s=owner.status.update_started_s, update_peak=peak)
    view.put(group)
    watch, tally = view.watch(), groups.GroupTally(owner, group)
    for number, (index, role, state) in enumerate(steps):
        clique = group.cliques.get(index, {}).get(role)
        if clique is None and state in ("new", "old"):
            version = "2" if state == "new" else "1"
            clique = new_member(owner, group, index, replace(spec.roles[role], hash=version))
            clique.uid = f"c{number}"
            if view.find(clique.kind, clique.name) is None:
                view.put(clique)
        elif state == "gone":
            leaving = view.cliques.get(f"web-0-g-{index}-{role}")
            if leaving is not None:
                view.remove(leaving)
        elif clique is not None and state in ("ready", "unready"):
            clique.status = CliqueStatus(ready=int(state == "ready"), scheduled=1, observed=True)
            view.changed(clique)
        elif clique is not None and state == "leaving":
            gone = clique.anew()
            gone.uid, gone.deleted_s = clique.uid, 5.0
            view.put(gone)
        elif state == "terminated" and index in group.cliques:
            incarnation = group.status.incarnations.get(index, 0) + 1
            group.status.incarnations = {**group.status.incarnations, index: incarnation}
            group.status.recycled = {**group.status.recycled, index: incarnation}
        tally.stale.update(watch.members.pop(group.name, {}))
        tally.refresh()
        commands: list[Command] = []
        groups.act(view, owner, group, tally, commands)
        if commands or tally.old or group.status.recycled:  # else it did not look
            assert said(commands) == said(reference.act_on_group(view, owner, group))


# Rosters.


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4 * BLOCK)), max_size=8 * BLOCK))
def test_a_roster_is_a_sorted_list_of_names(steps: list[tuple[bool, int]]) -> None:
    roster, names = NameRoster(), set[str]()
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
