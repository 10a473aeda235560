"""Anything may happen in any order, and the controller may be stopped after any command.

Whatever happened: no gang is partly admitted, nothing is killed before its time, a settled cluster
is left alone, and once it is quiet and has room everything runs at the newest revision.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.gangs.manifests import clique, group, pod_clique_set
from tests.gangs.world import World
from windtunnel.gangs.commands import Delete, PatchStatus
from windtunnel.gangs.controllers.conditions import BREACHED
from windtunnel.gangs.controllers.controller import Controller, reconcile
from windtunnel.gangs.statuses import GroupStatus, SetStatus

DELAY_S = 60.0
NODES = 60


@st.composite
def manifests(draw: st.DrawFn) -> dict[str, Any]:
    def counts(most: int) -> tuple[int, int]:
        replicas = draw(st.integers(1, most))
        return replicas, draw(st.integers(1, replicas))

    roles = [clique(name, *counts(2)) for name in "abc"]
    groups = [group("g", ["b", "c"], *counts(2))]
    rolling: dict[str, Any] = {}
    if draw(st.booleans()):
        rolling = {"maxSurge": draw(st.integers(0, 2)), "maxUnavailable": draw(st.integers(1, 2))}
    strategy = {"type": draw(st.sampled_from(["RollingRecreate", "Coherent"]))}
    startup = draw(st.sampled_from(["AnyOrder", "InOrder"]))
    return pod_clique_set(
        roles,
        groups,
        draw(st.integers(1, 2)),
        strategy={**strategy, "rollingUpdate": rolling},
        terminationDelay=f"{DELAY_S:g}s",
        cliqueStartupType=f"CliqueStartupType{startup}",
        onAllScheduledLost=draw(st.sampled_from(["Hold", "Terminate"])),
    )


class Cluster(RuleBasedStateMachine):
    """A set, a small cluster, and a controller that crashes."""

    @initialize(manifest=manifests(), nodes=st.integers(0, 20), whole=st.booleans())
    def start(self, manifest: dict[str, Any], nodes: int, whole: bool) -> None:
        self.manifest, self.version = manifest, 0
        self.world = World(NODES, manifest, gangs=whole)
        self.world.cordon_all_but(nodes)

    @rule(seconds=st.sampled_from([0.0, 1.0, 30.0, 59.0, 61.0, 200.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.world.run(seconds)

    @rule(most=st.integers(0, 12))
    def stop_after_some_commands(self, most: int) -> None:
        self.world.reconcile(most)
        self.world.crash()

    @rule(cuts=st.lists(st.integers(0, 9), min_size=1, max_size=8))
    def stumble_along(self, cuts: list[int]) -> None:
        """Time after time the controller gets a little way, while the cluster goes on."""
        for most in cuts:
            self.world.round(most)
            self.world.crash()

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.manifest["spec"]["updateStrategy"]["paused"] = paused
        self.manifest["spec"]["replicas"] = self.world.view.sets["web"].replicas
        self.world.apply(self.manifest)

    @rule(number=st.integers(0, 100), shut=st.booleans())
    def lose_a_pod(self, number: int, shut: bool) -> None:
        pods = self.world.pods()
        if pods:
            self.world.kill(pods[number % len(pods)], shut=shut)

    @rule(number=st.integers(0, 100))
    def fail_a_pod(self, number: int) -> None:
        pods = [pod for pod in self.world.pods() if pod.ready]
        if pods:
            pod = pods[number % len(pods)]
            pod.ready, pod.phase = False, "Failed"
            self.world.view.changed(pod)

    @rule(count=st.integers(0, 20))
    def cordon(self, count: int) -> None:
        self.world.cordon_all_but(count)

    @rule(number=st.integers(0, 100), replicas=st.integers(0, 3))
    def scale(self, number: int, replicas: int) -> None:
        found = self.world.scalable()
        kind, name, minimum = found[number % len(found)]
        if kind == "PodCliqueSet":
            self.world.scale(name, min(replicas, 2))
        elif replicas == 0 or replicas >= minimum:
            self.world.scale(name, replicas)

    @rule(numbers=st.sets(st.integers(0, 2), min_size=1))
    def change_templates(self, numbers: set[int]) -> None:
        self.version += 1
        for number in sorted(numbers):
            labels = {"version": str(self.version)}
            self.manifest["spec"]["template"]["cliques"][number]["labels"] = labels
        self.manifest["spec"]["replicas"] = self.world.view.sets["web"].replicas
        self.world.apply(self.manifest)

    @rule()
    def watched_pass(self) -> None:
        """One pass of which every termination is held to the clock."""
        world = self.world
        for command in world.controller.reconcile(world.now_s):
            if not isinstance(command, PatchStatus):
                assert not isinstance(command, Delete) or command.why
            elif isinstance(command.status, SetStatus):
                fresh = set(command.status.recycled) - set(
                    world.view.sets[command.name].status.recycled
                )
                for replica in fresh:
                    self.was_due(replica)
            elif isinstance(command.status, GroupStatus):
                before = world.view.groups[command.name].status.recycled
                fresh = set(command.status.recycled) - set(before)
                members = world.view.groups[command.name].cliques
                for index in fresh:
                    assert any(self.overdue(one) for one in members[index].values())
            world.server.apply(command, world.now_s)

    def overdue(self, thing: Any) -> bool:
        condition = thing.conditions.get(BREACHED)
        if condition is None or condition.status != "True":
            return False
        scheduled = thing.status.first_scheduled_s >= 0.0
        return bool(scheduled and self.world.now_s - condition.since_s >= DELAY_S)

    def was_due(self, replica: int) -> None:
        part = self.world.view.sets["web"].parts[replica]
        things: list[Any] = [*part.cliques.values(), *part.groups.values()]
        for one in part.groups.values():
            things += [member for members in one.cliques.values() for member in members.values()]
        assert any(self.overdue(thing) for thing in things)

    @invariant()
    def indices_are_taken_once(self) -> None:
        if not hasattr(self, "world"):
            return
        for one in self.world.view.cliques.values():
            taken = [pod.index for pod in one.pods.values() if pod.active]
            assert len(taken) == len(set(taken))

    @invariant()
    def no_pod_is_let_through_before_its_gang_refers_to_it(self) -> None:
        if not hasattr(self, "world"):
            return
        view = self.world.view
        for pod in view.pods.values():
            if pod.gated or pod.terminating or pod.clique not in view.cliques:
                continue
            if view.cliques[pod.clique].uid != pod.clique_uid:
                continue
            assert pod.gang in view.gangs

    def teardown(self) -> None:
        """The cluster is quiet and has room: it converges, and is then left alone."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.open()
        self.pause(paused=False)
        world.run(DELAY_S * 3)
        assert world.pending() == 0
        owner = world.view.sets["web"]
        wanted = 0
        for replica in range(owner.replicas):
            part = owner.parts[replica]
            wanted += sum(one.replicas for one in part.cliques.values())
            for one in part.groups.values():
                assert sorted(one.cliques) == list(range(one.replicas))
                wanted += one.replicas * sum(owner.spec.roles[r].replicas for r in one.members)
        assert world.running() == len(world.pods()) == wanted
        assert all(
            pod.template_hash == owner.spec.roles[pod.template.name].hash for pod in world.pods()
        )
        assert not owner.status.updating
        assert owner.status.available == owner.status.updated == owner.replicas
        assert (owner.status.recycled, owner.status.scales) == ({}, {})
        assert world.controller.reconcile(world.now_s) == []
        assert reconcile(world.view, world.now_s) == []
        assert Controller(world.view).reconcile(world.now_s + 1e9) == []


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
