"""Whatever people, machines and crashes do: gangs stay whole, delays are kept, all comes to rest.

A random set on a random cluster is scaled, changed, cordoned, broken and mended, and its controller
crashes between any two commands. The invariants of the cluster are checked after every event. In
the end all is mended, and the cluster must be as the set asks, with nothing left to do.
"""

import re
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.gangs.manifests import binding, clique, constraint, group, pod_clique_set
from tests.gangs.scenarios.live import QUICK, Live
from tests.twin.kubernetes.by_hand import crash_after
from windtunnel.gangs.commands import Scale
from windtunnel.gangs.objects import CLIQUE, GROUP, SET
from windtunnel.gangs.statuses import ObjectEvent

DELAY_S = 30.0
ENOUGH_S = 3_000.0
"""For everything that is still to happen, once nothing is broken any more."""
TORN_DOWN = "PodCliqueSetReplicaDeleteSuccessful"
GROUP_TORN_DOWN = "PodCliqueScalingGroupReplicaDeleteSuccessful"

DUE = ("MinAvailableBreached", "GangStranded")
"""Conditions for which a gang is terminated after its delay."""

RIVALS = ["none", "above", "below"]
"""Another set, with a priority above or below."""

STRATEGIES = [
    None,
    {"type": "OnDelete"},
    {"type": "Coherent"},
    {"type": "RollingRecreate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 2}},
]

_TERM = {"labelSelector": {"matchLabels": {"app.kubernetes.io/part-of": "web"}}}
_ON_ONE_HOST = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {**_TERM, "topologyKey": "kubernetes.io/hostname"}
    ]
}
_IN_ONE_RACK = {
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {**_TERM, "topologyKey": "rack-key"}}
    ]
}
AFFINITIES: list[dict[str, Any]] = [
    {"podAntiAffinity": _ON_ONE_HOST},
    {"podAntiAffinity": _IN_ONE_RACK},
    {"podAffinity": _IN_ONE_RACK},
]
"""Pods that keep away from all pods of their set, or would rather be, or not be, in one rack."""

counts = st.integers(1, 3)


@st.composite
def manifests(draw: st.DrawFn) -> dict[str, Any]:
    """Up to two lone cliques and a scaling group of up to two more."""

    def role(name: str) -> dict[str, Any]:
        replicas = draw(counts)
        made = clique(name, replicas, draw(st.integers(1, replicas)))
        affinity = draw(st.sampled_from([None, None, *AFFINITIES]))
        if affinity is not None:
            made["spec"]["podSpec"]["affinity"] = affinity
        return made

    lone = [role(f"a{number}") for number in range(draw(st.integers(0, 2)))]
    members = [role(f"m{number}") for number in range(draw(st.integers(0 if lone else 1, 2)))]
    groups = []
    if members:
        replicas = draw(counts)
        names = [member["name"] for member in members]
        groups = [group("g", names, replicas, draw(st.integers(1, replicas)))]
        if draw(st.booleans()):
            groups[0]["topologyConstraint"] = constraint("", "rack", "topo")
    template: dict[str, Any] = {"terminationDelay": f"{DELAY_S:.0f}s"}
    if draw(st.booleans()):
        template["cliqueStartupType"] = "CliqueStartupTypeInOrder"
    if draw(st.booleans()):
        template["onAllScheduledLost"] = "Terminate"
    if draw(st.integers(0, 2)) == 0:
        template["topologyConstraint"] = constraint("zone", "", "topo")
    strategy = draw(st.sampled_from(STRATEGIES))
    made = pod_clique_set([*lone, *members], groups, draw(counts), strategy=strategy, **template)
    returns = draw(st.sampled_from(["true", "false"]))
    made["metadata"]["annotations"] = {"windtunnel.dev/reuse-placement": returns}
    return made


def labels(number: int) -> dict[str, str]:
    return {"zone-key": "z", "rack-key": f"r{number // 4}"}


class Anything(RuleBasedStateMachine):
    """One set on one cluster, to which anything may happen."""

    @initialize(manifest=manifests(), nodes=st.integers(3, 16), rival=st.sampled_from(RIVALS))
    def begin(self, manifest: dict[str, Any], nodes: int, rival: str) -> None:
        topology = binding("topo", zone="zone-key", rack="rack-key")
        other = pod_clique_set([clique("r", 3, 2)], name="rival", priorityClassName=rival)
        found = [manifest, topology] if rival == "none" else [manifest, topology, other]
        ranks = {"above": 10, "below": -10}
        self.live = Live(*found, nodes=nodes, labels=labels, times=QUICK, priorities=ranks)
        self.view, self.cluster = self.live.view, self.live.cluster
        self.crashing: list[str] = []
        self.stuck: list[str] = []
        self.cluster.holds = lambda pod: pod.name in self.stuck
        self.images = 1
        self.breached: dict[tuple[str, str], float] = {}
        self.told: set[str] = set()

    # Anything may happen.

    @rule(seconds=st.sampled_from([0.5, 5.0, 20.0, 40.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        until_s = self.live.now_s + seconds
        self.live.loop.wake()
        self.look()
        while self.live.loop.step(until_s):
            self.look()
        self.live.loop.run(until_s)

    @rule(data=st.data())
    def scale(self, data: st.DataObject) -> None:
        names = [(SET, name, 0) for name in self.view.sets]
        names += [(GROUP, one.name, one.min_available) for one in self.view.groups.values()]
        names += [
            (CLIQUE, one.name, one.min_available)
            for one in self.view.cliques.values()
            if not one.group
        ]
        kind, name, least = data.draw(st.sampled_from(names))
        self.cluster.apply([Scale(kind, name, data.draw(st.integers(least, 3)))], self.live.now_s)

    @rule(data=st.data())
    def machines_change(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.view.nodes)))
        deeds = [self.cluster.cordon, self.cluster.uncordon, self.cluster.drain,
                 self.cluster.fail, self.cluster.recover]  # fmt: skip
        data.draw(st.sampled_from(deeds))(node, self.live.now_s)

    @rule(data=st.data(), shut=st.booleans())
    def pods_are_lost(self, data: st.DataObject, *, shut: bool) -> None:
        """Some pods of a clique; nodes without pods may be shut, so that none of them returns."""
        cliques = sorted({pod.clique for pod in self.live.pods()})
        if not cliques:
            return
        pods = self.live.pods(data.draw(st.sampled_from(cliques)))
        held = {pod.node for pod in self.live.pods()}
        for pod in pods[: data.draw(st.integers(1, 2))]:
            held.discard(pod.node)
            self.cluster.delete_pod(pod.name, self.live.now_s)
        for node in self.view.nodes if shut else []:
            if node not in held:
                self.cluster.cordon(node, self.live.now_s)

    @rule(data=st.data())
    def a_pod_gets_stuck(self, data: st.DataObject) -> None:
        pods = [pod.name for pod in self.live.pods() if pod.scheduled]
        if pods:
            name = data.draw(st.sampled_from(pods))
            self.stuck.append(name)

    @rule(data=st.data())
    def containers_crash(self, data: st.DataObject) -> None:
        if self.view.cliques:
            name = data.draw(st.sampled_from(sorted(self.view.cliques)))
            self.cluster.crash_loop(name, self.live.now_s)
            self.crashing.append(name)

    @rule(data=st.data())
    def templates_change(self, data: st.DataObject) -> None:
        roles = range(len(self.live.manifests[0]["spec"]["template"]["cliques"]))
        self.images += 1
        changed = data.draw(st.lists(st.sampled_from(roles), min_size=1, max_size=2, unique=True))
        self.live.manifests[0]["spec"]["replicas"] = self.view.sets["web"].replicas
        self.live.change(*changed, image=f"busybox:{self.images}", seconds=0.0)

    @rule(commands=st.integers(0, 12), times=st.integers(1, 3))
    def the_controller_crashes(self, commands: int, times: int) -> None:
        for _ in range(times):
            crash_after(self.live.driver, commands, self.live.now_s)

    # What must hold meanwhile.

    @invariant()
    def look(self) -> None:
        """Notes since when what is breached or stranded; nothing was torn down before its time."""
        if not hasattr(self, "live"):
            return
        now_s = self.live.now_s
        breached = dict[tuple[str, str], float]()
        for thing in [*self.view.cliques.values(), *self.view.groups.values()]:
            found = [
                thing.conditions.get(kind) for kind in ("MinAvailableBreached", "GangStranded")
            ]
            if any(condition is not None and condition.status == "True" for condition in found):
                key = (thing.name, thing.uid)
                breached[key] = self.breached.get(key, now_s)
        for event in self.view.events.values():
            if event.reason in (TORN_DOWN, GROUP_TORN_DOWN) and event.key not in self.told:
                self.told.add(event.key)
                oldest_s = min(self._breached_of(event), default=now_s)
                assert event.at_s >= oldest_s + DELAY_S, event.message
        self.breached = breached

    def _breached_of(self, event: ObjectEvent) -> list[float]:
        """Since when what is breached of the replica that an event tears down."""
        part = re.match(r"(?:Set r|R)eplica (\d+)", event.message)
        assert part is not None, event.message
        start = f"{event.name}-{part[1]}-"
        return [at_s for (name, _), at_s in self.breached.items() if name.startswith(start)]

    # What must come of it.

    def teardown(self) -> None:
        if not hasattr(self, "live"):
            return
        self.mend()
        self.live.run(ENOUGH_S)
        view, wanted = self.view, self.view.sets["web"]
        for other in view.sets.values():
            assert other.status.available == other.replicas
        parts = {
            at for at, part in wanted.parts.items() if part.cliques or part.groups or part.gangs
        }
        assert parts == set(range(wanted.replicas))
        for one in view.cliques.values():
            active = [pod for pod in one.pods.values() if pod.active]
            assert len(active) == one.replicas == len(one.pods), one.name
            assert all(pod.ready for pod in active), [
                gang.why_pending for gang in view.gangs.values()
            ]
        for one_group in view.groups.values():
            assert sorted(one_group.cliques) == list(range(one_group.replicas))
        assert not wanted.status.updating
        assert wanted.status.available == wanted.replicas
        assert not any(gang.why_pending for gang in view.gangs.values())
        self.nothing_left_to_do()

    def mend(self) -> None:
        """Everything is well again, and there is room for all."""
        now_s = self.live.now_s
        for name in self.crashing:
            self.cluster.mend(name)
        held = [name for name in self.stuck if name in self.view.pods]
        self.stuck.clear()
        for name in held:
            self.cluster.unstick(name, now_s)
        for node in self.view.nodes:
            self.cluster.recover(node, now_s)
            self.cluster.uncordon(node, now_s)
        self.live.grow(80, labels)

    def nothing_left_to_do(self) -> None:
        """Neither for the controller that is there, nor for one that has just started."""
        before = {pod.uid for pod in self.view.pods.values()}
        assert self.live.driver.settle(self.live.now_s) == 0
        self.live.driver.restart()
        assert self.live.driver.settle(self.live.now_s) == 0
        assert {pod.uid for pod in self.view.pods.values()} == before


TestAnything = Anything.TestCase
EXAMPLES = settings().max_examples // 2  # each of them is a story
TestAnything.settings = settings(max_examples=EXAMPLES, stateful_step_count=12, deadline=None)
