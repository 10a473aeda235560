"""What the servers of a pool are: their limits and their step times, from the words of a plan."""

import math
from pathlib import Path

from windtunnel.core.errors import InputError, InputFaults
from windtunnel.core.units import format_size
from windtunnel.engine.limits import EngineLimits, LoraLimits, TierLimits
from windtunnel.models.accelerators import Accelerator, resolve_accelerator
from windtunnel.models.blis import (
    DEFAULT_ALPHA_US,
    DEFAULT_BETA,
    TICKS_PER_S,
    BlisTrainedPhysics,
)
from windtunnel.models.blis_capacity import blis_kv_blocks
from windtunnel.models.capacity import kv_bytes_per_token, kv_capacity
from windtunnel.models.catalog import resolve_model
from windtunnel.models.evidence import Evidence, profile_evidence, table_evidence, without
from windtunnel.models.linear import Linear
from windtunnel.models.profile import Profile, load_profile, physics_model, profile_for
from windtunnel.models.roofline import Roofline
from windtunnel.models.scaled import Scaled
from windtunnel.models.shapes import ModelShape
from windtunnel.models.steptime import StepTimeModel
from windtunnel.models.table import Table
from windtunnel.models.table_files import read_table
from windtunnel.routing.build import POLICIES
from windtunnel.routing.custom import policy_class
from windtunnel.twin.recorder import Overheads
from windtunnel.twin.scenario.plan import (
    EnginePlan,
    LoraPlan,
    OffloadPlan,
    PoolPlan,
    ScenarioPlan,
)

MICROSECOND = 1e-6

BLIS = "blis-trained-physics"

KeyPath = tuple[str | int, ...]
"""Where in a scenario: keys, and numbers in lists."""

UNMEASURED = {
    "linear": "the numbers are the scenario's own",
    "roofline": "it says what hardware without any losses would take",
}
"""Models that nobody held against measurements here."""


def shape_of(pool: PoolPlan) -> ModelShape | None:
    return resolve_model(pool.model) if pool.model is not None else None


def hardware_faults(plan: ScenarioPlan) -> list[tuple[KeyPath, InputError]]:
    """Everything that the catalogs, profiles and memories have against a plan, with its place."""
    faults: list[tuple[KeyPath, InputError]] = []
    shapes: dict[str | None, ModelShape | None] = {}  # by model; a fault is told once
    for number, pool in enumerate(plan.pools):
        here: KeyPath = ("serving", "pools", number)
        if pool.model not in shapes:
            shapes[pool.model] = None
            try:
                shapes[pool.model] = shape_of(pool)
            except InputError as fault:
                own = pool.model != plan.model
                faults += _each((*here, "model") if own else ("model",), fault)
        shape = shapes[pool.model]
        try:
            accelerator_of(pool)
        except InputError as fault:
            faults += _each((*here, "accelerator"), fault)
            continue
        if shape is None and pool.model is not None:
            continue
        try:
            limits_of(pool, shape)
            step_time_of(pool, shape)
        except InputError as fault:
            faults += _each(here, fault)
    if plan.router.policy not in POLICIES:
        try:
            policy_class(plan.router.policy, plan.folder)
        except InputError as fault:
            faults += _each(("serving", "router", "policy"), fault)
    return faults


def _each(path: KeyPath, fault: InputError) -> list[tuple[KeyPath, InputError]]:
    several = fault.faults if isinstance(fault, InputFaults) else (fault,)
    return [(path, one) for one in several]


def accelerator_of(pool: PoolPlan) -> Accelerator | None:
    return resolve_accelerator(pool.accelerator) if pool.accelerator is not None else None


def step_time_source(pool: PoolPlan) -> dict[str, str | bool | None]:
    """Where a pool's step times come from, and whether they were fitted to measurements."""
    kind = pool.step_time.model
    if kind != "physics":
        return {"model": kind, "profile": None, "calibrated": None}
    profile = _profile(pool)
    return {"model": kind, "profile": profile.name, "calibrated": profile.calibrated}


def _profile(pool: PoolPlan) -> Profile:
    accelerator = accelerator_of(pool)
    assert accelerator is not None, "a pool with physics and no accelerator is refused"
    given = pool.step_time.parameters.get("profile")
    return profile_for(accelerator) if given is None else load_profile(str(given))


def evidence_of(pool: PoolPlan, shape: ModelShape | None, model: StepTimeModel) -> Evidence:
    """What stands behind a pool's step times; `model` is the one that gives them."""
    kind = pool.step_time.model
    if kind == "physics":
        assert shape is not None, "a scenario without a model is refused when it is loaded"
        return profile_evidence(_profile(pool), shape, pool.tensor_parallel)
    if kind == "table":
        if isinstance(model, Scaled):
            model = model.inner
        assert isinstance(model, Table)
        return table_evidence(model)
    if kind == "blis-trained-physics":
        given = "beta" in pool.step_time.parameters
        whose = "the scenario's own" if given else "those its authors published"
        return without(f"its coefficients are {whose}")
    return without(UNMEASURED[kind])


def expert_degree(pool: PoolPlan) -> int:
    """Over how many GPUs whole experts are spread; 1 when each has a part of all."""
    return pool.tensor_parallel if pool.expert_parallel else 1


def limits_of(pool: PoolPlan, shape: ModelShape | None) -> EngineLimits:
    engine = pool.engine
    kv_blocks = engine.kv_blocks
    if kv_blocks is None:
        kv_blocks = _memory_blocks(pool, *_hardware(pool, shape))
    max_model_len = engine.max_model_len
    if max_model_len is None:
        max_model_len = shape.max_context if shape is not None else 1 << 40
    if pool.step_time.model == BLIS:
        max_model_len = min(max_model_len, kv_blocks * engine.block_size)
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
        lora=_lora(engine.lora),
        tiers=_tiers(engine, shape),
        null_block=engine.null_block,
        preemption=engine.preemption,
        over_length=engine.over_length,
        last_step_blocks=engine.last_step_blocks,
        store_last_token=engine.store_last_token,
        compute_whole_hits=engine.compute_whole_hits,
    )


def _tiers(engine: EnginePlan, shape: ModelShape | None) -> list[TierLimits] | None:
    offload = engine.offload
    if offload is None:
        return None
    block_bytes = engine.block_size * offload_token_bytes(offload, shape)
    limits = []
    for tier in offload.tiers:
        blocks = math.floor(tier.size_bytes / block_bytes)
        if blocks < 1:
            size, block = format_size(tier.size_bytes), format_size(block_bytes)
            raise InputError(f"the tier {tier.name} has {size}, but a block of KV needs {block}")
        block_s = block_bytes / tier.bytes_per_s
        limits.append(TierLimits(tier.name, blocks, block_s, tier.latency_s))
    return limits


def offload_token_bytes(offload: OffloadPlan, shape: ModelShape | None) -> float:
    """KV bytes of a token on all accelerators of a server together."""
    if offload.bytes_per_token is not None:
        return offload.bytes_per_token
    assert shape is not None, "a scenario with neither is refused when it is loaded"
    return kv_bytes_per_token(shape)


def _lora(lora: LoraPlan | None) -> LoraLimits | None:
    return None if lora is None else LoraLimits(lora.slots, lora.load_s, lora.step_cost)


def _memory_blocks(pool: PoolPlan, shape: ModelShape, accelerator: Accelerator) -> int:
    """What memory holds beside the weights, by the estimate that belongs to the step times."""
    engine = pool.engine
    if pool.step_time.model == BLIS:
        return blis_kv_blocks(
            shape,
            accelerator,
            tensor_parallel=pool.tensor_parallel,
            memory_utilization=engine.memory_utilization,
            block_size=engine.block_size,
        )
    return kv_capacity(
        shape,
        accelerator,
        tensor_parallel=pool.tensor_parallel,
        expert_parallel=expert_degree(pool),
        memory_utilization=engine.memory_utilization,
        block_size=engine.block_size,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        adapter_bytes=engine.lora.slots * engine.lora.memory_bytes if engine.lora else 0.0,
    ).blocks


def _hardware(pool: PoolPlan, shape: ModelShape | None) -> tuple[ModelShape, Accelerator]:
    accelerator = accelerator_of(pool)
    assert shape is not None, "a scenario without a model is refused when it is loaded"
    assert accelerator is not None, "so is a pool without an accelerator that needs one"
    return shape, accelerator


def step_time_of(pool: PoolPlan, shape: ModelShape | None) -> StepTimeModel:
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
        return Roofline(
            shape,
            accelerator,
            tensor_parallel=pool.tensor_parallel,
            expert_parallel=expert_degree(pool),
        )
    if kind == BLIS:
        beta = given.get("beta", DEFAULT_BETA)
        assert isinstance(beta, tuple)
        return BlisTrainedPhysics(
            shape, accelerator, tensor_parallel=pool.tensor_parallel, beta=beta
        )
    assert kind == "physics", kind
    profile = load_profile(str(given["profile"])) if "profile" in given else None
    return physics_model(shape, accelerator, profile, pool.tensor_parallel, expert_degree(pool))


def overheads_of(pool: PoolPlan) -> Overheads:
    """The pool's own, and for the peer's model the ones that are part of it."""
    own = pool.overheads
    if pool.step_time.model != BLIS:
        to_queue_s = own.network_s + own.queueing_s
        return Overheads(to_queue_s, own.per_token_s, own.completion_s, back_s=own.network_s)
    given = pool.step_time.parameters.get("alpha", DEFAULT_ALPHA_US)
    assert isinstance(given, tuple)
    alpha = tuple(math.floor(part) * MICROSECOND for part in given)
    return Overheads(
        own.network_s + own.queueing_s + alpha[0],
        own.per_token_s + alpha[2],
        own.completion_s + alpha[1],
        TICKS_PER_S,
        own.network_s,
    )


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
