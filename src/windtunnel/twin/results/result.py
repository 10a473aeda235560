"""The result of a run: the contract that programs and reports read."""

import math
from typing import Any

import windtunnel
from windtunnel.analysis.trust import PoolFacts, RunFacts, trust_of
from windtunnel.core.statistics.distribution import summary
from windtunnel.core.vocabulary import BY_WAITING
from windtunnel.engine.server import Server
from windtunnel.models.step_time.model import StepWork
from windtunnel.models.step_time.table import Table
from windtunnel.routing.counterfactual import regret_of
from windtunnel.twin.results.breakdown import (
    adapters_of,
    classes_of,
    fairness_of,
    gateway_of,
    kv_peak_of,
    latency_of,
    measured_s,
    models_of,
    offload_of,
    per,
    replicas_of,
    servers_of,
    sessions_of,
    sources_of,
    speculative_of,
    tenants_of,
    throughput_of,
    tokens_of,
)
from windtunnel.twin.results.recorder import UNFINISHED, Recorder
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.pools import (
    assumptions_of,
    automatic_capacity_of,
    cost_of,
    evidence_of,
    price_of,
    shape_of,
    step_time_source,
)
from windtunnel.twin.servers.replicas import Pool
from windtunnel.twin.settings import PoolSettings
from windtunnel.twin.simulation import Simulation

TYPICAL_TOKENS = 2048
"""Tokens of a prompt or context in the typical step by which operator errors are weighted."""

BY_DURATION = "duration"
BY_LAST_REQUEST = "last request"


def result_of(
    plan: ScenarioPlan, simulation: Simulation, invariants_checked: int
) -> dict[str, Any]:
    """The content of `result.json` as plain data; always with the same keys."""
    recorder = simulation.recorder
    measured, seconds = recorder.measured, simulation.now_s
    window_s = measured_s(simulation)
    scaling = simulation.autoscaling
    owned = zip(plan.pools, simulation.cluster.pools, strict=True)
    cost = sum(cost_of(pool, own.paid_s(seconds)) for pool, own in owned)
    gangs = fleet = None
    if simulation.lifecycle.infrastructure is not None:
        from windtunnel.twin.infrastructure.results import fleet_of, gangs_of

        gangs = gangs_of(simulation.lifecycle.infrastructure)
        fleet = fleet_of(simulation.lifecycle.infrastructure, seconds)
    if fleet is not None:
        cost = fleet["cost"]  # machines are paid for whether or not they are used
    return {
        "name": plan.name,
        "seed": plan.seed,
        "overrides": list(plan.overrides),
        "windtunnel": windtunnel.__version__,
        "scenario_sha256": plan.sha256,
        "simulated_seconds": seconds,
        "ended_by": _ended_by(plan, simulation),
        "partial": None if simulation.early is None else simulation.early.sentence,
        "measured": None if recorder.window is None else _measured(recorder),
        "requests": {"arrived": recorder.arrived, **recorder.outcomes},
        "reasons": {
            outcome: dict(sorted(counts.items()))
            for outcome, counts in recorder.reasons.counts().items()
        },
        "tokens": tokens_of(recorder.total),
        "latency": {
            **latency_of(measured.latencies, simulation.servers),
            "gateway": summary(measured.gateway),
        },
        "throughput": throughput_of(measured.total, window_s),
        "slo": classes_of(plan, measured.classes, window_s),
        "sources": sources_of(measured.sources, window_s),
        "tenants": tenants_of(measured.tenants, window_s),
        "fairness": fairness_of(measured.tenants, getattr(plan.gateway, "weights", None)),
        "sessions": sessions_of(simulation),
        "gateway": gateway_of([one.gateway for one in simulation.services]),
        "adapters": adapters_of(simulation, seconds),
        "routing": _routing(simulation),
        "encode": _encode(simulation),
        "disaggregation": _disaggregation(simulation),
        "models": models_of(plan, simulation),
        "pools": _pools(plan, simulation),
        "servers": servers_of(simulation),
        "cost": {
            "total": cost,
            "per_million_output_tokens": per(cost * 1e6, int(recorder.total.output_tokens)),
        },
        "scaling": _scaling(plan, simulation),
        "gangs": gangs,
        "fleet": fleet,
        "decisions": {
            "scaling": scaling.changes if scaling is not None else 0,
            "faults": simulation.faults.log.begun if simulation.faults is not None else 0,
            "gang_terminations": gangs["terminations"] if gangs is not None else 0,
            "fleet_actions": sum(fleet["actions"].values()) if fleet is not None else 0,
        },
        "faults": simulation.faults.log.result() if simulation.faults is not None else [],
        "invariants": {"checked": invariants_checked, "broken": 0},
        "trust": trust_of(_facts(plan, simulation)),
    }


def _measured(recorder: Recorder) -> dict[str, Any]:
    """The window, and how many requests arrived in it."""
    window = recorder.window
    assert window is not None
    to_s = None if window.to_s == math.inf else window.to_s
    return {"from": window.from_s, "to": to_s, "requests": recorder.measured.arrived}


def _ended_by(plan: ScenarioPlan, simulation: Simulation) -> str:
    if simulation.early is not None:
        return simulation.early.by
    if plan.duration_s is not None:
        return BY_DURATION
    return BY_WAITING if simulation.recorder.count(UNFINISHED) else BY_LAST_REQUEST


def _routing(simulation: Simulation) -> dict[str, Any] | None:
    """The quality of routing choices, compared with fresh signals; None unless configured."""
    judges = [one.counterfactual for one in simulation.services if one.counterfactual is not None]
    return regret_of(judges) if judges else None


def _encode(simulation: Simulation) -> dict[str, Any] | None:
    """The encode stage; None when encoding is not a separate stage."""
    encoders = simulation.requests.encoders
    if encoders is None:
        return None
    return {
        "requests": int(encoders.taken),
        "tokens": int(encoders.tokens),
        "busy": encoders.busy(simulation.now_s),
        "wait": summary(encoders.wait),
    }


def _scaling(plan: ScenarioPlan, simulation: Simulation) -> dict[str, Any] | None:
    if simulation.autoscaling is None or plan.scaling is None:
        return None
    return {**simulation.autoscaling.result(simulation.now_s), "notes": plan.scaling.notes()}


def _disaggregation(simulation: Simulation) -> dict[str, Any] | None:
    """Prompts that were computed on other servers; None when no pool has such a role."""
    splitting, network = simulation.requests.splitting, simulation.cluster.network
    if splitting is None or network is None:
        return None
    handoff = splitting.handoff
    return {
        "split": int(handoff.begun),
        "waited": int(handoff.waited),
        "moved_tokens": int(handoff.moved_tokens),
        "present_tokens": int(handoff.present_tokens),
        "stayed": int(handoff.stayed),
        "no_prefill_server": int(handoff.unserved),
        "moved_bytes": network.moved_bytes,
        "link_busy": per(network.busy_until(simulation.now_s), simulation.now_s),
        "room": summary(handoff.room),
        "transfer": summary(handoff.transfer),
    }


def _pools(plan: ScenarioPlan, simulation: Simulation) -> dict[str, Any]:
    pools: dict[str, Any] = {}
    seconds = simulation.now_s
    for pool, own in zip(plan.pools, simulation.cluster.pools, strict=True):
        servers = own.servers
        replica_seconds = own.paid_s(seconds)
        served = own.served_s(seconds)
        pools[pool.name] = {
            "model": pool.model,
            "cluster": pool.cluster,
            "replica_seconds": replica_seconds,
            "ready_seconds": served,
            "accelerator_seconds": replica_seconds * pool.gpus,
            "replicas": replicas_of(pool, own),
            "utilization": per(sum(server.busy_s for server in servers), served),
            "preemptions": sum(server.preemptions for server in servers),
            "kv_peak": max((kv_peak_of(server) for server in servers), default=0.0),
            "kv_blocks": int(own.limits.usable_blocks),
            "kv_leaked": sum(int(server.pool.leaked) for server in servers),
            "price_per_hour": price_of(pool),
            "cost": cost_of(pool, replica_seconds),
            "offload": offload_of(pool, own, served),
            "step_time": step_time_source(pool),
            **speculative_of(own),
        }
    return pools


# Facts for the judgement of the run


def _facts(plan: ScenarioPlan, simulation: Simulation) -> RunFacts:
    recorder, encoders = simulation.recorder, simulation.requests.encoders
    owned = list(zip(plan.pools, simulation.cluster.pools, strict=True))
    return RunFacts(
        seconds=simulation.now_s,
        duration_s=plan.duration_s,
        partial=None if simulation.early is None else simulation.early.sentence,
        last_arrival_s=simulation.requests.last_arrival_s,
        outcomes=recorder.outcomes,
        arrived=recorder.arrived,
        forsaken=_ended_by(plan, simulation) == BY_WAITING,
        empty_pools=[pool.name for pool, own in owned if not own.target],
        attained=sum(int(account.attained) for account in recorder.classes),
        completed={one.name: int(one.completed) for one in recorder.measured.classes},
        pools=[_pool_facts(pool, own) for pool, own in owned],
        samples=simulation.timeline.samples,
        slots=[server.limits.max_num_seqs for server in simulation.servers],
        most_servers=sum(pool.most for pool in simulation.cluster.pools),
        encoders_busy=None if encoders is None else encoders.busy(simulation.now_s),
        sources=plan.sources,
        traces=simulation.traffic.left_out(),
    )


def _pool_facts(plan: PoolSettings, pool: Pool) -> PoolFacts:
    model = pool.step_time
    kernels_only = isinstance(model, Table) and model.tokens is not None and model.per_step_s == 0.0
    return PoolFacts(
        name=plan.name,
        model=plan.step_time.model,
        evidence=evidence_of(plan, shape_of(plan), model, _typical_step(pool.servers)),
        kernels_only=kernels_only,
        bounds=model.measured(),
        extrapolated=_extrapolated(pool.servers),
        assumptions=assumptions_of(plan),
        capacity=automatic_capacity_of(plan),
    )


def _typical_step(servers: list[Server]) -> StepWork:
    """A step with the average number of decodes; a prompt for servers without any."""
    steps = sum(int(one.steps) for one in servers)
    decoded = sum(int(one.token_gaps.count) for one in servers)
    if decoded == 0:
        return StepWork([(TYPICAL_TOKENS, 0, TYPICAL_TOKENS)], 0, 0, 1)
    decodes = max(1, round(decoded / steps))
    limits = servers[0].limits.drafts
    drafted = 0 if limits is None else decodes * int(limits.tokens)
    return StepWork([], decodes, decodes * TYPICAL_TOKENS, decodes + drafted, drafted)


def _extrapolated(servers: list[Server]) -> dict[str, Any] | None:
    """The share of a pool's steps beyond the measured bounds; None without such bounds."""
    counts = [server.extrapolation for server in servers if server.extrapolation is not None]
    if not counts:
        return None
    return {
        "step_share": per(
            sum(int(one.steps) for one in counts), sum(int(one.steps) for one in servers)
        ),
        "time_share": per(sum(one.time_s for one in counts), sum(one.busy_s for one in servers)),
        "steps": {
            "tokens": sum(int(one.over_tokens) for one in counts),
            "decodes": sum(int(one.over_decodes) for one in counts),
            "context": sum(int(one.over_context) for one in counts),
        },
        "most": {
            "tokens": max(int(one.most_tokens) for one in counts),
            "decodes": max(int(one.most_decodes) for one in counts),
            "context": max(int(one.most_context) for one in counts),
        },
    }
