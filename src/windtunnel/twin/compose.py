"""Builds a simulation from a plan: the one place where its parts are put together."""

import math
from collections.abc import Mapping

from windtunnel.admission.gateway.build import build_gateway
from windtunnel.core.events import EventQueue
from windtunnel.core.random import Streams
from windtunnel.core.telemetry import Telemetry
from windtunnel.engine.encoder import Encoders
from windtunnel.engine.server import Server
from windtunnel.models.capacity import kv_bytes_per_token
from windtunnel.models.scaled import Scaled
from windtunnel.routing.build import build_counterfactual, build_router
from windtunnel.routing.counterfactual import Counterfactual
from windtunnel.routing.custom import Labels
from windtunnel.routing.prefixes import CacheJournal
from windtunnel.routing.router import Router
from windtunnel.routing.split import Decider
from windtunnel.routing.transfer import Link
from windtunnel.twin.accounts import Names, Targets
from windtunnel.twin.cluster import Cluster
from windtunnel.twin.door import Door
from windtunnel.twin.handoff import Handoff
from windtunnel.twin.pools import limits_of, overheads_of, shape_of, step_time_of
from windtunnel.twin.recorder import Overheads, Recorder, RowSink
from windtunnel.twin.scenario.plan import EncodePlan, ScenarioPlan
from windtunnel.twin.simulation import Simulation
from windtunnel.twin.splitting import Splitting
from windtunnel.twin.story import Story
from windtunnel.twin.timeline import Timeline
from windtunnel.workload.traffic import Traffic


def compose(
    plan: ScenarioPlan,
    sink: RowSink | None = None,
    telemetry: Telemetry | None = None,
    step_scales: Mapping[str, float] | None = None,
) -> Simulation:
    """A simulation that is ready to run. Rows of ended requests go to `sink`.

    `step_scales` are factors by which the steps of pools take longer than their models say.
    """
    shape = shape_of(plan)
    servers: list[Server] = []
    overheads: list[Overheads] = []
    for pool in plan.pools:
        limits, model = limits_of(pool, shape), step_time_of(pool, shape)
        if step_scales and pool.name in step_scales:
            model = Scaled(model, step_scales[pool.name])
        around = overheads_of(pool)
        for _ in range(pool.replicas):
            server = Server(len(servers), limits, model)
            server.token_overhead_s = around.per_token_s
            servers.append(server)
            overheads.append(around)
    horizon_s = math.inf if plan.duration_s is None else plan.duration_s
    queue = EventQueue()
    link = _link(plan, len(servers))
    cluster = Cluster(servers, _with_role(plan, "decode"), link, plan.router.staleness_s)
    streams = Streams(plan.seed)
    traffic = Traffic(plan.workload, streams, horizon_s, _priorities(plan))
    labels = Labels(traffic.classes, traffic.tenants, traffic.adapters)
    routing = Routing(plan, cluster, streams, labels)
    names = Names(traffic.sources, traffic.classes, traffic.tenants, traffic.adapters)
    recorder = Recorder(names, _targets(plan), overheads, sink)
    return Simulation(
        traffic=traffic,
        router=routing.router("decode"),
        cluster=cluster,
        queue=queue,
        door=_door(plan, cluster, traffic),
        counterfactual=routing.counterfactual(),
        splitting=_splitting(plan, cluster, queue, routing),
        encoders=_encoders(plan.encode),
        overheads=overheads,
        recorder=recorder,
        timeline=Timeline(len(servers)),
        story=_story(plan, cluster, telemetry, names) if telemetry is not None else None,
        horizon_s=horizon_s,
    )


class Routing:
    """The routers of a run: one for each role, over the same signals and caches."""

    def __init__(
        self, plan: ScenarioPlan, cluster: Cluster, streams: Streams, labels: Labels
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._streams = streams
        self._labels = labels
        self._journal = CacheJournal(cluster.servers)

    def router(self, role: str) -> Router:
        plan, cluster = self._plan, self._cluster
        pools = [pool.name for pool in plan.pools for _ in range(pool.replicas)]
        return build_router(
            plan.router,
            cluster.servers,
            _with_role(plan, role),
            cluster.signals,
            self._streams["router" if role == "decode" else f"router.{role}"],
            self._journal,
            pools,
            self._labels,
        )

    def counterfactual(self) -> Counterfactual | None:
        """Judges where requests are decoded."""
        plan, cluster = self._plan, self._cluster
        if not plan.router.counterfactual:
            return None
        candidates = _with_role(plan, "decode")
        return build_counterfactual(
            plan.router, cluster.servers, candidates, cluster.signals, self._journal
        )


def _story(plan: ScenarioPlan, cluster: Cluster, telemetry: Telemetry, names: Names) -> Story:
    for server in cluster.servers:
        if server.slots is not None:
            server.slots.journal = []
        if server.tiers is not None:
            server.tiers.journal = []
    return Story(telemetry, plan.router.policy, names.adapters)


def _with_role(plan: ScenarioPlan, role: str) -> list[int]:
    """The numbers of the servers that can do a part of the work."""
    numbers: list[int] = []
    first = 0
    for pool in plan.pools:
        if pool.role in (role, "both"):
            numbers.extend(range(first, first + pool.replicas))
        first += pool.replicas
    return numbers


def _encoders(encode: EncodePlan | None) -> Encoders | None:
    if encode is None:
        return None
    return Encoders(encode.servers, encode.fixed_s, encode.per_token_s)


def _link(plan: ScenarioPlan, turn: int) -> Link | None:
    split = plan.split
    if split is None:
        return None
    return Link(turn, split.bytes_per_s, split.latency_s, split.contention)


def _splitting(
    plan: ScenarioPlan, cluster: Cluster, queue: EventQueue, routing: Routing
) -> Splitting | None:
    split, link = plan.split, cluster.link
    if split is None or link is None:
        return None
    token_bytes = split.bytes_per_token
    if token_bytes is None:
        shape = shape_of(plan)
        assert shape is not None, "a scenario with neither is refused when it is loaded"
        token_bytes = kv_bytes_per_token(shape)
    return Splitting(
        Decider(split.decider, split.threshold),
        routing.router("prefill"),
        Handoff(cluster, link, queue, token_bytes, _with_role(plan, "decode")),
    )


def _door(plan: ScenarioPlan, cluster: Cluster, traffic: Traffic) -> Door | None:
    """None where everybody is let in: nothing is asked, and nothing is paid."""
    if plan.gateway.is_open:
        return None
    gateway = build_gateway(plan.gateway, traffic.tenants)
    targets = _targets(plan)
    return Door(gateway, cluster.signals, [targets[name].ttft_s for name in traffic.classes])


def _priorities(plan: ScenarioPlan) -> dict[str, int]:
    return {name: slo.priority for name, slo in plan.slos.items()}


def _targets(plan: ScenarioPlan) -> dict[str, Targets]:
    """Targets by class."""
    return {
        name: Targets(
            *(math.inf if time is None else time for time in (slo.ttft_s, slo.tpot_s, slo.e2e_s))
        )
        for name, slo in plan.slos.items()
    }
