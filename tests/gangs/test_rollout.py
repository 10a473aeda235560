"""Coherent updates, and going back to an earlier revision."""

from collections import Counter
from typing import Any

import pytest

from tests.gangs.manifests import clique, group, pod_clique_set, workload
from tests.gangs.test_scenarios_updates import ROLES, changed, is_new, is_over
from tests.gangs.world import World
from windtunnel.gangs.commands import Create, CreatePod, Delete
from windtunnel.gangs.controllers.rollout import coherent_steps, takeable
from windtunnel.gangs.kubernetes.published import published
from windtunnel.gangs.objects import CLIQUE


def test_the_documented_example_of_coherent_steps() -> None:
    """F 10 (min 2), P 10 (3), D 20 (3): three steps of 3F 3P 6D, and 1F 1P 2D are left over."""
    steps = coherent_steps([(10, 2), (10, 3), (20, 3)])
    assert steps == [[3, 3, 6], [6, 6, 12], [9, 9, 18], [10, 10, 20]]


@pytest.mark.parametrize(
    ("sizes", "steps"),
    [
        ([(2, 2)], [[2]]),
        ([(4, 1), (4, 2)], [[2, 2], [4, 4]]),
        ([(1, 1), (9, 3)], [[1, 9]]),
        ([], []),
    ],
)
def test_coherent_steps(sizes: list[tuple[int, int]], steps: list[list[int]]) -> None:
    assert coherent_steps(sizes) == steps


@pytest.mark.parametrize(
    ("available", "peak", "replicas", "minimum", "down", "count"),
    [
        (2, 2, 2, 2, 1, 1),
        (1, 2, 2, 2, 1, 0),  # below the minimum
        (1, 2, 2, 1, 1, 0),  # one is down already
        (6, 6, 10, 2, 1, 1),  # the cluster never had room for ten
        (5, 6, 10, 2, 1, 0),
        (3, 3, 2, 1, 0, 1),  # one above the replicas stands in
        (4, 4, 4, 1, 2, 2),
        (0, 0, 3, 1, 1, 0),
    ],
)
def test_how_many_may_be_taken(
    available: int, peak: int, replicas: int, minimum: int, down: int, count: int
) -> None:
    assert takeable(available, peak, replicas, minimum, down) == count


def test_a_coherent_update_keeps_new_and_old_complete() -> None:
    roles = [clique("front", 4, 1), clique("prefill", 1), clique("decode", 1)]
    groups = [group("p", ["prefill"], 4, 2), group("d", ["decode"], 8, 2)]
    manifest = pod_clique_set(roles, groups, strategy={"type": "Coherent"})
    world = World(16, manifest).run()
    assert world.running() == 16
    seen: set[tuple[int, int, int]] = set()

    def look() -> None:
        new = [pod for pod in world.pods() if pod.template.labels.get("version") == "2"]
        ready = [pod for pod in new if pod.ready]
        counts = [
            sum(1 for pod in ready if pod.template.name == role)
            for role in ("front", "prefill", "decode")
        ]
        seen.add((counts[0], counts[1], counts[2]))
        touched = [
            sum(1 for pod in new if pod.template.name == role) for role in ("prefill", "decode")
        ]
        # Half of everything first: prefill never runs ahead of decode by more than a step.
        assert touched[0] <= 2 or counts[2] >= 4
        assert touched[1] <= 4 or counts[1] >= 2

    world.watching.append(look)
    for number in range(3):
        manifest["spec"]["template"]["cliques"][number]["labels"] = {"version": "2"}
    world.apply(manifest)
    world.run()
    assert is_over(world)
    assert (2, 2, 4) in seen
    assert all(pod.template.labels for pod in world.pods())


def test_a_set_replica_stays_at_its_revision_until_its_turn_in_a_coherent_update() -> None:
    manifest = workload(1, replicas=2)
    manifest["spec"]["updateStrategy"] = {"type": "Coherent"}
    world = World(28, manifest).run()
    world.startable = lambda pod: not is_new(pod)
    world.apply(changed(manifest, *ROLES))
    world.run()
    assert world.view.sets["web"].status.turns == (0,)
    world.kill(world.pods("web-1-pc-a")[0], shut=False)
    world.scale("web-1-sg-x", 3)
    world.run()
    assert not any(is_new(pod) for pod in world.pods("web-1"))
    assert world.running("web-1") == 14
    world.startable = lambda _: True
    world.run()
    assert is_over(world)
    assert all(is_new(pod) for pod in world.pods())


def test_an_update_says_since_when_each_set_replica_is_updated() -> None:
    manifest = workload(1, replicas=2)
    world = World(28, manifest).run()
    world.apply(changed(manifest, *ROLES))
    began: dict[int, str] = {}

    def look() -> None:
        world.now_s += 1.0
        owner = world.view.sets["web"]
        made = published(world.view, owner, None, {}, {}, 1).get("updateProgress", {})
        for one in made.get("currentlyUpdating", []):
            assert (
                began.setdefault(one["replicaIndex"], one["updateStartedAt"])
                == one["updateStartedAt"]
            )

    world.watching.append(look)
    world.run()
    assert is_over(world)
    assert began[0] < began[1]


def test_going_back_is_an_update_and_so_many_revisions_are_kept() -> None:
    manifest = workload(1)
    manifest["spec"]["revisionHistoryLimit"] = 3
    world = World(10, manifest).run()
    hashes = {pod.clique: pod.template_hash for pod in world.pods()}
    world.startable = lambda pod: not is_new(pod)  # the new version never gets ready
    world.apply(changed(manifest, *ROLES))
    world.run(1000.0)
    assert not is_over(world)
    world.apply(manifest)
    world.run()
    assert is_over(world)
    assert {pod.clique: pod.template_hash for pod in world.pods()} == hashes
    assert world.running() == 10
    world.startable = lambda _: True
    for version in ("2", "3", "4"):
        world.apply(changed(manifest, "pc-a", version=version))
        world.run()
    owner = world.view.sets["web"]
    assert [revision.number for revision in owner.status.revisions] == [4, 5, 6]


def test_a_coherent_update_takes_along_what_an_earlier_one_left() -> None:
    manifest = workload(1)
    manifest["spec"]["updateStrategy"] = {"type": "Coherent"}
    world = World(10, manifest).run()
    for roles in (("pc-b",), ("pc-b", "pc-a")):  # the second changes pc-a alone
        world.apply(changed(manifest, *roles))
        world.reconcile()
    world.run()
    assert is_over(world)
    assert all(is_new(pod) for role in ("pc-a", "pc-b") for pod in world.pods(role))


@pytest.mark.parametrize("most", range(25))
def test_nothing_is_made_from_what_is_not_written_down(most: int) -> None:
    """A change right after the start, or one that is taken back, leaves nothing behind."""
    world = World(10, workload(1))
    world.reconcile(most)
    world.crash()
    world.apply(changed(workload(1), *ROLES))
    world.reconcile(most)
    world.crash()
    world.apply(workload(1))
    world.run()
    assert world.running() == 10
    assert not any(is_new(pod) for pod in world.pods())
    world.apply(changed(workload(1), "pc-a"))
    world.run()
    assert all(is_new(pod) for pod in world.pods("pc-a"))


class Stumbling(World):
    """Its API server fails to delete or to create some cliques, each once."""

    fails: frozenset[int] = frozenset()
    tries = 0

    def reconcile(self, most: int | None = None) -> int:
        commands = self.controller.reconcile(self.now_s)
        for command in commands[:most]:
            failed = False
            if isinstance(command, Delete | Create) and command.kind == CLIQUE:
                failed = self.tries in self.fails
                self.tries += 1
            if failed or not self.server.apply(command, self.now_s):
                self.controller.refused(command)
            else:
                self.commands.append(command)
        return len(commands)


def update_of(changed: str, fails: frozenset[int]) -> tuple[list[tuple[str, int]], int]:
    """The cliques after an update of some roles of a group, each by how often it was made, and how
    many pods were made."""

    def manifest(version: str) -> dict[str, Any]:
        roles = [clique("a"), clique("b"), clique("c", 2)]
        for role in roles:
            if role["name"] in changed:
                role["labels"] = {"version": version}
        return pod_clique_set(roles, [group("g", ["a", "b", "c"], 3, 1)])

    world = Stumbling(20, manifest("1"))
    world.run()
    world.fails, world.tries = fails, 0
    world.apply(manifest("2"))
    world.run(600.0)
    made = Counter(one.name for one in world.commands if isinstance(one, Create))
    pods = sum(isinstance(one, CreatePod) for one in world.commands)
    assert all(pod.ready for pod in world.pods())
    assert len(world.pods()) == 12
    return [(name, made[name]) for name in sorted(world.view.cliques)], pods


@pytest.mark.parametrize("changed", ["a", "b", "c", "bc", "abc"])
def test_a_replica_that_an_update_replaces_goes_whole_also_when_a_call_fails(
    changed: str,
) -> None:
    whole = update_of(changed, frozenset())
    assert [count for _, count in whole[0]] == [2] * 9
    for failed in range(20):
        assert update_of(changed, frozenset([failed])) == whole
        assert update_of(changed, frozenset([failed, failed + 1])) == whole
