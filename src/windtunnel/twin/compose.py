"""Builds a simulation from a plan: the one place where its parts are put together."""

import math
from pathlib import Path

from windtunnel.core.errors import InputError, InputFaults, one_sentence_per
from windtunnel.core.random import Streams
from windtunnel.engine.limits import EngineLimits
from windtunnel.engine.server import Server
from windtunnel.models.accelerators import Accelerator, resolve_accelerator
from windtunnel.models.blis import DEFAULT_ALPHA_US, DEFAULT_BETA, BlisTrainedPhysics
from windtunnel.models.capacity import kv_capacity
from windtunnel.models.catalog import resolve_model
from windtunnel.models.linear import Linear
from windtunnel.models.profile import load_profile, physics_model
from windtunnel.models.roofline import Roofline
from windtunnel.models.shapes import ModelShape
from windtunnel.models.steptime import StepTimeModel
from windtunnel.models.table_files import read_table
from windtunnel.routing.round_robin import RoundRobin
from windtunnel.twin.recorder import Overheads, Recorder, RowSink, Targets
from windtunnel.twin.scenario.plan import PoolPlan, ScenarioPlan
from windtunnel.twin.simulation import Simulation
from windtunnel.twin.timeline import Timeline
from windtunnel.workload.traffic import Traffic

MICROSECOND = 1e-6


def compose(plan: ScenarioPlan, sink: RowSink | None = None) -> Simulation:
    """A simulation that is ready to run. Rows of ended requests go to `sink`."""
    shape = resolve_model(plan.model) if plan.model is not None else None
    servers: list[Server] = []
    overheads: list[Overheads] = []
    for pool, (limits, model) in zip(plan.pools, _engines(plan.pools, shape), strict=True):
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
    return Simulation(traffic, router, servers, overheads, recorder, Timeline(), horizon_s)


def _engines(
    pools: tuple[PoolPlan, ...], shape: ModelShape | None
) -> list[tuple[EngineLimits, StepTimeModel]]:
    """What the servers of each pool are; the faults of all pools are told together."""
    engines, faults = [], []
    for number, pool in enumerate(pools):
        try:
            engines.append((_limits(pool, shape), _step_time(pool, shape)))
        except InputFaults as several:
            faults += [_in_pool(number, pool, fault) for fault in several.faults]
        except InputError as fault:
            faults.append(_in_pool(number, pool, fault))
    if faults:
        raise one_sentence_per(faults)
    return engines


def _in_pool(number: int, pool: PoolPlan, fault: InputError) -> InputError:
    place = f"serving.pools[{number}] ({pool.name})"
    where = f"{place}: {fault.where}" if fault.where else place
    return InputError(fault.what, where=where, allowed=fault.allowed, hint=fault.hint)


def accelerator_of(pool: PoolPlan) -> Accelerator | None:
    return resolve_accelerator(pool.accelerator) if pool.accelerator is not None else None


def _limits(pool: PoolPlan, shape: ModelShape | None) -> EngineLimits:
    engine = pool.engine
    kv_blocks = engine.kv_blocks
    if kv_blocks is None:
        shape, accelerator = _hardware(pool, shape)
        kv_blocks = kv_capacity(
            shape,
            accelerator,
            tensor_parallel=pool.tensor_parallel,
            memory_utilization=engine.memory_utilization,
            block_size=engine.block_size,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            max_num_seqs=engine.max_num_seqs,
        ).blocks
    max_model_len = engine.max_model_len
    if max_model_len is None:
        max_model_len = shape.max_context if shape is not None else 1 << 40
    return EngineLimits(
        kv_blocks=kv_blocks,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        block_size=engine.block_size,
        max_model_len=max_model_len,
        long_prefill_threshold=engine.long_prefill_threshold,
        scheduling=engine.scheduling,
        prefix_caching=engine.prefix_caching,
        chunked_prefill=engine.chunked_prefill,
        async_scheduling=engine.async_scheduling,
        host_overhead_s=engine.host_overhead_s,
        reserve_full_prompt=engine.reserve_full_prompt,
        unhashed_blocks_first=engine.unhashed_blocks_first,
    )


def _hardware(pool: PoolPlan, shape: ModelShape | None) -> tuple[ModelShape, Accelerator]:
    accelerator = accelerator_of(pool)
    assert shape is not None, "a scenario without a model is refused when it is loaded"
    assert accelerator is not None, "so is a pool without an accelerator that needs one"
    return shape, accelerator


def _step_time(pool: PoolPlan, shape: ModelShape | None) -> StepTimeModel:
    given = pool.step_time.parameters
    kind = pool.step_time.model
    if kind == "linear":
        return Linear(
            fixed_s=_number(given["fixed_s"]),
            prefill_token_s=_number(given["per_prefill_token_s"]),
            decode_s=_number(given["per_decode_s"]),
            context_token_s=_number(given["per_context_token_s"]),
        )
    shape, accelerator = _hardware(pool, shape)
    if kind == "table":
        return _table(pool, shape)
    if kind == "roofline":
        return Roofline(shape, accelerator, tensor_parallel=pool.tensor_parallel)
    if kind == "blis-trained-physics":
        beta = given.get("beta", DEFAULT_BETA)
        assert isinstance(beta, tuple)
        return BlisTrainedPhysics(
            shape, accelerator, tensor_parallel=pool.tensor_parallel, beta=beta
        )
    assert kind == "physics", kind
    profile = load_profile(str(given["profile"])) if "profile" in given else None
    return physics_model(shape, accelerator, profile, pool.tensor_parallel)


def _table(pool: PoolPlan, shape: ModelShape) -> StepTimeModel:
    if pool.tensor_parallel > 1:
        what = f"tensor_parallel is {pool.tensor_parallel}"
        allowed = "1 with step_time table, whose measurements hold no collectives"
        raise InputError(what, allowed=allowed)
    given = pool.step_time.parameters
    return read_table(Path(str(given["path"])), shape, per_step_s=_number(given["per_step_s"]))


def _number(value: float | str | tuple[float, ...]) -> float:
    assert isinstance(value, int | float)
    return float(value)


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
