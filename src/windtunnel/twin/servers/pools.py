"""The servers of a pool: their limits and step times, and catalog checks."""

import math
from pathlib import Path

import msgspec

from windtunnel.core.errors import InputError, one_sentence_per
from windtunnel.core.system.files import read_bounded
from windtunnel.core.units import format_size
from windtunnel.engine.limits import EngineLimits, TierLimits, WindowGroups
from windtunnel.engine.overheads import Overheads
from windtunnel.engine.settings import EngineSettings
from windtunnel.models.calibration.evidence import (
    Evidence,
    profile_evidence,
    table_evidence,
    without,
)
from windtunnel.models.capacity import (
    KvCapacity,
    MemoryLimits,
    blis_kv_blocks,
    kv_bytes_per_token,
    kv_capacity,
    kv_groups,
)
from windtunnel.models.catalog.accelerators import Accelerator, resolve_accelerator
from windtunnel.models.catalog.drafters import Drafter, drafter_of
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.settings import (
    BlisTrainedPhysicsStepTime,
    LinearStepTime,
    PhysicsStepTime,
    RooflineStepTime,
    StepTime,
    TableStepTime,
)
from windtunnel.models.step_time.blis import (
    DEFAULT_ALPHA_US,
    DEFAULT_BETA,
    TICKS_PER_S,
    BlisTrainedPhysics,
)
from windtunnel.models.step_time.linear import Linear
from windtunnel.models.step_time.measurements import MOST_BYTES
from windtunnel.models.step_time.model import Scaled, StepTimeModel, StepWork
from windtunnel.models.step_time.physics import Physics, Ranks
from windtunnel.models.step_time.pipeline import Pipelined, pipelined
from windtunnel.models.step_time.profile import Profile, load_profile, physics_model, profile_for
from windtunnel.models.step_time.roofline import Roofline
from windtunnel.models.step_time.speculative import Speculating
from windtunnel.models.step_time.table import Table
from windtunnel.routing.build import POLICIES
from windtunnel.routing.custom import policy_class
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.settings import PoolSettings

MICROSECOND = 1e-6
SECONDS_PER_HOUR = 3600.0

BLIS = "blis-trained-physics"

KeyPath = tuple[str | int, ...]
"""A place in a scenario: keys, and positions in lists."""

DOMAIN, LARGE_DOMAIN = 8, 72
"""Accelerators joined by dedicated links; the larger is a GB200 or GB300 rack."""

UNMEASURED = {
    "linear": "the numbers are the scenario's own",
    "roofline": "they are those of hardware without any losses",
}
"""Step-time models without measurements."""


def shape_of(pool: PoolSettings) -> ModelShape | None:
    """The model that a pool serves, with the KV cache type of its engine."""
    if pool.model is None:
        return None
    shape = resolve_model(pool.model)
    if pool.engine.kv_cache_dtype == "fp8":
        shape = msgspec.structs.replace(shape, kv_bytes=1.0)
    return shape


def hardware_faults(
    plan: ScenarioPlan, contradictory: frozenset[int] = frozenset()
) -> list[tuple[KeyPath, InputError]]:
    """Reports all conflicts of a plan with catalogs, profiles and memory, each with its place.

    Of the pools in `contradictory`, whose settings break rules, only names are looked up.
    """
    faults: list[tuple[KeyPath, InputError]] = []
    unknown: set[str | None] = set()  # models; each fault is reported once
    for number, pool in enumerate(plan.pools):
        here: KeyPath = ("serving", "pools", number)
        shape = None
        if pool.model not in unknown:
            try:
                shape = shape_of(pool)
            except InputError as fault:
                unknown.add(pool.model)
                own = pool.model != plan.model
                faults += _each((*here, "model") if own else ("model",), fault)
        faults += _step_time_faults((*here, "step_time"), pool.step_time)
        try:
            accelerator_of(pool)
        except InputError as fault:
            faults += _each((*here, "accelerator"), fault)
            continue
        if (shape is None and pool.model is not None) or number in contradictory:
            continue
        for check in (limits_of, step_time_of):
            try:
                check(pool, shape)
            except InputError as fault:
                told = {str(error) for place, error in faults if place[:3] == here}
                faults += [one for one in _each(here, fault) if str(one[1]) not in told]
    if plan.router.policy not in POLICIES:
        try:
            policy_class(plan.router.policy, plan.folder)
        except InputError as fault:
            faults += _each(("serving", "router", "policy"), fault)
    return faults


def _step_time_faults(path: KeyPath, step: StepTime) -> list[tuple[KeyPath, InputError]]:
    """Reports a profile or a table that does not exist."""
    if isinstance(step, PhysicsStepTime) and step.profile is not None:
        try:
            load_profile(step.profile)
        except InputError as fault:
            return _each((*path, "profile"), fault)
    if isinstance(step, TableStepTime) and not Path(step.path).is_dir():
        try:
            read_bounded(Path(step.path), MOST_BYTES)
        except InputError as fault:
            return _each((*path, "path"), fault)
    return []


def _each(path: KeyPath, fault: InputError) -> list[tuple[KeyPath, InputError]]:
    return [(path, one) for one in fault.faults]


def accelerator_of(pool: PoolSettings) -> Accelerator | None:
    return resolve_accelerator(pool.accelerator) if pool.accelerator is not None else None


def step_time_source(pool: PoolSettings) -> dict[str, str | bool | None]:
    """Where a pool's step times come from, and whether they were fitted to measurements."""
    kind = pool.step_time.model
    if kind != "physics":
        return {"model": kind, "profile": None, "calibrated": None}
    profile = _profile(pool)
    return {"model": kind, "profile": profile.name, "calibrated": profile.calibrated}


def _profile(pool: PoolSettings) -> Profile:
    accelerator = accelerator_of(pool)
    assert accelerator is not None, "a pool with physics and no accelerator is refused"
    assert isinstance(pool.step_time, PhysicsStepTime)
    given = pool.step_time.profile
    return profile_for(accelerator) if given is None else load_profile(given)


def evidence_of(
    pool: PoolSettings, shape: ModelShape | None, model: StepTimeModel, step: StepWork
) -> Evidence:
    """The evidence for a pool's step times; `model` gives them, and `step` is a typical one."""
    kind = pool.step_time.model
    while isinstance(model, (Scaled, Speculating, Pipelined)):
        model = model.inner
    if kind == "physics":
        assert shape is not None, "a scenario without a model is refused when it is loaded"
        assert isinstance(model, Physics)
        return profile_evidence(_profile(pool), model, shape, step)
    if kind == "table":
        assert isinstance(model, Table)
        return table_evidence(model)
    if isinstance(pool.step_time, BlisTrainedPhysicsStepTime):
        whose = "the scenario's own" if pool.step_time.beta else "those its authors published"
        return without(f"the coefficients are {whose}")
    return without(UNMEASURED[kind])


def assumptions_of(pool: PoolSettings) -> list[str]:
    """Sentences about a pool's settings for which nothing was measured."""
    found = []
    recurrent = pool.model is not None and resolve_model(pool.model).recurrent_layers > 0
    speculative = pool.engine.speculative
    if speculative is not None and speculative.acceptance is None:
        found.append(
            f"Drafts of {pool.name} are accepted as those of another model were, on prompts about "
            "code; `acceptance` takes the rates that vLLM logs for yours."
        )
    if pool.data_parallel > 1:
        found.append(
            f"Requests of {pool.name} are spread evenly over its {pool.data_parallel} ranks "
            "(data_parallel), whose prefix caches are one; on a real server the fullest rank sets "
            "the pace."
        )
    if isinstance(pool.step_time, LinearStepTime):
        return found  # collectives and batches are part of the scenario's own numbers
    if speculative is not None:
        found.append(
            f"Steps of {pool.name} that verify drafts are priced from operators; none was measured "
            "as a whole."
        )
    if recurrent and pool.engine.prefix_caching:
        found.append(
            f"The prefix cache of {pool.name} counts keys and values alone; vLLM keeps a state for "
            "every cached block as well, so that fewer prefixes fit than here."
        )
    domain = LARGE_DOMAIN if (pool.accelerator or "").lower().startswith("gb") else DOMAIN
    if pool.tensor_parallel * pool.data_parallel > domain:
        found.append(
            f"Collectives of {pool.name} run over links of one machine, and its servers span "
            "several; nothing was measured between machines."
        )
    if pool.pipeline_parallel > 1:
        found.append(
            f"Batches of the pipeline of {pool.name} are taken to be of one size; no run of a "
            "pipeline was measured."
        )
    return found


def expert_degree(pool: PoolSettings) -> int:
    """Over how many GPUs whole experts are spread; 1 when each GPU has a part of every expert."""
    return pool.tensor_parallel * pool.data_parallel if pool.expert_parallel else 1


def limits_of(pool: PoolSettings, shape: ModelShape | None, seed: int = 0) -> EngineLimits:
    engine = pool.engine
    if shape is not None:
        shape.per_stage(pool.pipeline_parallel)  # raises where a stage would have no layer
    kv_blocks = engine.kv_blocks
    if kv_blocks == "auto":
        kv_blocks = _memory_blocks(pool, *_hardware(pool, shape))
    max_model_len = engine.max_model_len
    if max_model_len is None:
        max_model_len = shape.max_context if shape is not None else 1 << 40
    if pool.step_time.model == BLIS:
        max_model_len = min(max_model_len, kv_blocks * engine.block_size)
    windows = None if engine.kv_blocks != "auto" else _windows(pool, shape)
    if shape is not None and shape.recurrent_layers and (engine.offload or pool.role != "both"):
        what = f"{shape.name} has recurrent layers, whose states are not offloaded or handed over"
        raise InputError(what, allowed="no offload, and pools of the role both")
    if pool.data_parallel > 1 and shape is not None and not shape.is_mixture:
        what = f"data_parallel is {pool.data_parallel}, but {shape.name} has no experts to share"
        hint = f"ranks of a dense model are servers of their own: replicas, {pool.data_parallel} "
        raise InputError(what, allowed="a mixture model", hint=hint + "times as many")
    return EngineLimits(
        engine,
        kv_blocks,
        max_model_len,
        _tiers(engine, shape),
        windows,
        seed,
        pool.data_parallel,
        pool.pipeline_parallel,
    )


def _drafter(pool: PoolSettings, shape: ModelShape) -> Drafter | None:
    speculative = pool.engine.speculative
    if speculative is None:
        return None
    return drafter_of(speculative.method, shape, speculative.model)


def _windows(pool: PoolSettings, shape: ModelShape | None) -> WindowGroups | None:
    """Blocks that requests hold for sliding-window or recurrent layers, beside full-attention
    ones."""
    if shape is None or pool.step_time.model == BLIS:
        return None
    part = shape.per_gpu(pool.tensor_parallel)
    groups = kv_groups(part.per_stage(pool.pipeline_parallel))
    if groups.recurrent:
        # For a running request: its state and one per draft, without the states that prefix
        # caching leaves behind.
        speculative = pool.engine.speculative
        drafts = 0 if speculative is None else speculative.num_speculative_tokens
        return WindowGroups(groups.full, groups.recurrent * (1 + drafts), 1)
    if not groups.full or not groups.windowed:
        return None
    most = groups.window_blocks(1, groups.window, pool.engine.block_size)
    # In blocks of `block_size` tokens, of which a larger block of the pool holds several.
    full, windowed = groups.full * groups.window_multiple, groups.windowed * groups.full_multiple
    return WindowGroups(full, windowed, most * groups.window_multiple)


def _tiers(engine: EngineSettings, shape: ModelShape | None) -> list[TierLimits] | None:
    if engine.offload is None:
        return None
    block_bytes = engine.block_size * offload_token_bytes(engine, shape)
    limits = []
    for tier in engine.offload:
        blocks = math.floor(tier.size_bytes / block_bytes)
        if blocks < 1:
            size, block = format_size(tier.size_bytes), format_size(block_bytes)
            raise InputError(f"the tier {tier.tier} has {size}, but a block of KV needs {block}")
        limits.append(TierLimits(tier.tier, blocks, block_bytes / tier.bytes_per_s, tier.delay_s))
    return limits


def offload_token_bytes(engine: EngineSettings, shape: ModelShape | None) -> float:
    """KV bytes per token over all accelerators of a server."""
    if engine.kv_bytes_per_token is not None:
        return engine.kv_bytes_per_token
    assert shape is not None, "a scenario with neither is refused when it is loaded"
    return kv_bytes_per_token(shape)


def _memory_blocks(pool: PoolSettings, shape: ModelShape, accelerator: Accelerator) -> int:
    """The KV blocks that fit beside the weights, by the estimate that belongs to the step times."""
    engine = pool.engine
    if pool.step_time.model == BLIS:
        return blis_kv_blocks(
            shape,
            accelerator,
            tensor_parallel=pool.tensor_parallel,
            memory_utilization=engine.memory_utilization,
            block_size=engine.block_size,
        )
    return capacity_of(pool, shape, accelerator).blocks


def capacity_of(pool: PoolSettings, shape: ModelShape, accelerator: Accelerator) -> KvCapacity:
    """How the memory of one GPU of a pool is divided."""
    engine = pool.engine
    limits = MemoryLimits(
        memory_utilization=engine.memory_utilization,
        block_size=engine.block_size,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        max_model_len=engine.max_model_len or 0,
        adapter_bytes=engine.lora.slots * engine.lora.memory_bytes if engine.lora else 0.0,
        draft_tokens=engine.speculative.num_speculative_tokens if engine.speculative else 0,
        prefix_caching=engine.prefix_caching,
        version=engine.version,
    )
    return kv_capacity(
        shape,
        accelerator,
        limits,
        tensor_parallel=pool.tensor_parallel,
        expert_parallel=expert_degree(pool),
        data_parallel=pool.data_parallel,
        pipeline_parallel=pool.pipeline_parallel,
        drafter=_drafter(pool, shape),
    )


def automatic_capacity_of(pool: PoolSettings) -> KvCapacity | None:
    """The memory of a pool whose `kv_blocks` follow from it as in vLLM; None for other pools.

    BLIS fits max_model_len to its own estimate.
    """
    if pool.engine.kv_blocks != "auto" or pool.step_time.model == BLIS:
        return None
    return capacity_of(pool, *_hardware(pool, shape_of(pool)))


def _hardware(pool: PoolSettings, shape: ModelShape | None) -> tuple[ModelShape, Accelerator]:
    accelerator = accelerator_of(pool)
    assert shape is not None, "a scenario without a model is refused when it is loaded"
    assert accelerator is not None, "so is a pool without an accelerator that needs one"
    return shape, accelerator


def step_time_of(pool: PoolSettings, shape: ModelShape | None) -> StepTimeModel:
    """The step-time model of a pool's servers, including drafts."""
    inner = _own_step_time(pool, shape)
    if pool.pipeline_parallel > 1 and not isinstance(pool.step_time, LinearStepTime):
        whole, accelerator = _hardware(pool, shape)
        batch = pool.engine.max_num_batched_tokens
        return pipelined(inner, whole, accelerator, pool.pipeline_parallel, batch)
    speculative = pool.engine.speculative
    if speculative is None:
        return inner
    drafts, fixed_s = speculative.num_speculative_tokens, speculative.draft_time_s
    drafter = None
    if fixed_s is None and not isinstance(pool.step_time, LinearStepTime):
        assert shape is not None, "a scenario without a model is refused when it is loaded"
        drafting = _drafter(pool, shape)
        if drafting is not None:
            drafter = _own_step_time(pool, drafting.shape)
    return Speculating(inner, drafter, drafts, fixed_s or 0.0)


def _own_step_time(pool: PoolSettings, shape: ModelShape | None) -> StepTimeModel:
    step = pool.step_time
    if isinstance(step, LinearStepTime):
        return Linear(
            fixed_s=step.fixed_s,
            prefill_token_s=step.per_prefill_token_s,
            decode_s=step.per_decode_s,
            context_token_s=step.per_context_token_s,
        )
    shape, accelerator = _hardware(pool, shape)
    if shape.is_sparse and not isinstance(step, PhysicsStepTime):
        what = f"{shape.name} has sparse attention, which the step time {step.model!r} lacks"
        raise InputError(what, allowed="physics, or linear")
    if shape.recurrent_layers and not isinstance(step, (PhysicsStepTime, RooflineStepTime)):
        what = f"{shape.name} has recurrent layers, which the step time {step.model!r} lacks"
        raise InputError(what, allowed="physics, roofline or linear")
    degree, experts = pool.tensor_parallel, expert_degree(pool)
    if isinstance(step, TableStepTime):
        return _table(step, shape, degree)
    if isinstance(step, RooflineStepTime):
        return Roofline(shape, accelerator, tensor_parallel=degree, expert_parallel=experts)
    if isinstance(step, BlisTrainedPhysicsStepTime):
        beta = DEFAULT_BETA if step.beta is None else tuple(step.beta)
        return BlisTrainedPhysics(shape, accelerator, tensor_parallel=degree, beta=beta)
    profile = None if step.profile is None else load_profile(step.profile)
    ranks = Ranks(pool.data_parallel, pool.all2all_backend) if pool.data_parallel > 1 else None
    return physics_model(shape, accelerator, profile, degree, experts, ranks)


def overheads_of(pool: PoolSettings, network_s: float) -> Overheads:
    """The overheads of the pool and the network; for the BLIS model, also those it includes."""
    own, step = pool.overheads, pool.step_time
    to_queue_s = network_s + own.queueing_s
    if not isinstance(step, BlisTrainedPhysicsStepTime):
        return Overheads(
            to_queue_s,
            own.per_token_s,
            own.completion_s,
            back_s=network_s,
            per_prompt_token_s=own.per_prompt_token_s,
        )
    given = DEFAULT_ALPHA_US if step.alpha is None else step.alpha
    alpha = tuple(math.floor(part) * MICROSECOND for part in given)
    return Overheads(
        to_queue_s + alpha[0],
        own.per_token_s,
        own.completion_s + alpha[1],
        TICKS_PER_S,
        network_s,
        accumulating_s=alpha[2],
        per_prompt_token_s=own.per_prompt_token_s,
    )


def _table(step: TableStepTime, shape: ModelShape, tensor_parallel: int) -> StepTimeModel:
    from windtunnel.models.step_time.table_files import read_table

    faults: list[InputError] = []
    if tensor_parallel > 1:
        what = f"tensor_parallel is {tensor_parallel}"
        allowed = "1 with step_time table, whose measurements hold no collectives"
        faults.append(InputError(what, allowed=allowed))
    try:
        table = read_table(Path(step.path), shape, per_step_s=step.per_step_s)
    except InputError as fault:
        raise one_sentence_per([*faults, *fault.faults]) from None
    if faults:
        raise faults[0]
    return table


def price_of(pool: PoolSettings) -> float | None:
    """Dollars per accelerator-hour of a pool; None when unknown."""
    if pool.price_per_hour is not None:
        return pool.price_per_hour
    accelerator = accelerator_of(pool)
    return None if accelerator is None else accelerator.price_per_hour


def cost_of(pool: PoolSettings, replica_seconds: float) -> float:
    """Dollars for this many replica-seconds; a pool without a price costs nothing."""
    price = price_of(pool) or 0.0
    return replica_seconds * pool.gpus * price / SECONDS_PER_HOUR
