"""Builds a simulation from a plan: the one place where its parts are put together."""

import math

from windtunnel.core.random import Streams
from windtunnel.engine.server import Server
from windtunnel.models.blis import DEFAULT_ALPHA_US
from windtunnel.routing.round_robin import RoundRobin
from windtunnel.twin.pools import limits_of, shape_of, step_time_of
from windtunnel.twin.recorder import Overheads, Recorder, RowSink, Targets
from windtunnel.twin.scenario.plan import PoolPlan, ScenarioPlan
from windtunnel.twin.simulation import Simulation
from windtunnel.twin.timeline import Timeline
from windtunnel.workload.traffic import Traffic

MICROSECOND = 1e-6


def compose(plan: ScenarioPlan, sink: RowSink | None = None) -> Simulation:
    """A simulation that is ready to run. Rows of ended requests go to `sink`."""
    shape = shape_of(plan)
    servers: list[Server] = []
    overheads: list[Overheads] = []
    for pool in plan.pools:
        limits, model = limits_of(pool, shape), step_time_of(pool, shape)
        around = _overheads(pool)
        for _ in range(pool.replicas):
            server = Server(len(servers), limits, model)
            server.token_overhead_s = around.per_token_s
            servers.append(server)
            overheads.append(around)
    horizon_s = math.inf if plan.duration_s is None else plan.duration_s
    traffic = Traffic(plan.sources, Streams(plan.seed), horizon_s)
    recorder = Recorder(_targets(plan), overheads, sink)
    router = RoundRobin(len(servers))
    return Simulation(
        traffic, router, servers, overheads, recorder, Timeline(len(servers)), horizon_s
    )


def _overheads(pool: PoolPlan) -> Overheads:
    """The pool's own, and for the peer's model the ones that are part of it."""
    own = pool.overheads
    alpha: tuple[float, ...] = (0.0, 0.0, 0.0)
    if pool.step_time.model == "blis-trained-physics":
        given = pool.step_time.parameters.get("alpha", DEFAULT_ALPHA_US)
        assert isinstance(given, tuple)
        alpha = tuple(math.floor(part) * MICROSECOND for part in given)
    return Overheads(
        own.queueing_s + alpha[0], own.per_token_s + alpha[2], own.completion_s + alpha[1]
    )


def _targets(plan: ScenarioPlan) -> list[Targets]:
    """Targets by source; sources of one class share one account."""
    by_class: dict[str, Targets] = {}
    for source in plan.sources:
        slo = plan.slos[source.slo]
        times = (math.inf if time is None else time for time in (slo.ttft_s, slo.tpot_s, slo.e2e_s))
        by_class.setdefault(source.slo, Targets(source.slo, *times))
    return [by_class[source.slo] for source in plan.sources]
