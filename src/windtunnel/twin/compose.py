"""Builds a simulation from a plan: the one place where its parts are put together."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from windtunnel.admission.gateway.gateway import Gateway
from windtunnel.admission.gateway.policies import build_gateway
from windtunnel.core.loop import Clock, EventQueue
from windtunnel.core.random import Streams
from windtunnel.core.signals import LoadListener
from windtunnel.core.telemetry import Telemetry
from windtunnel.engine.views import ServerCaches
from windtunnel.models.capacity import kv_bytes_per_token
from windtunnel.models.step_time.model import Scaled
from windtunnel.routing.build import RouterInputs, build_counterfactual, build_router
from windtunnel.routing.counterfactual import Counterfactual
from windtunnel.routing.custom import RequestLabels
from windtunnel.routing.prefixes import CacheIndex, CacheJournal
from windtunnel.routing.router import Router, SplitDecider
from windtunnel.twin.infrastructure.settings import MAIN
from windtunnel.twin.progress import RunProgress
from windtunnel.twin.requests.encoders import Encoders
from windtunnel.twin.requests.gateway import SimGateway
from windtunnel.twin.requests.handoff import Handoff
from windtunnel.twin.requests.kv_link import KvNetwork
from windtunnel.twin.requests.lifecycle import RequestLifecycle, ServingParts
from windtunnel.twin.requests.service import Routers, Service
from windtunnel.twin.requests.splitting import Splitting
from windtunnel.twin.results.accounts import RecordNames, SloTargets
from windtunnel.twin.results.event_log import EventLog, ReplicaLog
from windtunnel.twin.results.recorder import Recorder, RowSink
from windtunnel.twin.results.timeline import Timeline
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.cluster import LAST_TURN, Cluster, Roster
from windtunnel.twin.servers.lifecycle import Lifecycle
from windtunnel.twin.servers.pools import limits_of, overheads_of, shape_of, step_time_of
from windtunnel.twin.servers.replicas import Pool
from windtunnel.twin.settings import DisaggregationSettings, EncodeSettings
from windtunnel.twin.simulation import ControlPlane, Simulation
from windtunnel.workload.traffic import Traffic

if TYPE_CHECKING:  # imported only by scenarios that need them, for a faster start
    from windtunnel.scaling.actuation import Ticking
    from windtunnel.twin.infrastructure.infrastructure import Infrastructure
    from windtunnel.twin.servers.autoscaling import Autoscaling


def compose(
    plan: ScenarioPlan,
    sink: RowSink | None = None,
    telemetry: Telemetry | None = None,
    step_scales: Mapping[str, float] | None = None,
    scaler: "Ticking | None" = None,
    scaling: Telemetry | None = None,
) -> Simulation:
    """Builds a simulation that is ready to run. Rows of ended requests go to `sink`.

    `telemetry` receives every decision about requests, `scaling` the events of the control plane.

    `step_scales` are factors on the step times of pools. `scaler` replaces the one that the plan's
    `scaling` configures.
    """
    horizon_s = math.inf if plan.duration_s is None else plan.duration_s
    timers = EventQueue()
    cluster = _cluster(plan, step_scales or {})
    streams = Streams(plan.seed)
    traffic = Traffic(
        plan.workload, streams, horizon_s, plan.priorities, plan.models, plan.adapter_slots
    )
    names = _names(plan, traffic, cluster)
    recorder = Recorder(names, _targets(plan), cluster.overheads, sink, plan.window)
    progress = RunProgress(recorder, plan.sections.progress)
    event_log = _event_log(plan, cluster, telemetry, names) if telemetry is not None else None
    services = _services(plan, traffic, cluster, streams, timers, event_log)
    serving = ServingParts(
        services, cluster, _splitting(plan, cluster), _encoders(plan.serving.encode)
    )
    requests = RequestLifecycle(
        clock=Clock(),
        traffic=traffic,
        serving=serving,
        recorder=recorder,
        progress=progress,
        retries=plan.serving.retry_limits,
        timers=timers,
        event_log=event_log,
    )
    log = scaling or Telemetry()
    lifecycle = Lifecycle(
        cluster=cluster,
        recorder=recorder,
        progress=progress,
        services=services,
        load=plan.serving.load_time,
        drain=plan.serving.drain_policy,
        streams=streams,
        replica_log=ReplicaLog(log),
    )
    infrastructure = None
    if plan.on_machines:
        from windtunnel.twin.infrastructure.build import build_infrastructure

        infrastructure = build_infrastructure(plan, cluster.pools, lifecycle, streams)
    else:
        lifecycle.open()
    autoscaling = _autoscaling(plan, scaler, lifecycle, requests, streams, log)
    faults = None
    if plan.faults:
        from windtunnel.twin.faults.driver import build_faults

        faults = build_faults(
            plan.faults, cluster, lifecycle, autoscaling, infrastructure, recorder, streams, log
        )
    control = ControlPlane(lifecycle, autoscaling, faults)
    simulation = Simulation(requests, control, Timeline(cluster.owners), horizon_s)
    if infrastructure is not None:
        _settle(infrastructure, plan, cluster, lifecycle, log)
    return simulation


def _settle(
    infrastructure: "Infrastructure",
    plan: ScenarioPlan,
    cluster: Cluster,
    lifecycle: Lifecycle,
    told: Telemetry,
) -> None:
    """Settles clusters and machines with the servers that a run begins with."""
    from windtunnel.twin.infrastructure.event_log import InfrastructureLog

    sizes = [pool.replicas for pool in plan.pools]
    infrastructure_log = InfrastructureLog(infrastructure, told, lifecycle.progress)
    lifecycle.replica_log.placement = infrastructure_log.replica
    lifecycle.settle()
    infrastructure.begin(list(zip(cluster.pools, sizes, strict=True)))
    lifecycle.begin()
    infrastructure_log.follow()


class Routing:
    """Builds the routers of one model: one for each role, over the same signals and caches."""

    def __init__(
        self,
        plan: ScenarioPlan,
        model: int,
        cluster: Cluster,
        streams: Streams,
        labels: RequestLabels,
    ) -> None:
        self._plan = plan
        self._model = model
        self._cluster = cluster
        self._streams = streams
        self.roster = cluster.rosters[model]
        self._starts = 0
        self._journal = CacheJournal(ServerCaches(cluster.servers))
        self._reading: list[CacheIndex] = []
        self._listening: list[LoadListener] = []
        self._inputs = RouterInputs(
            self.roster.signals,
            self._journal,
            cluster.owners.pool_names,
            labels,
            plan.folder,
            plan.router_place,
        )

    def start(self) -> Routers:
        """Builds new routers and disconnects the previous ones from signals and caches."""
        signals, journal = self.roster.signals, self._journal
        for index in self._reading:
            journal.leave(index)
        for listener in self._listening:
            signals.unlisten(listener)
        reading, listening = journal.readers, signals.listening
        decode = self._router(self._cluster.decoders(self._model), "router")
        prefill = [
            self._prefill_router(number, cluster)
            for number, cluster in enumerate(self._plan.clusters)
        ]
        self._reading = journal.readers[len(reading) :]
        self._listening = signals.listening[len(listening) :]
        self._starts += 1
        return Routers(decode, prefill)

    def _prefill_router(self, site: int, cluster: str) -> Router | None:
        here = (self._plan.models[self._model], cluster)
        roles = [pool.role for pool in self._plan.pools if (pool.model, pool.cluster) == here]
        if all(role == "both" for role in roles):
            return None
        stream = "router.prefill" if cluster == MAIN else f"router.prefill.{cluster}"
        return self._router(self._cluster.prefillers(self._model, site), stream)

    def _router(self, candidates: list[int], name: str) -> Router:
        model = self._plan.models[self._model]
        stream = name if model == self._plan.model else f"{name}/{model}"
        stream += f"#{self._starts}" if self._starts else ""
        settings = self._plan.router
        return build_router(settings, candidates, self._inputs, self._streams[stream])

    def counterfactual(self) -> Counterfactual | None:
        """Builds the counterfactual for decode decisions; None unless it is configured."""
        settings = self._plan.router
        if not settings.counterfactual:
            return None
        candidates = self._cluster.decoders(self._model)
        return build_counterfactual(settings, candidates, self._inputs)


def _services(
    plan: ScenarioPlan,
    traffic: Traffic,
    cluster: Cluster,
    streams: Streams,
    queue: EventQueue,
    event_log: EventLog | None,
) -> list[Service]:
    """Builds one service per model."""
    labels = RequestLabels(traffic.classes, traffic.tenants, traffic.adapters)
    services: list[Service] = []
    for model in range(len(cluster.rosters)):
        routing = Routing(plan, model, cluster, streams, labels)
        gateway = _gateway(plan, routing.roster, traffic, queue, event_log)
        services.append(
            Service(
                routing.roster,
                routing.start,
                routing.counterfactual(),
                gateway,
            )
        )
    return services


def _names(plan: ScenarioPlan, traffic: Traffic, cluster: Cluster) -> RecordNames:
    return RecordNames(
        traffic.sources,
        traffic.classes,
        traffic.tenants,
        traffic.adapters,
        cluster.owners,
        list(plan.model_names),
    )


def _event_log(
    plan: ScenarioPlan, cluster: Cluster, telemetry: Telemetry, names: RecordNames
) -> EventLog:
    cluster.keep_journals()
    return EventLog(telemetry, plan.router.policy, names.adapters)


def _encoders(encode: EncodeSettings | None) -> Encoders | None:
    if encode is None:
        return None
    return Encoders(encode.servers, encode.fixed_s, encode.per_token_s)


def _cluster(plan: ScenarioPlan, step_scales: Mapping[str, float]) -> Cluster:
    """Builds all pools with the servers that they begin with."""
    pools: list[Pool] = []
    for pool in plan.pools:
        shape = shape_of(pool)
        model = step_time_of(pool, shape)
        if pool.name in step_scales:
            model = Scaled(model, step_scales[pool.name])
        pools.append(
            Pool(
                pool.name,
                decodes=pool.role in ("decode", "both"),
                prefills=pool.role in ("prefill", "both"),
                limits=limits_of(pool, shape, plan.seed),
                step_time=model,
                overheads=overheads_of(pool, plan.serving.network_s(pool)),
                model=plan.models.index(pool.model),
                site=plan.clusters.index(pool.cluster),
            )
        )
    cluster = Cluster(pools, _network(plan), plan.router.staleness_s, len(plan.models))
    if not plan.on_machines:
        for own, pool in zip(pools, plan.pools, strict=True):
            cluster.begin_with(own, pool.replicas)
    return cluster


def _autoscaling(
    plan: ScenarioPlan,
    scaler: "Ticking | None",
    lifecycle: Lifecycle,
    requests: RequestLifecycle,
    streams: Streams,
    telemetry: Telemetry,
) -> "Autoscaling | None":
    """Builds the autoscaler; None when the scenario has none."""
    scaling = plan.scaling
    if scaling is None:
        return None
    from windtunnel.scaling.actuation import ScalingLoop
    from windtunnel.scaling.build import build_scaler
    from windtunnel.twin.servers.autoscaling import Autoscaling
    from windtunnel.twin.servers.observation import FleetObserver

    names = plan.model_names
    loop = ScalingLoop(lambda: scaler or build_scaler(scaling, names), scaling.timing)
    lifecycle.begin()
    return Autoscaling(
        loop,
        scaling.timing.actuation_delay,
        lifecycle=lifecycle,
        pools=requests.cluster.pools,
        observer=FleetObserver(
            plan, requests.cluster, requests.recorder, requests.in_flight, scaling
        ),
        stream=streams["scaling.actuation"],
        telemetry=telemetry,
    )


def _network(plan: ScenarioPlan) -> KvNetwork | None:
    split = plan.serving.split
    if split is None:
        return None
    return KvNetwork(LAST_TURN, split.transfer)


def _splitting(plan: ScenarioPlan, cluster: Cluster) -> Splitting | None:
    split, network = plan.serving.split, cluster.network
    if split is None or network is None:
        return None
    token_bytes = [_token_bytes(split, plan, model) for model in plan.models]
    layers = [_layers(plan, model) for model in plan.models] if split.transfer.layerwise else None
    return Splitting(
        SplitDecider(split.decider, split.prefix_threshold),
        Handoff(cluster, network, token_bytes, layers),
    )


def _layers(plan: ScenarioPlan, model: str | None) -> int:
    """The number of layers of a model; 1 where unknown, since its KV is never transferred."""
    shape = shape_of(next(pool for pool in plan.pools if pool.model == model))
    return 1 if shape is None else shape.layers


def _token_bytes(split: DisaggregationSettings, plan: ScenarioPlan, model: str | None) -> float:
    """The KV bytes per token of a model; 0 where unknown, since its KV is never transferred."""
    if split.transfer.bytes_per_token is not None:
        return split.transfer.bytes_per_token
    pools = [pool for pool in plan.pools if pool.model == model]
    shape = shape_of(pools[0])
    if shape is None:
        assert all(pool.role == "both" for pool in pools), "refused when it is loaded"
        return 0.0
    return kv_bytes_per_token(shape)


def _gateway(
    plan: ScenarioPlan,
    roster: Roster,
    traffic: Traffic,
    queue: EventQueue,
    event_log: EventLog | None,
) -> SimGateway | None:
    """Builds the gateway; None where every request is admitted, which then costs nothing."""
    if plan.gateway.admits_all:
        return None
    of_class = plan.priorities
    bands: set[int] = set()
    for entry in plan.workload:  # a trace without a class may have any
        bands.update(of_class.values() if entry.slo is None else [of_class[entry.slo]])
    priorities = sorted(bands, reverse=True)
    targets = _targets(plan)
    targets_s = [targets[name].ttft_s for name in traffic.classes]

    def start() -> Gateway:
        return build_gateway(plan.gateway, traffic.tenants, priorities, plan.router.staleness_s)

    return SimGateway(start, roster, targets_s, queue, event_log)


def _targets(plan: ScenarioPlan) -> dict[str, SloTargets]:
    """The SLO targets by class."""
    return {
        name: SloTargets(
            *(math.inf if time is None else time for time in (slo.ttft_s, slo.tpot_s, slo.e2e_s))
        )
        for name, slo in plan.slos.items()
    }
