"""The result of a run: the contract that programs and reports read."""

from typing import Any

import windtunnel
from windtunnel.core.distribution import summary
from windtunnel.core.histogram import Histogram
from windtunnel.engine.server import Server
from windtunnel.twin.pools import accelerator_of, step_time_source
from windtunnel.twin.recorder import COMPLETED, Recorder
from windtunnel.twin.scenario.plan import PoolPlan, ScenarioPlan
from windtunnel.twin.simulation import Simulation

SECONDS_PER_HOUR = 3600.0


def result_of(
    plan: ScenarioPlan, simulation: Simulation, invariants_checked: int
) -> dict[str, Any]:
    """Everything that `result.json` says, as plain data; the same keys whatever happened."""
    recorder = simulation.recorder
    seconds = simulation.now_s
    gaps = Histogram()
    for server in simulation.servers:
        gaps.merge(server.token_gaps)
    cost = sum(_cost(pool, seconds) for pool in plan.pools)
    return {
        "name": plan.name,
        "seed": plan.seed,
        "windtunnel": windtunnel.__version__,
        "scenario_sha256": plan.sha256,
        "simulated_seconds": seconds,
        "requests": {"arrived": recorder.arrived, **recorder.outcomes},
        "tokens": {
            "prompt": recorder.prompt_tokens,
            "output": recorder.output_tokens,
            "prefix_hit": recorder.prefix_hit_tokens,
        },
        "latency": {
            "ttft": summary(recorder.ttft),
            "tpot": summary(recorder.tpot),
            "itl": summary(gaps) | {"max": gaps.high if gaps.count else None},
            "e2e": summary(recorder.e2e),
            "queue": summary(recorder.queue),
        },
        "throughput": {
            "requests_per_s": _ratio(recorder.outcomes[COMPLETED], seconds),
            "output_tokens_per_s": _ratio(recorder.output_tokens, seconds),
            "goodput_requests_per_s": _ratio(recorder.attained, seconds),
        },
        "slo": _slo(recorder),
        "pools": _pools(plan, simulation),
        "cost": {
            "total": cost,
            "per_million_output_tokens": _ratio(cost * 1e6, recorder.output_tokens),
        },
        "decisions": {"scaling": 0, "gang_terminations": 0, "fleet_actions": 0},
        "invariants": {"checked": invariants_checked, "broken": 0},
    }


def _ratio(amount: float, per: float) -> float | None:
    return amount / per if per else None


def _slo(recorder: Recorder) -> dict[str, Any]:
    return {
        name: {"requests": targets.requests, "attained": _ratio(targets.attained, targets.requests)}
        for name, targets in sorted(recorder.targets_by_class().items())
    }


def _pools(plan: ScenarioPlan, simulation: Simulation) -> dict[str, Any]:
    pools: dict[str, Any] = {}
    first = 0
    for pool in plan.pools:
        servers = simulation.servers[first : first + pool.replicas]
        first += pool.replicas
        replica_seconds = pool.replicas * simulation.now_s
        pools[pool.name] = {
            "replica_seconds": replica_seconds,
            "accelerator_seconds": replica_seconds * pool.tensor_parallel,
            "utilization": _ratio(sum(server.busy_s for server in servers), replica_seconds),
            "preemptions": sum(server.preemptions for server in servers),
            "kv_peak": max(_kv_peak(server) for server in servers),
            "kv_blocks": int(servers[0].pool.blocks),
            "step_time": step_time_source(pool),
        }
    return pools


def _kv_peak(server: Server) -> float:
    return 1.0 - int(server.pool.lowest_free) / int(server.pool.blocks)


def _cost(pool: PoolPlan, seconds: float) -> float:
    """Dollars at the catalog's example price; nothing for a pool without an accelerator."""
    accelerator = accelerator_of(pool)
    if accelerator is None:
        return 0.0
    hours = pool.replicas * pool.tensor_parallel * seconds / SECONDS_PER_HOUR
    return hours * accelerator.price_per_hour
