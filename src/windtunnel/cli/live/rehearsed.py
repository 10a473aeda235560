"""Converts a scenario to a rehearsal, and builds both sides of the comparison."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.analysis.rehearsal import RehearsalComparison, Side
from windtunnel.cli.live.emulate import EmulateOptions, build_intake, refuse_unemulated
from windtunnel.cli.live.observe import refuse_media, targets_of, traffic_of
from windtunnel.core import vocabulary
from windtunnel.core.errors import InputError
from windtunnel.core.random import Streams
from windtunnel.core.telemetry import Event
from windtunnel.fleet.demand.requests import GPU
from windtunnel.gangs import names
from windtunnel.gangs.objects import CLIQUE, GROUP, SET, Node, PodCliqueSet
from windtunnel.gangs.servers import READY, PoolPods
from windtunnel.live.emulate.app import build_app
from windtunnel.live.rehearse.cluster import Manifest, RehearsalObjects, RehearsedObject
from windtunnel.live.rehearse.control_plane import free_port
from windtunnel.live.rehearse.program import (
    MACHINE_LOSSES,
    PLAYED_FAULTS,
    RESTART,
    JoiningNode,
    LiveRun,
    PlayedChanges,
    PlayedFault,
    PlayedGateway,
    PlayedTraffic,
    Rehearsal,
    start_of,
)
from windtunnel.live.rehearse.servers import BuiltServer
from windtunnel.routing.settings import RouterSettings
from windtunnel.settings.document import read_text
from windtunnel.twin.compose import compose
from windtunnel.twin.faults.kinds.controllers import ControllerRestart
from windtunnel.twin.faults.world import AUTOSCALER, GANGS
from windtunnel.twin.infrastructure.cluster import ServingCluster
from windtunnel.twin.infrastructure.infrastructure import Infrastructure
from windtunnel.twin.infrastructure.settings import QUICK, GangsSettings
from windtunnel.twin.kubernetes.probes import pod_start
from windtunnel.twin.kubernetes.times import ClusterDice
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import document_of, load_document
from windtunnel.twin.simulation import Simulation
from windtunnel.workload.settings.sources import models_of

if TYPE_CHECKING:
    from windtunnel.twin.scenario.plan import ScenarioPlan

LONGEST_S = 3600.0
MOST_NODES = 500
SCHEDULER = "windtunnel"
JOINED = "machine.configured"
FAILED = "machine.failed"
OPERATED = (AUTOSCALER, GANGS)
"""Controllers that run in `operate`, which restarts both together."""
PLAIN_IMAGE = "server"
LIMITS_NOTE = (
    "manifests request accelerators without a limit, which an API server refuses: the rehearsal "
    "fills in `limits`"
)


class _Kept:
    """A sink that keeps all events of a simulation."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def wants(self, kind: str) -> bool:  # noqa: ARG002 - all of them
        return True

    def record(self, event: Event) -> None:
        self.events.append(event)


class DrawnPace:
    """Pod startup times drawn as in the simulation; 0 before the run begins."""

    def __init__(self, plan: ScenarioPlan) -> None:
        self._dice = ClusterDice(plan.pod_times.delays(plan.pod_load), Streams(plan.seed))
        self._dice.pace = 0.0

    def begin(self) -> None:
        self._dice.pace = 1.0

    def draw_s(self, name: str) -> float:
        return self._dice.draw_s(name)

    def load_s(self, pod_spec: Mapping[str, Any]) -> float:
        return pod_start(pod_spec, self._dice.draw_s("readiness"), serves=True).ready_s


def _is_played(fault: object) -> bool:
    """Whether a fault is injected; restarts only if instant and of a controller in `operate`."""
    if isinstance(fault, ControllerRestart):
        return fault.controller in OPERATED and not fault.length_s
    return getattr(fault, "kind", "") in PLAYED_FAULTS


class RehearsedScenario:
    """One scenario on both sides: simulated and rehearsed."""

    def __init__(self, path: Path, sets: Sequence[str], seed: int | None) -> None:
        document = document_of(read_text(path), str(path), sets, seed)
        self._written: dict[str, Any] = document.data
        plan = load_document(document)
        self.notes: list[str] = []
        self._refuse(plan)
        if not plan.on_machines:
            plain = GangsSettings.model_construct(manifests=[], priorities={}, times=QUICK)
            plan = plan.changed(gangs=plain)
            self.notes.append("no manifest describes its servers: each is one pod, on both sides")
        self.plan = plan
        self._twin_events: list[Event] = []
        self._labels: dict[str, str] = {}  # of servers, by what the simulation calls them
        self._port = free_port()
        self._here = _cluster_of(compose(plan))
        """The cluster at the start of the simulation."""
        self._nodes_then: Mapping[str, Node] = {}
        """All nodes that ever existed, known once the simulation has ended."""
        self._look_for_gaps()

    def _refuse(self, plan: ScenarioPlan) -> None:
        refuse_unemulated(plan, by_pool=True)
        refuse_media(plan)
        if len(plan.clusters) > 1:
            what = f"it has {len(plan.clusters)} clusters, and one is rehearsed"
            raise InputError(what, where="serving.clusters", hint="rehearse one at a time")
        if plan.router_place is not None:
            what = "a router of your own is not rehearsed"
            raise InputError(what, where=plan.router_place, hint="choose a built-in policy")
        if plan.duration_s is not None and plan.duration_s > LONGEST_S:
            raise InputError(
                f"it takes {plan.duration_s:g} s, and a rehearsal is in real time",
                where="duration",
                allowed="up to 1h",
                hint="--set duration=60s",
            )

    def _look_for_gaps(self) -> None:
        """Adds a note for each feature of the scenario that is not rehearsed."""
        plan = self.plan
        kinds = dict.fromkeys(one.word() for one in plan.faults if not _is_played(one))
        left_out = list(kinds)
        if left_out:
            self.notes.append(f"faults that are not injected: {', '.join(left_out)}")
        if plan.sections.fleet is not None:
            self.notes.append(
                "machines come and fail as in the simulation, and none is given back: the fleet "
                "controller is not rehearsed"
            )
        if len(plan.models) > 1 and plan.scaling is not None:
            self.notes.append(
                "each model has an Autoscaler of its own: what `scaling` limits over all models "
                "is limited for each"
            )
        if plan.pool_priorities:
            self.notes.append("`priority` of pools is not rehearsed")
        if len({one.tenant for one in plan.workload}) > 1:
            self.notes.append("all requests come from one tenant")
        if plan.serving.drain_policy != "wait":
            self.notes.append("servers that drain finish their requests: `serving.drain` is `wait`")

    # The simulation.

    def simulated(self) -> Side:
        kept = _Kept()
        seen: dict[str, Simulation] = {}
        result = run(self.plan, events=kept, look=lambda one: seen.update(last=one)).result
        if seen:
            self._nodes_then = _cluster_of(seen["last"]).cluster.view.nodes
        for one in kept.events:
            if one.kind in vocabulary.REPLICA_KINDS:
                self._name(one)
        self._twin_events = kept.events
        requests = result["requests"]
        figures = {
            "requests": {**requests, "sent": requests["arrived"]},
            "latency": result["latency"],
            "attained": _attained(result["slo"], requests),
        }
        start = start_of(self._here.cluster.view)
        return Side([self._renamed(one) for one in kept.events], figures, start)

    def _name(self, event: Event) -> None:
        data = event.data
        backing = self._kinds().get(str(data["pool"]), CLIQUE)
        label = f"{data['pool']}/{data['replica']}"
        if backing != CLIQUE:
            label = names.short(str(data["unit"]))
        self._labels[event.subject] = label
        self._labels[f"{data['pool']}-{data['replica']}"] = label

    def _kinds(self) -> dict[str, str]:
        return {one.pool: one.kind for one in self.plan.manifests.backings}

    def _renamed(self, event: Event) -> Event:
        data = dict(event.data)
        if "server" in data:
            data["server"] = self._labels.get(f"server/{data['server']}", "")
        subject = self._labels.get(event.subject, event.subject)
        return msgspec.structs.replace(event, subject=subject, data=data)

    # The rehearsal.

    def rehearsal(self) -> Rehearsal:
        """The rehearsal; `simulated` must come first, whose faults hit the same machines."""
        plan = self.plan
        here = self._here
        pools = [here.units.backings[one.name].pods for one in plan.pools]
        ready: dict[str, int] = {}
        for replica in here.units.replicas.values():
            if replica.state == READY:
                ready[replica.pool.name] = ready.get(replica.pool.name, 0) + 1
        return Rehearsal(
            objects=RehearsalObjects(
                sets=[self._set(one) for one in here.cluster.view.sets.values()],
                nodes=self._nodes(here, pools),
                pools=pools,
                sizes=_sizes(here, pools),
                levels=here.cluster.view.levels,
                priorities=plan.priority_classes,
                autoscalers=self._autoscalers(here, pools),
            ),
            replicas=ready,
            pace=DrawnPace(plan),
            build=self._server,
            port=self._port,
            gateway=PlayedGateway(
                sections=self._gateway(),
                attempts=1 + plan.serving.retry_limits.attempts,
                slots={one.name: int(one.engine.max_num_seqs) for one in plan.pools},
            ),
            requests=PlayedTraffic(
                plan.model_names, traffic_of(plan), targets_of(plan), plan.duration_s
            ),
            changes=PlayedChanges(self._faults(), self._joins(), plan.pod_times.node_lost_after_s),
        )

    def _set(self, known: PodCliqueSet) -> Manifest:
        """The manifest of a set, with our scheduler set for its pods, as in the simulation."""
        written = self._manifests().get(known.name)
        if written is None:
            cliques = [
                {"name": one.name, "spec": {"roleName": one.name}} for one in known.spec.cliques
            ]
            written = {"metadata": {"name": known.name}, "spec": {"template": {"cliques": cliques}}}
            for entry, one in zip(cliques, known.spec.cliques, strict=True):
                entry["spec"]["replicas"] = one.replicas  # type: ignore[index]
        spec = dict(written["spec"])
        template = dict(spec["template"])
        pods = {one.name: one for one in known.spec.cliques}
        cliques = []
        for clique in template["cliques"]:
            one = pods[clique["name"]]
            pod_spec = {**one.pod_spec, "schedulerName": SCHEDULER}
            grace = pod_spec.get("terminationGracePeriodSeconds")
            if isinstance(grace, float):
                pod_spec["terminationGracePeriodSeconds"] = int(grace)
            if known.name not in self._manifests():
                asked = {"requests": {GPU: str(int(one.requests[GPU]))}}
                pod_spec["containers"] = [
                    {**box, "resources": asked} for box in pod_spec["containers"]
                ]
            pod_spec["containers"] = [self._limited(box) for box in pod_spec["containers"]]
            cliques.append({**clique, "spec": {**clique["spec"], "podSpec": pod_spec}})
        spec |= {"replicas": known.replicas, "template": {**template, "cliques": cliques}}
        return {"metadata": {"name": names.short(known.name)}, "spec": spec}

    def _limited(self, box: Manifest) -> Manifest:
        """A container with limits for extended resources, which an API server requires."""
        resources = box.get("resources") or {}
        limits = resources.get("limits") or {}
        missing = {
            name: amount
            for name, amount in (resources.get("requests") or {}).items()
            if "/" in name and name not in limits
        }
        if missing and box.get("image") != PLAIN_IMAGE and LIMITS_NOTE not in self.notes:
            self.notes.append(LIMITS_NOTE)
        return {**box, "resources": {**resources, "limits": {**limits, **missing}}}

    def _manifests(self) -> dict[str, Manifest]:
        import yaml

        found = {}
        for _, text in self.plan.manifests.files:
            for one in yaml.safe_load_all(text):
                if isinstance(one, dict) and one.get("kind") == SET:
                    found[str(one["metadata"]["name"])] = one
        return found

    def _nodes(self, here: ServingCluster, pools: Sequence[PoolPods]) -> list[Node]:
        """The initial nodes; without a fleet, also enough for every pool at its maximum."""
        nodes = list(here.cluster.view.nodes.values())
        if self.plan.sections.fleet is not None:
            return nodes
        bounds = {} if self.plan.scaling is None else dict(self._bounds())
        most = sum(
            bounds.get(pool.name, pool.replicas) * sum(one.slots.values())
            for pool, one in zip(self.plan.pools, pools, strict=True)
        )
        kinds = {tuple(sorted(one.labels.items())): one for one in nodes}
        for kind in kinds.values():
            for number in range(min(most, MOST_NODES)):
                labels = dict(kind.labels)
                nodes.append(Node(f"{kind.name}-more-{number}", dict(kind.capacity), labels))
        return nodes

    def _bounds(self) -> Mapping[str, int]:
        written = self._written["scaling"].get("pools") or {}
        return {name: int((one or {}).get("max", 0) or 0) for name, one in written.items()}

    def _autoscalers(
        self, here: ServingCluster, pools: Sequence[PoolPods]
    ) -> dict[str, dict[str, Any]]:
        """One Autoscaler per model, with the scenario's section and the pools of the model."""
        plan = self.plan
        if plan.scaling is None:
            return {}
        targets: dict[str, list[dict[str, Any]]] = {}
        for settings, pods in zip(plan.pools, pools, strict=True):
            own = here.units.backings[settings.name].pool
            kind, name = pods.kind, pods.set_name
            if kind != SET:
                if here.cluster.view.sets[pods.set_name].replicas != 1:
                    what = "several replicas of a set share a pool, and one object is scaled"
                    raise InputError(what, where=f"the pool {settings.name!r}")
                made = names.clique if kind == CLIQUE else names.group
                name = made(pods.set_name, 0, pods.name)
            reference = {"apiVersion": "grove.io/v1alpha1", "kind": kind, "name": name}
            limits = own.limits
            targets.setdefault(settings.model or plan.name, []).append(
                {
                    "name": settings.name,
                    "targetRef": reference,
                    "port": self._port,
                    "accelerator": settings.accelerator or "",
                    "accelerators": settings.tensor_parallel,
                    "startup": plan.serving.load_time.mean_s,
                    "kvTokens": int(limits.usable_blocks * limits.block_size),
                    "maxNumSeqs": int(limits.max_num_seqs),
                    "maxNumBatchedTokens": int(limits.max_num_batched_tokens),
                }
            )
        found = {}
        for number, (model, some) in enumerate(targets.items()):
            scaling = dict(self._written["scaling"])
            own_pools = [one["name"] for one in some]
            if isinstance(bounds := scaling.get("pools"), dict):
                scaling["pools"] = {key: one for key, one in bounds.items() if key in own_pools}
            found[f"rehearsal-{number}"] = {"model": model, "targets": some, "scaling": scaling}
        return found

    def _gateway(self) -> dict[str, Any]:
        """The sections of the scenario that a gateway reads."""
        serving = self._written.get("serving") or {}
        sections = {"router": serving.get("router") or {"policy": self.plan.router.policy}}
        if serving.get("admission"):
            sections["admission"] = serving["admission"]
        classes = {
            name: {**((self._written.get("slo") or {}).get(name) or {}), "priority": one.priority}
            for name, one in self.plan.slos.items()
        }
        return {"serving": sections, "slo": classes}

    def _server(self, pool: str, loop: asyncio.AbstractEventLoop) -> BuiltServer:
        own = next(one for one in self.plan.pools if one.name == pool)
        alone = {"pools": [own.model_copy(update={"replicas": 1})], "router": RouterSettings()}
        plan = self.plan.changed(
            serving=self.plan.serving.model_copy(update=alone),
            workload=[one for one in self.plan.workload if own.model in models_of(one)],
        )
        intake = build_intake(plan, EmulateOptions(plan.model_names[0]), loop)
        return BuiltServer(build_app(intake), intake)

    def _faults(self) -> list[PlayedFault]:
        found = []
        for one in self._twin_events:
            kind = str(one.data["kind"]) if one.kind == vocabulary.FAULT_BEGAN else ""
            if kind not in PLAYED_FAULTS:
                continue
            subjects = one.data["subjects"]
            assert isinstance(subjects, list)
            if kind == RESTART:
                if subjects[0] in OPERATED and one.data["until"] == one.time:
                    found.append(PlayedFault(one.time, kind, ()))
                continue
            named = [self._labels.get(str(name), str(name)) for name in subjects]
            if kind in MACHINE_LOSSES:
                named = self._failed_at(one.time)
            found.append(PlayedFault(one.time, kind, named))
        return found

    def _failed_at(self, at_s: float) -> list[str]:
        """The machines that a fault of the simulation took down at a time."""
        return [
            one.subject.removeprefix("machine/")
            for one in self._twin_events
            if one.kind == FAILED and (one.time, one.reason) == (at_s, vocabulary.LOST_IN_FAULT)
        ]

    def _joins(self) -> list[JoiningNode]:
        """The machines that the simulated fleet added to the cluster."""
        found = []
        for one in self._twin_events:
            name = one.subject.removeprefix("machine/")
            if one.kind == JOINED and one.time > 0.0 and name in self._nodes_then:
                found.append(JoiningNode(one.time, self._nodes_then[name]))
        return found

    def rehearsed(self, live: LiveRun) -> Side:
        figures = dict(live.figures)
        requests = figures["requests"]
        ended = requests["sent"] - requests["unfinished"]
        good = figures["throughput"]["goodput_requests_per_s"] * live.seconds
        figures["attained"] = good / ended if ended else 1.0
        return Side(live.events, figures, live.start)

    def as_data(self, found: RehearsalComparison) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(found)
        return {"name": self.plan.name, "seed": self.plan.seed, "agree": found.agree, **data}


def _cluster_of(simulation: Simulation) -> ServingCluster:
    infrastructure = simulation.lifecycle.infrastructure
    assert isinstance(infrastructure, Infrastructure)
    return infrastructure.serving_clusters[0]


def _sizes(here: ServingCluster, pools: Sequence[PoolPods]) -> list[RehearsedObject]:
    """The initial replicas of each clique and scaling group behind the pools."""
    view = here.cluster.view
    found = []
    for pods in pools:
        if pods.kind == SET:
            continue
        for part in range(view.sets[pods.set_name].replicas):
            if pods.kind == GROUP:
                group = view.groups[names.group(pods.set_name, part, pods.name)]
                found.append(RehearsedObject(GROUP, group.name, group.replicas))
            else:
                clique = view.cliques[names.clique(pods.set_name, part, pods.name)]
                found.append(RehearsedObject(CLIQUE, clique.name, clique.replicas))
    return found


def _attained(slo: Mapping[str, Any], requests: Mapping[str, int]) -> float:
    """SLO attainment of the requests that ended, over all classes."""
    ended = requests["arrived"] - requests["unfinished"]
    good = 0.0
    for one in slo.values():
        share = one["attained"]
        good += one["completed"] if share is None else share * one["requests"]
    return good / ended if ended else 1.0
